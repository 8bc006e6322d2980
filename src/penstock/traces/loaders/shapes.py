"""Shapes that the sources leave open: gangs of whole nodes, equal nodes, and names that Penstock accepts."""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.config.ask import REPLICAS_MAX
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.resources import Device, DeviceAsk, ReplicaAsk, Resources
from penstock.core.order.extension import NAME_CHARACTERS
from penstock.formats.devices import GIB, KnownDevice, known_of

NODES_MAX = 100_000
WIDTH_MAX = 64
"""Devices of one node."""
DEVICES_MAX = REPLICAS_MAX
"""Devices of one job, so that it has not too many replicas on nodes of any width."""
NAME_MAX = 63
PLAIN_CPU_MILLI = 64_000
"""CPUs of a node whose source has none: jobs of such a source ask for none either."""

NOTHING = Resources()
PLAIN_NODE = Resources(PLAIN_CPU_MILLI)
CLIPPED = "shapes asked for more CPUs or memory than the nodes here have: they ask for all of a node's"

_SIZES_GIB = {"V100": 32, "A100": 80, "a100": 80, "P100": 16, "p100": 16}
"""Memory in the clusters of the traces, of models that were sold in several sizes."""
_UNKNOWN_MODEL = KnownDevice("nvidia", 16)


def gang(devices: int, width: int, host: Resources = NOTHING, models: tuple[str, ...] = ()) -> GangAsk:
    """Return whole nodes of `width` devices and a remainder: the consolidated shape that published simulators use.

    `host` is what the whole job asks for; it is spread over its devices, rounded up. Without devices it is one replica.
    """
    if not devices:
        return GangAsk(1, ReplicaAsk(host))
    if devices <= width:
        return GangAsk(1, ReplicaAsk(host, DeviceAsk(devices, models=models)))
    whole, rest = divmod(devices, width)
    others = (GroupAsk(1, ReplicaAsk(_part(host, rest, devices), DeviceAsk(rest, models=models))),) if rest else ()
    return GangAsk(whole, ReplicaAsk(_part(host, width, devices), DeviceAsk(width, models=models)), others=others)


def clipped(host: Resources, devices: int, width: int, node: Resources) -> Resources:
    """Return `host` limited to the capacity of the nodes that a gang of `devices` takes."""
    if devices <= width:
        return Resources(min(host.cpu_milli, node.cpu_milli), min(host.memory_bytes, node.memory_bytes))
    return Resources(
        min(host.cpu_milli, node.cpu_milli * devices // width),
        min(host.memory_bytes, node.memory_bytes * devices // width),
    )


def processors(cpus: int, width: int) -> GangAsk:
    """Return whole nodes of `width` CPUs and a remainder, for jobs that ask for processors only."""
    if cpus <= width:
        return GangAsk(1, ReplicaAsk(Resources(1000 * cpus)))
    whole, rest = divmod(cpus, width)
    others = (GroupAsk(1, ReplicaAsk(Resources(1000 * rest))),) if rest else ()
    return GangAsk(whole, ReplicaAsk(Resources(1000 * width)), others=others)


def _part(host: Resources, share: int, of: int) -> Resources:
    if host == Resources():
        return host
    return Resources(-(-host.cpu_milli * share // of), -(-host.memory_bytes * share // of))


def equal_nodes(
    count: int,
    *,
    devices: int,
    model: str = "",
    capacity: Resources = PLAIN_NODE,
    prefix: str = "n",
    switch_nodes: int = 0,
) -> tuple[NodeSpec, ...]:
    """Return `count` nodes with `devices` devices each, named from `prefix` + 0000; they share one tuple of devices.

    With `switch_nodes`, each group of that many nodes has a switch of its own.
    """
    has = devices_of(model, devices)
    return tuple(
        NodeSpec(
            NodeName(f"{prefix}{number:04}"),
            capacity,
            has,
            switch=f"s{number // switch_nodes:03}" if switch_nodes else "",
        )
        for number in range(count)
    )


def devices_of(model: str, count: int, memory_bytes: int = 0) -> tuple[Device, ...]:
    """Return `count` devices; memory and capability are the model's where it is known, else 16 GiB and none."""
    known = known_of(model) or _UNKNOWN_MODEL
    size_bytes = memory_bytes or _SIZES_GIB.get(model, known.memory_gib) * GIB
    return tuple(
        Device(i, known.vendor, model or "GPU", size_bytes, known.capability, numa_node=i // 4) for i in range(count)
    )


class Width(NamedTuple):
    """What a job takes of each node where its source leaves its shape open: as much as the widest node has."""

    devices: int
    host: Resources

    @property
    def cpus(self) -> int:
        return max(1, self.host.cpu_milli // 1000)


def widest(nodes: Iterable[NodeSpec]) -> Width:
    """Return devices and host of the widest node; at least one device, so that a job of several can be divided."""
    devices, cpu_milli, memory_bytes = max(
        (len(spec.devices), spec.capacity.cpu_milli, spec.capacity.memory_bytes) for spec in nodes
    )
    return Width(max(1, devices), Resources(cpu_milli, memory_bytes))


class NodeNames:
    """Names of the nodes of a list, each given once."""

    def __init__(self) -> None:
        self._names, self._seen = PlainNames(""), {""}

    def of(self, word: str) -> NodeName | None:
        """Return the name for `word`; None when it is empty, or was there before."""
        if word in self._seen:
            return None
        self._seen.add(word)
        return NodeName(self._names.of(word))


class PlainNames:
    """Names of queues, tenants and nodes from a source's words; different words get different names."""

    def __init__(self, default: str, taken: Iterable[str] = ()) -> None:
        """Take the name for empty words, and names that are taken already."""
        self._of: dict[str, str] = {"": default, default: default}
        self._taken = {default, *taken}
        self._numbers: dict[str, int] = {}
        self.changed = 0
        """Number of words whose name differs from them."""

    def of(self, word: str) -> str:
        """Return the name for `word`, the same each time; the word itself where Penstock accepts it."""
        found = self._of.get(word)
        return found if found is not None else self._new(word)

    def _new(self, word: str) -> str:
        plain = "".join(letter if letter in NAME_CHARACTERS else "-" for letter in word[:NAME_MAX])
        name = plain
        while name in self._taken:
            number = self._numbers[plain] = self._numbers.get(plain, 1) + 1
            ending = f"-{number}"
            name = plain[: NAME_MAX - len(ending)] + ending
        self.changed += name != word
        self._taken.add(name)
        self._of[word] = name
        return name

    def __len__(self) -> int:
        return len(self._of)

    def used(self) -> list[str]:
        """Return the names given so far, with the default one, sorted."""
        return sorted(set(self._of.values()))
