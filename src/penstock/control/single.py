"""Requests about one job or one node: refused where it is another version than the one that they were decided on.

And those that log what the server's services have seen.
"""

from typing import assert_never

from penstock.control import messages as msg
from penstock.core.lifecycle import quota_alerts, requests, versions
from penstock.core.lifecycle.device_health import close_by_hand, has_device, open_by_hand
from penstock.core.lifecycle.draining import drain, remove_over
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.requests import Refusal
from penstock.core.model.events import CapacityRequested, JobProtected, NodeLeaveNoted
from penstock.core.state.state import State


def refused(state: State, request: msg.Request) -> Refusal | None:
    """Return the refusal of a request whose job or node has changed since; None if it may be decided."""
    if not isinstance(request, msg.OF_ONE) or not request.versions:
        return None
    if isinstance(request, msg.Drain | msg.ChangeDevice):
        changed = versions.node_changed(state, request.node, request.versions)
    else:
        named = request.job_ids[:1] if isinstance(request, msg.ChangeJobs) else (request.job_id,)
        changed = next((versions.job_changed(state, job_id, request.versions) for job_id in named), None)
    return Refusal(changed.code, (changed,)) if changed is not None else None


def drained(tx: Transaction, request: msg.Drain | msg.NoteNodeLeaves | msg.RemoveNodes) -> bool:
    """Close a node, open it again, note when it goes, or that it is over; return whether there is such a node."""
    if isinstance(request, msg.NoteNodeLeaves):
        return _leave_noted(tx, request)
    if isinstance(request, msg.RemoveNodes):
        return bool(remove_over(tx, request.nodes, request.reason))
    return drain(
        tx,
        request.node,
        on=request.on,
        by=request.by,
        reason=request.reason,
        evict=request.evict,
        evict_at_ms=request.evict_at_ms,
    )


def _leave_noted(tx: Transaction, request: msg.NoteNodeLeaves) -> bool:
    known = tx.state.nodes.get(request.node)
    if known is None:
        return False
    if (known.leaves_ms, known.stays_ms) != (request.leaves_ms, request.stays_ms):
        tx.emit(NodeLeaveNoted(request.node, request.leaves_ms, request.stays_ms))
    return True


def device_changed(tx: Transaction, request: msg.ChangeDevice) -> msg.DeviceChanged | msg.Done:
    """Close or open a device of a node; the reply is `Done(False)` where there is none."""
    if not has_device(tx.state, request.node, request.index):
        return msg.Done(found=False)
    by, reason = request.by, request.reason
    if request.on:
        return msg.DeviceChanged(open_by_hand(tx, request.node, request.index, by=by, reason=reason))
    close_by_hand(tx, request.node, request.index, by=by, reason=reason, evict=request.evict)
    return msg.DeviceChanged()


def protected(tx: Transaction, request: msg.Protect) -> msg.Done:
    """Note why a job is protected from preemption, where that is new."""
    job = tx.state.jobs.get(request.job_id)
    if job is not None and job.protected != request.why:
        tx.emit(JobProtected(request.job_id, request.why))
    return msg.Done()


def noted(tx: Transaction, request: msg.NoteCapacity | msg.NoteQuotas | msg.NoteAccess | msg.NoteEstimates) -> msg.Done:
    """Log what a service of the server has seen or asked for."""
    match request:
        case msg.NoteCapacity():
            named = tuple(job_id for one in request.missing for job_id in one.job_ids[:1])
            waiting = sum(one.count for one in request.missing)
            tx.emit(CapacityRequested(named, waiting, request.accepted, request.answer))
        case msg.NoteQuotas():
            quota_alerts.note(tx, request.events)
        case msg.NoteAccess():
            for event in request.events:
                tx.emit(event)
        case msg.NoteEstimates():
            return msg.Done(requests.note_estimates(tx, request.made_ms, request.estimates))
        case _:
            assert_never(request)
    return msg.Done()
