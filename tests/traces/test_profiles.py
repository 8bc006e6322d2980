"""Measured profiles: seconds of a step between measured points, and steps to the end of training."""

import pytest

from penstock.traces.profiles import ProfiledRun, TraceProfile

RUNS = {
    8: ProfiledRun((100.0, 200.0), (1.0, 1.0), (3.0, 1.0)),
    16: ProfiledRun((110.0, 190.0), (1.0, 1.0), (3.0, 1.0)),
}
TIMES = {
    (1, 1): [(4, 0.5, 0.1), (16, 2.0, 0.2)],
    (1, 2): [(4, 0.6, 0.2), (8, 1.0, 0.2)],
    (2, 8): [(4, 0.8, 0.4)],
}
PROFILE = TraceProfile("some", RUNS, TIMES)


def test_one_replica_above_the_smallest_batch_takes_two_passes_a_step():
    # Each pass has 6 samples: 0.75 s with 0.1167 s of synchronising, which the first pass does without.
    assert PROFILE.step_s(1, 12) == pytest.approx(0.75 + (0.75 - 0.1 - 0.1 / 6))
    assert PROFILE.step_s(1, 8) == pytest.approx(1.0)


def test_a_batch_that_does_not_fit_is_taken_in_several_passes():
    assert PROFILE.step_s(2, 32) == pytest.approx(1.0 + 0.8)


def test_what_was_not_measured_has_no_time():
    assert PROFILE.step_s(2, 6) is None
    assert PROFILE.step_s(3, 16) is None
    assert PROFILE.step_s(8, 32) == pytest.approx(0.8)


def test_an_epoch_ends_at_the_progress_of_the_slowest_run_and_larger_batches_need_fewer_steps():
    # Gains at twice the smallest batch: (3 + 1) / (1.5 + 1) and (1 + 1) / (0.5 + 1).
    assert PROFILE.steps(8) == pytest.approx(190)
    assert PROFILE.steps(16) == pytest.approx(100 / 1.6 + 90 / (4 / 3))
    assert PROFILE.batches == (8, 16)
