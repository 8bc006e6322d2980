"""Devices of a node as the events of the log close and open them.

A closed device is not healthy in the node's specification, which all that places, counts and shows looks at. What the
node's own description says of it is kept beside the closure, and is true again once the device is opened.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from penstock.core.model.cluster import CHECKED_BY, DeviceClosure, DeviceOpening, Node
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.node_events import DeviceCleared, DeviceClosed, DeviceOpened
from penstock.core.model.resources import Device


def closed(node: Node, event: DeviceClosed, time_ms: int) -> Node:
    """Return the node with a device closed, or closed for something else; a user's closure stays a user's."""
    device, known = _device(node, event.index), node.closure_of(event.index)
    by_hand = event.by != CHECKED_BY
    if known is None:
        fresh = DeviceClosure(device.index, device.uuid, event.code, event.reason, event.by, time_ms, event.closures)
        clear_ms, seen_ms = (time_ms, 0) if by_hand else (0, time_ms)
        fresh = replace(fresh, clear_ms=clear_ms, seen_ms=seen_ms, said_healthy=device.healthy)
    elif by_hand:
        fresh = replace(known, reason=event.reason, by=event.by)
    else:
        fresh = replace(known, code=event.code, reason=event.reason, clear_ms=0, seen_ms=time_ms)
    opened = tuple(one for one in node.devices_opened if one.index != event.index)
    return _with(replace(node, devices_opened=opened), _placed(node.devices_closed, fresh))


def cleared(node: Node, event: DeviceCleared, time_ms: int) -> Node:
    """Return the node once it reports no fault of a closed device any more."""
    known = _closure(node, event.index)
    return replace(node, devices_closed=_placed(node.devices_closed, replace(known, clear_ms=time_ms)))


def opened(node: Node, event: DeviceOpened, time_ms: int) -> Node:
    """Return the node with a device open again; a user who opens it clears the count of its closures."""
    known = _closure(node, event.index)
    past = tuple(one for one in node.devices_opened if one.index != event.index)
    if event.by == CHECKED_BY:
        fresh = DeviceOpening(event.index, known.uuid, known.closures, time_ms)
        past = tuple(sorted((*past, fresh), key=lambda one: one.index))
    left = tuple(one for one in node.devices_closed if one.index != event.index)
    healthy = known.said_healthy
    devices = tuple(replace(one, healthy=healthy) if one.index == event.index else one for one in node.spec.devices)
    return replace(node, spec=replace(node.spec, devices=devices), devices_opened=past, devices_closed=left)


def carried_over(node: Node, former: Node) -> Node:
    """Return a node that has just registered, with the closures of the devices that it still has.

    A device is known by its uuid, wherever it is now; one without, by its index. A device that another has replaced
    takes its closure along. Faults are to be reported anew before a device can be opened by rule.
    """
    if not (former.devices_closed or former.devices_opened):
        return node
    devices, found = node.spec.devices, dict[int, DeviceClosure]()
    for one in former.devices_closed:
        index = _now_at(devices, one.index, one.uuid)
        if index is not None and index not in found:
            clear_ms = 0 if one.by == CHECKED_BY else one.clear_ms
            said = devices[index]
            found[index] = replace(one, index=index, uuid=said.uuid, clear_ms=clear_ms, said_healthy=said.healthy)
    past = dict[int, DeviceOpening]()
    for opening in former.devices_opened:
        index = _now_at(devices, opening.index, opening.uuid)
        if index is not None and index not in found:
            past.setdefault(index, replace(opening, index=index))
    node = replace(node, devices_opened=tuple(past[index] for index in sorted(past)))
    return _with(node, tuple(found[index] for index in sorted(found)))


def still_there(uuids: Mapping[int, str], devices: Sequence[Device]) -> dict[int, str]:
    """Return index and uuid of those of some devices (by index) that a node still has, where they are now."""
    found: dict[int, str] = {}
    for known, uuid in sorted(uuids.items()):
        index = _now_at(devices, known, uuid)
        if index is not None:
            found.setdefault(index, devices[index].uuid)
    return found


def _now_at(devices: Sequence[Device], index: int, uuid: str) -> int | None:
    """Return where a device is by now; None where it is not there any more."""
    if uuid:
        same = next((device.index for device in devices if device.uuid == uuid), None)
        if same is not None or index >= len(devices) or devices[index].uuid:
            return same
    return index if index < len(devices) else None


def _device(node: Node, index: int) -> Device:
    if not 0 <= index < len(node.spec.devices):
        raise BrokenInvariant(f"node {node.spec.name} has no device {index}")
    return node.spec.devices[index]


def _closure(node: Node, index: int) -> DeviceClosure:
    known = node.closure_of(index)
    if known is None:
        raise BrokenInvariant(f"device {index} of {node.spec.name} is not closed")
    return known


def _placed(closures: Iterable[DeviceClosure], fresh: DeviceClosure) -> tuple[DeviceClosure, ...]:
    """Return the closures with this one in the place of that of the same device."""
    others = (one for one in closures if one.index != fresh.index)
    return tuple(sorted((*others, fresh), key=lambda one: one.index))


def _with(node: Node, closures: tuple[DeviceClosure, ...]) -> Node:
    """Return the node with these closures, whose devices are not healthy."""
    shut = {one.index for one in closures}
    if any(node.spec.devices[index].healthy for index in shut):
        devices = tuple(replace(one, healthy=one.healthy and one.index not in shut) for one in node.spec.devices)
        node = replace(node, spec=replace(node.spec, devices=devices))
    return replace(node, devices_closed=closures)
