"""Why a job waits: every constraint that binds, with its distance, in exact words; counts of nodes that add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.explain import Explainer, explain, line, question_of
from penstock.core.explain import start as start_module
from penstock.core.explain.reasons import CONSTRAINTS, STOP_RULES, table
from penstock.core.explain.why import PLANNER_USES_MAX
from penstock.core.model.cluster import Pool, Queue, Reservation, Tenant
from penstock.core.model.environments import PythonSpec
from penstock.core.model.events import (
    AttemptResumed,
    AttemptStopRequested,
    AttemptSuspended,
    ConfigChanged,
    JobHeld,
    JobProtected,
    ReplicaFrozen,
    ReplicaStarted,
    RunTimesPredicted,
)
from penstock.core.model.ids import UserName
from penstock.core.model.jobs import Dependency, GroupAsk
from penstock.core.model.nodes import DeviceFault, OthersLoad
from penstock.core.model.selectors import LabelRule, Taint, Toleration
from penstock.core.model.words import agree
from penstock.core.place.fit import REASON_TEXT
from penstock.testing.builders import GIB, ask, config, device, job_spec, linked, node
from penstock.testing.harness import World, cluster
from penstock.testing.worlds import crowded
from tests.core.histories import operations, play, small_world
from tests.properties import examples

KEPT = {"preemptible": False}


def why(w, job_id):
    return explain(w.state, w.job(job_id), w.now)


def constraints(w, job_id):
    """Return what binds after a cycle, but for who may be asked to leave."""
    w.cycle()
    return [
        (c.code, c.text, c.distance, c.unit, c.where)
        for c in why(w, job_id).constraints
        if c.code != "no_lower_priority"
    ]


def fill(w, name, **fields):
    """Run a job that is not preemptible on one node alone."""
    others = [other for other in w.state.nodes if other != name]
    for other in others:
        w.drain(other)
    job = w.submit(**{**KEPT, **fields})
    w.run(job)
    for other in others:
        w.drain(other, on=False)
    return job


def busy(nodes=2, devices=4, **fields):
    """Return a world of nodes with two devices held on each."""
    w = cluster(nodes, devices, **fields)
    for number in range(nodes):
        fill(w, f"n{number}", devices=2)
    return w


# What is short.


def test_a_job_that_does_not_fit_is_told_the_numbers():
    w = busy()
    job = w.submit(3, 2)
    w.cycle()
    found = why(w, job)
    assert (found.code, found.refused, found.replicas_possible) == ("no_fit", {"devices_short": 2}, 0)
    assert found.text == (
        "needs 2 x 3 devices; 4 free in all, at most 2 on one node: 2 nodes have too few devices free"
    )


def test_devices_short_on_every_node_name_the_best_node_and_rack():
    w = busy(4, 8, rack="r7")
    text = "needs 4 x 8 devices; best node n0 has 6 free, rack r7 has 24 free; short by 2 on n0"
    assert constraints(w, w.submit(8, 4)) == [("devices_short", text, 2_000, "device_milli", "n0")]


def test_devices_short_in_all_count_the_replicas_that_find_room():
    w = busy(switch="s")
    text = "needs 3 x 2 devices; best node n0 has 2 free, switch s has 4 free; 2 of 3 replicas find room"
    assert constraints(w, w.submit(2, 3)) == [("devices_short", text, 1, "replicas", "default")]


def racks(*held, **fields):
    """Return nodes a (rack x), b and c (rack y) of four devices, of which so many are held."""
    w = World(*(node(name, 4, rack=rack, **fields) for name, rack in (("a", "x"), ("b", "y"), ("c", "y"))))
    for name, count in zip("abc", held, strict=False):
        fill(w, name, devices=count)
    return w


def test_a_required_topology_names_the_best_domain_and_what_it_lacks():
    w = racks(2, 3, 3)
    text = "needs 4 x 1 devices on one rack; best rack x has 2 of 4 free, room for 2 of 4 replicas"
    assert constraints(w, w.submit(1, 4, topology="rack")) == [("devices_short", text, 2, "replicas", "x")]
    text = "needs 3 x 1 devices on one node; best node a has 2 of 3 free, room for 2 of 3 replicas"
    assert constraints(w, w.submit(1, 3, topology="node"))[0] == ("devices_short", text, 1, "replicas", "a")


def test_a_spread_gang_is_told_how_many_nodes_have_room():
    w = racks(4, 4)
    text = "needs 2 x 1 devices on as many nodes; 1 node has room: short by 1"
    assert constraints(w, w.submit(1, 2, topology="spread")) == [("devices_short", text, 1, "nodes", "default")]


def test_a_topology_without_any_domain_says_so():
    w = cluster(2, 2, allow_waiting_for_nodes=True)
    text = "needs 2 x 2 devices on one rack; no node in question has one"
    assert constraints(w, w.submit(2, 2, topology="rack"))[1] == ("devices_short", text, 2, "replicas", "default")


def test_a_topology_that_no_single_resource_breaks_is_named_itself():
    w = World(node("a", 2, cpus=1, rack="x"), node("b", 1, cpus=2, rack="y"), allow_waiting_for_nodes=True)
    text = "needs 2 replicas on one rack; best rack x has room for 1 of 2 replicas"
    assert constraints(w, w.submit(1, 2, topology="rack"))[1] == ("topology", text, 1, "replicas", "x")


def test_each_resource_that_is_short_is_named():
    w = World(node("a", 0, cpus=8, memory_gib=64))
    fill(w, "a", devices=0, cpus=6, memory_gib=60)
    assert constraints(w, w.submit(0, cpus=4, memory_gib=8)) == [
        ("cpu_short", "needs 1 x 4 CPUs; best node a has 2 free; short by 2 on a", 2_000, "cpu_milli", "a"),
        ("memory_short", "needs 1 x 8GiB memory; best node a has 4GiB free; short by 4GiB on a", 4 * GIB,
         "memory_bytes", "a"),
    ]  # fmt: skip


def test_storage_and_bandwidth_are_named_in_their_units():
    w = World(replace(node("a", 0), capacity=replace(node().capacity, storage_bytes=GIB, bandwidth_bps=10**9)),
              allow_waiting_for_nodes=True)  # fmt: skip
    each = ask(0).each
    gang = replace(ask(0), each=replace(each, host=replace(each.host, storage_bytes=2 * GIB, bandwidth_bps=4 * 10**9)))
    found = constraints(w, w.submit(gang=gang))
    assert [text for _, text, *_ in found[1:]] == [
        "needs 1 x 2GiB storage; best node a has 1GiB free; short by 1GiB on a",
        "needs 1 x 4Gbps bandwidth; best node a has 1Gbps free; short by 3Gbps on a",
    ]


def test_resources_that_are_free_apart_but_not_together_are_told_where():
    w = World(node("a", 2, cpus=8), node("b", 0, cpus=8))
    fill(w, "a", devices=0, cpus=7)
    text = "each resource is free, but together there is room for 0 of 1 replica; a, the nearest of the others, "
    text += "has 1 of 2 CPUs free"
    assert constraints(w, w.submit(2, cpus=2)) == [("combination", text, 1, "replicas", "default")]


def test_a_combination_without_devices_looks_at_cpu_first():
    w = World(node("a", 0, cpus=8, memory_gib=2), node("b", 0, cpus=2, memory_gib=64), allow_waiting_for_nodes=True)
    (_, found) = constraints(w, w.submit(0, cpus=4, memory_gib=4))
    assert found[1].endswith("a, the nearest of the others, has 2GiB of 4GiB memory free")


def test_a_combination_of_many_replicas_names_what_the_other_nodes_lack():
    w = World(node("a", 4, cpus=2), node("b", 0, cpus=8), allow_waiting_for_nodes=True)
    text = "each resource is free, but together there is room for 1 of 2 replicas; b, the nearest of the others, "
    text += "has too few devices, even when empty"
    assert constraints(w, w.submit(2, 2, cpus=2))[1] == ("combination", text, 1, "replicas", "default")


def test_a_combination_may_lack_on_no_single_node():
    w = World(node("a", 4, cpus=1), node("b", 1, cpus=4), allow_waiting_for_nodes=True)
    text = "each resource is free, but together there is room for 2 of 3 replicas"
    assert constraints(w, w.submit(1, 3))[1] == ("combination", text, 1, "replicas", "default")


def test_a_share_is_told_the_largest_that_is_free():
    w = World(node("a", 1))
    fill(w, "a", devices=1, share_milli=700)
    text = "needs 1 x 0.5 of a device; best node a has 0.3 free; short by 0.2 on a"
    job = w.submit(1, share_milli=500)
    assert constraints(w, job) == [("share_short", text, 200, "device_milli", "a")]
    assert why(w, job).text == f"{text}: 1 node has no device with so large a share free"


def test_the_memory_of_a_share_can_be_short_alone():
    w = World(node("a", 1))
    fill(w, "a", devices=1, share_milli=400, share_memory_bytes=60 * GIB)
    text = "needs 1 x 0.4 of a device with 60GiB of its memory; best node a has 0.6 free; 0 of 1 replicas find room"
    found = constraints(w, w.submit(1, share_milli=400, share_memory_bytes=60 * GIB))
    assert found == [("share_short", text, 1, "replicas", "default")]


def test_a_profile_is_told_how_many_find_room():
    w = World(node("a", (device(0, mig=True),)))
    fill(w, "a", devices=1, profile="4g.40gb")
    text = "needs 1 x 1 instances of 4g.40gb; 0 of 1 replicas find room"
    assert constraints(w, w.submit(1, profile="4g.40gb")) == [("profile_short", text, 1, "replicas", "default")]


def pairs():
    """Return a node of two pairs joined by NVLink with one device free of each."""
    w = World(node("a", tuple(linked(i, "nvlink", i ^ 1) for i in range(4))))
    first, pair = fill(w, "a", devices=1), fill(w, "a", devices=2, link="nvlink")
    fill(w, "a", devices=1)
    w.exit_replica(pair)
    fill(w, "a", devices=1)
    w.exit_replica(first)
    return w


def test_devices_that_are_free_but_not_joined_are_told_apart():
    text = "needs 1 x 1 sets of 2 devices joined by nvlink; 0 of 1 replicas find room"
    w = pairs()
    assert constraints(w, w.submit(2, link="nvlink")) == [("device_links", text, 1, "replicas", "default")]


def test_links_are_not_named_where_devices_are_too_few_anyway():
    w = pairs()
    assert [c[0] for c in constraints(w, w.submit(3, link="numa"))] == ["devices_short"]


def test_the_group_that_asks_most_is_judged():
    w = busy()
    gang = replace(ask(0), others=(GroupAsk(2, ask(3).each), GroupAsk(1, ask(1).each)))
    text = "needs 2 x 3 devices; best node n0 has 2 free; short by 1 on n0"
    job = w.submit(gang=gang)
    assert constraints(w, job) == [("devices_short", text, 1_000, "device_milli", "n0")]
    assert why(w, job).text.startswith(f"{text}: ")


def test_groups_that_fit_each_but_not_together_are_a_combination():
    w = World(node("a", 1, cpus=4), node("b", 0, cpus=2), allow_waiting_for_nodes=True)
    gang = replace(ask(1, cpus=1), others=(GroupAsk(1, ask(0, cpus=4).each),))
    text = "each resource is free, but together there is room for 1 of 1 replica beside 1 of other groups; "
    text += "b, the nearest of the others, has too few devices, even when empty"
    assert constraints(w, w.submit(gang=gang))[1] == ("combination", text, 1, "replicas", "default")


# Nodes that are ruled out, though they have room.


def other_node(**fields):
    """Return a full node a that suits the job, and an empty node b that does not."""
    w = World(node("a", (device(0, model="H100", vendor="amd", capability=(9, 0)),), labels=(("disk", "ssd"),)),
              node("b", (device(0, memory_bytes=40 * GIB),)))  # fmt: skip
    fill(w, "a")
    return constraints(w, w.submit(1, **fields))[1]


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"labels_wanted": (("disk", "ssd"),)}, "label", "do not have the labels wanted"),
        ({"label_terms": ((LabelRule("disk", "exists"),),)}, "label", "do not have the labels wanted"),
        ({"models": ("H100",)}, "model", "have no device of an accepted model"),
        ({"vendor": "amd"}, "vendor", "have devices of another vendor"),
        ({"memory_min_bytes": 80 * GIB}, "device_memory", "have devices with too little memory"),
        ({"capability_min": (9, 0)}, "capability", "have devices of too low compute capability"),
    ],
)
def test_a_filter_that_rules_out_nodes_with_room_is_named(fields, code, text):
    said = f"1 node {agree(text, 1)} and has room for 1 replica: b"
    assert other_node(**fields) == (code, said, 1, "nodes", "b")


def test_a_filter_is_not_named_where_the_nodes_have_no_room_either():
    w = World(node("a", 1, labels=(("disk", "ssd"),)), node("b", 1))
    for name in "ab":
        fill(w, name)
    assert [c[0] for c in constraints(w, w.submit(1, labels_wanted=(("disk", "ssd"),)))] == ["devices_short"]


def test_a_taint_that_rules_out_nodes_with_room_is_named():
    w = World(node("a", 1), node("b", 2, taints=(Taint("spot"),)))
    fill(w, "a")
    said = "1 node has a taint that it does not tolerate and has room for 1 replica: b"
    assert constraints(w, w.submit(1))[1] == ("taint", said, 1, "nodes", "b")
    assert [start.places[0].node for start in w.plan().starts] == []
    w.submit(1, tolerations=(Toleration("spot"),))
    assert [start.places[0].node for start in w.plan().starts] == ["b"]


def test_closed_nodes_with_room_are_named():
    w = cluster(4, 1)
    fill(w, "n0")
    w.drain("n1")
    w.lose("n2")
    w.hello(w.state.nodes["n3"].spec, "i2", ready=False)
    found = constraints(w, w.submit(1))
    assert [(code, where) for code, *_, where in found] == [
        ("devices_short", "n0"),
        ("node_lost", "n2"),
        ("node_joining", "n3"),
        ("node_draining", "n1"),
    ]


def test_without_any_node_in_question_that_is_all_there_is_to_say():
    w = cluster(1, 1)
    fill(w, "n0")
    w.drain("n0")
    found = constraints(w, w.submit(1))
    assert found[1] == ("nowhere", "no node of pool default is in question", 1, "replicas", "default")


def test_free_devices_of_other_pools_are_not_counted_as_free_for_it():
    w = World(node("a", 1), node("b", 8, pool="other"), pools=(Pool("default"), Pool("other")))
    fill(w, "a")
    job = w.submit(1)
    w.cycle()
    assert why(w, job).text.startswith("needs 1 x 1 devices; 0 free in all, at most 0 on one node")


def test_a_job_without_devices_is_told_how_many_replicas_fit():
    w = World(node("a", 0, cpus=4))
    fill(w, "a", devices=0, cpus=3)
    job = w.submit(0, 2, cpus=1)
    w.cycle()
    said = "1 of 2 replicas fit: 1 node could take some of the replicas, but not all replicas fit together"
    assert why(w, job).text == said


# Limits.


def test_each_queue_level_whose_maximum_binds_is_named():
    levels = (Queue("q", max=(("devices", 8_000),)), Queue("q1", parent="q", max=(("devices", 6_000),)))
    w = cluster(2, 8, queues=levels)
    w.run(w.submit(5, queue="q1", **KEPT))
    job = w.submit(4, queue="q1")
    assert constraints(w, job) == [
        ("quota", "queue q1: devices 5 of 6 used, short by 3; in use by job 1", 3_000, "device_milli", "q1"),
        ("quota", "queue q: devices 5 of 8 used, short by 1; in use by job 1", 1_000, "device_milli", "q"),
    ]
    assert (why(w, job).code, why(w, job).text) == ("quota", constraints(w, job)[0][1])


def test_a_quota_of_the_model_that_would_be_given_is_named():
    w = cluster(1, 4, queues=(Queue("q", max=(("devices:A100", 1_000), ("jobs", 5))),))
    w.run(w.submit(1, queue="q", **KEPT))
    said = "queue q: devices:A100 1 of 1 used, short by 2; in use by job 1"
    assert constraints(w, w.submit(2, queue="q"))[0] == ("quota", said, 2_000, "device_milli", "q")


def test_what_siblings_do_not_lend_is_said_to_be_kept():
    w = cluster(2, 4, queues=(Queue("keeper", guaranteed=(("devices", 6_000),), lend=()), Queue("b")))
    w.run(w.submit(2, queue="b", **KEPT))
    said = "queue root: devices 8 of 8 used or kept by queues that do not lend them, short by 2"
    assert constraints(w, w.submit(2, queue="b")) == [("not_lent", said, 2_000, "device_milli", "root")]


def test_the_reserve_of_a_pool_is_told_with_what_is_free():
    w = cluster(1, 10, pools=(Pool("default", reserve_milli=200),))
    w.run(w.submit(6, **KEPT))
    said = "pool default keeps 2 devices for preemptible jobs and has 4 free; this one takes 3: short by 1"
    assert constraints(w, w.submit(3, **KEPT)) == [("reserve", said, 1_000, "device_milli", "default")]


def test_admission_counts_the_jobs_that_take_turns():
    w = cluster(2, 4, queues=(Queue("q", policy="least_attained"),), admission_milli=1_000)
    w.run(w.submit(3, 2, queue="q", **KEPT))
    said = "queue q lets jobs take turns for up to 8 devices, 6 are in: short by 1"
    assert constraints(w, w.submit(3, queue="q"))[0] == ("admission", said, 1_000, "device_milli", "q")


def test_a_queue_that_is_not_in_the_tree_is_named():
    w = cluster(1, 1)
    job = w.submit(1)
    w.emit(ConfigChanged(config(queues=(Queue("default", parent="nowhere"),)), "operator"))
    assert why(w, job).constraints[0].text == "queue default is not in the tree of queues"
    assert why(w, job).code == "no_queue"


# What comes before it.


def test_room_that_is_kept_says_for_which_job_and_until_when():
    w = cluster(1, 4)
    w.run(w.submit(2, time_limit_ms=60_000, **KEPT))
    big, job = w.submit(4, priority=900), w.submit(2)
    text = f"room on n0 is kept for job {big}, which is to start in 1m 0s"
    assert constraints(w, job)[0] == ("kept_back", text, 60_000, "ms", f"job {big}")
    found = why(w, job)
    assert (found.code, found.refused, found.blockers) == ("kept_back", {"kept_back": 1}, (big,))


def test_room_for_a_starving_job_has_no_known_end():
    w = cluster(1, 4, starvation_after_ms=1_000)
    w.run(w.submit(2, **KEPT))
    starving = w.submit(4)
    w.now += 2_000
    text = f"room on n0 is kept for job {starving}, which has waited too long and starts when enough is free"
    assert constraints(w, w.submit(1, priority=100))[0] == ("kept_back", text, 0, "ms", f"job {starving}")


def test_room_that_others_make_for_a_job_is_not_free():
    w = cluster(1, 2)
    w.run(w.submit(1, priority=100))
    high = w.submit(2, priority=1_000)
    job = w.submit(1, priority=100)
    text = f"room on n0 is kept for job {high}, for which others are leaving"
    assert constraints(w, job)[0] == ("kept_back", text, 0, "", f"job {high}")


def windows(start_ms):
    owners = (Tenant("default"), Tenant("other"))
    window = Reservation("w", "other", start_ms, 10_000_000, ("n0",))
    return {"tenants": owners, "reservations": (window,), "allow_waiting_for_nodes": True}


def test_a_reservation_to_come_is_in_the_way_of_a_job_that_may_run_into_it():
    w = cluster(1, 4, **windows(1_060_000))
    text = "n0: reserved for another tenant in 1m 0s, and it might still run then"
    assert constraints(w, w.submit(1)) == [("kept_back", text, 60_000, "ms", "reservation w")]


def test_a_reservation_in_force_is_told_with_the_room_there():
    w = cluster(1, 4, **windows(0))
    found = constraints(w, w.submit(1))
    text = "1 node is reserved for another tenant and has room for 1 replica: n0"
    assert found[1] == ("reserved", text, 1, "nodes", "n0")
    assert found[0][:2] == (
        "never",
        "can never start as things are: fits only on nodes that are reserved for other tenants for another 2h 30m",
    )


def test_a_dependency_is_named_with_its_state():
    w = cluster(1, 4)
    first = w.submit(1)
    w.run(first)
    job = w.submit(1, after=(Dependency(first, "after_ok"),))
    found = why(w, job)
    assert (found.code, found.blockers) == ("dependency", (first,))
    assert found.constraints[0].text == "waits for 1 job to end first: 1 (after_ok, running)"


def test_backing_off_says_until_when():
    w = cluster(1, 1)
    job = w.submit(1, retries_max=1)
    w.run(job)
    w.exit_replica(job, 0, 1)
    found = why(w, job)
    assert (found.code, found.start_by_ms) == ("backing_off", w.now + 1_000)
    assert found.text == "backs off after a failure; next attempt in 1.0 s"


def test_a_beneficiary_knows_for_whom_it_waits_and_how_long_at_most():
    w = cluster(1, 1)
    low = w.submit(1, priority=100)
    w.run(low)
    high = w.submit(1, priority=1000)
    w.cycle()
    found = why(w, high)
    assert (found.code, found.blockers, found.edits) == ("making_room", (low,), ())
    assert found.text == f"starts as soon as job {low} has saved and left, in 30s at the latest"


def test_beneficiaries_of_one_kind_each_know_their_own_victims():
    w = cluster(2, 1)
    w.run(w.submit(1, priority=100), w.submit(1, priority=100))
    ids = [w.submit(1, priority=1_000), w.submit(1, priority=1_000)]
    w.cycle()
    assert sorted(why(w, job).blockers for job in ids) == [(1,), (2,)]


def test_a_policy_that_fails_orders_by_age_here_too():
    class Broken:
        name = "broken"

        def order_key(self, job, now_ms, settings):
            raise RuntimeError("no")

    w = cluster(1, 1, queues=(Queue("q", policy="ext:broken"),))
    fill_state = w.submit(1, queue="q", **KEPT)
    job = w.submit(1, queue="q", priority=900)
    found = explain(w.state, w.job(job), w.now, {"broken": Broken()})
    assert (found.ahead, found.ahead_first) == (1, (fill_state,))


def test_room_kept_from_any_group_of_a_gang_is_named():
    w = cluster(1, 4)
    w.run(w.submit(2, time_limit_ms=60_000, **KEPT))
    big = w.submit(4, priority=900)
    job = w.submit(gang=replace(ask(0), others=(GroupAsk(1, ask(2).each),)))
    assert constraints(w, job)[0][:1] + constraints(w, job)[0][4:] == ("kept_back", f"job {big}")


def test_where_nothing_is_found_the_cycle_is_quoted(monkeypatch):
    w = cluster(1, 4)
    w.run(w.submit(2, time_limit_ms=60_000, **KEPT))
    big, job = w.submit(4, priority=900), w.submit(2)
    monkeypatch.setattr(line, "kept", lambda scene: ())
    text = f"the cycle found no capacity for it after the jobs before it; room is kept for job {big}"
    assert constraints(w, job)[0][:2] == ("no_fit", text)


def test_jobs_ahead_are_counted_and_the_first_are_named():
    w = cluster(1, 1)
    fill(w, "n0", priority=1_000)
    ids = [w.submit(1, priority=p) for p in (500, 900, 500, 700, 100)]
    w.cycle()
    assert [why(w, j).ahead for j in ids] == [2, 0, 3, 1, 4]
    last = why(w, ids[4])
    assert last.ahead_first == (ids[1], ids[3], ids[0])
    assert last.constraints[-1].text == "4 jobs of queue default come first: 3, 5, 2, ..."
    assert last.text.endswith("; 4 jobs ahead")


def test_where_tenants_share_a_queue_only_the_own_jobs_are_ahead():
    w = cluster(1, 1, queues=(Queue("q", policy="fair_share"),), tenants=(Tenant("default"), Tenant("other")))
    fill(w, "n0", queue="q")
    w.submit(1, queue="q", tenant="other")
    first, second = w.submit(1, queue="q"), w.submit(1, queue="q")
    w.cycle()
    assert (why(w, first).ahead, why(w, second).ahead_first) == (0, (first,))


def test_what_fits_starts_in_the_next_cycle():
    w = cluster(1, 2)
    job = w.submit(1)
    found = why(w, job)
    assert (found.code, found.start_by_ms, found.edits) == ("next_cycle", w.now, ())
    assert found.start_note == "there is room now"


def test_a_full_cycle_goes_on_in_the_next_one():
    w = cluster(1, 2, starts_per_cycle_max=1)
    w.submit(1)
    found = why(w, w.submit(1))
    assert (found.code, found.text) == ("cycle_full", "the cycle starts at most 1 jobs; the next one continues")


def test_what_starts_in_this_cycle_is_not_free_any_more():
    w = cluster(1, 2)
    w.submit(2, priority=900)
    found = why(w, w.submit(1))
    assert (found.code, found.refused) == ("no_fit", {"devices_short": 1})


# Why nobody leaves for it.


def rights_of(w, job_id):
    w.cycle()
    return [(c.code, c.text) for c in why(w, job_id).constraints][1:]


def test_without_a_lower_priority_nobody_leaves():
    w = cluster(1, 3)
    fill(w, "n0", devices=1)
    w.run(w.submit(1), w.submit(1, priority=900))
    job = w.submit(3)
    text = (
        "no preemptible job of lower priority than 500 in pool default (2 preemptible and not lower, 1 not preemptible)"
    )
    assert rights_of(w, job) == [("no_lower_priority", text)]


def test_jobs_of_other_pools_are_not_counted():
    w = World(node("a", 1), node("b", 1, pool="p"), pools=(Pool("default"), Pool("p")))
    w.run(w.submit(1), w.submit(1, pool="p"))
    text = "no preemptible job of lower priority than 500 in pool default (1 preemptible and not lower)"
    assert rights_of(w, w.submit(1)) == [("no_lower_priority", text)]


def test_who_leaves_already_is_told_apart():
    w = cluster(1, 1)
    low = w.submit(1, priority=100)
    w.run(low)
    w.submit(1, priority=1_000)
    w.cycle()
    job = w.submit(1, priority=900)
    text = "no preemptible job of lower priority than 900 in pool default (1 leaving already)"
    assert rights_of(w, job)[0] == ("no_lower_priority", text)


def test_a_minimum_run_time_says_when_it_is_over():
    w = cluster(1, 2, min_runtime_before_preemption_ms=60_000)
    w.run(w.submit(1, priority=100), w.submit(1, priority=100))
    w.now += 20_000
    text = "job 1 may be asked to leave in 40s: its minimum run time is not over, 1 more later"
    job = w.submit(2)
    assert rights_of(w, job) == [("min_runtime", text)]
    (found,) = [c for c in why(w, job).constraints if c.code == "min_runtime"]
    assert (found.distance, found.unit, found.where) == (40_000, "ms", "job 1")


def test_a_job_that_must_not_be_disrupted_is_not_asked_and_says_why():
    w = cluster(1, 2)
    low = w.submit(2, priority=100)
    w.run(low)
    w.emit(JobProtected(low, "its budget allows 0 disruptions now"))
    job = w.submit(1)
    text = f"job {low} is not asked to leave: its budget allows 0 disruptions now"
    assert rights_of(w, job) == [("disruption_budget", text)]
    w.emit(JobProtected(low))
    assert [(one.victim, one.beneficiary) for one in w.cycle().preemptions] == [(low, job)]


def test_a_queue_that_never_preempts_says_so():
    w = cluster(1, 1, queues=(Queue("q", preemption="never"),))
    w.run(w.submit(1, queue="q", priority=100))
    assert rights_of(w, w.submit(1, queue="q")) == [("preempt_never", "queue q never asks others to leave")]


def test_a_queue_that_only_reclaims_says_whether_it_may():
    w = cluster(1, 2, queues=(Queue("q", preemption="reclaim"), Queue("r", preemption="reclaim")))
    w.run(w.submit(2, queue="q", priority=100))
    text = "queue r only reclaims its guarantee, and with this job it would hold more than that (1 preemptible)"
    assert rights_of(w, w.submit(1, queue="r")) == [("no_lower_priority", text)]


def test_victims_whose_places_do_not_do_are_counted():
    w = cluster(1, 2)
    fill(w, "n0")
    w.run(w.submit(1, priority=100))
    text = "1 job may be asked to leave (2), and even without them it does not fit"
    assert rights_of(w, w.submit(2)) == [("victims_short", text)]


def test_victims_of_another_queue_do_not_free_the_own_quota():
    w = cluster(1, 4, queues=(Queue("a", max=(("devices", 1_000),)), Queue("b")))
    w.run(w.submit(1, queue="a", **KEPT), w.submit(3, queue="b", priority=100))
    text = "1 job may be asked to leave (2), and even without them a quota is short"
    assert ("victims_short", text) in rights_of(w, w.submit(1, queue="a"))


def test_a_guarantee_protects_what_a_queue_holds():
    w = cluster(2, 4, queues=(Queue("a"), Queue("b", guaranteed=(("devices", 4_000),))))
    w.run(w.submit(4, queue="b", priority=100), w.submit(4, queue="a", priority=900))
    text = "1 job could leave (1), but then a queue would have less than it is guaranteed"
    assert rights_of(w, w.submit(4, queue="a")) == [("guarantee", text)]


# Jobs that hold places.


@pytest.mark.parametrize("phase", ["starting", "running"])
def test_a_job_that_runs_says_where(phase):
    w = cluster(1, 1)
    job = w.submit(1)
    w.cycle()
    if phase == "running":
        w.start(job)
    assert (why(w, job).code, why(w, job).text) == (phase, f"attempt 1 is {phase} on n0")


def test_a_victim_is_told_for_whom_by_which_rule_and_at_what_cost():
    w = cluster(1, 1)
    low = w.submit(1, priority=100)
    w.run(low)
    high = w.submit(1, priority=1000)
    w.cycle()
    w.now += 10_000
    found = why(w, low)
    assert (found.code, found.state, found.blockers) == ("preempted", "stopping", (high,))
    assert found.text == (
        f"attempt 1 on n0 is being stopped: preempted for job {high}, by rule lower_priority: "
        "it has the lower priority; it costs 112.0 device-seconds"
    )
    told = found.stop
    assert (told.reason, told.rule, told.beneficiary) == ("preempted", "lower_priority", high)
    assert (told.cost_device_ms, told.grace_left_ms) == (112_000, 20_000)


def test_a_job_that_nobody_takes_the_place_of_just_says_why_it_stops():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    w.cancel(job)
    assert why(w, job).text == "attempt 1 on n0 is being stopped: cancelled"
    assert why(w, job).stop.grace_left_ms == 30_000


def test_a_job_that_starts_says_what_is_prepared_for_it_and_where():
    w = cluster(2, 1)
    job = w.submit(1, replicas=2, python=PythonSpec(file="r.txt"), setup=("make",))
    w.cycle()
    first = f"prepare its Python environment, setup first: penstock logs {job} says how far"
    assert why(w, job).text == f"attempt 1 is starting on n0, n1; n0, n1 {first}"
    w.emit(ReplicaStarted(job, 1, 0))
    assert why(w, job).text == f"attempt 1 is starting on n0, n1; n1 {first.replace('prepare', 'prepares', 1)}"
    w.emit(ReplicaStarted(job, 1, 1))
    assert "prepare" not in why(w, job).text


def test_a_job_whose_attempt_has_just_ended_says_so():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    ended = replace(w.job(job), attempt=None)
    assert explain(w.state, ended, w.now).text == "attempt 1 has just ended"


# When it may start.


def suspend(w, job_id, until_ms):
    """Freeze an attempt with one replica now, and let it resume after a while."""
    w.emit(AttemptStopRequested(job_id, 1, "suspended", 0), ReplicaFrozen(job_id, 1, 0), AttemptSuspended(job_id, 1))
    w.now += until_ms
    w.emit(AttemptResumed(job_id, 1))


def start(w, job_id):
    w.cycle()
    found = why(w, job_id)
    return found.start_by_ms - w.now if found.start_by_ms else 0, found.start_note


@pytest.mark.parametrize(("devices", "bound_ms"), [(1, 31_000), (4, 61_000)])
def test_the_bound_of_a_start_is_when_enough_has_left_by_its_limit_and_its_grace(devices, bound_ms):
    w = cluster(1, 4)
    w.run(*(w.submit(2, time_limit_ms=limit, grace_ms=1_000) for limit in (60_000, 30_000)))
    assert start(w, w.submit(devices)) == (bound_ms, "when running jobs have reached their time limits")


def test_jobs_that_wait_for_the_same_room_run_first_one_after_the_other():
    w = cluster(1, 1)
    w.run(w.submit(1, time_limit_ms=60_000, grace_ms=0))
    first, second = (w.submit(1, time_limit_ms=limit, grace_ms=0) for limit in (20_000, 5_000))
    note = "when running jobs and 1 waiting job have reached their time limits, one after the other"
    assert start(w, second) == (80_000, note)
    assert start(w, first) == (65_000, note)


def test_an_expected_end_is_no_bound():
    w = cluster(1, 1)
    job = w.submit(1, time_limit_ms=60_000, grace_ms=0)
    w.emit(RunTimesPredicted(((job, 4_000, 40_000),)))
    w.run(job)
    assert start(w, w.submit(1))[0] == 60_000


def test_a_limit_that_has_passed_counts_as_now():
    w = cluster(1, 1)
    w.run(w.submit(1, time_limit_ms=60_000))
    job = w.submit(1)
    w.now += 90_000
    assert why(w, job).start_by_ms == w.now + 30_000, "its grace begins with the order to stop"
    w.tick()
    assert why(w, job).start_by_ms == w.now + 30_000


def test_a_time_limit_counts_from_when_all_replicas_had_started():
    w = cluster(1, 1)
    slow = w.submit(1, time_limit_ms=60_000, grace_ms=2_000)
    w.cycle()
    w.now += 50_000
    job = w.submit(1)
    assert start(w, job)[0] == 62_000
    w.start(slow)
    w.now += 10_000
    assert start(w, job)[0] == 52_000


def test_a_time_limit_does_not_count_while_an_attempt_is_suspended():
    w = World(node("n0", 0, cpus=4))
    job = w.submit(0, time_limit_ms=60_000, grace_ms=2_000, on_preempt="suspend")
    w.run(job)
    suspend(w, job, until_ms=20_000)
    w.now += 10_000
    assert start(w, w.submit(0, cpus=4))[0] == 52_000


def test_a_start_behind_jobs_without_a_limit_has_no_bound():
    w = cluster(1, 1)
    w.run(w.submit(1, estimated_duration_ms=60_000))
    job = w.submit(1)
    assert start(w, job) == (0, "unknown: 1 running job has no time limit")


def test_a_job_without_a_limit_that_waits_for_the_same_room_leaves_no_bound():
    w = cluster(1, 1)
    w.run(w.submit(1, time_limit_ms=60_000))
    unlimited, job = w.submit(1), w.submit(1)
    assert start(w, job) == (0, f"unknown: job {unlimited} waits, too, and has no time limit")


def test_members_of_an_array_that_wait_for_their_turn_may_come_first():
    w = cluster(1, 1)
    w.request(replace(job_spec(1, time_limit_ms=60_000, grace_ms=2_000, **KEPT), array_parallel=1), array=3)
    w.run(1)
    note = "when running jobs and 2 waiting jobs have reached their time limits, one after the other"
    assert start(w, w.submit(1)) == (3 * 62_000, note)


def test_jobs_that_wait_for_others_than_the_job_may_come_first():
    w = cluster(1, 1)
    first = w.submit(1, time_limit_ms=60_000, grace_ms=2_000)
    w.run(first)
    w.submit(1, after=(Dependency(first, "after_ok"),), time_limit_ms=5_000, grace_ms=0)
    job = w.submit(1)
    second = w.submit(1, after=(Dependency(job, "after_ok"),))
    w.submit(1, after=(Dependency(first, "after_any"), Dependency(second, "after_ok")))
    assert start(w, job)[0] == 67_000
    last = w.submit(1, after=(Dependency(first, "after_any"),))
    assert start(w, job) == (0, f"unknown: job {last} waits, too, and has no time limit")


def test_blocked_jobs_that_do_not_come_first_leave_the_bound():
    pools = (Pool("default"), Pool("other"))
    w = World(node("a", 1), node("b", 1, pool="other"), pools=pools)
    first = w.submit(1, time_limit_ms=60_000, grace_ms=0)
    w.run(first)
    w.submit(1, pool="other", after=(Dependency(first, "after_ok"),))
    held = w.submit(1, after=(Dependency(first, "after_ok"),))
    w.emit(JobHeld(held, UserName("ann")))
    assert start(w, w.submit(1))[0] == 60_000


def test_with_too_many_blocked_jobs_there_is_no_bound(monkeypatch):
    monkeypatch.setattr(start_module, "WAITING_SEEN_MAX", 3)
    w = cluster(1, 1)
    first = w.submit(1, time_limit_ms=60_000, grace_ms=0)
    w.run(first)
    job = w.submit(1)
    for _ in range(3):
        w.submit(1, after=(Dependency(first, "after_ok"),), time_limit_ms=1_000, grace_ms=0)
    assert start(w, job)[0] == 63_000
    w.submit(1, after=(Dependency(first, "after_ok"),), time_limit_ms=1_000, grace_ms=0)
    assert start(w, job) == (0, "unknown: more than 3 jobs wait beside it")


def test_jobs_of_another_pool_count_only_where_a_maximum_is_shared():
    pools = (Pool("default"), Pool("other"))
    w = World(node("a", 1), node("b", 1, pool="other"), pools=pools)
    w.run(w.submit(1, time_limit_ms=60_000, grace_ms=0), w.submit(1, pool="other"))
    w.submit(1, pool="other")
    job = w.submit(1)
    assert start(w, job)[0] == 60_000
    w.emit(ConfigChanged(config(pools=pools, queues=(Queue("default", max=(("devices", 9_000),)),)), "op"))
    assert start(w, job)[0] == 0


def test_nodes_that_are_reserved_for_others_later_leave_no_bound():
    w = cluster(1, 1, tenants=(Tenant("default"), Tenant("other")))
    w.run(w.submit(1, time_limit_ms=60_000))
    job = w.submit(1)
    window = Reservation("r", "other", w.now + 1_000, w.now + 2_000, ("n0",))
    w.emit(ConfigChanged(replace(w.state.config, reservations=(window,)), "op"))
    assert start(w, job) == (0, "unknown: nodes of its pool are reserved for another tenant later")


def test_a_quota_is_free_when_the_jobs_that_use_it_have_ended():
    w = cluster(1, 4, queues=(Queue("q", max=(("devices", 2_000),)), Queue("p")))
    w.run(w.submit(2, queue="q", time_limit_ms=60_000), w.submit(1, queue="p", time_limit_ms=1_000))
    note = "when jobs that use its quota have reached their time limits"
    assert start(w, w.submit(1, queue="q")) == (90_000, note)


def test_a_job_starts_after_those_that_it_depends_on():
    w = cluster(1, 4)
    first = w.submit(1, time_limit_ms=60_000)
    w.run(first)
    job = w.submit(1, after=(Dependency(first, "after_any"),))
    note = "when the jobs that it depends on have reached their time limits"
    assert start(w, job) == (90_000, note)
    second = w.submit(1, after=(Dependency(job, "after_any"),))
    assert start(w, second)[1] == f"unknown: the end of job {job}, which it depends on, is unknown"


def test_attempts_that_are_being_stopped_leave_by_their_grace():
    w = cluster(1, 1)
    job = w.submit(1, grace_ms=7_000)
    w.run(job)
    w.cancel(job)
    assert start(w, w.submit(1))[0] == 7_000


def test_an_attempt_that_is_to_be_frozen_does_not_end_by_its_grace():
    w = World(node("n0", 0, cpus=4))
    frozen = w.submit(0, time_limit_ms=60_000, on_preempt="suspend")
    w.run(frozen)
    w.emit(AttemptStopRequested(frozen, 1, "suspended", 2_000))
    dependant = w.submit(0, after=(Dependency(frozen, "after_any"),))
    assert f"the end of job {frozen}, which it depends on, is unknown" in why(w, dependant).start_note


def test_a_suspended_job_resumes_first_unless_it_is_suspended_for_the_job():
    w = World(node("n0", 0, cpus=4))
    low = w.submit(0, cpus=4, priority=100, on_preempt="suspend", time_limit_ms=60_000, grace_ms=5_000)
    w.run(low)
    high = w.submit(0, cpus=4, priority=900, time_limit_ms=60_000)
    w.cycle()
    assert w.attempt(low).stop.reason == "suspended"
    assert why(w, high).start_by_ms == w.now + 5_000
    w.report("n0", w.seen(low, 0, "frozen"), inventory=False)
    w.run(high)
    job = w.submit(0, cpus=4)
    assert why(w, job).start_note == "unknown: 1 suspended job may resume at any time"


def test_only_so_many_ends_are_looked_ahead_over(monkeypatch):
    monkeypatch.setattr(start_module, "RELEASES_SEEN_MAX", 1)
    w = cluster(1, 2)
    w.run(*(w.submit(1, time_limit_ms=60_000, **KEPT) for _ in range(2)))
    note = "unknown: it needs more than the next 1 ends of running jobs"
    assert start(w, w.submit(2)) == (0, note)


def test_ends_are_computed_once_and_only_the_first_are_looked_at_closely(monkeypatch):
    ends, places = [], []
    left_ms, held_places = start_module.left_ms, start_module.held_places
    monkeypatch.setattr(start_module, "left_ms", lambda job, now_ms: ends.append(job.id) or left_ms(job, now_ms))
    monkeypatch.setattr(start_module, "held_places", lambda job: places.append(job.id) or held_places(job))
    monkeypatch.setattr(start_module, "RELEASES_SEEN_MAX", 2)
    w = cluster(1, 4, queues=(Queue("default", max=(("devices", 4_000),)),))
    running = [w.submit(1, time_limit_ms=limit, grace_ms=0, **KEPT) for limit in (40_000, 10_000, 20_000, 30_000)]
    w.run(*running)
    _, job = (w.submit(1, time_limit_ms=60_000, grace_ms=0, **KEPT) for _ in range(2))
    assert start(w, job)[0] == 100_000
    assert (ends, places) == (running, running[1:3])


def test_a_job_without_a_limit_that_starts_now_leaves_no_bound_behind_others():
    w = cluster(1, 2)
    w.run(w.submit(1, time_limit_ms=60_000, **KEPT))
    w.submit(1, priority=900, **KEPT)
    _, job = (w.submit(1, time_limit_ms=60_000, **KEPT) for _ in range(2))
    assert why(w, job).start_note == "unknown: 1 running job has no time limit"


def test_jobs_whose_queue_is_gone_use_no_quota_of_others():
    w = cluster(1, 4, queues=(Queue("default"), Queue("q")))
    w.run(
        w.submit(1, queue="q", time_limit_ms=1_000, priority=100), w.submit(1, time_limit_ms=60_000, grace_ms=0, **KEPT)
    )
    job = w.submit(1)
    w.emit(ConfigChanged(config(queues=(Queue("default", max=(("jobs", 1),)), Queue("q", parent="none"))), "op"))
    assert start(w, job)[0] == 60_000
    assert [e.path for e in why(w, job).edits if e.kind == "cluster"][-1] == "jobs.2"


def test_jobs_that_start_now_end_later():
    w = cluster(1, 2)
    w.submit(2, priority=900, time_limit_ms=60_000, grace_ms=0)
    job = w.submit(1)
    assert why(w, job).start_by_ms == w.now + 60_000


def test_a_job_that_could_never_start_has_no_bound():
    w = cluster(1, 2, allow_waiting_for_nodes=True)
    job = w.submit(4)
    w.emit(ConfigChanged(config(queues=(Queue("default", max=(("jobs", 0),)),)), "operator"))
    found = start(w, job)[1]
    assert found == (
        "unknown: it does not fit even when all running jobs have ended; "
        "its quota does not suffice even when all running jobs have ended"
    )


def test_whoever_knows_more_than_a_bound_gives_an_interval():
    w = cluster(1, 1)
    w.run(w.submit(1))
    job = w.job(w.submit(1))
    found = Explainer(estimator=lambda scene: (scene.now_ms + 1, scene.now_ms + 4, scene.now_ms + 9)).explain(
        question_of(w.state, job, w.now)
    )
    assert (found.start_interval_ms, found.start_likely_ms) == ((w.now + 1, w.now + 9), w.now + 4)


# All of it.


@examples(30)
@given(operations)
def test_every_job_can_be_explained_and_refusals_add_up(found):
    w = play(small_world(), found)
    for job in w.state.jobs.values():
        answer = explain(w.state, job, w.now)
        assert answer.text
        assert answer.state == job.state
        assert sum(answer.refused.values()) in (0, len(w.state.nodes))


@examples(60)
@given(st.integers(0, 2**32))
def test_every_waiting_job_has_a_constraint_with_a_known_code(seed):
    w = crowded(seed)
    explainer = Explainer()
    for job in w.state.jobs.values():
        found = explainer.explain(question_of(w.state, job, w.now))
        if job.state == "waiting":
            assert found.constraints
            assert all(c.code in CONSTRAINTS and c.text and c.distance >= 0 for c in found.constraints)
            assert not found.refused or sum(found.refused.values()) == len(w.state.nodes)
            assert set(found.refused) <= set(REASON_TEXT)
            assert found == explain(w.state, job, w.now), "what a planner remembers changes nothing"


def test_a_planner_is_made_anew_after_many_explanations():
    w = busy()
    job = w.job(w.submit(3))
    explainer = Explainer()
    found = [explainer.explain(question_of(w.state, job, w.now)) for _ in range(PLANNER_USES_MAX + 1)]
    assert found == [found[0]] * len(found)


def test_every_rule_of_a_stop_and_every_code_has_a_line_in_the_documents():
    said = table()
    assert [code for code in (*CONSTRAINTS, *STOP_RULES, *REASON_TEXT) if f"| `{code}` |" not in said] == []


def test_an_array_that_a_job_waits_for_is_counted_and_its_first_jobs_are_named():
    w = cluster(1, 0, cpus=4)
    w.request(job_spec(0, time_limit_ms=60_000), array=12)
    w.run(*range(1, 5))
    w.exit_replica(2)
    job = w.submit(0, after=(Dependency(1, "after_ok", 12), Dependency(3, "after_any", 2), Dependency(9, "after_ok")))
    found = why(w, job)
    assert found.constraints[0].distance == 11
    assert found.constraints[0].text == (
        "waits for 11 jobs to end first: 1 (after_ok, running), 3 (after_ok, running), 4 (after_ok, running), "
        "5 (after_ok, waiting), 6 (after_ok, waiting), 7 (after_ok, waiting), 8 (after_ok, waiting), "
        "9 (after_ok, waiting) and 3 more"
    )
    assert found.start_note == "unknown: the end of job 6, which it depends on, is unknown", "job 5 starts now"


def test_when_all_jobs_of_an_array_are_expected_to_end_is_when_the_next_may_start():
    w = cluster(1, 0, cpus=8)
    w.request(job_spec(0, time_limit_ms=60_000, grace_ms=0), array=3)
    w.run(1, 2, 3)
    job = w.submit(0, after=(Dependency(1, "after_ok", 3),))
    assert why(w, job).start_by_ms == w.now + 60_000


def test_closed_devices_and_those_that_others_use_are_reasons_of_their_own():
    w = cluster(2, 4)
    w.report("n0", faults=(DeviceFault(0, "xid", "Xid 79: gone", 79), DeviceFault(3, "xid", "Xid 79: gone", 79)))
    w.report("n1", others=OthersLoad(devices=(1,)))
    found = {c[0]: c[1:] for c in constraints(w, w.submit(4))}
    assert found["device_closed"] == ("2 devices of n0 are closed: Xid 79: gone", 2_000, "device_milli", "n0")
    assert found["device_taken"] == (
        "1 device of n1 is used by programs that Penstock did not start",
        1_000,
        "device_milli",
        "n1",
    )
    w.run(w.submit(0, 2, cpus=16, **KEPT))
    assert [c[0] for c in constraints(w, w.submit(1, cpus=1))] == ["cpu_short", "behind"]
