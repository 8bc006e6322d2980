"""Capacity free now but kept for a job that starts later: which jobs may use it until then, and how much of it."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from penstock.core.model.ids import JobId
from penstock.core.model.jobs import GangAsk, ReplicaPlace
from penstock.core.model.resources import ReplicaAsk
from penstock.core.place import mig
from penstock.core.place.capacity import Instances, NodeCapacity
from penstock.core.place.fit import devices_free
from penstock.core.place.index import ClusterIndex

FOREVER_MS = 1 << 62


class CapacityHold(NamedTuple):
    """From `start_ms` on a job holds part of a node; `then` is the capacity free beside it from that time on."""

    start_ms: int
    then: NodeCapacity
    job_id: JobId | None


class Holds:
    """Nodes with kept capacity. The index shows only the capacity that any job may use, however long it runs.

    A job that ends before a claim starts is not bound by it: `lift` makes the index show what such a job may use.
    """

    def __init__(self, cluster: ClusterIndex) -> None:
        self._cluster = cluster
        self._real: dict[int, NodeCapacity] = {}
        self._claims: dict[int, list[CapacityHold]] = {}
        self._starts: list[int] = []
        """When claims begin, ascending."""
        self._views: dict[tuple[int, int], NodeCapacity] = {}
        """Capacity of a node as shown to jobs of a horizon; cleared when a claim changes."""
        self.revision = 0
        """Grows whenever a claim, or the free capacity of a node with a claim, changes."""

    def __bool__(self) -> bool:
        return bool(self._claims)

    def claim(self, node: int, claim: CapacityHold) -> None:
        """Keep part of a node."""
        self._real.setdefault(node, self._cluster.free_of(node))
        self._claims.setdefault(node, []).append(claim)
        insort(self._starts, claim.start_ms)
        self._changed()
        self._show(node, FOREVER_MS)

    def _changed(self) -> None:
        self.revision += 1
        self._views.clear()

    def horizon(self, end_ms: int) -> int:
        """Return how many claims bind a job that ends by `end_ms`: jobs with the same number see the same capacity."""
        return bisect_left(self._starts, end_ms)

    def _show(self, node: int, end_ms: int) -> None:
        seen = (node, self.horizon(end_ms))
        free = self._views.get(seen)
        if free is None:
            free = self._real[node]
            for claim in self._claims[node]:
                if claim.start_ms < end_ms:
                    free = lesser(free, claim.then)
            self._views[seen] = free
        self._cluster.change(node, free)

    def real(self, node: int) -> NodeCapacity:
        """Return the free capacity of a node, kept or not."""
        return self._real.get(node) or self._cluster.free_of(node)

    def kept(self) -> Iterable[NodeCapacity]:
        """Return the free capacity, kept or not, of each node on which some is kept."""
        return self._real.values()

    def may_help(self, end_ms: int) -> bool:
        """Return whether a job that ends by `end_ms` may use more than the index shows."""
        return bool(self._starts) and self._starts[-1] >= end_ms

    def lift(self, end_ms: int) -> None:
        """Show what a job that ends by `end_ms` may use; `lower`, or a rollback to before, must follow."""
        for node in self._claims:
            self._show(node, end_ms)

    def lift_all_of(self, job_ids: Collection[JobId]) -> None:
        """Show the capacity free without the claims of these jobs; a rollback to before must follow."""
        for node, claims in self._claims.items():
            free = self._real[node]
            for claim in claims:
                if claim.job_id not in job_ids:
                    free = lesser(free, claim.then)
            self._cluster.change(node, free)

    def lower(self) -> None:
        """Show again what any job may use."""
        for node in self._claims:
            self._show(node, FOREVER_MS)

    def taken(self, ask: GangAsk, places: Sequence[ReplicaPlace], end_ms: int) -> None:
        """Record a gang that was placed and ends by `end_ms`: claims that start before then have less beside them."""
        for rank, place in enumerate(places):
            node = self._cluster.index[place.node]
            if node in self._claims:
                each = ask.each_of(rank)
                self._real[node] = self._real[node].take(each, place.devices, place.slots)
                self._claims[node] = [
                    c._replace(then=c.then.take(each, place.devices, place.slots)) if c.start_ms < end_ms else c
                    for c in self._claims[node]
                ]
                self._changed()
                self._show(node, FOREVER_MS)

    def booked(self, ask: GangAsk, places: Sequence[ReplicaPlace], start_ms: int, end_ms: int) -> None:
        """Record a gang that runs from `start_ms` until `end_ms`: claims that start in between have less beside them.

        Its own claim covers only its start, so theirs have to count it too.
        """
        for rank, place in enumerate(places):
            node = self._cluster.index[place.node]
            claims = self._claims.get(node, [])
            for i, claim in enumerate(claims):
                if claim.job_id is not None and start_ms <= claim.start_ms < end_ms:
                    claims[i] = claim._replace(then=without(claim.then, ask.each_of(rank), place))
            if claims:
                self._changed()
                self._show(node, FOREVER_MS)

    def blocker(self) -> JobId | None:
        """Return the job with the lowest number for which capacity is kept, or None."""
        jobs = [c.job_id for claims in self._claims.values() for c in claims if c.job_id is not None]
        return min(jobs, default=None)


def without(free: NodeCapacity, each: ReplicaAsk, place: ReplicaPlace) -> NodeCapacity:
    """Return the capacity left beside a booked replica.

    A node on which a part of a device would overlap capacity kept for others takes no work instead.
    """
    part = each.devices is not None and not each.devices.whole
    if part and (free.closed or not devices_free(each.devices, free, (place.devices, place.slots))):
        return free._replace(closed="kept_back")
    return free.take(each, place.devices, place.slots)


def lesser(a: NodeCapacity, b: NodeCapacity) -> NodeCapacity:
    """Return the capacity free in both: the lesser of each quantity, device by device.

    A device that is cut up differently in both counts as full: the cuts cannot be compared.
    """
    cut = {i for i, _ in (*a.mig, *b.mig)}
    parts = sorted({i for i, _ in (*a.shared, *b.shared)} - cut)
    devices = tuple(0 if i in cut else min(x, y) for i, (x, y) in enumerate(zip(a.devices, b.devices, strict=True)))
    apart = "reserved" if a.kept_for and b.kept_for and a.kept_for != b.kept_for else ""
    return a._replace(
        closed=a.closed or b.closed or apart,
        kept_for=a.kept_for or b.kept_for,
        shut_to=a.shut_to if a.shut_to == b.shut_to else tuple(sorted({*a.shut_to, *b.shut_to})),
        cpu_milli=min(a.cpu_milli, b.cpu_milli),
        memory_bytes=min(a.memory_bytes, b.memory_bytes),
        storage_bytes=min(a.storage_bytes, b.storage_bytes),
        bandwidth_bps=min(a.bandwidth_bps, b.bandwidth_bps),
        devices=devices,
        shared=tuple((i, min(a.memory_left(i), b.memory_left(i))) for i in parts),
        mig=tuple((i, _cut_in_both(a, b, i)) for i in sorted(cut)),
    )


def _cut_in_both(a: NodeCapacity, b: NodeCapacity, index: int) -> Instances:
    """Return the instances of a device if both have the same, else instances that fill it and are never put back."""
    one, other = a.instances(index), b.instances(index)
    if one == other:
        return one
    device = a.shape.devices[index]
    geometry = mig.geometry_of(device.model, device.memory_bytes)
    assert geometry is not None, "it is cut up"
    held = {name for name, _ in (*one, *other)}
    filled: Instances = ()
    for profile in sorted(geometry.profiles, key=lambda p: (p.name in held, -p.memory_slices, p.name)):
        while starts := mig.starts(geometry, filled, profile.name):
            filled = tuple(sorted((*filled, (profile.name, starts[0])), key=lambda i: (i[1], i[0])))
    return filled
