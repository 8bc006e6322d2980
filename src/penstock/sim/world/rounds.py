"""What must be true of the rounds of a pool that re-allocates: a fold of its own over the log of a simulated world.

Restarts are counted here from the log alone, whoever served meanwhile; places that a round gave out are followed until
their job stands there, or until something happens for which they may be lost.
"""

from collections.abc import Iterable, Iterator

from penstock.core.model import events as ev
from penstock.core.model.batching import REBALANCE
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import JobId, NodeName, PoolName, Rank
from penstock.core.model.jobs import CheckpointSpec, JobSpec, StopReason
from penstock.sim.world.promises import Promises

HOUR_MS = 3_600_000
LEAVING: tuple[StopReason, ...] = ("resized", "moved", "preempted")
"""For which running jobs leave a pool for others, or to come back."""


class _Run:
    """A live attempt."""

    def __init__(self, event: ev.AttemptAllocated) -> None:
        self.waits_for: set[Rank] = set(map(Rank, range(len(event.places))))
        """Replicas that have not started."""
        self.running_ms = 0
        self.stop: ev.AttemptStopRequested | None = None


class RoundsCheck:
    """Follows the jobs of one pool."""

    def __init__(self, config: ClusterConfig, pool: PoolName) -> None:
        self._pool, self._rule = pool, config.pool_by_name[pool].elastic
        self._period_ms = config.settings.elastic_growth_period_ms
        self._specs: dict[JobId, JobSpec] = {}
        self._runs: dict[JobId, _Run] = {}
        self._changes: dict[JobId, list[int]] = {}
        self._saved: set[JobId] = set()
        """Jobs that have saved in one of their attempts."""
        self._promises = Promises()
        self._open: dict[NodeName, bool] = {}

    def violations(self, records: Iterable[ev.Record]) -> Iterator[str]:
        """Yield restarts beyond their bound or too early, sizes that a job does not accept, rounds of a pool that is
        not at rest, pauses of jobs that may not pause, and places that were promised and not kept.
        """
        self._promises = Promises()
        for record in records:
            yield from self._follow(record.event, record.time_ms)

    def _follow(self, event: ev.AnyEvent, now_ms: int) -> Iterator[str]:
        self._promises.follow(event, self._specs)
        match event:
            case ev.JobSubmitted() if event.spec.ask.pool == self._pool:
                self._specs[event.job_id] = event.spec
            case ev.NodeRegistered():
                self._open[event.spec.name] = False
            case ev.NodeReady():
                self._open[event.node] = True
            case ev.NodeLost():
                self._open[event.node] = False
            case ev.NodeDrainChanged():
                self._open[event.node] = not event.draining
            case _ if getattr(event, "job_id", None) in self._specs:
                yield from self._job(event, now_ms)
            case _:
                pass

    def _job(self, event: ev.AnyEvent, now_ms: int) -> Iterator[str]:
        match event:
            case ev.AttemptAllocated():
                yield from self._size(event.job_id, len(event.places))
                yield from self._promises.given(event)
                self._runs[event.job_id] = _Run(event)
            case ev.ReplicaStarted():
                run = self._runs[event.job_id]
                run.waits_for.discard(event.rank)
                run.running_ms = run.running_ms or (0 if run.waits_for else now_ms)
            case ev.CheckpointSaved() if event.job_id in self._runs:
                self._saved.add(event.job_id)
            case ev.AttemptStopRequested():
                yield from self._stop(event, now_ms)
            case ev.AttemptEnded():
                del self._runs[event.job_id]
            case _:
                pass

    def _stop(self, event: ev.AttemptStopRequested, now_ms: int) -> Iterator[str]:
        run, changes = self._runs[event.job_id], self._changes.setdefault(event.job_id, [])
        if event.reason in ("resized", "moved") or event.rule == REBALANCE:
            changes.append(now_ms)
        if event.rule == REBALANCE:
            yield from self._in_round(event, run, changes, now_ms)
        run.stop = event
        if event.rule != REBALANCE:
            self._promises.void(event.job_id)

    def _in_round(self, event: ev.AttemptStopRequested, run: _Run, changes: list[int], now_ms: int) -> Iterator[str]:
        """Judge one order of a round, and note the places that it promises."""
        job_id, spec = event.job_id, self._specs[event.job_id]
        lately = sum(changed_ms > now_ms - HOUR_MS for changed_ms in changes)
        if lately > self._rule.restarts_per_hour:
            yield f"job {job_id} is restarted {lately} times in an hour, {self._rule.restarts_per_hour} are allowed"
        if not run.running_ms or event.decided_ms < run.running_ms + self._period_ms:
            yield f"job {job_id} is restarted {event.decided_ms - run.running_ms} ms after it began to run"
        for other, one in self._runs.items():
            if one.stop is not None and one.stop.reason in LEAVING and one.stop.basis != event.basis:
                yield f"a round asks job {job_id} to leave while job {other} leaves"
        own = next((room.places for room in event.rooms if room.job_id == job_id), ())
        if own:
            yield from self._size(job_id, len(own))
        elif not spec.preemptible or not (job_id in self._saved or spec.checkpoint != CheckpointSpec()):
            yield f"job {job_id} is sent back to wait, and may not be preempted, or has nothing saved"
        for room in event.rooms:
            closed = sorted({place.node for place in room.places if not self._open.get(place.node)})
            if closed:
                yield f"a round gives job {room.job_id} places on {', '.join(closed)}, which takes no work"
            self._promises.replace(room.places, event.basis)
            self._promises.make(room.job_id, room.places, event.basis)

    def _size(self, job_id: JobId, size: int) -> Iterator[str]:
        ask = self._specs[job_id].ask
        if not ask.replicas <= size <= max(ask.replicas, ask.replicas_max):
            yield f"job {job_id} was given {size} replicas, {ask.replicas} to {ask.replicas_max} are accepted"
