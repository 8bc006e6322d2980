"""Rules about replicas near each other, over domains of several nodes: counted on a whole cluster, exact by state.

Rules about single nodes are judged with the node itself (`fit.py`). All nodes in one state have the same labels, so
they are in the same domains and are judged once. Source: the filters InterPodAffinity and PodTopologySpread of
Kubernetes (pkg/scheduler/framework/plugins).
"""

from collections.abc import Collection, Iterator, Sequence

from penstock.core.model.affinity import NODE, AffinityRule
from penstock.core.model.resources import ReplicaAsk
from penstock.core.place.capacity import NodeCapacity, NodeShape
from penstock.core.place.fit import Need, Picked
from penstock.core.place.index import ClusterIndex

BEGINNINGS_MAX = 256
"""Places that are tried for the first replica of a gang whose replicas have to stand near each other."""
Domain = tuple[str, str]
"""A label of nodes and one of its values."""


def is_ruled(each: ReplicaAsk, cluster: ClusterIndex) -> bool:
    """Return whether it depends on more than single nodes where such a replica may stand."""
    return has_wide_rules(each) or (bool(each.selected) and cluster.regional)


def has_wide_rules(each: ReplicaAsk) -> bool:
    return any(one.kind != "anti_affinity" or one.domain != NODE for one in each.affinity)


class NearbyReplicas:
    """What stands in each domain that the rules of one need, or rules about it, look at. Valid until nodes change."""

    def __init__(self, need: Need, cluster: ClusterIndex) -> None:
        self._need, self._each, self._cluster = need, need.each, cluster
        self._rules = [one for one in need.each.affinity if one.kind != "anti_affinity" or one.domain != NODE]
        self._counts: dict[tuple[AffinityRule, str], int] = {}
        self._repelled: set[Domain] = set()
        self._fewest: dict[AffinityRule, int] = {}
        self.spreads = any(one.kind == "spread" for one in self._rules)
        self._count()
        near = [one for one in self._rules if one.kind == "affinity"]
        selects_itself = all(one.selector in need.each.selected for one in near)
        stands = any(number for (one, _), number in self._counts.items() if one in near)
        self.begins = bool(near) and selects_itself and not stands
        """Nothing stands yet that it has to stand near, and it may be the first: it selects itself."""

    def _count(self) -> None:
        table, counts, least = self._cluster.table, self._counts, dict[AffinityRule, dict[str, int]]()
        for state, nodes in self._cluster.by_state(range(len(self._cluster.names))).items():
            free = table.frees[state]
            if free.repels:
                self._note_repelled(free)
            here = dict(free.selected)
            for rule in self._rules:
                if rule.kind == "spread" and not self._is_domain(rule, free.shape):
                    continue
                value, number = _value(free.shape, rule.domain), here.get(rule.selector, 0)
                if value is None:
                    continue
                counts[rule, value] = counts.get((rule, value), 0) + number * len(nodes)
                if rule.kind == "spread":
                    known = least.setdefault(rule, {})
                    if rule.domain == NODE:
                        known[str(state)] = number
                    else:
                        known[value] = counts[rule, value]
        for rule, found in least.items():
            domains = len(self._cluster.names) if rule.domain == NODE else len(found)
            self._fewest[rule] = 0 if domains < rule.domains_min else min(found.values())

    def _note_repelled(self, free: NodeCapacity) -> None:
        for (domain, selector), _ in free.repels:
            value = _value(free.shape, domain) if domain != NODE else None
            if value is not None and selector in self._each.selected:
                self._repelled.add((domain, value))

    def _is_domain(self, rule: AffinityRule, shape: NodeShape) -> bool:
        """Return whether the nodes of a shape count for a rule that spreads. Source: KEP-3094."""
        need = self._need
        if shape.pool != need.pool or any(
            _value(shape, one.domain) is None for one in self._rules if one.kind == "spread"
        ):
            return False
        if rule.honours_labels and not need.accepts_labels(shape):
            return False
        return not rule.honours_taints or need.tolerates(shape)

    def refusal(self, state: int) -> str:
        """Return why a replica may not stand on nodes in this state, or ''."""
        free = self._cluster.table.frees[state]
        shape = free.shape
        if any(_value(shape, domain) == value for domain, value in self._repelled):
            return "anti_affinity"
        return next((rule.kind for rule in self._rules if not self._holds(rule, free)), "")

    def _holds(self, rule: AffinityRule, free: NodeCapacity) -> bool:
        value = _value(free.shape, rule.domain)
        if value is None:
            return rule.kind == "anti_affinity"
        number = self._number(rule, free, value)
        match rule.kind:
            case "anti_affinity":
                return not number
            case "affinity":
                return number > 0 or self.begins or self._cluster.holds_nothing
            case _:
                more = number + (rule.selector in self._each.selected) - self._fewest.get(rule, 0)
                return more <= rule.max_skew

    def _number(self, rule: AffinityRule, free: NodeCapacity, value: str) -> int:
        if rule.domain == NODE:
            return dict(free.selected).get(rule.selector, 0)
        return self._counts.get((rule, value), 0)

    def crowd(self, state: int) -> int:
        """Return how many replicas of its kind the domains of these nodes have: where they are few it goes first."""
        free = self._cluster.table.frees[state]
        spread = (one for one in self._rules if one.kind == "spread")
        return sum(self._number(one, free, _value(free.shape, one.domain) or "") for one in spread)

    def near(self, state: int) -> tuple[str | None, ...]:
        """Return the domains in which later replicas have to stand if the first one stands on nodes in this state."""
        shape = self._cluster.table.frees[state].shape
        near = [one.domain for one in self._rules if one.kind == "affinity"]
        return tuple(str(state) if domain == NODE else _value(shape, domain) for domain in near)


def _value(shape: NodeShape, domain: str) -> str | None:
    """Return which domain nodes of a shape are in, None where they are in none."""
    return "" if domain == NODE else shape.label_map.get(domain)


def put_by_rules(
    cluster: ClusterIndex,
    need: Need,
    count: int,
    strategy: str,
    nodes: Collection[int] | None,
    used: Collection[int] | None,
) -> list[tuple[int, Picked]] | None:
    """Take places for `count` replicas one by one, each judged beside those before it; or take nothing.

    Args:
        nodes: the only nodes to be taken; None: any.
        used: nodes that are taken already, where each replica stands on a node of its own.
    """
    for first in _beginnings(cluster, need, strategy):
        mark, taken = cluster.mark(), set(used or ())
        placed: list[tuple[int, Picked]] = []
        while len(placed) < count:
            found = _put_one(cluster, need, strategy, first if not placed else None, nodes, taken)
            if found is None:
                break
            placed.append(found)
            if used is not None:
                taken.add(found[0])
        else:
            return placed
        cluster.rollback(mark)
    return None


def _beginnings(cluster: ClusterIndex, need: Need, strategy: str) -> Iterator[int | None]:
    """Yield states in which to begin; None: anywhere, where what comes first does not bind the others."""
    nearby = NearbyReplicas(need, cluster)
    if not nearby.begins:
        yield None
        return
    seen: set[tuple[str | None, ...]] = set()
    for state in cluster.fitting_states(cluster.view(need, 1, strategy)):
        near = nearby.near(state)
        if near not in seen and not nearby.refusal(state):
            seen.add(near)
            yield state
        if len(seen) >= BEGINNINGS_MAX:
            return


def _put_one(
    cluster: ClusterIndex,
    need: Need,
    strategy: str,
    first: int | None,
    nodes: Collection[int] | None,
    taken: Collection[int],
) -> tuple[int, Picked] | None:
    nearby, view = NearbyReplicas(need, cluster), cluster.view(need, 1, strategy)
    states: Sequence[int] = cluster.fitting_states(view) if first is None else [first]
    best: tuple[int, int] | None = None
    for state in states:
        if nearby.refusal(state):
            continue
        open_here = (n for n in cluster.nodes_in(state) if (nodes is None or n in nodes) and n not in taken)
        node = next(open_here, None)
        if node is not None and (best is None or nearby.crowd(state) < best[0]):
            best = nearby.crowd(state), node
            if not nearby.spreads:
                break
    if best is None:
        return None
    placed = view.put(cluster.table, cluster.state_of[best[1]])
    assert placed is not None, "the state is one of those that hold a replica"
    cluster.set_state(best[1], placed[0])
    return best[1], placed[1][0]
