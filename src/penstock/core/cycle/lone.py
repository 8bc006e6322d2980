"""A cycle in which one job waits and nothing else is to be decided: most cycles of a cluster that is not full.

Nothing is compared, kept or asked to leave then, so nothing of that is prepared. The plan is the one of a whole cycle;
a job that does not fit at once, or for which more than room matters, is left to that.
"""

from collections.abc import Collection

from penstock.core.cycle.strategy import Strategy
from penstock.core.cycle.workspace import Shapes, start_of
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import QueueName
from penstock.core.model.plan import Plan, Start
from penstock.core.order.extension import EXTENSION_PREFIX
from penstock.core.state.snapshot import Snapshot


class Lone:
    """Starts the only job that waits under one configuration."""

    def __init__(self, config: ClusterConfig, queues: Collection[QueueName]) -> None:
        """`queues` are those of the tree: one whose parent is missing is not in it."""
        self._queues = queues
        self._placement = {pool.name: pool.placement for pool in config.pools}
        limited = any(q.max or q.lend is not None or q.policy == "least_attained" for q in config.queues)
        limited = limited or any(tenant.max for tenant in config.tenants)
        foreign = any(name.startswith(EXTENSION_PREFIX) for name in (config.root_policy, *_policies(config)))
        reserved = config.reservations or any(pool.reserve_milli for pool in config.pools)
        self._may = config.settings.starts_per_cycle_max > 0 and not (limited or foreign or reserved)
        """Whether a job that waits alone needs nothing but room."""

    def plan(self, snapshot: Snapshot, now_ms: int, shapes: Shapes, strategy: Strategy) -> Plan | None:
        """Return the plan of the cycle, or None when a whole cycle has to be planned. Then nothing was taken."""
        start = self._start(snapshot, now_ms, shapes) if self._may else None
        if start is None:
            return None
        return Plan(
            snapshot.seq,
            (start,),
            preemptions=(),
            verdicts={},
            held={},
            now_ms=now_ms,
            strategy=f"{strategy.name}: {strategy.why}",
            pause_ms=strategy.batching_window_ms,
        )

    def _start(self, snapshot: Snapshot, now_ms: int, shapes: Shapes) -> Start | None:
        others = snapshot.beneficiaries or snapshot.elastic or snapshot.suspended
        if others or len(snapshot.classes) != 1 or len(snapshot.classes[0][2]) != 1:
            return None
        class_id, key, (job,) = snapshot.classes[0]
        if job.not_before_ms > now_ms or key.queue not in self._queues or key.ask.elastic:
            return None
        for choice, prepared in enumerate(shapes(class_id, key)):
            places = prepared.put()
            if places is not None:
                ask = prepared.gang.sized(prepared.gang.replicas)
                return start_of(job, (choice, ask, places), self._placement, now_ms)
        return None


def _policies(config: ClusterConfig) -> tuple[str, ...]:
    return tuple(queue.policy for queue in config.queues)
