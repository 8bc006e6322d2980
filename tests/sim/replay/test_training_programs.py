"""Training programs in a replay: as fast as they were measured, and known only by what they report."""

import pytest
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.batching import BatchChoice, BatchSeen
from penstock.core.model.cluster import Pool
from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.sim.replay import life as on
from penstock.sim.replay.measures import finish_ratios
from penstock.testing.builders import config, device, job_spec, node
from penstock.traces.asking import asking
from penstock.traces.model import Outage, Work
from penstock.traces.profiles import ProfiledRun, TraceProfile
from penstock.traces.training import Training
from tests.sim.replay.builders import MINUTE, SECOND, job, ran, times, trace

RUNS = {
    8: ProfiledRun((100.0, 200.0), (1.0, 1.0), (3.0, 1.0)),
    16: ProfiledRun((110.0, 190.0), (1.0, 1.0), (3.0, 1.0)),
}
PLACED = {(1,): [(4, 0.5, 0.0), (8, 1.0, 0.0)], (2,): [(4, 0.6, 0.1), (8, 1.2, 0.2)], (1, 1): [(8, 2.4, 1.4)]}
PROFILE = TraceProfile("tiny", RUNS, {(1, 1): PLACED[1,], (1, 2): PLACED[2,]}, PLACED)
TUNED = Training(PROFILE, 2, 16, fixed=True)  # epochs of 75 and 81 s
FREE = Training(PROFILE, 1, 8)  # epochs of 100 and 90 s
STILL = config(pools=(Pool("default", backfill="none"),), elastic_growth_period_ms=10**9)


def training(trains, at_s=0, replicas=2, most=0, **fields):
    gang = GangAsk(replicas, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=most)
    given = job(at_s, spec=job_spec(gang=gang), **fields)
    return replace(given, work=Work(trains.run_ms, saves=True, trains=trains))


def played(*jobs, where=None, **options):
    records = []
    result = ran(trace(*jobs, **(where or {})), on_records=records.extend, **options)
    return result, records


def of(records, kind):
    return [(record.time_ms, record.event) for record in records if isinstance(record.event, kind)]


def choosing(batch, after_s):
    """Return what has this batch chosen for the first attempt of the first job, so long after its start."""
    asked: list[int] = []

    def on_moment(engine, now_ms):
        if not asked:
            asked.append(now_ms)
            engine.push(now_ms + after_s * SECOND, on.CHANGED, ev.BatchChosen(1, 1, batch))

    return on_moment


def test_a_program_takes_the_time_of_its_tuned_size_and_batch():
    assert times(ran(trace(training(TUNED)))) == [(0, 156)]


def test_it_is_as_slow_as_its_placement():
    apart = {"nodes": (node("a", 1), node("b", 1))}
    assert times(ran(trace(training(TUNED), **apart))) == [(0, 312)]


def test_a_batch_that_is_chosen_while_it_runs_changes_its_speed_from_then_on():
    # Batch 8 in two replicas at 4 each takes 0.6 s: 20 s do the work of 33.3. Then 16 a step in 1.2 s, 1.333 times as
    # fast as the reference in the first epoch (66.7 s in 50 s), and 1.111 times in the second (90 s in 81 s).
    result, records = played(training(FREE), on_moment=choosing(BatchChoice(8), 20))
    assert times(result) == [(0, 20 + 50 + 81)]
    assert [event.gauges.batch.local for _, event in of(records, ev.ProgressNoted)] == [4, 8, 8]


def test_work_done_at_each_batch_counts_when_it_is_preempted():
    urgent = job(60, 20, 2, priority=900)
    apart = {"nodes": (node("a", 2),)}
    result, _ = played(training(FREE), urgent, where=apart, on_moment=choosing(BatchChoice(8), 20))
    # It goes on at its own batch: 33.3 and 53.3 s of the first epoch are done, 13.3 s are left, and 90 s of the second.
    assert times(result)[0] == (0, round(80 + (13.33 + 90) / 1.6667))


def test_reports_are_those_of_a_live_program():
    _, records = played(training(TUNED))
    (first_ms, first), (second_ms, second) = of(records, ev.ProgressNoted)
    begun_ms = of(records, ev.ReplicaStarted)[0][0]
    assert (first_ms - begun_ms, first.step) == (6_200, 5)  # five seconds after the report of the first step
    assert first.gauges.batch == BatchSeen(8, 0, step_us=1_200_000, sync_us=200_000, noise=24)
    assert (first.gauges.step_ms, first.gauges.samples_per_s_milli) == (1_200, 13_333)
    assert first.gauges.communication_milli == 166
    # The noise has changed with the epoch, 75 s after the start; a step later that shows.
    assert (second_ms - begun_ms, second.gauges.batch.noise) == (76_200, 8)
    assert first.gauges.total_steps == 0


def test_what_was_done_and_what_a_restart_costs_is_in_the_log():
    urgent = job(30, 20, 2, priority=900)
    result, records = played(
        training(TUNED), urgent, where={"nodes": (node("a", 2),)}, save_ms=3 * SECOND, start_ms=2 * SECOND
    )
    ((_, saved),) = of(records, ev.CheckpointSaved)
    ((_, resumed),) = of(records, ev.JobResumed)
    assert (saved.step, resumed.step, resumed.attempt) == (23, 23, 2)  # 28 s of 1.2 s a step
    # It lost no work: 156 s, and two starts, one save and the other job's time.
    assert times(result) == [(0, 156 + 2 * 2 + 3 + 22), (33, 55)]
    notes = [event.step for _, event in of(records, ev.ProgressNoted)]
    assert notes == sorted(notes)
    assert result.lives[0].redone_device_ms == 0


def test_a_lost_node_loses_the_work_since_the_last_save():
    outages = (Outage("a", 60 * SECOND, 61 * SECOND),)
    result, records = played(training(TUNED), where={"nodes": (node("a", 2),), "outages": outages})
    assert of(records, ev.CheckpointSaved) == []
    assert times(result) == [(0, 61 + 156)]


def test_an_equal_share_is_measured_too():
    # Each of two jobs has one device of two all the time, and takes what it would take alone.
    given = asking(trace(training(TUNED, most=4), training(TUNED, most=4), nodes=(node("a", 2),)), "goodput")
    result = ran(replace(given, config=STILL))
    assert finish_ratios(result) == pytest.approx([1.0, 1.0])


def test_a_device_twice_as_slow_takes_twice_as_long_and_reports_it():
    slow = training(TUNED)
    slow = replace(slow, work=replace(slow.work, speeds=(("V100", 500),)))
    result, records = played(slow, where={"nodes": (node("a", (device(0, model="V100"), device(1, model="V100"))),)})
    assert times(result) == [(0, 312)]
    assert of(records, ev.ProgressNoted)[0][1].gauges.batch.step_us == 2_400_000


def test_jobs_that_were_not_measured_report_nothing():
    _, records = played(job(0, 20 * MINUTE // SECOND))
    assert of(records, ev.ProgressNoted) == []
