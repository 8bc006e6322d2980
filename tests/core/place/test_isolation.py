"""Levels of isolation: what a job requires of its part of a device, held at placement, at submit, and explained."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.config.job import parse_request
from penstock.core.explain import explain
from penstock.core.lifecycle.orders import start_order
from penstock.core.lifecycle.registering import believed
from penstock.core.model.cluster import Pool
from penstock.core.model.events import ConfigChanged
from penstock.core.model.resources import ISOLATION_LEVELS, DeviceAsk
from penstock.core.place.capacity import empty, shape_of
from penstock.core.place.state_table import StateTable
from penstock.testing.builders import device, job_spec, node
from penstock.testing.harness import World

LEVELS = st.sampled_from(ISOLATION_LEVELS)


def half(level):
    return {"share_milli": 500, "isolation": level}


def devices(count, level, **fields):
    return tuple(device(i, isolation=level, **fields) for i in range(count))


def world(*nodes, virtualization="any", **settings):
    return World(*nodes, pools=(Pool("default", virtualization=virtualization),), **settings)


@given(LEVELS, LEVELS)
def test_a_fraction_is_placed_where_its_level_is_reached_and_nowhere_else(offered, required):
    w = world(node("a", devices(1, offered)), virtualization="mps", allow_waiting_for_nodes=True)
    w.submit(1, **half(required))
    reached = ISOLATION_LEVELS.index(offered) >= ISOLATION_LEVELS.index(required)
    assert len(w.plan().starts) == reached


@pytest.mark.parametrize("fields", [{}, {"profile": "2g.20gb"}])
def test_a_whole_device_and_a_partition_are_isolated_by_hardware(fields):
    w = world(node("a", (device(0, mig=True),)))
    w.submit(1, isolation="hardware", **fields)
    assert len(w.plan().starts) == 1


@pytest.mark.parametrize(("virtualization", "starts"), [("mps", 1), ("any", 0), ("time_slicing", 0)])
def test_the_driver_limits_fractions_only_where_the_pool_runs_them_through_mps(virtualization, starts):
    w = world(node("a", devices(1, "driver")), virtualization=virtualization, allow_waiting_for_nodes=True)
    w.submit(1, **half("driver"))
    assert len(w.plan().starts) == starts


def test_a_pool_that_changes_to_mps_offers_the_driver_level_from_then_on():
    w = world(node("a", devices(1, "driver")), allow_waiting_for_nodes=True)
    job = w.submit(1, **half("driver"))
    assert w.cycle().starts == ()
    w.emit(ConfigChanged(replace(w.state.config, pools=(Pool("default", virtualization="mps"),)), "ann"))
    assert [start.job_id for start in w.cycle().starts] == [job]


def test_devices_of_unequal_isolation_are_told_apart_on_one_node_and_between_nodes():
    mixed = (device(0), device(1, isolation="cooperative"))
    w = world(node("a", devices(2, "none")), node("b", devices(2, "watched")), node("c", mixed))
    w.submit(1, **half("cooperative"))
    (start,) = w.plan().starts
    assert [(place.node, place.devices) for place in start.places] == [("c", (1,))]
    table = StateTable()
    states = {table.id_of(empty(shape_of(one))) for one in w.state.nodes.values()}
    assert (len(states), len(table.kinds)) == (3, 3)


def test_what_no_device_reaches_is_refused_at_submit_with_numbers():
    w = world(node("a", devices(4, "cooperative")), node("b", devices(2, "watched")))
    (problem,) = w.request(job_spec(1, **half("driver"))).problems
    assert (problem.code, problem.field) == ("never_fits", "devices")
    assert "2 nodes isolate parts of devices less than required" in problem.message
    assert "0.5 of a device with driver isolation or stronger" in problem.message
    assert "6 devices offer at most cooperative isolation, the job requires driver" in problem.hint


def test_a_job_that_waits_for_isolation_is_given_the_numbers_and_an_edit():
    w = world(node("a", devices(4, "watched")), node("b", devices(2, "none")), allow_waiting_for_nodes=True)
    job = w.submit(1, **half("cooperative"))
    w.cycle()
    found = explain(w.state, w.state.jobs[job], w.now)
    (one,) = (c for c in found.constraints if c.code == "isolation")
    assert one.text == (
        "2 nodes isolate parts of devices less than required and have room for 2 replicas: a, b; "
        "6 devices offer at most watched isolation, the job requires cooperative"
    )
    assert found.refused == {"isolation": 2}
    assert "devices.isolation: watched instead of cooperative" in [edit.text for edit in found.edits]


def test_a_node_may_claim_less_isolation_than_known_but_not_more():
    known, said = node("a", devices(2, "cooperative")), node("a", (device(0, isolation="driver"), device(1)))
    spec, more = believed(said, known)
    assert [one.isolation for one in spec.devices] == ["cooperative", "none"]
    assert more == ("devices",)


def test_a_level_is_read_from_a_job_file():
    (entry,), problems = parse_request({"command": "true", "devices": {"share": 0.5, "isolation": "driver"}})
    assert problems == []
    assert entry.spec.ask.each.devices == DeviceAsk(1, share_milli=500, isolation="driver")


@pytest.mark.parametrize("word", ["none", "drivers", 3])
def test_a_level_that_cannot_be_required_is_refused(word):
    (problem,) = parse_request({"command": "true", "devices": {"share": 0.5, "isolation": word}})[1]
    assert problem.field == "devices.isolation"
    assert "expected one of watched, cooperative, driver, hardware" in problem.message


@pytest.mark.parametrize(
    ("virtualization", "fields", "through"),
    [
        ("mps", {"share_milli": 500}, True),
        ("mps", {}, False),
        ("time_slicing", {"share_milli": 500}, False),
        ("mig", {"profile": "2g.20gb"}, False),
    ],
)
def test_the_order_says_whether_a_replica_runs_through_mps(virtualization, fields, through):
    w = world(node("a", (device(0, mig=True),)), virtualization=virtualization)
    job = w.submit(1, **fields)
    w.cycle()
    known = w.state.jobs[job]
    assert start_order(w.state, known, known.attempt, known.attempt.replicas[0]).mps == through
