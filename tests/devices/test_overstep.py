"""Who oversteps its part of a device's memory is warned, asked to save, and stopped; who does not is never touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.devices.overstep import (
    FORGIVEN_AFTER_MS,
    GAP_MAX_MS,
    READINGS_LEAST,
    SAVE_AFTER_MS,
    SLACK_MIN_BYTES,
    STOP_AFTER_MS,
    Oversteps,
    slack_bytes,
)
from tests.properties import examples

GIB = 2**30
LIMIT = 8 * GIB
OVER, AT, NEAR = 10 * GIB, LIMIT, LIMIT + SLACK_MIN_BYTES
ME, OTHER = ("me", 0), ("other", 0)


class Device:
    """A device of 80 GiB with two parts of it, read every second."""

    def __init__(self) -> None:
        self.folded: Oversteps[str] = Oversteps()
        self.now_ms, self.said = 0, []

    def read(self, used, *, times=1, every_ms=1_000, limits=None):
        for _ in range(times):
            self.now_ms += every_ms
            steps = self.folded.take(self.now_ms, used, limits or {ME: LIMIT, OTHER: LIMIT})
            self.said += [(self.now_ms, step.key, step.what) for step in steps]
        return self

    def what(self):
        return [what for _, _, what in self.said]


def test_one_that_oversteps_is_warned_then_asked_to_save_then_stopped():
    found = Device().read({ME: OVER, OTHER: AT}, times=60).said
    first_ms = 1_000
    assert found == [
        (READINGS_LEAST * 1_000, "me", "warn"),
        (first_ms + SAVE_AFTER_MS, "me", "save"),
        (first_ms + STOP_AFTER_MS, "me", "stop"),
    ]


def test_a_step_says_what_was_used_and_what_its_part_is():
    folded = Oversteps()
    for now_ms in (0, 1_000):
        assert folded.take(now_ms, {ME: OVER}, {ME: LIMIT}) == ()
    (step,) = folded.take(2_000, {ME: OVER}, {ME: LIMIT})
    assert step.text == "it used 10 GiB of the memory of device 0, its part is 8 GiB"


@pytest.mark.parametrize("used", [0, AT, NEAR])
def test_within_its_part_and_what_the_driver_takes_nothing_happens(used):
    assert Device().read({ME: used, OTHER: OVER}, times=5).said == [(3_000, "other", "warn")]


def test_a_wrong_reading_or_two_are_nothing():
    device = Device()
    for _ in range(20):
        device.read({ME: OVER}, times=READINGS_LEAST - 1).read({ME: AT})
    assert device.said == []


def test_what_was_not_measured_counts_for_nothing():
    device = Device().read({ME: OVER}, times=3).read({}, times=600).read({ME: OVER})
    assert device.what() == ["warn"]


def test_a_gap_between_readings_counts_as_little_of_it():
    device = Device().read({ME: OVER}, times=3).read({ME: OVER}, every_ms=3_600_000)
    assert device.what() == ["warn"]
    assert GAP_MAX_MS < SAVE_AFTER_MS


def test_one_that_is_back_within_its_part_for_long_enough_begins_anew():
    device = Device().read({ME: OVER}, times=15)
    device.read({ME: AT}, times=FORGIVEN_AFTER_MS // 1_000).read({ME: OVER}, times=5)
    assert device.what() == ["warn", "save", "warn"]


def test_one_that_dips_for_a_moment_goes_on_where_it_was():
    device = Device().read({ME: OVER}, times=20).read({ME: AT}, times=3).read({ME: OVER}, times=20)
    assert device.what() == ["warn", "save", "stop"]


def test_between_limit_and_slack_nothing_is_forgiven():
    device = Device().read({ME: OVER}, times=20).read({ME: NEAR}, times=100).read({ME: OVER}, times=20)
    assert device.what() == ["warn", "save", "stop"]


def test_only_time_between_two_readings_that_show_it_counts():
    device = Device()
    for _ in range(4):
        device.read({ME: OVER}, times=3).read({ME: AT})
    assert device.what() == ["warn"]
    assert device.read({ME: OVER}, times=3).what() == ["warn", "save"]


def test_one_that_is_gone_is_forgotten():
    device = Device().read({ME: OVER}, times=20).read({}, limits={OTHER: LIMIT}).read({ME: OVER}, times=5)
    assert device.what() == ["warn", "save", "warn"]


READINGS = st.lists(
    st.tuples(st.integers(1, 5_000), st.none() | st.sampled_from([0, AT, NEAR, OVER]), st.booleans()), max_size=80
)


@examples(300)
@given(READINGS)
def test_no_one_is_stopped_that_was_not_over_for_long_enough_and_warned_and_asked(readings):
    folded, now_ms, said, over_ms = Oversteps(), 0, [], 0
    for passed_ms, used, other_is_over in readings:
        now_ms += passed_ms
        over_ms += passed_ms if used == OVER else 0
        measured = {OTHER: OVER if other_is_over else 0} | ({} if used is None else {ME: used})
        steps = [step for step in folded.take(now_ms, measured, {ME: LIMIT, OTHER: LIMIT}) if step.key == "me"]
        assert not steps or used == OVER
        for step in steps:
            said.append(step.what)
            assert said[-3:] == ["warn", "save", "stop"] or step.what != "stop"
            assert step.what != "stop" or over_ms >= STOP_AFTER_MS


@given(st.integers(1, 2**40))
def test_slack_is_never_less_than_a_context(limit):
    assert slack_bytes(limit) >= SLACK_MIN_BYTES
