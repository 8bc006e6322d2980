"""Numbers of a replay, worked out by hand."""

import pytest

from penstock.core.model.cluster import Pool, Tenant
from penstock.sim.replay.compare import interval, student_t
from penstock.sim.replay.measures import SHORT_MS, measure, spread
from penstock.testing.builders import config, node
from tests.sim.replay.builders import HOUR, SECOND, job, ran, trace


def test_two_jobs_one_after_the_other():
    found = measure(ran(trace(job(0, 60, 4), job(0, 30, 4))))
    assert found.whole.wait_ms.mean == 30 * SECOND
    assert found.whole.completion_ms.mean == 75 * SECOND
    assert found.makespan_ms == 90 * SECOND
    assert found.utilisation_whole == 1.0
    assert found.whole.device_hours * HOUR == 4 * 90 * SECOND
    assert found.whole.slowdown == (1.0 + 3.0) / 2


def test_very_short_jobs_count_as_if_they_ran_longer():
    found = measure(ran(trace(job(0, 30, 4), job(0, 1, 4))))
    assert found.whole.slowdown == (1.0 + 31 * SECOND / SHORT_MS) / 2


def test_the_finish_time_ratio_is_against_an_equal_share():
    """Both are active for 60 s, so a share is half of four devices: a job of four would take twice as long alone."""
    found = measure(ran(trace(job(0, 60, 4), job(0, 60, 4))))
    # The first: 60 / (60 * max(1, 4 * 2 / 4)) = 0.5; the second: beside 90/60... 120 / (60 * 4 * 1.5 / 4) = 1.33
    assert found.whole.fairness_worst == pytest.approx(120 / (60 * 1.5))
    assert found.whole.unfair_share == 0.5


def test_groups_add_up_to_the_whole():
    rules = config(tenants=(Tenant("default"), Tenant("s")))
    found = measure(ran(trace(job(0, 60, 1), job(1, 60, 3, tenant="s"), job(2, 60, 0), rules=rules)))
    assert {name: group.jobs for name, group in found.by_tenant.items()} == {"default": 2, "s": 1}
    assert {name: group.jobs for name, group in found.by_size.items()} == {"1": 1, "2-4": 1, "no device": 1}
    assert sum(group.device_hours for group in found.by_size.values()) == pytest.approx(found.whole.device_hours)


def test_cost_is_device_time_by_price():
    priced = config(pools=(Pool("default", speeds=(("A100", 1_000, 2_500),)),))
    found = measure(ran(trace(job(0, 3600, 2), nodes=(node("a", 2),), rules=priced)))
    assert found.whole.cost == pytest.approx(5.0)


def test_a_job_that_never_starts_is_unfinished():
    found = measure(ran(trace(job(0, 60, 5), rules=config(allow_waiting_for_nodes=True))))
    assert (found.whole.unfinished, found.whole.completion_ms.mean) == (1, 0.0)


def test_no_jobs_are_no_fault():
    assert measure(ran(trace())).whole.jobs == 0


def test_a_percentile_is_the_value_below_which_that_part_lies():
    found = spread(list(range(100)))
    assert (found.p50, found.p90, found.p99, found.most, found.mean) == (50, 90, 99, 99, 49.5)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (29, 2.045)])
def test_students_t(freedom, quantile):
    assert student_t(freedom) == pytest.approx(quantile, abs=1e-3)


def test_an_interval_of_one_value_has_no_width():
    assert interval([3.0]).half == 0.0
    assert interval([1.0, 2.0, 3.0]).half == pytest.approx(4.303 * (1 / 3) ** 0.5, abs=1e-3)
