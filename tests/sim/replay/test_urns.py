"""Lengths are drawn from what jobs like a job took; siblings turn out alike."""

import random

import pytest

from penstock.core.model.ids import JobId, TenantName, UserName
from penstock.core.predict.features import JobFeatures
from penstock.core.predict.forecast import PastRun, predictor_of
from penstock.sim.forecast.sampling import Urns
from tests.sim.replay.builders import HOUR, MINUTE


def features(user="ann", name="train", devices=1, **more):
    return JobFeatures(devices, UserName(user), TenantName("t"), name=name, **more)


def knowing(*groups):
    """Return a predictor that knows runs: (features, lengths) each."""
    runs, number = [], 0
    for like, lengths in groups:
        for length_ms in lengths:
            number += 1
            at_ms = 600_000 * number
            runs.append(PastRun(JobId(number), like, at_ms, at_ms, at_ms + length_ms, whole=True))
    return predictor_of(runs)


def drawn(predictor, like, age_ms=0, count=400):
    return [Urns(predictor, random.Random(i)).length_ms(JobId(10_000), like, age_ms) for i in range(count)]


def share(values, wanted):
    return sum(map(wanted, values)) / len(values)


def test_a_job_takes_what_its_owner_s_runs_under_that_name_took():
    predictor = knowing((features(), [HOUR] * 30), (features("bob", "other"), [MINUTE] * 300))
    assert share(drawn(predictor, features()), lambda v: v == HOUR) > 0.9
    assert share(drawn(predictor, features("bob", "other")), lambda v: v == MINUTE) > 0.9


def test_few_runs_are_not_trusted_alone():
    predictor = knowing((features(), [HOUR] * 2), (features("bob", "other"), [MINUTE] * 300))
    assert 0.5 < share(drawn(predictor, features()), lambda v: v == HOUR) < 0.9


def test_a_running_job_takes_what_those_took_that_ran_as_long():
    predictor = knowing((features(), [HOUR] * 90 + [10 * HOUR] * 10))
    assert share(drawn(predictor, features()), lambda v: v == HOUR) > 0.8
    late = drawn(predictor, features(), 2 * HOUR)
    assert share(late, lambda v: v == 10 * HOUR) > 0.8
    assert all(v > 2 * HOUR for v in late)


def test_beyond_all_that_was_seen_nobody_is_sure():
    late = drawn(knowing((features(), [MINUTE] * 50)), features(), 5 * HOUR)
    assert all(v > 5 * HOUR for v in late)
    assert share(late, lambda v: v > 10 * HOUR) > 0.3


def test_siblings_turn_out_alike():
    """Of a burst nobody has seen before, either all are short or all are long; strangers are one or the other."""
    predictor = knowing((features("bob", "x"), [MINUTE, 10 * HOUR] * 100))
    together = apart = 0
    for seed in range(200):
        urns = Urns(predictor, random.Random(seed))
        first, second = (urns.length_ms(JobId(i), features("new", "sweep"), 0) for i in (20_001, 20_002))
        other = urns.length_ms(JobId(20_003), features("third", "else"), 0)
        together += first == second
        apart += first == other
    assert together > 140 > 125 > apart


@pytest.mark.parametrize("age_ms", [0, 5 * MINUTE])
def test_a_limit_binds(age_ms):
    predictor = knowing((features(), [HOUR] * 50))
    assert max(drawn(predictor, features(limit_ms=10 * MINUTE), age_ms)) == 10 * MINUTE


def test_what_was_declared_counts_more_than_what_strangers_took():
    predictor = knowing((features("bob", "other"), [MINUTE] * 300))
    values = drawn(predictor, features(estimate_ms=5 * HOUR))
    assert share(values, lambda v: 2 * HOUR < v < 12 * HOUR) > 0.8
    mine = knowing((features(estimate_ms=5 * HOUR), [HOUR] * 50))
    assert share(drawn(mine, features(estimate_ms=5 * HOUR)), lambda v: v == HOUR) > 0.9


def test_of_an_unknown_world_nothing_is_drawn():
    assert drawn(knowing(), features(), count=1) == [None]


def test_the_same_seed_draws_the_same():
    predictor = knowing((features(), [HOUR, MINUTE] * 20))
    assert drawn(predictor, features()) == drawn(predictor, features())


@pytest.mark.parametrize("known", [(), ((features(), [3 * HOUR] * 20),)])
def test_who_is_past_what_was_declared_goes_on_for_a_while(known):
    late = drawn(knowing(*known), features(estimate_ms=HOUR), 5 * HOUR)
    assert share(late, lambda v: v < 5 * HOUR + MINUTE) < 0.1
    assert share(late, lambda v: v < 10 * HOUR) > 0.8
