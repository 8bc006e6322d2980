"""What is asked of Slurm: one call for all jobs, one for all nodes, one for what has left slurmctld's memory."""

import logging
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from penstock.engines.slurm.commands import SlurmAway, SlurmCommands
from penstock.engines.slurm.jobs import (
    ACCOUNT,
    COMMENT,
    NODE_LIST,
    QUEUE,
    UNTRACKED,
    SlurmJob,
    Unread,
    of_accounts,
    of_queue,
)
from penstock.engines.slurm.nodes import SlurmNode, read_nodes
from penstock.engines.slurm.rows import account_rows, divider, queue_format, queue_rows

log = logging.getLogger(__name__)

One = TypeVar("One")

NUMBERS_MAX = 500
"""Jobs in one question: their numbers are words of a command line."""
BEFORE_S = 60
"""Accounts are asked from this long before a submit: the database's clock may be behind."""
_CONFIG = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)


class SlurmConfig(NamedTuple):
    """What of the configuration matters here."""

    cluster: str
    version: str
    min_job_age_s: int
    """For how long slurmctld keeps jobs that have ended, at least."""
    accounts: bool
    """Whether there is a slurmdbd, and so `sacct`."""
    gpus_tracked: bool = True
    """Whether Slurm counts the GPUs of jobs."""
    index_max: int = 1000
    """The highest index of an element of an array."""


class QueueRead(NamedTuple):
    """All jobs that slurmctld knows, by number; and those that could not be read."""

    jobs: dict[str, SlurmJob]
    rest: tuple[SlurmJob, ...] = ()
    """Elements of arrays that ended together before they began: one line for many, such as `6_[1-2]`."""
    unread: tuple[Unread, ...] = ()


class Begun(NamedTuple):
    """What was read before a server began."""

    config: SlurmConfig
    queue: QueueRead | None
    """None: nothing was; what has ended by the first refresh is passed over."""


NOTHING_READ = Begun(SlurmConfig("", "", 300, accounts=True), None)


class SlurmReader:
    """Reads one cluster. Every call raises SlurmAway where Slurm does not answer, or not as expected.

    Args:
        tagged: with the comments of jobs.
    """

    def __init__(self, commands: SlurmCommands, *, gpus_tracked: bool = True, tagged: bool = False) -> None:
        self.commands = commands
        self._columns = QUEUE if gpus_tracked else UNTRACKED
        if tagged:
            self._columns = (*self._columns[:-1], COMMENT, self._columns[-1])

    async def config(self) -> SlurmConfig:
        return config_of(await self.commands.run("scontrol", "show", "config"))

    async def nodes(self) -> list[SlurmNode]:
        text = await self.commands.run("scontrol", "show", "node", "-o")
        try:
            return list(read_nodes(text))
        except ValueError as error:
            raise SlurmAway(f"scontrol show node: {error}") from None

    async def queue(self) -> QueueRead:
        """Return all jobs, those that have ended lately with them."""
        between = divider()
        text = await self.commands.run("squeue", "-h", "-r", "-t", "all", "-O", queue_format(self._columns, between))
        jobs: dict[str, SlurmJob] = {}
        unread: list[Unread] = []
        cut: list[str] = []
        rest: list[SlurmJob] = []
        try:
            for found, is_cut in of_queue(queue_rows(text, self._columns, between)):
                if isinstance(found, Unread):
                    unread.append(found)
                    continue
                if "[" in found.number:
                    rest.append(found)
                    continue
                jobs[found.number] = found
                if is_cut:
                    cut.append(found.number)
            await self._whole(jobs, cut)
        except ValueError as error:
            raise SlurmAway(f"squeue: expected {error}") from None
        return QueueRead(jobs, tuple(rest), tuple(unread))

    async def _whole(self, jobs: dict[str, SlurmJob], cut: Sequence[str]) -> None:
        """Give jobs their nodes that were cut."""
        from msgspec.structs import replace

        between = divider()
        for numbers in _parts(cut):
            text = await self.commands.run(
                "squeue", "-h", "-r", "-t", "all", "-O", queue_format(NODE_LIST, between), "-j", ",".join(numbers)
            )
            for row, _ in queue_rows(text, NODE_LIST, between):
                job = jobs.get(row["JobArrayID"])
                if job is not None and job.hosts:
                    jobs[job.number] = replace(job, hosts=row["NodeList"])

    async def ended(self, jobs: Iterable[tuple[str, int]]) -> list[SlurmJob]:
        """Return the runs of these jobs that are in the accounts.

        Args:
            jobs: their numbers, and when they were submitted (seconds since 1970).
        """
        wanted = list(jobs)
        found: list[SlurmJob] = []
        for part in _parts(wanted):
            begin = moment(min(submit_s for _, submit_s in part) - BEFORE_S)
            numbers = ",".join(number for number, _ in part)
            found += await self._accounts("-S", begin, "-j", numbers)
        return found

    async def history(self, since_s: int) -> list[SlurmJob]:
        """Return all runs in the accounts since then, in no order."""
        return await self._accounts("-S", moment(since_s))

    async def _accounts(self, *options: str) -> list[SlurmJob]:
        between = divider()
        text = await self.commands.run(
            "sacct", "-a", "-n", "-P", "-D", "-X", f"--delimiter={between}", "-o", ",".join(ACCOUNT), *options
        )
        found = []
        try:
            for one in of_accounts(account_rows(text, ACCOUNT, between)):
                if isinstance(one, Unread):
                    log.warning("a line of sacct cannot be read", extra={"job": one.number, "problem": one.why})
                else:
                    found.append(one)
        except ValueError as error:
            raise SlurmAway(f"sacct: expected {error}") from None
        return found


def _parts(values: Sequence[One]) -> Iterable[Sequence[One]]:
    return (values[at : at + NUMBERS_MAX] for at in range(0, len(values), NUMBERS_MAX))


def moment(seconds: int) -> str:
    """Return a time as `sacct -S` takes it, in UTC."""
    return datetime.fromtimestamp(max(0, seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def config_of(text: str) -> SlurmConfig:
    """Return what `scontrol show config` says. Raises: SlurmAway for another text."""
    said = dict(_CONFIG.findall(text))
    if "ClusterName" not in said:
        raise SlurmAway("scontrol show config: expected the name of the cluster")
    age = re.match(r"[0-9]+", said.get("MinJobAge", ""))
    return SlurmConfig(
        said["ClusterName"],
        said.get("SLURM_VERSION", ""),
        int(age[0]) if age else 300,
        said.get("AccountingStorageType", "").endswith("slurmdbd"),
        "gres/gpu" in said.get("AccountingStorageTRES", "gres/gpu"),
        max(0, int(most) - 1) if (most := said.get("MaxArraySize", "")).isdecimal() else 1000,
    )
