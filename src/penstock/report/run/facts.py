"""First pass over the log: the history of each job, attempt and node, from the events alone.

It does not use `State`, so that its waiting times can be checked against the second pass (`waits`).
"""

from collections.abc import Iterable

import msgspec

from penstock.core.model import events as ev
from penstock.core.model.cluster import NodeSpec, NodeState
from penstock.core.model.ids import JobId, NodeName
from penstock.core.state.history import AttemptHistory, History, JobHistory
from penstock.report.run.model import NodeSpan, SpanKind


class NodeFacts(msgspec.Struct):
    spec: NodeSpec
    kind: NodeState
    since_ms: int
    lanes: set[int]
    draining_since_ms: int | None = None
    spans: list[NodeSpan] = []

    def span(self, kind: SpanKind, start_ms: int, end_ms: int) -> NodeSpan:
        return NodeSpan(kind, start_ms, end_ms, len(self.spec.devices), self.spec.capacity.cpu_milli)

    def turn(self, kind: NodeState, time_ms: int) -> None:
        """End the present condition and begin another one."""
        if time_ms > self.since_ms:
            self.spans.append(self.span(self.kind, self.since_ms, time_ms))
        self.kind, self.since_ms = kind, time_ms

    def all_spans(self, until_ms: int) -> tuple[NodeSpan, ...]:
        """Return every condition up to `until_ms`, by start."""
        spans = list(self.spans)
        if until_ms > self.since_ms:
            spans.append(self.span(self.kind, self.since_ms, until_ms))
        if self.draining_since_ms is not None and until_ms > self.draining_since_ms:
            spans.append(self.span("draining", self.draining_since_ms, until_ms))
        return tuple(sorted(spans, key=lambda s: (s.start_ms, s.kind)))


class Facts(msgspec.Struct):
    jobs: dict[JobId, JobHistory] = {}
    nodes: dict[NodeName, NodeFacts] = {}
    losses: dict[NodeName, list[tuple[int, int]]] = {}
    """Of each node: when it counted as lost, and when it was last heard."""

    def failure(self, attempt: AttemptHistory) -> tuple[int, int] | None:
        """Return when the first node that an attempt lost was last heard, and when it counted as lost."""
        until_ms = attempt.ended_ms
        found = [
            (max(attempt.allocated_ms, heard_ms), lost_ms)
            for name in attempt.nodes
            for lost_ms, heard_ms in self.losses.get(name, ())
            if attempt.allocated_ms <= lost_ms and (until_ms is None or lost_ms <= until_ms)
        ]
        return min(found, default=None)


def gather(records: Iterable[ev.Record]) -> Facts:
    """Return the facts of every job and node in the log."""
    history = History()
    facts = Facts(history.jobs)
    for record in records:
        event = record.event
        if isinstance(event, ev.NodeRegistered | ev.NodeReady | ev.NodeLost | ev.NodeDrainChanged):
            _node_event(facts, event, record.time_ms)
        else:
            history.take(record)
    return facts


def _node_event(
    facts: Facts, event: ev.NodeRegistered | ev.NodeReady | ev.NodeLost | ev.NodeDrainChanged, time_ms: int
) -> None:
    if isinstance(event, ev.NodeRegistered):
        known = facts.nodes.get(event.spec.name)
        indexes = {d.index for d in event.spec.devices}
        if known is None:
            facts.nodes[event.spec.name] = NodeFacts(event.spec, "joining", time_ms, indexes)
        else:
            known.turn("joining", time_ms)
            known.spec = event.spec
            known.lanes |= indexes
        return
    node = facts.nodes[event.node]
    match event:
        case ev.NodeReady():
            node.turn("ready", time_ms)
        case ev.NodeLost():
            node.turn("lost", time_ms)
            facts.losses.setdefault(event.node, []).append((time_ms, event.heard_ms or time_ms))
        case ev.NodeDrainChanged():
            if event.draining:
                node.draining_since_ms = time_ms
            elif node.draining_since_ms is not None:
                node.spans.append(node.span("draining", node.draining_since_ms, time_ms))
                node.draining_since_ms = None
