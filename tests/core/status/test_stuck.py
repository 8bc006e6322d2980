"""Standstills: what can never start as things are declared is found, named, and told how it is resolved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.cycle.planner import plan
from penstock.core.explain.reasons import ALERTS
from penstock.core.model.cluster import CHECKED_BY, Pool, Queue, Reservation, Tenant
from penstock.core.model.events import (
    ConfigChanged,
    DeviceClosed,
    HangFound,
    NodeDrainChanged,
    NodeShut,
    ProgressNoted,
    TenantHeld,
    TenantReleased,
)
from penstock.core.model.jobs import Dependency
from penstock.core.model.nodes import DeviceFault
from penstock.core.model.progress import Gauges
from penstock.core.state.snapshot import take_snapshot
from penstock.core.status import alerts as stuck
from penstock.core.status.alerts import alerts
from penstock.testing.builders import ask, config, node
from penstock.testing.harness import World, cluster
from penstock.testing.worlds import crowded
from tests.core.histories import operations, play, small_world
from tests.properties import examples


def found(w):
    return [(a.code, a.job_ids, a.text, a.resolve) for a in alerts(w.state, w.now, w.last_plan)]


def change(w, **fields):
    w.emit(ConfigChanged(config(**fields), "operator"))


def test_what_merely_waits_is_no_alert():
    w = cluster(1, 1)
    w.run(w.submit(1))
    w.submit(1)
    w.cycle()
    assert found(w) == []


@pytest.mark.parametrize("resource", ["devices", "cpus", "jobs"])
def test_more_than_a_queue_may_ever_have_is_found_when_the_maximum_is_lowered(resource):
    w = cluster(1, 4)
    jobs = [w.submit(3, cpus=3), w.submit(3, cpus=3)]
    change(w, queues=(Queue("default", max=((resource, 0 if resource == "jobs" else 1_000),)),))
    asked, limit = (1, 0) if resource == "jobs" else (3, 1)
    text = f"asks for {asked} {resource}; for it queue default has {limit} at most"
    resolve = f"give queue default {asked - limit} {resource} more, or ask for less"
    assert found(w) == [("quota_never", tuple(jobs), text, resolve)]


def test_what_siblings_never_lend_counts_as_taken():
    w = cluster(1, 4, queues=(Queue("a"), Queue("default")))
    job = w.submit(3)
    change(w, queues=(Queue("a", guaranteed=(("devices", 2_000),), lend=()), Queue("default")))
    text = "asks for 3 devices; for it queue root has 2 at most"
    assert found(w) == [("quota_never", (job,), text, "give queue root 1 devices more, or ask for less")]


def test_a_reserve_that_leaves_too_little_even_when_all_is_idle_is_found():
    w = cluster(1, 4)
    job, other = w.submit(4, preemptible=False), w.submit(4)
    change(w, pools=(Pool("default", reserve_milli=250),))
    text = "asks for 4 of 4 devices of pool default, which keeps 1 for preemptible jobs"
    resolve = "make it preemptible, or lower the reserve of pool default"
    assert found(w) == [("reserve_never", (job,), text, resolve)]
    assert other not in found(w)[0][1]


def test_a_request_that_no_known_node_could_hold_is_found():
    w = World(node("a", 2), allow_waiting_for_nodes=True)
    job = w.submit(4)
    text = "no nodes of pool default could hold it, even when empty: 1 node has too few devices"
    assert found(w) == [("never_fits", (job,), text, "ask for less, or add nodes that hold it")]


def test_a_pool_without_nodes_says_that_there_are_none():
    w = World(allow_waiting_for_nodes=True)
    w.submit(1)
    assert found(w)[0][2] == "no nodes of pool default could hold it, even when empty: it has none"


def test_an_alternative_that_fits_is_enough():
    w = World(node("a", 2), allow_waiting_for_nodes=True)
    w.submit(4, alternatives=(ask(2),))
    assert found(w) == []


def test_nodes_that_were_lost_or_drained_are_named():
    w = World(node("a", 4), node("b", 4), node("c", 1))
    job = w.submit(4)
    w.drain("a")
    w.lose("b")
    text = "fits only on nodes that take no work now: a (draining), b (lost)"
    assert found(w) == [("nodes_away", (job,), text, "bring these nodes back, or ask for less")]
    w.drain("a", on=False)
    assert found(w) == []


def reserved(end_ms):
    w = World(node("a", 4), node("b", 1), tenants=(Tenant("default"), Tenant("other")))
    job = w.submit(4)
    window = Reservation("w", "other", 0, end_ms, ("a", "gone"))
    change(w, tenants=(Tenant("default"), Tenant("other")), reservations=(window,))
    return w, job


@pytest.mark.parametrize(
    ("length_ms", "until"), [(3_600_000, "for another 1h 0m"), (400 * 86_400_000, "for more than a year")]
)
def test_nodes_that_are_reserved_for_another_tenant_are_told_until_when(length_ms, until):
    w, job = reserved(1_000_000 + length_ms)
    text = f"fits only on nodes that are reserved for other tenants {until}"
    assert found(w) == [("nodes_reserved", (job,), text, "shorten reservation w, or ask for less")]
    w.now += length_ms
    assert found(w) == []


def test_a_queue_that_is_not_in_the_tree_is_found():
    w = cluster(1, 1)
    job = w.submit(1)
    change(w, queues=(Queue("default", parent="nowhere"),))
    resolve = "declare queue default and the queues above it"
    assert found(w) == [("no_queue", (job,), "queue default is not in the tree of queues", resolve)]


def test_whoever_waits_for_a_stuck_job_is_named_too():
    w = World(node("a", 2), allow_waiting_for_nodes=True)
    first = w.submit(4)
    second = w.submit(1, after=(Dependency(first, "after_ok"),))
    third = w.submit(1, after=(Dependency(second, "after_ok"),))
    resolve = "change or cancel job {0}: penstock explain {0}"
    assert found(w)[1:] == [
        ("behind_stuck", (second,), f"wait for job {first}, which can never start", resolve.format(first)),
        ("behind_stuck", (third,), f"wait for job {second}, which can never start", resolve.format(second)),
    ]


def test_room_that_is_kept_for_nobody_knows_how_long_is_found():
    w = cluster(1, 4, starvation_after_ms=1_000)
    w.run(w.submit(2, preemptible=False))
    starving = w.submit(4)
    w.now += 2_000
    w.submit(1, priority=100)
    w.cycle()
    text = f"job {starving} has waited too long, so what becomes free on n0 is kept for it; "
    text += "the jobs there have no known end"
    resolve = "declare a time limit for what runs there, or end it"
    assert found(w) == [("reserved_without_end", (starving,), text, resolve)]
    w.cancel(starving)
    assert found(w) == []


def test_room_that_is_kept_until_a_known_time_is_no_alert():
    w = cluster(1, 4)
    w.run(w.submit(2, time_limit_ms=60_000, preemptible=False))
    w.submit(4, priority=900)
    w.submit(2)
    assert w.cycle().reserved
    assert found(w) == []


# What cannot happen, and is looked for all the same.


@examples(30)
@given(operations)
def test_no_circle_and_no_gang_in_part_ever_come_about(history):
    w = play(small_world(), history)
    assert all(d < job.id for job in w.state.jobs.values() for d in job.unmet)
    assert {a.code for a in alerts(w.state, w.now, w.last_plan)} & {"dependency_cycle", "gang_in_part"} == set()


def forged(w, **jobs):
    """Put values into the state that no event could."""
    for name, fields in jobs.items():
        job_id = int(name[1:])
        after = tuple(Dependency(i, "after_any") for i in fields.get("unmet", ()))
        w.state.jobs[job_id] = replace(w.job(job_id), spec=replace(w.job(job_id).spec, after=after), **fields)
    return [a for a in alerts(w.state, w.now) if a.code in ("dependency_cycle", "gang_in_part")]


def test_a_circle_of_dependencies_would_be_found():
    w = cluster(1, 4)
    for _ in range(5):
        w.submit(1)
    (one,) = forged(w, j1={"unmet": (3,)}, j2={"unmet": (1, 4)}, j3={"unmet": (2,)}, j4={"unmet": (9,)})
    assert (one.code, one.job_ids, one.count) == ("dependency_cycle", (1, 2, 3), 3)
    assert one.text == "jobs wait for each other: 1 -> 3 -> 2 -> 1"
    assert one.resolve == "cancel one of them: penstock cancel 3"


def test_a_job_that_waits_for_itself_would_be_found():
    w = cluster(1, 4)
    w.submit(1)
    assert [a.text for a in forged(w, j1={"unmet": (1,)})] == ["jobs wait for each other: 1 -> 1"]


def test_two_circles_would_be_found_once_each():
    w = cluster(1, 4)
    for _ in range(4):
        w.submit(1)
    circles = forged(w, j1={"unmet": (2,)}, j2={"unmet": (1,)}, j3={"unmet": (4,)}, j4={"unmet": (3,)})
    assert [a.job_ids for a in circles] == [(1, 2), (3, 4)]


def test_a_later_dependency_without_a_way_back_is_no_circle():
    w = cluster(1, 4)
    for _ in range(3):
        w.submit(1)
    assert forged(w, j1={"unmet": (2, 3)}, j2={"unmet": (3,)}) == []


def test_a_gang_that_held_only_part_would_be_found():
    w = cluster(1, 4)
    w.run(w.submit(1, 2), w.submit(1))
    attempt = w.job(1).attempt
    (one,) = forged(w, j1={"attempt": replace(attempt, replicas=attempt.replicas[:1])})
    assert (one.code, one.job_ids) == ("gang_in_part", (1,))
    assert one.text == "holds places, but its attempt has 1 of 2 replicas"
    (one,) = forged(w, j1={"attempt": None, "state": "waiting"})
    assert one.text == "holds places, but its attempt has 0 of 2 replicas"


# Bounds and properties.


def test_an_alert_names_only_the_first_jobs(monkeypatch):
    monkeypatch.setattr(stuck, "ALERT_JOBS_MAX", 2)
    w = World(node("a", 2), allow_waiting_for_nodes=True)
    for _ in range(3):
        w.submit(4)
    (one,) = alerts(w.state, w.now)
    assert (one.job_ids, one.count) == ((1, 2), 3)


def test_there_are_only_so_many_alerts(monkeypatch):
    monkeypatch.setattr(stuck, "ALERTS_MAX", 1)
    w = World(node("a", 2), allow_waiting_for_nodes=True)
    w.submit(1, after=(Dependency(w.submit(4), "after_ok"),))
    assert [a.code for a in alerts(w.state, w.now)] == ["never_fits"]


@examples(50)
@given(st.integers(0, 2**32))
def test_what_is_said_never_to_start_does_not_start_when_all_else_is_gone(seed):
    """And what is not said to be stuck does start alone, unless a turn or a dependency is in its way."""
    w = crowded(seed)
    told = alerts(w.state, w.now, w.last_plan)
    assert all(a.code in ALERTS and a.text and a.resolve and a.job_ids for a in told)
    # A job that has waited too long may take of the reserve: the cycle looks after it before it counts reserves.
    unsure = {i for a in told if a.code == "reserve_never" for i in a.job_ids}
    never = {i for a in told if a.code not in ("behind_stuck", "reserved_without_end") for i in a.job_ids} - unsure
    for job in [j for j in w.state.jobs.values() if j.state == "waiting" and not j.unmet]:
        alone = crowded(seed)
        for other in list(alone.state.jobs):
            if other != job.id and other in alone.state.jobs:
                alone.cancel(other)
        for other in sorted(alone.state.indexes.active):
            alone.leave(other)
        assert list(alone.state.jobs) == [job.id]
        soon_ms = max(w.now, job.not_before_ms)
        starts = [s.job_id for s in plan(take_snapshot(alone.state), soon_ms).starts]
        windows = any(r.end_ms > w.now and r.tenant != job.spec.tenant for r in w.state.config.reservations)
        assert starts == [] if job.id in never else windows or job.id in unsure or starts == [job.id], job


def test_a_program_that_hangs_is_told_as_long_as_it_does():
    w = cluster(1, 1)
    job = w.submit()
    w.run(job)
    w.commit(lambda tx: tx.emit(HangFound(job, 1, 7, (0,), "rank 0 is stopped", 9_000)))
    assert [(a.code, a.job_ids, a.text) for a in alerts(w.state, w.now)] == [
        ("hung", (job,), "makes no step: rank 0 is stopped")
    ]
    w.commit(lambda tx: tx.emit(ProgressNoted(job, 1, 8, Gauges())))
    assert alerts(w.state, w.now) == ()


def test_a_node_that_was_closed_for_its_failures_is_told():
    w = cluster(2, 1)
    w.drain("n0")
    w.commit(lambda tx: tx.emit(NodeDrainChanged("n1", True, CHECKED_BY, "3 failures")))
    assert [(a.code, a.text) for a in alerts(w.state, w.now)] == [("node_closed", "node n1 takes no work: 3 failures")]


def test_a_node_whose_disk_is_full_is_told_with_what_helps():
    w = cluster(1, 1)
    w.report("n0", disk_problem="its disk is full: 0 B are free")
    text = "node n0 takes no work: its disk is full: 0 B are free"
    assert [(a.code, a.text, a.resolve) for a in alerts(w.state, w.now)] == [
        ("node_disk", text, "free room where n0 has its data folder; it then opens automatically")
    ]


def test_a_job_that_fits_only_on_a_node_shut_to_its_tenant_is_told_so():
    w = cluster(1, 1, tenants=(Tenant("a"), Tenant("b")))
    w.emit(NodeShut("n0", "a", "claims"))
    shut, other = w.submit(tenant="a"), w.submit(tenant="b")
    text = "fits only on nodes that take no work now: n0 (shut to its tenant)"
    assert [(a.code, a.job_ids, a.text) for a in alerts(w.state, w.now)] == [("nodes_away", (shut,), text)]
    assert other


def test_whoever_waits_for_an_array_with_a_stuck_job_is_behind_it():
    w = World(node("a", 2), allow_waiting_for_nodes=True)
    for devices in (1, 4, 1):
        w.submit(devices)
    dependent = w.submit(1, after=(Dependency(1, "after_any", 3),))
    never, behind = alerts(w.state, w.now)
    assert (never.job_ids, behind.code, behind.job_ids) == ((2,), "behind_stuck", (dependent,))
    assert behind.text == "wait for job 2, which can never start"


def test_jobs_of_a_tenant_without_money_are_named_with_the_reason_and_what_helps():
    w = cluster(1, 1, tenants=(Tenant("default"), Tenant("b"), Tenant("c")))
    held, other = [w.submit(tenant="b"), w.submit(tenant="b")], w.submit(tenant="c")
    w.emit(TenantHeld("b", "balance", "tenant b has no credit left: its balance is -1.00 EUR"))
    (alert,) = alerts(w.state, w.now)
    assert (alert.code, alert.job_ids, alert.count) == ("tenant_held", tuple(held), 2)
    assert alert.text == "tenant b has no credit left: its balance is -1.00 EUR"
    assert alert.resolve == "add credit: penstock money credit b AMOUNT --reference REFERENCE"
    assert alerts(w.state, w.now, tenants={"c"}) == ()
    assert other
    w.emit(TenantReleased("b"))
    assert alerts(w.state, w.now) == ()


@pytest.mark.parametrize(
    ("reason", "resolve"),
    [
        ("budget:sprint", "raise budget sprint of tenant b, or wait until its period ends"),
        ("device_hours", "raise device_hours of tenant b, or wait until the month ends"),
    ],
)
def test_what_helps_a_held_tenant_goes_by_the_reason(reason, resolve):
    w = cluster(1, 1, tenants=(Tenant("b"),))
    w.submit(tenant="b")
    w.emit(TenantHeld("b", reason, "it is spent"))
    assert [(a.code, a.resolve) for a in alerts(w.state, w.now)] == [("tenant_held", resolve)]


def test_a_held_tenant_with_nothing_that_waits_is_no_alert():
    w = cluster(1, 1, tenants=(Tenant("b"),))
    w.run(w.submit(tenant="b"))
    w.emit(TenantHeld("b", "balance", "tenant b has no credit left"))
    assert alerts(w.state, w.now) == ()


def test_closed_devices_are_told_by_node_with_how_they_open():
    w = cluster(2, 4)
    w.report("n1", faults=tuple(DeviceFault(i, "xid", f"Xid {i}") for i in (0, 1, 2, 3)))
    w.emit(DeviceClosed("n0", 2, "closed", "fan", "op"))
    assert [(a.code, a.text, a.resolve) for a in alerts(w.state, w.now)] == [
        ("device_closed", "1 device of n0 is closed: fan (device 2)", "penstock devices open n0 2"),
        (
            "device_closed",
            "4 devices of n1 are closed: Xid 0; Xid 1; Xid 2; ... (devices 0, 1, 2, 3)",
            "it is opened once it stays without a fault (`device_open_after`); or: penstock devices open n1 0",
        ),
    ]
    w.lose("n1")
    assert [a.text for a in alerts(w.state, w.now) if a.code == "device_closed"] == [
        "1 device of n0 is closed: fan (device 2)"
    ]
