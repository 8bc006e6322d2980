"""When a waiting job starves: when it has waited longer than is usual where so many wait, and for a job of its length.

What is kept for a job that starves is kept from all others. On an overloaded cluster most jobs wait for hours: if each
of them could claim room in turn, places would stand idle all the time. So the bound grows with the backlog, and with
the job's own length. Figures: docs/policies.md.
"""

from collections.abc import Iterable, Mapping

from penstock.core.model.cluster import Settings
from penstock.core.model.ids import PoolName
from penstock.core.model.jobs import GangAsk, Job
from penstock.core.order.ranks import expected_ms
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.order.walk import PendingJobs

MILLI = 1000


class Backlog:
    """What waits for each pool: devices, or CPUs where a pool has no devices."""

    def __init__(self, classes: Iterable[PendingJobs], totals: Mapping[PoolName, UsedAmounts]) -> None:
        """`totals` are the amounts that the open nodes of each pool have."""
        self._capacity = {pool: total.device_milli or total.cpu_milli for pool, total in totals.items()}
        self._without_devices = {pool for pool, total in totals.items() if not total.device_milli}
        self._asked: dict[PoolName, int] = {}
        for _, key, jobs in classes:
            pool = key.ask.pool
            self._asked[pool] = self._asked.get(pool, 0) + len(jobs) * self._amount(key.ask)

    def _amount(self, ask: GangAsk) -> int:
        if ask.pool not in self._without_devices:
            return ask.device_milli
        return ask.replicas * ask.each.host.cpu_milli + sum([g.replicas * g.each.host.cpu_milli for g in ask.others])

    def beside_milli(self, ask: GangAsk) -> int:
        """Return what waits beside a job with this ask, in thousandths of its pool; 0 where the pool is empty."""
        capacity = self._capacity.get(ask.pool, 0)
        beside = self._asked.get(ask.pool, 0) - self._amount(ask) if capacity else 0
        return MILLI * beside // capacity if beside > 0 else 0


def starvation_bound_ms(job: Job, settings: Settings, backlog_milli: int) -> int:
    """Return how long a job waits before it starves: `starvation_after` x (1 + backlog) + `starvation_ratio` x length.

    Args:
        backlog_milli: what waits for its pool beside it, in thousandths of the pool.
    """
    usual_ms = settings.starvation_after_ms * (MILLI + backlog_milli) // MILLI
    return usual_ms + settings.starvation_ratio * expected_ms(job)
