"""The strategy of a cycle: precedence, thresholds, and what each one switches."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.cycle.strategy import Effort, StrategySettings, choose_strategy
from tests.properties import examples

SETTINGS = StrategySettings()


def choose(critical=0, waiting=0, utilisation=500, settings=SETTINGS):
    return choose_strategy(settings, critical_waiting=critical, waiting=waiting, utilisation_milli=utilisation)


@pytest.mark.parametrize(
    ("critical", "waiting", "utilisation", "name"),
    [
        (1, 1, 801, "preemptive"),
        (1, 50, 1000, "preemptive"),
        (0, 50, 801, "predictive"),
        (1, 1, 800, "delayed"),
        (1, 11, 800, "predictive"),
        (0, 0, 299, "immediate"),
        (5, 50, 299, "immediate"),
        (0, 0, 300, "delayed"),
        (0, 11, 300, "predictive"),
        (0, 10, 300, "delayed"),
        (0, 0, 1000, "delayed"),
    ],
)
def test_the_first_rule_that_holds_gives_the_strategy(critical, waiting, utilisation, name):
    assert choose(critical, waiting, utilisation).name == name


@pytest.mark.parametrize(
    ("critical", "waiting", "utilisation", "why"),
    [
        (3, 7, 853, "3 critical jobs wait and utilisation 0.853 is above 0.800"),
        (1, 7, 1000, "1 critical job waits and utilisation 1.000 is above 0.800"),
        (0, 7, 45, "utilisation 0.045 is below 0.300"),
        (0, 11, 500, "11 jobs wait, more than 10, at utilisation 0.500"),
        (0, 1, 500, "1 job waits, no more than 10, and utilisation 0.500 calls for no haste"),
    ],
)
def test_why_says_the_numbers(critical, waiting, utilisation, why):
    assert choose(critical, waiting, utilisation).why == why


def test_each_strategy_switches_its_own():
    switched = {
        s.name: (s.keeps_room, s.batching_window_ms, s.victim_sets_tried_max(256))
        for s in (choose(1, 1, 900), choose(0, 0, 0), choose(0, 11), choose())
    }
    assert switched == {
        "preemptive": (False, 0, 1024),
        "immediate": (False, 0, 256),
        "predictive": (True, 0, 256),
        "delayed": (False, 500, 256),
    }


def test_room_is_kept_beside_critical_jobs_too_where_many_wait():
    assert choose(1, 11, 900).keeps_room
    assert not choose(1, 10, 900).keeps_room


def test_thresholds_and_switches_are_settings():
    given = StrategySettings(
        preemptive_above_milli=100,
        immediate_below_milli=900,
        predictive_above_waiting=0,
        delayed=Effort(batching_window_ms=7, victim_sets_factor=0),
    )
    assert choose(1, 1, 101, given).name == "preemptive"
    assert choose(0, 0, 899, given).name == "immediate"
    assert choose(0, 1, 900, given).name == "predictive"
    delayed = choose(0, 0, 900, given)
    assert (delayed.batching_window_ms, delayed.victim_sets_tried_max(256)) == (7, 0)


@examples(100)
@given(st.integers(0, 20), st.integers(0, 40), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_the_precedence_is_that_of_the_rules(critical, others, utilisation, high, low):
    settings = StrategySettings(preemptive_above_milli=high, immediate_below_milli=low)
    holds = [
        ("preemptive", critical >= 1 and utilisation > high),
        ("immediate", utilisation < low),
        ("predictive", critical + others > 10),
        ("delayed", True),
    ]
    found = choose(critical, critical + others, utilisation, settings)
    assert found.name == next(name for name, held in holds if held)


@pytest.mark.parametrize(("critical", "waiting", "utilisation"), [(2, 1, 0), (-1, 0, 0), (0, 0, -1), (0, 0, 1001)])
def test_numbers_that_contradict_each_other_are_a_fault(critical, waiting, utilisation):
    with pytest.raises(ValueError, match=f"{critical} critical of {waiting} waiting at utilisation {utilisation}"):
        choose(critical, waiting, utilisation)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"preemptive_above_milli": 1001}', "preemptive_above_milli is 1001; expected 0 to 1000"),
        ('{"immediate_below_milli": -1}', "immediate_below_milli is -1; expected 0 to 1000"),
        ('{"predictive_above_waiting": -1}', "predictive_above_waiting is -1; expected 0 or more"),
        ('{"delayed": {"batching_window_ms": -5}}', "batching_window_ms is -5; expected 0 or more - at `$.delayed`"),
        ('{"preemptive": {"victim_sets_factor": -1}}', "victim_sets_factor is -1; expected 0 or more"),
    ],
)
def test_settings_out_of_range_are_refused_when_read(text, message):
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(text, type=StrategySettings)
    assert message in str(caught.value)
