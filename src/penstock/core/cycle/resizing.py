"""The sizes of elastic jobs in a cycle: rounds in pools that re-allocate, growth into idle devices in the others."""

from collections.abc import Collection
from itertools import islice

from penstock.core.cycle.grow import ElasticGrowth
from penstock.core.cycle.rebalance import PoolRound, without
from penstock.core.cycle.sizing import Sizing
from penstock.core.cycle.workspace import Workspace
from penstock.core.elastic.rounds import may_join
from penstock.core.model.ids import JobId, PoolName
from penstock.core.model.jobs import Job, ReplicaPlace, RequestClass, StopReason
from penstock.core.model.plan import Preemption, Start
from penstock.core.preempt.preemptor import Preemptor

LEAVING: tuple[StopReason, ...] = ("resized", "moved", "preempted")
LOOK_AGAIN_MS = 5_000
"""Without an event another round is played no sooner: weights change slowly, and a period of 1 ms had no end."""
WAITING_MAX = 64
"""Jobs that wait and are part of one round."""


class Resizing:
    """Collects which jobs wait while a cycle walks, and chooses sizes at its end."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._snapshot = workspace, workspace.snapshot
        self.sizing = Sizing(workspace.context, workspace.speeds.learned)
        self._pools = {pool.name for pool in self._snapshot.config.pools if pool.elastic.rebalance}
        self._waiting: dict[PoolName, list[tuple[Job, RequestClass]]] = {}
        self._others_wait: set[PoolName] = set()
        """Pools in which a job waits that no round can give places."""
        self.preemptions: list[Preemption] = []
        self.held: dict[JobId, tuple[ReplicaPlace, ...]] = {}
        self.put_off: list[tuple[Job, tuple[JobId, ...]]] = []
        """Jobs that wait until running ones have left their places, and which these are."""
        self.starts: tuple[Start, ...] = ()
        """The starts of the cycle at their sizes."""
        self._put_off: set[int] = set()
        self._played = False
        """A round was played: as time passes another may come out."""
        self.again_ms = 0
        """When sizes may change as time passes (unix ms); 0: never."""

    def waits(self, job: Job, key: RequestClass) -> None:
        """Note the next job in order that does not fit, and those of its class after it."""
        pool = key.ask.pool
        if pool not in self._pools or pool in self._others_wait:
            return
        if not may_join(job.spec, self._snapshot.config):
            self._others_wait.add(pool)
            return
        found = self._waiting.setdefault(pool, [])
        if all(one.class_id != job.class_id for one, _ in found):
            found.append((job, key))

    def run(self, preemptor: Preemptor, moving: Collection[PoolName]) -> None:
        """Choose the sizes of all elastic jobs of the cycle; not in pools where jobs are `moving` to other models."""
        workspace = self._workspace
        self.starts = tuple(workspace.starts)
        if not (workspace.elastic or self._snapshot.elastic or self._waiting):
            return
        leaving = {self._snapshot.running[p.victim].spec.ask.pool for p in preemptor.preemptions}
        apart = set()
        for pool in sorted(self._pools):
            apart.add(pool)
            if pool not in leaving and pool not in moving and not self._is_unsettled(pool):
                self._play(pool, preemptor)
        growth = ElasticGrowth(workspace.context, self.sizing)
        beneficiaries = {job.spec.ask.pool for job in self._snapshot.beneficiaries}
        started = {start.job_id for start in workspace.starts}
        late = {job.spec.ask.pool for job in self._snapshot.beneficiaries if job.id not in started}
        busy = workspace.reservations.busy | beneficiaries | set(moving)
        growth.grow(workspace.starts, workspace.elastic, busy, late | leaving, preemptor.chosen, apart)
        self.preemptions += growth.preemptions
        self.starts = without(workspace.starts, self._put_off)
        self.again_ms = self._next_ms()

    def _play(self, pool: PoolName, preemptor: Preemptor) -> None:
        others_wait = pool in self._others_wait
        playing = PoolRound(self._workspace, self.sizing, self._workspace.speeds.rounds, preemptor.chosen)
        playing.run(pool, self._waiting_in(pool, others_wait=others_wait), others_wait=others_wait)
        self.preemptions += playing.preemptions
        self.held |= playing.held
        self.put_off += playing.waiting
        self._put_off |= playing.put_off
        self._played = self._played or playing.played

    def _waiting_in(self, pool: PoolName, *, others_wait: bool) -> list[tuple[Job, RequestClass]]:
        """Return jobs that wait and take part, in order; those of a class after its first only where no other waits."""
        first = self._waiting.get(pool, [])
        if others_wait or not first:
            return first[:WAITING_MAX]
        alike = {class_id: jobs for class_id, _, jobs in self._snapshot.classes}
        found: list[tuple[Job, RequestClass]] = []
        for job, key in first:
            ready = (one for one in alike[job.class_id] if one.not_before_ms <= self._workspace.now_ms)
            waiting = (one for one in ready if one.id == job.id or one.id not in self._workspace.handled)
            found += [(one, key) for one in islice(waiting, WAITING_MAX - len(found))]
        return found

    def _is_unsettled(self, pool: PoolName) -> bool:
        """Return whether jobs of the pool still leave for others, or to come back."""
        running = (self._snapshot.running[job_id] for job_id in self._snapshot.stopping)
        stops = (job.attempt.stop for job in running if job.attempt is not None and job.spec.ask.pool == pool)
        return any(stop is not None and stop.reason in LEAVING for stop in stops)

    def _next_ms(self) -> int:
        pause_ms = max(LOOK_AGAIN_MS, self._workspace.settings.elastic_growth_period_ms)
        round_ms = self._workspace.now_ms + pause_ms if self._played else 0
        return min((ms for ms in (round_ms, self.sizing.again_ms) if ms), default=0)
