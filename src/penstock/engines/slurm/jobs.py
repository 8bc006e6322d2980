"""Jobs as `squeue` and `sacct` show them, one value for each run or wait; elements of arrays one by one."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import DEFAULT_POOL, PoolName, UserName
from penstock.core.model.resources import Resources
from penstock.core.model.selectors import LabelRule
from penstock.engines.slurm.rows import Column
from penstock.engines.slurm.states import Phase, UnknownState, of_pair, of_status, phase_of
from penstock.formats.hostlist import expand
from penstock.formats.slurm import limit_ms
from penstock.formats.slurm_tres import NODES_MAX, count_of, gpus_of, spread, tres

QUEUE = (
    Column("JobArrayID", 40), Column("UserName", 64), Column("Account", 64), Column("Partition", 128),
    Column("QOS", 40), Column("State", 24), Column("Reason", 48), Column("SubmitTime", 14),
    Column("eligibletime", 14), Column("StartTime", 14), Column("EndTime", 14), Column("TimeLimit", 18),
    Column("NumNodes", 10), Column("tres-alloc", 160), Column("NodeList", 256), Column("exit_code", 10),
    Column("RestartCnt", 6), Column("Feature", 96), Column("HetJobID", 12), Column("Name", 80),
)  # fmt: skip
"""Columns of `squeue -O`, in this order."""
UNTRACKED = (*QUEUE[:-1], Column("tres-per-node", 80), Column("tres-per-job", 80), QUEUE[-1])
"""The same where Slurm does not track GPUs (`AccountingStorageTRES`): then only what was asked for says them."""
COMMENT = Column("Comment", 320)
NODE_LIST = (Column("JobArrayID", 40), Column("NodeList", 60_000))
"""For the jobs whose nodes did not fit."""
ACCOUNT = (
    "JobID", "User", "Account", "Partition", "QOS", "State", "Reason", "Submit", "Eligible", "Start", "End",
    "TimelimitRaw", "NNodes", "AllocTRES", "ReqTRES", "NodeList", "ExitCode", "JobName", "DerivedExitCode",
)  # fmt: skip
"""Columns of `sacct -o`, in this order: the last one is no text of a user."""
PARTITION_LABEL = "partition."
FEATURE_LABEL = "feature."
NO_LIMIT = ("", "Partition_Limit", "INVALID", "NOT_SET")


class JobKey(NamedTuple):
    """A job for ever: ids come back after MaxJobId, and after a loss of slurmctld's state."""

    number: str
    """As `squeue -r` shows it: `17`, of an array `12_3`, of a heterogeneous job `38+1`."""
    submit_s: int
    user: str

    def __str__(self) -> str:
        return f"{self.number}@{self.submit_s}"


class SlurmJob(msgspec.Struct, frozen=True, kw_only=True):
    """One line: a job that waits, runs or has ended. Times in seconds since 1970; 0 where there is none."""

    number: str
    user: str
    account: str
    partitions: tuple[str, ...]
    qos: str
    state: str
    phase: Phase
    reason: str
    submit_s: int
    eligible_s: int
    start_s: int
    """Of one that waits: 0, although Slurm may expect a start."""
    end_s: int
    """0 until it has ended, although Slurm may expect an end."""
    limit_ms: int
    nodes: int
    """How many."""
    tres: str
    hosts: str
    """The nodes that it has or had, as a host list."""
    code: int
    signal: int
    restarts: int
    """0 where the source does not say."""
    features: str
    name: str
    gpus_asked: tuple[str, str] = ("", "")
    """For each node and for the job, where GPUs are not tracked."""
    comment: str = ""
    """Where it was asked for."""

    @property
    def key(self) -> JobKey:
        return JobKey(self.number, self.submit_s, self.user)

    @property
    def ran(self) -> bool:
        """Whether it has or had nodes."""
        return self.start_s > 0 and bool(self.hosts)

    def node_names(self) -> list[str]:
        """Return its nodes. Raises: ValueError for a list that cannot be read."""
        return expand(self.hosts) if self.hosts else []


class Unread(NamedTuple):
    """A line that could not be read: nothing is assumed of its job."""

    number: str
    why: str


def of_queue(rows: Iterable[tuple[dict[str, str], bool]]) -> Iterator[tuple[SlurmJob | Unread, bool]]:
    """Yield the jobs of `squeue`, and whether their nodes or amounts may have been cut."""
    for row, cut in rows:
        try:
            phase = phase_of(row["State"])
            code, signal = of_status(_whole(row["exit_code"]))
            yield _job(row, phase, code=code, signal=signal, restarts=_whole(row["RestartCnt"])), cut
        except UnknownState as error:
            yield Unread(row["JobArrayID"], f"its state '{error}' is not known"), False
        except ValueError as error:
            yield Unread(row["JobArrayID"], str(error)), False


def of_accounts(rows: Iterable[dict[str, str]]) -> Iterator[SlurmJob | Unread]:
    """Yield the runs of `sacct -D -X`; elements of an array that have not started share a line, as `6_[1-2]`."""
    for row in rows:
        try:
            code, signal = of_pair(row["ExitCode"])
            columns = {
                **row, "JobArrayID": row["JobID"], "UserName": row["User"], "SubmitTime": row["Submit"],
                "eligibletime": row["Eligible"], "StartTime": row["Start"], "EndTime": row["End"],
                "NumNodes": row["NNodes"], "tres-alloc": row["AllocTRES"] or row["ReqTRES"], "Name": row["JobName"],
                "TimeLimit": row["TimelimitRaw"], "Feature": "",
            }  # fmt: skip
            yield _job(columns, phase_of(row["State"]), code=code, signal=signal, restarts=0)
        except UnknownState as error:
            yield Unread(row["JobID"], f"its state '{error}' is not known")
        except ValueError as error:
            yield Unread(row["JobID"], str(error))


def _job(row: dict[str, str], phase: Phase, *, code: int, signal: int, restarts: int) -> SlurmJob:
    waits = phase == "waiting"
    over = phase in ("ended", "again")
    return SlurmJob(
        number=row["JobArrayID"], user=row["UserName"], account=row["Account"],
        partitions=tuple(filter(None, row["Partition"].split(","))), qos=row["QOS"], state=row["State"], phase=phase,
        reason=row["Reason"], submit_s=_whole(row["SubmitTime"]), eligible_s=_whole(row["eligibletime"]),
        start_s=0 if waits else _whole(row["StartTime"]), end_s=_whole(row["EndTime"]) if over else 0,
        limit_ms=0 if row["TimeLimit"] in NO_LIMIT else limit_ms(row["TimeLimit"]),
        nodes=count_of(row["NumNodes"] or "1", NODES_MAX), tres=row["tres-alloc"],
        hosts="" if waits else row["NodeList"], code=code, signal=signal, restarts=restarts, features=row["Feature"],
        name=row["Name"], gpus_asked=(row.get("tres-per-node", ""), row.get("tres-per-job", "")),
        comment=row.get("Comment", ""),
    )  # fmt: skip


def _whole(text: str) -> int:
    return int(text) if text else 0


def ask_of(job: SlurmJob, pools: dict[str, PoolName]) -> GangAsk:
    """Return what a job asks for, or has: one replica on each node, alike as far as the numbers divide.

    Args:
        pools: of each partition.
    Raises: ValueError for amounts that cannot be read.
    """
    known = tres(job.tres)
    hosts = len(job.node_names())
    nodes = hosts or max(known.nodes, job.nodes, 1)
    host = Resources(-(-1000 * known.cpus // nodes), -(-known.memory_bytes // nodes))
    gpus, model = (known.gpus, known.model) if known.gpus else _asked_gpus(job, nodes)
    ask = spread(gpus, nodes, host, (model,) if model else ())
    pool = next((pools[name] for name in job.partitions if name in pools), DEFAULT_POOL)
    return msgspec.structs.replace(ask, pool=pool, label_terms=_terms(job))


def _asked_gpus(job: SlurmJob, nodes: int) -> tuple[int, str]:
    """Return the GPUs that a job asked for, and their model."""
    for text, times in zip(job.gpus_asked, (nodes, 1), strict=True):
        found = [gpus_of(item) for item in text.split(",") if item]
        count = sum(one for one, _ in found) * times
        if count:
            return count, next((model for _, model in found if model), "")
    return 0, ""


def _terms(job: SlurmJob) -> tuple[tuple[LabelRule, ...], ...]:
    """Return the rules about nodes: one of the partitions, and all features of a plain list (`a&b`)."""
    plain = job.features.replace("&", "").replace("_", "").replace("-", "").replace(".", "").isalnum()
    features = tuple(LabelRule(FEATURE_LABEL + word, "exists") for word in job.features.split("&") if word and plain)
    return tuple((LabelRule(PARTITION_LABEL + name, "exists"), *features) for name in job.partitions) or (
        (features,) if features else ()
    )


def less_of(ask: GangAsk, step: int) -> GangAsk | None:
    """Return what is asked for where a job runs that does not fit what is known of its nodes; None: nothing is left.

    Slurm may give CPUs unevenly, lend them several times, or not count memory: devices count longest.
    """
    if step == 0:
        return _changed(ask, devices=True)
    return _changed(ask, devices=False) if step == 1 else None


def _changed(ask: GangAsk, *, devices: bool) -> GangAsk:
    def each(one: msgspec.Struct) -> msgspec.Struct:
        more = {} if devices else {"devices": None}
        return msgspec.structs.replace(one, host=Resources(), **more)

    others = tuple(msgspec.structs.replace(group, each=each(group.each)) for group in ask.others)
    return msgspec.structs.replace(ask, each=each(ask.each), others=others)


def is_of(number: str, line: SlurmJob) -> bool:
    """Return whether a line is of the job of this number.

    Elements of an array that end before they begin share one line, which has the number of the array (`6`).
    """
    base = line.number.partition("_[")[0]
    shared = not line.ran and line.phase == "ended" and "_" not in base
    return number == line.number or (shared and number.startswith(f"{base}_"))


def elements_of(line: SlurmJob) -> Iterator[SlurmJob]:
    """Yield each of the elements of an array that share a line, such as `6_[1-2]`; none where it does not say which."""
    base, bracket, inner = line.number.partition("_[")
    try:
        names = expand(f"[{inner.rstrip(']').partition('%')[0]}]") if bracket else []
    except ValueError:
        return
    for name in names:
        yield msgspec.structs.replace(line, number=f"{base}_{name}")


def user_of(job: SlurmJob) -> UserName:
    return UserName(job.user or "slurm")
