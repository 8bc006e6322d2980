"""Which jobs take part in the re-allocation rounds of a pool, and the last round of each pool as it came out."""

from collections.abc import Mapping, Sequence

from penstock.core.elastic.allocate import Allocation, allocate
from penstock.core.elastic.on_models import allocate_on_models
from penstock.core.elastic.worth import ElasticJob
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.jobs import GangAsk, JobSpec


def takes_part(spec: JobSpec, config: ClusterConfig) -> bool:
    """Return whether rounds of its pool choose the size of such a job."""
    pool = config.pool_by_name.get(spec.ask.pool)
    if pool is None or not pool.elastic.rebalance or not spec.ask.elastic:
        return False
    return config.elastic_mode(spec.queue, spec.ask.pool) != "off" and _is_plain(spec.ask)


def may_join(spec: JobSpec, config: ClusterConfig) -> bool:
    """Return whether a waiting job may get its places in a round: it takes part, or has one size and one shape."""
    pool, ask = config.pool_by_name.get(spec.ask.pool), spec.ask
    if ask.elastic:
        return takes_part(spec, config)
    return pool is not None and pool.elastic.rebalance and not (ask.others or spec.alternatives) and _is_plain(ask)


def _is_plain(ask: GangAsk) -> bool:
    """Return whether replicas hold whole devices, and each of them may be on any node."""
    each, wish = ask.each, ask.topology
    ruled = each.affinity or each.selected or (wish is not None and (wish.required or wish.scope == "spread"))
    return each.devices is not None and each.devices.whole and not each.devices.profile and not ruled


_Input = tuple[tuple[ElasticJob, ...], dict[str, int], Mapping[str, str] | None]


class Rounds:
    """Plays rounds; one with the input of the last one is not played again."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[_Input, Allocation]] = {}

    def play(
        self, pool: str, jobs: Sequence[ElasticJob], free: Mapping[str, int], kinds: Mapping[str, str] | None = None
    ) -> Allocation:
        """Return the sizes and places of these jobs from now on; `kinds`: the models of nodes, where they matter."""
        given = tuple(jobs), dict(free), kinds
        last = self._last.get(pool)
        if last is not None and last[0] == given:
            return last[1]
        found = allocate(jobs, free) if kinds is None else allocate_on_models(jobs, free, kinds)
        self._last[pool] = given, found
        return found
