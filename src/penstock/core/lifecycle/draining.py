"""Draining: nodes that a person closes for new work; their jobs run to their end, or are asked to move."""

from collections.abc import Iterable

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.events import AttemptStopRequested, NodeDrainChanged, NodeRemoved
from penstock.core.model.ids import NodeName, UserName


def drain(
    tx: Transaction, node: NodeName, *, on: bool, by: UserName, reason: str, evict: bool, evict_at_ms: int = 0
) -> bool:
    """Close a node for new work or open it again; with `evict` its running work is asked to move, now or at a time.

    Returns False when there is no such node.
    """
    known = tx.state.nodes.get(node)
    if known is None:
        return False
    if known.draining != on or (known.shut_to and not on) or (on and evict_at_ms and evict_at_ms != known.evict_at_ms):
        tx.emit(NodeDrainChanged(node, on, by, reason, evict_at_ms if on else 0))
    if on and evict:
        clear(tx, node)
    return True


def remove_over(tx: Transaction, nodes: Iterable[NodeName], reason: str) -> list[NodeName]:
    """Take from the list what of these nodes is lost and has no place of an attempt; return which. May be repeated."""
    known = tx.state.nodes
    lost = {name for name in nodes if name in known and known[name].state == "lost"}
    if lost:
        attempts = (job.attempt for job in tx.state.indexes.active.values() if job.attempt is not None)
        lost -= {replica.place.node for attempt in attempts for replica in attempt.replicas}
    for name in sorted(lost):
        tx.emit(NodeRemoved(name, reason))
    return sorted(lost)


def clear(tx: Transaction, node: NodeName) -> None:
    """Ask all attempts on a node to save and move."""
    for job_id in sorted({job_id for job_id, _ in tx.state.indexes.load(node).replicas}):
        job = tx.state.jobs[job_id]
        stop = job.attempt.stop if job.attempt is not None else None
        if job.attempt is not None and (stop is None or stop.reason == "suspended"):
            tx.emit(AttemptStopRequested(job_id, job.attempt.number, "drained", job.spec.grace_ms))


def clear_overdue(tx: Transaction) -> None:
    """Ask the attempts on closed nodes to move once the evict time of the node has come."""
    for name in sorted(tx.state.indexes.evicted_later):
        if tx.state.nodes[name].evict_at_ms <= tx.now_ms:
            clear(tx, name)
