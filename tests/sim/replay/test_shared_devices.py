"""Jobs that share devices in a replay: the decisions of the server, at the speeds that the trace says."""

import pytest

from penstock.core.model.cluster import Pool
from penstock.core.model.events import AttemptStopRequested, DeviceShared, DeviceShareEnded
from penstock.core.model.pairing import SharingSettings
from penstock.testing.builders import config, node
from tests.sim.replay.builders import MINUTE, job, ran, times, trace

GIB = 2**30
SHARES = {"shareable": True, "busy_milli": 300, "device_memory_bytes": 10 * GIB, "saves": True}


def shared(*jobs, devices=2, **options):
    rules = config(pools=(Pool("default", sharing=SharingSettings(window_ms=MINUTE)),))
    found = []
    result = ran(trace(*jobs, nodes=(node("a", devices),), rules=rules), on_records=found.extend, **options)
    return result, [r.event for r in found]


def kinds(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_a_third_job_starts_on_the_device_that_two_quiet_jobs_free():
    result, events = shared(job(0, 600, **SHARES), job(1, 600, **SHARES), job(2, 600))
    assert times(result) == [(0, 600), (1, 601), (61, 661)]
    (met,) = kinds(events, DeviceShared)
    assert met.pairing.other == 2
    assert len(kinds(events, DeviceShareEnded)) == 1
    assert [life.held_device_ms for life in result.lives] == [330_500, 330_500, 600_000]


def test_each_works_at_the_speed_that_it_has_beside_the_other():
    result, _ = shared(*(job(at, 600, beside_milli=900, **SHARES) for at in (0, 1)))
    (_, first), (_, second) = times(result)
    assert (first, second) == (659, 660)


def test_two_that_hurt_each_other_are_parted_after_the_first_measured_steps():
    result, events = shared(*(job(at, 600, beside_milli=500, **SHARES) for at in (0, 1)))
    stops = [(stop.job_id, stop.rule) for stop in kinds(events, AttemptStopRequested)]
    assert stops == [(2, "pair"), (2, "part")]
    assert times(result) == [(0, 605), (1, 606)]


@pytest.mark.parametrize("changed", [{"shareable": False}, {"busy_milli": 500}, {"busy_milli": None}, {"saves": False}])
def test_jobs_that_do_not_share_run_as_ever(changed):
    result, events = shared(job(0, 600, **SHARES | changed), job(1, 600, **SHARES | changed))
    assert times(result) == [(0, 600), (1, 601)]
    assert kinds(events, DeviceShared) == []


def test_what_a_job_did_at_each_speed_counts_when_it_is_preempted_later():
    urgent = job(200, 50, 2, priority=1000)
    result, _ = shared(job(0, 600, **SHARES), job(1, 100, **SHARES), urgent)
    assert times(result) == [(0, 650), (1, 101), (200, 250)]
