"""Devices with MIG mode on give out instances alone; those that may be cut up, without the mode, give out all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.explain import explain
from penstock.core.lifecycle.registering import believed
from penstock.core.place.capacity import empty, shape_of
from penstock.core.place.state_table import StateTable
from penstock.devices.inventory import from_reading
from penstock.devices.reading import DeviceFacts, Reading
from penstock.testing.builders import GIB, device, job_spec, node
from penstock.testing.harness import World
from tests.core.edited import planned

ASKS = {
    "whole": (1, {}),
    "several": (2, {}),
    "fraction": (1, {"share_milli": 250}),
    "instance": (1, {"profile": "3g.40gb"}),
}


def on(index, **fields):
    return device(index, mig=True, mig_mode=True, **fields)


def starts(devices, kind):
    w = World(node("a", devices), allow_waiting_for_nodes=True)
    count, fields = ASKS[kind]
    w.submit(count, **fields)
    return [place.devices for start in w.plan().starts for place in start.places]


@pytest.mark.parametrize("kind", ASKS)
def test_only_instances_are_placed_where_mig_mode_is_on(kind):
    assert starts((on(0), on(1)), kind) == ([(0,)] if kind == "instance" else [])


@pytest.mark.parametrize("kind", ASKS)
def test_a_device_that_may_be_cut_up_without_the_mode_gives_out_all(kind):
    assert starts((device(0, mig=True), device(1, mig=True)), kind) == [(0, 1) if kind == "several" else (0,)]


@pytest.mark.parametrize("kind", ["whole", "fraction"])
def test_on_a_mixed_node_the_other_device_is_taken(kind):
    assert starts((on(0), device(1)), kind) == [(1,)]


def test_nodes_that_differ_in_the_mode_alone_are_told_apart():
    table = StateTable()
    for one in (node("a", (on(0),)), node("b", (device(0, mig=True),))):
        table.id_of(empty(shape_of(World(one).state.nodes[one.name])))
    assert (len(table), len(table.kinds)) == (2, 2)


def test_what_only_devices_with_the_mode_on_could_hold_is_refused_with_counts_and_the_profiles():
    w = World(node("a", (on(0), on(1))), node("b", (on(0),)), node("c", 0))
    (problem,) = w.request(job_spec(1)).problems
    assert (problem.code, problem.field) == ("never_fits", "devices")
    assert "2 nodes have devices with MIG mode on, which give out MIG instances alone" in problem.message
    assert "its devices offer the profiles 1g.10gb" in problem.hint


def test_a_job_that_waits_is_told_which_nodes_have_room_but_for_the_mode():
    w = World(node("a", (on(0), on(1))), node("b", (on(0),)), allow_waiting_for_nodes=True)
    job = w.submit(1)
    w.cycle()
    found = explain(w.state, w.job(job), w.now)
    (one,) = (c for c in found.constraints if c.code == "mig_mode")
    assert one.text == (
        "2 nodes have devices with MIG mode on, which give out MIG instances alone and have room for 2 replicas: a, b"
    )
    assert found.refused == {"mig_mode": 2}
    (edit,) = (e for e in found.edits if e.path == "devices.profile")
    assert (edit.new, edit.text) == ("7g.80gb", "devices.profile: 7g.80gb instead of a whole device")
    assert planned(w, job, edit) == (True, ())


def test_no_room_but_for_the_mode_where_instances_are_held():
    w = World(node("a", (on(0),)), allow_waiting_for_nodes=True)
    w.submit(1, profile="1g.10gb")
    w.cycle()
    job = w.submit(1)
    w.cycle()
    found = explain(w.state, w.job(job), w.now)
    assert ("mig_mode" in {c.code for c in found.constraints}, found.refused) == (False, {"mig_mode": 1})


@given(st.booleans(), st.booleans())
def test_the_mode_is_on_where_either_the_node_or_its_record_says_so(known, said):
    as_known, as_said = (node("a", (device(0, mig=True, mig_mode=mode),)) for mode in (known, said))
    spec, more = believed(as_said, as_known)
    assert (spec.devices[0].mig_mode, more) == (known or said, ())


@pytest.mark.parametrize(
    ("vendor", "partitioned", "expected"),
    [("nvidia", True, True), ("nvidia", False, False), ("nvidia", None, False), ("amd", True, False)],
)
def test_an_inventory_says_the_mode(vendor, partitioned, expected):
    facts = DeviceFacts(index=0, model="H100", memory_bytes=80 * GIB, partitioned=partitioned)
    (found,) = from_reading(vendor, Reading(devices=(facts,))).devices
    assert found.mig_mode is expected
