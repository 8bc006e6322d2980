"""What goes over HTTP about schedules. Times in unix ms; 0: none."""

from typing import Literal

import msgspec


class RunView(msgspec.Struct, frozen=True):
    """One run of a schedule: its jobs have the numbers from `first` on."""

    due_ms: int
    first: int
    count: int
    live: int
    """How many of them are not over."""
    by: str = ""
    """Who started it out of turn; empty: it was due."""


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule: what it submits, when, and what became of it."""

    name: str
    owner: str
    tenant: str
    cron: str
    zone: str
    catch_up: str
    overlap: str
    start_ms: int
    end_ms: int
    paused: bool
    paused_by: str
    paused_why: str
    """Where the server paused it: its user or tenant was removed."""
    set_ms: int
    next_ms: int
    """When it is due; 0: never again, or it is paused."""
    next_local: str
    """The same by the clock of its zone, with the offset."""
    live_runs: int
    run_total: int
    skipped_total: int
    """Times at which nothing was submitted."""
    skipped: str
    """Why, the last time."""
    skipped_ms: int
    jobs: int
    """Of one run."""
    job_names: list[str] = []
    """This and all below: of one schedule alone. The names of its jobs, each once."""
    coming: list[str] = []
    """The next times, by the clock of its zone."""
    runs: list[RunView] = []
    """The latest, in order."""


class ScheduleList(msgspec.Struct, frozen=True):
    schedules: list[ScheduleView]


class ScheduleActionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: Literal["pause", "resume", "run"]
    """`run` starts a run now, whether or not it is due; the others stay as they are."""
