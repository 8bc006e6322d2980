"""A lock is taken although others look at it, and not where another process keeps it."""

import fcntl
import os
import threading

import pytest

from penstock.engines.processes import locks


@pytest.fixture
def opened(tmp_path):
    """Open the same file, each time as another process would."""
    path, found = tmp_path / "lock", []
    path.touch()

    def again() -> int:
        found.append(os.open(path, os.O_RDWR))
        return found[-1]

    yield again
    for descriptor in found:
        os.close(descriptor)


def test_a_lock_that_another_holds_for_a_moment_is_taken(opened):
    other = opened()
    fcntl.flock(other, fcntl.LOCK_EX)
    threading.Timer(0.05, fcntl.flock, (other, fcntl.LOCK_UN)).start()
    assert locks.take(opened(), 20)


def test_a_lock_that_another_keeps_is_not(opened):
    assert locks.take(opened(), 0)
    assert not locks.take(opened(), 0.02)


def test_a_shared_lock_is_held_by_many(opened):
    assert locks.take(opened(), 0, shared=True)
    assert locks.take(opened(), 0, shared=True)
    assert not locks.take(opened(), 0.02)
