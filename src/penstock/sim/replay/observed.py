"""What really happened in a log, counted as a replay counts it: for logs in which another scheduler decided."""

from collections.abc import Mapping, Sequence

from penstock.core.model import events as ev
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import JobState
from penstock.core.state.state import State
from penstock.sim.replay.counters import SAMPLES, Meter
from penstock.sim.replay.life import Life
from penstock.sim.replay.replay import Ran
from penstock.traces.model import TraceJob
from penstock.traces.ownlog import LogTrace


def schedulers_of(records: Sequence[ev.Record]) -> tuple[str, ...]:
    """Return the other schedulers that placed attempts in a log, by name; () where Penstock decided all of them."""
    events = (record.event for record in records)
    return tuple(sorted({event.scheduler for event in events if isinstance(event, ev.AttemptAllocated)} - {""}))


def observed(records: Sequence[ev.Record], told: LogTrace) -> Ran:
    """Return what happened in a log; what still runs at its end counts as if it had ended, as in replays of it.

    Args:
        told: the trace of the same log; its jobs stand in the order of their submit.
    """
    works = dict(zip(told.jobs, told.trace.jobs, strict=True))
    counting = _Counting(records[0].time_ms, records[-1].time_ms)
    for record in records:
        counting.take(record, works)
    counting.end()
    meter, state = counting.meter, counting.state
    return Ran(
        told.trace.name,
        state.config,
        tuple(counting.lives.values()),
        tuple(meter.samples),
        records[0].time_ms,
        meter.now_ms,
        meter.busy_device_ms,
        meter.total_device_ms,
        state.seq,
        0,
    )


class _Counting:
    """The lives of jobs, and the use of devices, up to a record."""

    def __init__(self, begun_ms: int, ended_ms: int) -> None:
        self.state, self.lives = State(), dict[JobId, Life]()
        self.meter = Meter(self.state)
        self.meter.now_ms = begun_ms
        self.meter.sample_every_ms = max(1, (ended_ms - begun_ms) // SAMPLES)
        self._since_ms: dict[JobId, int] = {}
        """Since when each job holds its places."""

    def take(self, record: ev.Record, works: Mapping[JobId, TraceJob]) -> None:
        self.meter.advance(record.time_ms)
        self.state.apply(record)
        event, now_ms = record.event, record.time_ms
        match event:
            case ev.JobSubmitted():
                work = works[event.job_id].work
                life = Life(event.job_id, now_ms, event.spec, event.user, work, work.run_ms)
                life.alone_ms = -self.meter.active_ms
                self.lives[event.job_id] = life
                self.meter.jobs_waiting += 1
                self.meter.jobs_active += 1
            case ev.AttemptAllocated():
                life = self.lives[event.job_id]
                life.attempts, life.started_ms, life.state = life.attempts + 1, life.started_ms or now_ms, "running"
                self._since_ms[event.job_id] = now_ms
                self.meter.jobs_waiting -= 1
                self.meter.busy_milli += life.spec.ask.device_milli
            case ev.AttemptEnded():
                self._leaves(event.job_id).losses += event.outcome == "lost"
            case ev.JobRequeued():
                self.lives[event.job_id].state = "waiting"
                self.lives[event.job_id].preemptions += event.reason in ("preempted", "requeued")
                self.meter.jobs_waiting += 1
            case ev.JobFinished():
                self._ends(self.lives[event.job_id], event.state)
            case _:
                pass

    def end(self) -> None:
        """End what still runs."""
        for job_id in tuple(self._since_ms):
            self._ends(self._leaves(job_id), "succeeded")

    def _leaves(self, job_id: JobId) -> Life:
        """Count what an attempt held, and return its job's life."""
        life, held_ms = self.lives[job_id], self.meter.now_ms - self._since_ms.pop(job_id)
        life.held_device_ms += life.spec.ask.device_milli * held_ms // 1000
        self.meter.busy_milli -= life.spec.ask.device_milli
        return life

    def _ends(self, life: Life, state: JobState) -> None:
        self.meter.jobs_active -= 1
        self.meter.jobs_waiting -= life.state == "waiting"
        life.ended_ms, life.state = self.meter.now_ms, state
        life.alone_ms += self.meter.active_ms
