"""Tenants that are held: nothing of them starts or grows, others are planned for as if their jobs were not there."""

import random

import pytest
from hypothesis import given

from penstock.core.cycle.planner import plan
from penstock.core.cycle.triggers import wakes
from penstock.core.cycle.verify import verify
from penstock.core.explain.why import explain
from penstock.core.lifecycle.money import decide
from penstock.core.messages.money import PostAccount
from penstock.core.model import events as ev
from penstock.core.model.cluster import Tenant
from penstock.core.model.jobs import CheckpointSpec, GangAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.state.snapshot import take_snapshot
from penstock.testing.builders import node, queues
from penstock.testing.harness import World, cluster, finish, follow
from penstock.testing.worlds import crowded
from tests.core.histories import operations, play
from tests.properties import examples

TENANTS = (Tenant("default"), Tenant("other"))


def hold(w, tenant="other", *, suspend=False):
    event = ev.TenantHeld(tenant, "balance", f"tenant {tenant} has no credit left", suspend)
    changed_seq = w.state.money.account(tenant).changed_seq
    w.commit(lambda tx: decide(tx, PostAccount(tenant, changed_seq, (event,))))


def release(w, tenant="other"):
    w.emit(ev.TenantReleased(tenant))


def two_tenants(nodes=1, devices=2, **fields):
    return cluster(nodes, devices, tenants=TENANTS, **fields)


def starts(found, w, tenant):
    return [s for s in found.starts if w.job(s.job_id).spec.tenant == tenant]


def test_nothing_of_a_held_tenant_starts_until_it_is_released():
    w = two_tenants()
    job = w.submit(1, tenant="other")
    hold(w)
    assert w.cycle().starts == ()
    assert w.phase(job) == "waiting"
    release(w)
    assert wakes(w.records[-1].event, w.state, w.last_plan)
    assert [s.job_id for s in w.cycle().starts] == [job]


def test_others_start_meanwhile_and_what_runs_goes_on():
    w = two_tenants()
    runs = w.submit(1, tenant="other")
    w.run(runs)
    hold(w)
    w.submit(1, tenant="other", priority=900)
    mine = w.submit(1)
    w.run(mine)
    assert (w.phase(runs), w.phase(mine)) == ("running", "running")


def test_a_plan_made_before_the_hold_starts_nothing_of_the_tenant_after_it():
    w = two_tenants()
    theirs, mine = w.submit(1, tenant="other"), w.submit(1)
    planned = w.plan()
    assert {s.job_id for s in planned.starts} == {theirs, mine}
    hold(w)
    kept = verify(planned, w.state)
    assert ([s.job_id for s in kept.starts], kept.dropped) == ([mine], 1)
    w.apply(planned)
    assert (w.phase(theirs), w.phase(mine)) == ("waiting", "starting")


def test_nobody_is_asked_to_leave_for_a_held_tenant():
    w = two_tenants(1, 1)
    low = w.submit(1, priority=100)
    w.run(low)
    w.now += 600_000
    w.submit(1, tenant="other", priority=900)
    assert [p.victim for p in w.plan().preemptions] == [low]
    hold(w)
    assert w.cycle().preemptions == ()


def test_room_that_was_made_for_a_held_tenant_is_free_for_others():
    w = two_tenants(1, 1)
    low = w.submit(1, priority=100)
    w.run(low)
    w.now += 600_000
    w.submit(1, tenant="other", priority=900)
    w.cycle()
    hold(w)
    w.leave(low)
    assert [s.job_id for s in w.cycle().starts] == [low]


def test_those_that_run_are_stopped_where_the_policy_suspends_and_use_no_retry():
    w = two_tenants(1, 4)
    jobs = [w.submit(1, tenant="other", retries_max=0) for _ in range(2)]
    mine = w.submit(1)
    w.run(*jobs, mine)
    hold(w, suspend=True)
    assert [w.job(j).attempt.stop.reason for j in jobs] == ["held", "held"]
    assert w.job(mine).attempt.stop is None
    for job in jobs:
        w.leave(job)
    ended = [r.event for r in w.records if isinstance(r.event, ev.AttemptEnded)]
    assert {one.outcome for one in ended} == {"held"}
    for job in jobs:
        now = w.job(job)
        assert (now.state, now.retries_used, now.infrastructure_failures, now.not_before_ms) == ("waiting", 0, 0, 0)
    assert w.cycle().starts == ()
    release(w)
    assert sorted(s.job_id for s in w.cycle().starts) == jobs


def test_one_that_only_starts_is_stopped_too_and_one_that_is_leaving_already_is_not_asked_again():
    w = two_tenants(1, 4)
    starting, cancelled = w.submit(1, tenant="other"), w.submit(1, tenant="other")
    w.cycle()
    w.start(cancelled)
    w.cancel(cancelled)
    hold(w, suspend=True)
    assert [w.job(j).attempt.stop.reason for j in (starting, cancelled)] == ["held", "cancelled"]


def test_one_that_is_suspended_leaves_with_the_others():
    w = World(node("a", 0, cpus=4), tenants=TENANTS)
    low = w.submit(0, cpus=4, priority=100, on_preempt="suspend", tenant="other")
    w.run(low)
    w.now += 1_000
    high = w.submit(0, cpus=4, priority=900)
    w.cycle()
    w.report("a", w.seen(low, 0, "frozen"), inventory=False)
    w.run(high)
    assert w.phase(low) == "suspended"
    hold(w, suspend=True)
    assert w.job(low).attempt.stop.reason == "held"
    w.leave(low)
    assert w.phase(low) == "waiting"


def test_one_that_is_being_suspended_is_asked_to_leave_instead():
    w = World(node("a", 0, cpus=4), tenants=TENANTS)
    low = w.submit(0, cpus=4, priority=100, on_preempt="suspend", tenant="other")
    w.run(low)
    w.now += 1_000
    w.submit(0, cpus=4, priority=900)
    w.cycle()
    assert w.job(low).attempt.stop.reason == "suspended"
    hold(w, suspend=True)
    assert w.job(low).attempt.stop.reason == "held"
    w.leave(low)
    assert w.phase(low) == "waiting"


def test_one_that_finishes_while_it_is_asked_has_succeeded():
    w = two_tenants()
    job = w.submit(1, tenant="other")
    w.run(job)
    hold(w, suspend=True)
    w.exit_replica(job, 0, 0)
    assert w.ended[job] == "succeeded"


def test_elastic_jobs_of_a_held_tenant_do_not_grow():
    asked = []
    for held in (False, True):
        w = two_tenants(1, 8)
        job = w.submit(gang=GangAsk(1, ReplicaAsk(Resources(1_000), DeviceAsk(1)), replicas_max=8), tenant="other")
        beside = w.submit(6, priority=900)
        w.cycle()
        follow(w)
        finish(w, beside)
        if held:
            hold(w)
        w.now += 3_600_000
        asked.append([(p.victim, p.rule) for p in w.plan().preemptions])
    assert asked == [[(job, "grow")], []]


def test_a_waiting_job_of_a_held_tenant_says_that_it_is_held():
    w = two_tenants()
    job = w.submit(1, tenant="other")
    hold(w)
    w.cycle()
    found = explain(w.state, w.job(job), w.now)
    assert (found.code, found.text) == ("tenant_held", "tenant other has no credit left")
    assert found.constraints[0].where == "other"


def test_nobody_leaves_for_a_tenant_that_was_held_after_the_plan():
    w = two_tenants(1, 1)
    low = w.submit(1, priority=100)
    w.run(low)
    w.now += 600_000
    w.submit(1, tenant="other", priority=900)
    planned = w.plan()
    assert [p.victim for p in planned.preemptions] == [low]
    hold(w)
    assert verify(planned, w.state).preemptions == ()


def test_nobody_leaves_to_go_on_larger_when_its_tenant_was_held_after_the_plan():
    """It could not start again."""
    w = two_tenants(1, 8)
    job = w.submit(gang=GangAsk(1, ReplicaAsk(Resources(1_000), DeviceAsk(1)), replicas_max=8), tenant="other")
    beside = w.submit(6, priority=900)
    w.cycle()
    follow(w)
    finish(w, beside)
    w.now += 3_600_000
    planned = w.plan()
    assert [p.victim for p in planned.preemptions] == [job]
    hold(w)
    assert verify(planned, w.state).preemptions == ()


def test_nobody_of_a_held_tenant_is_moved_for_others():
    w = two_tenants(2, 4, defrag=True)
    scattered = []
    for closed in ("n1", "n0"):
        w.drain(closed)
        scattered.append(w.submit(2, tenant="other", checkpoint=CheckpointSpec(request_signal="SIGUSR1")))
        w.run(scattered[-1])
        w.drain(closed, on=False)
    w.now += 3_600_000
    w.submit(4)
    assert [p.rule for p in w.plan().preemptions] == ["defrag"]
    hold(w)
    assert w.plan().preemptions == ()


def test_a_hold_lets_those_start_who_were_kept_back_for_the_tenant():
    w = two_tenants(1, 4)
    w.run(w.submit(2, preemptible=False, time_limit_ms=3_600_000))
    w.submit(4, tenant="other", priority=900)
    behind = w.submit(2, priority=100)
    assert w.cycle().starts == ()
    hold(w)
    woken = wakes(w.records[-1].event, w.state, w.last_plan)
    assert [s.job_id for s in w.cycle().starts] == [behind]
    assert woken


# Properties.


@pytest.mark.parametrize("seed", range(120))
def test_others_are_planned_for_as_if_the_jobs_of_a_held_tenant_were_not_there(seed):
    w = crowded(seed)
    waiting = [j.id for j in w.state.jobs.values() if j.state == "waiting" and j.spec.tenant == "other"]
    if any({*job.unmet} & {*waiting} for job in w.state.jobs.values()):
        return  # who waits for one of them may start when it is cancelled
    hold(w)
    snapshot = w.snapshot()
    found = w.plan()
    assert starts(found, w, "other") == []
    assert all(w.job(p.beneficiary).spec.tenant != "other" for p in found.preemptions)
    for job_id in waiting:
        w.cancel(job_id)
    without = plan(take_snapshot(w.state), w.now)
    assert [(s.job_id, s.places) for s in found.starts] == [(s.job_id, s.places) for s in without.starts]
    assert found.preemptions == without.preemptions
    assert not {key.tenant for _, key, _ in snapshot.classes} & {"other"}


@examples(40)
@given(operations)
def test_nothing_starts_while_everybody_is_held_whatever_happens(done):
    w = cluster(2, 3, cpus=6, queues=queues("a", "b"), starvation_after_ms=20_000)
    w.stale = w.plan()
    half = len(done) // 2
    play(w, done[:half])
    hold(w, "default", suspend=bool(len(done) % 2))
    before = len(w.records)
    play(w, done[half:])
    assert not [r for r in w.records[before:] if isinstance(r.event, ev.AttemptAllocated)]
    release(w, "default")
    assert w.state.money.holds() == {}


def test_random_holds_and_releases_start_nothing_of_whom_is_held():
    for seed in range(30):
        rng, w = random.Random(seed), crowded(seed)
        for _ in range(6):
            tenant = rng.choice(["default", "other"])
            planned = w.plan()
            if tenant in w.state.money.holds():
                release(w, tenant)
            else:
                hold(w, tenant, suspend=rng.random() < 0.3)
            before = len(w.records)
            w.apply(planned)
            w.cycle()
            held = set(w.state.money.holds())
            begun = [r.event.job_id for r in w.records[before:] if isinstance(r.event, ev.AttemptAllocated)]
            assert not [i for i in begun if w.job(i).spec.tenant in held]
            follow(w)
            w.now += 10_000
