"""Placement by `host_load`: points of nodes by how their hosts are used, for work without devices."""

import random

import pytest
from msgspec.structs import replace

from penstock.core.audit import audit
from penstock.core.model.cluster import HostLoad, Pool
from penstock.core.model.events import AttemptAllocated, HostLoadNoted, NodeReady
from penstock.core.model.resources import Resources
from penstock.core.place.capacity import empty, shape_of
from penstock.core.place.host_load import points_text
from penstock.core.state.state import fold
from penstock.testing.builders import GIB, ask, node
from penstock.testing.harness import World

BY_LOAD = (Pool("default", placement="host_load"),)


def world(*nodes, **loads):
    """Return a cluster of 16 CPUs and 64 GiB a node, with what is noted of some of them."""
    made = World(*(nodes or (node("a", 0), node("b", 0), node("c", 0))), pools=BY_LOAD)
    for name, load in loads.items():
        made.emit(HostLoadNoted(name, load))
    return made


def placed(made, *, cpus=1, **fields):
    return made.where(_start(made, cpus=cpus, **fields))


def _start(made, **fields):
    job = made.submit(gang=ask(fields.pop("devices", 0), **fields))
    made.cycle()
    return job


@pytest.mark.parametrize(
    ("cpus", "memory_gib", "load", "expected"),
    [
        (0, 0, HostLoad(), "90/100 points: utilisation 30/40, free memory 30/30"),
        (4.79, 0, HostLoad(), "90/100 points: utilisation 30/40, free memory 30/30"),
        (4.8, 0, HostLoad(), "100/100 points: utilisation 40/40, free memory 30/30"),
        (11.2, 0, HostLoad(), "100/100 points: utilisation 40/40, free memory 30/30"),
        (11.3, 16, HostLoad(), "62.5/100 points: utilisation 10/40, free memory 22.5/30"),
        (0, 0, HostLoad(cpu_milli=300), "100/100 points: utilisation 40/40, free memory 30/30"),
        (8, 0, HostLoad(cpu_milli=300), "70/100 points: utilisation 10/40, free memory 30/30"),
        (16, 32, HostLoad(cpu_milli=-800, memory_milli=-300), "84/100 points: utilisation 30/40, free memory 24/30"),
        (0, 0, HostLoad(memory_milli=900), "63/100 points: utilisation 30/40, free memory 3/30"),
        (0, 64, HostLoad(memory_milli=900), "60/100 points: utilisation 30/40, free memory 0/30"),
    ],
)
def test_points_are_those_of_the_formula(cpus, memory_gib, load, expected):
    free = empty(shape_of(world().state.nodes["a"]))._replace(load=load.key)
    taken = free.without_host(Resources(int(cpus * 1000), memory_gib * GIB), 1)
    assert points_text(taken) == f"{expected}, free bandwidth 20/20, past performance 10/10"


def test_bandwidth_and_past_performance_count_as_well():
    spec = replace(node("a", 0), capacity=Resources(16_000, 64 * GIB, bandwidth_bps=1_000))
    free = empty(shape_of(world(spec).state.nodes["a"]))._replace(load=HostLoad(bandwidth_milli=200, performance=7).key)
    taken = free.without_host(Resources(bandwidth_bps=250), 1)
    assert points_text(taken).endswith("free bandwidth 11/20, past performance 7/10")


def test_a_node_that_is_in_use_but_not_busy_goes_first():
    assert placed(world(a=HostLoad(cpu_milli=900), b=HostLoad(cpu_milli=400))) == "b"
    assert placed(world(a=HostLoad(cpu_milli=900))) == "b"


def test_of_nodes_in_the_same_band_the_one_with_most_free_memory_goes_first():
    loads = {name: HostLoad(cpu_milli=400, memory_milli=used) for name, used in (("a", 600), ("b", 200), ("c", 300))}
    assert placed(world(**loads)) == "b"


def test_a_node_where_work_failed_by_its_fault_goes_last():
    assert placed(world(a=HostLoad(performance=6), b=HostLoad(performance=7))) == "c"


def test_what_a_job_takes_counts_before_it_is_measured():
    made = world(node("a", 0), node("b", 0))
    assert [placed(made, cpus=5) for _ in range(4)] == ["a", "a", "b", "b"], "three on one node would be over 0.7"


def test_a_job_with_devices_goes_by_its_devices():
    nodes = (node("a", 2, cpus=4), node("b", 2, cpus=16))
    assert placed(world(*nodes, a=HostLoad(cpu_milli=900), b=HostLoad(cpu_milli=400)), devices=1) == "a"


def test_work_without_devices_strands_none_for_the_sake_of_points():
    assert placed(world(node("a", 2), node("b", 0), a=HostLoad(cpu_milli=400))) == "b"


def test_a_job_may_name_it_where_its_pool_does_not():
    made = World(node("a", 0), node("b", 0))
    made.run(made.submit(gang=ask(0, cpus=9)))
    job = made.submit(gang=replace(ask(0, cpus=5), placement="host_load"))
    made.cycle()
    assert made.where(job) != made.where(1), "14 of 16 CPUs are above the band"
    event = made.records[-1].event
    assert (type(event), event.rule) == (AttemptAllocated, "host_load")


def test_nodes_that_are_used_alike_share_a_state():
    nodes = [node(f"n{i:02}", 0) for i in range(60)]
    made = world(*nodes, **{one.name: HostLoad(cpu_milli=100 * (i % 3)) for i, one in enumerate(nodes)})
    index = made.free()
    assert len(index.states_in_use(rich=False)) == 3


def test_an_index_kept_over_notes_chooses_as_a_new_one():
    rnd, made = random.Random(1), world(*(node(f"n{i}", 0) for i in range(8)))
    kept = made.free()
    for _ in range(40):
        load = HostLoad(100 * rnd.randint(-5, 10), 100 * rnd.randint(-5, 10), 0, rnd.randint(5, 10))
        made.emit(HostLoadNoted(f"n{rnd.randrange(8)}", load))
        if rnd.random() < 0.5:
            made.run(made.submit(gang=ask(0, cpus=rnd.randint(1, 3))))
        kept.sync(made.state.indexes.nodes, made.state.indexes.free)
        fresh = made.free()
        states = [[[i.nodes_in(s) for s in i.states_in_use(rich=False)]] for i in (kept, fresh)]
        assert states[0] == states[1]


def test_the_log_alone_decides_and_the_audit_shows_the_points():
    made = world(a=HostLoad(cpu_milli=900), c=HostLoad(cpu_milli=400))
    job = _start(made, cpus=1)
    again = fold(made.records)
    assert again.nodes == made.state.nodes
    assert again.nodes["c"].load == HostLoad(cpu_milli=400)
    (ruling,) = audit(made.records, job)
    assert [(score.node, score.chosen) for score in ruling.scores] == [("c", True), ("b", False), ("a", False)]
    assert ruling.scores[0].parts.startswith("100/100 points: utilisation 40/40")


def test_a_node_that_comes_back_keeps_its_past_performance_alone():
    made = world(a=HostLoad(cpu_milli=900, memory_milli=100, performance=4))
    made.lose("a")
    made.hello(node("a", 0), "i2")
    assert isinstance(made.records[-1].event, NodeReady)
    assert made.state.nodes["a"].load == HostLoad(performance=4)
