"""Counts of recent requests: the fragmentation score expects the next ones to be like them."""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk
from penstock.core.place import fragmentation
from penstock.core.place.capacity import NodeShape

REMEMBERED = 4_096
"""Replicas remembered: when there are more, every count is halved, so that the past fades."""
CLASSES_MAX = 64
FRESH_EVERY = 512
"""Replicas after which `typical` is computed again; sooner while little is known."""

Typical = tuple[tuple[ReplicaAsk, int], ...]
"""Typical asks of replicas and their counts, the most frequent first."""


class Requests:
    """Counts the asks of replicas. `typical` is a snapshot of the counts that stays the same for a while."""

    def __init__(self, counts: Iterable[tuple[ReplicaAsk, int]] = (), typical: Typical = (), fresh: int = 0) -> None:
        self._counts: dict[ReplicaAsk, int] = dict(counts)
        self._total = sum(self._counts.values())
        self._fresh = fresh
        self.typical = typical

    def seen(self, gang: GangAsk) -> None:
        """Count a request."""
        for each, count in ((gang.each, gang.replicas), *((g.each, g.replicas) for g in gang.others)):
            self._counts[each] = self._counts.get(each, 0) + count
            self._total += count
            self._fresh += count
        if self._total > REMEMBERED:
            self._counts = {each: count // 2 for each, count in self._counts.items() if count > 1}
            self._total = sum(self._counts.values())
        if self._fresh >= min(FRESH_EVERY, max(1, self._total // 2)):
            self._fresh = 0
            ranked = sorted(self._counts.items(), key=lambda item: (-item[1], _order(item[0])))
            self.typical = tuple(ranked[:CLASSES_MAX])

    def memory(self) -> "Memory":
        """Return the whole state, so that a snapshot can restore it."""
        counts = sorted(self._counts.items(), key=lambda item: _order(item[0]))
        return Memory(counts, self.typical, self._fresh)


class Memory(NamedTuple):
    counts: list[tuple[ReplicaAsk, int]]
    typical: Typical
    fresh: int


def mix_of(typical: Typical, kinds: list[NodeShape]) -> fragmentation.Mix | None:
    """Return the mix for these kinds of nodes, or None when no typical request asks for devices."""
    rows = []
    for each, count in typical:
        wanted = each.devices
        if wanted is not None and not wanted.profile:
            mask = tuple(any(wanted.accepts(d) is None for d in shape.devices) for shape in kinds)
            share = (wanted.count, wanted.share_milli)
            rows.append((each.host.cpu_milli, each.host.memory_bytes, *share, mask, count))
    return fragmentation.Mix.of(len(kinds), rows) if rows and kinds else None


def _order(each: ReplicaAsk) -> tuple[object, ...]:
    host, wanted = each.host, each.devices or DeviceAsk(0)
    sizes = (host.cpu_milli, host.memory_bytes, host.storage_bytes, host.bandwidth_bps, host.extended)
    filters = (wanted.vendor, wanted.models, wanted.memory_min_bytes, wanted.capability_min, wanted.link or "")
    return (*sizes, wanted.count, wanted.share_milli, wanted.share_memory_bytes, wanted.profile, *filters)
