"""Events about schedules."""

from penstock.core.model.event import Event
from penstock.core.model.ids import JobId, TenantName, UserName
from penstock.core.model.schedules import Schedule


class ScheduleSet(Event, tag=True, frozen=True, omit_defaults=True):
    """A user set a schedule, or changed it: its runs and counts go on."""

    schedule: Schedule


class ScheduleFired(Event, tag=True, frozen=True, omit_defaults=True):
    """A schedule was due, or a user asked for a run: its jobs were submitted, or it is said why not."""

    tenant: TenantName
    owner: UserName
    name: str
    due_ms: int
    """The time that it was due (unix ms); of a run out of turn, when that was asked for."""
    next_ms: int = 0
    """When it is due again (unix ms); 0: never."""
    first: JobId = JobId(0)
    """Number of the first job of the run; 0: nothing was submitted."""
    count: int = 0
    """How many jobs the run has, numbered one after the other."""
    skipped: str = ""
    """Why nothing was submitted."""
    missed: int = 0
    """Earlier times that passed without a run, while no server ran."""
    by: UserName = UserName("")
    """Who asked for a run out of turn; empty: it was due."""


class SchedulePaused(Event, tag=True, frozen=True, omit_defaults=True):
    """A schedule is not due until it is resumed."""

    tenant: TenantName
    owner: UserName
    name: str
    by: UserName
    reason: str = ""


class ScheduleResumed(Event, tag=True, frozen=True, omit_defaults=True):
    """A schedule is due again; times in between are passed over."""

    tenant: TenantName
    owner: UserName
    name: str
    by: UserName
    next_ms: int = 0
    """When it is due (unix ms); 0: never."""


class ScheduleRemoved(Event, tag=True, frozen=True, omit_defaults=True):
    """A schedule is gone; jobs that it submitted stay."""

    tenant: TenantName
    owner: UserName
    name: str
    by: UserName


def tenant_of_schedule(event: "ScheduleEvent") -> TenantName:
    """Return the tenant whose jobs the schedule submits."""
    return event.schedule.tenant if isinstance(event, ScheduleSet) else event.tenant


ScheduleEvent = ScheduleSet | ScheduleFired | SchedulePaused | ScheduleResumed | ScheduleRemoved
