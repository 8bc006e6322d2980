"""Whether something that happened may change what the last plan decided: only then is another cycle worth its time."""

from penstock.core.model import events as ev
from penstock.core.model.plan import Plan
from penstock.core.state.expected_end import told_end_ms
from penstock.core.state.state import State

_WAKES = (
    ev.JobSubmitted,
    ev.RunTimesPredicted,
    ev.ReplicaExited,
    ev.AttemptSuspended,
    ev.NodeReady,
    ev.NodeLost,
    ev.NodeDrainChanged,
    ev.NodeChecked,
    ev.JobRequeued,
    ev.JobFinished,
    ev.ConfigChanged,
    ev.TenantHeld,
    ev.TenantReleased,
)


def wakes(event: ev.AnyEvent, state: State, last: Plan | None) -> bool:
    """Return whether a new cycle may decide something because of `event`; `state` is the one after it.

    A job behind others of its class that did not fit changes nothing: no capacity was freed since.
    """
    if isinstance(event, ev.JobSubmitted) and last is not None:
        job = state.jobs.get(event.job_id)
        verdict = last.verdicts.get(job.class_id) if job is not None else None
        return verdict is None or verdict.code != "no_fit"
    if isinstance(event, ev.IdleNoted):
        return event.reclaim and last is not None and bool(last.verdicts)
    if isinstance(event, ev.ProgressNoted):
        return _tells(event, state, last)
    return isinstance(event, _WAKES)


def _tells(event: ev.ProgressNoted, state: State, last: Plan | None) -> bool:
    """Return whether what a program says of itself may change a size, or is the first that is known of its end."""
    job = state.jobs.get(event.job_id)
    if job is None or job.spec.ask.elastic:
        return job is not None
    first = job.progress.first == job.progress.noted
    return first and told_end_ms(job) > 0 and last is not None and bool(last.verdicts)
