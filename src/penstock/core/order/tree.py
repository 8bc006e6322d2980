"""Walks the waiting jobs of a queue tree in order, looking only at the head of each request class.

Jobs of one class differ in age alone, and no policy ever puts the younger of two such jobs first; so a class is a
sorted list, and the cost of a cycle grows with classes and placements, not with waiting jobs.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.core.model.cluster import ROOT_QUEUE, ClusterConfig, QueuePolicy
from penstock.core.model.ids import ClassId, JobId, QueueName
from penstock.core.model.jobs import Job, RequestClass
from penstock.core.order.policies import OrderKey, order_key


class ClassHeads(msgspec.Struct, frozen=True):
    """The first jobs of one class of waiting jobs (as many as one cycle may start), oldest first."""

    class_id: ClassId
    key: RequestClass
    jobs: tuple[Job, ...]
    waiting: int
    """How many wait in all; `jobs` may be fewer."""


class _Source(Protocol):
    def peek(self) -> Job | None: ...
    def pop(self, *, drop_class: bool) -> ClassId: ...


KeyOf = Callable[[QueuePolicy, Job], OrderKey]


class _Leaf:
    """One queue's classes, merged by the queue's policy."""

    def __init__(self, policy: QueuePolicy, classes: Sequence[ClassHeads], key_of: KeyOf) -> None:
        self._policy, self._classes, self._key_of = policy, classes, key_of
        self._heap = [(key_of(policy, c.jobs[0]), i, 0) for i, c in enumerate(classes)]
        heapq.heapify(self._heap)

    def peek(self) -> Job | None:
        if not self._heap:
            return None
        _, index, position = self._heap[0]
        return self._classes[index].jobs[position]

    def pop(self, *, drop_class: bool) -> ClassId:
        _, index, position = heapq.heappop(self._heap)
        heads = self._classes[index]
        if not drop_class and position + 1 < len(heads.jobs):
            key = self._key_of(self._policy, heads.jobs[position + 1])
            heapq.heappush(self._heap, (key, index, position + 1))
        return heads.class_id


class _Inner:
    """A queue's children (and its own jobs), compared by the queue's policy."""

    def __init__(self, policy: QueuePolicy, children: Sequence[_Source], key_of: KeyOf) -> None:
        self._policy, self._children, self._key_of = policy, children, key_of
        self._heap: list[tuple[OrderKey, int]] = []
        for index in range(len(children)):
            self._push(index)

    def _push(self, index: int) -> None:
        head = self._children[index].peek()
        if head is not None:
            heapq.heappush(self._heap, (self._key_of(self._policy, head), index))

    def peek(self) -> Job | None:
        return self._children[self._heap[0][1]].peek() if self._heap else None

    def pop(self, *, drop_class: bool) -> ClassId:
        _, index = heapq.heappop(self._heap)
        class_id = self._children[index].pop(drop_class=drop_class)
        self._push(index)
        return class_id


class JobOrder:
    """Gives waiting jobs one at a time; the caller says after each whether its class is worth another look."""

    def __init__(self, config: ClusterConfig, classes: Sequence[ClassHeads], now_ms: int) -> None:
        settings = config.settings

        def key_of(policy: QueuePolicy, job: Job) -> OrderKey:
            return order_key(policy, job, settings, now_ms)

        by_queue: dict[QueueName, list[ClassHeads]] = {}
        for heads in sorted(classes, key=lambda c: c.class_id):
            by_queue.setdefault(heads.key.queue, []).append(heads)
        self._root = _build(ROOT_QUEUE, config, by_queue, key_of)

    def peek(self) -> Job | None:
        """Return the next job, or None when all were looked at."""
        return self._root.peek()

    def advance(self) -> None:
        """Go on to the next job, which may be of the same class."""
        self._root.pop(drop_class=False)

    def drop_class(self) -> None:
        """Go on, leaving out every other job of this class: what did not fit is not tried again."""
        self._root.pop(drop_class=True)

    def __iter__(self) -> Iterator[JobId]:
        """Yield every job in order (consumes the order)."""
        while (job := self.peek()) is not None:
            yield job.id
            self.advance()


def _build(
    name: QueueName, config: ClusterConfig, by_queue: Mapping[QueueName, list[ClassHeads]], key_of: KeyOf
) -> _Source:
    own = next((q for q in config.queues if q.name == name), None)
    policy = own.policy if own else config.root_policy
    children = [_build(q.name, config, by_queue, key_of) for q in config.queues if q.parent == name and q.name != name]
    leaf = _Leaf(policy, by_queue.get(name, []), key_of)
    return _Inner(policy, [leaf, *children], key_of) if children else leaf
