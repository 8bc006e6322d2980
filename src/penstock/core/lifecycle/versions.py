"""Versions of jobs and nodes as people decide on them: a request that names one is refused once it has changed.

A step that a program reports, or a node's report, is no such change.
"""

from collections.abc import Collection
from hashlib import blake2b

from penstock.core.model.cluster import Node
from penstock.core.model.errors import Problem
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import Job
from penstock.core.state.state import State

OVER = "over"
"""The version of a job that has ended."""
CHANGED = "precondition_failed"
"""The code of such a refusal."""


def job_version(job: Job | None) -> str:
    """Return the version of a job (None: it has ended): it changes with its state, its attempt, and what people do."""
    if job is None:
        return OVER
    held = job.hold.since_ms if job.hold is not None else 0
    parts = (job.id, job.submit_seq, job.edited_seq, job.state, job.last_attempt, held, int(job.cancel_requested))
    return "-".join(map(str, parts))


def node_version(node: Node) -> str:
    """Return the version of a node: it changes when it or one of its devices is closed or opened, is lost, is back."""
    closed = tuple((one.index, one.uuid, one.by, one.closed_ms) for one in node.devices_closed)
    seen = (node.incarnation, node.state, node.draining, node.drain_reason, node.closed_ms, node.evict_at_ms, *closed)
    return blake2b(repr(seen).encode(), digest_size=9).hexdigest()


def job_changed(state: State, job_id: JobId, wanted: Collection[str]) -> Problem | None:
    """Return what is wrong where a job is none of the wanted versions."""
    if job_version(state.jobs.get(job_id)) in wanted:
        return None
    return Problem(CHANGED, "If-Match", f"job {job_id} has changed since")


def node_changed(state: State, name: NodeName, wanted: Collection[str]) -> Problem | None:
    """Return what is wrong where a node is none of the wanted versions."""
    node = state.nodes.get(name)
    if node is None or node_version(node) in wanted:
        return None
    return Problem(CHANGED, "If-Match", f"node {name} has changed since")
