"""Placing a gang: all replicas or none, against tentative free capacity."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from penstock.core.model.ids import TenantName
from penstock.core.model.jobs import GangAsk, ReplicaPlace, Topology
from penstock.core.place.affinity import NearbyReplicas, has_wide_rules, is_ruled, put_by_rules
from penstock.core.place.candidates import CandidateHeap
from penstock.core.place.fit import (
    Need,
    Picked,
    capacity,
    closed_refusal,
    count_refusals,
    needs_of,
    place_free,
    put_on,
    repels_itself,
)
from penstock.core.place.index import ClusterIndex

Placed = list[tuple[int, Picked]]
"""Node and devices of each replica, in rank order."""
_NOBODY = TenantName("")
_NOT_BY_STATE = ("first_fit", "first_fit_decreasing", "random")
"""Strategies that look at nodes, not at their states alone."""


class NoFit(msgspec.Struct, frozen=True):
    """Why a gang does not fit: every node counted once, under the first filter that refused it.

    `gang_short` counts nodes that could take some replicas while all of them together cannot take the gang.
    """

    refused: tuple[tuple[str, int], ...]
    replicas_possible: int
    """How many replicas could be placed now, topology included."""


class Counted(NamedTuple):
    """Replicas without devices that may be anywhere: they fit exactly where there is room for that many."""

    single: CandidateHeap
    """The view for one of them."""
    replicas: int


class GangPlacer:
    """A gang with its views, so that placing many alike costs no lookup. Valid for one generation of the cluster."""

    __slots__ = ("_counted", "_ruled", "_selected", "cluster", "gang", "generation", "milli", "needs", "one", "single",
                 "view")  # fmt: skip

    def __init__(
        self, gang: GangAsk, cluster: ClusterIndex, tenant: TenantName = _NOBODY, *, stays: bool = False
    ) -> None:
        if gang.replicas < 1:
            raise ValueError(f"a gang of {gang.replicas} replicas: validation should have caught it")
        self.gang, self.cluster, self.generation = gang, cluster, cluster.generation
        self.needs = needs_of(gang, tenant, stays=stays)
        wish = gang.topology
        spread = wish is not None and wish.scope == "spread" and gang.replica_total > 1
        within = wish is not None and wish.scope in ("switch", "rack")
        each = gang.each
        self._ruled = any(has_wide_rules(need.each) for need, _ in self.needs)
        self._selected = any(need.each.selected for need, _ in self.needs)
        alone = gang.replicas > 1 and repels_itself(each)
        self.one = not (gang.others or spread or within or alone)
        """Whether one node that holds the whole gang is always the best place."""
        self.view: CandidateHeap = cluster.view(*self.needs[0], gang.placement)
        parts = any(need.each.devices is not None and need.each.devices.profile for need, _ in self.needs)
        self.milli = 0 if parts else gang.device_milli
        """Device capacity that has to be free at least; 0 where it is not counted in thousandths."""
        need = self.needs[0][0]
        self.single = cluster.view_of(need, 1, gang.placement) if need.each.devices is None else None
        """One replica of the first group, where that needs no devices: then room is counted, not searched."""
        self._counted: Counted | None = None
        if self.single is not None and wish is None and not gang.others:
            self._counted = Counted(self.single, gang.replicas)

    @property
    def ruled(self) -> bool:
        """Whether it depends on more than single nodes where replicas may stand: they are placed one by one."""
        return self._ruled or (self._selected and self.cluster.regional)

    @property
    def counted(self) -> Counted | None:
        """What the gang needs, where that is room alone, wherever it is."""
        return None if self.ruled else self._counted

    def fits(self) -> bool:
        """Return whether `put` would find places. Nothing is taken."""
        if self.counted is not None:
            return self.cluster.room(self.counted.single) >= self.counted.replicas
        with self.cluster.tentatively():
            return self.put() is not None

    def put(self) -> tuple[ReplicaPlace, ...] | None:
        """Take places for every replica (rank order), or take nothing and return None."""
        cluster, view = self.cluster, self.view
        if self.milli > cluster.free_milli.get(self.gang.pool, 0):
            return None
        if self.ruled:
            placed = _put_somewhere(self.gang, self.needs, cluster)
            return None if placed is None else cluster.places_of(placed)
        single, replicas = self.single, self.gang.replicas
        if single is not None and single.room[1] < replicas and single.room[0] == cluster.version:
            return None
        if self.one:
            cluster.refresh(view)
            node = choose_node(cluster, view)
            if node is not None:
                picked = _put_at(cluster, view, node)
                name, incarnation = cluster.names[node], cluster.nodes[node].incarnation
                return tuple([ReplicaPlace(name, incarnation, *p) for p in picked])
            wish = self.gang.topology
            if replicas == 1 or (wish is not None and wish.required):
                return None
        if single is not None and cluster.room(single) < replicas:
            return None
        placed = _put_somewhere(self.gang, self.needs, cluster)
        return None if placed is None else cluster.places_of(placed)

    def put_at(self, places: Sequence[ReplicaPlace]) -> bool:
        """Take exactly these places (rank order) where all of them are free for the gang, or take nothing."""
        cluster, mark = self.cluster, self.cluster.mark()
        needs = [need for need, count in self.needs for _ in range(count)]
        if len(places) != len(needs):
            return False
        for need, place in zip(needs, places, strict=True):
            node, picked = cluster.index.get(place.node), (place.devices, place.slots)
            known = node is not None and cluster.nodes[node].incarnation == place.incarnation
            free = cluster.free_of(node) if node is not None and known else None
            if node is None or free is None or closed_refusal(need, free) or not place_free(need.each, free, picked):
                cluster.rollback(mark)
                return False
            if self.ruled and NearbyReplicas(need, cluster).refusal(cluster.state_of[node]):
                cluster.rollback(mark)
                return False
            cluster.change(node, free.take(need.each, *picked))
        return True

    def put_alike(self, times: int) -> list[tuple[ReplicaPlace, ...]]:
        """Take places for up to `times` such gangs, each as `put` would; the list ends with the first that fails."""
        found: list[tuple[ReplicaPlace, ...]] = []
        if self.one and not self.ruled and self.view.strategy not in _NOT_BY_STATE:
            names, nodes = self.cluster.names, self.cluster.nodes
            for node, picked in self.cluster.fill(self.view, times):
                name, incarnation = names[node], nodes[node].incarnation
                found.append(tuple([ReplicaPlace(name, incarnation, *p) for p in picked]))
        while len(found) < times and (places := self.put()) is not None:
            found.append(places)
        return found


def put_gang(gang: GangAsk, cluster: ClusterIndex, tenant: TenantName = _NOBODY) -> tuple[ReplicaPlace, ...] | None:
    """Take places for every replica of `gang` (rank order), or take nothing and return None.

    As few nodes as possible: the best node that holds the whole gang, else the nodes that hold most of it. With a
    topology wish each domain is tried by itself, the one with least free capacity first.
    """
    return GangPlacer(gang, cluster, tenant).put()


def fits(gang: GangAsk, cluster: ClusterIndex, tenant: TenantName = _NOBODY) -> bool:
    """Return whether the gang could be placed now. Nothing is taken."""
    return GangPlacer(gang, cluster, tenant).fits()


def place_gang(gang: GangAsk, cluster: ClusterIndex, tenant: TenantName = _NOBODY) -> tuple[ReplicaPlace, ...] | NoFit:
    """Return a place for each replica (rank order), or why the gang does not fit. Nothing is taken."""
    with cluster.tentatively():
        places = put_gang(gang, cluster, tenant)
    if places is not None:
        return places
    needs = needs_of(gang, tenant)
    refused = count_refusals(needs, map(cluster.free_of, range(len(cluster.names))))
    return NoFit(refused, replicas_possible(gang, cluster, tenant))


def replicas_possible(gang: GangAsk, cluster: ClusterIndex, tenant: TenantName = _NOBODY) -> int:
    """Return how many replicas of the first group could be placed now, with a required topology in one domain."""
    need, most = needs_of(gang, tenant)[0]
    wish = gang.topology
    if is_ruled(need.each, cluster):
        return _possible_by_rules(gang, cluster, need, most)
    if wish is not None and wish.required and wish.scope != "spread":
        return roomiest(gang, cluster, tenant)[1]
    held = dict(_capacities(cluster, need, most, range(len(cluster.names))))
    return min(most, len(held) if wish is not None and wish.required else sum(held.values()))


def _possible_by_rules(gang: GangAsk, cluster: ClusterIndex, need: Need, most: int) -> int:
    """Return for how many replicas of a gang there is room under rules: the largest number that is placed."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        with cluster.tentatively():
            fits = put_by_rules(cluster, need, middle, gang.placement, None, None) is not None
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def roomiest(gang: GangAsk, cluster: ClusterIndex, tenant: TenantName = _NOBODY) -> tuple[str, int]:
    """Return the node, switch or rack with room for most replicas of the first group, and for how many.

    The gang's topology names the kind. Equal ones fall to the first; ("", 0) where none has room.
    """
    need, most = needs_of(gang, tenant)[0]
    held = dict(_capacities(cluster, need, most, range(len(cluster.names))))
    if gang.topology is not None and gang.topology.scope in ("switch", "rack"):
        domains = cluster.domains(gang.topology.scope).items()
        rooms = [(name, sum(held.get(node, 0) for node in nodes)) for name, nodes in domains]
    else:
        rooms = [(str(cluster.names[node]), room) for node, room in held.items()]
    name, room = max(rooms, key=lambda found: found[1], default=("", 0))
    return (name, min(most, room)) if room else ("", 0)


def choose_node(cluster: ClusterIndex, view: CandidateHeap) -> int | None:
    """Return the node that the view's strategy takes, or None when the replicas fit on none."""
    if view.strategy not in _NOT_BY_STATE:
        state = cluster.best_state(view)
        return None if state is None else cluster.lowest_node(state)
    if view.strategy != "random":
        return min(map(cluster.lowest_node, cluster.fitting_states(view)), default=None)
    nodes = sorted(n for s in cluster.fitting_states(view) for n in cluster.nodes_in(s))
    return nodes[_draw(cluster, view) % len(nodes)] if nodes else None


def _draw(cluster: ClusterIndex, view: CandidateHeap) -> int:
    """Return the next number of a generator that depends on the pool's seed and the choices made in this cycle.

    Source: SplitMix64, Steele et al., OOPSLA'14.
    """
    strategy = cluster.strategies.get(view.need.pool)
    mask = (1 << 64) - 1
    z = ((strategy.seed if strategy else 0) + cluster.draw() * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def _put_at(cluster: ClusterIndex, view: CandidateHeap, node: int) -> tuple[Picked, ...]:
    placed = view.put(cluster.table, cluster.state_of[node])
    assert placed is not None, "the node was chosen because the replicas fit there"
    cluster.set_state(node, placed[0])
    return placed[1]


class _Room(NamedTuple):
    """Nodes for a gang's replicas in one try: all nodes, or one domain's; each node at most once, or not."""

    nodes: Sequence[int] | None = None
    one_each: bool = False


def _put_somewhere(gang: GangAsk, needs: tuple[tuple[Need, int], ...], cluster: ClusterIndex) -> Placed | None:
    wish = gang.topology
    if wish is None:
        return _put_groups(gang, needs, cluster, _Room())
    if wish.scope == "spread":
        placed = _put_groups(gang, needs, cluster, _Room(one_each=True))
    elif wish.scope == "node":
        placed = _put_on_one(gang, needs, cluster)
    else:
        placed = _put_in_domain(gang, needs, cluster, wish)
    if placed is None and not wish.required:
        return _put_groups(gang, needs, cluster, _Room())
    return placed


def _put_in_domain(
    gang: GangAsk, needs: tuple[tuple[Need, int], ...], cluster: ClusterIndex, wish: Topology
) -> Placed | None:
    """Try each domain, the one with room for fewest replicas first."""
    need, most = needs[0]
    ranked = []
    for name, nodes in cluster.domains(wish.scope).items():
        room = sum(held for _, held in _capacities(cluster, need, most, nodes))
        if room >= most:
            ranked.append((room, name, nodes))
    for _, _, nodes in sorted(ranked):
        placed = _put_groups(gang, needs, cluster, _Room(nodes))
        if placed is not None:
            return placed
    return None


def _capacities(cluster: ClusterIndex, need: Need, most: int, nodes: Iterable[int]) -> list[tuple[int, int]]:
    """Return (node, replicas it holds) where that is not 0, judging each state once."""
    known: dict[int, int] = {}
    found = []
    for node in nodes:
        state = cluster.state_of[node]
        held = known.get(state)
        if held is None:
            held = known[state] = capacity(need, cluster.table.frees[state], most)
        if held:
            found.append((node, held))
    return found


def _put_on_one(gang: GangAsk, needs: tuple[tuple[Need, int], ...], cluster: ClusterIndex) -> Placed | None:
    """Put groups of different shape on one node: the best for the first group that holds them all."""
    if any(is_ruled(need.each, cluster) for need, _ in needs):
        return _put_on_one_by_rules(gang, needs, cluster)
    view = cluster.view(*needs[0], gang.placement)
    for state in cluster.fitting_states(view):
        free = cluster.table.frees[state]
        taken: list[Picked] = []
        for need, count in needs:
            put = put_on(need, free, count)
            if put is None:
                break
            free = put[0]
            taken += put[1]
        else:
            node = cluster.lowest_node(state)
            cluster.change(node, free)
            return [(node, picked) for picked in taken]
    return None


def _put_on_one_by_rules(gang: GangAsk, needs: tuple[tuple[Need, int], ...], cluster: ClusterIndex) -> Placed | None:
    tried = (cluster.lowest_node(state) for state in cluster.fitting_states(cluster.view(*needs[0], gang.placement)))
    found = (_put_groups(gang, needs, cluster, _Room([node])) for node in tried)
    return next((placed for placed in found if placed is not None), None)


def _put_groups(
    gang: GangAsk, needs: tuple[tuple[Need, int], ...], cluster: ClusterIndex, room: _Room
) -> Placed | None:
    """Put one group after the other, the one whose replicas take most devices first; all or nothing."""
    mark = cluster.mark()
    order = sorted(range(len(needs)), key=lambda i: (_after(needs[i][0]), -needs[i][0].each.device_milli, i))
    placed: dict[int, Placed] = {}
    used: set[int] = set()
    for group in order:
        need, count = needs[group]
        found = _put_group(cluster, need, count, gang.placement, room, used)
        if found is None:
            cluster.rollback(mark)
            return None
        placed[group] = found
        if room.one_each:
            used.update(node for node, _ in found)
    return [one for group in range(len(needs)) for one in placed[group]]


def _after(need: Need) -> int:
    """Return how many rules bind the replicas to others than themselves: those come first."""
    return sum(one.kind == "affinity" and one.selector not in need.each.selected for one in need.each.affinity)


def _put_group(
    cluster: ClusterIndex, need: Need, count: int, strategy: str, room: _Room, used: set[int]
) -> Placed | None:
    if is_ruled(need.each, cluster):
        return put_by_rules(cluster, need, count, strategy, room.nodes, used if room.one_each else None)
    if room.one_each:
        return _put_one_each(cluster, need, count, strategy, used)
    if room.nodes is None:
        return _put_over_states(cluster, need, count, strategy)
    return _put_over_nodes(cluster, need, count, strategy, room.nodes)


def _put_one_each(cluster: ClusterIndex, need: Need, count: int, strategy: str, used: set[int]) -> Placed | None:
    view = cluster.view(need, 1, strategy)
    chosen: list[int] = []
    for state in cluster.fitting_states(view):
        chosen += [n for n in cluster.nodes_in(state) if n not in used][: count - len(chosen)]
        if len(chosen) == count:
            return [(node, _put_at(cluster, view, node)[0]) for node in chosen]
    return None


def _put_over_states(cluster: ClusterIndex, need: Need, count: int, strategy: str) -> Placed | None:
    """As few nodes as possible: fill those that hold most, and put the rest on the best node that holds it."""
    one = cluster.view(need, 1, strategy)
    states = [(one.capacity(cluster.table, s, count), s) for s in cluster.fitting_states(one)]
    if sum(held * cluster.count(s) for held, s in states) < count:
        return None
    states.sort(key=lambda entry: -entry[0])  # stable: equal ones stay in the order of their score
    missing = count
    placed: Placed = []
    for held, state in states:
        nodes = cluster.nodes_in(state)
        filled = nodes[: (missing - 1) // held]  # one more would hold all that is left: that goes to the best node
        if filled:
            picked = cluster.put_alike(cluster.view_of(need, held, strategy), filled, state)
            placed += [(node, one) for node in filled for one in picked]
            missing -= held * len(filled)
        if len(filled) < len(nodes):
            break
    return placed + _put_rest(cluster, cluster.view(need, missing, strategy))


def _put_rest(cluster: ClusterIndex, view: CandidateHeap) -> Placed:
    node = choose_node(cluster, view)
    assert node is not None, "as many replicas were counted before"
    return [(node, picked) for picked in _put_at(cluster, view, node)]


def _put_over_nodes(
    cluster: ClusterIndex, need: Need, count: int, strategy: str, nodes: Sequence[int]
) -> Placed | None:
    """The same among the nodes of one domain."""
    held = dict(_capacities(cluster, need, count, nodes))
    if sum(held.values()) < count:
        return None
    placed: Placed = []
    missing = count
    while missing:
        enough = [n for n, most in held.items() if most >= missing]
        score = _score_of(cluster, cluster.view(need, missing if enough else 1, strategy))
        if enough:
            node = min(enough, key=score)
        else:
            node = min(held, key=lambda n: (-held[n], *score(n)))
        picked = _fill(cluster, cluster.view_of(need, min(held.pop(node), missing), strategy), node)
        placed += picked
        missing -= len(picked)
    return placed


def _score_of(cluster: ClusterIndex, view: CandidateHeap) -> Callable[[int], tuple[int, int]]:
    return lambda node: (view.known[cluster.state_of[node]], node)


def _fill(cluster: ClusterIndex, view: CandidateHeap, node: int) -> Placed:
    """Put the view's replicas on a node that holds as many: they were counted before."""
    return [(node, picked) for picked in _put_at(cluster, view, node)]
