"""Devices that fail: closed for new work, their jobs recovered from checkpoints, opened again once they stay well.

Theory. A node's word on its own devices is believed: it harms nobody but the node. A report names all devices at fault,
so that one that is lost, late or doubled changes nothing. A device at fault is closed, also where a user opened it; the
attempts that hold it are asked to leave as after the loss of a node: it is the machine's fault, and costs the job none
of its retries. A device that its node closed is opened by rule once no fault was reported for the time that
`device_open_after` names, and for twice as long with each time that it was closed lately. One that a user closed is
opened by a user alone.
"""

from collections.abc import Iterable

from penstock.core.lifecycle.ending import survivors_grace_ms
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.cluster import CHECKED_BY, DeviceClosure, Node, Settings
from penstock.core.model.events import AttemptStopRequested, DeviceCleared, DeviceClosed, DeviceOpened
from penstock.core.model.ids import JobId, NodeName, UserName
from penstock.core.model.jobs import Attempt
from penstock.core.model.nodes import DeviceFault
from penstock.core.model.quantities import format_duration
from penstock.core.state.state import State

OPEN_MOST_MS = 86_400_000
"""The longest time without a fault after which a device is opened."""
CLEAR_EVERY_MS = 60_000
"""A fault that comes and goes is noted as gone this long after it was last new, so that it does not fill the log."""
BY_HAND = "closed"
"""The code of a closure without a fault."""


def on_faults(tx: Transaction, name: NodeName, faults: Iterable[DeviceFault]) -> None:
    """Close devices newly at fault and recover the attempts on them; note those whose fault is gone."""
    first = {fault.index: fault for fault in reversed([*faults])}
    for index in sorted(first):
        closure = tx.state.nodes[name].closure_of(index)
        if closure is None or closure.clear_ms:
            fault = first[index]
            reason = fault.text or fault.code
            again = closure.closures if closure is not None else _closures(tx, name, index)
            tx.emit(DeviceClosed(name, index, fault.code, reason, CHECKED_BY, again))
            _recover(tx, name, index, f"device {index} of {name} failed: {reason}")
    settings = tx.state.config.settings
    least_ms = min(CLEAR_EVERY_MS, settings.device_open_after_ms or CLEAR_EVERY_MS)
    for closure in tx.state.nodes[name].devices_closed:
        if closure.index not in first and not closure.clear_ms and tx.now_ms - closure.seen_ms >= least_ms:
            tx.emit(DeviceCleared(name, closure.index))


def _closures(tx: Transaction, name: NodeName, index: int) -> int:
    """Return how often a device will have been closed lately, the closure to come included."""
    window_ms = tx.state.config.settings.node_strikes_window_ms
    past = (one for one in tx.state.nodes[name].devices_opened if one.index == index)
    return 1 + sum(one.closures for one in past if tx.now_ms - one.opened_ms <= window_ms)


def _recover(tx: Transaction, name: NodeName, index: int, why: str) -> None:
    """Ask the attempts on a device to save what they can and leave; the jobs start again elsewhere.

    An attempt that is stopping because a replica on the device failed just before is the device's victim, too.
    """
    holders = set(tx.state.indexes.load(name).devices.get(index, ()))
    broken = {job_id for job_id in tx.state.indexes.stopping if _broke_on(tx.state, job_id, name, index)}
    for job_id in sorted(holders | broken):
        job = tx.state.jobs[job_id]
        attempt = job.attempt
        if attempt is None or attempt.scheduler:
            continue  # where another scheduler put it, that decides what follows
        if attempt.stop is None or attempt.stop.reason in ("suspended", "replica_failed"):
            grace_ms = survivors_grace_ms(job, tx.now_ms)
            tx.emit(AttemptStopRequested(job_id, attempt.number, "device_failed", grace_ms, rule=why))


def _broke_on(state: State, job_id: JobId, name: NodeName, index: int) -> bool:
    attempt = state.jobs[job_id].attempt
    if attempt is None or attempt.stop is None or attempt.stop.reason != "replica_failed":
        return False
    return any(not one.holds and _is_on(attempt, rank, name, index) for rank, one in enumerate(attempt.replicas))


def _is_on(attempt: Attempt, rank: int, name: NodeName, index: int) -> bool:
    place = attempt.replicas[rank].place
    return place.node == name and index in place.devices


def on_failed_device(node: Node, attempt: Attempt, rank: int) -> bool:
    """Return whether a replica has a device that its node found at fault: then that is what its failure shows."""
    return any(_is_on(attempt, rank, node.spec.name, one.index) for one in node.devices_closed if one.code != BY_HAND)


# Opening.


def open_due_ms(closure: DeviceClosure, settings: Settings) -> int | None:
    """Return when a closed device is opened by rule (unix ms); None where it is not, or still has its fault."""
    if closure.by != CHECKED_BY or not closure.clear_ms or not settings.device_open_after_ms:
        return None
    return closure.clear_ms + quiet_ms(closure, settings)


def quiet_ms(closure: DeviceClosure, settings: Settings) -> int:
    """Return how long a device must stay without a fault before it is opened by rule."""
    return int(min(OPEN_MOST_MS, settings.device_open_after_ms * 2 ** min(closure.closures - 1, 24)))


def open_quiet(tx: Transaction) -> None:
    """Open the devices that have been without a fault for long enough, on nodes that say so."""
    settings = tx.state.config.settings
    for name in sorted(tx.state.indexes.with_closed):
        node = tx.state.nodes[name]
        for closure in node.devices_closed if node.state == "ready" else ():
            due_ms = open_due_ms(closure, settings)
            if due_ms is not None and due_ms <= tx.now_ms:
                why = f"no fault for {format_duration(tx.now_ms - closure.clear_ms)}"
                tx.emit(DeviceOpened(name, closure.index, CHECKED_BY, why))


# By hand.


def has_device(state: State, name: NodeName, index: int) -> bool:
    """Return whether there is such a node, with such a device."""
    node = state.nodes.get(name)
    return node is not None and 0 <= index < len(node.spec.devices)


def close_by_hand(tx: Transaction, name: NodeName, index: int, *, by: UserName, reason: str, evict: bool) -> None:
    """Close a device that there is for new work until a user opens it; with `evict` its work is asked to move."""
    closure = tx.state.nodes[name].closure_of(index)
    if closure is None or closure.by == CHECKED_BY:
        tx.emit(DeviceClosed(name, index, closure.code if closure else BY_HAND, reason, by))
    for job_id in sorted(set(tx.state.indexes.load(name).devices.get(index, ()))) if evict else ():
        job = tx.state.jobs[job_id]
        attempt = job.attempt
        if attempt is not None and (attempt.stop is None or attempt.stop.reason == "suspended"):
            tx.emit(AttemptStopRequested(job_id, attempt.number, "drained", job.spec.grace_ms))


def open_by_hand(tx: Transaction, name: NodeName, index: int, *, by: UserName, reason: str) -> str:
    """Open a device at once; return the fault that its node reports of it, which closes it again, or ''."""
    closure = tx.state.nodes[name].closure_of(index)
    if closure is None:
        return ""
    tx.emit(DeviceOpened(name, index, by, reason))
    return "" if closure.clear_ms else closure.reason
