"""Capacity kept for later: windows of nodes for a tenant, and the part of a pool that only preemptible jobs use."""

import pytest

from penstock.core.explain import explain
from penstock.core.model.cluster import Pool, Queue, Reservation, Tenant
from penstock.core.model.events import RunTimesPredicted
from penstock.core.place.gang import NoFit, place_gang
from penstock.core.place.holds import lesser
from penstock.testing.builders import ask, node, queues
from penstock.testing.harness import World, cluster, finish

MINUTE, HOUR = 60_000, 3_600_000
STEPS = {"least_attained_step_device_ms": MINUTE, "starvation_ratio": 0}
"""Settings of a queue of least attained service."""
BEGIN = 1_000_000 + 10 * MINUTE
END = BEGIN + 10 * MINUTE


def kept(*nodes, tenant="t", start_ms=BEGIN, end_ms=END, name="r"):
    return Reservation(name, tenant, start_ms, end_ms, nodes)


def world(*nodes, windows=(), **fields):
    """Return a world whose clock stands ten minutes before the window begins."""
    names = tuple(Tenant(name) for name in ("default", "t", "u"))
    return World(*nodes, tenants=names, reservations=windows or (kept("a"),), **fields)


def started(found):
    return [(s.job_id, s.places[0].node) for s in found.starts]


@pytest.mark.parametrize(("at_ms", "nodes"), [(BEGIN - 1, []), (BEGIN, []), (END - 1, []), (END, ["a"])])
def test_a_window_keeps_its_nodes_from_others_until_it_ends(at_ms, nodes):
    w = world(node("a", 1))
    w.submit(1)
    w.now = at_ms
    assert [name for _, name in started(w.plan())] == nodes


@pytest.mark.parametrize("at_ms", [BEGIN - 1, BEGIN, END - 1, END])
def test_the_tenant_itself_may_always_use_them(at_ms):
    w = world(node("a", 1))
    job = w.submit(1, tenant="t")
    w.now = at_ms
    assert started(w.plan()) == [(job, "a")]


@pytest.mark.parametrize(("length_ms", "goes"), [(8 * MINUTE, True), (11 * MINUTE, False), (0, False)])
def test_before_the_window_only_what_has_ended_by_then_goes_there(length_ms, goes):
    w = world(node("a", 1))
    job = w.submit(1, estimated_duration_ms=length_ms)
    assert started(w.plan()) == ([(job, "a")] if goes else [])


def test_other_nodes_are_not_concerned():
    w = world(node("a", 1), node("b", 1))
    jobs = [w.submit(1), w.submit(1)]
    assert started(w.plan()) == [(jobs[0], "b")]


def test_a_job_that_waits_for_a_window_is_told_that_it_is_kept_back():
    w = world(node("a", 1))
    job = w.submit(1)
    assert [(v.first, v.code, v.blocker) for v in w.plan().verdicts.values()] == [(job, "kept_back", None)]
    w.now = BEGIN
    assert [(v.first, v.code) for v in w.plan().verdicts.values()] == [(job, "no_fit")]


def test_two_windows_one_after_the_other_keep_from_both_sides():
    first, second = kept("a"), kept("a", tenant="u", start_ms=END, end_ms=END + MINUTE, name="s")
    w = world(node("a", 1), windows=(first, second))
    w.submit(1, tenant="t")  # nobody knows how long it runs: into the window of u
    assert started(w.plan()) == []
    fits = w.submit(1, tenant="t", estimated_duration_ms=15 * MINUTE)
    assert started(w.plan()) == [(fits, "a")]


def test_a_window_on_a_node_that_is_not_there_harms_nobody():
    w = world(node("b", 1), windows=(kept("gone"),))
    w.submit(1)
    assert [name for _, name in started(w.plan())] == ["b"]


def test_reserved_nodes_are_counted_as_such():
    w = world(node("a", 1))
    free = w.free()
    free.change(0, free.free_of(0)._replace(kept_for="t"))
    assert place_gang(ask(1), free) == NoFit((("reserved", 1),), 0)
    assert not isinstance(place_gang(ask(1), free, "t"), NoFit)


def test_what_is_kept_for_two_tenants_is_for_neither():
    free = world(node("a", 1)).free().free_of(0)
    one, other = free._replace(kept_for="t"), free._replace(kept_for="u")
    assert lesser(one, other).closed == "reserved"
    assert (lesser(one, free).kept_for, lesser(free, one).kept_for) == ("t", "t")
    assert lesser(one, one).closed == ""


def test_a_starving_job_does_not_run_into_a_window():
    w = world(node("a", 1), starvation_after_ms=MINUTE)
    w.submit(1)
    w.now += MINUTE
    assert w.plan().starts == ()


# The pool's own reserve.


def reserve(share_milli, devices=10, **fields):
    return cluster(1, devices, pools=(Pool("default", reserve_milli=share_milli),), **fields)


def test_jobs_that_are_not_preemptible_leave_the_reserve_alone():
    w = reserve(200)
    jobs = [w.submit(1, preemptible=False) for _ in range(10)]
    found = w.cycle()
    assert [s.job_id for s in found.starts] == jobs[:8]
    assert [(v.first, v.code) for v in found.verdicts.values()] == [(jobs[8], "reserve")]


def test_preemptible_jobs_use_it():
    w = reserve(200)
    for _ in range(10):
        w.submit(1)
    assert len(w.cycle().starts) == 10


def test_what_preemptible_jobs_hold_does_not_count_against_the_others_twice():
    w = reserve(200)
    w.run(*[w.submit(1) for _ in range(4)])
    for _ in range(6):
        w.submit(1, preemptible=False)
    assert len(w.cycle().starts) == 4


def test_jobs_without_devices_are_not_bound_by_a_reserve_of_devices():
    w = reserve(1_000)
    w.submit(0, preemptible=False)
    assert len(w.cycle().starts) == 1


# Taking turns: a queue of least attained service admits no more than it can serve.


def test_a_least_attained_queue_admits_up_to_its_load():
    las = (Queue("default", policy="least_attained"),)
    w = cluster(1, 4, queues=las, admission_milli=1_500)
    jobs = [w.submit(2) for _ in range(4)]
    found = w.cycle()
    assert [s.job_id for s in found.starts] == jobs[:2]
    w.start(*jobs[:2])
    said = {v.first: v.code for v in w.plan().verdicts.values()}
    assert said == {jobs[2]: "no_fit"}  # 4 + 2 of 6 admitted: it waits for room
    w.submit(4, cpus=2)
    assert {v.code for v in w.plan().verdicts.values()} == {"no_fit", "admission"}


def test_without_an_admission_limit_every_job_may_have_its_turn():
    w = cluster(1, 4, queues=queues("default", policy="least_attained"), admission_milli=0)
    w.run(w.submit(4))
    late = w.submit(4)
    assert {v.first: v.code for v in w.plan().verdicts.values()} == {late: "no_fit"}
    assert "admission" not in {c.code for c in explain(w.state, w.job(late), w.now).constraints}


def test_who_was_served_less_takes_the_place_of_who_was_served_more():
    las = queues("default", policy="least_attained")
    w = cluster(1, 1, queues=las, least_attained_step_device_ms=MINUTE)
    old = w.submit(1)
    w.run(old)
    w.now += 2 * MINUTE
    new = w.submit(1)
    assert [(p.victim, p.beneficiary, p.rule) for p in w.cycle().preemptions] == [(old, new, "less_service")]
    w.leave(old)
    w.run(new)
    assert w.cycle().preemptions == ()


def test_a_job_that_waited_keeps_its_place_for_as_long():
    """A job that starts after a long wait could else be stopped again at the same moment, for ever."""
    turns = {"least_attained_turn_milli": 1_000, "starvation_after_ms": HOUR}
    w = cluster(1, 2, queues=queues("default", policy="least_attained"), **STEPS, **turns)
    old = w.submit(2)
    w.run(old)
    w.now += 10 * MINUTE
    other = w.submit(2)
    w.cycle()
    w.leave(old)
    w.run(other)
    w.now += 2 * HOUR
    new = w.submit(2, preemptible=False)
    finish(w, other)
    assert [s.job_id for s in w.cycle().starts] == [old], "it starves"
    assert w.cycle().preemptions == (), "not even while it starts"
    w.start(old)
    (said,) = [c for c in explain(w.state, w.job(new), w.now).constraints if c.code == "min_runtime"]
    assert said.text == f"job {old} may be asked to leave in 2h: it has not run for as long as it waited"
    w.now += 2 * HOUR - 1
    found = w.cycle()
    assert (found.preemptions, found.again_ms) == ((), w.now + 1)
    w.now += 1
    assert [(p.victim, p.beneficiary) for p in w.cycle().preemptions] == [(old, new)]


def test_time_alone_raises_the_level_of_a_running_job():
    """The plan names the moment: a submit of another job alike calls for no cycle."""
    las = queues("default", policy="least_attained")
    w = cluster(1, 2, queues=las, **STEPS, least_attained_turn_milli=0)
    old = w.submit(2)
    w.run(old)
    new = w.submit(1)
    found = w.cycle()
    assert (found.preemptions, found.again_ms) == ((), w.now + MINUTE // 2)
    w.now = found.again_ms
    assert [(p.victim, p.beneficiary) for p in w.cycle().preemptions] == [(old, new)]


def test_without_turns_a_job_that_was_served_less_goes_at_once():
    las = queues("default", policy="least_attained")
    w = cluster(1, 1, queues=las, **STEPS, least_attained_turn_milli=0)
    old = w.submit(1)
    w.now += HOUR
    w.run(old)
    w.now += 2 * MINUTE
    new = w.submit(1)
    assert [(p.victim, p.beneficiary) for p in w.cycle().preemptions] == [(old, new)]


@pytest.mark.parametrize(
    ("predicted", "minutes", "goes"),
    [(False, 8, True), (False, 11, False), (True, 4, True), (True, 6, False)],
)
def test_a_start_that_rests_on_predicted_ends_is_passed_only_in_half_of_its_time(predicted, minutes, goes):
    """The job of 3 starts when that of 1 has ended, in 10 minutes: by its declaration, or as those like it did."""
    w = cluster(1, 3, queues=queues("default", policy="fifo"))
    running = w.submit(1, estimated_duration_ms=0 if predicted else 10 * MINUTE)
    w.run(running)
    if predicted:
        w.emit(RunTimesPredicted(((running, 10 * MINUTE, 20 * MINUTE),)))
    first = w.submit(3)
    later = w.submit(1, estimated_duration_ms=minutes * MINUTE)
    found = w.plan()
    assert [r.job_id for r in found.reserved] == [first]
    assert [s.job_id for s in found.starts] == [later] * goes
