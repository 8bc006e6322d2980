"""Jobs that accept other shapes, and gangs of replicas of several shapes."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.jobs import GangAsk, GroupAsk, Topology
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.place.fit import needs_of
from penstock.core.place.gang import NoFit, place_gang
from penstock.testing.builders import ask, chips, device, node, queues
from penstock.testing.harness import World, cluster, finish
from tests.properties import examples


def group(devices, replicas=1, cpus=0):
    each = ReplicaAsk(Resources(cpus * 1_000), DeviceAsk(devices) if devices else None)
    return GroupAsk(replicas, each)


def gang(first, *others, **fields):
    return GangAsk(first.replicas, first.each, others=others, **fields)


def chosen(found):
    return [(s.job_id, s.choice, chips(*s.places)) for s in found.starts]


# Alternatives.


def test_the_first_shape_that_fits_is_taken():
    w = cluster(1, 3)
    job = w.submit(4, alternatives=(ask(3), ask(2)))
    assert chosen(w.cycle()) == [(job, 1, [("n0", (0, 1, 2))])]
    assert (w.job(job).attempt.choice, w.job(job).ask) == (1, ask(3))


def test_the_preferred_shape_is_taken_where_it_fits():
    w = cluster(1, 4)
    job = w.submit(2, alternatives=(ask(1),))
    assert chosen(w.plan()) == [(job, 0, [("n0", (0, 1))])]


def test_an_alternative_holds_what_it_asks_for_and_gives_it_back():
    w = cluster(1, 4)
    job = w.submit(8, alternatives=(ask(3, cpus=2),))
    w.run(job)
    assert w.free().free_of(0).devices == (0, 0, 0, 1_000)
    assert w.free().free_of(0).cpu_milli == 14_000
    finish(w, job)
    assert w.free().free_of(0).devices == (1_000,) * 4


def test_the_shape_is_chosen_anew_at_each_attempt():
    w = cluster(1, 2)
    w.run(w.submit(1, preemptible=False))
    job = w.submit(2, alternatives=(ask(1),), retries_max=1)
    w.run(job)
    assert w.job(job).attempt.choice == 1
    finish(w, 1)
    w.exit_replica(job, code=1)
    w.now += 10_000
    assert chosen(w.plan()) == [(job, 0, [("n0", (0, 1))])]


def test_an_alternative_of_another_pool_may_be_taken():
    from penstock.core.model.cluster import Pool

    w = World(node("a", 1), node("b", 4, pool="q"), pools=(Pool("default"), Pool("q")))
    job = w.submit(4, alternatives=(ask(4, pool="q"),))
    assert chosen(w.plan()) == [(job, 1, [("b", (0, 1, 2, 3))])]


def test_nobody_is_evicted_while_an_alternative_fits():
    w = cluster(1, 2)
    w.run(w.submit(1, priority=100))
    job = w.submit(2, priority=900, alternatives=(ask(1),))
    found = w.cycle()
    assert (chosen(found), found.preemptions) == ([(job, 1, [("n0", (1,))])], ())


# Groups.


def test_ranks_go_through_the_groups_in_order():
    w = cluster(1, 4)
    job = w.submit(gang=gang(group(0, 1, cpus=2), group(1, 3)))
    w.cycle()
    places = [r.place.devices for r in w.job(job).attempt.replicas]
    assert places == [(), (0,), (1,), (2,)]
    assert [w.job(job).ask.each_of(rank).device_count for rank in range(5)] == [0, 1, 1, 1, 1]


def test_totals_count_every_group():
    whole = gang(group(2, 2, cpus=1), group(1, 3, cpus=2))
    assert (whole.replica_total, whole.device_total, whole.device_milli) == (5, 7, 7_000)
    assert whole.host_total.cpu_milli == 8_000


def test_a_gang_of_groups_is_placed_whole_or_not_at_all():
    w = World(node("a", 2, cpus=4), node("b", 0, cpus=1))
    free = w.free()
    before = [free.free_of(i) for i in range(2)]
    assert isinstance(place_gang(gang(group(1, 2, cpus=1), group(0, 1, cpus=3)), free), NoFit)
    assert [free.free_of(i) for i in range(2)] == before


def test_the_group_that_is_hardest_to_place_goes_first():
    w = World(node("a", 3))
    assert chips(*place_gang(gang(group(1), group(2)), w.free())) == [("a", (2,)), ("a", (0, 1))]


def test_groups_keep_to_one_node_where_that_is_required():
    nodes = (node("a", 2), node("b", 4))
    both = gang(group(1), group(2), topology=Topology("node"))
    assert {p.node for p in place_gang(both, World(*nodes).free())} == {"b"}
    assert isinstance(place_gang(gang(group(2), group(3), topology=Topology("node")), World(*nodes).free()), NoFit)


def test_groups_keep_to_one_rack_where_that_is_required():
    nodes = (node("a", 2, rack="x"), node("b", 2, rack="y"), node("c", 1, rack="y"))
    both = gang(group(1), group(2), topology=Topology("rack"))
    assert {p.node for p in place_gang(both, World(*nodes).free())} == {"b", "c"}
    wide = gang(group(2), group(2), topology=Topology("rack"))
    assert isinstance(place_gang(wide, World(*nodes).free()), NoFit)


def test_spread_groups_never_share_a_node():
    nodes = (node("a", 4), node("b", 4), node("c", 4))
    wide = gang(group(1, 2), group(2), topology=Topology("spread"))
    assert len({p.node for p in place_gang(wide, World(*nodes).free())}) == 3
    assert isinstance(place_gang(wide, World(*nodes[:2]).free()), NoFit)


def test_a_preferred_topology_of_groups_is_given_up_if_it_cannot_be_met():
    nodes = (node("a", 1), node("b", 2))
    for scope in ("node", "rack", "spread"):
        wish = gang(group(1), group(2), topology=Topology(scope, False))
        assert len(place_gang(wish, World(*nodes).free())) == 2


def test_the_end_of_a_gang_of_groups_gives_everything_back():
    w = cluster(1, 4, queues=queues("default", max=(("devices", 4_000),)))
    job = w.submit(gang=gang(group(1, 2, cpus=1), group(2, 1, cpus=3)))
    w.run(job)
    assert w.free().free_of(0).cpu_milli == 11_000
    finish(w, job)
    free = w.free().free_of(0)
    assert (free.cpu_milli, free.devices) == (16_000, (1_000,) * 4)
    assert w.state.indexes.usage == {}


groups = st.lists(st.builds(group, st.integers(0, 2), st.integers(1, 2), st.integers(0, 2)), min_size=2, max_size=3)


scopes = st.sampled_from([None, "node", "rack", "spread"])


@examples(150)
@given(groups, scopes, st.booleans(), st.lists(st.integers(0, 3), max_size=3))
def test_places_of_groups_are_lawful(parts, scope, required, sizes):
    """What is placed has room for all, each replica what it asked for, and a required topology is met."""
    workspace = tuple(device(i) for i in range(3))
    nodes = [node(f"n{i}", workspace[:size], cpus=3, rack="xy"[i % 2]) for i, size in enumerate(sizes)] or [
        node("n0", 0)
    ]
    whole = gang(*parts, topology=Topology(scope, required) if scope else None)
    w = World(*nodes)
    free = w.free()
    places = place_gang(whole, free)
    if isinstance(places, NoFit):
        assert sum(count for _, count in places.refused) == len(nodes)
        return
    free.take(whole, places)  # raises nothing, and leaves nothing below 0
    assert all(free.free_of(i).cpu_milli >= 0 for i in range(len(nodes)))
    taken = [(p.node, index) for p in places for index in p.devices]
    assert len(taken) == len(set(taken))
    wanted = [need.each.device_count for need, count in needs_of(whole) for _ in range(count)]
    assert [len(p.devices) for p in places] == wanted
    if required:
        names = [p.node for p in places]
        racks = {w.state.nodes[n].spec.rack for n in names}
        met = {"node": len(set(names)) == 1, "rack": len(racks) == 1, "spread": len(set(names)) == len(names)}
        assert scope is None or met[scope]
