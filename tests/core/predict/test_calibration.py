"""Estimates of starts are held against what came true, and the next ones are corrected by that."""

import heapq
import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import events as ev
from penstock.core.model.estimates import StartEstimate
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.predict.calibration import WINDOW, Calibration
from tests.properties import examples

MINUTE, HOUR = 60_000, 3_600_000


def said(time_ms, *estimates):
    return ev.Record(1, time_ms, ev.StartsEstimated(time_ms, estimates))


def started(time_ms, job_id):
    return ev.Record(1, time_ms, ev.AttemptAllocated(JobId(job_id), AttemptNumber(1), ()))


def ended(time_ms, job_id):
    return ev.Record(1, time_ms, ev.JobFinished(JobId(job_id), "cancelled"))


def estimate(job_id, given, sampled=None):
    return StartEstimate(JobId(job_id), given, sampled or given)


def played(count, bias, sureness, seed=0):
    """Return what a calibration holds after so many jobs, whose samples are off by `bias` and too sure by so much.

    A job a minute is told when it starts; each start is known when it comes, and not before.
    """
    r, calibration, coming = random.Random(seed), Calibration(), []
    for number in range(1, count + 1):
        now_ms = number * MINUTE
        while coming and coming[0][0] <= now_ms:
            calibration.observe([started(*heapq.heappop(coming))])
        middle, spread = r.uniform(math.log(5 * MINUTE), math.log(5 * HOUR)), r.uniform(0.6, 1.5)
        sampled = tuple(now_ms + round(math.exp(middle + at * spread)) for at in (-1, 0, 1))
        given = calibration.corrected(sampled, now_ms)
        start_ms = now_ms + round(math.exp(middle + bias * spread + r.gauss(0, sureness * spread / 1.2816)))
        calibration.observe([said(now_ms, estimate(number, given, sampled))])
        heapq.heappush(coming, (start_ms, number))
    while coming:
        calibration.observe([started(*heapq.heappop(coming))])
    return calibration


@pytest.mark.parametrize(("bias", "sureness"), [(0.0, 1.0), (0.0, 2.0), (0.8, 1.5), (-1.5, 0.7)])
def test_intervals_come_to_hold_as_many_starts_as_they_say(bias, sureness):
    results = sorted(played(2_500, bias, sureness).results, key=lambda result: result.made_ms)
    parts = [result.part for result in results if result.made_ms > 700 * MINUTE]
    shares = [parts.count(part) / len(parts) for part in range(4)]
    assert shares == pytest.approx([0.1, 0.4, 0.4, 0.1], abs=0.04)


def test_without_correction_they_would_not():
    calibration = played(800, 0.8, 2.0)
    sampled = (HOUR, 2 * HOUR, 4 * HOUR)
    early_ms, likely_ms, late_ms = calibration.corrected(sampled, 0)
    assert likely_ms > 2.5 * HOUR
    assert late_ms - early_ms > 2 * (sampled[2] - sampled[0])


def test_the_first_estimates_are_wider_than_the_samples():
    early_ms, likely_ms, late_ms = Calibration().corrected((HOUR, 2 * HOUR, 4 * HOUR), 0)
    assert early_ms < HOUR
    assert likely_ms == pytest.approx(2 * HOUR, rel=1e-6)
    assert late_ms > 4 * HOUR


def test_what_cannot_be_told_stays_so():
    assert Calibration().corrected((HOUR, 0, 0), 0) == (HOUR, 0, 0)
    assert Calibration().corrected((HOUR, 2 * HOUR, 0), 0)[2] > 2 * HOUR


def test_times_are_never_before_they_are_told():
    now_ms = 10 * HOUR
    calibration = played(300, -1.5, 3.0)
    assert all(at >= now_ms for at in calibration.corrected((now_ms, now_ms, now_ms), now_ms))


def test_where_a_start_fell():
    calibration = Calibration()
    times = (10, 20, 30)
    for number, at_ms in enumerate((5, 15, 25, 35, 20), start=1):
        calibration.observe([said(0, estimate(number, times)), started(at_ms, number)])
    score = calibration.score()
    assert score.overall.parts == (1, 2, 1, 1)
    assert (score.overall.count, score.held_permille, score.overall.error_ms) == (5, 600, 5)


def test_all_that_was_said_of_a_job_counts_and_what_never_starts_does_not():
    calibration = Calibration()
    calibration.observe([said(0, estimate(1, (1, 2, 3)), estimate(2, (1, 2, 3))), said(5, estimate(1, (6, 7, 8)))])
    assert calibration.score().open == 3
    calibration.observe([started(7, 1), ended(9, 2)])
    score = calibration.score()
    assert (score.overall.count, score.open) == (2, 0)
    calibration.observe([started(11, 1)])
    assert calibration.score().overall.count == 2


def test_what_was_long_ago_is_forgotten():
    bad, good = played(WINDOW, 2.0, 1.0), played(WINDOW, 0.0, 1.0)
    sampled = (HOUR, 2 * HOUR, 4 * HOUR)
    assert bad.corrected(sampled, 0)[1] > 1.5 * good.corrected(sampled, 0)[1]
    r = random.Random(3)
    for number in range(1, 2 * WINDOW):
        now_ms = number * MINUTE
        at_ms = now_ms + round(math.exp(math.log(2 * HOUR) + r.gauss(0, 0.5)))
        told = estimate(number, (0, 0, 0), (now_ms + HOUR, now_ms + 2 * HOUR, now_ms + 4 * HOUR))
        bad.observe([said(now_ms, told), started(at_ms, number)])
    assert bad.corrected(sampled, 0)[1] == pytest.approx(2 * HOUR, rel=0.1)


def test_by_how_far_ahead():
    calibration = Calibration()
    for number, likely_ms in enumerate((MINUTE, 30 * MINUTE, 2 * HOUR, 9 * HOUR, 8 * HOUR), start=1):
        calibration.observe([said(0, estimate(number, (0, likely_ms, 0))), started(likely_ms, number)])
    assert [bucket.count for bucket in calibration.score().buckets] == [1, 1, 1, 2]


def test_while_a_queue_grows_those_who_wait_count_too():
    """Samples say an hour and everybody waits two: those told lately still wait, and only short waits came true."""
    calibration = Calibration()
    for number in range(1, 400):
        now_ms = number * MINUTE
        calibration.observe([said(now_ms, estimate(number, (0, 0, 0), (now_ms + HOUR, now_ms + HOUR, now_ms + HOUR)))])
        if number % 4 == 0:
            calibration.observe([started(now_ms + MINUTE, number)])
    now_ms = 400 * MINUTE
    early_ms, likely_ms, late_ms = calibration.corrected((now_ms + HOUR,) * 3, now_ms)
    assert early_ms < now_ms + 10 * MINUTE
    assert likely_ms > now_ms + 2 * HOUR
    assert late_ms >= likely_ms


@given(
    st.lists(st.tuples(st.integers(0, 10**13), st.integers(0, 10**13)), max_size=30),
    st.tuples(*(st.integers(0, 10**13) for _ in range(3))),
)
@examples(200)
def test_whatever_came_true_what_is_said_can_be_written(past, sampled):
    calibration = Calibration()
    for number, (likely_ms, start_ms) in enumerate(past, start=1):
        calibration.observe([said(0, estimate(number, (0, likely_ms, 0))), started(start_ms, number)])
    times = calibration.corrected(tuple(sorted(sampled)), 0)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(times)) == list(times)
    assert max(times) < 10**15


def test_that_nobody_can_tell_is_no_estimate():
    calibration = Calibration()
    for number in range(1, 300):
        calibration.observe([said(0, estimate(number, (0, 0, 0))), started(3 * HOUR, number)])
    assert calibration.score().overall.count == 0
    assert calibration.corrected((HOUR, 2 * HOUR, 4 * HOUR), 0) == Calibration().corrected(
        (HOUR, 2 * HOUR, 4 * HOUR), 0
    )


def test_samples_far_apart_are_not_stretched_to_years_for_others_that_agreed_and_were_wrong():
    known = Calibration()
    for i in range(300):
        at, hour = i * MINUTE, (HOUR + i, HOUR + i, HOUR + i)
        known.observe([said(at, estimate(i, tuple(at + ms for ms in hour)))])
        known.observe([started(at + 5 * HOUR if i % 5 else at + HOUR, i)])
    now = 400 * MINUTE
    early, _, late = known.corrected((now + HOUR, now + 8 * HOUR, now + 72 * HOUR), now)
    assert now + 72 * HOUR < late < now + 30 * 24 * HOUR
    assert early < now + 8 * HOUR
