"""The part of a node's own description that is believed: no more than known from elsewhere, and nothing absurd.

An agent reports its node's resources, and the holder of a stolen node key can report anything. The declared resources,
or those found when the agent was started, are the upper bound; a node may report less, for it knows what has failed.
"""

from collections.abc import Collection

from msgspec.structs import replace

from penstock.core.config.nodes import DEVICES_PER_NODE_MAX
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.containers import LABELS
from penstock.core.model.ids import Incarnation
from penstock.core.model.resources import ISOLATION_LEVELS, RESOURCE_FIELDS, Device, Resources

AMOUNT_MAX = 2**60
"""Of any one resource: an exbibyte, or a million times a million cores in thousandths."""
NUMBER_MAX = 2**16
"""Of versions, NUMA nodes and ports."""
TEXT_MAX_CHARS = 253
LABELS_MAX = 256
EXTENDED_MAX = 256
RUNTIME_LABELS_MAX = 16
_PLACED = ("pool", "labels", "zone", "rack", "switch", "address", "port_first", "port_count", "virtual",
           "taints")  # fmt: skip
"""Where a node belongs and how it is reached: not for the node to say where it is known."""


def absurd(said: NodeSpec, incarnation: Incarnation) -> str:
    """Return which bound the description exceeds, or ''."""
    texts = [said.name, said.pool, said.zone, said.rack, said.switch, said.address, incarnation]
    texts += [text for label in said.labels for text in label]
    texts += [text for taint in said.taints for text in (taint.key, taint.value)]
    texts += [text for device in said.devices for text in (device.vendor, device.model, device.uuid)]
    texts += [name for name, _ in said.capacity.extended]
    if max(map(len, texts)) > TEXT_MAX_CHARS:
        return f"a text has more than {TEXT_MAX_CHARS} characters"
    if len(said.labels) > LABELS_MAX:
        return f"it has {len(said.labels)} labels, {LABELS_MAX} are allowed"
    if len(said.taints) > LABELS_MAX:
        return f"it has {len(said.taints)} taints, {LABELS_MAX} are allowed"
    if len(said.devices) > DEVICES_PER_NODE_MAX:
        return f"it has {len(said.devices)} devices, {DEVICES_PER_NODE_MAX} are allowed"
    if len(said.capacity.extended) > EXTENDED_MAX:
        return f"it has {len(said.capacity.extended)} extended resources, {EXTENDED_MAX} are allowed"
    if [device.index for device in said.devices] != list(range(len(said.devices))):
        return "its devices are not numbered from 0"
    amounts = [getattr(said.capacity, field) for field in RESOURCE_FIELDS]
    amounts += [number for _, number in said.capacity.extended]
    amounts += [amount for device in said.devices for amount in (device.memory_bytes, device.power_limit_mw)]
    if not all(0 <= amount <= AMOUNT_MAX for amount in amounts):
        return f"an amount is not between 0 and {AMOUNT_MAX}"
    return _absurd_number(said)


def _absurd_number(said: NodeSpec) -> str:
    numbers = [said.port_first, said.port_count, said.port_first + said.port_count - 1]
    for device in said.devices:
        numbers += [*device.capability, device.numa_node]
        if len(device.links) > len(said.devices):
            return f"device {device.index} has more links than there are devices"
        if not all(0 <= link.peer < len(said.devices) for link in device.links):
            return f"a link of device {device.index} leads nowhere"
    return "" if all(0 <= number < NUMBER_MAX for number in numbers) else f"a number is not between 0 and {NUMBER_MAX}"


def believed(said: NodeSpec, known: NodeSpec) -> tuple[NodeSpec, tuple[str, ...]]:
    """Return the specification to register for a known node, and the fields in which it claimed more or another value.

    Args:
        said: the node's own description, without fault by `absurd`.
        known: the same node, as declared or as its agent was started.
    """
    known, said, tried = replace(known, labels=_declared(known)), replace(said, labels=_declared(said)), _tried(said)
    more = [field for field in _PLACED if getattr(said, field) != getattr(known, field)]
    amounts: dict[str, int] = {}
    for field in RESOURCE_FIELDS:
        has, most = getattr(said.capacity, field), getattr(known.capacity, field)
        amounts[field] = min(has, most)
        if has > most:
            more.append(field)
    extended = tuple((name, min(said.capacity.of(name), number)) for name, number in known.capacity.extended)
    if any(number > known.capacity.of(name) for name, number in said.capacity.extended):
        more.append("extended")
    devices = tuple(map(_device, said.devices, known.devices))
    if len(said.devices) > len(known.devices) or any(
        _beyond(*two) for two in zip(said.devices, known.devices, strict=False)
    ):
        more.append("devices")
    labels = tuple(sorted((*known.labels, *tried)))
    return replace(known, capacity=Resources(**amounts, extended=extended), devices=devices, labels=labels), tuple(more)


def _declared(spec: NodeSpec) -> tuple[tuple[str, str], ...]:
    return tuple(label for label in spec.labels if not label[0].startswith(LABELS))


def _tried(spec: NodeSpec) -> tuple[tuple[str, str], ...]:
    """Return the labels by which a node says which runtimes of containers work there: only it can know."""
    return tuple(label for label in spec.labels if label[0].startswith(LABELS))[:RUNTIME_LABELS_MAX]


def reshaped(known: NodeSpec, said: NodeSpec, held: Resources, held_devices: Collection[int]) -> NodeSpec:
    """Return the description of a node that runs replicas and now says something else of itself.

    What they hold stays there until they have ended: no amount falls below it, and a device that is missing is kept as
    one that has failed, those that are held last. Devices of another kind are believed once nothing is held.
    """
    extended = {name: max(number, held.of(name)) for name, number in said.capacity.extended}
    extended |= {name: number for name, number in held.extended if name not in extended}
    amounts = {field: max(getattr(said.capacity, field), getattr(held, field)) for field in RESOURCE_FIELDS}
    capacity = Resources(**amounts, extended=tuple(sorted((name, n) for name, n in extended.items() if n)))
    return replace(said, capacity=capacity, pool=known.pool, devices=_devices_kept(known, said, held_devices))


def _devices_kept(known: NodeSpec, said: NodeSpec, held: Collection[int]) -> tuple[Device, ...]:
    both = min(len(known.devices), len(said.devices))
    alike = all(_is_same(one, other) for one, other in zip(known.devices[:both], said.devices[:both], strict=True))
    if not alike:
        return known.devices
    if len(said.devices) >= len(known.devices):
        return said.devices
    missing = len(known.devices) - len(said.devices)
    free = [device.index for device in reversed(known.devices) if device.index not in held]
    gone = {*free[:missing], *sorted(held, reverse=True)[: max(0, missing - len(free))]}
    given = {device.index: device for device in said.devices}
    return tuple(
        replace(given.get(device.index, device), healthy=False)
        if device.index in gone
        else replace(given.get(device.index, device), healthy=True)
        for device in known.devices
    )


def _is_same(one: Device, other: Device) -> bool:
    return not _is_another(one, other) and one.memory_bytes == other.memory_bytes and one.mig == other.mig


def _device(said: Device, known: Device) -> Device:
    """Return the device as it is known; a replaced or failed device is unhealthy, so no job gets it."""
    memory_bytes = min(said.memory_bytes, known.memory_bytes)
    healthy = known.healthy and said.healthy and not _is_another(said, known)
    isolation = min(known.isolation, said.isolation, key=ISOLATION_LEVELS.index)
    mig = known.mig and said.mig
    mode = known.mig_mode or said.mig_mode
    return replace(known, memory_bytes=memory_bytes, healthy=healthy, mig=mig, mig_mode=mode, isolation=isolation)


def _is_another(said: Device, known: Device) -> bool:
    return (said.vendor, said.model, said.uuid) != (known.vendor, known.model, known.uuid)


def _beyond(said: Device, known: Device) -> bool:
    if _is_another(said, known) or said.memory_bytes > known.memory_bytes or (said.mig and not known.mig):
        return True
    return ISOLATION_LEVELS.index(said.isolation) > ISOLATION_LEVELS.index(known.isolation)
