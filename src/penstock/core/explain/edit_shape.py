"""Edits of a job's shape: replicas, devices and their filters, host resources, topology, labels."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from penstock.core.explain.search import Edits, Search, request
from penstock.core.explain.shortage import amount
from penstock.core.model.jobs import JobSpec, Topology, TopologyScope
from penstock.core.model.quantities import exact_size, format_milli
from penstock.core.model.resources import ISOLATION_LEVELS, LINK_KINDS, RESOURCE_FIELDS, Device, ReplicaAsk
from penstock.core.place import mig

FIELDS = {"cpu_milli": "cpus", "memory_bytes": "memory", "storage_bytes": "storage", "bandwidth_bps": "bandwidth"}
SPREAD_MAX = 64
"""Most replicas on one node for which amounts are computed."""
_TOPOLOGY_WORDS = {"node": "same_node", "switch": "same_switch", "rack": "same_rack", "spread": "spread"}
_WIDER: dict[TopologyScope, tuple[TopologyScope, ...]] = {
    "node": ("switch", "rack"), "switch": ("rack",), "rack": (), "spread": ()
}  # fmt: skip


def replicas(search: Search) -> Edits:
    """Fewer replicas of one group."""
    for number, group in enumerate(search.groups()):
        found = search.largest(
            range(1, group.replicas),
            lambda count, number=number: search.with_group(number, replicas=count),  # type: ignore[misc]
        )
        if found is not None:
            most = f"..{search.gang.replicas_max}" if search.gang.elastic else ""
            old, new = (f"{count}{most}" if most else count for count in (group.replicas, found))
            path = _path(number, "replicas")
            yield request(path, old, new, f"{path}: {new} instead of {old}")


def _path(number: int, field: str) -> str:
    return f"groups[{number - 1}].{field}" if number else field


def device_count(search: Search) -> Edits:
    """Fewer devices for each replica of one group, a smaller share, or a smaller profile; instances of MIG mode."""
    ask = search.devices
    if ask is not None and ask.profile:
        yield from _profile(search)
    elif ask is not None and ask.whole and ask.count == 1:
        yield from _largest_instance(search)
    elif ask is not None and not ask.whole:
        yield from _share(search)
        yield from _memory_limit(search)
    for number, group in enumerate(search.groups()):
        wanted = group.each.devices
        if wanted is None or not wanted.whole:
            continue

        def fewer(count: int, number: int = number, each: ReplicaAsk = group.each) -> JobSpec:
            return search.with_group(number, each=replace(each, devices=replace(each.devices, count=count)))  # type: ignore[type-var]

        found = search.largest(range(1, wanted.count), fewer)
        if found is not None:
            path = _path(number, "devices.count")
            yield request(path, wanted.count, found, f"{path}: {found} a replica instead of {wanted.count}")


def _share(search: Search) -> Edits:
    ask = search.devices
    assert ask is not None
    found = search.largest(range(1, ask.share_milli), lambda milli: search.with_devices(share_milli=milli))
    if found is not None:
        old, new = format_milli(ask.share_milli), format_milli(found)
        yield request("devices.share", ask.share_milli / 1000, found / 1000, f"devices.share: {new} instead of {old}")


def _memory_limit(search: Search) -> Edits:
    ask = search.devices
    assert ask is not None
    if not ask.share_memory_bytes:
        return
    left: set[int] = set()
    cluster = search.scene.real()
    for node in search.scene.open_nodes:
        free = cluster.free_of(node)
        accepted = [d.index for d in free.shape.devices if ask.accepts(d) is None]
        left.update(free.memory_left(index, oversubscribe=ask.oversubscribe) for index in accepted)
    values = _parts(left, search.gang.replicas, ask.share_memory_bytes)
    found = search.largest(values, lambda size: search.with_devices(share_memory_bytes=size))
    if found is not None:
        old, new = exact_size(ask.share_memory_bytes), exact_size(found)
        yield request("devices.memory_limit", old, new, f"devices.memory_limit: {new} instead of {old}")


def _profile(search: Search) -> Edits:
    ask = search.devices
    assert ask is not None
    sizes: dict[str, tuple[int, int]] = {}
    for device in _devices(search):
        geometry = mig.geometry_of(device.model, device.memory_bytes) if device.mig else None
        for profile in geometry.profiles if geometry is not None else ():
            sizes[profile.name] = max(sizes.get(profile.name, (0, 0)), (profile.compute_slices, profile.memory_bytes))
    mine = sizes.get(ask.profile, (1 << 30, 0))
    for name in sorted((n for n in sizes if sizes[n] < mine), key=lambda n: (sizes[n], n), reverse=True):
        if search.starts(search.with_devices(profile=name)):
            yield request("devices.profile", ask.profile, name, f"devices.profile: {name} instead of {ask.profile}")
            return


def _largest_instance(search: Search) -> Edits:
    """The profile of all of a device, in place of a whole one, where MIG mode is on."""
    names: dict[str, None] = {}
    for device in _devices(search):
        geometry = mig.geometry_of(device.model, device.memory_bytes) if device.mig_mode and device.mig else None
        if geometry is not None:
            names.setdefault(max(geometry.profiles, key=lambda p: (p.memory_slices, -len(p.name))).name)
    for name in names:
        if search.starts(search.with_devices(profile=name)):
            yield request("devices.profile", None, name, f"devices.profile: {name} instead of a whole device")
            return


def _devices(search: Search) -> Iterator[Device]:
    """Yield one device of each kind that open nodes of the pool have."""
    scene = search.scene
    seen = set()
    for free in scene.snapshot.free.values():
        shape = free.shape
        if not free.closed and shape.pool == search.gang.pool and id(shape) not in seen:
            seen.add(id(shape))
            yield from shape.devices


def models(search: Search) -> Edits:
    """One more model, or any."""
    ask = search.devices
    if ask is None or not ask.models:
        return
    others = sorted({d.model for d in _devices(search)} - set(ask.models))
    if not others or not search.hopeful(search.with_devices(models=())):
        return
    for model in others:
        new = (*ask.models, model)
        if search.starts(search.with_devices(models=new)):
            yield request("devices.model", ask.models, new, f"devices.model: accept {model} too")
            return
    if search.starts(search.with_devices(models=())):
        yield request("devices.model", ask.models, None, "devices.model: accept any")


def device_filters(search: Search) -> Edits:
    """Less demanding devices: memory, capability, vendor, isolation, links."""
    ask = search.devices
    if ask is None:
        return
    sizes = sorted({d.memory_bytes for d in _devices(search) if d.memory_bytes < ask.memory_min_bytes})
    size = search.largest(sizes, lambda value: search.with_devices(memory_min_bytes=value))
    if size is not None:
        old, new = exact_size(ask.memory_min_bytes), exact_size(size)
        yield request("devices.memory", old, new, f"devices.memory: {new} instead of {old}")
    levels = sorted({d.capability for d in _devices(search) if d.capability < ask.capability_min})
    level = search.largest(range(len(levels)), lambda i: search.with_devices(capability_min=levels[i]))
    if level is not None:
        old, new = (f"{major}.{minor}" for major, minor in (ask.capability_min, levels[level]))
        yield request("devices.capability", old, new, f"devices.capability: {new} instead of {old}")
    if ask.vendor and search.starts(search.with_devices(vendor="")):
        yield request("devices.vendor", ask.vendor, None, "devices.vendor: accept any")
    for weaker in reversed(ISOLATION_LEVELS[: ISOLATION_LEVELS.index(ask.isolation)]):
        if search.starts(search.with_devices(isolation=weaker)):
            instead = None if weaker == "none" else weaker
            text = f"devices.isolation: {f'{instead} instead of {ask.isolation}' if instead else 'accept any'}"
            yield request("devices.isolation", ask.isolation, instead, text)
            break
    farther = LINK_KINDS[LINK_KINDS.index(ask.link) + 1 :] if ask.link is not None and ask.count > 1 else ()
    for kind in farther if farther and search.hopeful(search.with_devices(link=None)) else ():
        if search.starts(search.with_devices(link=kind)):
            yield request("devices.link", ask.link, kind, f"devices.link: {kind} instead of {ask.link}")
            return


def topology(search: Search) -> Edits:
    """A wider topology, else a preferred one."""
    wish = search.gang.topology
    if wish is None or not wish.required or not search.hopeful(search.with_gang(topology=None)):
        return
    for scope in _WIDER[wish.scope]:
        if search.starts(search.with_gang(topology=Topology(scope))):
            old, new = _TOPOLOGY_WORDS[wish.scope], _TOPOLOGY_WORDS[scope]
            yield request("topology", old, new, f"topology: {new} instead of {old}")
            return
    if search.starts(search.with_gang(topology=Topology(wish.scope, required=False))):
        text = f"topology: {_TOPOLOGY_WORDS[wish.scope]} preferred instead of required"
        yield request("topology.required", True, False, text)


def labels(search: Search) -> Edits:
    """One label less, else none."""
    gang = search.gang
    wanted, shunned = gang.labels_wanted, gang.labels_shunned
    if not (wanted or shunned) or not search.hopeful(search.with_gang(labels_wanted=(), labels_shunned=())):
        return
    for field, all_of in (("labels_wanted", wanted), ("labels_shunned", shunned)):
        for label in all_of:
            if search.starts(search.with_gang(**{field: tuple(one for one in all_of if one != label)})):
                kind = field.removeprefix("labels_")
                text = f"node_labels.{kind}: without {label[0]}={label[1]}"
                yield request(f"node_labels.{kind}.{label[0]}", label[1], None, text)
                return
    if search.starts(search.with_gang(labels_wanted=(), labels_shunned=())):
        old = ", ".join(f"{'' if one in wanted else 'not '}{one[0]}={one[1]}" for one in (*wanted, *shunned))
        yield request("node_labels", old, None, "node_labels: none")


def host(search: Search) -> Edits:
    """Less CPU, memory, storage or bandwidth for each replica: the largest amount that nodes and quota have left."""
    for field in RESOURCE_FIELDS:
        asked = getattr(search.gang.each.host, field)
        if not asked or not search.hopeful(_with_host(search, field, 1)):
            continue
        cluster = search.scene.real()
        left = {getattr(cluster.free_of(node), field) for node in search.scene.open_nodes}
        values = sorted({*_parts(left, search.gang.replicas, asked), *_within_quota(search, field, asked)})
        found = search.largest(values, lambda value, field=field: _with_host(search, field, value))  # type: ignore[misc]
        if found is not None:
            text = f"{FIELDS[field]}: {amount(field, found)} a replica instead of {amount(field, asked)}"
            yield request(FIELDS[field], _written(field, asked), _written(field, found), text)


def _written(field: str, value: int) -> float | str | int:
    return value / 1000 if field == "cpu_milli" else value if field == "bandwidth_bps" else exact_size(value)


def _with_host(search: Search, field: str, value: int) -> JobSpec:
    each = search.gang.each
    return search.with_gang(each=replace(each, host=replace(each.host, **{field: value})))


def _parts(left: Iterable[int], most: int, asked: int) -> list[int]:
    """Return each amount below `asked` that some number of replicas on one node could take each, ascending."""
    spread = range(1, min(most, SPREAD_MAX) + 1)
    return sorted({part for free in left for count in spread if 0 < (part := free // count) < asked})


def _within_quota(search: Search, field: str, asked: int) -> set[int]:
    """Return the amounts that the quotas leave for each replica, if this resource alone is over quota."""
    others = getattr(search.gang.host_total, field) - search.gang.replicas * asked
    left = (block.limit - block.used - others for block in search.scene.quota_blocks)
    return {part for amount in left if 0 < (part := amount // search.gang.replicas) < asked}
