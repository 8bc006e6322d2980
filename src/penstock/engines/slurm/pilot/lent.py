"""The pilot's own jobs in Slurm as `squeue` shows them."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from penstock.engines.slurm.commands import SlurmAway, SlurmCommands
from penstock.engines.slurm.rows import Column, divider, queue_format, queue_rows
from penstock.engines.slurm.states import UnknownState, phase_of, word_of
from penstock.formats.hostlist import expand
from penstock.formats.slurm_tres import NODES_MAX, count_of

COLUMNS = (
    Column("JobArrayID", 40), Column("State", 24), Column("Reason", 60), Column("SubmitTime", 14),
    Column("StartTime", 14), Column("EndTime", 14), Column("NumNodes", 10), Column("NodeList", 8_000),
    Column("Comment", 80),
)  # fmt: skip
Stage = Literal["asked", "held", "leaving", "ended"]
_STAGES: dict[str, Stage] = {
    "waiting": "asked", "running": "held", "leaving": "leaving", "ended": "ended", "again": "ended"
}  # fmt: skip
UNSURE = ("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "REVOKED")
"""Ends after which processes may live on a node that Slurm does not reach."""


class LentJob(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation. Times in seconds since 1970; 0 where there is none."""

    number: str
    state: str
    stage: Stage
    reason: str
    submit_s: int
    start_s: int
    """Of one that waits: when Slurm expects it to start."""
    end_s: int
    nodes: int
    hosts: tuple[str, ...]
    """In the order of their numbers in the job."""
    tag: str

    @property
    def key(self) -> tuple[str, int]:
        return self.number, self.submit_s

    @property
    def sure(self) -> bool:
        """Whether it is over, and Slurm has ended its processes."""
        return self.stage == "ended" and word_of(self.state) not in UNSURE


async def read_lent(commands: SlurmCommands, name: str, user: str) -> dict[tuple[str, int], LentJob]:
    """Return the jobs of this name and user. Raises: SlurmAway where Slurm does not answer, or not as expected."""
    between = divider()
    words = ("-h", "-t", "all", "-u", user, "-n", name, "-O", queue_format(COLUMNS, between))
    text = await commands.run("squeue", *words)
    try:
        return {one.key: one for one in lent_jobs(text, between)}
    except UnknownState as error:
        raise SlurmAway(f"squeue: the state '{error}' is not known") from None
    except ValueError as error:
        raise SlurmAway(f"squeue: expected {error}") from None


def lent_jobs(text: str, between: str) -> Iterator[LentJob]:
    """Yield the jobs in what `squeue` printed. Raises: UnknownState; ValueError."""
    for row, _ in queue_rows(text, COLUMNS, between):
        stage = _STAGES[phase_of(row["State"])]
        hosts = expand(row["NodeList"]) if row["NodeList"] and stage != "asked" else []
        yield LentJob(
            number=row["JobArrayID"], state=row["State"], stage=stage, reason=row["Reason"],
            submit_s=_whole(row["SubmitTime"]), start_s=_whole(row["StartTime"]), end_s=_whole(row["EndTime"]),
            nodes=count_of(row["NumNodes"] or "1", NODES_MAX), hosts=tuple(hosts), tag=row["Comment"],
        )  # fmt: skip


def _whole(text: str) -> int:
    return int(text) if text else 0
