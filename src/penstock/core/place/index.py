"""Free capacity of a whole cluster, indexed so that the cost of a placement grows with differences, not with nodes.

Nodes in the same state share a bucket. For each need there is a view: a heap over the states that can hold it, best
score first. A view catches up only with states that came into use since it was last asked, and an entry whose bucket
is empty is dropped when it comes up; so nothing is scored twice and nothing is searched.

Placements here are tentative: `mark` and `rollback` undo changes, and `sync` brings the index to the nodes of a newer
snapshot by looking at the nodes that differ. None of this affects the choice: the same free capacity gives the same
places, whichever requests came before.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from penstock.core.model.cluster import Node, PlacementPolicy
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.model.jobs import GangAsk, ReplicaPlace
from penstock.core.model.resources import Resources
from penstock.core.model.tentative import Tentative
from penstock.core.place import fragmentation
from penstock.core.place.buckets import Buckets
from penstock.core.place.candidates import CandidateHeap
from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.fit import Need, Picked
from penstock.core.place.openings import KnownOpenings
from penstock.core.place.score import NO_FIT, Scorer, Speeds
from penstock.core.place.state_table import StateTable
from penstock.core.place.workload_mix import Typical, mix_of

LOG_MAX = 1_000_000
"""Entries of the log of states that came into use, after which views start anew."""
ROOM_MAX = 1 << 30
"""Replicas on one node that are counted, where these ask for nothing."""
Mark = tuple[int, int, int]
"""A point of the journal, the random choices made up to it, and the version there."""


class PlacementStrategy:
    """How one pool's nodes are scored: a strategy, speeds and costs of models, and a seed for random choices."""

    __slots__ = ("name", "seed", "speeds")

    def __init__(self, name: PlacementPolicy = "fragmentation", speeds: Speeds = (), seed: int = 0) -> None:
        self.name, self.speeds, self.seed = name, speeds, seed


class ClusterIndex(Buckets):
    """All nodes of a snapshot with tentative changes."""

    def __init__(self, strategies: Mapping[PoolName, PlacementStrategy] | None = None, typical: Typical = ()) -> None:
        super().__init__()
        self._typical = typical
        self._mix: fragmentation.Mix | None = None
        self._mixed = (0, False)
        self.strategies: Mapping[PoolName, PlacementStrategy] = strategies or {}
        self.names: list[NodeName] = []
        self.nodes: list[Node] = []
        self.index: dict[NodeName, int] = {}
        self._views: dict[tuple[Need, int, str], CandidateHeap] = {}
        self._journal: list[tuple[int | list[int], int]] = []
        """Nodes that changed, one or several that went from one state to one other, and the state before."""
        self._nodes: Mapping[NodeName, Node] = {}
        self._bare: dict[int, ReplicaPlace] = {}
        """Places without devices, by node: there is one value of each."""
        self._domains: dict[str, dict[str, list[int]]] = {}
        self.generation = 0
        """Grows when views are discarded: an older view must not be used."""
        self.draws = 0
        """Random choices made since the last `sync`."""
        self.version = 0
        """Number of the present content: with an equal number every answer is the same. `rollback` sets it back."""
        self._versions = 0
        self.openings = KnownOpenings()
        """Answers about the content of a version: see `backfill.earliest`."""
        self._synced = 0
        """The version at the last `sync`."""
        self.holds_nothing = False
        """It shows the nodes as if nothing ran: what a replica has to stand near may come later."""

    # Nodes.

    def sync(
        self,
        nodes: Mapping[NodeName, Node],
        free: Mapping[NodeName, NodeCapacity],
        changed: Iterable[NodeName] | None = None,
    ) -> None:
        """Bring every node to its state in `free`, which is in the order of names.

        Args:
            changed: all nodes that differ from the last sync, if that is known; any number of times each.
        """
        if len(self._log) > LOG_MAX or len(self.table) > LOG_MAX:
            self._forget()
        same = nodes is self._nodes
        if not same:
            names = list(free)
            if self.names != names:
                self._rebuild(nodes, free)
                self._mix_again()
                return
            self.nodes = [nodes[name] for name in names]
            self._nodes, self._domains, self._bare, self._kinds, changed = nodes, {}, {}, None, names
        differ = self._before()
        for name in set(self.names if changed is None else changed):
            node, state = self.index[name], self.table.id_of(free[name])
            if state != differ.get(node, self.state_of[node]):
                same, differ[node] = False, state
        moves: dict[int, list[int]] = {}
        for node, state in differ.items():
            if self.state_of[node] != state:
                moves.setdefault(state, []).append(node)
        for state, moved in moves.items():
            for old, alike in self.by_state(moved).items():
                self._move_alike(alike, old, state)
        self._settled(self._synced if same else 0)
        self._mix_again()

    def _before(self) -> dict[int, int]:
        """Return the state at the last sync of each node that the journal names."""
        found: dict[int, int] = {}
        for nodes, old in reversed(self._journal):  # the first entry of a node counts
            if isinstance(nodes, int):
                found[nodes] = old
            else:
                found.update(dict.fromkeys(nodes, old))
        return found

    def _mix_again(self) -> None:
        """New kinds of nodes change which classes accept which kinds: no score stays valid.

        Kinds that no node has any more change no score, but where no node has devices now there is no mix.
        """
        mixed = len(self.table.kinds), bool(self._kinds_by_pool())
        if self._mixed != mixed:
            self._mixed = mixed
            self._mix = mix_of(self._typical, self.table.kinds) if mixed[1] else None
            self.generation += 1
            self._views.clear()

    def _rebuild(self, nodes: Mapping[NodeName, Node], free: Mapping[NodeName, NodeCapacity]) -> None:
        """Take over another set of nodes. `free` is in the order of names."""
        self._nodes, self._domains, self._bare = nodes, {}, {}
        self.names = list(free)
        self.nodes = [nodes[name] for name in self.names]
        self.index = {name: i for i, name in enumerate(self.names)}
        self._empty(len(self.names))
        for i, value in enumerate(free.values()):
            self._move(i, self.table.id_of(value))
        self._settled()

    def _settled(self, version: int = 0) -> None:
        """Take the present content for that of the snapshot; `version` is its number if it had one."""
        self._journal.clear()
        self.draws = 0
        if version:
            self.version = version
        else:
            self._changed()
        self._synced = self.version

    def _changed(self) -> None:
        """Give the present content a number that no other content has had."""
        self._versions += 1
        self.version = self._versions

    def draw(self) -> int:
        """Count a random choice; return how many there were in this cycle."""
        self.draws += 1
        self._changed()
        return self.draws

    def _forget(self) -> None:
        """Start anew, so that scores of states long out of use do not fill the memory."""
        self.generation += 1
        self.table = StateTable()
        self._mixed = (0, False)
        self._views.clear()
        self._log, self._log_rich = [], []
        self._journal.clear()
        self._empty(0)
        self.names = []
        self._nodes = {}

    def set_state(self, node: int, state: int) -> None:
        """Move a node to another state, so that `rollback` can move it back."""
        old = self.state_of[node]
        if old != state:
            self._journal.append((node, old))
            self._changed()
            self._move(node, state)

    def set_states(self, nodes: Sequence[int], state: int) -> None:
        """Move several nodes to one state, each named once, so that `rollback` can move them back."""
        for old, alike in self.by_state(nodes).items():
            self.set_alike(alike, old, state)

    def set_alike(self, nodes: list[int], old: int, state: int) -> None:
        """Do what `set_states` does, for nodes that are all in the state `old`."""
        if old != state:
            self._journal.append((nodes, old))
            self._changed()
            self._move_alike(nodes, old, state)

    def mark(self) -> Mark:
        """Return a point to which `rollback` can go back."""
        return len(self._journal), self.draws, self.version

    def rollback(self, mark: Mark) -> None:
        """Undo every change since `mark`, random choices included: a second try repeats the first."""
        position, self.draws, self.version = mark
        for nodes, old in reversed(self._journal[position:]):
            if isinstance(nodes, int):
                self._move(nodes, old)
            else:
                self._move_alike(nodes, self.state_of[nodes[0]], old)
        del self._journal[position:]

    def tentatively(self) -> Tentative[Mark]:
        """Roll back every change that is made while the context lasts."""
        return Tentative(self.mark, self.rollback)

    def free_of(self, node: int) -> NodeCapacity:
        return self.table.frees[self.state_of[node]]

    def change(self, node: int, free: NodeCapacity) -> None:
        """Set the free capacity of a node."""
        self.set_state(node, self.table.id_of(free))

    def nodes_of(self, places: Iterable[ReplicaPlace]) -> list[int]:
        """Return the nodes of these places, each once, in the order in which they first come."""
        index = self.index
        return list(dict.fromkeys([index[place.node] for place in places]))

    def take(self, ask: GangAsk, places: Sequence[ReplicaPlace]) -> None:
        """Take the places of a gang (all ranks in order)."""
        many = hosts_alike(ask)
        self._shift(ask.each.host, [self.index[place.node] for place in places[:many]], 1)
        for rank, place in enumerate(places[many:], many):
            node = self.index[place.node]
            self.change(node, self.free_of(node).take(ask.each_of(rank), place.devices, place.slots))

    def put_back(self, ask: GangAsk, places: Iterable[tuple[int, ReplicaPlace]]) -> None:
        """Give back places of a gang, each with its rank; places on nodes that are no longer known are skipped."""
        many, alike = hosts_alike(ask), list[int]()
        for rank, place in places:
            node = self.index.get(place.node)
            if node is None or self.nodes[node].incarnation != place.incarnation:
                continue
            if rank < many:
                alike.append(node)
            else:
                self.change(node, self.free_of(node).put_back(ask.each_of(rank), place.devices, place.slots))
        self._shift(ask.each.host, alike, -1)

    def _shift(self, host: Resources, nodes: Sequence[int], times: int) -> None:
        """Take host shares on these nodes (`times` -1: put them back), one for each time that a node is named."""
        groups: dict[tuple[int, int], list[int]] = {}
        for node, count in Counter(nodes).items():
            groups.setdefault((self.state_of[node], count), []).append(node)
        for (state, count), alike in groups.items():
            self.set_alike(alike, state, self.table.without_host(state, host, times * count))

    # States.

    def view(self, need: Need, count: int, strategy: str = "") -> CandidateHeap:
        """Return the view for `count` replicas of `need`, up to date with all states in use."""
        view = self.view_of(need, count, strategy)
        self.refresh(view)
        return view

    def view_of(self, need: Need, count: int, strategy: str = "") -> CandidateHeap:
        """Return the same view without an update: for queries about single states."""
        key = (need, count, strategy)
        view = self._views.get(key)
        if view is None:
            pool = self.strategies.get(need.pool) or PlacementStrategy()
            name: PlacementPolicy = strategy or pool.name  # type: ignore[assignment]
            view = self._views[key] = CandidateHeap(
                need, count, name, Scorer(need, count, name, self._mix, pool.speeds)
            )
        return view

    def refresh(self, view: CandidateHeap) -> None:
        """Let the view see the states that came into use since it was last asked."""
        log, active = (self._log_rich, self._active_rich) if view.rich else (self._log, self._active)
        fresh = len(log) - view.seen
        if fresh:
            counts = self._counts
            view.learn(self.table, active if fresh > len(active) else [s for s in log[view.seen :] if counts[s]])
            view.seen = len(log)

    def best_state(self, view: CandidateHeap) -> int | None:
        """Return the state in use with the best score that really holds the replicas, or None."""
        heap, counts = view.heap, self._counts
        while heap:
            state = heap[0][2]
            if counts[state] and view.put(self.table, state) is not None:
                return state
            heapq.heappop(heap)
            if counts[state]:
                view.known[state] = NO_FIT
            view.pushed.discard(state)
        return None

    def fill(self, view: CandidateHeap, times: int) -> list[tuple[int, tuple[Picked, ...]]]:
        """Take the best place for the view's replicas again and again, up to `times`; return nodes and devices.

        The same as `best_state` and `lowest_node` each time. A node that is best again and again is moved once.
        """
        found: list[tuple[int, tuple[Picked, ...]]] = []
        self.refresh(view)
        while len(found) < times and (state := self.best_state(view)) is not None:
            node = self.lowest_node(state)
            self._journal.append((node, state))
            self._changed()
            self._leave(node)
            while True:
                placed = view.after[state]
                assert placed is not None, "the state was chosen because the replicas fit there"
                state = placed[0]
                found.append((node, placed[1]))
                if len(found) == times or not self._still_best(view, node, state):
                    break
            self._enter(node, state)
            if self.table.rich[state] or not view.rich:
                view.learn(self.table, (state,))
        view.seen = len(self._log_rich if view.rich else self._log)
        return found

    def _still_best(self, view: CandidateHeap, node: int, state: int) -> bool:
        """Return whether a node that is out of the index and would enter it in `state` is the best place again."""
        if view.rich and not self.table.rich[state]:
            return False
        score = view.score(self.table, state)
        if score == NO_FIT or view.put(self.table, state) is None:
            return False
        other = self.best_state(view)
        if other is None:
            return True
        if other == state:
            return node < self.lowest_node(state)
        frees = self.table.frees
        return (score, frees[state], state) < (view.known[other], frees[other], other)

    def put_alike(self, view: CandidateHeap, nodes: list[int], state: int) -> tuple[Picked, ...]:
        """Put the view's replicas on each of these nodes, all in `state`; return what they take on one of them.

        Only where they fit: the caller has counted.
        """
        placed = view.put(self.table, state)
        assert placed is not None, "the nodes were chosen because the replicas fit there"
        self.set_alike(nodes, state, placed[0])
        return placed[1]

    def room(self, view: CandidateHeap) -> int:
        """Return how many replicas of the view's need fit on all nodes together. Only for needs without devices."""
        version, room = view.room
        if version != self.version:
            counts, table = self._counts, self.table
            room = sum(counts[state] * view.capacity(table, state, ROOM_MAX) for state in self._active)
            view.room = (self.version, room)
        return room

    def room_beside(self, view: CandidateHeap, more: Mapping[int, int]) -> int:
        """Return the room if there were so many more nodes in each of these states (below 0: fewer)."""
        capacity, table = view.capacity, self.table
        return self.room(view) + sum(count * capacity(table, state, ROOM_MAX) for state, count in more.items())

    def fitting_states(self, view: CandidateHeap) -> list[int]:
        """Return all states in use that hold the replicas, best first."""
        counts = self._counts
        live = sorted(entry for entry in view.heap if counts[entry[2]])
        return [state for _, _, state in live if view.put(self.table, state) is not None]

    def domains(self, scope: str) -> dict[str, list[int]]:
        """Return the nodes by switch or rack, in the order of names; nodes without one are in none."""
        found = self._domains.get(scope)
        if found is None:
            found = self._domains[scope] = {}
            for i, node in enumerate(self.nodes):
                name = node.spec.switch if scope == "switch" else node.spec.rack
                if name:
                    found.setdefault(name, []).append(i)
        return found

    def places_of(self, placed: Iterable[tuple[int, Picked]]) -> tuple[ReplicaPlace, ...]:
        """Return the places of replicas, in order."""
        bare = self._bare
        return tuple(
            [(None if picked[0] else bare.get(node)) or self.place_of(node, picked) for node, picked in placed]
        )

    def place_of(self, node: int, picked: Picked) -> ReplicaPlace:
        if picked[0]:
            return ReplicaPlace(self.names[node], self.nodes[node].incarnation, *picked)
        found = self._bare.get(node)
        if found is None:
            found = self._bare[node] = ReplicaPlace(self.names[node], self.nodes[node].incarnation)
        return found


def hosts_alike(ask: GangAsk) -> int:
    """Return how many of the first ranks take the same host share and nothing else."""
    if ask.each.devices is not None or ask.each.selected or ask.each.affinity:
        return 0
    return ask.replicas if ask.others else ROOM_MAX
