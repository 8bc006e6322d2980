"""The placement against an independent brute force: it finds a place exactly when there is one."""

from itertools import combinations

from hypothesis import given

from penstock.core.place.gang import NoFit, place_gang
from penstock.testing.harness import World
from tests.core.strategies import gangs, node_lists
from tests.properties import examples

REACH = {"nvlink": ("nvlink",), "pcie": ("nvlink", "pcie"), "numa": ("nvlink", "pcie", "numa")}


def joined(spec, chosen, kind):
    """Whether each of `chosen` reaches each other directly, over a link of `kind` or closer."""
    if kind in (None, "node"):
        return True
    near = {d.index: {k.peer for k in d.links if k.kind in REACH[kind]} for d in spec.devices}
    if kind == "numa":
        for d in spec.devices:
            near[d.index] |= {e.index for e in spec.devices if e.numa_node == d.numa_node}
    return all(b in near[a] or a in near[b] for a, b in combinations(chosen, 2))


def device_choices(spec, gang, free):
    want = gang.each.devices
    if want is None:
        return [()]
    good = [
        d.index
        for d in spec.devices
        if d.index in free
        and d.healthy
        and (not want.models or d.model in want.models)
        and d.memory_bytes >= want.memory_min_bytes
    ]
    return [c for c in combinations(good, want.count) if joined(spec, c, want.link)]


def most_on(spec, gang, left):
    """Return the largest number of replicas, at most `left`, that `spec` can hold when empty."""
    if not set(gang.labels_wanted) <= set(spec.labels):
        return 0

    def search(free, cpu, count):
        if count == left or cpu < gang.each.host.cpu_milli:
            return count
        found = (search(free - set(c), cpu - gang.each.host.cpu_milli, count + 1) for c in choices(free))
        return max(found, default=count)

    def choices(free):
        return device_choices(spec, gang, free)

    return search(frozenset(d.index for d in spec.devices), spec.capacity.cpu_milli, 0)


def feasible(specs, gang):
    most = {s.name: most_on(s, gang, gang.replicas) for s in specs}
    wish = gang.topology
    if wish is None or not wish.required:
        return sum(most.values()) >= gang.replicas
    if wish.scope == "spread":
        return sum(1 for m in most.values() if m) >= gang.replicas
    key = {"node": lambda s: s.name, "switch": lambda s: s.switch, "rack": lambda s: s.rack}[wish.scope]
    domains = {key(s) for s in specs} - {""}
    return any(sum(most[s.name] for s in specs if key(s) == d) >= gang.replicas for d in domains)


def lawful(specs, gang, places):
    by_name = {s.name: s for s in specs}
    cpu = dict.fromkeys(by_name, 0)
    free = {s.name: {d.index for d in s.devices} for s in specs}
    for place in places:
        assert place.devices in device_choices(by_name[place.node], gang, free[place.node])
        free[place.node] -= set(place.devices)
        cpu[place.node] += gang.each.host.cpu_milli
    assert all(cpu[n] <= s.capacity.cpu_milli for n, s in by_name.items())
    used = [by_name[p.node] for p in places]
    if gang.topology and gang.topology.required:
        scope = gang.topology.scope
        many = {
            "node": len({s.name for s in used}) == 1,
            "switch": len({s.switch for s in used}) == 1 and used[0].switch != "",
            "rack": len({s.rack for s in used}) == 1 and used[0].rack != "",
            "spread": len({s.name for s in used}) == len(used),
        }
        assert many[scope]


@examples(200)
@given(node_lists(), gangs())
def test_a_gang_is_placed_exactly_when_brute_force_finds_a_place(specs, gang):
    found = place_gang(gang, World(*specs).free())
    assert isinstance(found, NoFit) != feasible(specs, gang)
    if not isinstance(found, NoFit):
        assert len(found) == gang.replicas
        lawful(specs, gang, found)
