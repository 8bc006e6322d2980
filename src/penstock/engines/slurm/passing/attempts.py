"""An attempt of a job as a job of Slurm: what is known of it, and what its end means.

Two witnesses: the files of its script (`spool.py`), which know codes and signals exactly, and Slurm, which knows why.
The first alone is enough where a program ended by itself. Where something made it leave, or killed it, Slurm is asked.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Literal

from msgspec.structs import replace

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import ExitInfo
from penstock.engines.slurm.jobs import SlurmJob
from penstock.engines.slurm.passing.options import COMMENT_MAX, tag_of
from penstock.engines.slurm.passing.script import CLAIMED_CODE, NOT_SHARED_CODE
from penstock.engines.slurm.passing.spool import AttemptKey, Ended, Started
from penstock.engines.slurm.server import JobTerms
from penstock.engines.slurm.states import NOTES, exit_of, word_of

State = Literal["gathering", "queued", "submitting", "unsure", "submitted"]
"""`unsure`: sbatch did not answer, so it may be a job of Slurm or not."""
NOT_BEGUN = ExitInfo(problem="it was stopped before it began", stop_sent=True)
VANISHED = ExitInfo(problem="Slurm: it vanished: neither squeue nor sacct shows it")
UNLAUNCHED = "Slurm: it could not be launched"
LOST = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "REVOKED", "REQUEUED", "REQUEUE_HOLD",
                  "REQUEUE_FED", "SPECIAL_EXIT", "RECONFIG_FAIL"})  # fmt: skip
"""States that are no fault of the job: it waits again, and its retries are left."""
ELEMENTS_MAX = 500
SCRIPT_MAX_BYTES = 256 * 2**10
"""Of what is each attempt's own in the script of several: Slurm sends the whole of it to each."""
KILL_SIGNAL = 9


class Attempt:
    """One attempt. On the engine's loop."""

    def __init__(self, key: AttemptKey, account: str) -> None:
        self.key, self.account = key, account
        self.state: State = "gathering"
        self.number = ""
        """Of its job in Slurm; '' until that is known."""
        self.orders: dict[Rank, StartReplica] = {}
        self.started: dict[ReplicaKey, Started] = {}
        self.suspects: dict[ReplicaKey, tuple[Ended, float]] = {}
        """Ends of which Slurm is asked the cause, and since when (s)."""
        self.kill_at_s: dict[ReplicaKey, float] = {}
        """When what was asked to stop is killed."""
        self.asked: set[ReplicaKey] = set()
        self.killed: set[ReplicaKey] = set()
        self.line: SlurmJob | None = None
        self.since_s = 0.0
        """When it got into its present state, or into what its line says."""
        self.looks = 0
        """Refreshes that have found it over, or missing, since then."""
        self.busy = False
        """Something is being done for it, beside the loop."""
        self.forced = False
        self.taken = False
        """Its number is another job's by now: Slurm has lost its memory of this one."""
        self.waits_s = 0.0
        """Since when Slurm lets it wait (s); 0: it does not."""
        self.shape: tuple[int, object] = (0, None)
        """As `shape_of`, once all its starts have come."""
        self.apart = False
        """It goes into a job of Slurm of its own: together with others it was refused."""

    @property
    def stopping(self) -> bool:
        return bool(self.kill_at_s)

    @property
    def complete(self) -> bool:
        """Whether all its starts have come."""
        return bool(self.orders) and len(self.orders) == next(iter(self.orders.values())).world_size

    @property
    def gang(self) -> bool:
        return len(self.orders) > 1 or len(self.started) > 1

    @property
    def in_array(self) -> bool:
        return next(iter(self.orders.values())).array_id is not None

    @property
    def own_bytes(self) -> int:
        """How much of a script is its own, at the most."""
        texts = ((*one.command, one.workdir, *map("".join, one.env)) for one in self.orders.values())
        return sum(len(text) + 8 for text in chain.from_iterable(texts))

    def replicas(self) -> list[StartReplica]:
        return [self.orders[rank] for rank in sorted(self.orders)]

    def named(self, key: ReplicaKey) -> bool:
        return AttemptKey(key.job_id, key.attempt) == self.key

    def enter(self, state: State, now_s: float) -> None:
        self.state, self.since_s, self.looks = state, now_s, 0


def attempt_key(key: ReplicaKey) -> AttemptKey:
    return AttemptKey(key.job_id, key.attempt)


def group_of(
    first: Attempt, queue: Sequence[Attempt], cluster: str, index_max: int, most: int = ELEMENTS_MAX
) -> list[Attempt]:
    """Return the attempts that go into one job of Slurm with the first, by their numbers: all that are shaped alike.

    Args:
        queue: attempts that wait, in order.
        index_max: the highest index of an array that Slurm takes.
        most: attempts that go together.
    """
    order = first.orders[Rank(0)]
    if first.apart or order.array_index > index_max:
        return [first]
    group, bytes_left = [first], SCRIPT_MAX_BYTES - first.own_bytes
    for other in queue:
        if other is first or other.apart or other.shape != first.shape:
            continue
        if max(len(group) if order.array_id is None else 0, other.orders[Rank(0)].array_index) > index_max:
            continue
        bytes_left -= other.own_bytes
        if len(group) >= most or bytes_left < 0:
            break
        group.append(other)
    while len(tag_of(cluster, [one.replicas() for one in _sorted(group)])) > COMMENT_MAX:
        del group[-(-len(group) * 3 // 4) :]
    return _sorted(group)


def _sorted(group: Sequence[Attempt]) -> list[Attempt]:
    return sorted(group, key=lambda one: (one.orders[Rank(0)].array_index, one.key.job_id))


def shape_of(orders: Sequence[StartReplica], terms: JobTerms) -> tuple[int, object]:
    """Return what attempts that go into one job of Slurm have in common, with its hash first.

    The elements of an array may have other names and numbers; other jobs have the same name, and number of attempt.
    """
    alike = tuple(
        replace(one, key=ReplicaKey(JobId(0), AttemptNumber(0), one.key.rank), array_index=0, mark="", name="",
                command=(), workdir="", master_port=0, env=(), devices=(0,) * len(one.devices))
        for one in orders
    )  # fmt: skip
    first = orders[0]
    own = (first.name, first.key.attempt) if first.array_id is None else ()
    shape = (alike, own, tuple(sorted(terms.labels.items())), terms.time_limit_ms, terms.account)
    return hash(shape), shape


def info_of(ended: Ended, *, stopping: bool) -> ExitInfo:
    """Return how a program ended. What ended without having got the signal of a stop has ended by itself."""
    return ExitInfo(ended.code, ended.signal, stop_sent=stopping and bool(ended.stopped or ended.signal == KILL_SIGNAL))


def is_suspect(ended: Ended, *, stopping: bool) -> bool:
    """Return whether Slurm is asked for the cause: a stop that is not ours, or a kill that nobody here asked for."""
    return not stopping and (bool(ended.stopped) or KILL_SIGNAL in (ended.signal, (ended.code or 0) - 128))


def explained(ended: Ended, line: SlurmJob) -> ExitInfo | None:
    """Return how a program ended whose job Slurm says something of; None: it was cancelled there."""
    info, word = info_of(ended, stopping=False), word_of(line.state)
    if word == "CANCELLED":
        return None
    note = NOTES.get(word, word.lower() if word in LOST else "")
    if info.code == 0:
        return ExitInfo(problem=f"Slurm: {note or 'it was asked to stop'}, it had saved")
    if word in LOST:
        return ExitInfo(problem=f"Slurm: {note}")
    if note:
        return replace(info, note=note, observed=True)
    if ended.stopped:  # as srun does where a node of a gang fails: its program did not choose to end
        return ExitInfo(problem=f"Slurm: it was asked to stop: {info.text()}")
    return info


def _unlaunched(line: SlurmJob) -> bool:
    """Return whether it was Slurm itself that cancelled a job, for its slurmd could not launch it.

    That is how a job ends that is not to be requeued, as when its slurmstepd dies at its birth (`_launch_job_fail` in
    slurmd): it has nodes, and no code. Of a scancel it has no nodes, for it waited, or the signal of its script: 15, 9.
    """
    by = line.state.partition(" by ")[2].strip()  # of sacct; slurmd is root
    return bool(line.hosts) and not line.code and not line.signal and by in ("", "0")


def info_of_word(line: SlurmJob, spool: str, *, started: bool = False) -> ExitInfo | None:
    """Return how a program ended of which its script has said nothing of its end; None: it was cancelled in Slurm.

    Args:
        started: its script has said that it began.
    """
    word = word_of(line.state)
    if word == "CANCELLED":
        return None if started or not _unlaunched(line) else ExitInfo(problem=f"{UNLAUNCHED} on {line.hosts}")
    if word in LOST or line.phase == "again":
        where = f" on {line.hosts}" if line.hosts and word != "PREEMPTED" else ""
        return ExitInfo(problem=f"Slurm: {NOTES.get(word, word.lower())}{where}")
    if word == "FAILED" and line.code == NOT_SHARED_CODE:
        return ExitInfo(problem=f"{spool} is not there on {line.hosts}: all nodes must share it with the server")
    if word == "FAILED" and line.code == CLAIMED_CODE:
        return ExitInfo(problem="Slurm: another job had this attempt, and has said nothing of its end")
    if word == "FAILED":
        said = f"signal {line.signal}" if line.signal else f"exit {line.code}"
        return ExitInfo(problem=f"Slurm: {said}, and its script has said nothing of its end")
    return exit_of(line.state, line.code, line.signal)
