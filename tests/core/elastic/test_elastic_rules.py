"""The utilisation rules: doubling out, halving in, bounds always, and patience in between."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.elastic.rules import ScalingRules, Utilisation, scale
from penstock.core.elastic.speedup import AmdahlCurve, PointsCurve

BUSY = Utilisation(busy_milli=901, data_queue=101, window_ms=60_000, since_change_ms=600_000)
IDLE = Utilisation(busy_milli=299, data_queue=0, window_ms=60_000, since_change_ms=600_000)


def asked(seen=BUSY, replicas=4, minimum=1, maximum=16, curve=None, **fields):
    found = scale(seen, replicas=replicas, minimum=minimum, maximum=maximum, curve=curve or AmdahlCurve(), **fields)
    return found.action, found.replicas, found.reason


def but(seen, **fields):
    return msgspec.structs.replace(seen, **fields)


def test_busy_with_a_queue_doubles():
    assert asked() == ("out", 8, "busy_and_queued")


def test_idle_halves():
    assert asked(IDLE) == ("in", 2, "idle")


def test_doubling_stops_at_the_maximum():
    assert asked(replicas=12) == ("out", 16, "busy_and_queued")
    assert asked(replicas=16) == ("stay", 16, "at_maximum")


def test_halving_stops_at_the_minimum():
    assert asked(IDLE, replicas=4, minimum=3) == ("in", 3, "idle")
    assert asked(IDLE, replicas=3, minimum=3) == ("stay", 3, "at_minimum")


@pytest.mark.parametrize("seen", [but(BUSY, busy_milli=900), but(BUSY, data_queue=100), but(IDLE, busy_milli=300)])
def test_thresholds_themselves_do_nothing(seen):
    assert asked(seen) == ("stay", 4, "within_band")


def test_a_replica_that_does_not_help_is_not_added():
    flat = PointsCurve([(4, 3000), (8, 3299)])
    assert asked(curve=flat) == ("stay", 4, "no_further_gain")
    assert asked(curve=PointsCurve([(4, 3000), (8, 3300)])) == ("out", 8, "busy_and_queued")


def test_what_another_node_costs_counts():
    curve = AmdahlCurve(serial_milli=300, spread_keeps_milli=700)
    assert asked(curve=curve, nodes_doubled=1)[0] == "out"
    assert asked(curve=curve, nodes_doubled=2) == ("stay", 4, "no_further_gain")


def test_cool_down_is_longer_downwards():
    assert asked(but(BUSY, since_change_ms=179_999)) == ("stay", 4, "cooling_down")
    assert asked(but(BUSY, since_change_ms=180_000))[0] == "out"
    assert asked(but(IDLE, since_change_ms=299_999)) == ("stay", 4, "cooling_down")
    assert asked(but(IDLE, since_change_ms=300_000))[0] == "in"


def test_a_short_window_is_no_trend():
    assert asked(but(BUSY, window_ms=59_999)) == ("stay", 4, "window_too_short")


def test_thresholds_are_settings():
    rules = ScalingRules(out_above_milli=500, queue_above=10)
    assert asked(but(BUSY, busy_milli=501, data_queue=11), rules=rules)[0] == "out"


def test_bounds_come_before_everything():
    just_changed = but(IDLE, since_change_ms=0)
    assert asked(just_changed, replicas=20) == ("in", 16, "at_maximum")
    assert asked(just_changed, replicas=1, minimum=2) == ("out", 2, "at_minimum")


def test_bounds_must_make_sense():
    with pytest.raises(ValueError, match="must hold"):
        asked(minimum=5, maximum=4)


utilisations = st.builds(
    Utilisation, st.integers(0, 1000), st.integers(0, 300), st.integers(0, 120_000), st.integers(0, 10**6)
)


@given(utilisations, st.integers(1, 40), st.integers(1, 8), st.integers(0, 30))
def test_the_size_is_always_within_bounds_and_at_most_doubled_or_halved(seen, replicas, minimum, more):
    _, size, _ = asked(seen, replicas=replicas, minimum=minimum, maximum=minimum + more)
    assert minimum <= size <= minimum + more
    if minimum <= replicas <= minimum + more:
        assert replicas // 2 <= size <= 2 * replicas


@given(utilisations, st.integers(1, 16))
def test_a_change_is_not_undone_while_it_cools_down(seen, replicas):
    action, size, _ = asked(seen, replicas=replicas)
    if action != "stay":
        assert asked(but(seen, since_change_ms=60_000), replicas=size)[0] == "stay"
