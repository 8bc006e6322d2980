"""The time of an update, and of the pass with the exchange within it."""

from __future__ import annotations

import pytest

from penstock.training.batching.pace import LEAST, SKIPPED, Clocked, Pace


def clocked(update_s: float, wait_s: float, updates: int = SKIPPED + LEAST) -> Clocked:
    found = Clocked()
    for _ in range(updates):
        found.add(update_s, wait_s)
    return found


def test_nothing_is_told_before_enough_updates_beside_the_first() -> None:
    assert clocked(1, 0, SKIPPED + LEAST - 1).pace(1) is None
    assert clocked(1, 0).pace(1) == Pace(1, 0)


def test_passes_before_the_last_wait_for_nobody() -> None:
    pace = clocked(1.0, 0.1).pace(3)
    assert pace is not None
    assert pace.sync_s == pytest.approx(0.1)
    assert 3 * pace.step_s - 2 * pace.sync_s == pytest.approx(1.0)


def test_a_save_among_the_updates_does_not_count() -> None:
    found = clocked(1.0, 0.0, SKIPPED + 30)
    for update_s in (60.0, 45.0):
        found.add(update_s, 0.0)
    assert found.pace(1) == Pace(1.0, 0.0)


def test_the_exchange_of_gradients_adds_to_the_waiting_seen() -> None:
    found = clocked(1.0, 0.1)
    found.exchanged(0.2)
    pace = found.pace(1)
    assert pace is not None
    assert pace.sync_s == pytest.approx(0.3)


def test_another_batch_begins_anew() -> None:
    found = clocked(1.0, 0.1)
    found.clear()
    assert found.pace(1) is None
