"""Schedules: jobs that are submitted again and again, at the times of a cron expression.

The core never computes times of a calendar: they come from outside (`control/cron.py`) and stay in events, so
that a replay of the log needs neither time zones nor cron.
"""

from typing import Literal

import msgspec

from penstock.core.model.ids import JobId, TenantName, UserName
from penstock.core.model.new_jobs import NewJob
from penstock.core.model.schedule_rule import ScheduleRule

ScheduleAction = Literal["pause", "resume", "run"]
RUNS_SHOWN = 10
"""Runs of a schedule that are remembered, the latest."""


class ScheduledRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run: its jobs have the numbers from `first` on."""

    due_ms: int
    first: JobId
    count: int
    by: UserName = UserName("")
    """Who started it out of turn."""

    @property
    def text(self) -> str:
        return f"job {self.first}" if self.count == 1 else f"jobs {self.first} to {self.first + self.count - 1}"


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is submitted, when, and for whom. Times in unix ms."""

    name: str
    owner: UserName
    rule: ScheduleRule
    jobs: tuple[NewJob, ...]
    """In dependency order, all of one tenant."""
    tenant: TenantName
    operator: bool = False
    """Its owner is the operator of the server, who need not be declared."""
    set_ms: int = 0
    next_ms: int = 0
    """When it is due; 0: never again."""
    paused: bool = False
    paused_by: UserName = UserName("")
    paused_why: str = ""
    """Where it was not a user who paused it."""
    runs: tuple[ScheduledRun, ...] = ()
    """The latest, in order."""
    run_total: int = 0
    skipped_total: int = 0
    """Times at which nothing was submitted: those missed while no server ran are among them."""
    skipped: str = ""
    """Why nothing was submitted at the last such time."""
    skipped_ms: int = 0

    @property
    def key(self) -> tuple[UserName, str]:
        """Its unique key."""
        return self.owner, self.name

    @property
    def due_ms(self) -> int:
        """When it is due next; 0: never, or not while it is paused."""
        return 0 if self.paused else self.next_ms
