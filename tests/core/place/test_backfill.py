"""Backfill: a later job goes ahead exactly when it delays none that comes before it."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.explain import explain
from penstock.core.model.cluster import Pool, Settings
from penstock.core.model.events import ConfigChanged
from penstock.core.place.capacity import empty
from penstock.testing.builders import job_spec, node, queues
from penstock.testing.harness import World, cluster, finish, follow
from tests.properties import examples

MINUTE = 60_000
NEVER = 10**12


def world(*nodes, rule="easy", **fields):
    fifo = queues("default", policy="fifo", preemption="never")
    pools = (Pool("default", backfill=rule, placement="best_fit"),)
    return World(*nodes, pools=pools, queues=fifo, starvation_after_ms=NEVER, **fields)


def started(found):
    return [s.job_id for s in found.starts]


def reserved(found):
    return {r.job_id: r.start_ms for r in found.reserved}


def half_full(rule="easy", length_ms=16_384):
    """Return a node of 4 with 2 devices held until `length_ms` from now, and a job of 4 that waits for them."""
    w = world(node("a", 4), rule=rule)
    w.run(w.submit(2, estimated_duration_ms=length_ms))
    return w, w.submit(4)


@pytest.mark.parametrize(("length_ms", "goes"), [(16_384, True), (16_385, False), (0, False), (1_000, True)])
def test_a_later_job_starts_exactly_if_it_ends_before_the_reserved_start(length_ms, goes):
    w, blocked = half_full()
    later = w.submit(2, estimated_duration_ms=length_ms)
    found = w.plan()
    assert started(found) == ([later] if goes else [])
    assert reserved(found) == {blocked: w.now + 16_384}
    assert {v.first: (v.code, v.blocker) for v in found.verdicts.values()} == {
        blocked: ("no_fit", None),
        **({} if goes else {later: ("kept_back", blocked)}),
    }


def test_time_that_passes_leaves_less_room_for_backfill():
    w, _ = half_full()
    w.now += 8_193
    w.submit(2, estimated_duration_ms=8_192)
    assert started(w.plan()) == []
    w.now -= 1
    assert len(w.plan().starts) == 1


def test_a_later_job_may_run_for_ever_beside_the_reserved_one():
    w = world(node("a", 4), node("b", 1))
    w.run(w.submit(2, estimated_duration_ms=MINUTE))
    w.submit(4)
    beside = w.submit(1, cpus=2)
    assert started(w.plan()) == [beside]
    assert w.plan().starts[0].places[0].node == "b"


def test_what_the_reserved_job_leaves_on_its_own_node_may_be_used_for_ever():
    w = world(node("a", 4))
    w.run(w.submit(2, estimated_duration_ms=MINUTE))
    w.submit(3)
    one, other = w.submit(1), w.submit(1)
    found = w.plan()
    assert started(found) == [one]
    assert {v.first: v.code for v in found.verdicts.values()}[other] == "kept_back"


def test_host_resources_are_kept_too():
    w = world(node("a", 0, cpus=4))
    w.run(w.submit(0, cpus=3, estimated_duration_ms=MINUTE))
    w.submit(0, cpus=4)
    w.submit(0, cpus=1)
    assert started(w.plan()) == []


def test_without_backfill_nothing_is_kept():
    w, _ = half_full("none")
    later = w.submit(2)
    assert started(w.plan()) == [later]
    assert w.plan().reserved == ()


def test_no_reservation_is_worked_out_while_nobody_could_profit():
    w = world(node("a", 2))
    w.run(w.submit(2, estimated_duration_ms=MINUTE))
    w.submit(2)
    assert w.plan().reserved == ()


def test_a_job_behind_runs_of_unknown_length_has_no_reservation():
    w = world(node("a", 4))
    w.run(w.submit(2))
    w.submit(4)
    later = w.submit(2)
    found = w.plan()
    assert (started(found), found.reserved) == ([later], ())


def test_an_overdue_run_is_expected_to_end_at_once():
    w, blocked = half_full()
    w.now += MINUTE
    w.submit(2, estimated_duration_ms=MINUTE)
    found = w.plan()
    assert (started(found), reserved(found)) == ([], {blocked: w.now + 1})


def test_a_start_of_the_same_cycle_counts_as_one_that_ends_again():
    w = world(node("a", 4))
    w.submit(2, estimated_duration_ms=16_384)
    blocked = w.submit(4)
    w.submit(2, estimated_duration_ms=16_385)
    found = w.plan()
    assert (started(found), reserved(found)) == ([1], {blocked: w.now + 16_384})


def test_easy_keeps_room_for_the_first_job_only():
    w = world(node("a", 4), node("b", 4))
    w.run(w.submit(3, estimated_duration_ms=MINUTE), w.submit(3, estimated_duration_ms=2 * MINUTE))
    first, _ = w.submit(4), w.submit(4, cpus=2)
    later = w.submit(1)
    found = w.plan()
    assert (started(found), reserved(found)) == ([later], {first: w.now + MINUTE})


def test_conservative_keeps_room_for_all_of_them():
    w = world(node("a", 4), node("b", 4), rule="conservative")
    w.run(w.submit(3, estimated_duration_ms=MINUTE), w.submit(3, estimated_duration_ms=2 * MINUTE))
    first, second = w.submit(4), w.submit(4, cpus=2)
    w.submit(1)
    found = w.plan()
    assert (started(found), reserved(found)) == ([], {first: w.now + MINUTE, second: w.now + 2 * MINUTE})


def test_conservative_looks_behind_bookings_as_well():
    w = world(node("a", 2), rule="conservative")
    w.run(w.submit(1, estimated_duration_ms=8_192))
    first, second = w.submit(2, estimated_duration_ms=4_096), w.submit(2, cpus=2)
    w.submit(1, cpus=3)
    found = w.plan()
    assert reserved(found) == {first: w.now + 8_192, second: w.now + 8_192 + 4_096}


def test_conservative_keeps_no_more_bookings_than_its_depth():
    w = world(node("a", 2), rule="conservative", backfill_depth_max=1)
    w.run(w.submit(1, estimated_duration_ms=8_192))
    first, _ = w.submit(2, estimated_duration_ms=4_096), w.submit(2, cpus=2)
    w.submit(1, cpus=3)
    assert list(reserved(w.plan())) == [first]


def test_room_that_victims_leave_for_another_is_not_promised_a_second_time():
    from penstock.core.model.cluster import Queue

    tree = (Queue("default", policy="fifo", preemption="never"), Queue("high"))
    w = World(node("a", 4), queues=tree, pools=(Pool("default"),), root_policy="priority", starvation_after_ms=NEVER)
    low = w.submit(2, priority=100, estimated_duration_ms=MINUTE)
    stays = w.submit(1, priority=100, estimated_duration_ms=2 * MINUTE, preemptible=False)
    w.run(low, stays)
    high = w.submit(3, priority=900, queue="high", estimated_duration_ms=10 * MINUTE)
    blocked = w.submit(2, priority=500, estimated_duration_ms=MINUTE)
    w.submit(1, priority=200, estimated_duration_ms=MINUTE)
    found = w.plan()
    assert [(p.victim, p.beneficiary) for p in found.preemptions] == [(low, high)]
    assert reserved(found).get(blocked, NEVER) > w.now + MINUTE


# Whole runs with exact lengths: nobody is delayed.


def drawn(rnd, count):
    return [
        {
            "devices": rnd.randint(0, 4),
            "replicas": rnd.choice([1, 1, 1, 2, 3]),
            "cpus": rnd.randint(0, 4),
            "estimated_duration_ms": rnd.choice([1_024, 2_048, 4_096, 8_192, 16_384]),
        }
        for _ in range(count)
    ]


def simulate(w, rnd, jobs, promised):
    """Submit, plan and end jobs at exactly their length; `promised` gathers each job's first reserved start."""
    began = {}
    while jobs or w.state.jobs:
        for _ in range(min(len(jobs), rnd.choice([0, 1, 1, 3]))):
            w.request(job_spec(**jobs.pop()))
        found = w.cycle()
        for job_id, start_ms in reserved(found).items():
            promised.setdefault(job_id, start_ms)
        follow(w)
        began |= dict.fromkeys(started(found), w.now)
        ends = {j: w.job(j).attempt.allocated_ms + w.job(j).spec.estimated_duration_ms for j in w.state.indexes.active}
        w.now = min([*ends.values(), w.now + (3_000 if jobs else NEVER)])
        for job_id in sorted(j for j, end_ms in ends.items() if end_ms <= w.now):
            finish(w, job_id)
    return began


@examples(60)
@given(st.integers(0, 2**32))
def test_with_exact_lengths_a_reserved_job_never_starts_later_than_promised(seed):
    rnd = random.Random(seed)
    w = world(node("a", 4, cpus=6), node("b", 4, cpus=4), node("c", 2, cpus=4))
    promised: dict[int, int] = {}
    began = simulate(w, rnd, drawn(rnd, 25), promised)
    assert {j: (began[j], at) for j, at in promised.items() if began[j] > at} == {}


def holdings(w, found):
    """Return (from, until, ask, places) of everything that runs, starts or is booked by a plan."""
    held = []
    for job in w.state.indexes.active.values():
        ends = job.attempt.allocated_ms + job.spec.estimated_duration_ms
        held.append((w.now, max(ends, w.now + 1), job.ask, [r.place for r in job.attempt.replicas]))
    for start in found.starts:
        held.append((w.now, w.now + w.job(start.job_id).spec.estimated_duration_ms, start.ask, start.places))
    for kept in found.reserved:
        job = w.job(kept.job_id)
        held.append((kept.start_ms, kept.start_ms + job.spec.estimated_duration_ms, job.spec.ask, kept.places))
    return held


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from(["easy", "conservative"]))
def test_what_runs_starts_and_is_booked_never_meets(seed, rule):
    """At each moment at which something begins, all that is there then has a place of its own."""
    rnd = random.Random(seed)
    w = world(node("a", 4, cpus=6), node("b", 4, cpus=4), node("c", 2, cpus=4), rule=rule)
    jobs, booked = drawn(rnd, 25), 0
    for _ in range(25):
        for _ in range(min(len(jobs), rnd.choice([0, 1, 3]))):
            w.request(job_spec(**jobs.pop()))
        found = w.plan()
        held = holdings(w, found)
        booked += len(found.reserved)
        for moment in {start for start, *_ in held}:
            free = w.free()
            free.sync(w.state.indexes.nodes, {n: empty(f.shape) for n, f in w.state.indexes.free.items()})
            for start, end, gang, places in held:
                if start <= moment < end:
                    free.take(gang, places)
            taken = [
                chip for start, end, _, places in held if start <= moment < end for p in places for chip in all_of(p)
            ]
            assert len(taken) == len(set(taken))
            assert all(free.free_of(i).cpu_milli >= 0 for i in range(3))
        w.apply(found)
        follow(w)
        w.now += rnd.choice([512, 1_024, 4_096])
        for job in sorted(w.state.indexes.active.values(), key=lambda j: j.id):
            if job.attempt.allocated_ms + job.spec.estimated_duration_ms <= w.now:
                finish(w, job.id)


def all_of(place):
    return [(place.node, index) for index in place.devices]


def test_room_found_only_before_a_reserved_start_is_not_taken_from_those_ahead():
    """The short job fits only where something is kept already; the one ahead of it gets its booking first."""
    w = world(node("a", 6), rule="conservative")
    w.run(w.submit(3, estimated_duration_ms=8_192))
    first = w.submit(4, estimated_duration_ms=1_024)
    now_too = w.submit(1, estimated_duration_ms=4_096)
    second = w.submit(3, estimated_duration_ms=1_024)
    long = w.submit(2, estimated_duration_ms=7_000)
    found = w.plan()
    assert started(found) == [now_too]
    assert reserved(found) == {first: w.now + 8_192, second: w.now + 4_096}
    assert {v.first: v.code for v in found.verdicts.values()}[long] == "kept_back"


def test_a_job_that_ends_before_a_booking_is_not_held_up_by_another_that_meets_it():
    """What `second` leaves beside it when it starts counts, not what is left once `first` has come as well."""
    w = world(node("a", 3, cpus=8), rule="conservative")
    w.run(w.submit(1, cpus=4, estimated_duration_ms=8_192), w.submit(1, cpus=2, estimated_duration_ms=16_384))
    first = w.submit(3, estimated_duration_ms=8_192)
    second = w.submit(0, cpus=5, estimated_duration_ms=32_768)
    short = w.submit(1, estimated_duration_ms=12_288)
    found = w.plan()
    assert started(found) == [short]
    assert reserved(found) == {first: w.now + 16_384, second: w.now + 8_192}


def test_bookings_that_meet_are_both_counted_when_the_later_one_starts():
    """Each alone would leave the long job its CPU; both together do not."""
    w = world(node("a", 2, cpus=6), rule="conservative")
    w.run(w.submit(2, cpus=3, estimated_duration_ms=8_192), w.submit(0, cpus=2, estimated_duration_ms=16_384))
    first = w.submit(0, cpus=5, estimated_duration_ms=8_192)
    second = w.submit(2, cpus=1, estimated_duration_ms=32_768)
    w.submit(0, cpus=1, estimated_duration_ms=49_152)
    found = w.plan()
    assert started(found) == []
    assert reserved(found) == {first: w.now + 16_384, second: w.now + 8_192}


def test_a_booked_job_takes_such_places_as_a_start_does():
    """Both leave alone what is kept for later while there are others, so the start comes where it was booked."""
    w = world(node("a", 6), rule="conservative")
    long, ends = w.submit(3, estimated_duration_ms=16_384), w.submit(3, estimated_duration_ms=4_096)
    w.run(long, ends)
    w.submit(4, estimated_duration_ms=8_192)
    short = w.submit(2, estimated_duration_ms=4_096)
    w.submit(0, estimated_duration_ms=1_024)
    booked = {kept.job_id: kept.places for kept in w.plan().reserved}
    assert booked[short][0].devices == (4, 5)
    w.now += 4_096
    finish(w, ends)
    assert {start.job_id: start.places for start in w.plan().starts}[short] == booked[short]


@examples(40)
@given(st.integers(0, 2**32))
@example(18)
@example(328)
@example(336)
def test_conservative_backfill_breaks_no_promise_on_one_node_of_equal_devices(seed):
    """What is booked anew in each cycle comes out as it was, or earlier, however many went ahead in between."""
    rnd = random.Random(seed)
    w = world(node("a", 6), rule="conservative")
    promised: dict[int, int] = {}
    began = simulate(w, rnd, [job | {"replicas": 1, "cpus": 0} for job in drawn(rnd, 25)], promised)
    assert {j: (began[j], at) for j, at in promised.items() if began[j] > at} == {}


@examples(30)
@given(st.integers(0, 2**32))
def test_conservative_backfill_delays_nobody_beyond_plain_order(seed):
    """Each job starts no later than if every job waited for all before it to have started."""
    rnd = random.Random(seed)
    jobs = [job | {"replicas": 1} for job in drawn(rnd, 12)]
    w = world(node("a", 4, cpus=8), rule="conservative")
    ids = [w.submit(**fields) for fields in jobs]
    began = simulate(w, rnd, [], {})
    plain = in_plain_order(jobs)
    assert all(began[job] <= w_start for job, w_start in zip(ids, plain, strict=True))


def in_plain_order(jobs):
    """Return when each job starts on one node of 4 devices and 8 cores if none goes past another."""
    now, running, starts = 1_000_000, [], []
    for fields in jobs:
        while True:
            devices = sum(r["devices"] * r["replicas"] for _, r in running)
            cpus = sum(r["cpus"] * r["replicas"] for _, r in running)
            fits = (
                devices + fields["devices"] * fields["replicas"] <= 4
                and cpus + fields["cpus"] * fields["replicas"] <= 8
            )
            if fits:
                break
            now = min(end for end, _ in running)
            running = [(end, r) for end, r in running if end > now]
        starts.append(now)
        running.append((now + fields["estimated_duration_ms"], fields))
    return starts


def test_a_full_cluster_runs_through_in_order():
    w = cluster(1, 1, queues=queues("default", policy="fifo"))
    jobs = [{"devices": 1, "estimated_duration_ms": 1_000} for _ in range(4)]
    began = simulate(w, random.Random(0), jobs, {})
    assert sorted(began) == sorted(began, key=began.__getitem__)


def test_nobody_passes_the_first_job_of_a_strict_pool():
    w, first = half_full("strict")
    later = w.submit(1, estimated_duration_ms=1_000)
    found = w.cycle()
    assert (started(found), found.reserved) == ([], ())
    verdicts = {v.first: (v.code, v.blocker) for v in found.verdicts.values()}
    assert verdicts == {first: ("no_fit", None), later: ("kept_back", first)}
    (said,) = [c for c in explain(w.state, w.job(later), w.now).constraints if c.code == "kept_back"]
    assert said.text == f"pool default is strict: no job passes job {first}, which comes first and does not fit yet"
    finish(w, 1)
    assert started(w.cycle()) == [first]


def test_nobody_passes_a_starving_job_of_a_strict_pool():
    w, first = half_full("strict")
    w.emit(ConfigChanged(replace(w.state.config, settings=Settings(starvation_after_ms=MINUTE)), "op"))
    w.now += MINUTE
    later = w.submit(1, estimated_duration_ms=1_000)
    found = w.cycle()
    verdicts = {v.first: (v.code, v.blocker) for v in found.verdicts.values()}
    assert (started(found), verdicts) == ([], {first: ("no_fit", None), later: ("kept_back", first)})


def test_a_job_at_its_queues_maximum_bars_nobody_of_a_strict_pool():
    strict = (Pool("default", backfill="strict"),)
    w = cluster(1, 4, pools=strict, queues=(*queues("a", max=(("devices", 1_000),)), *queues("b")))
    w.run(w.submit(1, queue="a", priority=900))
    w.submit(1, queue="a", priority=900)
    other = w.submit(1, queue="b")
    assert started(w.cycle()) == [other]
