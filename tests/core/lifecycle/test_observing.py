"""Starts and ends that another scheduler decided."""

import pytest

from penstock.core.lifecycle.observing import note_start
from penstock.core.messages.requests import SeenStart, StartNoted
from penstock.core.model.ids import JobId, NodeName
from penstock.testing.builders import node
from penstock.testing.harness import World


def started(scheduler: str) -> tuple[World, JobId]:
    w = World(node("n1"))
    job = w.submit(1, time_limit_ms=10_000)
    noted = w.commit(lambda tx: note_start(tx, SeenStart(job, scheduler, (NodeName("n1"),), ("7",))))
    assert isinstance(noted, StartNoted)
    w.start(job)
    return w, job


def test_its_time_limit_is_left_to_that_scheduler():
    w, job = started("slurm")
    w.tick(60_000)
    assert w.attempt(job).stop is None
    w.exit_replica(job, 0, None, signal=15, note="time limit reached", observed=True)
    assert (w.phase(job), w.reasons[job]) == ("failed", "signal 15 (time limit reached)")


@pytest.mark.parametrize(
    ("scheduler", "problem", "reason"),
    [
        ("slurm", "Slurm: CANCELLED", "Slurm: CANCELLED"),
        ("slurm", "", "cancelled in Slurm"),
        ("default-scheduler", "pod: it is gone", "its pods were deleted"),
    ],
)
def test_a_job_that_was_cancelled_there_says_so(scheduler, problem, reason):
    w, job = started(scheduler)
    w.cancel(job)
    w.exit_replica(job, 0, None if problem else 42, problem=problem, stop_sent=True)
    assert (w.phase(job), w.reasons[job]) == ("cancelled", reason)
