"""When waiting jobs start where running programs tell when they end: they are believed, within reason."""

import random

import pytest

from penstock.core.model.events import AttemptStopRequested, CheckpointSaved
from penstock.core.model.ids import JobId
from penstock.core.predict.forecast import PastRun, features_of, predictor_of
from penstock.sim.forecast.outlook import declared_lengths, learned_lengths, outlook
from penstock.testing.harness import cluster, note

MINUTE, HOUR = 60_000, 3_600_000


def training(**fields):
    """Return a world that one job fills for another hour, as its program tells; another job waits for it."""
    w = cluster(1, 4)
    runs = w.submit(4, preemptible=False, name="train", **fields)
    w.run(runs)
    w.now += 10 * MINUTE
    note(w, runs, 400, total_steps=4_000, step_ms=1_000)
    return w, runs, w.submit(4, name="train")


def drawn(w, job_id, lengths, count=2_000):
    """Return what is left of a run in many samples, ascending (ms)."""
    job, age_ms = w.job(job_id), w.now - w.job(job_id).attempt.allocated_ms
    return sorted(lengths(random.Random(i))(job, age_ms) - age_ms for i in range(count))


def knowing(w, *lengths_ms):
    like = features_of(w.job(1).spec, w.job(1).user)
    runs = [
        PastRun(JobId(1_000 + i), like, HOUR * i, HOUR * i, HOUR * i + ms, whole=True)
        for i, ms in enumerate(lengths_ms, 1)
    ]
    return learned_lengths(predictor_of(runs))


def test_one_that_waits_for_a_program_starts_about_when_that_ends():
    w, _, waits = training()
    found = outlook(w.state.image(), [waits], w.now, declared_lengths, samples=200)[waits]
    assert 54 * MINUTE < found.quantile_ms(0.5) - w.now < 68 * MINUTE
    assert 40 * MINUTE < found.quantile_ms(0.1) - w.now < 52 * MINUTE


@pytest.mark.parametrize("first", ["started", "exited"])
def test_a_gang_of_which_one_replica_has_started_goes_on(first):
    w = cluster(2, 4)
    gang = w.submit(4, 2, preemptible=False)
    w.cycle()
    w.report(w.where(gang), w.seen(gang, 0), inventory=False)
    if first == "exited":
        w.exit_replica(gang, 0)
    waits = w.submit(4)
    found = outlook(w.state.image(), [waits], w.now, lambda draw: lambda job, age_ms: HOUR, samples=20)[waits]
    assert found.quantile_ms(0.5) == w.now + (HOUR if first == "started" else 0)


def test_what_it_tells_spreads_by_a_fifth_and_is_not_always_believed():
    w, runs, _ = training(estimated_duration_ms=1_000 * HOUR)
    left = drawn(w, runs, declared_lengths)
    assert 0.08 < sum(ms > 100 * HOUR for ms in left) / len(left) < 0.12
    believed = [ms for ms in left if ms < 100 * HOUR]
    assert 0.45 < sum(ms < HOUR for ms in believed) / len(believed) < 0.55
    assert 0.64 < sum(HOUR / 1.221 < ms < HOUR * 1.221 for ms in believed) / len(believed) < 0.73


def test_it_comes_before_what_others_like_it_took():
    w, runs, _ = training()
    left = drawn(w, runs, knowing(w, *[100 * HOUR] * 50))
    assert 0.85 < sum(ms < 3 * HOUR for ms in left) / len(left) < 0.95


def test_a_job_that_waits_again_takes_what_was_left_by_its_own_account():
    w, runs, _ = training()
    w.emit(CheckpointSaved(runs, 1, 400), AttemptStopRequested(runs, 1, "drained", 1_000))
    w.leave(runs)
    for lengths in (declared_lengths, knowing(w, *[100 * HOUR] * 50)):
        left = sorted(lengths(random.Random(i))(w.job(runs), 0) for i in range(500))
        assert 0.85 < sum(HOUR / 2 < ms < 2 * HOUR for ms in left) / len(left) < 0.95


def test_a_limit_ends_it_in_every_sample():
    w, runs, _ = training(time_limit_ms=30 * MINUTE)
    assert max(drawn(w, runs, declared_lengths)) <= 20 * MINUTE
    assert max(drawn(w, runs, knowing(w, HOUR))) <= 20 * MINUTE


def test_one_that_should_be_over_is_about_to_end():
    w, runs, _ = training()
    w.now += 2 * HOUR
    left = drawn(w, runs, declared_lengths)
    assert left[0] >= 1
    assert left[len(left) // 2] < 2_000


def test_siblings_turn_out_like_one_that_tells_its_end():
    w, runs, waits = training()
    lengths = knowing(w, MINUTE)

    def together(seed):
        length = lengths(random.Random(seed))
        first = length(w.job(runs), w.now - w.job(runs).attempt.allocated_ms)
        alike = w.job(waits)
        return first, length(alike, 0)

    found = [together(seed) for seed in range(500)]
    assert sum(own == other for own, other in found) > 100
