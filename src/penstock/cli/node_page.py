"""One node as a page for people."""

from collections import Counter
from collections.abc import Iterator, Sequence

from penstock.api import types as api
from penstock.api.nodes import ClosureView, DeviceUserView
from penstock.cli.output import Console, marked
from penstock.core.model.cluster import CHECKED_BY
from penstock.core.model.quantities import format_size, format_time, listed

USERS_SHOWN = 3
"""Programs of others that are named of one device."""
LINK_WORDS = {"nvlink": "NVLink", "pcie": "PCIe switch", "numa": "NUMA node"}


def print_node(node: api.NodeView) -> None:
    """Print a node with its place, labels, links, and who holds each device."""
    out = Console()
    out.print(marked("[bold]node {}[/] {}", node.name, state_text(node)))
    for label, value in _facts(node):
        if value:
            out.print(f"  {label:<8} {value}")
    if node.not_promised:
        out.print()
        out.print("cannot be promised here")
        for one in node.not_promised:
            out.print(f"  {one.name}: {one.text}")
    if not node.devices:
        return
    out.print()
    out.print("devices")
    for device in node.devices:
        out.print(f"  {device.index}  {device_text(device)}")


def state_text(node: api.NodeView) -> str:
    """Return whether the node takes work, and why not."""
    text = node.state if node.connected or node.state == "lost" else f"{node.state}, not connected"
    if node.draining:
        text += f", draining{': ' + node.drain_reason if node.drain_reason else ''}"
    return text + (f", shut to {listed(node.shut_to)}" if node.shut_to else "")


def _facts(node: api.NodeView) -> Iterator[tuple[str, str]]:
    yield "pool", node.pool
    yield "place", ", ".join(f"{kind} {name}" for kind, name in _place(node) if name)
    yield "where", node.at + (f" ({node.address})" if node.address not in ("", node.at) else "")
    yield "goes", f"{format_time(node.leaves_ms)}: by then its jobs have to have left" if node.leaves_ms else ""
    yield "labels", ", ".join(f"{name}={value}" for name, value in sorted(node.labels.items()))
    yield "engine", node.engine
    yield "kind", "virtual: it shares one machine with other nodes" if node.virtual else ""
    yield "CPUs", f"{node.cpu_held_milli / 1000:g} of {node.cpu_milli / 1000:g} held"
    yield "memory", f"{format_size(node.memory_held_bytes)} of {format_size(node.memory_bytes)} held"
    yield "points", node.host_points
    yield "jobs", ", ".join(map(str, node.jobs))
    yield "parts", _isolation(node)
    for kind, groups in node.links.items():
        yield "links", f"{LINK_WORDS.get(kind, kind)}: {'; '.join(', '.join(map(str, group)) for group in groups)}"


def promises_text(node: api.NodeView) -> str:
    """Return what cannot be promised on a node, in a few words."""
    return ", ".join(one.name for one in node.not_promised)


def _isolation(node: api.NodeView) -> str:
    """Return the levels of isolation that fractions of the devices reach, '' where none reaches one."""
    levels: dict[str, list[int]] = {}
    for device in node.devices:
        if device.isolation != "none":
            levels.setdefault(device.isolation, []).append(device.index)
    if len(levels) == 1 and sum(map(len, levels.values())) == len(node.devices):
        return f"fractions: {next(iter(levels))} isolation"
    return "; ".join(f"fractions of {', '.join(map(str, own))}: {level}" for level, own in sorted(levels.items()))


def _place(node: api.NodeView) -> tuple[tuple[str, str], ...]:
    return ("zone", node.zone), ("rack", node.rack), ("switch", node.switch)


def is_held(device: api.DeviceView) -> bool:
    """Return whether a job or another program has the device; jobs of other tenants have no number here."""
    return device.held or device.taken or device.job is not None


def device_text(device: api.DeviceView) -> str:
    """Return one device with its holder."""
    text = f"{device.vendor} {device.model}, {format_size(device.memory_bytes)}"
    text += ", simulated" if device.simulated else ""
    text += ", MIG mode on" if device.mig_mode else ", MIG" if device.mig else ""
    text += f" ({_instances(device)})" if device.instances else ""
    text += f", {format_size(device.promised_bytes)} promised" if device.promised_bytes else ""
    text += "" if device.healthy or device.closed is not None else ", failed"
    found = [closed_text(device.closed)] if device.closed is not None else []
    if device.job is not None or device.held:
        found.append(f"held by job {device.job}" if device.job is not None else "held by another tenant's job")
    if device.taken:
        found.append(f"taken: {users_text(device.users)}")
    return f"{text}: {'; '.join(found) or 'free'}"


def _instances(device: api.DeviceView) -> str:
    """Return its MIG instances by profile, such as `2 x 3g.20gb, 1 idle`."""
    names = Counter(one.profile for one in device.instances)
    idle = Counter(one.profile for one in device.instances if not one.held)
    parts = (f"{count} x {name}" + (f", {idle[name]} idle" if idle[name] else "") for name, count in names.items())
    return "; ".join(parts)


def closed_text(closed: ClosureView) -> str:
    """Return why a device is closed, and when it opens if that is known."""
    text = "closed" if closed.by == CHECKED_BY else f"closed by {closed.by}"
    text += f": {closed.reason}" if closed.reason else ""
    return text + (f"; opens {format_time(closed.opens_ms)} without a fault until then" if closed.opens_ms else "")


def users_text(users: Sequence[DeviceUserView]) -> str:
    """Return who uses a device beside jobs, such as `eve (python, 4711)`."""
    found = [f"{one.user or 'unknown user'} ({one.program or 'a program'}, {one.pid})" for one in users[:USERS_SHOWN]]
    found += ["..."] * (len(users) > USERS_SHOWN)
    return ", ".join(found) or "by programs that Penstock did not start"
