"""What notes of a running program teach about its speed, its batch and its restarts."""

from penstock.core.model.batching import BatchAsk, BatchChoice, BatchSeen, StepNoted
from penstock.core.model.events import AttemptAllocated, AttemptStopRequested, BatchChosen, JobResumed
from penstock.core.model.jobs import ReplicaPlace
from penstock.core.model.progress import STEPS_MAX
from penstock.core.state.state import State, fold
from penstock.testing.builders import device, node
from penstock.testing.harness import World, cluster, note
from tests.core.elastic.test_elastic_plan import elastic

SECOND = 1_000


def training(*models):
    """Return a world with one job of up to 4 replicas, on nodes of two devices of these models each."""
    w = World(*(node(f"n{i}", devices=[device(0, model=m), device(1, model=m)]) for i, m in enumerate(models)))
    job = w.submit(gang=elastic(1, 2 * len(models)))
    w.run(job)
    return w, job


def told(w, job, step=1, **seen):
    note(w, job, step, step_ms=100, batch=BatchSeen(**{"local": 8, "step_us": 900} | seen))
    return w.job(job).progress


def test_times_are_kept_by_placement_batch_and_model():
    w, job = training("A100", "A100")
    assert told(w, job, sync_us=100).steps == (StepNoted(2, 4, 8, 900, 100, "A100"),)
    assert told(w, job, local=16, step_us=1_500).steps[1:] == (StepNoted(2, 4, 16, 1_500, 0, "A100"),)


def test_a_new_measurement_of_a_known_batch_counts_for_half():
    w, job = training("A100")
    told(w, job, step_us=1_000, sync_us=100)
    assert told(w, job, step_us=2_000, sync_us=300).steps == (StepNoted(1, 2, 8, 1_500, 200, "A100"),)


def test_sizes_on_devices_of_several_models_are_of_none():
    w, job = training("A100", "H100")
    assert (w.attempt(job).model, told(w, job).sizes[0].model) == ("", "")
    w, job = training("H100")
    assert (w.attempt(job).model, told(w, job).sizes[0].model) == ("H100", "H100")


def test_only_so_many_times_are_kept():
    w, job = training("A100")
    for local in range(1, STEPS_MAX + 3):
        told(w, job, local=local)
    assert [step.local for step in w.job(job).progress.steps] == list(range(3, STEPS_MAX + 3))


def test_the_last_known_noise_counts():
    w, job = training("A100")
    assert [told(w, job, noise=n).noise for n in (0, 500, 0, 700)] == [0, 500, 500, 700]


def test_numbers_that_cannot_be_are_left_out():
    w, job = training("A100")
    for wrong in ({"local": 0}, {"step_us": 0}, {"local": 2**60}, {"step_us": 2**60}, {"local": -1}):
        assert told(w, job, **wrong).steps == ()
    assert told(w, job, noise=-5).noise == told(w, job, noise=2**60).noise == 0
    assert told(w, job, local=9, sync_us=5_000).steps[-1].sync_us == 900


# Batches.


def test_an_attempt_has_the_batch_that_was_chosen_last():
    w = cluster(1, 4)
    job = w.submit(1, batch=BatchAsk(8, 64, 16))
    w.emit(AttemptAllocated(job, 1, (ReplicaPlace("n0", "i1", (0,)),), batch=BatchChoice(8)))
    assert w.attempt(job).batch == BatchChoice(8)
    w.emit(BatchChosen(job, 1, BatchChoice(16, 2)))
    assert w.attempt(job).batch == BatchChoice(16, 2)
    assert fold(w.records, State()).jobs[job].attempt.batch == BatchChoice(16, 2)


# Restarts.


def restarted(w, job, *, saving_ms=4 * SECOND, waiting_ms=60 * SECOND, loading_ms=10 * SECOND, step=100):
    """Stop a job and start it again, until the first note of the new attempt, three steps beyond the resumed one."""
    w.emit(AttemptStopRequested(job, w.attempt(job).number, "resized", 30_000))
    w.now += saving_ms
    w.leave(job)
    w.now += waiting_ms
    w.run(job)
    w.emit(JobResumed(job, w.attempt(job).number, step))
    w.now += loading_ms + 2 * 100
    return told(w, job, step + 3).restart_ms


def test_a_restart_lasts_from_the_request_to_the_first_new_step_without_the_wait_between():
    w, job = training("A100")
    told(w, job, 100)
    assert restarted(w, job) == 14 * SECOND
    assert restarted(w, job, saving_ms=24 * SECOND, step=200) == (14 + 34) * SECOND // 2
    told(w, job, 300)
    assert w.job(job).progress.restart_ms == 24 * SECOND


def test_a_start_from_the_beginning_and_an_end_by_failure_measure_nothing():
    w, job = training("A100")
    w.emit(AttemptStopRequested(job, 1, "resized", 30_000))
    w.leave(job)
    w.run(job)
    assert told(w, job, 1).restart_ms == 0


def test_changes_of_size_and_place_are_remembered_preemptions_are_not():
    w, job = training("A100")
    for reason in ("resized", "moved", "preempted"):
        w.emit(AttemptStopRequested(job, w.attempt(job).number, reason, 30_000))
        w.now += SECOND
        w.leave(job)
        w.run(job)
    assert len(w.job(job).changes_ms) == 2
