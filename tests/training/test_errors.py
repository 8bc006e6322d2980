"""Errors travel between ranks: each comes back as it was."""

from __future__ import annotations

import pickle

import pytest

from penstock.training import BadArgument, DamagedCheckpoint, FencedAttempt, StateMoved, TrainingError


@pytest.mark.parametrize(
    "error",
    [DamagedCheckpoint(3, "torn"), FencedAttempt(mine=1, recorded=2), StateMoved(4), BadArgument("x is 1")],
    ids=lambda error: error.code,
)
def test_an_error_survives_the_way_to_another_rank(error: TrainingError) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert (str(other), vars(other), other.code) == (str(error), vars(error), error.code)
