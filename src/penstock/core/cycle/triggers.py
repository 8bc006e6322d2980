"""When the next cycle is due: after an event that may change the last plan's decisions, or at a time the plan named.

Every driver of the loop uses this: the live server, the replay of a trace, the fault simulator.
"""

from collections.abc import Iterable

from penstock.core.model import events as ev
from penstock.core.model.plan import Plan
from penstock.core.state.expected_end import told_end_ms
from penstock.core.state.state import State

_WAKES = {
    ev.RunTimesPredicted,
    ev.ReplicaExited,
    ev.AttemptSuspended,
    ev.NodeReady,
    ev.NodeLost,
    ev.NodeDrainChanged,
    ev.NodeLeaveNoted,
    ev.NodeChecked,
    ev.DeviceClosed,
    ev.DeviceOpened,
    ev.JobRequeued,
    ev.JobFinished,
    ev.JobHeld,
    ev.JobReleased,
    ev.JobProtected,
    ev.CheckpointAbandoned,
    ev.JobEdited,
    ev.ConfigChanged,
    ev.TenantHeld,
    ev.TenantReleased,
}
"""Events after which a cycle may decide something, whatever else is known."""
_COMPARED = {ev.JobSubmitted, ev.OthersLoadChanged, ev.IdleNoted, ev.ProgressNoted}
"""Events after which it depends on the last plan."""
COMPARED_MAX = 10_000
"""Events that are kept for the plan of the cycle that runs; after more of them another cycle follows in any case."""


class PlanClock:
    """Tracks when a cycle is due. It reads no clock: the driver passes the time.

    There are two clocks, for wall-clock time may jump: `unix_ms` is compared with moments that plans name, `now_ms`
    with the driver's own past. A simulator has one time for both.
    """

    def __init__(self) -> None:
        self.last_plan: Plan | None = None
        self.wanted = True
        """Whether a cycle may decide something; it is due unless jobs gather."""
        self._gather_until_ms = 0
        self._runs = False
        self._meanwhile: list[ev.AnyEvent] = []
        """What was observed since the cycle that runs has begun: its plan knows nothing of it."""

    def observe(self, records: Iterable[ev.Record], state: State) -> None:
        """Note new records; `state` is the state after them."""
        for record in records:
            if self.wanted:
                break
            self.wanted = wakes(record.event, state, self.last_plan)
            if self._runs and type(record.event) in _COMPARED:
                self._meanwhile.append(record.event)
                self.wanted |= len(self._meanwhile) > COMPARED_MAX

    def begin(self) -> None:
        """Note that a cycle has begun, on a snapshot of all that was observed."""
        self.wanted, self._runs = False, True
        self._meanwhile.clear()

    def committed(self, plan: Plan, now_ms: int, unix_ms: int, state: State) -> None:
        """Note the committed plan: jobs may gather for its pause from now on. `state` is the state after it."""
        self.last_plan = plan
        self._gather_until_ms = now_ms + plan.pause_ms
        self.wanted |= bool(plan.dropped) or any(wakes(event, state, plan) for event in self._meanwhile)
        self._runs = False
        self._meanwhile.clear()
        self.time_passes(unix_ms)

    def skip(self) -> None:
        """Note that a cycle would have decided nothing."""
        self.last_plan, self.wanted = None, False

    def time_passes(self, unix_ms: int) -> None:
        """Note the time: the last plan may have named a moment from which it may change."""
        if self.last_plan is not None and 0 < self.last_plan.again_ms <= unix_ms:
            self.wanted = True

    def due(self, now_ms: int) -> bool:
        """Return whether a cycle is to begin."""
        return self.wanted and now_ms >= self._gather_until_ms

    def wake_ms(self, now_ms: int) -> int:
        """Return the next moment (by the driver's clock) at which time alone makes a cycle due, 0 when there is none.

        Where `now_ms` is not wall-clock time only the end of a pause is meant.
        """
        if self.wanted:
            return max(now_ms, self._gather_until_ms)
        return self.last_plan.again_ms if self.last_plan is not None else 0


def wakes(event: ev.AnyEvent, state: State, last: Plan | None) -> bool:
    """Return whether a new cycle may decide something because of `event`; `state` is the state after it.

    A job behind others of its class that did not fit changes nothing: no capacity was freed since.
    """
    if type(event) in _WAKES:
        return True
    if isinstance(event, ev.JobSubmitted):
        if last is None:
            return True
        job = state.jobs.get(event.job_id)
        verdict = last.verdicts.get(job.class_id) if job is not None else None
        return verdict is None or verdict.code != "no_fit"
    if isinstance(event, ev.AttemptAllocated) and event.scheduler:
        return True  # what a plan would have started may not fit any more
    if isinstance(event, ev.AttemptAllocated):  # what waits to be near it may start now
        job = state.jobs[event.job_id]
        return any(each.selected for each in (job.ask.each, *(group.each for group in job.ask.others)))
    if isinstance(event, ev.OthersLoadChanged):
        return last is None or bool(last.verdicts)
    if isinstance(event, ev.IdleNoted):
        return event.reclaim and last is not None and bool(last.verdicts)
    if isinstance(event, ev.ProgressNoted):
        return _tells(event, state, last)
    return False


def _tells(event: ev.ProgressNoted, state: State, last: Plan | None) -> bool:
    """Return whether a program's report may change a size or a model, or is the first to give an expected end."""
    job = state.jobs.get(event.job_id)
    if job is None or job.spec.ask.elastic:
        return job is not None
    first = job.progress.first == job.progress.noted
    if first and state.config.moves_models and job.placed.pool in state.config.matching:
        return True
    return first and told_end_ms(job) > 0 and last is not None and bool(last.verdicts)
