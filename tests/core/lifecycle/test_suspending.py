"""Suspending: frozen where it is, a job keeps its memory and gives its CPUs to others, until it has them again."""

import pytest

from penstock.core.ledger.consumption import Consumption
from penstock.core.messages.orders import FreezeReplica, StopReplica, ThawReplica
from penstock.core.model.cluster import Reservation, Tenant
from penstock.core.model.events import ConfigChanged
from penstock.core.model.jobs import ExitInfo
from penstock.core.predict.forecast import Forecaster, features_of
from penstock.core.preempt.victims import victim_cost
from penstock.core.state.suspension import CANNOT_FREEZE, TOO_LONG
from penstock.testing.builders import GIB, config, node, queues
from penstock.testing.harness import World

GONE = {"stop_sent": True}


def crowded(cpus=4, *, memory_gib=8, **settings):
    """One node of 4 CPUs that a low job holds all of, with 8 of 64 GiB."""
    w = World(node("a", 0, cpus=4), **settings)
    low = w.submit(0, cpus=cpus, memory_gib=memory_gib, priority=100, on_preempt="suspend", grace_ms=5_000)
    w.run(low)
    return w, low


def freeze(w, job_id):
    """Let every node say that the job's replicas are frozen."""
    for replica in w.job(job_id).attempt.replicas:
        w.report(replica.place.node, w.seen(job_id, replica.rank, "frozen"), inventory=False)


def suspended(**fields):
    """A low job that is suspended for a high one, which runs."""
    w, low = crowded(**fields)
    high = w.submit(0, cpus=4, memory_gib=8, priority=900)
    w.cycle()
    freeze(w, low)
    w.run(high)
    return w, low, high


def free(w, name="a"):
    found = w.state.indexes.free[name]
    return found.cpu_milli // 1000, found.memory_bytes // GIB


def orders_for(w, job_id):
    return [o for _, o in w.orders if getattr(o, "key", None) is not None and o.key.job_id == job_id]


def test_a_job_of_higher_priority_gets_the_cpus_of_one_that_is_frozen_with_its_memory():
    w, low = crowded()
    high = w.submit(0, cpus=4, memory_gib=8, priority=900)
    w.cycle()
    assert w.job(low).attempt.stop.reason == "suspended"
    assert isinstance(orders_for(w, low)[-1], FreezeReplica)
    assert w.phase(high) == "waiting"  # nobody has said yet that it is frozen
    assert free(w) == (0, 56)
    freeze(w, low)
    assert w.phase(low) == "suspended"
    assert free(w) == (4, 56)
    w.run(high)
    assert w.phase(high) == "running"
    assert w.where(high) == "a"
    assert free(w) == (0, 48)
    assert w.job(low).preemptions == 0


def test_it_goes_on_where_it_was_with_the_same_attempt_once_its_cpus_are_free():
    w, low, high = suspended()
    w.now += 10_000
    assert w.cycle().resumes == ()
    w.exit_replica(high)
    found = w.cycle()
    assert [(r.job_id, r.attempt) for r in found.resumes] == [(low, 1)]
    assert isinstance(orders_for(w, low)[-1], ThawReplica)
    assert w.phase(low) == "running"
    assert free(w) == (0, 56)
    assert w.job(low).attempt.number == 1
    assert w.job(low).attempt.idle_ms == 10_000


def test_where_its_memory_is_in_the_way_it_saves_and_leaves_instead():
    w, low = crowded(memory_gib=60)
    w.submit(0, cpus=4, memory_gib=8, priority=900)
    w.cycle()
    assert w.job(low).attempt.stop.reason == "preempted"
    assert isinstance(orders_for(w, low)[-1], StopReplica)


def test_of_several_victims_only_those_leave_whose_memory_is_needed():
    w = World(node("a", 0, cpus=4))
    big, small = (w.submit(0, cpus=2, memory_gib=gib, priority=100, on_preempt="suspend") for gib in (50, 4))
    w.run(big, small)
    w.submit(0, cpus=4, memory_gib=20, priority=900)
    w.cycle()
    assert w.job(big).attempt.stop.reason == "preempted"
    assert w.job(small).attempt.stop.reason == "suspended"


def test_a_job_that_does_not_ask_for_it_is_not_frozen():
    w = World(node("a", 0, cpus=4))
    low = w.submit(0, cpus=4, priority=100)
    w.run(low)
    w.submit(0, cpus=4, priority=900)
    w.cycle()
    assert w.job(low).attempt.stop.reason == "preempted"


def test_a_gang_is_suspended_when_the_last_of_it_is_frozen():
    w = World(node("a", 0, cpus=2), node("b", 0, cpus=2))
    low = w.submit(0, 2, cpus=2, priority=100, on_preempt="suspend")
    w.run(low)
    w.submit(0, 2, cpus=2, priority=900)
    w.cycle()
    w.report("a", w.seen(low, [r.place.node for r in w.job(low).attempt.replicas].index("a"), "frozen"))
    assert w.phase(low) == "stopping"
    freeze(w, low)
    assert w.phase(low) == "suspended"


def test_a_node_that_cannot_freeze_makes_it_save_and_leave_for_the_same_job():
    w, low = crowded()
    high = w.submit(0, cpus=4, priority=900)
    w.cycle()
    w.report("a", w.seen(low, refused="no control groups"), inventory=False)
    stop = w.job(low).attempt.stop
    assert (stop.reason, stop.rule, stop.beneficiary) == ("preempted", CANNOT_FREEZE, high)
    assert isinstance(orders_for(w, low)[-1], StopReplica)
    w.leave(low)
    w.run(high)
    assert w.phase(high) == "running"
    assert w.phase(low) == "waiting"


def test_a_suspension_that_lasts_too_long_ends_in_a_save_and_a_place_elsewhere():
    w, low, high = suspended(suspended_max_ms=60_000)
    w.tick(59_000)
    assert w.phase(low) == "suspended"
    w.tick(1_000)
    assert w.job(low).attempt.stop.rule == TOO_LONG
    assert isinstance(orders_for(w, low)[-1], StopReplica)
    assert free(w) == (0, 48)  # it holds its memory until it has left
    w.leave(low)
    assert free(w) == (0, 56)
    w.hello(node("b", 0, cpus=4))
    w.run(low)
    assert w.where(low) == "b"
    assert w.phase(high) == "running"


def test_a_suspended_job_makes_room_when_its_memory_is_needed():
    w, low, _ = suspended()
    w.submit(0, cpus=0, memory_gib=50, priority=800)
    w.cycle()
    assert w.job(low).attempt.stop.reason == "preempted"


def test_nobody_of_lower_priority_gets_its_cpus_and_one_of_higher_does():
    w, low, high = suspended()
    lower = w.submit(0, cpus=4, priority=50)
    w.exit_replica(high)
    w.cycle()
    assert (w.phase(low), w.phase(lower)) == ("running", "waiting")

    w, low, high = suspended()
    higher = w.submit(0, cpus=4, priority=500)
    w.exit_replica(high)
    w.cycle()
    assert (w.phase(low), w.phase(higher)) == ("suspended", "starting")


@pytest.mark.parametrize("count", [1, 100], ids=["few", "enough for waves"])
def test_a_higher_one_that_cannot_start_keeps_it_from_nothing(count):
    settings = {"allow_waiting_for_nodes": True}
    w, low, high = suspended(**settings)
    w.submit(0, cpus=99, priority=950)
    lower = [w.submit(0, cpus=1, priority=50) for _ in range(count)]
    w.exit_replica(high)
    w.cycle()
    assert w.phase(low) == "running"
    assert {w.phase(job) for job in lower} == {"waiting"}


def beside_lower(**settings):
    """A job of four CPUs, suspended for one of two; a lesser one has the other two, and the first is over."""
    w = World(node("a", 0, cpus=4), **settings)
    low = w.submit(0, cpus=4, priority=400, on_preempt="suspend")
    w.run(low)
    high = w.submit(0, cpus=2, priority=900)
    w.cycle()
    freeze(w, low)
    lesser = w.submit(0, cpus=2, priority=10)
    w.run(high, lesser)
    assert (w.phase(high), w.phase(lesser)) == ("running", "running")
    assert w.cycle().preemptions == ()
    w.exit_replica(high)
    return w, low, lesser


def test_where_lesser_ones_have_its_cpus_it_leaves_and_claims_them_back():
    w, low, lesser = beside_lower()
    (order,) = w.cycle().preemptions
    assert (order.victim, order.rule) == (low, "elsewhere")
    w.leave(low)
    w.cycle()
    assert w.job(lesser).attempt.stop.beneficiary == low
    w.leave(lesser)
    w.run(low)
    assert w.phase(low) == "running"
    assert w.job(low).preemptions == 0


@pytest.mark.parametrize("why", ["guarantees", "never"])
def test_it_stays_where_priority_alone_does_not_decide(why):
    rules = {"guaranteed": (("cpus", 1_000),)} if why == "guarantees" else {"preemption": "never"}
    other = {} if why == "guarantees" else rules
    w = World(
        node("a", 0, cpus=4), queues=(*queues("default", **other), *queues("high", **(rules if not other else {})))
    )
    low = w.submit(0, cpus=4, priority=400, on_preempt="suspend")
    w.run(low)
    high = w.submit(0, cpus=2, priority=900, queue="high")
    w.cycle()
    freeze(w, low)
    lesser = w.submit(0, cpus=2, priority=10)
    w.run(high, lesser)
    w.exit_replica(high)
    assert w.cycle().preemptions == ()
    assert w.phase(low) == "suspended"


def test_a_starving_job_waits_for_nobody_who_cannot_end():
    w = World(node("a", 0, cpus=4), starvation_after_ms=20_000)
    low = w.submit(0, cpus=4, memory_gib=40, priority=100, on_preempt="suspend")
    w.run(low)
    high = w.submit(0, cpus=4, memory_gib=8, priority=900)
    w.cycle()
    freeze(w, low)
    w.run(high)
    w.submit(0, cpus=4, memory_gib=40, priority=100)
    w.tick(30_000)
    w.cycle()
    w.exit_replica(high)
    w.cycle()
    assert w.phase(low) == "running"


def test_it_goes_on_on_a_node_that_is_being_drained():
    w, low, high = suspended()
    w.drain("a")
    w.exit_replica(high)
    w.cycle()
    assert w.phase(low) == "running"


def test_it_does_not_go_on_where_a_node_is_kept_for_others():
    w, low, high = suspended()
    kept = (Reservation("r", "t", w.now, w.now + 60_000, ("a",)),)
    w.emit(ConfigChanged(config(tenants=(Tenant("default"), Tenant("t")), reservations=kept), "op"))
    w.exit_replica(high)
    w.cycle()
    assert w.phase(low) == "suspended"
    w.now += 60_000
    w.cycle()
    assert w.phase(low) == "running"


def test_what_was_said_of_an_earlier_suspension_does_not_count_for_this_one():
    w, low, high = suspended()
    w.exit_replica(high)
    w.cycle()
    w.submit(0, cpus=4, priority=900)
    w.cycle()
    assert w.job(low).attempt.stop.reason == "suspended"
    answers = w.report("a", w.seen(low, 0, "frozen", suspension=1), inventory=False)
    assert w.phase(low) == "stopping"
    assert answers == [FreezeReplica(w.seen(low).key, 2)]
    w.report("a", w.seen(low, 0, "frozen", suspension=2), inventory=False)
    assert w.phase(low) == "suspended"


def test_a_suspended_job_that_runs_after_all_and_cannot_be_frozen_leaves():
    w, low, _ = suspended()
    w.report("a", w.seen(low, refused="no control groups"), inventory=False)
    assert w.job(low).attempt.stop.rule == CANNOT_FREEZE


def test_an_exit_counts_more_than_a_refusal_in_the_same_report():
    w, low = crowded()
    w.submit(0, cpus=4, priority=900)
    w.cycle()
    w.report("a", w.seen(low, 0, "exited", exit=ExitInfo(1), refused="no control groups"), inventory=False)
    assert w.ended[low] == "failed"


def test_what_it_costs_to_stop_it_leaves_out_the_time_in_which_it_stood_still():
    w, low, high = suspended()
    w.now += 500_000
    w.exit_replica(high)
    w.cycle()
    w.now += 3_000
    settings = w.state.config.settings
    overhead = settings.checkpoint_cost_ms + settings.restart_cost_ms + 100 * settings.priority_cost_ms_per_point
    assert victim_cost(w.job(low), settings, w.now) == 3_000 + overhead


def test_what_is_left_when_everybody_was_looked_at_is_its_own():
    w = World(node("a", 1, cpus=8))
    low = w.submit(0, cpus=4, priority=100, on_preempt="suspend")
    other = w.submit(0, cpus=4, priority=900, preemptible=False)
    w.run(low, other)
    high = w.submit(0, cpus=4, priority=900, preemptible=False)
    w.cycle()
    freeze(w, low)
    w.run(high)
    stuck = w.submit(1, cpus=5, priority=900)  # needs more CPUs than are free, whatever becomes of the suspended one
    w.exit_replica(high)
    w.cycle()
    assert w.phase(stuck) == "waiting"
    assert w.phase(low) == "running"


def test_its_queue_does_not_use_the_cpus_meanwhile_and_its_maximum_holds_when_it_goes_on():
    w = World(node("a", 0, cpus=8), queues=queues("default", max=(("cpus", 4_000),)))
    low = w.submit(0, cpus=4, priority=100, on_preempt="suspend")
    w.run(low)
    high = w.submit(0, cpus=4, priority=900)  # the maximum is in the way, not the node
    w.cycle()
    freeze(w, low)
    w.run(high)
    assert w.phase(high) == "running"
    assert free(w)[0] == 4
    w.cycle()
    assert w.phase(low) == "suspended"
    w.exit_replica(high)
    w.cycle()
    assert w.phase(low) == "running"


def test_its_time_limit_does_not_count_the_time_in_which_it_stood_still():
    w = World(node("a", 0, cpus=4))
    low = w.submit(0, cpus=4, priority=100, on_preempt="suspend", time_limit_ms=60_000)
    w.run(low)
    w.tick(50_000)
    high = w.submit(0, cpus=4, priority=900)
    w.cycle()
    freeze(w, low)
    w.run(high)
    w.tick(500_000)
    assert w.phase(low) == "suspended"
    w.exit_replica(high)
    w.cycle()
    w.tick(9_000)
    assert w.phase(low) == "running"
    w.tick(1_000)
    assert w.job(low).attempt.stop.reason == "time_limit"


@pytest.mark.parametrize("when", ["freezing", "suspended"])
def test_it_is_cancelled_like_any_other(when):
    w, low = crowded()
    w.submit(0, cpus=4, priority=900)
    w.cycle()
    if when == "suspended":
        freeze(w, low)
    w.cancel(low)
    assert w.job(low).attempt.stop.reason == "cancelled"
    assert isinstance(orders_for(w, low)[-1], StopReplica)
    w.leave(low)
    assert w.phase(low) == "cancelled"


def test_it_is_lost_with_its_node_and_goes_on_elsewhere():
    w, low, _ = suspended()
    w.hello(node("b", 0, cpus=8))
    w.lose("a")
    assert w.phase(low) == "waiting"
    w.cycle()
    assert w.phase(low) == "starting"


def test_a_rank_lost_while_the_others_are_frozen_ends_the_attempt():
    w = World(node("a", 0, cpus=2), node("b", 0, cpus=2))
    low = w.submit(0, 2, cpus=2, priority=100, on_preempt="suspend")
    w.run(low)
    w.submit(0, 2, cpus=2, priority=900)
    w.cycle()
    left = w.where(low, 0)
    w.report(left, w.seen(low, 0, "frozen"), inventory=False)
    w.lose(w.where(low, 1))
    assert w.job(low).attempt.stop.reason == "node_lost"
    w.exit_replica(low, 0, None, signal=9, stop_sent=True)
    assert w.phase(low) == "waiting"


def test_a_rank_that_finished_meanwhile_does_not_keep_the_rest_from_being_suspended():
    w = World(node("a", 0, cpus=2), node("b", 0, cpus=2))
    low = w.submit(0, 2, cpus=2, priority=100, on_preempt="suspend")
    w.run(low)
    w.submit(0, 2, cpus=2, priority=900)
    w.cycle()
    w.report(w.where(low, 0), w.seen(low, 0, "frozen"), inventory=False)
    w.exit_replica(low, 1, 0)
    assert w.phase(low) == "suspended"


def test_what_a_node_says_late_changes_nothing():
    w, low, high = suspended()
    w.exit_replica(high)
    w.cycle()
    answers = w.report("a", w.seen(low, 0, "frozen"), inventory=False)
    assert w.phase(low) == "running"
    assert [type(a) for a in answers] == [ThawReplica]  # the order was lost, or the report is older than it


def test_a_lost_order_to_freeze_is_given_again():
    w, low = crowded()
    w.submit(0, cpus=4, priority=900)
    w.cycle()
    assert w.report("a", w.seen(low), inventory=False) == [FreezeReplica(w.seen(low).key, 1)]
    assert w.report("a", w.seen(low, 0, "frozen"), inventory=False) == []


def test_a_plan_to_resume_holds_only_while_the_cpus_are_free():
    w, low, high = suspended()
    w.exit_replica(high)
    plan = w.plan()
    assert len(plan.resumes) == 1
    w.submit(0, cpus=1, priority=900)
    w.cycle()
    assert w.apply(plan).dropped == 1
    assert w.phase(low) == "suspended"


def test_a_plan_to_resume_holds_only_within_the_maximum():
    w = World(node("a", 0, cpus=8), queues=queues("default", max=(("cpus", 4_000),)))
    low = w.submit(0, cpus=4, priority=100, on_preempt="suspend")
    w.run(low)
    high = w.submit(0, cpus=4, priority=900)
    w.cycle()
    freeze(w, low)
    w.run(high)
    w.exit_replica(high)
    plan = w.plan()
    w.submit(0, cpus=4, priority=900)
    w.cycle()
    assert w.apply(plan).dropped == 1
    assert w.phase(low) == "suspended"


def test_it_is_not_billed_for_cpus_that_others_had():
    w, _, high = suspended()
    w.tick(30_000)
    w.exit_replica(high)
    w.cycle()
    w.tick(10_000)
    usage = Consumption(("tenant",), 0, w.now)
    usage.take(w.records)
    assert [row.cpu_milli_ms for row in usage.rows()] == [4_000 * 30_000 + 4_000 * 10_000]


def test_a_job_with_devices_is_stopped():
    w = World(node("a", 1, cpus=4))
    low = w.submit(1, cpus=1, priority=100, on_preempt="suspend")  # past the check of the job file
    w.run(low)
    w.submit(1, cpus=1, priority=900)
    w.cycle()
    assert w.job(low).attempt.stop.reason == "preempted"


def test_what_is_learned_of_its_length_leaves_out_the_time_in_which_it_stood_still():
    w, low, high = suspended()
    features = features_of(w.job(low).spec, w.job(low).user)
    w.now += 70_000
    w.exit_replica(high)
    w.cycle()
    w.now += 5_000
    w.exit_replica(low)
    forecaster = Forecaster(())
    forecaster.observe(w.records)
    (*_, (_, _, lengths)) = forecaster.predictor.past(low, features)
    assert lengths == [5_000, 70_000]
