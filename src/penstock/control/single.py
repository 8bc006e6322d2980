"""Requests about one job or one node: refused where it is another version than the one that they were decided on."""

from penstock.control import messages as msg
from penstock.core.lifecycle import versions
from penstock.core.lifecycle.draining import drain
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.requests import Refusal
from penstock.core.state.state import State


def refused(state: State, request: msg.Request) -> Refusal | None:
    """Return the refusal of a request whose job or node has changed since; None if it may be decided."""
    if not isinstance(request, msg.OF_ONE) or not request.versions:
        return None
    if isinstance(request, msg.Drain):
        changed = versions.node_changed(state, request.node, request.versions)
    else:
        named = request.job_ids[:1] if isinstance(request, msg.ChangeJobs) else (request.job_id,)
        changed = next((versions.job_changed(state, job_id, request.versions) for job_id in named), None)
    return Refusal(changed.code, (changed,)) if changed is not None else None


def drained(tx: Transaction, request: msg.Drain) -> bool:
    """Close a node, or open it again; return whether there is such a node."""
    return drain(
        tx,
        request.node,
        on=request.on,
        by=request.by,
        reason=request.reason,
        evict=request.evict,
        evict_at_ms=request.evict_at_ms,
    )
