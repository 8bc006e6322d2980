"""Placing a gang: all replicas or none, against tentative free capacity."""

from collections.abc import Iterable, Sequence

import msgspec

from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import GangAsk, ReplicaPlace
from penstock.core.place.fit import capacity, pick_devices, refusal, tightness
from penstock.core.place.free import FreeCluster, FreeNode


class NoFit(msgspec.Struct, frozen=True):
    """Why a gang does not fit: every node counted once, under the first filter that refused it.

    `gang_short` counts nodes that could take some replicas while all of them together cannot take the gang.
    """

    refused: tuple[tuple[str, int], ...]
    replicas_possible: int
    """How many replicas could be placed now, topology included."""


def place_gang(gang: GangAsk, cluster: FreeCluster) -> tuple[ReplicaPlace, ...] | NoFit:
    """Return a place for each replica (rank order), or why the gang does not fit. Nothing is taken yet.

    As few nodes as possible: the tightest node that holds all that is left, else the node that holds most of it.
    With a topology wish each domain is tried by itself, the one with least free capacity first.
    """
    if gang.replicas < 1:
        raise ValueError(f"a gang of {gang.replicas} replicas: validation should have caught it")
    room = {name: most for name, node in cluster.nodes.items() if (most := capacity(gang, node)) > 0}
    best = 0
    for domain in _domains(gang, cluster, room):
        counts, placed = _spread_over(gang, cluster, domain, room)
        if placed == gang.replicas:
            return _places(gang, cluster, counts)
        best = max(best, placed)
    return NoFit(count_refusals(gang, cluster.nodes.values()), best)


def count_refusals(gang: GangAsk, nodes: Iterable[FreeNode]) -> tuple[tuple[str, int], ...]:
    """Return (reason, nodes) pairs whose counts add up to the number of nodes, most frequent first."""
    counts: dict[str, int] = {}
    for node in nodes:
        reason = refusal(gang, node) or "gang_short"
        counts[reason] = counts.get(reason, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _domains(gang: GangAsk, cluster: FreeCluster, room: dict[NodeName, int]) -> list[list[NodeName]]:
    wish = gang.topology
    everything = list(room)
    if wish is None or wish.scope == "spread":
        return [everything]
    grouped: dict[str, list[NodeName]] = {}
    for name in everything:
        spec = cluster.nodes[name].spec
        key = {"node": str(name), "switch": spec.switch, "rack": spec.rack}[wish.scope]
        if key:
            grouped.setdefault(key, []).append(name)

    def free(names: Sequence[NodeName]) -> int:
        return sum(room[n] for n in names)

    domains = [names for _, names in sorted(grouped.items(), key=lambda item: (free(item[1]), item[0]))]
    return domains if wish.required else [*domains, everything]


def _spread_over(
    gang: GangAsk, cluster: FreeCluster, domain: list[NodeName], room: dict[NodeName, int]
) -> tuple[dict[NodeName, int], int]:
    """Return replicas per node over `domain`, and how many were placed in all."""
    left = {name: room[name] for name in domain}
    if gang.topology and gang.topology.scope == "spread" and len(left) >= gang.replicas:
        left = dict.fromkeys(left, 1)
    counts: dict[NodeName, int] = {}
    missing = gang.replicas
    while missing and left:
        enough = [name for name, most in left.items() if most >= missing]
        if enough:
            name = min(enough, key=lambda n: tightness(gang, cluster.nodes[n], missing))
            counts[name] = missing
            return counts, gang.replicas
        name = min(left, key=lambda n: (-left[n], tightness(gang, cluster.nodes[n], left[n])))
        counts[name] = left.pop(name)
        missing -= counts[name]
    return counts, gang.replicas - missing


def _places(gang: GangAsk, cluster: FreeCluster, counts: dict[NodeName, int]) -> tuple[ReplicaPlace, ...]:
    """Turn counts into places: neighbouring ranks share a node, devices are picked one replica at a time."""
    places: list[ReplicaPlace] = []
    for name, count in counts.items():
        node = cluster.nodes[name]
        for _ in range(count):
            devices = pick_devices(gang.each.devices, node) if gang.each.devices else ()
            node.take(gang.each, devices)
            places.append(ReplicaPlace(name, node.incarnation, devices))
    cluster.put_back(gang, places)
    return tuple(places)
