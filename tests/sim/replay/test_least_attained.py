"""A queue of least attained service with default settings: no single job pays for the short mean wait of all."""

from penstock.core.model.cluster import Queue
from penstock.testing.builders import config, node
from tests.sim.replay.builders import job, ran, trace

HOUR_S, COSTS = 3_600, {"start_ms": 10_000, "save_ms": 10_000, "restore_ms": 20_000}


def hours_off(jobs, devices, policy, **settings):
    """Return for how long each job was there and did not run, starts and saves included (hours)."""
    rules = config(queues=(Queue("default", policy=policy),), **settings)
    lives = ran(trace(*jobs, nodes=(node("a", devices),), rules=rules), **COSTS).lives
    return [(life.completion_ms - life.work.run_ms) / HOUR_S / 1000 for life in lives]


def most_against_fifo(jobs, devices, **settings):
    """Return how many times the longest time off under `fifo` with EASY backfill the longest one is."""
    return max(hours_off(jobs, devices, "least_attained", **settings)) / max(hours_off(jobs, devices, "fifo"))


def test_narrow_jobs_of_an_overloaded_queue_do_not_keep_a_wide_one_waiting():
    """Each narrow job fits below an admission limit as soon as another ends, the wide one only when all have."""
    first = [job(0, HOUR_S, saves=True), job(1, HOUR_S, 4, saves=True)]
    jobs = first + [job(2 + i * 870, HOUR_S, saves=True) for i in range(600)]
    assert most_against_fifo(jobs, 4) == 1
    assert most_against_fifo(jobs, 4, admission_milli=1_200) > 10


def test_short_jobs_that_come_all_the_time_do_not_keep_a_long_one_waiting():
    """The time between two of them is hardly enough to save and load the state of the long one."""
    jobs = [job(0, 20 * HOUR_S, saves=True)] + [job(17 * HOUR_S + i * 290, 240, saves=True) for i in range(600)]
    assert most_against_fifo(jobs, 1) < 4
    assert most_against_fifo(jobs, 1, least_attained_turn_milli=0) > 10
