"""Which nodes are in which state: a bucket for each state, from which the node whose name comes first is taken.

Nodes are numbers in the order of their names, states are numbers of a table. What may be undone is the index's.
"""

import heapq
from collections.abc import Iterable

from penstock.core.model.ids import PoolName
from penstock.core.place.capacity import NodeShape
from penstock.core.place.state_table import StateTable

STALE_MIN = 16
"""Stale entries (of nodes that have left) that a bucket may hold, in addition to as many as it has nodes."""
FEW = 8
"""A bucket this many times as large is not put in order anew for the nodes that enter it together."""
GONE = -1


class Buckets:
    """Nodes by state, and what follows from it: states in use, and free capacity by pool."""

    def __init__(self) -> None:
        self.table = StateTable()
        self.state_of: list[int] = []
        self.free_milli: dict[PoolName, int] = {}
        """Free device capacity on open nodes, by pool."""
        self._buckets: dict[int, list[int]] = {}
        self._counts: list[int] = []
        self._active: set[int] = set()
        self._active_rich: set[int] = set()
        self._log: list[int] = []
        """States of open nodes in the order in which they came into use."""
        self._log_rich: list[int] = []
        """The same of nodes with devices left."""
        self._repelling = 0
        """Nodes with a replica that keeps others off a domain of several nodes."""
        self._kinds: dict[PoolName, list[NodeShape]] | None = None

    def _empty(self, nodes: int) -> None:
        """Begin anew with so many nodes that are in no state yet."""
        self.state_of = [GONE] * nodes
        self._buckets, self._counts, self.free_milli = {}, [0] * len(self.table), {}
        self._active, self._active_rich = set(), set()
        self._repelling, self._kinds = 0, None

    def by_state(self, nodes: Iterable[int]) -> dict[int, list[int]]:
        """Return the nodes by the state that each is in."""
        found: dict[int, list[int]] = {}
        state_of = self.state_of
        for node in nodes:
            found.setdefault(state_of[node], []).append(node)
        return found

    def _move_alike(self, nodes: list[int], old: int, state: int) -> None:
        """Do what `_move` does, for several nodes in one state, at the cost of little more than one."""
        if len(nodes) == 1:
            self._move(nodes[0], state)
            return
        counts, moved, state_of = self._counts, len(nodes), self.state_of
        counts[old] -= moved
        if self.table.repelling:
            self._repelling += moved * ((state in self.table.repelling) - (old in self.table.repelling))
        if self.table.open[old]:
            self._gain(old, -moved * self.table.free_milli[old])
            if counts[old] == 0:
                self._active.discard(old)
                self._active_rich.discard(old)
                self._buckets[old] = []
        if state >= len(counts):
            counts.extend([0] * (len(self.table) - len(counts)))
        for node in nodes:
            state_of[node] = state
        counts[state] += moved
        if self.table.open[state]:
            bucket = self._buckets.setdefault(state, [])
            if FEW * moved < len(bucket):
                for node in nodes:
                    heapq.heappush(bucket, node)
            else:
                bucket += nodes
                heapq.heapify(bucket)
            if len(bucket) > STALE_MIN + 2 * counts[state]:
                self._buckets[state] = self.nodes_in(state)
            self._gain(state, moved * self.table.free_milli[state])
            if counts[state] == moved:
                self._came_into_use(state)

    def _move(self, node: int, state: int) -> None:
        if self.state_of[node] != GONE:
            self._leave(node)
        self._enter(node, state)

    def _leave(self, node: int) -> None:
        state, counts = self.state_of[node], self._counts
        self.state_of[node] = GONE
        counts[state] -= 1
        if state in self.table.repelling:
            self._repelling -= 1
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
        if state in self.table.repelling:
            self._repelling += 1
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

    @property
    def regional(self) -> bool:
        """Whether a rule of some replica keeps others off a domain of several nodes."""
        return self._repelling > 0

    def kinds_in(self, pool: PoolName) -> list[NodeShape]:
        """Return one shape for each kind of nodes with devices that a pool has, closed ones too; in any order.

        Not the table's kinds: these have what was there once, each for the pool in which it was seen first.
        """
        return self._kinds_by_pool().get(pool, [])

    def _kinds_by_pool(self) -> dict[PoolName, list[NodeShape]]:
        if self._kinds is None:
            table, states = self.table, list(set(self.state_of))
            kinds = zip(states, table.kind[states].tolist(), strict=True)
            found = {(table.pools[state], kind): table.frees[state].shape for state, kind in kinds if kind >= 0}
            self._kinds = {}
            for (pool, _), shape in found.items():
                self._kinds.setdefault(pool, []).append(shape)
        return self._kinds
