"""Free capacity of a whole cluster, indexed so that the cost of a placement grows with differences, not with nodes.

Nodes in the same state share a bucket. For each need there is a view: a heap over the states that can hold it, best
score first. A view catches up only with states that came into use since it was last asked, and an entry whose bucket
is empty is dropped when it comes up; so nothing is scored twice and nothing is searched.

Placements here are tentative: `mark` and `rollback` undo changes, and `sync` brings the index to the nodes of a newer
snapshot by looking at the nodes that differ. None of this affects the choice: the same free capacity gives the same
places, whichever requests came before.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence

from penstock.core.model.cluster import Node, PlacementPolicy
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.model.jobs import GangAsk, ReplicaPlace
from penstock.core.model.tentative import Tentative
from penstock.core.place import fragmentation
from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.fit import Need, Picked, capacity, put_on
from penstock.core.place.score import NO_FIT, Scorer, Speeds
from penstock.core.place.state_table import StateTable
from penstock.core.place.workload_mix import Typical, mix_of

LOG_MAX = 1_000_000
"""Entries of the log of states that came into use, after which views start anew."""
CHAIN_MAX = 16
STALE_MIN = 16
"""Stale entries (of nodes that have left) that a bucket may hold, in addition to as many as it has nodes."""
_GONE = -1
Mark = tuple[int, int, int]
"""A point of the journal, the random choices made up to it, and the version there."""


class PlacementStrategy:
    """How one pool's nodes are scored: a strategy, speeds and costs of models, and a seed for random choices."""

    __slots__ = ("name", "seed", "speeds")

    def __init__(self, name: PlacementPolicy = "fragmentation", speeds: Speeds = (), seed: int = 0) -> None:
        self.name, self.speeds, self.seed = name, speeds, seed


class CandidateHeap:
    """The states that can hold `count` replicas of one need on one node, best first."""

    __slots__ = ("_scorer", "after", "count", "heap", "held", "known", "need", "pushed", "rich", "seen", "strategy")

    def __init__(self, need: Need, count: int, strategy: PlacementPolicy, scorer: Scorer) -> None:
        self.need, self.count, self.strategy, self._scorer = need, count, strategy, scorer
        self.rich = need.each.devices is not None
        self.heap: list[tuple[int, NodeCapacity, int]] = []
        self.known: dict[int, int] = {}
        """Score by state, of all states it has ever judged."""
        self.pushed: set[int] = set()
        self.seen = 0
        self.held: dict[tuple[int, int], int] = {}
        """How many replicas, up to a number, fit on a state."""
        self.after: dict[int, tuple[int, tuple[Picked, ...]] | None] = {}
        """State to the state after the replicas were put there, and what each takes; None where they do not fit."""

    def learn(self, table: StateTable, states: Iterable[int]) -> None:
        """Push the states that fit and are not in the heap."""
        known, pushed, heap = self.known, self.pushed, self.heap
        unknown: list[int] = []
        for state in states:
            if state in pushed:
                continue
            score = known.get(state)
            if score is None:
                unknown.append(state)
            elif score != NO_FIT:
                pushed.add(state)
                heapq.heappush(heap, (score, table.frees[state], state))
        if unknown:
            self._judge(table, unknown)
            for state in unknown:
                score = known[state]
                if score != NO_FIT and state not in pushed:
                    pushed.add(state)
                    heapq.heappush(heap, (score, table.frees[state], state))

    def _judge(self, table: StateTable, unknown: list[int]) -> None:
        more = self._following(table, unknown[0]) if len(unknown) == 1 else []
        scores = self._scorer.batch(table, [*unknown, *more])
        self.known.update(zip([*unknown, *more], scores, strict=True))

    def score(self, table: StateTable, state: int) -> int:
        """Return the score of a state, in use or not; `NO_FIT` where the replicas surely do not fit."""
        found = self.known.get(state)
        if found is None:
            self._judge(table, [state])
            found = self.known[state]
        return found

    def _following(self, table: StateTable, state: int) -> list[int]:
        """Return the unknown states that a node goes through as more and more of these replicas are put on it.

        They will be needed one after the other; scored together they cost hardly more than one of them.
        """
        found: list[int] = []
        placed = self.put(table, state)
        while placed is not None and placed[0] not in self.known and len(found) < CHAIN_MAX:
            found.append(placed[0])
            placed = self.put(table, placed[0])
        return found

    def capacity(self, table: StateTable, state: int, most: int) -> int:
        """Return how many replicas (0 to `most`) of the need fit on a node in `state`."""
        found = self.held.get((state, most))
        if found is None:
            found = self.held[state, most] = capacity(self.need, table.frees[state], most)
        return found

    def put(self, table: StateTable, state: int) -> tuple[int, tuple[Picked, ...]] | None:
        """Return the state after the replicas were put on a node in `state`, exactly judged."""
        if state in self.after:
            return self.after[state]
        placed = put_on(self.need, table.frees[state], self.count)
        found = None if placed is None else (table.id_of(placed[0]), placed[1])
        self.after[state] = found
        return found


class ClusterIndex:
    """All nodes of a snapshot with tentative changes."""

    def __init__(self, strategies: Mapping[PoolName, PlacementStrategy] | None = None, typical: Typical = ()) -> None:
        self.table = StateTable()
        self._typical = typical
        self._mix: fragmentation.Mix | None = None
        self._mixed_kinds = 0
        self.strategies: Mapping[PoolName, PlacementStrategy] = strategies or {}
        self.names: list[NodeName] = []
        self.nodes: list[Node] = []
        self.state_of: list[int] = []
        self.index: dict[NodeName, int] = {}
        self.free_milli: dict[PoolName, int] = {}
        """Free device capacity on open nodes, by pool."""
        self._buckets: dict[int, list[int]] = {}
        self._counts: list[int] = []
        self._active: set[int] = set()
        self._active_rich: set[int] = set()
        self._log: list[int] = []
        self._log_rich: list[int] = []
        self._views: dict[tuple[Need, int, str], CandidateHeap] = {}
        self._journal: list[tuple[int, int]] = []
        self._nodes: Mapping[NodeName, Node] = {}
        self._domains: dict[str, dict[str, list[int]]] = {}
        self.generation = 0
        """Grows when views are discarded: an older view must not be used."""
        self.draws = 0
        """Random choices made since the last `sync`."""
        self.version = 0
        """Number of the present content: with an equal number every answer is the same. `rollback` sets it back."""
        self._versions = 0

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
        if nodes is not self._nodes:
            names = list(free)
            if self.names != names:
                self._rebuild(nodes, free)
                self._mix_again()
                return
            self.nodes = [nodes[name] for name in names]
            self._nodes, self._domains, changed = nodes, {}, names
        differ = set(self.names if changed is None else changed)
        differ.update(self.names[i] for i, _ in self._journal)
        for name in differ:
            node, state = self.index[name], self.table.id_of(free[name])
            if self.state_of[node] != state:
                self._move(node, state)
        self._settled()
        self._mix_again()

    def _mix_again(self) -> None:
        """New kinds of nodes change which classes accept which kinds: no score stays valid."""
        if self._mixed_kinds != len(self.table.kinds):
            self._mixed_kinds = len(self.table.kinds)
            self._mix = mix_of(self._typical, self.table.kinds)
            self.generation += 1
            self._views.clear()

    def _rebuild(self, nodes: Mapping[NodeName, Node], free: Mapping[NodeName, NodeCapacity]) -> None:
        """Take over another set of nodes. `free` is in the order of names."""
        self._nodes, self._domains = nodes, {}
        self.names = list(free)
        self.nodes = [nodes[name] for name in self.names]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.state_of = [_GONE] * len(self.names)
        self._buckets, self._counts, self.free_milli = {}, [0] * len(self.table), {}
        self._active, self._active_rich = set(), set()
        for i, value in enumerate(free.values()):
            self._move(i, self.table.id_of(value))
        self._settled()

    def _settled(self) -> None:
        self._journal.clear()
        self.draws = 0
        self._changed()

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
        self._mixed_kinds = 0
        self._views.clear()
        self._log, self._log_rich = [], []
        self.names = []
        self._nodes = {}

    def set_state(self, node: int, state: int) -> None:
        """Move a node to another state, so that `rollback` can move it back."""
        old = self.state_of[node]
        if old != state:
            self._journal.append((node, old))
            self._changed()
            self._move(node, state)

    def _move(self, node: int, state: int) -> None:
        if self.state_of[node] != _GONE:
            self._leave(node)
        self._enter(node, state)

    def _leave(self, node: int) -> None:
        state, counts = self.state_of[node], self._counts
        self.state_of[node] = _GONE
        counts[state] -= 1
        if self.table.open[state]:
            self._gain(state, -self.table.free_milli[state])
            if counts[state] == 0:
                self._active.discard(state)
                self._active_rich.discard(state)

    def _enter(self, node: int, state: int) -> None:
        counts = self._counts
        if state >= len(counts):
            counts.extend([0] * (len(self.table) - len(counts)))
        self.state_of[node] = state
        counts[state] += 1
        if self.table.open[state]:
            bucket = self._buckets.get(state)
            if bucket is None:
                self._buckets[state] = [node]
            else:
                heapq.heappush(bucket, node)
                if len(bucket) > STALE_MIN + 2 * counts[state]:
                    self._buckets[state] = self.nodes_in(state)
            self._gain(state, self.table.free_milli[state])
            if counts[state] == 1:
                self._came_into_use(state)

    def _gain(self, state: int, milli: int) -> None:
        if milli:
            pool = self.table.pools[state]
            self.free_milli[pool] = self.free_milli.get(pool, 0) + milli

    def _came_into_use(self, state: int) -> None:
        self._active.add(state)
        self._log.append(state)
        if self.table.rich[state]:
            self._active_rich.add(state)
            self._log_rich.append(state)

    def mark(self) -> Mark:
        """Return a point to which `rollback` can go back."""
        return len(self._journal), self.draws, self.version

    def rollback(self, mark: Mark) -> None:
        """Undo every change since `mark`, random choices included: a second try repeats the first."""
        position, self.draws, self.version = mark
        for node, old in reversed(self._journal[position:]):
            self._move(node, old)
        del self._journal[position:]

    def tentatively(self) -> Tentative[Mark]:
        """Roll back every change that is made while the context lasts."""
        return Tentative(self.mark, self.rollback)

    def free_of(self, node: int) -> NodeCapacity:
        return self.table.frees[self.state_of[node]]

    def change(self, node: int, free: NodeCapacity) -> None:
        """Set the free capacity of a node."""
        self.set_state(node, self.table.id_of(free))

    def take(self, ask: GangAsk, places: Sequence[ReplicaPlace]) -> None:
        """Take the places of a gang (all ranks in order)."""
        for rank, place in enumerate(places):
            node = self.index[place.node]
            self.change(node, self.free_of(node).take(ask.each_of(rank), place.devices, place.slots))

    def put_back(self, ask: GangAsk, places: Iterable[tuple[int, ReplicaPlace]]) -> None:
        """Give back places of a gang, each with its rank; places on nodes that are no longer known are skipped."""
        for rank, place in places:
            node = self.index.get(place.node)
            if node is not None and self.nodes[node].incarnation == place.incarnation:
                self.change(node, self.free_of(node).put_back(ask.each_of(rank), place.devices, place.slots))

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

    def fitting_states(self, view: CandidateHeap) -> list[int]:
        """Return all states in use that hold the replicas, best first."""
        counts = self._counts
        live = sorted(entry for entry in view.heap if counts[entry[2]])
        return [state for _, _, state in live if view.put(self.table, state) is not None]

    def lowest_node(self, state: int) -> int:
        """Return the node in `state` whose name comes first."""
        bucket, state_of = self._buckets[state], self.state_of
        while state_of[bucket[0]] != state:
            heapq.heappop(bucket)
        return bucket[0]

    def nodes_in(self, state: int) -> list[int]:
        """Return all nodes in `state` in the order of names."""
        return sorted({node for node in self._buckets[state] if self.state_of[node] == state})

    def states_in_use(self, *, rich: bool) -> list[int]:
        """Return open states that some node is in (with `rich` only those with devices left), in their own order."""
        frees = self.table.frees
        return sorted(self._active_rich if rich else self._active, key=lambda s: frees[s])

    def count(self, state: int) -> int:
        return self._counts[state]

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

    def place_of(self, node: int, picked: Picked) -> ReplicaPlace:
        return ReplicaPlace(self.names[node], self.nodes[node].incarnation, *picked)
