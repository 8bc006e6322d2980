"""Re-allocation of a pool's elastic jobs in a cycle: who gains gets, who loses little gives, and nothing thrashes."""

from msgspec.structs import replace

from penstock.core.cycle.resizing import LOOK_AGAIN_MS
from penstock.core.cycle.sizing import Sizing
from penstock.core.elastic.learned import LearnedSpeeds
from penstock.core.elastic.restarts import HOUR_MS, settle_ms
from penstock.core.explain.why import explain
from penstock.core.model.batching import BatchAsk, BatchChoice, BatchSeen, ElasticRule
from penstock.core.model.cluster import DEFAULT_POOL, Pool, Tenant
from penstock.core.model.events import CheckpointSaved
from penstock.core.model.progress import SizeNoted
from penstock.core.place.holds import Holds
from penstock.core.preempt.context import CycleContext
from penstock.core.state.invariants import violations
from penstock.testing.harness import cluster, cycles, finish, follow, note
from tests.core.elastic.test_elastic_plan import elastic, size

MINUTE, HOUR = 60_000, 3_600_000


def pool(*, rebalance=True, **rule):
    return Pool(DEFAULT_POOL, elastic=ElasticRule(rebalance=rebalance, **rule))


def shared(nodes=1, devices=4, **rule):
    """Return a world whose pool re-allocates."""
    return cluster(nodes, devices, pools=(pool(**rule),))


def speeds(w, job, *rates):
    """Let a running job have reported these rates at sizes 1, 2, ..."""
    told = w.job(job)
    model = told.attempt.model if told.attempt is not None else ""
    sizes = tuple(SizeNoted(at, w.now, rate, model=model) for at, rate in enumerate(rates, start=1))
    w.state._put(replace(told, progress=replace(told.progress, sizes=sizes)))


LINEAR, FLAT = (1_000, 2_000, 3_000, 4_000), (1_000, 1_001, 1_002, 1_003)


def running(w, *rates, minutes=10, **fields):
    """Return elastic jobs of 1 to 4 replicas that have run for a while, with these rates."""
    jobs = []
    for _ in rates:
        jobs.append(w.submit(gang=elastic(1, 4), **fields))
        w.run(jobs[-1])
    w.now += minutes * MINUTE
    for job, told in zip(jobs, rates, strict=True):
        speeds(w, job, *told)
    return jobs


def test_a_job_that_gains_nothing_gives_its_devices_to_one_that_does():
    w = shared()
    flat, steep = running(w, FLAT, LINEAR)
    cycles(w, 6, MINUTE)
    assert (size(w, flat), size(w, steep)) == (1, 3)


def test_without_rebalance_a_running_job_gives_nothing():
    w = shared(rebalance=False)
    flat, steep = w.submit(gang=elastic(1, 2)), w.submit(gang=elastic(1, 4))
    w.run(flat, steep)
    w.now += 10 * MINUTE
    speeds(w, flat, *FLAT[:2])
    assert cycles(w, 6, MINUTE) == []
    assert (size(w, flat), size(w, steep)) == (2, 2)


def test_both_sides_come_back_where_the_round_put_them_and_no_third_job_takes_the_places():
    w = shared()
    flat, steep = running(w, FLAT, LINEAR)
    planned = w.cycle()
    rooms = {room.job_id: room.places for order in planned.preemptions for room in order.rooms}
    assert {len(rooms[flat]), len(rooms[steep])} == {1, 3}
    third = w.submit(1, priority=900)
    w.leave(steep)
    assert w.cycle().starts == (), "its places are not free yet, and the others are kept"
    w.cancel(third)
    w.leave(flat)
    starts = w.cycle().starts
    assert {start.job_id: start.places for start in starts} == rooms


def test_a_rigid_job_gets_the_room_that_it_needs_and_no_more():
    w = shared(1, 8)
    first, second = running(w, LINEAR, LINEAR)
    cycles(w, 6, MINUTE)
    assert (size(w, first), size(w, second)) == (4, 4)
    rigid = w.submit(2)
    orders = w.cycle().preemptions
    assert {order.rule for order in orders} == {"rebalance"}
    assert rigid in {order.beneficiary for order in orders}
    follow(w)
    cycles(w, 3, 1_000)
    assert size(w, rigid) == 1
    assert size(w, first) + size(w, second) == 6


def test_where_no_round_helps_others_shrink_for_a_rigid_job_as_ever():
    w = shared(1, 4, restarts_per_hour=0)
    (job,) = running(w, LINEAR)
    held = size(w, job)
    rigid = w.submit(5 - held)
    assert cycles(w, 1, MINUTE) == []
    assert (job, rigid, "shrink") in cycles(w, 3, MINUTE)


def test_a_job_that_waits_gets_its_part_and_the_order_names_it():
    w = shared()
    first = w.submit(gang=elastic(1, 4))
    w.run(first)
    w.now += 10 * MINUTE
    cycles(w, 4, MINUTE)
    assert size(w, first) == 2, "what it has not tried yet is a guess"
    speeds(w, first, 1_000, 2_000)
    cycles(w, 4, MINUTE)
    assert size(w, first) == 4
    second = w.submit(gang=elastic(1, 4))
    planned = w.cycle()
    assert [(p.victim, p.beneficiary, p.rule) for p in planned.preemptions] == [(first, second, "rebalance")]
    follow(w)
    cycles(w, 2, 1_000)
    assert size(w, first) + size(w, second) <= 4
    assert size(w, second) >= 1


def test_restarts_of_one_job_in_an_hour_are_bounded():
    w = shared(restarts_per_hour=2)
    flat, steep = running(w, FLAT, LINEAR)
    changes = {flat: [], steep: []}
    for minute in range(120):
        for victim, _, rule in cycles(w, 1, MINUTE):
            assert rule == "rebalance"
            changes[victim].append(w.now)
        fast, slow = (LINEAR, FLAT) if minute % 2 else (FLAT, LINEAR)
        speeds(w, flat, *fast)
        speeds(w, steep, *slow)
    for times in changes.values():
        assert times
        assert all(later - earlier >= HOUR_MS for earlier, later in zip(times, times[2:], strict=False))


def settles(w, job):
    return settle_ms(w.job(job), w.attempt(job), w.state.config.settings)


def test_a_job_is_left_alone_as_long_as_a_restart_costs_it():
    w = shared()
    (job,) = running(w, LINEAR, minutes=0)
    assert settles(w, job) == MINUTE, "it has not reported from its size"
    w.now += 10_000
    note(w, job, step_ms=500)
    assert settles(w, job) == 2_000 + 10_000, "a save as assumed, and a start up to the first report as it was"
    for cost_ms, lasts_ms in ((40_000, 40_000), (90_000, MINUTE)):
        told = w.job(job)
        w.state._put(replace(told, progress=replace(told.progress, restart_ms=cost_ms)))
        assert settles(w, job) == lasts_ms


def test_what_it_reported_from_another_size_is_not_enough():
    w = shared()
    (job,) = running(w, LINEAR, minutes=0)
    note(w, job, step_ms=500)
    w.now += 2 * MINUTE
    w.cycle()
    follow(w)
    w.cycle()
    follow(w)
    assert size(w, job) > 1
    assert settles(w, job) == MINUTE


def test_a_period_of_a_millisecond_plays_no_round_at_each():
    w = cluster(1, 4, pools=(pool(),), elastic_growth_period_ms=1)
    running(w, FLAT, FLAT)
    w.now += HOUR
    assert w.plan().again_ms >= w.now + LOOK_AGAIN_MS


def test_none_restarts_where_none_is_allowed():
    w = shared(restarts_per_hour=0)
    running(w, FLAT, LINEAR)
    assert cycles(w, 10, MINUTE) == []


def test_steady_numbers_change_little():
    """Two that are alike and share seven devices take turns at the odd one, as each attains more service."""
    w = shared(2, 4)
    flat, *_ = running(w, FLAT, LINEAR, LINEAR)
    cycles(w, 30, MINUTE)
    asked = cycles(w, 60, MINUTE)
    assert len(asked) <= 4
    assert flat not in {victim for victim, _, _ in asked}


def test_a_rigid_job_that_waits_is_not_passed_by_growth():
    w = shared(1, 4)
    first, second = running(w, LINEAR, LINEAR)
    finish(w, second)
    rigid = w.submit(4, preempts=False)
    cycles(w, 10, MINUTE)
    assert size(w, first) <= 2
    assert w.phase(rigid) == "waiting"


def test_an_off_queue_keeps_its_sizes():
    w = cluster(1, 4, pools=(pool(mode="off"),))
    job = w.submit(gang=elastic(2, 4))
    w.run(job)
    cycles(w, 10, MINUTE)
    assert size(w, job) == 2


# Batches.

RANGE = BatchAsk(64, 1_024, 64)


def training(w, **fields):
    job = w.submit(gang=elastic(1, 4), batch=RANGE, **fields)
    w.run(job)
    w.emit(CheckpointSaved(job, w.attempt(job).number, 1))
    return job


def measured(w, job, *, noise, step=1):
    batch = w.attempt(job).batch
    replicas = len(w.attempt(job).replicas)
    seen = BatchSeen(batch.local, batch.accumulation, 6_000 + 100 * batch.local, 5_000 * (replicas > 1), noise)
    note(w, job, step, step_ms=100, batch=seen)


def test_a_job_starts_with_its_smallest_batch_divided_over_its_replicas():
    w = cluster(1, 4)
    job = training(w)
    assert (size(w, job), w.attempt(job).batch) == (4, BatchChoice(16))


def test_a_noisy_job_goes_on_with_a_larger_batch_where_it_is():
    w = cluster(1, 4)
    job = training(w)
    measured(w, job, noise=50_000)
    w.now += MINUTE
    (change,) = w.cycle().batches
    assert (change.job_id, w.attempt(job).number) == (job, 1)
    assert w.attempt(job).batch == change.batch == BatchChoice(64, 3)
    measured(w, job, noise=50_000, step=2)
    assert w.cycle().batches == ()


def test_a_batch_that_gains_little_is_left_as_it_is():
    w = cluster(1, 4)
    job = training(w)
    measured(w, job, noise=10)
    assert w.cycle().batches == ()


def test_a_job_of_little_noise_leaves_devices_to_one_of_much():
    w = shared(1, 4)
    calm, noisy = training(w), training(w)
    for minute in range(20):
        for job, noise in ((calm, 20), (noisy, 20_000)):
            if w.job(job).state == "running":
                measured(w, job, noise=noise, step=minute + 1)
        cycles(w, 1, MINUTE)
    assert (size(w, calm), size(w, noisy)) == (1, 3)


# What is said.


def told_of(w, job):
    return explain(w.state, w.job(job), w.now).text


def test_a_running_job_is_explained_with_what_it_gains_and_what_a_change_costs():
    w = shared(1, 4)
    (job,) = running(w, LINEAR)
    text = told_of(w, job)
    assert "it has 2 of 1 to 4 replicas and is 2.0 times as fast as with one, by samples, as reported" in text
    assert "one more would bring 50 %, and a restart costs 12s, as assumed" in text


def test_who_shrinks_is_told_for_whom_and_to_what():
    w = shared()
    flat, steep = running(w, FLAT, LINEAR)
    w.cycle()
    assert f"resized for job {steep}, by rule rebalance" in told_of(w, flat)
    assert "it goes on with 1 replica after" in told_of(w, flat)


def test_a_batch_is_explained():
    w = cluster(1, 4)
    job = training(w)
    assert "its batch is 64 samples, 16 a replica and pass" in told_of(w, job)


# Invariants.


def broken(w):
    return {found.promise for found in violations(w.state)}


def test_a_batch_outside_of_the_range_is_found():
    w = cluster(1, 4)
    job = training(w)
    attempt = w.attempt(job)
    w.state.jobs[job] = replace(w.job(job), attempt=replace(attempt, batch=BatchChoice(65)))
    assert "batches_are_within_range" in broken(w)


def test_too_many_restarts_are_found():
    w = shared(restarts_per_hour=1)
    running(w, FLAT, LINEAR)
    (victim, *_) = (order.victim for order in w.cycle().preemptions)
    assert broken(w) == set()
    w.state.jobs[victim] = replace(w.job(victim), changes_ms=(w.now, w.now))
    assert "rounds_restart_seldom" in broken(w)


def test_a_job_that_outlasts_what_was_expected_goes_on_as_long_as_it_has_run():
    w = cluster(1, 4)
    job = w.submit(gang=elastic(1, 4), estimated_duration_ms=10 * MINUTE)
    w.run(job)
    rests = []
    for _ in range(3):
        w.now += 6 * MINUTE
        rests.append(sizing_of(w).rest_ms(w.job(job)) // MINUTE)
    assert rests == [4, 12, 18]


def sizing_of(w):
    snapshot, planner = w.snapshot(), w.planner
    context = CycleContext(snapshot, w.now, planner.cluster, planner.tree, Holds(planner.cluster))
    return Sizing(context, LearnedSpeeds())


def test_what_a_job_grows_to_in_a_round_counts_for_its_tenant_until_it_is_back():
    w = cluster(1, 8, pools=(pool(),), tenants=(Tenant("t", max=(("devices", 4_000),)), Tenant("u")))
    others = w.submit(7, tenant="u")
    w.run(others)
    (grows,) = running(w, LINEAR, tenant="t")
    finish(w, others)
    assert [p.victim for p in w.cycle().preemptions] == [grows]
    promised = w.job(grows).room
    assert len(promised) == 4
    late = w.submit(1, tenant="t")
    assert w.cycle().starts == ()
    w.leave(grows)
    assert [(start.job_id, start.places) for start in w.cycle().starts] == [(grows, promised)]
    assert w.phase(late) == "waiting"


def test_a_job_does_not_enter_places_of_an_old_plan_that_a_round_has_given_out_since():
    w = shared()
    flat, steep = running(w, FLAT, LINEAR)
    held = {replica.place for replica in w.job(steep).attempt.replicas}
    w.cycle()
    promised = w.job(steep).room
    old = w.submit(1)
    w.state._put(replace(w.job(old), room_made=True, room=tuple(held & set(promised))[:1]))
    w.state.indexes.beneficiaries.add(old)
    w.leave(steep)
    assert w.cycle().starts == ()
    w.leave(flat)
    assert steep in {start.job_id for start in w.cycle().starts}
