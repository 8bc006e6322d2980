"""Expected run times: what they change in the state, and when the forecaster says a new one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.control.finished_jobs import finished_row, past_run
from penstock.core.model.events import (
    AttemptEnded,
    AttemptResumed,
    AttemptStopRequested,
    AttemptSuspended,
    ReplicaFrozen,
    RunTimesPredicted,
)
from penstock.core.model.ids import Rank
from penstock.core.model.jobs import Dependency
from penstock.core.order.ranks import expected_ms, longest_ms, request_class
from penstock.core.predict import forecast
from penstock.core.predict.forecast import Forecaster, PastRun, features_of
from penstock.core.state.state import fold
from penstock.testing.builders import queues
from penstock.testing.harness import World, cluster
from tests.properties import examples
from tests.store.builders import same

SECOND = 1_000
SHORTEST = queues("default", policy="shortest_predicted")


@pytest.fixture(autouse=True)
def others_wait(request, monkeypatch):
    """Jobs are looked at when they are due, as where others wait for them."""
    if "quiet" not in request.node.name:
        monkeypatch.setattr(forecast, "is_quiet", lambda state, now_ms: False)


def predict(w, *times):
    w.emit(RunTimesPredicted(times))


def follow(w, forecaster, seen):
    """Let the forecaster take in what was logged since; return how much it has seen."""
    forecaster.observe(w.records[seen:])
    return len(w.records)


# What a prediction changes.


def test_a_job_that_is_expected_to_be_shorter_goes_first():
    w = cluster(1, 1, queues=SHORTEST)
    long, short = w.submit(1), w.submit(1)
    predict(w, (long, 50 * SECOND, 60 * SECOND), (short, 5 * SECOND, 6 * SECOND))
    assert [s.job_id for s in w.plan().starts] == [short]
    predict(w, (long, SECOND, SECOND))
    assert [s.job_id for s in w.plan().starts] == [long]


def test_an_expected_end_moves_while_the_job_runs():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    began = w.job(job).attempt.allocated_ms
    for length_ms in (30 * SECOND, 90 * SECOND):
        predict(w, (job, length_ms, 2 * length_ms))
        assert list(w.state.indexes.ends) == [(began + length_ms, job)]
    assert same(w.state, fold(w.records))


def test_a_job_goes_beside_a_reservation_by_what_it_hardly_exceeds():
    w = cluster(1, 2, starvation_after_ms=10**9)
    runs = w.submit(1, preemptible=False)
    w.run(runs)
    wide, narrow = w.submit(2, priority=900), w.submit(1)
    predict(w, (runs, 100 * SECOND, 200 * SECOND), (narrow, 20 * SECOND, 40 * SECOND))
    assert [s.job_id for s in w.plan().starts] == [narrow]
    predict(w, (narrow, 20 * SECOND, 60 * SECOND))
    found = w.plan()
    assert ([s.job_id for s in found.starts], found.reserved[0].job_id) == ([], wide)


def test_what_is_predicted_stays_within_the_limit():
    w = cluster(1, 1)
    job = w.submit(1, time_limit_ms=10 * SECOND)
    predict(w, (job, 5 * SECOND, 30 * SECOND))
    assert (expected_ms(w.job(job)), longest_ms(w.job(job))) == (5 * SECOND, 10 * SECOND)


def test_a_job_that_waits_for_another_is_classified_too():
    w = cluster(1, 1, queues=SHORTEST)
    first = w.submit(1)
    second = w.submit(1, after=(Dependency(first, "after_ok"),))
    predict(w, (second, 7 * SECOND, 9 * SECOND))
    assert w.job(second).class_id == w.state.indexes.class_ids[request_class(w.job(second), w.state.config)]
    w.run(first)
    w.exit_replica(first)
    assert [s.job_id for s in w.plan().starts] == [second]


# What is said, and when.


def learned(lengths=(10,) * 9, **fields):
    """Return a world and a forecaster that has seen runs of these lengths (s), of jobs like those to come."""
    w = cluster(1, 4, **fields)
    forecaster, seen = Forecaster(w.state.jobs.values()), len(w.records)
    for length_s in lengths:
        job = w.submit(1, name="train")
        w.run(job)
        w.now += length_s * SECOND
        w.exit_replica(job)
        w.now += forecast.LOOK_MS  # no burst
        seen = follow(w, forecaster, seen)
    forecaster.told(w.state, w.now)
    return w, forecaster, seen


def test_a_new_job_is_expected_to_run_as_long_as_those_like_it():
    w, forecaster, seen = learned()
    job = w.submit(1, name="train")
    follow(w, forecaster, seen)
    assert forecaster.told(w.state, w.now) == ((job, 10 * SECOND, 10 * SECOND),)


def test_on_a_quiet_cluster_a_run_is_looked_at_when_its_age_has_doubled(monkeypatch):
    w, forecaster, seen = learned()
    job = w.submit(4, name="train")
    w.run(job)
    follow(w, forecaster, seen)
    ages = []
    monkeypatch.setattr(forecaster, "_look", lambda job, now_ms, _: ages.append(job.attempt.held_ms(now_ms)))
    for _ in range(17):
        forecaster.told(w.state, w.now)
        w.now += forecast.LOOK_MS
    assert [age // forecast.LOOK_MS for age in ages] == [0, 1, 2, 4, 8, 16]


def test_on_a_quiet_cluster_nothing_is_said_where_nobody_watches_and_all_is_known_later(monkeypatch):
    monkeypatch.setattr(forecast, "NEWS_MAX", 10)
    w, _, _ = learned()
    forecaster, seen = Forecaster((), watched=False), follow(w, Forecaster(()), 0)
    for at in range(seen):
        forecaster.observe(w.records[at : at + 1])
    runs = w.submit(4, name="train")
    w.run(runs)
    seen = follow(w, forecaster, seen)
    w.now += 2 * forecast.LOOK_MS
    assert forecaster.told(w.state, w.now) == ()
    waits = w.submit(4, name="train")
    follow(w, forecaster, seen)
    found = forecaster.told(w.state, w.now + forecast.SETTLED_MS)
    assert [job for job, *_ in found] == [runs, waits]


def test_nothing_is_said_where_nothing_is_known():
    w = cluster(1, 1)
    forecaster = Forecaster(w.state.jobs.values())
    w.submit(1, estimated_duration_ms=5 * SECOND)
    w.submit(1)
    follow(w, forecaster, 0)
    assert forecaster.told(w.state, w.now) == ()


def test_the_same_is_not_said_twice():
    w, forecaster, seen = learned()
    w.submit(1, name="train")
    seen = follow(w, forecaster, seen)
    predict(w, *forecaster.told(w.state, w.now))
    follow(w, forecaster, seen)
    assert forecaster.told(w.state, w.now + forecast.LOOK_MS) == ()


def test_a_sweep_finds_jobs_of_which_more_is_known_by_now():
    w, forecaster, seen = learned(lengths=(10,) * 7)
    waits = w.submit(4, name="other", priority=100), w.submit(1, name="train")
    seen = follow(w, forecaster, seen)
    assert forecaster.told(w.state, w.now) == ()
    w.run(waits[1])
    w.now += 10 * SECOND
    w.exit_replica(waits[1])
    last = w.submit(1, name="train")
    follow(w, forecaster, seen)
    w.now += forecast.LOOK_MS
    assert [job for job, *_ in forecaster.told(w.state, w.now)] == [last, waits[0]]


def test_a_job_is_looked_at_when_its_wait_has_grown_by_a_part():
    w, forecaster, seen = learned()
    other, waits = w.submit(1, name="train"), w.submit(4, name="train")
    seen = follow(w, forecaster, seen)
    predict(w, *forecaster.told(w.state, w.now))
    w.run(other)
    w.now += forecast.LOOK_SHARE * 5 * forecast.LOOK_MS
    seen = follow(w, forecaster, seen)
    predict(w, *forecaster.told(w.state, w.now))
    w.exit_replica(other)
    follow(w, forecaster, seen)
    w.now += 4 * forecast.LOOK_MS
    assert waits not in [job for job, *_ in forecaster.told(w.state, w.now)]
    w.now += forecast.LOOK_MS
    assert waits in [job for job, *_ in forecaster.told(w.state, w.now)]


def test_a_job_that_should_have_ended_is_looked_at_at_once():
    w, forecaster, seen = learned(lengths=(10,) * 8 + (100,) * 8)
    job = w.submit(1, name="train")
    w.run(job)
    seen = follow(w, forecaster, seen)
    first = forecaster.told(w.state, w.now)
    assert first[0][:2] == (job, 10 * SECOND)
    predict(w, *first)
    seen = follow(w, forecaster, seen)
    w.now += 9 * SECOND
    assert forecaster.told(w.state, w.now) == ()
    w.now += 2 * SECOND
    assert forecaster.told(w.state, w.now) == ((job, 100 * SECOND, 100 * SECOND),)


def test_beyond_all_that_was_seen_a_job_goes_on_for_a_part_of_its_age():
    w, forecaster, seen = learned()
    job = w.submit(1, name="train")
    w.run(job)
    follow(w, forecaster, seen)
    predict(w, *forecaster.told(w.state, w.now))
    w.now += 400 * SECOND
    ((found, expected, most),) = forecaster.told(w.state, w.now)
    assert found == job
    assert 400 * SECOND < expected <= most


def test_a_run_that_was_stopped_tells_only_that_it_takes_longer():
    w = cluster(1, 1)
    forecaster = Forecaster(w.state.jobs.values())
    seen = 0
    for _ in range(9):
        job = w.submit(1, name="train")
        w.run(job)
        w.now += 10 * SECOND
        w.cancel(job)
        w.leave(job)
        w.now += forecast.LOOK_MS
        seen = follow(w, forecaster, seen)
    w.submit(1, name="train")
    follow(w, forecaster, seen)
    assert forecaster.told(w.state, w.now) == ()


def test_a_sweep_goes_slice_by_slice():
    w, _, _ = learned()
    jobs = [w.submit(1, name="train") for _ in range(5)]
    forecaster = Forecaster(w.state.jobs.values(), _history(w))
    w.now += forecast.LOOK_MS
    told = [[job for job, *_ in forecaster.told(w.state, w.now, most=2)] for _ in range(4)]
    assert told == [jobs[:2], jobs[2:4], jobs[4:], []]
    w.now += forecast.LOOK_MS
    assert [job for job, *_ in forecaster.told(w.state, w.now, most=2)] == jobs[:2]


def _history(w):
    last = w.job(w.state.next_job - 1)
    features = features_of(last.spec, last.user)
    return [PastRun(900 + i, features, 1, 1 + i, 1 + i + 10 * SECOND, whole=True) for i in range(9)]


@pytest.mark.parametrize(("change", "known"), [({}, True), ({"whole": False}, False), ({"started_ms": 0}, False)])
def test_history_counts_where_it_is_whole(change, known):
    w = cluster(1, 1)
    job = w.submit(1, name="train")
    forecaster = Forecaster(w.state.jobs.values(), [run._replace(**change) for run in _history(w)])
    assert forecaster.told(w.state, w.now) == (((job, 10 * SECOND, 10 * SECOND),) if known else ())


def test_a_live_job_that_another_leader_has_ended_counts_as_live():
    w = cluster(1, 0, cpus=64)
    job = started(w)
    w.now += 60 * SECOND
    live = w.job(job)
    ended = PastRun(job, features_of(live.spec, live.user), live.submitted_ms, w.now - SECOND, w.now, whole=True)
    with_it, without = (Forecaster([live], history) for history in ((*_history(w), ended), _history(w)))
    assert lengths_of(w, with_it, job) == lengths_of(w, without, job)


def test_a_forecaster_made_from_a_state_knows_what_runs():
    w, _, _ = learned()
    job = w.submit(1, name="train")
    w.run(job)
    forecaster = Forecaster(w.state.jobs.values(), _history(w))
    w.now += 4 * SECOND
    assert forecaster.told(w.state, w.now) == ((job, 10 * SECOND, 10 * SECOND),)


@examples(60)
@given(st.lists(st.tuples(st.sampled_from("srepc"), st.integers(0, 5), st.integers(1, 10**6)), max_size=30))
def test_any_predictions_leave_a_state_that_is_what_the_log_says(steps):
    """Invariants are checked after each commit; the planner is compared with a fresh one in each cycle."""
    w = World(*(cluster(1, 3).state.nodes[name].spec for name in ("n0",)), queues=SHORTEST)
    for what, which, length in steps:
        live = sorted(w.state.jobs)
        if what == "s":
            w.submit(1 + which % 3)
        elif what == "r":
            w.run()
            w.start(*(i for i in live if w.phase(i) == "starting"))
        elif live and what == "p":
            predict(w, (live[which % len(live)], length, length + which))
        elif live and what == "c":
            w.cancel(live[which % len(live)])
    assert same(w.state, fold(w.records))


# Suspensions are no part of a run.


def started(w):
    """Return a job that runs, and may be suspended."""
    job = w.submit(0, cpus=1, name="train", on_preempt="suspend")
    w.run(job)
    return job


def suspend(w, job):
    attempt = w.attempt(job)
    w.emit(
        AttemptStopRequested(job, attempt.number, "suspended", 1_000),
        ReplicaFrozen(job, attempt.number, Rank(0)),
        AttemptSuspended(job, attempt.number),
    )


def resume(w, job):
    w.emit(AttemptResumed(job, w.attempt(job).number))


def lengths_of(w, forecaster, job):
    """Return the points of the curve that runs like the job's give."""
    features = features_of(w.job(job).spec, w.job(job).user)
    return forecaster.predictor.lengths(job, features, now_ms=w.now)[0].points_ms


def test_ends_and_ages_of_runs_leave_suspensions_out():
    w = cluster(1, 0, cpus=64)
    for _ in range(8):
        job = started(w)
        w.now += 50 * SECOND
        suspend(w, job)
        w.now += 1_000 * SECOND
        resume(w, job)
        w.now += 70 * SECOND
        w.exit_replica(job)
        w.now += forecast.LOOK_MS
    long = started(w)
    w.now += 300 * SECOND
    suspend(w, long)
    w.now += 5_000 * SECOND
    forecaster = Forecaster(())
    forecaster.observe(w.records)
    assert lengths_of(w, forecaster, long) == (120 * SECOND, 2 * 300 * SECOND), "twice the age of the one that goes on"
    resume(w, long)
    w.now += 60 * SECOND
    forecaster.observe(w.records[-1:])
    assert lengths_of(w, forecaster, long)[-1] == 2 * 340 * SECOND, "as of the last whole minute"


def test_a_forecaster_made_anew_leaves_suspensions_out_too():
    w = cluster(1, 0, cpus=64)
    job = started(w)
    w.now += 60 * SECOND
    suspend(w, job)
    w.now += 1_000 * SECOND
    resume(w, job)
    w.now += 60 * SECOND
    suspend(w, job)
    w.now += 700 * SECOND
    history = [run._replace(finished_ms=run.started_ms + 30 * SECOND) for run in _history(w)]
    forecaster, seen = Forecaster(w.state.jobs.values(), history), len(w.records)
    assert lengths_of(w, forecaster, job) == (30 * SECOND, 2 * 120 * SECOND)
    resume(w, job)
    w.now += 20 * SECOND
    w.exit_replica(job)
    other = w.submit(0, cpus=1, name="train")
    forecaster.observe(w.records[seen:])
    assert lengths_of(w, forecaster, other) == (30 * SECOND, 140 * SECOND)


def test_an_attempt_that_ends_while_it_is_suspended_counts_up_to_the_suspension():
    w = cluster(1, 0, cpus=64)
    job = started(w)
    w.now += 60 * SECOND
    suspend(w, job)
    w.now += 1_000 * SECOND
    forecaster = Forecaster(w.state.jobs.values(), _history(w))
    seen = len(w.records)
    w.cancel(job)
    w.now += 5 * SECOND
    w.leave(job)
    other = w.submit(0, cpus=1, name="train")
    forecaster.observe(w.records[seen:])
    assert lengths_of(w, forecaster, other) == (10 * SECOND, 120 * SECOND)


def test_rows_of_finished_jobs_say_how_long_they_were_suspended():
    w = cluster(1, 0, cpus=64)
    job = started(w)
    w.now += 60 * SECOND
    suspend(w, job)
    w.now += 1_000 * SECOND
    resume(w, job)
    before = w.job(job)
    w.now += 20 * SECOND
    w.exit_replica(job)
    ended = next(r for r in w.records if isinstance(r.event, AttemptEnded))
    assert ended.event.idle_ms == 1_000 * SECOND
    kept = replace(before, attempt=None, idle_ms=ended.event.idle_ms)
    run = past_run(finished_row(kept, w.records[-1]))
    assert run.finished_ms - run.started_ms - run.idle_ms == 80 * SECOND
    other = w.submit(0, cpus=1, name="train")
    forecaster = Forecaster(w.state.jobs.values(), [run._replace(job_id=900 + i) for i in range(8)])
    assert lengths_of(w, forecaster, other) == (80 * SECOND,)
