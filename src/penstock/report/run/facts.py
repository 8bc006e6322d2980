"""First pass over the log: what happened to each job, attempt and node, from the events alone.

It does not use `State`, so that what it says of waiting times can be held against the second pass (`waits`).
"""

from collections.abc import Iterable

import msgspec

from penstock.core.model import events as ev
from penstock.core.model.cluster import NodeSpec, NodeState
from penstock.core.model.events import MoneyEvent
from penstock.core.model.ids import AttemptNumber, JobId, NodeName
from penstock.core.model.jobs import JobState, Outcome
from penstock.report.run.model import NodeSpan, SpanKind


class AttemptFacts(msgspec.Struct):
    """One attempt; None is what has not happened yet."""

    job_id: JobId
    number: AttemptNumber
    allocated_ms: int
    nodes: tuple[NodeName, ...]
    to_start: int
    running_ms: int | None = None
    stops: list[tuple[int, ev.AttemptStopRequested]] = []
    """Orders to leave with their times; a cancel may overtake a preemption."""
    ended_ms: int | None = None
    outcome: Outcome | None = None
    detail: str = ""
    requeued: bool = False
    idle_ms: int = 0
    """How long it was suspended and went on afterwards."""
    suspended_ms: int | None = None
    resumed: ev.JobResumed | None = None
    saved_step: int | None = None
    """Newest checkpoint of the job when this attempt ended, or now."""


class JobFacts(msgspec.Struct):
    submitted: ev.JobSubmitted
    submitted_ms: int
    waiting_since_ms: int | None
    waits: list[tuple[int, int]] = []
    """Closed intervals of waiting, [start, end)."""
    attempts: list[AttemptFacts] = []
    saved_step: int | None = None
    state: JobState = "waiting"
    finished: ev.JobFinished | None = None
    finished_ms: int | None = None
    exit: str = ""
    """How the last replica that ended badly ended, else the last one."""

    @property
    def attempt(self) -> AttemptFacts:
        return self.attempts[-1]

    def intervals(self, until_ms: int) -> list[tuple[int, int]]:
        """Return the waiting intervals, the open one ending at `until_ms`."""
        return self.waits if self.waiting_since_ms is None else [*self.waits, (self.waiting_since_ms, until_ms)]


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
    jobs: dict[JobId, JobFacts] = {}
    nodes: dict[NodeName, NodeFacts] = {}


def gather(records: Iterable[ev.Record]) -> Facts:
    """Return what the log says of every job and node in it."""
    facts = Facts()
    for record in records:
        event = record.event
        if isinstance(event, MoneyEvent):
            continue
        match event:
            case ev.NodeRegistered() | ev.NodeReady() | ev.NodeLost() | ev.NodeDrainChanged():
                _node_event(facts, event, record.time_ms)
            case ev.JobSubmitted():
                facts.jobs[event.job_id] = JobFacts(event, record.time_ms, record.time_ms)
            case ev.JobRequeued() | ev.JobFinished():
                _job_event(facts.jobs[event.job_id], event, record.time_ms)
            case (
                ev.LeaderElected()
                | ev.ConfigChanged()
                | ev.JobCancelRequested()
                | ev.RunTimesPredicted()
                | ev.StartsEstimated()
                | ev.NodeStruck()
                | ev.NodeShut()
                | ev.NodeChecked()
                | ev.CapacityRequested()
                | ev.QuotaNoted()
                | ev.ProgressNoted()
                | ev.HangFound()
                | ev.IdleNoted()
                | ev.ReplicaFrozen()
                | ev.TokenIssued()
                | ev.TokenRevoked()
                | ev.SecretSet()
                | ev.SecretRemoved()
                | ev.AccessNoted()
            ):
                pass
            case _:
                _attempt_event(facts.jobs[event.job_id], event, record.time_ms)
    return facts


def _job_event(job: JobFacts, event: ev.JobRequeued | ev.JobFinished, time_ms: int) -> None:
    if isinstance(event, ev.JobRequeued):
        job.attempt.requeued = True
        job.waiting_since_ms, job.state = time_ms, "waiting"
        return
    _stop_waiting(job, time_ms)
    job.finished, job.finished_ms, job.state = event, time_ms, event.state
    if event.exit is not None:
        job.exit = event.exit.text()


def _stop_waiting(job: JobFacts, time_ms: int) -> None:
    if job.waiting_since_ms is not None:
        job.waits.append((job.waiting_since_ms, time_ms))
        job.waiting_since_ms = None


AttemptEvent = (
    ev.AttemptAllocated
    | ev.ReplicaStarted
    | ev.ReplicaExited
    | ev.AttemptStopRequested
    | ev.AttemptSuspended
    | ev.AttemptResumed
    | ev.CheckpointSaved
    | ev.JobResumed
    | ev.AttemptEnded
)


def _attempt_event(job: JobFacts, event: AttemptEvent, time_ms: int) -> None:
    match event:
        case ev.AttemptAllocated():
            _stop_waiting(job, time_ms)
            nodes = tuple(dict.fromkeys(p.node for p in event.places))
            facts = AttemptFacts(event.job_id, event.attempt, time_ms, nodes, len(event.places))
            facts.saved_step = job.saved_step
            job.attempts.append(facts)
            job.state = "starting"
        case ev.ReplicaStarted():
            job.attempt.to_start -= 1
            if job.attempt.to_start == 0:
                job.attempt.running_ms = time_ms
                job.state = "running" if job.state == "starting" else job.state
        case ev.ReplicaExited():
            if not event.exit.ok or not job.exit:
                job.exit = event.exit.text()
        case ev.AttemptStopRequested():
            job.state = "stopping"
            job.attempt.stops.append((time_ms, event))
        case ev.AttemptSuspended():
            job.state, job.attempt.suspended_ms = "suspended", time_ms
        case ev.AttemptResumed():
            job.state = "running"
            if job.attempt.suspended_ms is not None:
                job.attempt.idle_ms += time_ms - job.attempt.suspended_ms
        case ev.CheckpointSaved():
            job.saved_step = job.attempt.saved_step = event.step
        case ev.JobResumed():
            job.attempt.resumed = event
        case ev.AttemptEnded():
            job.attempt.ended_ms, job.attempt.outcome, job.attempt.detail = time_ms, event.outcome, event.detail


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
        case ev.NodeDrainChanged():
            if event.draining:
                node.draining_since_ms = time_ms
            elif node.draining_since_ms is not None:
                node.spans.append(node.span("draining", node.draining_since_ms, time_ms))
                node.draining_since_ms = None
