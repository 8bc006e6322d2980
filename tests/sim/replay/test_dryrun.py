"""What a submit would lead to, told before it: and then it happens."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lifecycle.requests import NewJob, Submit
from penstock.core.messages.requests import Refusal
from penstock.core.predict.forecast import PastRun, features_of, predictor_of
from penstock.sim.forecast.dryrun import dry_run
from penstock.sim.forecast.outlook import UNKNOWN_MS, Outlook, declared_lengths, learned_lengths
from penstock.testing.builders import job_spec
from penstock.testing.harness import cluster, follow
from penstock.testing.worlds import crowded
from tests.properties import examples

MINUTE, HOUR = 60_000, 3_600_000


def told(w, *specs, array=0, **options):
    request = Submit(tuple(NewJob(spec, array) for spec in specs), "ann")
    return dry_run(w.state.image(), request, w.now, declared_lengths, **options)


def test_what_fits_starts_now_and_where():
    w = cluster(2, 4)
    (job,) = told(w, job_spec(3)).jobs
    assert (job.starts_now, job.start_p90_ms, job.text) == (True, w.now, "starts now")
    assert [(p.node, p.devices) for p in job.places] == [("n0", (0, 1, 2))]
    assert w.state.jobs == {}


def test_what_does_not_fit_starts_when_the_first_is_expected_to_end():
    w = cluster(1, 4)
    w.run(w.submit(4, estimated_duration_ms=HOUR, preemptible=False))
    w.now += 20 * MINUTE
    (job,) = told(w, job_spec(1)).jobs
    assert (job.starts_now, job.places) == (False, ())
    assert job.start_p10_ms == job.start_p50_ms == job.start_p90_ms == w.now + 40 * MINUTE
    assert job.text == "waits: starts in about 40m 0s (8 of 10 such starts: in 40m 0s to 40m 0s)"
    assert job.explanation.constraints != ()


def test_a_limit_says_only_by_when():
    w = cluster(1, 4)
    w.run(w.submit(4, time_limit_ms=HOUR, preemptible=False))
    (job,) = told(w, job_spec(1), samples=400).jobs
    half = (job.start_p50_ms - w.now) / HOUR
    assert 0.4 < half < 0.6
    assert 0.8 < (job.start_p90_ms - w.now) / HOUR <= 1.0


def test_whoever_waits_for_a_run_of_unknown_length_cannot_be_told():
    w = cluster(1, 4)
    w.run(w.submit(4, preemptible=False))
    (job,) = told(w, job_spec(1)).jobs
    assert (job.start_p50_ms, job.started) == (0, 0)
    assert job.text == "is not estimated to start within 30 days"


def test_those_who_wait_already_come_first():
    w = cluster(1, 4)
    w.run(w.submit(4, estimated_duration_ms=HOUR, preemptible=False))
    w.submit(4, estimated_duration_ms=2 * HOUR, preemptible=False)
    (job,) = told(w, job_spec(4)).jobs
    assert job.start_p50_ms == w.now + 3 * HOUR


def test_who_would_have_to_leave_is_named():
    w = cluster(1, 4)
    victim = w.submit(4, priority=100, name="victim")
    w.run(victim)
    (job,) = told(w, job_spec(2, priority=900)).jobs
    assert [(v.job_id, v.name, v.rule) for v in job.preempts] == [(victim, "victim", "lower_priority")]


def test_of_an_array_the_last_one_counts():
    w = cluster(1, 4)
    (job,) = told(w, job_spec(2, estimated_duration_ms=HOUR), array=5).jobs
    assert (job.count, job.start_p50_ms) == (5, w.now + 2 * HOUR)


def test_a_request_that_would_be_refused_is():
    found = told(cluster(1, 4), job_spec(5))
    assert isinstance(found, Refusal)


def test_who_is_in_a_hurry_gets_fewer_samples():
    w = cluster(1, 4)
    w.run(w.submit(4, time_limit_ms=HOUR, preemptible=False))
    assert told(w, job_spec(1), spent=lambda: 1.0).jobs[0].samples == 0


def test_asking_twice_gives_the_same_answer():
    w = cluster(1, 4)
    w.run(w.submit(4, time_limit_ms=HOUR, preemptible=False))
    assert told(w, job_spec(1)) == told(w, job_spec(1))


@given(st.integers(0, 2**32), st.integers(0, 2**32))
@examples(60)
def test_the_scheduler_then_does_what_was_said(seed, other):
    """On a quiet cluster: nothing else happens between the question and the submit. 500 cases: see docs/promises.md."""
    w = crowded(seed)
    for _ in range(2):
        w.cycle()
        follow(w)
    draw = random.Random(other)
    spec = job_spec(
        draw.randint(0, 4), draw.randint(1, 3), priority=draw.choice((100, 500, 900)), preemptible=draw.random() < 0.5
    )
    answer = told(w, spec, samples=1)
    if isinstance(answer, Refusal):
        return
    (said,) = answer.jobs
    (job,) = w.request(spec).job_ids
    plan = w.cycle()
    starts = {start.job_id: start for start in plan.starts}
    assert said.starts_now == (job in starts)
    assert [v.job_id for v in said.preempts] == [p.victim for p in plan.preemptions if p.beneficiary == job]
    if job in starts:
        assert [(p.node, p.devices) for p in said.places] == [(p.node, p.devices) for p in starts[job].places]


# Lengths.


def test_a_length_is_never_shorter_than_what_has_run():
    w = cluster(1, 4)
    job = w.job(w.submit(1, estimated_duration_ms=MINUTE))
    assert declared_lengths(random.Random(0))(job, 5 * MINUTE) == 5 * MINUTE + 1


def test_a_length_is_never_above_the_limit():
    w = cluster(1, 4)
    job = w.job(w.submit(1, estimated_duration_ms=HOUR, time_limit_ms=MINUTE))
    assert declared_lengths(random.Random(0))(job, 0) == MINUTE


def test_nothing_declared_is_nothing_known():
    w = cluster(1, 4)
    assert declared_lengths(random.Random(0))(w.job(w.submit(1)), 0) == UNKNOWN_MS


def test_lengths_are_learned_from_runs_like_it():
    w = cluster(1, 4)
    job = w.job(w.submit(1, name="train"))
    like = features_of(job.spec, job.user)
    past = [PastRun(100 + i, like, i, i + 1, i + 1 + HOUR, whole=True) for i in range(20)]
    lengths = learned_lengths(predictor_of(past))
    drawn = [lengths(random.Random(i))(job, 0) for i in range(50)]
    assert drawn.count(HOUR) >= 45
    assert learned_lengths(predictor_of([]))(random.Random(0))(job, 0) == UNKNOWN_MS


def test_quantiles_count_samples_that_never_start():
    found = Outlook(10, (1, 2, 3, 4, 5, 6))
    assert [found.quantile_ms(part) for part in (0.1, 0.5, 0.6, 0.61, 0.9)] == [1, 5, 6, 0, 0]
