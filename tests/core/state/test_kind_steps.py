"""The fold over what jobs measured with their batches, by kind, and its bounds."""

from penstock.core.model.batching import BatchAsk, BatchSeen
from penstock.core.state import kind_steps as k
from penstock.core.state.invariants import violations
from penstock.core.state.state import State
from penstock.testing.builders import job_spec
from penstock.testing.harness import cluster, finish, note

RANGE = BatchAsk(64, 4096, 256)


def ran(w, name="train", *, local=64, step_us=100_000, noise=500, step=1):
    """Run a job with a batch range and let it report; return it."""
    job = w.submit(batch=RANGE, name=name)
    w.run(job)
    note(w, job, step, step_ms=100, batch=BatchSeen(local, 0, step_us, 10_000, noise))
    return job


def known(w, name="train"):
    return w.state.indexes.steps.cut().of(job_spec(name=name), "ann")


def test_steps_are_kept_beyond_the_end_of_the_job():
    w = cluster(1, 4)
    finish(w, ran(w))
    found = known(w)
    assert [(one.nodes, one.replicas, one.local, one.step_us) for one in found.steps] == [(1, 1, 64, 100_000)]
    assert found.noise == 500
    assert known(w, "another") is None
    assert violations(w.state) == []


def test_a_small_difference_says_nothing_new_and_a_greater_one_counts_half():
    w = cluster(1, 4)
    ran(w)
    ran(w, local=65, step_us=104_000)
    assert [one.step_us for one in known(w).steps] == [100_000]
    ran(w, step_us=200_000)
    assert [one.step_us for one in known(w).steps] == [150_000]


def test_the_noise_is_that_of_first_reports():
    w = cluster(1, 4)
    job = ran(w, noise=500)
    note(w, job, 50, step_ms=100, batch=BatchSeen(64, 0, 100_000, 10_000, 9_000))
    assert known(w).noise == 500
    ran(w, noise=1_500)
    assert known(w).noise == 1_000


def test_the_first_noted_steps_and_the_oldest_kinds_are_forgotten(monkeypatch):
    monkeypatch.setattr(k, "STEPS_MAX", 2)
    monkeypatch.setattr(k, "KINDS_MAX", 4)
    w = cluster(1, 8)
    for local in (16, 32, 64):
        ran(w, local=local)
    assert [one.local for one in known(w).steps] == [32, 64]
    ran(w, name="b")
    ran(w, name="c")
    assert known(w) is None
    assert known(w, "c") is not None


def test_a_snapshot_keeps_them():
    w = cluster(1, 4)
    ran(w)
    image = w.state.image()
    assert image.steps
    assert State.from_image(image).indexes.steps.image() == image.steps
