"""Measured profiles: seconds of a step between measured points, and steps to the end of training."""

import pytest

from penstock.core.model.batching import BatchChoice
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


PLACED = {
    (1,): [(4, 0.5, 0.1), (16, 2.0, 0.2)],
    (1, 1): [(4, 0.9, 0.5)],
    (4,): [(4, 0.8, 0.3)],
    (2, 2): [(4, 1.1, 0.6)],
    (1, 3): [(4, 1.3, 0.8)],
    (4, 4): [(4, 1.6, 1.0)],
    (1, 1, 1, 1): [(4, 2.0, 1.2)],
}
WIDE = TraceProfile("some", RUNS, {(1, 1): PLACED[1,], (4, 16): [(4, 4.0, 3.0)]}, PLACED)


def test_a_placement_is_as_fast_as_it_was_measured_wherever_its_ring_begins():
    assert WIDE.step_times((3, 1), 4) == (1.3, 0.8)
    assert WIDE.step_times((8,), 4) == WIDE.step_times((4, 4), 4) == (1.6, 1.0)


def test_an_unmeasured_placement_lies_between_those_with_fewer_and_more_replicas_and_nodes():
    # On two nodes: 2 replicas 0.9, 4 (the mean of both placements) 1.2, so 3 replicas 1.05.
    assert WIDE.step_times((1, 2), 4) == pytest.approx((1.05, 0.6))
    # On three nodes with two replicas each: between (2 nodes, 4) and (4 nodes, 8), which is a third from 2.0 to 4.0.
    assert WIDE.step_times((2, 2, 2), 4)[0] == pytest.approx((1.2 + 2.0 + 2.0 / 3) / 2)


def test_beyond_the_measured_batches_time_goes_on_in_a_straight_line_and_never_falls():
    assert WIDE.step_times((1,), 20)[0] == pytest.approx(2.5)
    assert WIDE.step_times((1,), 2) == (0.5, 0.1)
    assert WIDE.step_times((4,), 8) == (1.6, 0.3)


def test_a_batch_is_split_into_passes_that_fit_and_no_more_than_the_largest_batch_that_was_measured():
    assert PROFILE.split(2, 16) == BatchChoice(8)
    assert PROFILE.split(1, 12) == BatchChoice(6, 1)
    assert PROFILE.split(3, 16) == BatchChoice(5)


def test_noise_beyond_the_measured_batches_is_that_of_the_nearest():
    assert PROFILE.noise(4, 0) == PROFILE.noise(8, 0) == (1.0, 3.0)
    assert PROFILE.noise(99, 1) == (1.0, 1.0)
