"""The life of a job from lines of `squeue` and `sacct`: which lines are the same job, and what happened when.

A job that is put back keeps its number and gets a new time of submit, so the next line of the same number and user
is the same job where the one before was cut off; else the number has come back.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from penstock.engines.slurm.jobs import SlurmJob
from penstock.engines.slurm.states import CUT_OFF, word_of

Happened = Literal["ended", "submitted", "started", "ended_at_once"]
"""In the order in which they count within one second."""
ORDER: tuple[Happened, ...] = ("ended", "submitted", "started", "ended_at_once")


class Life:
    """One job: its lines, the oldest first."""

    def __init__(self, first: SlurmJob) -> None:
        self.lines = [first]

    @property
    def first(self) -> SlurmJob:
        return self.lines[0]

    @property
    def last(self) -> SlurmJob:
        return self.lines[-1]

    @property
    def label(self) -> str:
        return str(self.first.key)


class Happening(NamedTuple):
    """Something that happened to a job, in seconds since 1970."""

    time_s: int
    what: Happened
    life: Life
    line: SlurmJob


def lives_of(accounts: Iterable[SlurmJob], queue: Iterable[SlurmJob]) -> list[Life]:
    """Return the jobs. Where both have a run, what slurmctld says of it counts."""
    lives: list[Life] = []
    open_of: dict[tuple[str, str], Life] = {}
    whole = (line for line in accounts if "[" not in line.number)
    for line in sorted(whole, key=lambda line: (line.submit_s, line.start_s or line.end_s)):
        _join(lives, open_of, line)
    for line in queue:
        _join(lives, open_of, line)
    return lives


def _join(lives: list[Life], open_of: dict[tuple[str, str], Life], line: SlurmJob) -> None:
    life = open_of.get((line.number, line.user))
    if life is not None and life.last.submit_s == line.submit_s and _same_run(life.last, line):
        life.lines[-1] = line
    elif life is not None and goes_on(life.last, line):
        life.lines.append(line)
    else:
        life = open_of[line.number, line.user] = Life(line)
        lives.append(life)


def _same_run(one: SlurmJob, other: SlurmJob) -> bool:
    """Return whether two lines are the same run: a later one of a job that was put back is another."""
    return not one.start_s or not other.start_s or one.start_s == other.start_s


def goes_on(before: SlurmJob, line: SlurmJob) -> bool:
    """Return whether a line is the same job as one before it, put back meanwhile."""
    if line.submit_s < before.submit_s:
        return False
    return word_of(before.state) in CUT_OFF or line.restarts > before.restarts


def happenings(lives: Sequence[Life]) -> list[Happening]:
    """Return what happened to jobs, in order of time; within one second ends come first: their nodes are free then."""
    found: list[Happening] = []
    for life in lives:
        found.append(Happening(life.first.submit_s, "submitted", life, life.first))
        for line in life.lines:
            if line.ran:
                found.append(Happening(max(line.start_s, life.first.submit_s), "started", life, line))
            if line.phase in ("ended", "again") and (line.ran or line is life.last):
                what: Happened = "ended_at_once" if line.end_s <= max(line.start_s, life.first.submit_s) else "ended"
                found.append(Happening(max(line.end_s, line.start_s, life.first.submit_s), what, life, line))
    found.sort(key=lambda one: (one.time_s, ORDER.index(one.what)))
    return found
