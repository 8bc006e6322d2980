"""The states of nodes that can hold some replicas of one need, best score first.

It scores each state once and knows what a node becomes when the replicas are put there. Which states are in use, and
how many nodes are in each, is the index's.
"""

import heapq
from collections.abc import Iterable

from penstock.core.model.cluster import PlacementPolicy
from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.fit import Need, Picked, capacity, put_on
from penstock.core.place.score import NO_FIT, Scorer
from penstock.core.place.state_table import StateTable

CHAIN_MAX = 16


class CandidateHeap:
    """The states that can hold `count` replicas of one need on one node, best first."""

    __slots__ = ("_scorer", "after", "count", "heap", "held", "known", "need", "pushed", "rich", "room", "seen",
                 "strategy")  # fmt: skip

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
        self.room = (-1, 0)
        """How many replicas fit on all nodes, one by one, and at which version of the index that was counted."""
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
