"""What is said of a job's run time: from whose runs, within what was declared, and with bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.predict import runtime
from penstock.core.predict.features import JobFeatures
from penstock.core.predict.lengths import ObservedRun, around, lengths_of
from penstock.core.predict.runtime import RuntimePredictor

MINUTE = 60_000
HOUR = 60 * MINUTE


def job(devices=1, **known):
    return JobFeatures(devices, **known)


def ran(predictor, lengths_ms, features, *, first_id=1, begin_ms=0, by_itself=True):
    """Run jobs one after the other, an hour of rest between them; return when the last ended."""
    now_ms = begin_ms
    for number, length_ms in enumerate(lengths_ms, first_id):
        predictor.observe_submit(number, features, now_ms)
        predictor.observe_start(number, now_ms)
        now_ms += length_ms
        predictor.observe_end(number, now_ms, by_itself=by_itself)
        now_ms += HOUR
    return now_ms


def said(predictor, features, *, elapsed_ms=0, now_ms=1000 * HOUR, job_id=10**9):
    return predictor.predict_ms(job_id, features, elapsed_ms=elapsed_ms, now_ms=now_ms)


def test_where_nobody_is_named_the_queue_tells_more_than_the_size_alone():
    predictor = RuntimePredictor()
    ran(predictor, [HOUR] * 8, job(queue="long"))
    ran(predictor, [MINUTE] * 8, job(queue="short"), first_id=100, begin_ms=100 * HOUR)
    found = [said(predictor, job(queue=queue)) for queue in ("long", "short", "new")]
    assert [(f.median_ms, f.source) for f in found[:2]] == [(HOUR, "queue"), (MINUTE, "queue")]
    assert found[2].source == "shape"
    assert said(predictor, job(queue="long", estimate_ms=5 * HOUR)).source == "declared"


# The curve.


def test_a_curve_of_ended_runs_gives_their_quantiles_and_mean():
    curve = lengths_of([ObservedRun(ms, True) for ms in (40, 10, 30, 20)])
    assert [curve.quantile_ms(p) for p in (100, 250, 500, 900)] == [10, 10, 20, 40]
    assert (curve.mean_ms(), curve.ended) == (25, 4)


def test_a_run_that_goes_on_counts_as_longer_than_its_age():
    curve = lengths_of([ObservedRun(10, True), ObservedRun(20, False), ObservedRun(30, True)])
    assert curve.longer == (666_666_666, 0)
    assert curve.points_ms == (10, 30)
    assert curve.mean_ms() == 23


def test_when_the_longest_goes_on_it_is_taken_to_last_twice_as_long():
    curve = lengths_of([ObservedRun(10, True), ObservedRun(50, False)])
    assert (curve.points_ms, curve.longer) == ((10, 100), (500_000_000, 0))


def test_beyond_all_that_is_known_half_reach_twice_the_age():
    curve = lengths_of([ObservedRun(10, True)])
    assert curve.quantile_ms(500, 70) == 140
    assert curve.quantile_ms(900, 70) == 700
    assert curve.mean_ms(70) == 140


def test_a_run_is_compared_with_those_that_got_as_far():
    curve = lengths_of([ObservedRun(ms, True) for ms in (10, 20, 30, 40)])
    assert curve.quantile_ms(500, 20) == 30
    assert curve.mean_ms(20) == 35


@pytest.mark.parametrize("permille", [0, 1000, -1])
def test_a_quantile_is_between_none_and_all(permille):
    with pytest.raises(ValueError, match="permille"):
        around(10).quantile_ms(permille)


def test_no_runs_make_no_curve():
    with pytest.raises(ValueError, match="no run"):
        lengths_of([])


runs = st.lists(st.builds(ObservedRun, st.integers(0, 10 * HOUR), st.booleans()), min_size=1, max_size=40)


@given(runs, st.randoms())
def test_the_order_of_runs_never_matters(given_runs, random):
    assert lengths_of(given_runs) == lengths_of(random.sample(given_runs, len(given_runs)))


@given(runs, st.integers(0, 20 * HOUR))
def test_a_curve_falls_to_nothing_and_quantiles_rise(given_runs, elapsed_ms):
    curve = lengths_of(given_runs)
    assert list(curve.points_ms) == sorted(set(curve.points_ms))
    assert list(curve.longer) == sorted(curve.longer, reverse=True)
    assert curve.longer[-1] == 0
    quantiles = [curve.quantile_ms(p, elapsed_ms) for p in (1, 100, 300, 500, 900, 999)]
    assert quantiles == sorted(quantiles)
    assert elapsed_ms <= quantiles[0] <= curve.mean_ms(elapsed_ms) or elapsed_ms == 0


# Whose runs.


@pytest.mark.parametrize(
    ("features", "median_ms", "source"),
    [
        (job(2, user="ann", name="train-9"), 2 * HOUR, "user_name"),
        (job(2, user="ann", name="other"), 2 * HOUR, "user_shape"),
        (job(2, user="bob", name="train-1"), 2 * HOUR, "name"),
        (job(2, user="bob", name="else"), 2 * HOUR, "shape"),
        (job(4, user="bob", name="else"), 2 * HOUR, "all"),
        (job(4, user="bob", name="else", estimate_ms=HOUR), HOUR, "declared"),
        (job(2, user="ann", name="train-9", estimate_ms=HOUR), 2 * HOUR, "user_name"),
    ],
)
def test_the_narrowest_group_that_saw_enough_answers(features, median_ms, source):
    predictor = RuntimePredictor()
    ran(predictor, [2 * HOUR] * runtime.ENDED_MIN, job(2, user="ann", name="train-1"))
    found = said(predictor, features)
    assert (found.median_ms, found.source) == (median_ms, source)


def test_one_run_too_few_is_not_enough():
    predictor = RuntimePredictor()
    ran(predictor, [2 * HOUR] * (runtime.ENDED_MIN - 1), job(2))
    assert said(predictor, job(2)).source == "none"
    assert said(predictor, job(2)).median_ms == runtime.UNKNOWN_MS
    assert said(predictor, job(2, limit_ms=10 * HOUR)).source == "limit"


def test_siblings_of_a_burst_speak_before_everything_else():
    predictor, now_ms = RuntimePredictor(), 500 * HOUR
    ran(predictor, [9 * HOUR] * 20, job(4))
    for number in range(100, 104):
        predictor.observe_submit(number, job(4), now_ms + (number - 100) * runtime.BURST_GAP_MS)
    now_ms += HOUR
    for number in range(100, 103):
        predictor.observe_start(number, now_ms)
        predictor.observe_end(number, now_ms + 5_000)
    found = said(predictor, job(4), now_ms=now_ms + 5_000, job_id=103)
    assert (found.median_ms, found.samples, found.source) == (5_000, 3, "burst")


def test_a_pause_ends_a_burst():
    predictor = RuntimePredictor()
    ran(predictor, [9 * HOUR] * 20, job(4))
    begin_ms = 500 * HOUR
    ran(predictor, [5_000] * 3, job(4), first_id=100, begin_ms=begin_ms)
    predictor.observe_submit(200, job(4), begin_ms + 3 * HOUR + runtime.BURST_GAP_MS)
    assert said(predictor, job(4), job_id=200).source == "shape"


def test_an_attempt_that_was_stopped_only_shows_that_it_takes_longer():
    predictor = RuntimePredictor()
    ran(predictor, [HOUR] * 8, job(2))
    before = said(predictor, job(2))
    ran(predictor, [3 * HOUR] * 8, job(2), first_id=50, begin_ms=100 * HOUR, by_itself=False)
    after = said(predictor, job(2))
    assert (before.mean_ms, before.p90_ms, before.samples) == (HOUR, HOUR, 8)
    assert (after.mean_ms, after.p90_ms, after.samples) == (3 * HOUR + HOUR // 2, 6 * HOUR, 8)


def test_siblings_that_still_run_make_the_expected_length_grow():
    predictor = RuntimePredictor()
    now_ms = ran(predictor, [MINUTE] * 8, job(2))
    for number in range(100, 108):
        predictor.observe_submit(number, job(2), now_ms)
        predictor.observe_start(number, now_ms)
    means = [said(predictor, job(2), now_ms=now_ms + hours * HOUR).mean_ms for hours in (0, 1, 2)]
    assert means == sorted(set(means))


def test_a_second_attempt_is_a_run_of_its_own():
    predictor = RuntimePredictor()
    predictor.observe_submit(1, job(2), 0)
    for number in range(runtime.ENDED_MIN):
        predictor.observe_start(1, number * HOUR)
        predictor.observe_end(1, number * HOUR + MINUTE, final=False)
    assert said(predictor, job(2)).median_ms == MINUTE


def test_what_was_never_submitted_is_passed_over():
    predictor = RuntimePredictor()
    predictor.observe_start(5, 0)
    predictor.observe_end(5, HOUR)
    assert predictor.sizes() == {"groups": 0, "runs": 0, "bursts": 0, "open": 0}


# Promises.

lengths = st.lists(st.integers(1, 50 * HOUR), max_size=30)


@given(lengths, st.integers(0, 100 * HOUR), st.integers(0, 20 * HOUR), st.integers(0, 20 * HOUR))
def test_a_prediction_is_within_age_and_limit(lengths_ms, elapsed_ms, estimate_ms, limit_ms):
    predictor, features = RuntimePredictor(), job(1, estimate_ms=estimate_ms, limit_ms=limit_ms)
    ran(predictor, lengths_ms, features)
    found = said(predictor, features, elapsed_ms=elapsed_ms, now_ms=10_000 * HOUR)
    values = (found.p10_ms, found.median_ms, found.p90_ms)
    assert values == tuple(sorted(values))
    for value_ms in (*values, found.mean_ms):
        assert value_ms >= max(1, elapsed_ms)
        assert not limit_ms or value_ms <= max(1, limit_ms, elapsed_ms)


moments = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=90)


@given(moments, st.randoms())
def test_the_order_of_observations_of_one_moment_never_matters(drawn, random):
    events = []
    for number, (start, length, devices) in enumerate(drawn):
        events.append((start * HOUR, 0, number, devices))
        events.append((start * HOUR, 1, number, devices))
        events.append(((start + length) * HOUR, 2, number, devices))

    def folded(ordered):
        predictor = RuntimePredictor()
        for at_ms, what, number, devices in ordered:
            if what == 0:
                predictor.observe_submit(number, job(devices), at_ms)
            elif what == 1:
                predictor.observe_start(number, at_ms)
            else:
                predictor.observe_end(number, at_ms)
        return [said(predictor, job(d), now_ms=7 * HOUR, job_id=n) for n, (_, _, d) in enumerate(drawn)]

    mixed = sorted(random.sample(events, len(events)), key=lambda event: event[:2])
    assert folded(mixed) == folded(sorted(events))


@given(st.lists(st.integers(0, 10 * HOUR), max_size=12))
def test_asking_changes_nothing(asked_at_ms):
    asked, never = RuntimePredictor(), RuntimePredictor()
    for predictor in (asked, never):
        ran(predictor, [HOUR] * 9, job(2))
        predictor.observe_submit(99, job(2), 500 * HOUR)
        predictor.observe_start(99, 500 * HOUR)
    for at_ms in asked_at_ms:
        said(asked, job(2), now_ms=500 * HOUR + at_ms)
    assert said(asked, job(2), now_ms=505 * HOUR) == said(never, job(2), now_ms=505 * HOUR)


def test_a_job_that_has_not_ended_tells_nothing_but_its_age():
    quick, slow = RuntimePredictor(), RuntimePredictor()
    for predictor, length_ms in ((quick, 2 * HOUR), (slow, 90 * HOUR)):
        now_ms = ran(predictor, [HOUR] * 8, job(2))
        predictor.observe_submit(99, job(2), now_ms)
        predictor.observe_start(99, now_ms)
        before = said(predictor, job(2), now_ms=now_ms + HOUR)
        predictor.observe_end(99, now_ms + length_ms)
        assert said(predictor, job(2)) != before
    assert quick.sizes() == slow.sizes()


def test_memory_is_bounded_whatever_is_observed(monkeypatch):
    for name, most in (("RUNS_MAX", 10), ("GROUPS_MAX", 20), ("BURSTS_MAX", 5), ("OPEN_MAX", 7)):
        monkeypatch.setattr(runtime, name, most)
    predictor = RuntimePredictor()
    for number in range(301):
        predictor.observe_submit(number, job(number % 40, user=f"u{number % 11}", name=f"{number % 3}x"), number * HOUR)
        predictor.observe_start(number, number * HOUR)
        if number % 3:
            predictor.observe_end(number, number * HOUR + MINUTE)
    assert predictor.sizes() == {"groups": 20, "runs": 10, "bursts": 5, "open": 7}


def test_the_latest_runs_are_the_ones_remembered(monkeypatch):
    monkeypatch.setattr(runtime, "RUNS_MAX", 8)
    predictor = RuntimePredictor()
    now_ms = ran(predictor, [HOUR] * 30, job(2))
    ran(predictor, [MINUTE] * 8, job(2), first_id=100, begin_ms=now_ms)
    found = said(predictor, job(2))
    assert (found.p10_ms, found.p90_ms, found.samples) == (MINUTE, MINUTE, 8)
