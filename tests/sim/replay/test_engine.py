"""What becomes of jobs in a replay: values worked out by hand, and what must hold for every trace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model.cluster import Pool, Queue
from penstock.core.model.events import RunTimesPredicted
from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.order.extension import registry
from penstock.core.state import invariants
from penstock.core.state.state import State, fold
from penstock.sim.replay import replay as module
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.replay import ORIGIN_MS
from penstock.sim.replay.simulation import Simulation
from penstock.testing.builders import config, device, job_spec, node
from penstock.traces.model import CapacityChange, Outage, Seen
from tests.properties import examples
from tests.sim.replay.builders import HOUR, MINUTE, SECOND, job, ran, seconds, times, trace

PREEMPT = {"priority": 900}


def test_a_job_takes_its_run_time():
    assert times(ran(trace(job(5, 60)))) == [(5, 65)]


def test_a_decision_takes_its_time():
    jobs = (job(0, 60, 4), job(10, 30, 4), job(11, 20, 4))
    assert times(ran(trace(*jobs), decide_ms=2 * SECOND)) == [(2, 62), (64, 94), (96, 116)]


def test_who_does_not_fit_waits_for_an_end():
    assert times(ran(trace(job(0, 60, 3), job(1, 30, 3), job(2, 10, 1)))) == [(0, 60), (60, 90), (2, 12)]


def test_start_up_holds_devices_and_does_no_work():
    found = ran(trace(job(0, 60)), start_ms=7 * SECOND)
    assert times(found) == [(0, 67)]
    assert found.lives[0].held_device_ms == 67 * SECOND


def test_who_saves_goes_on_where_it_was():
    found = ran(trace(job(0, 60, 4, saves=True), job(20, 30, 4, **PREEMPT)))
    assert times(found) == [(0, 90), (20, 50)]
    assert (found.lives[0].preemptions, found.lives[0].redone_device_ms) == (1, 0)


def test_saving_and_restoring_take_their_time():
    found = ran(trace(job(0, 60, 4, saves=True), job(20, 30, 4, **PREEMPT)), save_ms=5 * SECOND, restore_ms=3 * SECOND)
    assert times(found) == [(0, 98), (25, 55)]


def test_who_cannot_save_begins_anew():
    found = ran(trace(job(0, 60, 4), job(20, 30, 4, **PREEMPT)))
    assert times(found) == [(0, 110), (20, 50)]
    assert found.lives[0].redone_device_ms == 4 * 20 * SECOND


def test_grace_bounds_how_long_a_save_may_take():
    found = ran(trace(job(0, 60, 4, saves=True, grace_ms=2 * SECOND), job(20, 30, 4, **PREEMPT)), save_ms=9 * SECOND)
    assert times(found)[1] == (22, 52)


def test_a_job_that_ends_while_it_is_asked_to_leave_has_ended():
    found = ran(trace(job(0, 60, 4), job(58, 30, 4, **PREEMPT)), stop_ms=5 * SECOND)
    assert times(found) == [(0, 60), (60, 90)]
    assert (found.lives[0].state, found.lives[0].attempts) == ("succeeded", 1)


def test_a_job_that_ends_when_its_time_to_leave_is_over_has_ended():
    found = ran(trace(job(0, 60, 4), job(58, 30, 4, **PREEMPT)), stop_ms=2 * SECOND)
    assert (times(found)[0], found.lives[0].state) == ((0, 60), "succeeded")


def test_a_lost_node_costs_what_was_done_since_the_last_save():
    outages = (Outage("a", 25 * MINUTE, 40 * MINUTE),)
    found = ran(trace(job(0, 3600, saves=True, every_s=600), outages=outages))
    assert times(found) == [(0, 2400 + 3600 - 1200)]
    assert (found.lives[0].losses, found.lives[0].redone_device_ms) == (1, 5 * MINUTE)


def test_a_lost_node_is_noticed_when_its_lease_runs_out():
    nodes = (node("a", 1), node("b", 1))
    lost = trace(job(0, 60), nodes=nodes, outages=(Outage("a", 10 * SECOND, HOUR),))
    assert times(ran(lost, noticed_ms=30 * SECOND)) == [(0, 100)]


def test_a_gang_that_loses_a_node_is_stopped_elsewhere_too():
    nodes = (node("a", 1), node("b", 1), node("c", 1))
    found = ran(trace(job(0, 60, 1, 2), nodes=nodes, outages=(Outage("a", 10 * SECOND, HOUR),)))
    assert times(found) == [(0, 70)]
    assert found.lives[0].held_device_ms == 2 * 70 * SECOND


def test_nodes_fail_by_chance_and_the_same_seed_fails_the_same():
    given_trace = trace(*(job(i, 7200) for i in range(8)), nodes=(node("a", 4), node("b", 4)))
    options = {"node_mtbf_ms": 2 * HOUR, "node_repair_ms": 10 * MINUTE}
    first, again, other = (ran(given_trace, seed=seed, **options) for seed in (1, 1, 2))
    assert times(first) == times(again) != times(other)
    assert sum(life.losses for life in first.lives) > 0


def test_a_time_limit_ends_a_job():
    found = ran(trace(job(0, 60, time_limit_ms=20 * SECOND)), stop_ms=2 * SECOND)
    assert (times(found), found.lives[0].state) == ([(0, 22)], "failed")


def test_a_job_that_fails_has_failed():
    found = ran(trace(job(0, 60, ends="failed")))
    assert (times(found), found.lives[0].state) == ([(0, 60)], "failed")


def test_earlier_attempts_may_fail():
    found = ran(
        trace(job(0, 60, fails_after_ms=(10 * SECOND, 5 * SECOND), retries_max=2), rules=config(backoff_first_ms=1))
    )
    assert (found.lives[0].state, found.lives[0].attempts) == ("succeeded", 3)
    assert times(found) == [(0, 75)]


def test_whoever_was_cancelled_while_it_waited_is_cancelled_then():
    gone = job(1, 0, 4, ends="cancelled", seen=Seen(0, 30 * SECOND))
    found = ran(trace(job(0, 60, 4), gone))
    assert (found.lives[1].state, found.lives[1].ended_ms) == ("cancelled", ORIGIN_MS + 30 * SECOND)
    assert found.lives[1].wait_ms == 29 * SECOND


def test_whoever_was_cancelled_while_it_ran_holds_its_devices_until_then():
    found = ran(trace(job(0, 60, 4, ends="cancelled"), job(1, 10, 4)))
    assert times(found) == [(0, 60), (60, 70)]
    assert found.lives[0].state == "cancelled"


def test_a_wait_has_its_maximum():
    found = ran(trace(job(0, 60, 4), job(1, 10, 4, max_wait_ms=20 * SECOND)))
    assert (found.lives[1].state, found.lives[1].ended_ms) == ("cancelled", ORIGIN_MS + 21 * SECOND)


def test_speed_depends_on_the_model():
    slow = (device(0, model="T4"),)
    found = ran(trace(job(0, 60, speeds=(("T4", 250),)), nodes=(node("a", slow),)))
    assert times(found) == [(0, 240)]


def test_an_elastic_job_is_as_fast_as_its_size():
    gang = GangAsk(1, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=4)
    scaling = ((1, 1000), (2, 1800), (4, 3000))
    found = ran(trace(job(0, 60, spec=job_spec(gang=gang), scaling=scaling)))
    assert times(found) == [(0, 20)]


def test_what_is_known_of_run_times_decides_who_goes_first():
    rules = config(queues=(Queue("default", policy="shortest_predicted"),), pools=(Pool("default", backfill="none"),))
    jobs = (job(0, 60, 4), job(1, 500, 4), job(2, 50, 4))
    assert times(ran(trace(*jobs, rules=rules), knows="true")) == [(0, 60), (110, 610), (60, 110)]
    assert times(ran(trace(*jobs, rules=rules), knows="declared")) == [(0, 60), (60, 560), (560, 610)]


def test_a_changed_configuration_counts_from_then_on():
    narrow = config(queues=(Queue("default", max=(("devices", 1_000),)),))
    changes = (CapacityChange(30 * SECOND, config=config()),)
    found = ran(trace(job(0, 60), job(1, 60), rules=narrow, changes=changes))
    assert times(found) == [(0, 60), (30, 90)]


def test_a_drained_node_takes_no_work_until_it_is_opened():
    changes = (CapacityChange(0, drained="a"), CapacityChange(30 * SECOND, opened="a"))
    assert times(ran(trace(job(1, 10), changes=changes))) == [(30, 40)]


def test_time_alone_may_start_a_job():
    """A victim may be asked only after its guaranteed run time: nothing else happens at that moment."""
    rules = config(min_runtime_before_preemption_ms=40 * SECOND)
    found = ran(trace(job(0, 300, 4, saves=True), job(10, 30, 4, **PREEMPT), rules=rules))
    assert times(found)[1] == (40, 70)


def test_a_job_that_can_never_start_ends_the_replay():
    found = ran(trace(job(0, 60, 5), job(1, 10), rules=config(allow_waiting_for_nodes=True)))
    assert [seconds(life.ended_ms) for life in found.lives] == [0, 11]


@st.composite
def traces(draw):
    jobs = []
    for at_s in sorted(draw(st.lists(st.integers(0, 300), min_size=1, max_size=12))):
        jobs.append(
            job(
                at_s,
                draw(st.integers(0, 200)),
                draw(st.integers(0, 4)),
                draw(st.integers(1, 2)),
                saves=draw(st.booleans()),
                every_s=30,
                priority=draw(st.sampled_from((100, 500, 900))),
                time_limit_ms=draw(st.sampled_from((0, 100 * SECOND))),
                ends=draw(st.sampled_from(("succeeded", "failed", "cancelled"))),
            )
        )
    outages = ()
    if draw(st.booleans()):
        begins = draw(st.integers(0, 300))
        outages = (Outage("a", begins * SECOND, (begins + draw(st.integers(1, 200))) * SECOND),)
    return trace(*jobs, nodes=(node("a", 4), node("b", 4)), outages=outages)


@given(traces(), st.sampled_from((0, 4 * SECOND)), st.sampled_from(("declared", "true", "learned")))
@examples(60)
def test_every_state_on_the_way_keeps_its_promises_and_every_job_ends(given_trace, lag_ms, knows):
    given_trace = module.from_origin(given_trace)
    state = State()
    records = []
    physics = Physics(start_ms=lag_ms, save_ms=lag_ms, restore_ms=lag_ms, noticed_ms=lag_ms)
    engine = Simulation(state, physics, knows=knows, on_records=records.extend)
    module._open(given_trace, state, given_trace.config, ORIGIN_MS, records.extend)
    module._plan_ahead(engine, given_trace, 0, ORIGIN_MS)
    for _ in engine.run(given_trace.jobs):
        invariants.require(state)
    assert all(life.ended_ms or life.state != "waiting" for life in engine.lives.values())
    assert state.jobs == {}
    assert (engine.meter.busy_milli, engine.meter.jobs_waiting, engine.meter.jobs_active) == (0, 0, 0)
    assert fold(records).image() == state.image()


@given(traces())
@examples(20)
def test_no_work_is_lost_or_done_for_nothing(given_trace):
    found = ran(given_trace)
    for life in found.lives:
        if life.state == "succeeded":
            width = life.spec.ask.device_total
            assert life.held_device_ms == width * life.work.run_ms + life.redone_device_ms


@given(traces())
@examples(20)
def test_the_same_trace_gives_the_same_events(given_trace):
    first, again = [], []
    ran(given_trace, on_records=first.extend)
    ran(given_trace, on_records=again.extend)
    assert first == again


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 300), st.integers(1, 6)), min_size=3, max_size=12))
@examples(150)
def test_elastic_jobs_do_not_take_turns_for_ever(asked):
    """Who gives devices back must find its minimum again, whoever else grows or comes back meanwhile."""
    nodes = tuple(node(f"n{i}", 4) for i in range(3))
    jobs = []
    for at_s, run_s, least in sorted(asked):
        gang = GangAsk(least, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=least + 6)
        jobs.append(job(at_s, run_s, spec=job_spec(gang=gang), saves=True))
    found = ran(trace(*jobs, nodes=nodes, rules=config(elastic_growth_period_ms=20 * SECOND)))
    assert all(life.state == "succeeded" for life in found.lives)
    assert found.cycles < 60 * len(jobs)


@pytest.mark.parametrize("saves", [True, False])
def test_two_that_preempt_each_other_never_stop_time(saves):
    jobs = [job(i, 30, 4, saves=saves, priority=100 + 100 * (i % 9)) for i in range(12)]
    assert all(life.state == "succeeded" for life in ran(trace(*jobs)).lives)


def test_an_oracle_is_not_overruled_by_what_is_learned():
    jobs = [job(10 * i, 60 if i < 15 else 5_000) for i in range(20)]
    records = []
    ran(trace(*jobs, rules=config(predict_run_times=True)), knows="true", on_records=records.extend)
    told = [entry for r in records if isinstance(r.event, RunTimesPredicted) for entry in r.event.times]
    assert [length_ms for _, length_ms, _ in told] == [job.work.run_ms for job in jobs]


def test_a_third_party_orders_jobs_that_are_alike_in_all_we_know():
    class LastFirst:
        name = "last_first"

        def order_key(self, job, now_ms, settings):
            return (-job.id,)

    rules = config(queues=(Queue("default", policy="ext:last_first"),))
    jobs = (job(0, 60, 4), job(1, 60, 4), job(2, 60, 4), job(3, 60, 4))
    found = ran(trace(*jobs, rules=rules), policies=registry([LastFirst()]))
    assert [start for start, _ in times(found)] == [0, 180, 120, 60]


def lent(run_s=100, *, at_s=10, **fields):
    """A node of four CPUs that a job has which may be suspended, and another that comes for all of them."""
    low = job(0, run_s, 0, cpus=4, priority=100, on_preempt="suspend", **fields)
    return trace(low, job(at_s, 50, 0, cpus=4, priority=900), nodes=(node("a", 0, cpus=4),))


def test_who_is_suspended_goes_on_where_it_was_without_saving():
    found = ran(lent(), save_ms=5 * SECOND, restore_ms=7 * SECOND)
    assert times(found) == [(0, 150), (10, 60)]
    assert [(life.attempts, life.preemptions) for life in found.lives] == [(1, 0), (1, 0)]


def test_who_is_suspended_too_long_begins_anew_what_it_cannot_save():
    given = lent()
    given = trace(*given.jobs, nodes=given.nodes, rules=config(suspended_max_ms=20 * SECOND))
    found = ran(given, stop_ms=SECOND)
    assert times(found) == [(0, 160), (10, 60)]
    assert [life.attempts for life in found.lives] == [2, 1]


def test_the_time_in_which_it_stood_still_counts_for_no_limit():
    assert times(ran(lent(time_limit_ms=100 * SECOND)))[0] == (0, 150)
    assert times(ran(lent(time_limit_ms=99 * SECOND)))[0] == (0, 149)


def test_who_is_suspended_is_lost_with_its_node():
    given = lent()
    outages = (Outage("a", 30 * SECOND, 40 * SECOND),)
    found = ran(trace(*given.jobs, nodes=given.nodes, outages=outages), noticed_ms=0)
    assert times(found) == [(0, 190), (10, 90)]


@pytest.mark.parametrize(
    ("cut_s", "most_s", "ends_s"), [(5, 3600, 150), (30, 3600, 150), (59, 3600, 150), (100, 3600, 150), (20, 30, 150)]
)
def test_a_state_with_somebody_suspended_is_played_on_to_the_same_end(cut_s, most_s, ends_s):
    images = []

    def cut(engine, now_ms):
        if seconds(now_ms) <= cut_s:
            images[:] = [engine.state.image()]

    given = lent(saves=True)
    given = trace(*given.jobs, nodes=given.nodes, rules=config(suspended_max_ms=most_s * SECOND))
    assert times(ran(given, on_moment=cut))[0] == (0, ends_s)
    engine = Simulation(State.from_image(images[0]), Physics(), knows=None)
    for held in engine.state.jobs.values():
        engine.adopt(held, given.jobs[held.id - 1].work)
    known = engine.state.next_job - 1
    later = [replace(one, submit_ms=one.submit_ms + ORIGIN_MS) for one in given.jobs[known:]]
    engine.wake(ORIGIN_MS + cut_s * SECOND)
    *_, last_ms = engine.run(later)
    assert [(seconds(life.ended_ms), life.state) for life in engine.lives.values() if life.spec.priority == 100] == [
        (ends_s, "succeeded")
    ]
    assert seconds(last_ms) == ends_s
