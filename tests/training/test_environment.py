"""Rules of the contract with the node agent: read once, checked, absent outside Penstock."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from penstock.training import BadEnvironment, read_environment


def test_outside_penstock_this_is_rank_0_of_1() -> None:
    found = read_environment({})
    assert (found.rank, found.world_size, found.attempt) == (0, 1, None)
    assert (found.checkpoint_dir, found.checkpoint_url) == (None, None)
    assert (found.checkpoint_interval_s, found.checkpoint_signal, found.report_file) == (600.0, None, None)


def test_the_contract_is_read() -> None:
    found = read_environment(
        {
            "PENSTOCK_JOB_ID": "job-7",
            "PENSTOCK_ATTEMPT": "3",
            "PENSTOCK_CHECKPOINT_DIR": "/c",
            "PENSTOCK_CHECKPOINT_URL": "s3://b/c",
            "PENSTOCK_REPORT_FILE": "/r",
            "PENSTOCK_CHECKPOINT_INTERVAL_S": "2.5",
            "PENSTOCK_GRACE_S": "0",
            "PENSTOCK_CHECKPOINT_SIGNAL": "SIGUSR1",
            "RANK": "1",
            "WORLD_SIZE": "2",
        }
    )
    assert (found.job, found.attempt, found.rank, found.world_size) == ("job-7", 3, 1, 2)
    assert (found.checkpoint_dir, found.checkpoint_url, found.report_file) == (Path("/c"), "s3://b/c", Path("/r"))
    assert (found.checkpoint_interval_s, found.grace_s) == (2.5, 0.0)
    assert found.checkpoint_signal is signal.SIGUSR1


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PENSTOCK_ATTEMPT", "two", "a whole number of at least 0"),
        ("PENSTOCK_ATTEMPT", "-1", "a whole number of at least 0"),
        ("WORLD_SIZE", "0", "a whole number of at least 1"),
        ("RANK", "1", "a number below WORLD_SIZE, which is 1"),
        ("PENSTOCK_CHECKPOINT_INTERVAL_S", "0", "a number of seconds above 0"),
        ("PENSTOCK_CHECKPOINT_INTERVAL_S", "nan", "a number of seconds above 0"),
        ("PENSTOCK_GRACE_S", "soon", "a number of seconds of at least 0"),
        ("PENSTOCK_CHECKPOINT_SIGNAL", "SIGTERM", "is not SIGTERM"),
        ("PENSTOCK_CHECKPOINT_SIGNAL", "USR1", "such as SIGUSR1"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(name: str, value: str, expected: str) -> None:
    with pytest.raises(BadEnvironment, match=f"{name} is '?{value}'?; expected .*{expected}|{expected}") as caught:
        read_environment({name: value})
    assert name in str(caught.value)
