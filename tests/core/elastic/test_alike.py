"""A job starts with what jobs like it measured: sizes, batches, the cost of a restart. Its own reports come first."""

import pytest
from msgspec.structs import replace

from penstock.core.elastic.learned import LearnedSpeeds
from penstock.core.elastic.restarts import restart_cost_ms, settle_ms
from penstock.core.model.batching import BatchAsk, BatchSeen, ElasticRule, KindSteps, StepNoted
from penstock.core.model.cluster import DEFAULT_POOL, Pool, Settings
from penstock.core.model.matching import kinds_of
from penstock.core.state.kind_steps import StepsByKind
from penstock.testing.builders import job_spec
from penstock.testing.harness import cluster, note
from tests.core.elastic.test_elastic_plan import elastic, size

RANGE = BatchAsk(128, 4_096, 256)
STEPS = (
    StepNoted(1, 1, 128, 130_000, 0, "A100"),
    StepNoted(1, 2, 128, 132_000, 2_000, "A100"),
    StepNoted(1, 4, 128, 134_000, 4_000, "A100"),
)
"""Waiting costs little: more replicas pay."""
NOISE = 100_000


def alike(steps=STEPS, *, noise=NOISE, restart_ms=0, name="train"):
    kind = kinds_of(job_spec(name=name), "ann")[0]
    return KindSteps(kind, steps, noise, restart_ms)


def world(*known):
    w = cluster(1, 4, pools=(Pool(DEFAULT_POOL, elastic=ElasticRule(rebalance=True)),))
    w.state.indexes.steps = StepsByKind(known)
    return w


def trains(w, name="train"):
    job = w.submit(gang=elastic(1, 8), batch=RANGE, name=name)
    w.run(job)
    return job


def test_a_job_starts_at_the_size_and_batch_that_jobs_like_it_do_well_with():
    w = world(alike())
    job = trains(w)
    assert size(w, job) == 4
    assert w.attempt(job).batch.local > 128 // 4, "a batch of its own, not the smallest divided"


def test_of_one_without_its_like_nothing_is_known():
    w = world(alike())
    assert size(w, trains(w, "another")) == 2


@pytest.mark.parametrize(("step_us", "largest"), [(130_000, 4), (250_000, 1), (60_000, 1)])
def test_its_own_steps_say_whether_they_are_alike(step_us, largest):
    w = world()
    job = trains(w)
    own = (StepNoted(1, 1, 128, step_us, model="A100"),)
    told = replace(w.job(job), progress=replace(w.job(job).progress, steps=own, noise=NOISE))
    assert LearnedSpeeds().of(told, "goodput", alike=alike()).largest_seen == largest


def test_its_own_times_count_where_it_has_run():
    w = world()
    job = trains(w)
    told = w.job(job)
    slower = (StepNoted(1, 4, 128, 170_000, 40_000, "A100"),)
    told = replace(told, progress=replace(told.progress, steps=slower, noise=NOISE))
    speeds = [LearnedSpeeds().of(told, "goodput", alike=alike(steps)) for steps in (STEPS, STEPS[:2])]
    assert speeds[0].curve.speed_milli(4, 1) == speeds[1].curve.speed_milli(4, 1)


def test_steps_on_another_device_model_say_nothing():
    w = world()
    job = trains(w)
    others = tuple(replace(step, model="H100") for step in STEPS)
    assert LearnedSpeeds().of(w.job(job), "goodput", alike=alike()).goodput is not None
    assert LearnedSpeeds().of(w.job(job), "goodput", alike=alike(others)).goodput is None


def test_a_restart_costs_what_it_cost_jobs_like_it_until_it_was_measured():
    w = world()
    job = trains(w)
    w.now += 10_000
    note(w, job, step_ms=130, batch=BatchSeen(64, 0, 130_000, 0, NOISE))
    known = alike(restart_ms=25_000)
    assert restart_cost_ms(w.job(job), Settings(), known) == 25_000
    assert settle_ms(w.job(job), w.attempt(job), Settings(), known) == 25_000
    told = replace(w.job(job), progress=replace(w.job(job).progress, restart_ms=9_000))
    assert restart_cost_ms(told, Settings(), known) == 9_000
