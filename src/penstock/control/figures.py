"""The newest figures of nodes: what devices report and replicas use. In memory: nothing is decided by them.

Per device also the means of the last hour's minutes, for curves. Bounded by the devices that nodes have.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from penstock.control.report_filter import can_have_used
from penstock.core.messages.reports import DeviceFigures, NodeFigures, ReplicaKey, ReplicaUse
from penstock.core.model.cluster import Node
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.measured import Measured
from penstock.core.state.state import State

MINUTE_MS = 60_000
MINUTES_KEPT = 60
STALE_MS = 60_000
"""Figures older than this say nothing about the present: the node's agent, or a driver, is silent."""
NUMBER_MAX = 2**53
TEXT_MAX_CHARS = 200
NOTES_MAX = 16
USES_MAX = 256
CURVES = ("use_milli", "memory_used_bytes", "power_mw", "temperature_c")
_NUMBERS = tuple(name for name in DeviceFigures.__struct_fields__ if name not in ("index", "throttled"))


class Minute(NamedTuple):
    """Means of one device over a minute that began at `from_ms` (unix); None where nothing was reported."""

    from_ms: int
    values: tuple[int | None, ...]
    """In the order of `CURVES`."""


class _Device:
    """The minutes of one device."""

    __slots__ = ("count", "from_ms", "minutes", "sums")

    def __init__(self) -> None:
        self.from_ms, self.sums, self.count = 0, [0] * len(CURVES), [0] * len(CURVES)
        self.minutes: deque[Minute] = deque(maxlen=MINUTES_KEPT)

    def add(self, figures: DeviceFigures, now_ms: int) -> None:
        begun_ms = now_ms - now_ms % MINUTE_MS
        if begun_ms != self.from_ms:
            if any(self.count):
                self.minutes.append(Minute(self.from_ms, self.means()))
            self.from_ms, self.sums, self.count = begun_ms, [0] * len(CURVES), [0] * len(CURVES)
        for at, name in enumerate(CURVES):
            value = getattr(figures, name)
            if value is not None:
                self.sums[at] += value
                self.count[at] += 1

    def means(self) -> tuple[int | None, ...]:
        return tuple(total // n if n else None for total, n in zip(self.sums, self.count, strict=True))


class NodeNow(NamedTuple):
    """What a node last reported, and when (unix ms)."""

    at_ms: int
    devices: Mapping[int, DeviceFigures]
    uses: Mapping[ReplicaKey, ReplicaUse]
    notes: Sequence[str]
    new_devices: int = 0
    """Devices of the machine that it does not offer."""


class FigureBook:
    """Any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._nodes: dict[NodeName, NodeNow] = {}
        self._minutes: dict[NodeName, dict[int, _Device]] = {}

    def take(self, node: NodeName, nodes: Mapping[NodeName, Node], figures: NodeFigures, now_ms: int) -> None:
        """Take what a node reports, as far as it can be true: the holder of a stolen key can report anything.

        Args:
            nodes: those that are known.
        """
        if (known := nodes.get(node)) is None:
            return
        if len(self._nodes) > len(nodes):
            self._keep(nodes)
        count = len(known.spec.devices)
        devices = {one.index: one for one in figures.devices[:count] if 0 <= one.index < count and _possible(one)}
        notes = [note[:TEXT_MAX_CHARS] for note in figures.notes[:NOTES_MAX]]
        with self._lock:
            uses = {use.key: use for use in figures.replicas[:USES_MAX]}
            self._nodes[node] = NodeNow(now_ms, devices, uses, notes, figures.new_devices)
            minutes = self._minutes.setdefault(node, {})
            for index in [index for index in minutes if index >= count]:
                del minutes[index]
            for index, one in devices.items():
                minutes.setdefault(index, _Device()).add(one, now_ms)

    def of(self, node: NodeName, now_ms: int) -> NodeNow | None:
        """Return a node's figures; None where it has reported none lately."""
        with self._lock:
            found = self._nodes.get(node)
        return found if found is not None and now_ms - found.at_ms <= STALE_MS else None

    def minutes(self, node: NodeName, index: int) -> list[Minute]:
        """Return the minutes of a device, oldest first; the last may not be over."""
        with self._lock:
            kept = self._minutes.get(node, {}).get(index)
            if kept is None:
                return []
            return [*kept.minutes, *([Minute(kept.from_ms, kept.means())] if any(kept.count) else [])]

    def uses_of(self, job_id: JobId, nodes: Sequence[NodeName], now_ms: int) -> list[ReplicaUse]:
        """Return what the replicas of a job on these nodes use, by rank."""
        found = [self.of(name, now_ms) for name in nodes]
        uses = [use for one in found if one is not None for use in one.uses.values() if use.key.job_id == job_id]
        return sorted(uses, key=lambda use: use.key)

    def measured(self, state: State, key: ReplicaKey, node: NodeName, now_ms: int) -> Measured | None:
        """Return what a replica has used, as the node reported that it is on; None where that cannot be true."""
        now = self.of(node, now_ms)
        told = now.uses[key].measured if now is not None and key in now.uses else None
        return told if told is not None and can_have_used(state, node, key, told, now_ms) else None

    def _keep(self, nodes: Mapping[NodeName, Node]) -> None:
        """Drop what is kept of nodes that are there no more."""
        with self._lock:
            for name in [name for name in self._nodes if name not in nodes]:
                del self._nodes[name]
                self._minutes.pop(name, None)


def _possible(one: DeviceFigures) -> bool:
    numbers = [value for name in _NUMBERS if (value := getattr(one, name)) is not None]
    texts = one.throttled
    return (
        all(0 <= value <= NUMBER_MAX for value in numbers)
        and (one.use_milli is None or one.use_milli <= 1000)
        and len(texts) <= NOTES_MAX
        and all(len(text) <= TEXT_MAX_CHARS for text in texts)
    )
