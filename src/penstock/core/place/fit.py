"""Whether replicas fit on one node, which devices they take there, and why they do not: exact, one node at a time."""

from collections.abc import Iterable, Iterator
from itertools import combinations

import msgspec

from penstock.core.model.affinity import NODE
from penstock.core.model.ids import PoolName, TenantName
from penstock.core.model.jobs import GangAsk
from penstock.core.model.refused import REASON_TEXT as REASON_TEXT
from penstock.core.model.resources import (
    EXTENDED_SHORT,
    LINK_KINDS,
    WHOLE_DEVICE_MILLI,
    DeviceAsk,
    LinkKind,
    ReplicaAsk,
    Resources,
)
from penstock.core.model.selectors import LabelTerms, Toleration, accepted, not_tolerated
from penstock.core.place import mig
from penstock.core.place.capacity import NodeCapacity, NodeShape
from penstock.core.place.instances import instance_place, open_geometry

HOST_REASONS = {
    "cpu_milli": "cpu_short",
    "memory_bytes": "memory_short",
    "storage_bytes": "storage_short",
    "bandwidth_bps": "bandwidth_short",
}

_NOTHING = Resources()


def host_reason(field: str) -> str:
    """Return the reason code of a shortage of a host resource, or of an extended one by its name."""
    return HOST_REASONS.get(field) or f"{EXTENDED_SHORT}:{field}"


NOBODY = TenantName("")

Picked = tuple[tuple[int, ...], tuple[int, ...]]
"""Device indexes and, for a MIG profile, the slices at which its instances begin."""


class Need(msgspec.Struct, frozen=True):
    """The ask of one replica and its filters: everything by which a single node is judged."""

    each: ReplicaAsk
    pool: PoolName
    labels_wanted: tuple[tuple[str, str], ...] = ()
    labels_shunned: tuple[tuple[str, str], ...] = ()
    label_terms: LabelTerms = ()
    tolerations: tuple[Toleration, ...] = ()
    tenant: TenantName = TenantName("")
    """The job's tenant; matters on nodes that are reserved, or shut to some tenants."""
    stays: bool = False
    """It is not to be moved off a node that goes before it ends."""
    storage: str | None = None
    """The storage that the node must have: the job's checkpoint lies there; None: any."""

    def accepts_labels(self, shape: NodeShape) -> bool:
        """Return whether the labels of a node satisfy all that is said of them."""
        labels, each = shape.labels, self.each
        if any(label not in labels for label in self.labels_wanted) or any(
            label in labels for label in self.labels_shunned
        ):
            return False
        return all(accepted(terms, shape.label_map) for terms in (self.label_terms, each.label_terms) if terms)

    def tolerates(self, shape: NodeShape) -> bool:
        """Return whether no taint of a node keeps it off."""
        return not shape.taints or not not_tolerated(shape.taints, (*self.tolerations, *self.each.tolerations))


def needs_of(gang: GangAsk, tenant: TenantName = NOBODY, *, stays: bool = False) -> tuple[tuple[Need, int], ...]:
    """Return the need of each group of the gang, and its number of replicas."""
    labels = (gang.labels_wanted, gang.labels_shunned, gang.label_terms)
    where = (gang.pool, *labels, gang.tolerations, tenant, stays, gang.storage)
    return (
        (Need(gang.each, *where), gang.replicas),
        *((Need(group.each, *where), group.replicas) for group in gang.others),
    )


def shape_refusal(need: Need, shape: NodeShape) -> str:
    """Return why no node of this shape qualifies for `need`, or ''."""
    if shape.pool != need.pool:
        return "pool"
    if shape.virtualization != "any":
        ask = need.each.devices
        if ask is not None and not ask.given_by(shape.virtualization):
            return "virtualization"
    if not need.accepts_labels(shape):
        return "label"
    if not need.tolerates(shape):
        return "taint"
    return "checkpoint" if need.storage is not None and need.storage != shape.storage else ""


def closed_refusal(need: Need, free: NodeCapacity) -> str:
    """Return why the node does not qualify, regardless of its free capacity, or ''."""
    found = shape_refusal(need, free.shape) or free.closed
    if found:
        return found
    if free.kept_for and free.kept_for != need.tenant:
        return "reserved"
    if free.shut_to and need.tenant in free.shut_to:
        return "node_shut_to_tenant"
    if free.leaving and need.stays:
        return "node_leaving"
    return beside_refusal(need.each, free)


def beside_refusal(each: ReplicaAsk, free: NodeCapacity) -> str:
    """Return why a replica may not stand beside those on the node, or ''. Rules about wider domains come apart."""
    if each.affinity and free.selected:
        here = dict(free.selected)
        if any(one.kind == "anti_affinity" and not one.domain and one.selector in here for one in each.affinity):
            return "anti_affinity"
    if each.selected and free.repels and any(not d and s in each.selected for (d, s), _ in free.repels):
        return "anti_affinity"
    return ""


def repels_itself(each: ReplicaAsk) -> bool:
    """Return whether no two such replicas may stand on one node."""
    return any(domain == NODE and selector in each.selected for domain, selector in each.repels)


def capacity(need: Need, free: NodeCapacity, most: int) -> int:
    """Return how many replicas of `need` (0 to `most`) fit on the node now."""
    if closed_refusal(need, free):
        return 0
    if need.each.affinity and repels_itself(need.each):
        most = min(most, 1)
    within = need.each.host.times_within(free.host)
    if within is not None:
        most = min(most, within)
    wanted = need.each.devices
    if wanted is None or most == 0:
        return most
    return min(most, _device_capacity(wanted, free, most))


def eligible(ask: DeviceAsk, free: NodeCapacity) -> list[int]:
    """Return indexes of devices with room for one replica's part of them that pass every filter, ascending."""
    if ask.profile:
        return [i for i in _accepted(ask, free.shape) if _slot(ask, free, i) is not None]
    if not ask.whole:
        return [i for i in _accepted(ask, free.shape) if _times(ask, free, i)]
    return [i for i in _accepted(ask, free.shape) if free.devices[i] == WHOLE_DEVICE_MILLI]


def _accepted(ask: DeviceAsk, shape: NodeShape) -> list[int]:
    return [d.index for d in shape.devices if ask.accepts(d) is None]


def _times(ask: DeviceAsk, free: NodeCapacity, index: int) -> int:
    """Return how many fractions fit on one device."""
    device = free.shape.devices[index]
    memory = ask.memory_of(device)
    by_share = free.devices[index] // ask.share_milli
    if not memory:
        return max(0, by_share)
    left = free.memory_left(index, oversubscribe=ask.oversubscribe)
    return max(0, min(by_share, left // memory))


def _slot(ask: DeviceAsk, free: NodeCapacity, index: int) -> int | None:
    """Return where an instance of the profile would begin on a device, or None when it does not fit there."""
    geometry = open_geometry(free, index, ask.profile)
    return None if geometry is None else mig.best_start(geometry, free.instances(index), ask.profile)


def _device_capacity(ask: DeviceAsk, free: NodeCapacity, most: int) -> int:
    if ask.profile:
        count, left = 0, free
        each = ReplicaAsk(_NOTHING, ask)
        while count < most and (picked := pick_devices(ask, left)) is not None:
            left, count = left.take(each, *picked), count + 1
        return count
    chosen = eligible(ask, free)
    if not ask.whole:
        return sum(_times(ask, free, i) for i in chosen)
    if ask.link is None or ask.count == 1:
        return len(chosen) // ask.count
    if not free.shape.meshed(ask.link):
        return len(_packed(ask, free, ask.link, most))
    found = set(chosen)
    return sum(len(found.intersection(group)) // ask.count for group in free.shape.groups(ask.link))


def pick_devices(ask: DeviceAsk | None, free: NodeCapacity) -> Picked | None:
    """Return the devices of the node that one replica takes, or None when it does not fit.

    Whole devices: the best connected ones, ascending. The closest kind of link whose groups hold enough free
    devices wins; among its groups the one with the fewest free devices, so that bigger groups stay whole for bigger
    requests; equal ones fall to the lowest index. With several acceptable models the order of preference comes
    before closeness. A fraction goes where least is left after it, a MIG instance to the device that is cut up
    already, at the slice that leaves most other profiles possible; where the pool divides devices ahead of demand, to
    an idle instance first (`place.instances`).
    """
    if ask is None:
        return (), ()
    if ask.profile:
        places = (instance_place(free, i, ask.profile) for i in _accepted(ask, free.shape))
        best = min((one for one in places if one is not None), default=None)
        return None if best is None else ((best.device,), (best.start,))
    chosen = eligible(ask, free)
    if not ask.whole:
        found = min(chosen, key=lambda i: (_preference(ask, free.shape, i), *_part_rank(free, i)), default=None)
        return None if found is None else ((found,), ())
    if len(chosen) < ask.count:
        return None
    for preferred in _by_preference(ask, free.shape, chosen):
        devices = _connected(ask, preferred, free.shape)
        if devices is not None:
            return devices, ()
    return None


def _part_rank(free: NodeCapacity, index: int) -> tuple[bool, int, int]:
    """Order devices for a fraction: the fullest first, but whole ones that could be cut into MIG instances last."""
    whole = free.devices[index] == WHOLE_DEVICE_MILLI
    return (whole and free.shape.devices[index].mig, free.devices[index], index)


def devices_free(ask: DeviceAsk | None, free: NodeCapacity, picked: Picked) -> bool:
    """Return whether exactly these devices (and slices) are free for one replica now."""
    devices, slots = picked
    if ask is None or not set(devices) <= set(range(len(free.devices))):
        return ask is None and not devices
    if ask.profile:
        return len(slots) == len(devices) and all(
            _legal(ask, free, index, slot) for index, slot in zip(devices, slots, strict=True)
        )
    if not ask.whole:
        return all(_times(ask, free, index) for index in devices)
    return all(free.devices[index] == WHOLE_DEVICE_MILLI for index in devices)


def place_free(each: ReplicaAsk, free: NodeCapacity, picked: Picked) -> bool:
    """Return whether one replica could have exactly these devices (and slices), and its host share, now."""
    if (each.affinity or each.selected) and beside_refusal(each, free):
        return False
    return not each.host.shortage(free.host) and devices_free(each.devices, free, picked)


def _legal(ask: DeviceAsk, free: NodeCapacity, index: int, slot: int) -> bool:
    device = free.shape.devices[index]
    if not device.healthy or _slot(ask, free, index) is None:
        return False
    geometry = mig.geometry_of(device.model, device.memory_bytes)
    return geometry is not None and slot in mig.starts(geometry, free.instances(index), ask.profile)


def _preference(ask: DeviceAsk, shape: NodeShape, index: int) -> int:
    return ask.models.index(shape.devices[index].model) if ask.models else 0


def _by_preference(ask: DeviceAsk, shape: NodeShape, chosen: list[int]) -> Iterator[list[int]]:
    """Yield the devices of the first model, of the first two, and so on."""
    if len(ask.models) < 2:
        yield chosen
        return
    for worst in range(len(ask.models)):
        found = [i for i in chosen if _preference(ask, shape, i) <= worst]
        if len(found) >= ask.count:
            yield found


def _connected(ask: DeviceAsk, chosen: list[int], shape: NodeShape) -> tuple[int, ...] | None:
    reach: tuple[LinkKind, ...] = LINK_KINDS[: LINK_KINDS.index(ask.link) + 1] if ask.link else LINK_KINDS
    free = set(chosen)
    for kind in reach:
        fitting = [m for group in shape.groups(kind) if len(m := sorted(free.intersection(group))) >= ask.count]
        if shape.meshed(kind):
            if fitting:
                return tuple(min(fitting, key=lambda m: (len(m), m))[: ask.count])
            continue
        for members in sorted(fitting, key=lambda m: (len(m), m)):
            found = _clique(ask.count, members, shape.near(kind))
            if found is not None:
                return found
    return None


def _clique(count: int, members: list[int], near: tuple[frozenset[int], ...]) -> tuple[int, ...] | None:
    """Return the first `count` of `members` that all reach each other directly, or None."""
    if count == 0:
        return ()
    for position, index in enumerate(members):
        later = [i for i in members[position + 1 :] if i in near[index]]
        if len(later) >= count - 1:
            rest = _clique(count - 1, later, near)
            if rest is not None:
                return (index, *rest)
    return None


def _packed(ask: DeviceAsk, free: NodeCapacity, link: LinkKind, most: int) -> list[tuple[int, ...]]:
    """Return disjoint sets of free devices joined by `link`, up to `most` and as many as there are.

    Needed only where some devices of a group do not reach each other: there the choice for one replica decides how
    many more fit. Nodes have few devices, so every choice may be tried.
    """
    near = free.shape.near(link)
    best: list[tuple[int, ...]] = []
    tried: dict[frozenset[int], int] = {}

    def grow(left: frozenset[int], chosen: list[tuple[int, ...]]) -> None:
        nonlocal best
        if len(chosen) > len(best):
            best = chosen
        if len(best) >= most or len(chosen) + len(left) // ask.count <= len(best) or tried.get(left, -1) >= len(chosen):
            return
        tried[left] = len(chosen)
        first = min(left)
        rest = left - {first}
        for others in combinations(sorted(rest & near[first]), ask.count - 1):
            if all(b in near[a] for a, b in combinations(others, 2)):
                grow(rest.difference(others), [*chosen, (first, *others)])
        grow(rest, chosen)

    grow(frozenset(eligible(ask, free)), [])
    return best


def refusal(need: Need, free: NodeCapacity) -> str:
    """Return the reason code why not even one replica fits on the node, or '' when one does."""
    closed = closed_refusal(need, free)
    if closed:
        return closed
    ask = need.each.devices
    if ask is not None:
        refused = [ask.accepts(d) for d in free.shape.devices]
        if refused.count(None) < ask.count:
            named = sorted(r for r in refused if r is not None)
            return named[0] if named else "devices_too_few"
        if _device_capacity(ask, free, 1) == 0:
            return _short_of(ask, free)
    short = need.each.host.shortage(free.host)
    return host_reason(short) if short else ""


def _short_of(ask: DeviceAsk, free: NodeCapacity) -> str:
    if ask.profile:
        offered = any(_offers(ask, free.shape, i) for i in _accepted(ask, free.shape))
        return "profile_short" if offered else "profile"
    if not ask.whole:
        return "share_short"
    return "devices_short" if len(eligible(ask, free)) < ask.count else "device_links"


def _offers(ask: DeviceAsk, shape: NodeShape, index: int) -> bool:
    device = shape.devices[index]
    geometry = mig.geometry_of(device.model, device.memory_bytes) if device.mig else None
    return geometry is not None and geometry.profile(ask.profile) is not None


def put_on(need: Need, free: NodeCapacity, count: int) -> tuple[NodeCapacity, tuple[Picked, ...]] | None:
    """Return the node after `count` replicas were put on it one by one, and what each took, or None."""
    if closed_refusal(need, free):
        return None
    if count > 1 and need.each.affinity and repels_itself(need.each):
        return None
    taken: list[Picked] = []
    each, before = need.each, free
    for _ in range(count):
        picked = pick_devices(each.devices, free) if not each.host.shortage(free.host) else None
        if picked is None:
            return _put_packed(need, before, count)
        free = free.take(each, *picked)
        taken.append(picked)
    return free, tuple(taken)


def _put_packed(need: Need, free: NodeCapacity, count: int) -> tuple[NodeCapacity, tuple[Picked, ...]] | None:
    """Put replicas where the best devices for each would leave too few joined ones for the others."""
    ask = need.each.devices
    if ask is None or ask.link is None or 1 in (ask.count, count) or free.shape.meshed(ask.link):
        return None
    if (need.each.host * count).shortage(free.host):
        return None
    packed = _packed(ask, free, ask.link, count)
    if len(packed) < count:
        return None
    for devices in packed:
        free = free.take(need.each, devices)
    return free, tuple((devices, ()) for devices in packed)


def count_refusals(needs: Iterable[tuple[Need, int]], nodes: Iterable[NodeCapacity]) -> tuple[tuple[str, int], ...]:
    """Return (reason, nodes) pairs whose counts add up to the number of nodes, most frequent first.

    A node counts under its reason for the first group that it refuses; `gang_short` where it could take some
    replicas, but all of them together do not fit the cluster.
    """
    wanted = [need for need, _ in needs]
    seen: dict[NodeCapacity, str] = {}
    counts: dict[str, int] = {}
    for free in nodes:
        reason = seen.get(free)
        if reason is None:
            found = (refusal(need, free) for need in wanted)
            reason = seen[free] = next((r for r in found if r), "") or "gang_short"
        counts[reason] = counts.get(reason, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
