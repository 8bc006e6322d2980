"""Which processors a replica runs on when it gets some for itself: whole cores, next to its devices.

Pure: values in, values out. A processor belongs to one replica or is shared by all that have none of their own.
Memory is not bound to NUMA nodes: the kernel takes pages from the node of the processor that first writes them, and
from another one when that is full; a binding would end the program instead.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

CPU_MILLI = 1000


class Processor(msgspec.Struct, frozen=True):
    """A processor as the kernel numbers them: one hardware thread."""

    number: int
    core: int
    """The least number among the threads of its core."""
    numa_node: int


class Topology(msgspec.Struct, frozen=True):
    """The processors that an agent may give out, ascending by number."""

    processors: tuple[Processor, ...]
    distances: Mapping[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """How far memory of each NUMA node is from those of a node, as its firmware says; 10 is the node itself."""

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(one.number for one in self.processors)


class CpuSets:
    """Gives processors to replicas by name, and takes them back."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._held: dict[str, frozenset[int]] = {}

    @property
    def shared(self) -> frozenset[int]:
        """Processors of all replicas without some of their own; all of them when none is left."""
        return self._free() or self._topology.numbers

    @property
    def names(self) -> frozenset[str]:
        """The replicas that have processors of their own."""
        return frozenset(self._held)

    def held(self, name: str) -> frozenset[int]:
        """Return the processors of a replica, none where it shares."""
        return self._held.get(name, frozenset())

    def take(self, name: str, cpu_milli: int, near: Iterable[int]) -> tuple[int, ...]:
        """Give a replica as many processors as it asks for, ascending; () where it shares those of all.

        Only whole numbers of processors are given. Those of the NUMA nodes of its devices come first, from the node
        with the most of them on; then nodes near to these; within a node whole cores, then threads of cores of which
        others are taken.

        Args:
            cpu_milli: what it asked for, in thousandths.
            near: the NUMA node of each of its devices; nodes that the machine does not have count for nothing.
        """
        count, rest = divmod(cpu_milli, CPU_MILLI)
        free = self._free()
        if rest or not 0 < count <= len(free):
            return ()
        chosen: list[int] = []
        for node in self._nearest_first(Counter(near), free, count):
            chosen += self._of_node(node, free, count - len(chosen))
        self._held[name] = frozenset(chosen)
        return tuple(sorted(chosen))

    def keep(self, name: str, numbers: Iterable[int]) -> None:
        """Know that a replica of a former worker has these."""
        if kept := frozenset(numbers):
            self._held[name] = kept

    def release(self, name: str) -> bool:
        """Take the processors of a replica back; return whether it had any."""
        return self._held.pop(name, None) is not None

    def _free(self) -> frozenset[int]:
        return self._topology.numbers.difference(*self._held.values())

    def _nearest_first(self, near: Counter[int], free: frozenset[int], count: int) -> list[int]:
        """Return the NUMA nodes in the order in which they are used: of equal ones, the fullest that suffices."""
        left = Counter(one.numa_node for one in self._topology.processors if one.number in free)
        known = [node for node, _ in near.most_common() if node in self._nodes]

        def cost(node: int) -> tuple[int, int, int, int]:
            distances = self._topology.distances.get(node, ())
            away = min((distances[other] for other in known if other < len(distances)), default=0)
            suffices = left[node] >= count
            return -near[node], away, 0 if suffices else 1, left[node] if suffices else -left[node]

        return sorted(left, key=lambda node: (*cost(node), node))

    @property
    def _nodes(self) -> frozenset[int]:
        return frozenset(one.numa_node for one in self._topology.processors)

    def _of_node(self, node: int, free: frozenset[int], count: int) -> list[int]:
        """Return up to `count` free processors of a node: whole cores first, then threads of the fullest cores."""
        cores: dict[int, list[int]] = {}
        sizes: Counter[int] = Counter()
        for one in self._topology.processors:
            sizes[one.core] += 1
            if one.numa_node == node and one.number in free:
                cores.setdefault(one.core, []).append(one.number)
        chosen: list[int] = []
        for core in [core for core, threads in cores.items() if len(threads) == sizes[core]]:
            if len(cores[core]) <= count - len(chosen):
                chosen += cores.pop(core)
        for core in sorted(cores, key=lambda core: (len(cores[core]), core)):
            chosen += cores[core][: count - len(chosen)]
        return chosen
