"""Devices that no job gets at present, in words: closed ones, and those that others use."""

from collections.abc import Collection, Iterator

from penstock.core.model.answers import Alert
from penstock.core.model.cluster import CHECKED_BY, DeviceClosure, Node
from penstock.core.model.quantities import listed
from penstock.core.model.words import agree, counted
from penstock.core.state.state import State

REASONS_MAX = 3
"""Different reasons that a sentence gives."""
REASON_MAX_CHARS = 120


def closed_text(name: str, closures: Collection[DeviceClosure]) -> str:
    """Return such as `2 devices of n1 are closed: Xid 79: GPU has fallen off the bus`."""
    reasons = list(dict.fromkeys(one.reason[:REASON_MAX_CHARS] or one.code for one in closures))
    said = "; ".join(reasons[:REASONS_MAX]) + ("; ..." if len(reasons) > REASONS_MAX else "")
    number = len(closures)
    return f"{counted(number, 'device')} of {name} {agree('are closed', number)}: {said}"


def taken_text(name: str, number: int) -> str:
    """Return such as `1 device of n1 is used by programs that Penstock did not start`."""
    used = agree("are used by programs that Penstock did not start", number)
    return f"{counted(number, 'device')} of {name} {used}"


def closed_devices(state: State) -> Iterator[Alert]:
    """Yield an alert for each node with closed devices. Any thread."""
    for name in sorted(state.indexes.with_closed.copy()):
        node = state.nodes.get(name)
        if node is not None and node.devices_closed and node.state != "lost":
            noun = "device" if len(node.devices_closed) == 1 else "devices"
            indexes = listed([one.index for one in node.devices_closed])
            text = f"{closed_text(name, node.devices_closed)} ({noun} {indexes})"
            yield Alert("device_closed", (), 0, text, _resolve(node))


def _resolve(node: Node) -> str:
    first = next((one for one in node.devices_closed if one.by != CHECKED_BY), node.devices_closed[0])
    by_rule = "it is opened once it stays without a fault (`device_open_after`); or: " * (first.by == CHECKED_BY)
    return f"{by_rule}penstock devices open {node.spec.name} {first.index}"
