"""Room for demand that is expected, in a replay: urgent jobs wait less where it pays; else nothing is kept."""

import pytest

from penstock.core.model.cluster import Queue
from penstock.sim.replay.measures import measure
from penstock.testing.builders import config, node
from tests.sim.replay.builders import job, ran, trace

DAYS, DAY_S, HOUR_S = 24, 86_400, 3_600
URGENT, WIDE = 900, 8


def daily(preemption="never", **settings):
    """Four nodes on which jobs of nearly eight hours come at 5:40, 13:40 and 21:40; an urgent one comes at 14:00."""
    own = {"predictive_share_milli": 500, "predictive_waiting_min": 0, "immediate_utilisation_milli": 0}
    queue = Queue("default", policy="priority", preemption=preemption)
    plain = [
        job(day * DAY_S + (5 + turn * 8) * HOUR_S + 2_400, 8 * HOUR_S - 600, WIDE, priority=500)
        for day in range(DAYS)
        for turn in range(3)
        for _ in range(4)
    ]
    urgent = [job(day * DAY_S + 14 * HOUR_S, HOUR_S // 2, WIDE, priority=URGENT) for day in range(DAYS)]
    jobs = sorted((*plain, *urgent), key=lambda one: one.submit_ms)
    nodes = tuple(node(f"n{i}", WIDE) for i in range(4))
    return ran(trace(*jobs, nodes=nodes, rules=config(queues=(queue,), **(own | settings))))


def kept_ms(found):
    return sum(use.kept_device_ms for use in found.strategies.values())


def test_urgent_jobs_wait_less_where_room_pays():
    found, without = daily(), daily(predictive_share_milli=0)
    assert kept_ms(found) > 0 == kept_ms(without)
    kept, plain = (measure(one).by_priority[str(URGENT)].wait_ms.mean for one in (found, without))
    assert 5 * kept < 3 * plain
    assert sum(use.jobs_held_back for use in found.strategies.values()) > 0


@pytest.mark.parametrize("settings", [{"preemption": "lower_priority"}, {"predictive_gain_milli": 1_000_000}])
def test_nothing_is_kept_where_it_does_not_pay(settings):
    found = daily(**settings)
    assert kept_ms(found) == 0
    assert set(found.strategies) >= {"predictive"}


def test_the_same_again():
    assert daily().lives == daily().lives
