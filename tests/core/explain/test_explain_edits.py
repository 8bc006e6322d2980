"""Edits that would let a job start now: each was planned, each is the smallest of its kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.explain import edit_cluster, edit_job, explain, trials
from penstock.core.model.cluster import Pool, Queue, Reservation, Tenant
from penstock.core.model.events import ConfigChanged
from penstock.core.model.jobs import Dependency, GroupAsk
from penstock.testing.builders import GIB, ask, config, device, node, queues
from penstock.testing.harness import World, cluster
from penstock.testing.worlds import crowded
from tests.core.edited import planned
from tests.core.explain.test_explain import KEPT, busy, fill, pairs, racks, windows
from tests.properties import examples

NUMERIC = {"replicas", "devices.count", "priority", "nodes"}


def edits(w, job_id, kind="request"):
    """Return what would help after a cycle, as (path, old, new), each checked by a plan of the whole."""
    w.cycle()
    found = [e for e in explain(w.state, w.job(job_id), w.now).edits if e.kind == kind]
    if kind == "request":
        assert all(planned(w, job_id, e) == (e.starts_now, e.victims) for e in found)
    return [(e.path, e.old, e.new) for e in found]


def said(w, job_id, path):
    w.cycle()
    (found,) = [e for e in explain(w.state, w.job(job_id), w.now).edits if e.path == path]
    return found


# The request.


def test_fewer_devices_a_replica():
    w = busy()
    job = w.submit(3, 2)
    assert edits(w, job) == [("devices.count", 3, 2)]
    assert said(w, job, "devices.count").text == "devices.count: 2 a replica instead of 3"


def test_fewer_replicas():
    w = busy()
    job = w.submit(2, 3)
    assert edits(w, job) == [("replicas", 3, 2), ("devices.count", 2, 1)]
    assert said(w, job, "replicas").text == "replicas: 2 instead of 3"


def test_a_smaller_minimum_of_an_elastic_job():
    w = busy()
    gang = replace(ask(2, 3), replicas_max=8)
    assert edits(w, w.submit(gang=gang))[0] == ("replicas", "3..8", "2..8")


def test_fewer_replicas_or_devices_of_another_group():
    w = busy()
    gang = replace(ask(1), others=(GroupAsk(2, ask(2).each),))
    assert edits(w, w.submit(gang=gang)) == [
        ("groups[0].replicas", 2, 1),
        ("groups[0].devices.count", 2, 1),
    ]


def test_a_smaller_share():
    w = World(node("a", 1))
    fill(w, "a", devices=1, share_milli=700)
    assert edits(w, w.submit(1, share_milli=500)) == [("devices.share", 0.5, 0.3)]


def test_a_smaller_memory_limit_of_a_share():
    w = World(node("a", 1))
    fill(w, "a", devices=1, share_milli=400, share_memory_bytes=60 * GIB)
    job = w.submit(1, share_milli=400, share_memory_bytes=60 * GIB)
    assert edits(w, job) == [("devices.memory_limit", "60GiB", "20GiB")]


def test_a_smaller_profile():
    w = World(node("a", (device(0, mig=True),)))
    fill(w, "a", devices=1, profile="4g.40gb")
    assert edits(w, w.submit(1, profile="4g.40gb")) == [("devices.profile", "4g.40gb", "3g.40gb")]


def test_the_largest_profile_that_has_room():
    w = World(node("a", (device(0, mig=True),)))
    fill(w, "a", devices=1, profile="4g.40gb")
    assert edits(w, w.submit(1, profile="7g.80gb")) == [("devices.profile", "7g.80gb", "3g.40gb")]


def test_no_memory_limit_where_no_memory_is_left():
    w = World(node("a", 1))
    fill(w, "a", devices=1, share_milli=400, share_memory_bytes=80 * GIB)
    assert edits(w, w.submit(1, share_milli=400, share_memory_bytes=60 * GIB)) == []


def test_no_profile_where_none_is_left():
    w = World(node("a", (device(0, mig=True),)))
    fill(w, "a", devices=1, profile="7g.80gb")
    assert edits(w, w.submit(1, profile="1g.10gb")) == []


def models(*others):
    w = World(
        node("a", (device(0, model="H100"),)), *(node(f"b{i}", (device(0, model=m),)) for i, m in enumerate(others))
    )
    fill(w, "a")
    return w


def test_one_more_model():
    w = models("A100", "L40")
    job = w.submit(1, models=("H100",))
    assert edits(w, job) == [("devices.model", ("H100",), ("H100", "A100"))]
    assert said(w, job, "devices.model").text == "devices.model: accept A100 too"


def test_any_model_where_one_more_does_not_do():
    w = models("A100", "L40")
    w.emit(ConfigChanged(config(allow_waiting_for_nodes=True), "operator"))
    assert edits(w, w.submit(1, 2, models=("H100",)))[-1] == ("devices.model", ("H100",), None)


def other_node(**fields):
    w = World(node("a", (device(0, vendor="amd", capability=(9, 0)),), labels=(("disk", "ssd"), ("net", "fast"))),
              node("b", (device(0, memory_bytes=40 * GIB),), labels=(("net", "fast"), ("old", "yes"))))  # fmt: skip
    fill(w, "a")
    return edits(w, w.submit(1, **fields))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"memory_min_bytes": 80 * GIB}, ("devices.memory", "80GiB", "40GiB")),
        ({"capability_min": (9, 0)}, ("devices.capability", "9.0", "8.0")),
        ({"vendor": "amd"}, ("devices.vendor", "amd", None)),
        ({"labels_wanted": (("net", "fast"), ("disk", "ssd"))}, ("node_labels.wanted.disk", "ssd", None)),
        ({"labels_shunned": (("old", "yes"),)}, ("node_labels.shunned.old", "yes", None)),
        (
            {"labels_wanted": (("disk", "ssd"),), "labels_shunned": (("old", "yes"),)},
            ("node_labels", "disk=ssd, not old=yes", None),
        ),
    ],
)
def test_a_filter_less(fields, expected):
    assert other_node(**fields) == [expected]


def test_no_label_less_where_the_other_nodes_are_kept_for_somebody():
    w = World(node("a", 1, labels=(("disk", "ssd"),)), node("b", 4))
    fill(w, "a")
    fill(w, "b", devices=2, time_limit_ms=60_000)
    w.submit(4, priority=900)
    paths = [path for path, *_ in edits(w, w.submit(1, labels_wanted=(("disk", "ssd"),)))]
    assert paths == []


def test_no_request_is_small_enough_while_room_is_kept_for_one_that_has_waited_too_long():
    w = cluster(1, 4, starvation_after_ms=1_000, pools=(Pool("default", backfill="none"),))
    fill(w, "n0", devices=2)
    w.submit(4, priority=100)
    for cpus in range(2, 8):
        w.submit(4, priority=900, cpus=cpus)
    job = w.submit(3)
    w.now += 8_000
    assert edits(w, job) == []


def test_room_that_ends_anyway_is_held_for_whoever_comes_first():
    w = cluster(1, 4)
    ending = w.submit(2, **KEPT)
    w.run(ending)
    w.cancel(ending)
    w.submit(4, priority=900)
    assert edits(w, w.submit(3)) == []


def test_devices_that_are_joined_more_loosely():
    w = pairs()
    assert edits(w, w.submit(2, link="nvlink")) == [("devices.count", 2, 1), ("devices.link", "nvlink", "numa")]


@pytest.mark.parametrize(
    ("held", "shape", "expected"),
    [
        ((3, 3, 3), (1, 2, "node"), ("topology", "same_node", "same_rack")),
        ((2, 3, 3), (1, 4, "rack"), ("topology.required", True, False)),
        ((4, 4, 2), (1, 2, "spread"), ("topology.required", True, False)),
    ],
)
def test_a_wider_or_preferred_topology(held, shape, expected):
    w = racks(*held)
    devices, replicas, scope = shape
    assert edits(w, w.submit(devices, replicas, topology=scope))[-1] == expected


@pytest.mark.parametrize(
    ("field", "amount", "expected"),
    [("cpus", 4, ("cpus", 4.0, 2.0)), ("memory_gib", 8, ("memory", "8GiB", "4GiB"))],
)
def test_less_of_a_host_resource_to_the_largest_that_fits(field, amount, expected):
    w = World(node("a", 0, cpus=8, memory_gib=64))
    fill(w, "a", devices=0, cpus=6, memory_gib=60)
    assert edits(w, w.submit(0, **{"cpus": 1, field: amount})) == [expected]


def test_host_resources_are_shared_by_the_replicas_of_a_node():
    w = World(node("a", 0, cpus=16))
    fill(w, "a", devices=0, cpus=7)
    assert edits(w, w.submit(0, 4, cpus=4)) == [("replicas", 4, 2), ("cpus", 4.0, 2.25)]


def test_less_storage_and_bandwidth():
    capacity = replace(node().capacity, storage_bytes=4 * GIB, bandwidth_bps=4 * 10**9)
    w = World(replace(node("a", 0), capacity=capacity))
    each = ask(0).each
    for field, amount in (("storage_bytes", 3 * GIB), ("bandwidth_bps", 3 * 10**9)):
        gang = replace(ask(0), each=replace(each, host=replace(each.host, **{field: amount})))
        w.run(w.submit(gang=gang, **KEPT))
        job = w.submit(gang=gang)
        w.cycle()
        assert [(e.path, e.new) for e in explain(w.state, w.job(job), w.now).edits if e.kind == "request"] == [
            ("storage", "1GiB") if field == "storage_bytes" else ("bandwidth", 10**9)
        ]
        w.cancel(job)


def test_as_much_cpu_as_the_quota_has_left():
    w = cluster(1, 4, queues=(Queue("q", max=(("cpus", 6_500),)),))
    w.run(w.submit(1, cpus=5, queue="q", **KEPT))
    assert edits(w, w.submit(1, cpus=4, queue="q")) == [("cpus", 4.0, 1.5)]


def test_a_quota_that_leaves_nothing_is_no_amount():
    w = cluster(1, 4, queues=(Queue("q", max=(("cpus", 5_000),)),))
    w.run(w.submit(1, cpus=5, queue="q", **KEPT))
    assert edits(w, w.submit(1, cpus=4, queue="q")) == []


def test_preemptible_where_a_reserve_is_in_the_way():
    w = cluster(1, 10, pools=(Pool("default", reserve_milli=200),))
    w.run(w.submit(6, **KEPT))
    job = w.submit(3, **KEPT)
    assert edits(w, job) == [("devices.count", 3, 2), ("preemptible", False, True)]
    assert edits(w, job, "cluster")[1] == ("pools.default.reserve", 0.2, 0.1)


def test_a_lower_reserve_that_another_would_use_is_not_proposed():
    w = cluster(1, 10, pools=(Pool("default", reserve_milli=200),))
    w.run(w.submit(6, **KEPT))
    w.submit(3, priority=900, **KEPT)
    assert "pools.default.reserve" not in [e[0] for e in edits(w, w.submit(3, **KEPT), "cluster")]


def test_no_reserve_is_low_enough_for_more_than_is_free():
    w = cluster(1, 10, pools=(Pool("default", reserve_milli=200),))
    w.run(w.submit(9))
    assert ("pools.default.reserve", 0.2) not in [e[:2] for e in edits(w, w.submit(2, **KEPT), "cluster")]


def test_another_queue_that_has_quota_left_the_next_of_kin_first():
    tree = (Queue("q"), Queue("q1", parent="q", max=(("devices", 1_000),)), Queue("p"), Queue("q2", parent="q"))
    w = cluster(2, 1, queues=tree)
    fill(w, "n0", queue="q1")
    assert edits(w, w.submit(1, queue="q1")) == [("queue", "q1", "q2")]


def test_an_alternative_as_the_request_where_the_quota_judges_the_request():
    w = cluster(1, 4, queues=(Queue("q", max=(("devices", 3_000),)),))
    w.run(w.submit(1, queue="q", **KEPT))
    job = w.submit(3, queue="q", alternatives=(ask(1, 3), ask(2)))
    assert edits(w, job)[-1] == ("alternatives[1]", "an alternative", "the request")


def test_a_time_limit_that_ends_before_kept_room_is_needed():
    w = cluster(1, 4)
    w.run(w.submit(2, time_limit_ms=60_000, **KEPT))
    w.submit(4, priority=900)
    job = w.submit(2, time_limit_ms=3_600_000)
    assert edits(w, job)[0] == ("time_limit", "1h", "55s")
    assert not planned(w, job, said(w, job, "time_limit"), "56s")[0]


def test_a_time_limit_that_ends_before_a_reservation():
    w = cluster(1, 4, **windows(1_060_000))
    job = w.submit(1)
    assert edits(w, job)[0] == ("time_limit", None, "55s")
    assert said(w, job, "time_limit").text == (
        "time_limit: 55s instead of none: it would end before the room is needed"
    )


def test_the_lowest_priority_that_would_preempt():
    w = cluster(1, 1)
    w.run(w.submit(1, priority=800))
    job = w.submit(1)
    assert edits(w, job) == [("priority", 500, 801)]
    found = said(w, job, "priority")
    assert (found.text, found.starts_now) == ("priority: 801 instead of 500 would preempt job 1", False)


def test_the_lowest_priority_that_comes_before_kept_room():
    w = cluster(1, 4)
    w.run(w.submit(2, time_limit_ms=60_000, **KEPT))
    w.submit(4, priority=900)
    job = w.submit(2)
    assert edits(w, job)[-1] == ("priority", 500, 901)
    assert said(w, job, "priority").starts_now


def test_the_lowest_priority_that_comes_first_among_equals():
    w = cluster(1, 4, queues=(Queue("q", policy="capacity"),))
    w.run(w.submit(2, queue="q", time_limit_ms=60_000, **KEPT))
    w.submit(4, queue="q", priority=700)
    assert edits(w, w.submit(2, queue="q", priority=500))[-1] == ("priority", 500, 701)


def test_the_lowest_priority_that_comes_before_a_job_of_another_queue():
    w = cluster(1, 5, queues=queues("q", "other", policy="fifo"))
    w.run(w.submit(1, queue="q", priority=950), w.submit(2, queue="q", time_limit_ms=60_000, **KEPT))
    w.submit(4, queue="other", priority=900)
    assert edits(w, w.submit(2, queue="q", priority=500))[-1] == ("priority", 500, 881)


def test_no_priority_where_too_many_would_have_to_be_weighed(monkeypatch):
    monkeypatch.setattr(edit_job, "VICTIMS_WEIGHED_MAX", 0)
    w = cluster(1, 1)
    w.run(w.submit(1, priority=800))
    assert edits(w, w.submit(1)) == []


# The cluster.


def test_maxima_are_raised_together_by_what_is_missing():
    levels = (Queue("q", max=(("devices", 8_000),)), Queue("q1", parent="q", max=(("devices", 6_000),)))
    w = cluster(2, 8, queues=levels)
    w.run(w.submit(5, queue="q1", **KEPT))
    job = w.submit(4, queue="q1")
    path = "queues.q1.max.devices, queues.q.max.devices"
    assert edits(w, job, "cluster")[0] == (path, "6, 8", "9, 9")
    found = said(w, job, path)
    assert found.text == "raise the maximum of queue q1 by 3 devices and of queue q by 1 devices"
    assert planned(w, job, found)[0]


def test_a_maximum_is_not_raised_where_there_is_no_room_either():
    w = cluster(1, 4, queues=(Queue("q", max=(("devices", 4_000),)),))
    w.run(w.submit(3, queue="q", **KEPT))
    assert edits(w, w.submit(2, queue="q"), "cluster") == [("jobs.1", "running", "ended")]


def test_what_siblings_keep_cannot_be_raised():
    w = cluster(2, 4, queues=(Queue("keeper", guaranteed=(("devices", 6_000),), lend=()), Queue("b")))
    w.run(w.submit(2, queue="b", **KEPT))
    assert edits(w, w.submit(2, queue="b"), "cluster") == [("jobs.1", "running", "ended")]


def test_a_node_that_is_being_drained_is_opened():
    w = cluster(2, 1)
    fill(w, "n0")
    w.drain("n1")
    job = w.submit(1)
    assert edits(w, job, "cluster")[0] == ("nodes.n1.draining", True, False)
    assert said(w, job, "nodes.n1.draining").text == "open node n1 again: it is being drained"


def test_a_node_that_would_not_do_is_not_opened():
    w = cluster(2, 2)
    fill(w, "n0", devices=1)
    fill(w, "n1", devices=1)
    w.drain("n1")
    assert "nodes.n1.draining" not in [e[0] for e in edits(w, w.submit(2), "cluster")]


def test_of_the_jobs_whose_end_would_do_the_first_to_end():
    w = cluster(3, 1)
    for name, limit in (("n0", 0), ("n1", 60_000), ("n2", 30_000)):
        fill(w, name, time_limit_ms=limit)
    job = w.submit(1)
    assert edits(w, job, "cluster")[0] == ("jobs.3", "running", "ended")
    assert said(w, job, "jobs.3").text == "job 3 ending"


def test_the_end_of_a_job_that_others_wait_for_is_not_proposed():
    w = cluster(1, 1)
    first = fill(w, "n0")
    w.submit(1, after=(Dependency(first, "after_any"),))
    assert edits(w, w.submit(1), "cluster") == [("nodes", 1, 2)]


def test_an_end_whose_room_another_would_take_is_not_proposed():
    w = cluster(1, 1)
    fill(w, "n0")
    w.submit(1)
    assert edits(w, w.submit(1, priority=100), "cluster") == [("nodes", 1, 3)]


def test_a_lifted_reservation():
    w = cluster(1, 4, **windows(0))
    job = w.submit(1)
    assert edits(w, job, "cluster")[0] == ("reservations.w", "other", None)
    assert said(w, job, "reservations.w").text == "lift reservation w of tenant other"


def test_only_a_reservation_with_room_is_lifted():
    w = cluster(2, 1, tenants=(Tenant("default"), Tenant("other")), reservations=(
        Reservation("w", "other", 2_000_000, 10_000_000, ("n0",)),))  # fmt: skip
    w.run(w.submit(1, tenant="other", **KEPT), w.submit(1, tenant="other", **KEPT))
    assert "reservations.w" not in [e[0] for e in edits(w, w.submit(1), "cluster")]


def test_the_fewest_more_nodes_of_the_kind_that_does_with_fewest():
    w = World(node("a", 1), node("b", 4))
    for name, devices in (("a", 1), ("b", 4)):
        fill(w, name, devices=devices)
    job = w.submit(1, 4)
    assert edits(w, job, "cluster")[-1] == ("nodes", 2, 3)
    assert said(w, job, "nodes").text == "1 more node like b"


def test_more_nodes_than_those_ahead_take():
    w = cluster(1, 1)
    fill(w, "n0")
    for _ in range(4):
        w.submit(1)
    job = w.submit(1, priority=100)
    assert edits(w, job, "cluster") == [("nodes", 1, 6)]
    assert said(w, job, "nodes").text == "5 more nodes like n0"


def test_no_node_is_proposed_that_would_not_be_enough_in_any_number():
    w = cluster(1, 2, queues=(Queue("q", max=(("devices", 2_000),)),))
    fill(w, "n0", devices=2, queue="q")
    assert "nodes" not in [e[0] for e in edits(w, w.submit(1, queue="q"), "cluster")]


# What is bounded.


def test_only_so_many_running_jobs_are_looked_at(monkeypatch):
    monkeypatch.setattr(edit_cluster, "ENDINGS_SEEN_MAX", 1)
    w = World(node("a", 1), node("b", 2))
    fill(w, "a")
    fill(w, "b", devices=2)
    job = w.submit(2)
    assert edits(w, job, "cluster") == [("nodes", 2, 3)]


def test_only_so_many_more_nodes_are_proposed(monkeypatch):
    monkeypatch.setattr(edit_cluster, "NODES_ADDED_MAX", 1)
    w = cluster(2, 1)
    for name in ("n0", "n1"):
        fill(w, name)
    assert "nodes" not in [e[0] for e in edits(w, w.submit(1, 2), "cluster")]


def test_only_so_many_ends_are_planned(monkeypatch):
    monkeypatch.setattr(edit_cluster, "ENDINGS_PLANNED_MAX", 1)
    w = cluster(2, 1)
    for name in ("n0", "n1"):
        fill(w, name)
    w.submit(1)
    assert edits(w, w.submit(1, priority=100), "cluster") == [("nodes", 2, 4)]


def test_a_priority_that_was_not_proven_to_be_the_lowest_is_not_proposed(monkeypatch):
    w = cluster(1, 2)
    w.run(w.submit(1, priority=800), w.submit(1, priority=900))
    job = w.submit(1, 1)
    w.cycle()
    for plans in range(6):
        monkeypatch.setattr(trials, "PLANS_MAX", plans)
        found = [e for e in explain(w.state, w.job(job), w.now).edits if e.path == "priority"]
        assert [e.new for e in found] in ([], [801])


def test_what_was_not_tried_is_said(monkeypatch):
    monkeypatch.setattr(trials, "PLANS_MAX", 1)
    w = busy()
    job = w.submit(2, 3)
    w.cycle()
    found = explain(w.state, w.job(job), w.now)
    assert [e.path for e in found.edits] == ["replicas"]
    assert found.edits_note == "not everything was tried: 1 plans were made on 2 nodes with 1 kinds of requests"


def test_where_many_wait_what_seldom_helps_is_left_out_and_that_is_said(monkeypatch):
    monkeypatch.setattr(trials, "FEW_WORK_MAX", 0)
    w = cluster(1, 1)
    fill(w, "n0")
    job = w.submit(1)
    assert edits(w, job, "cluster") == []
    assert explain(w.state, w.job(job), w.now).edits_note.startswith("not everything was tried: 0 plans were made")


def test_a_number_that_was_not_proven_to_be_the_smallest_is_not_proposed(monkeypatch):
    w = cluster(1, 1)
    fill(w, "n0")
    for _ in range(4):
        w.submit(1)
    job = w.submit(1, priority=100)
    w.cycle()
    for plans in range(8):
        monkeypatch.setattr(trials, "PLANS_MAX", plans)
        found = [e for e in explain(w.state, w.job(job), w.now).edits if e.path == "nodes"]
        assert [e.new for e in found] in ([], [6])


# Properties.


@examples(60)
@given(st.integers(0, 2**32))
def test_every_edit_really_starts_the_job_and_none_is_larger_than_needed(seed):
    w = crowded(seed)
    for job in [j for j in w.state.jobs.values() if j.state == "waiting"]:
        for edit in explain(w.state, job, w.now).edits:
            world = w if edit.kind == "request" else crowded(seed)
            assert planned(world, job.id, edit) == (edit.starts_now, edit.victims), edit
            if edit.path in NUMERIC:
                _smaller_does_not_do(w, seed, job.id, edit)


def _smaller_does_not_do(w, seed, job_id, edit):
    """The next smaller change of a number neither starts the job nor makes room for it."""
    step = -1 if edit.path in ("priority", "nodes") else 1
    smaller = edit.new + step
    if smaller != edit.old:
        world = w if edit.kind == "request" else crowded(seed)
        started, victims = planned(world, job_id, edit, smaller)
        assert not started, edit
        assert edit.path != "priority" or not victims, edit


def test_nearly_every_job_that_could_start_at_all_is_told_a_way_or_a_time():
    told = waiting = 0
    for seed in range(60):
        w = crowded(seed)
        for job in w.state.jobs.values():
            found = explain(w.state, job, w.now) if job.state == "waiting" else None
            if found is not None and found.code not in ("never", "dependency", "backing_off", "making_room"):
                waiting += 1
                told += bool(found.edits) or found.start_by_ms > 0
    assert waiting > 30
    assert told >= 0.8 * waiting, "without a limit of all that run and wait there is no latest time"
