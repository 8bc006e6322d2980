"""Elastic jobs in a cycle: idle devices go to those that gain most, once every waiting job was considered.

A job that starts in this cycle grows for free. A running one has to save and restart, so it grows only when no job
waits for room in its pool, and when the gain over its expected rest is worth that. Its own reports count too: its
speed at each size, its remaining time, and whether it mostly waits.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.cycle.sizing import Sizing
from penstock.core.elastic.allocate import allocate
from penstock.core.elastic.reported import shrink_due, shrink_due_ms
from penstock.core.elastic.worth import ElasticJob, Places
from penstock.core.model.ids import JobId, PoolName
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace
from penstock.core.model.plan import Preemption, Start
from penstock.core.place.backfill import held_places
from penstock.core.place.fit import capacity, needs_of
from penstock.core.place.gang import put_gang
from penstock.core.preempt.context import CycleContext
from penstock.core.preempt.victims import shrink_cost
from penstock.core.state.replicas import model_of

Growing = tuple[PoolName, str]
"""A pool and, where it matches jobs with device models, the one that some jobs of it are on: they stay on it."""
ROUNDS_MAX = 64
"""Elastic jobs of one pool that are weighed against each other in one cycle."""


class ElasticGrowth:
    """Gives idle devices of one cycle to elastic jobs."""

    def __init__(self, context: CycleContext, sizing: Sizing) -> None:
        self._snapshot, self._now_ms, self._cluster, self._tree, _ = context
        self._settings, self._sizing = context.settings, sizing
        self.preemptions: list[Preemption] = []

    def grow(
        self,
        starts: list[Start],
        jobs: dict[JobId, Job],
        busy: set[PoolName],
        making_room: set[PoolName],
        untouchable: set[JobId],
        apart: set[PoolName],
    ) -> None:
        """Enlarge elastic starts in place, and ask running jobs to go on larger, or smaller where they mostly wait.

        Args:
            starts: the starts of this cycle; entries are replaced by larger ones.
            jobs: the elastic jobs among them.
            busy: pools in which a job waits for capacity.
            making_room: pools with a pending preemption: nothing there grows, not even a job that starts.
            untouchable: running jobs that this cycle decided about already.
            apart: pools whose sizes are chosen elsewhere.
        """
        fresh = {start.job_id: i for i, start in enumerate(starts) if start.job_id in jobs}
        pools: dict[Growing, list[ElasticJob]] = {}
        for job_id, at in sorted(fresh.items()):
            start = starts[at]
            if start.choice == 0 and start.ask.pool not in making_room and start.ask.pool not in apart:
                self._offer(pools, jobs[job_id], start.places, restart_ms=0)
        for job_id in self._snapshot.elastic:
            job = self._snapshot.running[job_id]
            pool, may_grow = job.spec.ask.pool, job.spec.ask.pool not in busy
            if not job.spec.ask.elastic or job_id in untouchable or pool in apart:
                continue
            if not (may_grow or self._settings.elastic_shrink_idle) or not self._sizing.settled(job):
                continue
            if not self._shrinks(job) and may_grow:
                places = tuple(place for _, place in held_places(job))
                self._offer(pools, job, places, restart_ms=self._sizing.restart_ms(job))
        for growing in sorted(pools):
            found = pools[growing][:ROUNDS_MAX]
            target = allocate(found, self._idle(found, {**self._snapshot.running, **jobs}, growing[1]), rebalance=False)
            for one in found:
                number = JobId(one.id)
                if target.sizes[number] > one.size:
                    if number in fresh:
                        at = fresh[number]
                        starts[at] = self._larger(starts[at], jobs[number], target.sizes[number], growing[1])
                    else:
                        self._ask(self._snapshot.running[number], target.sizes[number], growing[1])

    def _shrinks(self, job: Job) -> bool:
        """Ask a running job that mostly waits to go on with half of its replicas, where that is switched on."""
        found = shrink_due(job, self._now_ms) if self._settings.elastic_shrink_idle else None
        if found is None or job.attempt is None or job.protected:
            return False
        if found.action == "in":
            cost = shrink_cost(job, self._settings)
            self.preemptions.append(Preemption(job.id, job.attempt.number, job.id, cost, "idle"))
            return True
        due_ms = shrink_due_ms(job)
        self._sizing.again_ms = min(self._sizing.again_ms or due_ms, due_ms)
        return False

    def _offer(
        self, pools: dict[Growing, list[ElasticJob]], job: Job, places: Sequence[ReplicaPlace], *, restart_ms: int
    ) -> None:
        ask = job.spec.ask
        each = ask.each.device_count
        held: dict[str, int] = {}
        for place in places:
            held[place.node] = held.get(place.node, 0) + 1
        counted: Places = tuple(sorted(held.items()))
        most = self._sizing.most(job, sum(held.values()))
        if each and most > sum(held.values()) and self._sizing.mode(job) != "off":
            model = model_of(places, self._snapshot.nodes) if ask.pool in self._snapshot.config.matching else ""
            pools.setdefault((ask.pool, model), []).append(
                ElasticJob(
                    id=job.id,
                    minimum=ask.replicas,
                    maximum=most,
                    curve=self._sizing.learned(job).curve,
                    held=counted,
                    devices_each=each,
                    rest_ms=self._sizing.rest_ms(job),
                    restart_cost_ms=restart_ms,
                )
            )

    def _idle(self, found: list[ElasticJob], jobs: dict[JobId, Job], model: str) -> dict[str, int]:
        """Return idle devices by node that the first of these jobs could really use."""
        job = jobs[JobId(found[0].id)]
        need = needs_of(_on(job.next_ask(job.spec.ask), model), job.spec.tenant)[0][0]
        idle: dict[str, int] = {}
        for state in self._cluster.states_in_use(rich=True):
            free = self._cluster.table.frees[state]
            count = capacity(need, free, len(free.devices)) * need.each.device_count
            if count:
                idle.update((str(self._cluster.names[n]), count) for n in self._cluster.nodes_in(state))
        return idle

    def _larger(self, start: Start, job: Job, size: int, model: str) -> Start:
        """Return the start at the largest size up to `size` that really fits beside other jobs' growth."""
        held, branch = len(start.places), self._sizing.account(job)
        assert branch is not None
        size = min(size, self._sizing.most(job, held))
        mark = self._cluster.mark()
        while size > held:
            self._cluster.put_back(start.ask, enumerate(start.places))
            ask = job.next_ask(job.spec.ask).sized(size)
            places = put_gang(_on(ask, model), self._cluster, job.spec.tenant)
            if places is not None:
                before = self._tree.demand_of(start.ask, start.places, self._snapshot.nodes)
                after = self._tree.demand_of(ask, places, self._snapshot.nodes)
                more = tuple(b - a for a, b in zip(before, after, strict=True))
                if self._tree.exceeded(branch, more) is None:  # every replica may be on another model now
                    self._tree.charge(branch, more)
                    return replace(start, ask=ask, places=places)
            self._cluster.rollback(mark)
            size -= 1
        return start

    def _ask(self, job: Job, size: int, model: str) -> None:
        attempt = job.attempt
        assert attempt is not None
        mark = self._cluster.mark()
        self._cluster.put_back(job.ask, held_places(job))
        ask = _on(job.next_ask(job.spec.ask).sized(size), model)
        fits = put_gang(ask, self._cluster, job.spec.tenant) is not None
        if not fits:
            self._cluster.rollback(mark)
            return
        width = max(job.ask.device_total, len(attempt.replicas))
        cost = width * self._sizing.restart_ms(job)
        self.preemptions.append(Preemption(job.id, attempt.number, job.id, cost, "grow"))


def _on(ask: GangAsk, model: str) -> GangAsk:
    return ask.on_models((model,)) if model else ask
