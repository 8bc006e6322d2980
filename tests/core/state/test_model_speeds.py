"""The fold over speeds of jobs by device model, and its bounds."""

from penstock.core.model.jobs import GangAsk
from penstock.core.model.matching import kinds_of
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.state import model_speeds as m
from penstock.core.state.state import State
from penstock.testing.builders import device, job_spec, node
from penstock.testing.harness import World, finish, note


def mixed(**fields):
    nodes = [node(name, (device(0, model=name.upper()), device(1, model=name.upper()))) for name in ("k80", "v100")]
    return World(*nodes, **fields)


def on(w, model, name="train", **gauges):
    """Run a job on a model and let it report; return it."""
    job = w.submit(models=(model,), name=name)
    w.run(job)
    note(w, job, **(gauges or {"step_ms": 500}))
    return job


def speeds(w, spec):
    known = w.state.indexes.model_speeds.cut().of(spec, "ann")
    return [(one.model, [run.rate for run in one.runs]) for one in known[0].models] if known else []


def test_reports_are_kept_by_model_beyond_the_jobs_end():
    w = mixed()
    job = on(w, "K80", step_ms=500)
    finish(w, job)
    on(w, "V100", step_ms=100)
    assert speeds(w, job_spec(name="train")) == [("K80", [2_000]), ("V100", [10_000])]


def test_samples_count_before_steps():
    w = mixed()
    on(w, "K80", step_ms=500, samples_per_s_milli=7_000)
    assert speeds(w, job_spec(name="train")) == [("K80", [7_000])]


def test_what_replicas_of_an_elastic_job_wait_for_each_other_does_not_count():
    """Two replicas that wait half of the time compute as fast as one alone; of a job of one size that is its speed."""
    rates = []
    for gang in (GangAsk(1, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=2), None):
        w = mixed()
        job = w.submit(gang=gang) if gang is not None else w.submit(1, 2)
        w.run(job)
        note(w, job, samples_per_s_milli=8_000, communication_milli=500)
        assert len(w.attempt(job).replicas) == 2
        (narrow, _) = w.state.indexes.model_speeds.image()
        rates += [one.rate for one in narrow.models]
    assert rates == [8_000, 4_000]


def test_one_run_counts_once_and_only_the_latest_runs_are_kept():
    w = mixed()
    for count in range(m.RUNS_MAX + 2):
        job = on(w, "V100", step_ms=100 + count)
        note(w, job, step=2, step_ms=200 + count)
        finish(w, job)
    rates = dict(speeds(w, job_spec(name="train")))["V100"]
    assert rates == [10**6 // (200 + count) for count in range(2, m.RUNS_MAX + 2)]


def test_numbers_in_names_divide_the_narrow_kind_alone():
    narrow, wide = kinds_of(job_spec(name="train-7"), "ann")
    other, same = kinds_of(job_spec(name="train-12"), "ann")
    assert wide == same
    assert narrow != other
    assert kinds_of(job_spec(name="train-7"), "bob")[1] != wide


def test_the_oldest_kinds_are_forgotten(monkeypatch):
    monkeypatch.setattr(m, "KINDS_MAX", 4)
    w = mixed()
    for name in ("a", "b", "c"):
        finish(w, on(w, "V100", name=name))
    assert speeds(w, job_spec(name="a")) == []
    assert speeds(w, job_spec(name="c"))


def test_a_snapshot_keeps_them():
    w = mixed()
    on(w, "V100")
    assert State.from_image(w.state.image()).indexes.model_speeds.image() == w.state.indexes.model_speeds.image()


def test_a_job_on_several_models_says_nothing_of_one():
    w = mixed()
    job = w.submit(2, 2, name="both")
    w.run(job)
    note(w, job, step_ms=5)
    assert speeds(w, job_spec(2, 2, name="both")) == []


def test_usual_speeds_are_medians_over_kinds():
    w = mixed()
    for name, k80, v100 in (("a", 400, 100), ("b", 300, 100), ("c", 900, 100)):
        finish(w, on(w, "K80", name=name, step_ms=k80))
        finish(w, on(w, "V100", name=name, step_ms=v100))
    assert w.state.indexes.model_speeds.cut().usual == (("K80", 1000), ("V100", 4_000))
