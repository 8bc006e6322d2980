"""What the choice of an elastic job's size goes by: its bounds, its speed, its rest, its weight and its restarts."""

from collections.abc import Iterable

from msgspec.structs import replace

from penstock.core.elastic.learned import LearnedSpeed, LearnedSpeeds, largest_size
from penstock.core.elastic.reported import largest_useful
from penstock.core.elastic.restarts import NEVER_MS, next_restart_ms, restart_cost_ms, settle_ms
from penstock.core.elastic.worth import served_weight_milli
from penstock.core.model.batching import ElasticMode, ElasticRule, KindSteps
from penstock.core.model.ids import JobId, PoolName
from penstock.core.model.jobs import PRIORITY_CLASSES, GangAsk, Job, ReplicaPlace
from penstock.core.model.quantities import split_resource
from penstock.core.order.queues import QueueNode
from penstock.core.preempt.context import CycleContext
from penstock.core.preempt.rights import attained_device_ms
from penstock.core.state.expected_end import expected_rest_ms
from penstock.core.state.replicas import model_of

MEDIUM = PRIORITY_CLASSES["medium"]
WEIGHTS_MILLI = 100, 20_000
"""The least and the most that priority makes of a job's weight."""


class Sizing:
    """Bounds and estimates of elastic jobs in one cycle."""

    def __init__(self, context: CycleContext, learned: LearnedSpeeds) -> None:
        self._snapshot, self._now_ms, _, self._tree, _ = context
        self._settings, self._learned = context.settings, learned
        self._rules = {pool.name: pool.elastic for pool in self._snapshot.config.pools}
        self._kinds: dict[JobId, KindSteps | None] = {}
        self.again_ms = 0
        """When the first job that changed its size lately may change it again (unix ms); 0: none did."""

    def rule(self, pool: PoolName) -> ElasticRule:
        return self._rules.get(pool) or ElasticRule()

    def mode(self, job: Job) -> ElasticMode:
        return self._snapshot.config.elastic_mode(job.spec.queue, job.spec.ask.pool)

    def learned(self, job: Job, model: str | None = None) -> LearnedSpeed:
        """Return what is known of the job's speed on one device model; by default its present or last one."""
        return self._learned.of(job, self.mode(job), model, alike=self._alike(job))

    def learned_at(self, job: Job, places: Iterable[ReplicaPlace]) -> LearnedSpeed:
        """Return what is known of its speed on the model of these places, or, before it reported there, elsewhere."""
        there = self.learned(job, model_of(places, self._snapshot.nodes))
        return there if there.goodput is not None else self.learned(job)

    def restart_ms(self, job: Job) -> int:
        """Return what a restart costs the job."""
        return restart_cost_ms(job, self._settings, self._alike(job))

    def _alike(self, job: Job) -> KindSteps | None:
        """Return what jobs like this one measured, where it has a batch range, too."""
        if job.spec.batch is None or not self._snapshot.steps.kinds:
            return None
        if job.id not in self._kinds:
            self._kinds[job.id] = self._snapshot.steps.of(job.spec, job.user)
        return self._kinds[job.id]

    def settled(self, job: Job) -> bool:
        """Whether a running job may be changed again: it has run for long enough, and was not restarted too often."""
        attempt = job.undisturbed
        if attempt is None or not attempt.running_ms or attempt.choice or job.protected or attempt.pairing is not None:
            return False
        per_hour = self.rule(job.spec.ask.pool).restarts_per_hour
        until_ms = attempt.running_ms + settle_ms(job, attempt, self._settings, self._alike(job))
        until_ms = max(until_ms, next_restart_ms(job, per_hour, self._now_ms))
        if self._now_ms < until_ms < NEVER_MS:
            self.again_ms = min(self.again_ms or until_ms, until_ms)
        return until_ms <= self._now_ms

    def most(self, job: Job, size: int) -> int:
        """Return the largest size that the queues above the job, its batch and its own numbers allow."""
        branch = self.account(job)
        ask = job.spec.ask
        if branch is None:
            return size
        low, high = size, largest_useful(job, self._settings, self._now_ms)
        if job.spec.batch is not None:
            high = min(high, largest_size(job.spec.batch))
        while low < high:
            middle = (low + high + 1) // 2
            if self._tree.exceeded(branch, self.more(ask, middle - size)) is None:
                low = middle
            else:
                high = middle - 1
        return low

    def account(self, job: Job) -> QueueNode | None:
        return self._tree.account(job.spec.queue, job.spec.tenant)

    def more(self, ask: GangAsk, replicas: int) -> tuple[int, ...]:
        """Return the demand of `replicas` more of a gang; devices count for every model that they may be of."""
        gang = replace(ask, replicas=replicas, replicas_max=0)
        demand = list(self._tree.demand_of(gang, (), {}))
        for i in self._tree.job_columns:
            demand[i] = 0
        wanted = ask.each.devices
        for i, name in enumerate(self._tree.resources):
            pool, name = split_resource(name)
            if pool not in ("", gang.pool) or wanted is None or not name.startswith("devices:"):
                continue
            if not wanted.models or name[8:] in wanted.models:
                demand[i] = gang.device_milli
        return self._tree.with_power(tuple(demand), gang, most=True) if self._tree.power_columns else tuple(demand)

    def rest_ms(self, job: Job) -> int:
        return expected_rest_ms(job, self._now_ms)

    def weight_milli(self, job: Job) -> int:
        """Return how much the job's speed counts: by its priority, and less the more service it has attained."""
        served_ms = attained_device_ms(job, self._now_ms) if job.attempt is not None else job.served_device_ms
        least, most = WEIGHTS_MILLI
        priority_milli = max(least, min(most, 1000 * job.spec.priority // MEDIUM))
        return max(1, served_weight_milli(rounded(served_ms)) * priority_milli // 1000)


def rounded(amount: int) -> int:
    """Return a number cut to five leading bits: what grows slowly does not change decisions at every moment."""
    bits = max(0, amount.bit_length() - 5)
    return amount >> bits << bits
