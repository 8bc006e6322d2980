"""Capacity free now but kept for a job that starts later: which jobs may use it until then, and how much of it."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from penstock.core.model.ids import JobId
from penstock.core.model.jobs import GangAsk, ReplicaPlace
from penstock.core.model.resources import ReplicaAsk
from penstock.core.place import mig
from penstock.core.place.candidates import CandidateHeap
from penstock.core.place.capacity import Counted, Instances, NodeCapacity, SharedDevice
from penstock.core.place.fit import devices_free
from penstock.core.place.index import ClusterIndex, hosts_alike

FOREVER_MS = 1 << 62


class CapacityHold(NamedTuple):
    """From `start_ms` on a job holds part of a node; `then` is the capacity free beside it from that time on."""

    start_ms: int
    then: NodeCapacity
    job_id: JobId | None


class _Claim(NamedTuple):
    """A hold with the state beside it by its number in the cluster's table."""

    start_ms: int
    then: int
    job_id: JobId | None


class _Held(NamedTuple):
    """Free capacity of a node, kept or not (a state by its number), and the claims on it, in order."""

    real: int
    claims: tuple[_Claim, ...]


class Holds:
    """Nodes with kept capacity. The index shows only the capacity that any job may use, however long it runs.

    A job that ends before a claim starts is not bound by it: `lift` makes the index show what such a job may use.
    Nodes that are held alike are one kind: what holds for one holds for all of them.
    """

    def __init__(self, cluster: ClusterIndex) -> None:
        self._cluster = cluster
        self._kind_of: dict[int, int] = {}
        """The kind of each held node."""
        self._kinds: list[_Held] = []
        self._numbers: dict[_Held, int] = {}
        self._nodes_of: dict[int, list[int]] | None = None
        """Nodes by kind, while that is known."""
        self._starts: list[int] = []
        """When claims begin, ascending; claims that were made together count once."""
        self._views: dict[tuple[int, int], int] = {}
        """State of a kind as shown to jobs of a horizon; cleared when another claim begins."""
        self._more: dict[tuple[int, int], dict[int, int]] = {}
        """How many more nodes are in each state beyond a horizon, by version of the cluster and horizon."""
        self._blocker: tuple[int, JobId | None] = (0, None)
        """The first job that keeps capacity, as of a revision."""
        self.revision = 0
        """Grows whenever a claim, or the free capacity of a node with a claim, changes."""

    def __bool__(self) -> bool:
        return bool(self._kind_of)

    def claim(self, node: int, claim: CapacityHold) -> None:
        """Keep part of a node."""
        self.claim_all({self._cluster.table.id_of(claim.then): [node]}, claim.start_ms, claim.job_id)

    def claim_all(self, beside: Mapping[int, Sequence[int]], start_ms: int, job_id: JobId | None) -> None:
        """Keep parts of nodes.

        Args:
            beside: nodes, each once, by the state of which the capacity is free from `start_ms` on (its number).
        """
        insort(self._starts, start_ms)
        self._views.clear()
        self._changed()
        for then, nodes in beside.items():
            claim = _Claim(start_ms, then, job_id)
            for kind, alike in self._of_kinds(nodes):
                if kind is not None:
                    known = self._kinds[kind]
                    self._become(alike, _Held(known.real, (*known.claims, claim)))
                    continue
                for real, free in self._cluster.by_state(alike).items():
                    self._become(free, _Held(real, (claim,)))

    def _of_kinds(self, nodes: Sequence[int]) -> Iterable[tuple[int | None, Sequence[int]]]:
        """Return the nodes by kind, those that are not held under None."""
        if not self._kind_of:
            return ((None, nodes),)
        found: dict[int | None, list[int]] = {}
        for node in nodes:
            found.setdefault(self._kind_of.get(node), []).append(node)
        return found.items()

    def _changed(self) -> None:
        self.revision += 1
        self._nodes_of = None
        self._more.clear()

    def _become(self, nodes: Sequence[int], held: _Held) -> None:
        """Have these nodes held like this, and show what any job may use of them."""
        kind = self._numbers.get(held)
        if kind is None:
            kind = self._numbers[held] = len(self._kinds)
            self._kinds.append(held)
        self._kind_of.update(dict.fromkeys(nodes, kind))
        self._cluster.set_states(nodes, self._shown(kind, FOREVER_MS))

    def _by_kind(self) -> dict[int, list[int]]:
        if self._nodes_of is None:
            self._nodes_of = {}
            for node, kind in self._kind_of.items():
                self._nodes_of.setdefault(kind, []).append(node)
        return self._nodes_of

    def horizon(self, end_ms: int) -> int:
        """Return how many claims bind a job that ends by `end_ms`: jobs with the same number see the same capacity."""
        return bisect_left(self._starts, end_ms)

    def _shown(self, kind: int, end_ms: int) -> int:
        """Return the state that a job which ends by `end_ms` may use of nodes of this kind."""
        seen = (kind, self.horizon(end_ms))
        found = self._views.get(seen)
        if found is None:
            found, claims = self._kinds[kind]
            for claim in claims:
                if claim.start_ms < end_ms:
                    found = self._lesser_of(found, claim.then)
            self._views[seen] = found
        return found

    def _lesser_of(self, one: int, other: int) -> int:
        table = self._cluster.table
        return table.id_of(lesser(table.frees[one], table.frees[other]))

    def real(self, node: int) -> NodeCapacity:
        """Return the free capacity of a node, kept or not."""
        kind = self._kind_of.get(node)
        return self._cluster.free_of(node) if kind is None else self._cluster.table.frees[self._kinds[kind].real]

    def kept(self) -> Iterable[tuple[int, int]]:
        """Return what is free, kept or not, where some is kept: states by their numbers, and how many such nodes."""
        return [(self._kinds[kind].real, len(nodes)) for kind, nodes in self._by_kind().items()]

    def may_help(self, end_ms: int) -> bool:
        """Return whether a job that ends by `end_ms` may use more than the index shows."""
        return bool(self._starts) and self._starts[-1] >= end_ms

    def lift(self, end_ms: int) -> None:
        """Show what a job that ends by `end_ms` may use; `lower`, or a rollback to before, must follow."""
        for kind, nodes in self._by_kind().items():
            self._cluster.set_states(nodes, self._shown(kind, end_ms))

    def _lifted(self, end_ms: int) -> Mapping[int, int]:
        """Return how many more nodes would be in each state (below 0: fewer) if `lift` showed them."""
        seen = (self._cluster.version, self.horizon(end_ms))
        more = self._more.get(seen)
        if more is None:
            more = self._more[seen] = {}
            for kind, nodes in self._by_kind().items():
                state = self._shown(kind, end_ms)
                more[state] = more.get(state, 0) + len(nodes)
                for old, count in Counter(map(self._cluster.state_of.__getitem__, nodes)).items():
                    more[old] = more.get(old, 0) - count
        return more

    def room(self, view: CandidateHeap, end_ms: int) -> int:
        """Return how many replicas of a need without devices fit if that were shown. Nothing changes."""
        return self._cluster.room_beside(view, self._lifted(end_ms))

    def lift_all_of(self, job_ids: Collection[JobId]) -> None:
        """Show the capacity free without the claims of these jobs; a rollback to before must follow."""
        for kind, nodes in self._by_kind().items():
            state, claims = self._kinds[kind]
            for claim in claims:
                if claim.job_id not in job_ids:
                    state = self._lesser_of(state, claim.then)
            self._cluster.set_states(nodes, state)

    def lower(self) -> None:
        """Show again what any job may use."""
        self.lift(FOREVER_MS)

    def taken(self, ask: GangAsk, places: Sequence[ReplicaPlace], end_ms: int) -> None:
        """Record a gang that was placed and ends by `end_ms`: claims that start before then have less beside them."""
        for kind, nodes, less in self._taken_alike(ask, places):
            real, claims = self._kinds[kind]
            left = tuple([c._replace(then=less(c.then)) if c.start_ms < end_ms else c for c in claims])
            self._changed()
            self._become(nodes, _Held(less(real), left))

    def booked(self, ask: GangAsk, places: Sequence[ReplicaPlace], start_ms: int, end_ms: int) -> None:
        """Record a gang that runs from `start_ms` until `end_ms`: claims that start in between have less beside them.

        Its own claim covers only its start, so theirs have to count it too.
        """
        for kind, nodes, less in self._taken_alike(ask, places, booked=True):
            real, claims = self._kinds[kind]
            met = [c.job_id is not None and start_ms <= c.start_ms < end_ms for c in claims]
            left = [c._replace(then=less(c.then)) if meets else c for c, meets in zip(claims, met, strict=True)]
            self._changed()
            self._become(nodes, _Held(real, tuple(left)))

    def _taken_alike(
        self, ask: GangAsk, places: Sequence[ReplicaPlace], *, booked: bool = False
    ) -> Iterator[tuple[int, list[int], Callable[[int], int]]]:
        """Yield held nodes of one kind on which a gang takes the same, and the state that this makes of a state.

        Replicas without devices go together; each other one comes by itself, after those before it were recorded.
        """
        table, index, many = self._cluster.table, self._cluster.index, hosts_alike(ask)
        groups: dict[tuple[int, int], list[int]] = {}
        held = (node for place in places[:many] if (node := index[place.node]) in self._kind_of)
        for node, count in Counter(held).items():
            groups.setdefault((self._kind_of[node], count), []).append(node)
        for (kind, count), nodes in groups.items():
            yield kind, nodes, partial(table.without_host, host=ask.each.host, times=count)
        for rank, place in enumerate(places[many:], many):
            node = index[place.node]
            if node in self._kind_of:
                less = partial(self._less, each=ask.each_of(rank), place=place, booked=booked)
                yield self._kind_of[node], [node], less

    def _less(self, state: int, each: ReplicaAsk, place: ReplicaPlace, *, booked: bool) -> int:
        table = self._cluster.table
        free = table.frees[state]
        return table.id_of(without(free, each, place) if booked else free.take(each, place.devices, place.slots))

    def blocker(self) -> JobId | None:
        """Return the job with the lowest number for which capacity is kept, or None."""
        if self._blocker[0] != self.revision:
            claims = (claim for kind in self._by_kind() for claim in self._kinds[kind].claims)
            first = min((claim.job_id for claim in claims if claim.job_id is not None), default=None)
            self._blocker = (self.revision, first)
        return self._blocker[1]


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
    parts = sorted({one.device for one in (*a.shared, *b.shared)} - cut)
    devices = tuple(0 if i in cut else min(x, y) for i, (x, y) in enumerate(zip(a.devices, b.devices, strict=True)))
    apart = "reserved" if a.kept_for and b.kept_for and a.kept_for != b.kept_for else ""
    return a._replace(
        closed=a.closed or b.closed or apart,
        leaving=a.leaving or b.leaving,
        kept_for=a.kept_for or b.kept_for,
        shut_to=a.shut_to if a.shut_to == b.shut_to else tuple(sorted({*a.shut_to, *b.shut_to})),
        cpu_milli=min(a.cpu_milli, b.cpu_milli),
        memory_bytes=min(a.memory_bytes, b.memory_bytes),
        storage_bytes=min(a.storage_bytes, b.storage_bytes),
        bandwidth_bps=min(a.bandwidth_bps, b.bandwidth_bps),
        devices=devices,
        shared=tuple(_shared_in_both(a.shared_device(i), b.shared_device(i)) for i in parts),
        mig=tuple((i, _cut_in_both(a, b, i)) for i in sorted(cut)),
        extended=tuple((name, min(left, b.host.of(name))) for name, left in a.extended),
        selected=_most(a.selected, b.selected),
        repels=_most(a.repels, b.repels),
    )


def _most(a: tuple[tuple[Counted, int], ...], b: tuple[tuple[Counted, int], ...]) -> tuple[tuple[Counted, int], ...]:
    """Return the larger of two counts by name."""
    if a == b:
        return a
    one, other = dict(a), dict(b)
    return tuple(sorted((name, max(one.get(name, 0), other.get(name, 0))) for name in one.keys() | other.keys()))


def _shared_in_both(one: SharedDevice, other: SharedDevice) -> SharedDevice:
    left = min(one.memory_left, other.memory_left)
    return SharedDevice(one.device, left, max(one.strict, other.strict))


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
