"""Shortages of a job: each resource judged as if all others were plentiful, with its distance.

A resource binds when the gang finds no room although it asks for nothing else. So several can bind at once; when
none binds alone, it is their combination, or the topology.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from penstock.core.explain.scene import Scene
from penstock.core.model.explanation import Constraint
from penstock.core.model.ids import TenantName
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.quantities import exact_size, format_milli, listed
from penstock.core.model.refused import node_text
from penstock.core.model.resources import (
    EXTENDED_SHORT,
    RESOURCE_FIELDS,
    WHOLE_DEVICE_MILLI,
    DeviceAsk,
    ReplicaAsk,
    Resources,
)
from penstock.core.model.selectors import Toleration
from penstock.core.model.words import agree, counted
from penstock.core.place.capacity import NodeCapacity, without_mig_mode
from penstock.core.place.fit import HOST_REASONS, REASON_TEXT, Need, capacity, eligible, host_reason
from penstock.core.place.gang import replicas_possible
from penstock.core.place.isolation import isolation_offered
from penstock.core.status.devices import closed_text, taken_text

NODES_SAID_MAX = 3
"""Nodes whose closed devices a sentence names."""
WORDS = {"cpu_milli": "CPUs", "memory_bytes": "memory", "storage_bytes": "storage", "bandwidth_bps": "bandwidth"}
_FILTERS = ("node_lost", "node_joining", "node_draining", "node_shut_to_tenant", "reserved", "label", "taint",
            "checkpoint", "anti_affinity", "affinity", "spread", "vendor", "model", "device_memory", "capability",
            "mig_mode", "isolation")  # fmt: skip
_OF_DEVICES = ("devices_short", "share_short", "profile_short", "device_links")
_LIFTED: dict[str, tuple[str, object]] = {
    "vendor": ("vendor", ""),
    "model": ("models", ()),
    "device_memory": ("memory_min_bytes", 0),
    "capability": ("capability_min", (0, 0)),
    "isolation": ("isolation", "none"),
}


def amount(field: str, value: int) -> str:
    """Return an amount of a host resource as people write it."""
    if field == "cpu_milli":
        return format_milli(value)
    return f"{value / 1e9:g}Gbps" if field == "bandwidth_bps" else exact_size(value)


class Aspect(NamedTuple):
    """One resource of a group of the gang: how much a replica takes of it, and how much a node has free."""

    code: str
    each: ReplicaAsk
    """The replica as if it asked for nothing else."""
    wanted: int
    unit: str
    """Empty where amounts do not add up, only replicas."""
    word: str
    free: Callable[[NodeCapacity], int]
    write: Callable[[int], str]

    @property
    def kind(self) -> str:
        """The code of its constraints: without the name of an extended resource."""
        return self.code.partition(":")[0]


def shortages(scene: Scene) -> Iterator[Constraint]:
    """Yield the shortages, none when the gang finds room."""
    if scene.fits(scene.gang):
        return
    ruled_out = list(_ruled_out(scene))
    if not scene.open_nodes:
        yield from ruled_out or [_nowhere(scene)]
        return
    found = [c for count, aspect in _of_groups(scene.gang) if (c := _short(scene, count, aspect)) is not None]
    yield from found
    wish = scene.gang.topology
    if not found and wish is not None and wish.required and scene.fits(replace(scene.gang, topology=None)):
        yield _too_far_apart(scene, scene.gang, None)
    elif not found:
        yield _combination(scene)
    if any(one.code in _OF_DEVICES for one in found):
        yield from _kept_from_jobs(scene)
    yield from ruled_out


def _nowhere(scene: Scene) -> Constraint:
    pool, count = scene.gang.pool, scene.gang.replica_total
    return Constraint("nowhere", f"no node of pool {pool} is in question", count, "replicas", pool)


def _of_groups(gang: GangAsk) -> list[tuple[int, Aspect]]:
    """Return each resource that any group asks for, with the largest ask of a group and that group's replicas."""
    found: dict[str, tuple[int, Aspect]] = {}
    for group in _groups(gang):
        for aspect in aspects(group.each):
            known = found.get(aspect.code)
            if known is None or known[1].wanted < aspect.wanted:
                found[aspect.code] = (group.replicas, aspect)
    return list(found.values())


def _groups(gang: GangAsk) -> list[GangAsk | GroupAsk]:
    return [gang, *gang.others]


def aspects(each: ReplicaAsk) -> list[Aspect]:
    """Return the resources that a replica asks for, one at a time."""
    found = [] if each.devices is None else _of_devices(each.devices)
    for field in RESOURCE_FIELDS:
        wanted = getattr(each.host, field)
        if wanted:
            only = ReplicaAsk(Resources(**{field: wanted}))
            found.append(Aspect(HOST_REASONS[field], only, wanted, field, WORDS[field], _of(field), _writer(field)))
    for name, wanted in each.host.extended:
        only = ReplicaAsk(Resources(extended=((name, wanted),)))
        found.append(Aspect(host_reason(name), only, wanted, "units", name, _left_of(name), str))
    return found


def _of_devices(ask: DeviceAsk) -> list[Aspect]:
    alone = ReplicaAsk(Resources(), ask)
    if ask.profile:
        return [Aspect("profile_short", alone, 1, "", f"instances of {ask.profile}", _free_devices(ask), str)]
    if not ask.whole:
        largest = _largest_share(ask)
        limit = f" with {exact_size(ask.share_memory_bytes)} of its memory" if ask.share_memory_bytes else ""
        word = f"of a device{limit}"
        return [Aspect("share_short", alone, ask.share_milli, "device_milli", word, largest, format_milli)]
    near = replace(ask, link=None)
    free = _free_devices(near)
    wanted = 1000 * ask.count
    found = [
        Aspect("devices_short", ReplicaAsk(Resources(), near), wanted, "device_milli", "devices", free, format_milli)
    ]
    if ask.link is not None and ask.count > 1:
        word = f"sets of {ask.count} devices joined by {ask.link}"
        found.append(Aspect("device_links", alone, 1, "", word, free, str))
    return found


def _of(field: str) -> Callable[[NodeCapacity], int]:
    return lambda free: int(getattr(free, field))


def _left_of(name: str) -> Callable[[NodeCapacity], int]:
    return lambda free: free.host.of(name)


def _writer(field: str) -> Callable[[int], str]:
    return lambda value: amount(field, value)


def _free_devices(ask: DeviceAsk) -> Callable[[NodeCapacity], int]:
    return lambda free: 1000 * len(eligible(ask, free))


def _largest_share(ask: DeviceAsk) -> Callable[[NodeCapacity], int]:
    def largest(free: NodeCapacity) -> int:
        return max((free.devices[d.index] for d in free.shape.devices if ask.accepts(d) is None), default=0)

    return largest


def only(gang: GangAsk, code: str) -> GangAsk:
    """Return the gang as if its replicas asked for one resource alone."""
    nothing = ReplicaAsk(Resources())
    each, *rest = (next((a.each for a in aspects(g.each) if a.code == code), nothing) for g in _groups(gang))
    return replace(gang, each=each, others=tuple(map(_with_each, gang.others, rest)))


def _with_each(group: GroupAsk, each: ReplicaAsk) -> GroupAsk:
    return replace(group, each=each)


def _short(scene: Scene, count: int, aspect: Aspect) -> Constraint | None:
    """Return the shortage of one resource, or None when it alone does not bind."""
    gang = only(scene.gang, aspect.code)
    if scene.fits(gang):
        return None
    if aspect.code == "device_links" and not scene.fits(only(scene.gang, "devices_short")):
        return None
    wish = gang.topology
    if wish is not None and wish.required and scene.fits(replace(gang, topology=None)):
        return _too_far_apart(scene, gang, aspect)
    return _too_little(scene, count, aspect)


def _too_little(scene: Scene, count: int, aspect: Aspect) -> Constraint:
    """Return a shortage under any topology: on every node for one replica, or on all nodes for all replicas."""
    needs = f"needs {count} x {aspect.write(aspect.wanted)} {aspect.word}"
    nearest = ""
    if aspect.unit:
        free = _free_by_node(scene, aspect)
        best = {scope: _best(scene, free, scope) for scope in ("node", "switch", "rack")}
        found = [f"{scope} {name} has {aspect.write(amount)} free" for scope, (name, amount) in best.items() if name]
        nearest = f"; best {', '.join(found)}"
        name, most = best["node"]
        if most < aspect.wanted:
            text = f"{needs}{nearest}; short by {aspect.write(aspect.wanted - most)} on {name}"
            return Constraint(aspect.kind, text, aspect.wanted - most, aspect.unit, name)
    gang = replace(scene.gang, replicas=count, replicas_max=0, each=aspect.each, others=(), topology=None)
    possible = replicas_possible(gang, scene.real(), scene.tenant)
    missing = max(1, count - possible)
    text = f"{needs}{nearest}; {possible} of {count} replicas find room"
    return Constraint(aspect.kind, text, missing, "replicas", scene.gang.pool)


def _free_by_node(scene: Scene, aspect: Aspect) -> dict[int, int]:
    """Return how much of a resource each node in question has free, by number."""
    cluster = scene.real()
    known: dict[int, int] = {}
    found = {}
    for node in scene.open_nodes:
        state = cluster.state_of[node]
        if state not in known:
            known[state] = aspect.free(cluster.table.frees[state])
        found[node] = known[state]
    return found


def _best(scene: Scene, free: Mapping[int, int], scope: str) -> tuple[str, int]:
    """Return the node, switch or rack that has most of a resource free, and how much; or ('', 0)."""
    cluster = scene.real()
    if scope == "node":
        found = [(-amount, str(cluster.names[node])) for node, amount in free.items()]
    else:
        domains = cluster.domains(scope).items()
        found = [
            (-sum(free[n] for n in nodes if n in free), name)
            for name, nodes in domains
            if not free.keys().isdisjoint(nodes)
        ]
    least, name = min(found, default=(0, ""))
    return name, -least


def _too_far_apart(scene: Scene, gang: GangAsk, aspect: Aspect | None) -> Constraint:
    """Return how far the best node, switch or rack is from the required topology; without it there is room."""
    wish = gang.topology
    assert wish is not None
    total = gang.replica_total
    name, possible = _best_place(scene, gang, wish.scope)
    code = aspect.kind if aspect is not None else "topology"
    missing = max(1, total - possible)
    needs = f"needs {total} x {aspect.write(aspect.wanted)} {aspect.word}" if aspect else f"needs {total} replicas"
    if wish.scope == "spread":
        text = (
            f"{needs} on as many nodes; {counted(possible, 'node')} {agree('have room', possible)}: short by {missing}"
        )
        return Constraint(code, text, missing, "nodes", scene.gang.pool)
    if not name:
        return Constraint(
            code, f"{needs} on one {wish.scope}; no node in question has one", total, "replicas", scene.gang.pool
        )
    text = f"{needs} on one {wish.scope}; best {wish.scope} {name} has "
    if aspect is not None and aspect.unit and not gang.others:
        free = _best(scene, _free_by_node(scene, aspect), wish.scope)[1]
        text += f"{aspect.write(free)} of {aspect.write(total * aspect.wanted)} free, "
    text += f"room for {possible} of {total} replicas"
    return Constraint(code, text, missing, "replicas", name)


def _best_place(scene: Scene, gang: GangAsk, scope: str) -> tuple[str, int]:
    """Return the node, switch or rack with room for most replicas of the first group; for `spread` how many nodes."""
    cluster, most = scene.real(), gang.replicas
    need = replace(scene.needs[0][0], each=gang.each)
    held = {node: capacity(need, cluster.free_of(node), most) for node in scene.open_nodes}
    if scope == "spread":
        return "", sum(bool(count) for count in held.values())
    places = {str(cluster.names[n]): [n] for n in held} if scope == "node" else cluster.domains(scope)
    found = [(-min(most, sum(held.get(n, 0) for n in nodes)), name) for name, nodes in places.items()]
    least, name = min(found, default=(0, ""))
    return name, -least


def _combination(scene: Scene) -> Constraint:
    """Return the shortage of a combination, free one by one but not together, and of the nearest node."""
    cluster, (need, count) = scene.real(), scene.needs[0]
    possible = scene.replicas_possible
    text = f"each resource is free, but together there is room for {possible} of {counted(count, 'replica')}"
    if scene.gang.others:
        text += f" beside {scene.gang.replica_total - count} of other groups"
    short = [n for n in scene.open_nodes if scene.refusals[n]]
    best = min(short, key=lambda n: (-_worth(need, cluster.free_of(n)), n), default=None)
    if best is not None:
        lack = _lack(need, cluster.free_of(best), scene.refusals[best])
        text += f"; {cluster.names[best]}, the nearest of the others, has {lack}"
    missing = max(1, scene.gang.replicas - possible)
    return Constraint("combination", text, missing, "replicas", scene.gang.pool)


def _worth(need: Need, free: NodeCapacity) -> int:
    """Return how near a refusing node is: by its eligible devices, or its CPU where none are asked for."""
    ask = need.each.devices
    return len(eligible(ask, free)) if ask is not None else free.cpu_milli


def _lack(need: Need, free: NodeCapacity, reason: str) -> str:
    field = next((f for f, code in HOST_REASONS.items() if code == reason), "")
    if field:
        has, wants = getattr(free, field), getattr(need.each.host, field)
        return f"{amount(field, has)} of {amount(field, wants)} {WORDS[field]} free"
    kind, _, name = reason.partition(":")
    if kind == EXTENDED_SHORT:
        return f"{free.host.of(name)} of {need.each.host.of(name)} {name} free"
    return REASON_TEXT.get(reason, reason).removeprefix("have ")


def _ruled_out(scene: Scene) -> Iterator[Constraint]:
    """Yield the filters and node states that rule out nodes with room."""
    cluster, (need, most) = scene.real(), scene.needs[0]
    rooms: dict[int, int] = {}
    found: dict[str, list[tuple[str, int]]] = {}
    for node, reason in enumerate(scene.refusals):
        if reason not in _FILTERS:
            continue
        state = cluster.state_of[node]
        if state not in rooms:
            free = cluster.table.frees[state]._replace(closed="", kept_for=TenantName(""), shut_to=())
            free = without_mig_mode(free) if reason == "mig_mode" else free
            rooms[state] = capacity(lifted(need, reason), free, most)
        if rooms[state]:
            found.setdefault(reason, []).append((str(cluster.names[node]), rooms[state]))
    for reason in _FILTERS:
        if reason in found:
            names, room = [n for n, _ in found[reason]], sum(c for _, c in found[reason])
            text = (
                f"{node_text(reason, len(names))} and {agree('have ', len(names))}room for {counted(room, 'replica')}: "
            )
            text += listed(names)
            if reason == "isolation":
                shapes = (cluster.free_of(n).shape for n, code in enumerate(scene.refusals) if code == reason)
                text += f"; {isolation_offered(scene.gang, shapes)}"
            if reason == "checkpoint":
                text += f"; {_where_it_lies(scene)}"
            yield Constraint(reason, text, len(names), "nodes", names[0])


def _where_it_lies(scene: Scene) -> str:
    """Return which nodes reach the checkpoint of a job, and how they stand."""
    there = [node for node in scene.snapshot.nodes.values() if node.spec.storage == scene.gang.storage]
    shown = [f"{node.spec.name} ({node.state})" for node in there[:NODES_SAID_MAX]]
    shown += [f"{len(there) - NODES_SAID_MAX} more"] * (len(there) > NODES_SAID_MAX)
    step = scene.job.progress.checkpoint_step
    what = f"its checkpoint of step {step}" if step else "what it has saved"
    return f"{what} is reached by {listed(shown)}" if shown else f"no node reaches {what} any more"


def _kept_from_jobs(scene: Scene) -> Iterator[Constraint]:
    """Yield the devices of nodes in question that are closed, or that others use, and that it could use otherwise."""
    names, found = scene.real().names, dict[str, list[tuple[str, int, str]]]()
    asks = [one.each.devices for one in _groups(scene.gang) if one.each.devices is not None]
    for number in scene.open_nodes:
        node = scene.snapshot.nodes[names[number]]
        if not (node.devices_closed or node.others.devices):
            continue
        said = node.spec_said.devices
        wanted = {one.index for one in said if any(ask.accepts(one) is None for ask in asks)}
        closures = [one for one in node.devices_closed if one.index in wanted]
        shut = {one.index for one in node.devices_closed}
        taken = len(wanted.intersection(node.others.devices) - shut)
        if closures:
            text = closed_text(node.spec.name, closures)
            found.setdefault("device_closed", []).append((node.spec.name, len(closures), text))
        if taken:
            found.setdefault("device_taken", []).append((node.spec.name, taken, taken_text(node.spec.name, taken)))
    for code, each in found.items():
        text = "; ".join(said for _, _, said in each[:NODES_SAID_MAX])
        text += f"; and more on {counted(len(each) - NODES_SAID_MAX, 'node')}" if len(each) > NODES_SAID_MAX else ""
        milli = WHOLE_DEVICE_MILLI * sum(number for _, number, _ in each)
        yield Constraint(code, text, milli, "device_milli", each[0][0])


def lifted(need: Need, reason: str) -> Need:
    """Return the need without one filter."""
    ask = need.each.devices
    if reason == "label":
        return replace(
            need, labels_wanted=(), labels_shunned=(), label_terms=(), each=replace(need.each, label_terms=())
        )
    if reason == "taint":
        return replace(need, tolerations=(Toleration(),))
    if reason == "checkpoint":
        return replace(need, storage=None)
    if reason in ("anti_affinity", "affinity", "spread"):
        return replace(need, each=replace(need.each, affinity=(), selected=()))
    if ask is None or reason not in _LIFTED:
        return need
    field, nothing = _LIFTED[reason]
    return replace(need, each=replace(need.each, devices=replace(ask, **{field: nothing})))
