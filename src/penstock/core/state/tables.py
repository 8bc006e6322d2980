"""Transition tables of jobs, replicas and nodes.

Theory: an object is in exactly one state; an event that the table does not list for that state is a broken
invariant, because the decisions (`decide_*`) must refuse or ignore it before it reaches the log. The drawings in
`docs/lifecycles.md` are generated from these tables.

A job waits, holds an allocation (starting, running, suspended, stopping), and either waits again or ends. A replica
holds its place from `allocated` until the node reports it gone (`exited`) or the node's lease ran out (`lost`).
"""

from typing import Final, cast

from penstock.core.model.cluster import NodeState
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.jobs import JobState, ReplicaState

JOB: Final[dict[tuple[str, str], str]] = {
    ("waiting", "allocated"): "starting",
    ("waiting", "cancelled"): "cancelled",
    ("waiting", "failed"): "failed",
    ("starting", "all_started"): "running",
    ("starting", "stop_requested"): "stopping",
    ("starting", "requeued"): "waiting",
    ("starting", "failed"): "failed",
    ("starting", "succeeded"): "succeeded",
    ("starting", "cancelled"): "cancelled",
    ("running", "stop_requested"): "stopping",
    ("stopping", "suspended"): "suspended",
    ("suspended", "resumed"): "running",
    ("suspended", "stop_requested"): "stopping",
    ("suspended", "requeued"): "waiting",
    ("suspended", "succeeded"): "succeeded",
    ("suspended", "failed"): "failed",
    ("suspended", "cancelled"): "cancelled",
    ("running", "requeued"): "waiting",
    ("running", "succeeded"): "succeeded",
    ("running", "failed"): "failed",
    ("running", "cancelled"): "cancelled",
    ("stopping", "stop_requested"): "stopping",
    ("stopping", "all_started"): "stopping",
    ("stopping", "requeued"): "waiting",
    ("stopping", "succeeded"): "succeeded",
    ("stopping", "failed"): "failed",
    ("stopping", "cancelled"): "cancelled",
}

REPLICA: Final[dict[tuple[str, str], str]] = {
    ("allocated", "started"): "started",
    ("allocated", "exited"): "exited",
    ("allocated", "node_lost"): "lost",
    ("started", "exited"): "exited",
    ("started", "node_lost"): "lost",
}

NODE: Final[dict[tuple[str, str], str]] = {
    ("unknown", "registered"): "joining",
    ("joining", "registered"): "joining",
    ("ready", "registered"): "joining",
    ("lost", "registered"): "joining",
    ("joining", "ready"): "ready",
    ("joining", "lost"): "lost",
    ("ready", "lost"): "lost",
}

TABLES: Final[dict[str, dict[tuple[str, str], str]]] = {"job": JOB, "replica": REPLICA, "node": NODE}


def job_step(state: JobState, event: str) -> JobState:
    """Return the state of a job in `state` after `event`; raises BrokenInvariant when it cannot take it."""
    return cast(JobState, _step("job", state, event))


def replica_step(state: ReplicaState, event: str) -> ReplicaState:
    """Return the state of a replica in `state` after `event`; raises BrokenInvariant when it cannot take it."""
    return cast(ReplicaState, _step("replica", state, event))


def node_step(state: NodeState | None, event: str) -> NodeState:
    """Return the state of a node in `state` (None: never seen) after `event`; raises BrokenInvariant."""
    return cast(NodeState, _step("node", state or "unknown", event))


def _step(kind: str, state: str, event: str) -> str:
    try:
        return TABLES[kind][state, event]
    except KeyError:
        raise BrokenInvariant(f"a {kind} in state '{state}' cannot take '{event}'") from None


def mermaid(kind: str) -> str:
    """Return the table as a Mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2"]
    lines += [f"    {before} --> {after}: {event}" for (before, event), after in TABLES[kind].items()]
    return "\n".join(lines)
