"""Capacity of each pool, and how much of it is allocated: derived from nodes and their free capacity, not stored."""

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from penstock.core.model.answers import DeviceCounts, DeviceState, PoolStats
from penstock.core.model.cluster import Node, Pool
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, DeviceAsk
from penstock.core.order.admission import reserved_milli
from penstock.core.order.expected_power import power_of
from penstock.core.place.capacity import NodeCapacity
from penstock.core.state.snapshot import Snapshot


def pool_stats(snapshot: Snapshot, now_ms: int) -> list[PoolStats]:
    """Return all pools, in the order in which they are declared; of lost nodes only the devices count."""
    config, nodes, free = snapshot.config, snapshot.nodes, snapshot.free
    kept = {n for window in config.reservations if window.start_ms <= now_ms < window.end_ms for n in window.nodes}
    by_pool: dict[PoolName, list[Node]] = {pool.name: [] for pool in config.pools}
    for node in nodes.values():
        by_pool.setdefault(node.spec.pool, []).append(node)
    found = (_stats(pool, by_pool[pool.name], free, kept) for pool in config.pools)
    return [_with_power(one, snapshot) if one.name in config.power_limits else one for one in found]


def _with_power(stats: PoolStats, snapshot: Snapshot) -> PoolStats:
    powers = snapshot.pool_powers.get(stats.name, {})
    parts = (dict(share.now.pools).get(stats.name) for share in snapshot.usage.values())
    power_mw = sum(power_of(part.models, powers) for part in parts if part is not None)
    return replace(stats, power_mw=power_mw, power_limit_mw=snapshot.config.power_limits[stats.name])


def _stats(pool: Pool, nodes: list[Node], free: Mapping[NodeName, NodeCapacity], kept: set[NodeName]) -> PoolStats:
    counts: Counter[str] = Counter()
    left: Counter[str] = Counter()
    allocated = open_milli = 0
    for node in nodes:
        spare = _spare(node, kept)
        for index, used in enumerate(_used(node, free[node.spec.name])):
            state: DeviceState = "failed" if used is None else "allocated" if used else spare
            counts[state] += 1
            allocated += used or 0
            left["failed" if used is None else spare] += WHOLE_DEVICE_MILLI - (used or 0)
            takes_work = spare in ("available", "reserved")
            open_milli += WHOLE_DEVICE_MILLI * (takes_work and node.spec.devices[index].healthy)
    reserve = min(left["available"], reserved_milli(pool, open_milli))
    total, out = WHOLE_DEVICE_MILLI * sum(counts.values()), left["maintenance"] + left["failed"]
    present = [node for node in nodes if node.state != "lost"]
    cpus, memory = (sum(getattr(n.spec.capacity, f) for n in present) for f in ("cpu_milli", "memory_bytes"))
    return PoolStats(
        name=pool.name,
        kind=pool.kind,
        virtualization=pool.virtualization,
        nodes=len(nodes),
        nodes_open=sum(not free[node.spec.name].closed for node in nodes),
        devices=DeviceCounts(**counts),
        total_milli=total,
        allocated_milli=allocated,
        reserved_milli=left["reserved"] + reserve,
        available_milli=left["available"] - reserve,
        out_milli=out,
        utilisation_milli=allocated * 1000 // (total - out) if total > out else 0,
        cpu_milli=cpus,
        cpu_held_milli=cpus - sum(free[n.spec.name].cpu_milli for n in present),
        memory_bytes=memory,
        memory_held_bytes=memory - sum(free[n.spec.name].memory_bytes for n in present),
    )


def _spare(node: Node, kept: set[NodeName]) -> DeviceState:
    """Return the state of a node's free devices."""
    if node.state == "lost":
        return "failed"
    if node.state == "joining" or node.draining:
        return "maintenance"
    return "reserved" if node.spec.name in kept else "available"


def _used(node: Node, free: NodeCapacity) -> list[int | None]:
    """Return how much of each device is held (thousandths); None for an unhealthy or lost device."""
    found: list[int | None] = []
    for device in node.spec.devices:
        cut = free.instances(device.index)
        if not device.healthy or node.state == "lost":
            found.append(None)
        elif cut:
            found.append(sum(DeviceAsk(1, profile=profile).milli for profile, _ in cut))
        else:
            found.append(WHOLE_DEVICE_MILLI - free.devices[device.index])
    return found
