"""Events about what users ask of their live jobs."""

from penstock.core.model.actions import JobChange
from penstock.core.model.event import Event
from penstock.core.model.ids import AttemptNumber, JobId, UserName


class JobCancelRequested(Event, tag=True, frozen=True, omit_defaults=True):
    """A live job is to end: at once where nothing of it runs, else after its grace."""

    job_id: JobId
    by: UserName
    reason: str = ""


class JobHeld(Event, tag=True, frozen=True, omit_defaults=True):
    """A waiting job does not start until it is released."""

    job_id: JobId
    by: UserName


class JobReleased(Event, tag=True, frozen=True, omit_defaults=True):
    """A held job may start again."""

    job_id: JobId
    by: UserName


class JobProtected(Event, tag=True, frozen=True, omit_defaults=True):
    """The attempt must not be disrupted for the sake of other jobs, for `why`; empty: it may be again."""

    job_id: JobId
    why: str = ""


class JobRequeueRequested(Event, tag=True, frozen=True, omit_defaults=True):
    """The attempt is to save and leave, and the job to wait again, held where that is asked for."""

    job_id: JobId
    attempt: AttemptNumber
    by: UserName
    hold: bool = False


class JobEdited(Event, tag=True, frozen=True, omit_defaults=True):
    """A live job's priority, queue or limits were changed."""

    job_id: JobId
    change: JobChange
    by: UserName
