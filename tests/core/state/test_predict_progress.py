"""How long a running program still takes, by its own account."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.events import (
    AttemptResumed,
    AttemptStopRequested,
    AttemptSuspended,
    CheckpointSaved,
    ConfigChanged,
    ProgressNoted,
    Record,
    ReplicaFrozen,
    RunTimesPredicted,
)
from penstock.core.model.progress import SIZES_MAX, Gauges, Mark, Progress
from penstock.core.order.ranks import expected_ms, longest_ms
from penstock.core.predict.forecast import LOOK_MS, Forecaster, PastRun, features_of
from penstock.core.state.expected_end import drifted, noted, told_end_ms, told_rest_ms
from penstock.core.state.state import State, fold
from penstock.core.state.usage import expected_end_ms
from penstock.testing.builders import config, queues
from penstock.testing.harness import cluster, note
from tests.core.elastic.test_elastic_plan import elastic
from tests.store.builders import same

SECOND, MINUTE = 1_000, 60_000


def training(**fields):
    """Return a world with one job that runs on one device."""
    w = cluster(1, 4)
    job = w.submit(1, **fields)
    w.run(job)
    return w, job


def test_what_is_left_is_steps_by_the_time_of_one():
    w, job = training()
    note(w, job, 200, total_steps=1_000, step_ms=50)
    assert told_end_ms(w.job(job)) == w.now + 800 * 50
    w.now += 10 * SECOND
    assert told_rest_ms(w.job(job), w.now) == 30 * SECOND
    assert told_rest_ms(w.job(job), w.now + MINUTE) == 0


@pytest.mark.parametrize("gauges", [{"step_ms": 50}, {"total_steps": 1_000}, {}])
def test_who_does_not_know_its_steps_or_their_time_tells_nothing(gauges):
    w, job = training()
    note(w, job, 200, **gauges)
    assert (told_end_ms(w.job(job)), told_rest_ms(w.job(job), w.now)) == (0, None)


def test_before_a_program_has_told_anything_and_while_it_waits_nothing_is_known():
    w, job = training(retries_max=1)
    assert told_rest_ms(w.job(job), w.now) is None
    note(w, job, 200, total_steps=1_000, step_ms=50)
    w.exit_replica(job, code=1)
    assert told_rest_ms(w.job(job), w.now) is None
    w.now += 10 * MINUTE
    w.run(job)
    assert told_rest_ms(w.job(job), w.now) is None, "the gauges are those of an older attempt"


def test_the_mean_counts_once_it_is_over_long_enough():
    w, job = training()
    note(w, job, 100, total_steps=1_000, step_ms=100)
    w.now += MINUTE - 1
    note(w, job, 400, total_steps=1_000, step_ms=100)
    assert w.job(job).progress.step_us == 100_000
    w.now += 1
    note(w, job, 400, total_steps=1_000, step_ms=100)
    assert w.job(job).progress.step_us == 200_000, "with what a usual step leaves out"
    assert told_rest_ms(w.job(job), w.now) == 600 * 200


def test_a_mean_over_few_steps_does_not_count():
    told = Progress(gauges=Gauges(step_ms=7), first=Mark(1, 0), noted=Mark(10, 10 * MINUTE))
    assert told.step_us == 7_000


def test_steps_that_count_from_0_again_begin_a_new_mean():
    w, job = training()
    note(w, job, 900, total_steps=1_000, step_ms=100)
    w.now += 5 * MINUTE
    note(w, job, 10, total_steps=1_000, step_ms=100)
    assert w.job(job).progress.first == Mark(10, w.now)
    assert told_rest_ms(w.job(job), w.now) == 990 * 100


def test_a_time_limit_still_ends_it():
    w, job = training(time_limit_ms=MINUTE)
    began = w.job(job).attempt.allocated_ms
    w.now += 30 * SECOND
    note(w, job, 1, total_steps=10_000, step_ms=100)
    assert told_end_ms(w.job(job)) == began + MINUTE


def test_its_own_account_comes_before_what_was_learned_or_declared():
    w, job = training(estimated_duration_ms=7 * MINUTE)
    w.emit(RunTimesPredicted(((job, 50 * MINUTE, 60 * MINUTE),)))
    note(w, job, 100, total_steps=1_000, step_ms=100)
    assert list(w.state.indexes.ends) == [(w.now + 900 * 100, job)]
    note(w, job, 500)
    assert list(w.state.indexes.ends) == [(w.job(job).attempt.allocated_ms + 50 * MINUTE, job)]


def test_nobody_is_predicted_who_tells_its_end():
    w = cluster(1, 4)
    forecaster = Forecaster(w.state.jobs.values())
    for number in range(1, 12):
        job = w.submit(1, name="train")
        w.run(job)
        w.now += MINUTE
        if number < 11:
            w.exit_replica(job)
    forecaster.observe(w.records)
    assert [one[0] for one in forecaster.told(w.state, w.now)] == [job]
    note(w, job, 100, total_steps=1_000, step_ms=100)
    w.now += 10 * MINUTE
    assert forecaster.told(w.state, w.now) == ()


def test_room_is_kept_until_the_end_that_a_program_tells():
    w = cluster(1, 2, starvation_after_ms=10**9)
    runs = w.submit(1, preemptible=False)
    w.run(runs)
    w.submit(2, priority=900)
    note(w, runs, 100, total_steps=1_000, step_ms=100)
    w.submit(1, time_limit_ms=100 * SECOND)
    assert w.plan().starts == ()
    short = w.submit(1, time_limit_ms=60 * SECOND)
    found = w.plan()
    assert ([s.job_id for s in found.starts], found.reserved[0].start_ms) == ([short], w.now + 90 * SECOND)


def test_a_suspended_time_does_not_count_as_steps():
    told = Progress(gauges=Gauges(total_steps=100, step_ms=10), noted_attempt=1, noted=Mark(50, 10_000))
    w, job = training()
    attempt = msgspec.structs.replace(w.job(job).attempt, idle_ms=7_000)
    there = msgspec.structs.replace(w.job(job), progress=told, attempt=attempt)
    assert told_end_ms(there) == 10_000 + 7_000 + 50 * 10


# Jobs that wait again.


def preempted(**fields):
    """Return a world with a job that made 300 of 1,000 steps of 1 s, saved at 250, and had to leave."""
    w, job = training(**fields)
    note(w, job, 1, total_steps=1_000, step_ms=900)
    w.now += 299 * SECOND
    note(w, job, 300, total_steps=1_000, step_ms=900)
    w.emit(CheckpointSaved(job, 1, 250))
    w.emit(AttemptStopRequested(job, 1, "preempted", 1_000))
    w.leave(job)
    return w, job


def test_a_preempted_job_is_as_long_as_the_steps_after_its_checkpoint():
    w, job = preempted(estimated_duration_ms=7 * MINUTE)
    assert expected_ms(w.job(job)) == 750 * SECOND
    assert longest_ms(w.job(job)) == 975 * SECOND
    w.emit(RunTimesPredicted(((job, 50 * MINUTE, 60 * MINUTE),)))
    assert (expected_ms(w.job(job)), longest_ms(w.job(job))) == (750 * SECOND, 975 * SECOND), "not as those like it"


def test_without_a_checkpoint_it_begins_anew():
    w, job = training(retries_max=1)
    note(w, job, 200, total_steps=1_000, step_ms=50)
    w.exit_replica(job, code=1)
    assert expected_ms(w.job(job)) == 1_000 * 50


def test_its_rest_stays_within_its_limit_and_is_never_unknown_again():
    w, job = preempted(time_limit_ms=10 * MINUTE)
    assert (expected_ms(w.job(job)), longest_ms(w.job(job))) == (10 * MINUTE, 10 * MINUTE)
    w, job = training()
    note(w, job, 1_000, total_steps=1_000, step_ms=50)
    w.emit(CheckpointSaved(job, 1, 1_000), AttemptStopRequested(job, 1, "preempted", 1_000))
    w.leave(job)
    assert expected_ms(w.job(job)) == 1


def test_it_ends_by_its_rest_until_it_reports_again():
    w, job = preempted()
    w.run(job)
    assert list(w.state.indexes.ends) == [(w.now + 750 * SECOND, job)]
    note(w, job, 260, total_steps=1_000, step_ms=2_000)
    assert list(w.state.indexes.ends) == [(w.now + 740 * 2 * SECOND, job)]
    assert same(w.state, fold(w.records))
    assert same(w.state, State.from_image(w.state.image()))


def test_until_it_reports_again_each_checkpoint_says_where_it_is():
    w, job = preempted()
    w.run(job)
    begun = w.now
    w.now += 10 * SECOND
    w.emit(CheckpointSaved(job, 2, 255))
    assert list(w.state.indexes.ends) == [(w.now + 745 * SECOND, job)], "five steps in ten seconds: slower than before"
    w.now += 10 * SECOND
    w.emit(AttemptStopRequested(job, 2, "suspended", 1_000), ReplicaFrozen(job, 2, 0), AttemptSuspended(job, 2))
    assert list(w.state.indexes.ends) == []
    w.now += MINUTE
    w.emit(AttemptResumed(job, 2))
    assert list(w.state.indexes.ends) == [(begun + 10 * SECOND + 745 * SECOND + MINUTE, job)]
    w.now += SECOND
    w.emit(CheckpointSaved(job, 2, 256))
    assert list(w.state.indexes.ends) == [(w.now + 744 * SECOND, job)]
    assert same(w.state, fold(w.records))
    assert same(w.state, State.from_image(w.state.image()))


def test_no_other_run_says_how_long_a_job_still_takes_that_said_so_itself():
    w, job = preempted()
    like = features_of(w.job(job).spec, w.job(job).user)
    history = [PastRun(900 + i, like, 1, 1 + i, 1 + i + MINUTE, whole=True) for i in range(9)]
    forecaster = Forecaster(w.state.jobs.values(), history)
    assert forecaster.told(w.state, w.now) == ()
    w.run(job)
    assert forecaster.told(w.state, w.now + LOOK_MS) == ()


def test_the_shorter_rest_goes_first():
    w, job = preempted(queue="default")
    w.emit(ConfigChanged(config(queues=queues("default", policy="shortest_predicted")), "op"))
    other = w.submit(4, estimated_duration_ms=800 * SECOND // 4)
    third = w.submit(4, estimated_duration_ms=700 * SECOND // 4)
    assert [s.job_id for s in w.plan().starts] == [third]
    assert w.phase(other) == w.phase(job) == "waiting"


# How each size did.


def test_of_each_size_the_newest_numbers_are_kept_and_the_fastest_step():
    w = cluster(1, 4)
    job = w.submit(gang=elastic(1, 4))
    w.run(job)
    note(w, job, 1, step_ms=100, samples_per_s_milli=5_000)
    note(w, job, 2, step_ms=300, samples_per_s_milli=4_000, data_wait_milli=700)
    (size,) = w.job(job).progress.sizes
    assert (size.replicas, size.step_ms_least, size.samples_per_s_milli, size.data_wait_milli) == (4, 100, 4_000, 700)
    note(w, job, 3)
    assert w.job(job).progress.sizes[0].step_ms_least == 100


def test_only_so_many_sizes_are_kept():
    w, job = training()
    there = w.job(job)
    for replicas in range(1, SIZES_MAX + 3):
        attempt = msgspec.structs.replace(there.attempt, replicas=there.attempt.replicas[:1] * replicas)
        there = noted(msgspec.structs.replace(there, attempt=attempt), ProgressNoted(job, 1, 1, Gauges()), w.now)
    assert [size.replicas for size in there.progress.sizes] == list(range(3, SIZES_MAX + 3))


def test_what_an_alternative_shape_does_says_nothing_of_sizes():
    w, job = training()
    attempt = msgspec.structs.replace(w.job(job).attempt, choice=1)
    other = msgspec.structs.replace(w.job(job), attempt=attempt)
    assert noted(other, ProgressNoted(job, 1, 1, Gauges(step_ms=5)), w.now).progress.sizes == ()


# What holds whatever a program says.


def some_gauges():
    small = st.integers(0, 2_000)
    return st.fixed_dictionaries({"total_steps": small, "step_ms": small, "data_wait_milli": st.integers(0, 1_000)})


@given(st.lists(st.tuples(st.integers(0, 3_000), some_gauges(), st.integers(0, 5 * MINUTE)), max_size=8))
def test_an_end_is_never_before_the_note_nor_after_the_limit(notes):
    w, job = training(time_limit_ms=30 * MINUTE)
    began = w.job(job).attempt.allocated_ms
    for step, gauges, pause_ms in notes:
        w.now += pause_ms
        note(w, job, step, **gauges)
        end_ms = told_end_ms(w.job(job))
        if end_ms:
            assert min(w.now, began + 30 * MINUTE) <= end_ms <= began + 30 * MINUTE
        assert expected_end_ms(w.job(job)) == (end_ms or began + 30 * MINUTE)
    assert same(w.state, fold(w.records))
    assert same(w.state, State.from_image(w.state.image()))


@given(st.integers(1, 2_000), st.integers(1, 5_000), st.integers(0, 5_000))
def test_who_makes_steps_as_told_never_drifts_and_ends_when_told(step_ms, total, made):
    w, job = training()
    note(w, job, 0, total_steps=total, step_ms=step_ms)
    told = w.job(job)
    assert not drifted(told.progress, min(made, total), min(made, total) * step_ms)
    assert told_rest_ms(told, w.now + min(made, total) * step_ms) == max(0, total - made) * step_ms


def test_an_end_that_is_off_by_an_eighth_is_worth_a_note():
    told = Progress(gauges=Gauges(total_steps=1_100, step_ms=1_000), noted=Mark(0, 0))
    assert not drifted(told, 100, 225 * SECOND), "off by 125 s of 1,000 s"
    assert drifted(told, 100, 226 * SECOND)
    assert not drifted(told, 1_095, 1_105 * SECOND), "off by 10 s of 5 s"
    assert drifted(told, 1_095, 1_106 * SECOND)
    assert not drifted(told, 1_100, 9_000 * SECOND), "it has made its steps"


def test_logs_of_before_gauges_drove_anything_are_still_read():
    line = (
        b'{"seq":3,"time_ms":9,"event":{"type":"ProgressNoted","job_id":1,"attempt":1,"step":7,"gauges":{"step_ms":5}}}'
    )
    assert msgspec.json.decode(line, type=Record).event == ProgressNoted(1, 1, 7, Gauges(step_ms=5))
    image = b'{"step":7,"gauges":{"step_ms":5},"noted_attempt":1}'
    assert msgspec.json.decode(image, type=Progress) == Progress(7, gauges=Gauges(step_ms=5), noted_attempt=1)
