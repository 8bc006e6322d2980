"""When a cycle is worth repeating though nothing happened: `Plan.again_ms`."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.cycle.planner import plan
from penstock.core.model.cluster import Reservation, Tenant
from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.testing.builders import node
from penstock.testing.harness import World, cluster, follow
from penstock.testing.worlds import crowded
from tests.properties import examples

MINUTE, HOUR = 60_000, 3_600_000


def full(**settings_):
    """Return a cluster of one device that a job fills which may be preempted."""
    w = cluster(1, 1, **settings_)
    w.run(w.submit(1, priority=100))
    return w


def test_where_nothing_waits_only_events_matter():
    w = full()
    assert w.plan().again_ms == 0


def test_a_job_that_waits_may_starve_later():
    w = cluster(1, 1, starvation_after_ms=HOUR)
    w.run(w.submit(1, preemptible=False))
    w.submit(1)
    assert w.plan().again_ms == w.now + HOUR


def test_a_victim_may_be_asked_once_it_has_had_its_guaranteed_run_time():
    w = full(min_runtime_before_preemption_ms=MINUTE)
    began = w.now
    w.now += 1_000
    w.submit(1, priority=900)
    assert w.plan().again_ms == began + MINUTE
    w.now = began + MINUTE
    assert w.plan().preemptions != ()


def test_a_job_that_backs_off_may_be_tried_again():
    w = cluster(1, 1)
    job = w.submit(1, retries_max=1)
    w.run(job)
    w.exit_replica(job, code=1)
    assert w.plan().again_ms == w.job(job).not_before_ms > w.now


def test_a_reservation_begins_and_ends():
    kept = Reservation("r", "s", 1_000_000 + MINUTE, 1_000_000 + 2 * MINUTE, ("n0",))
    w = cluster(1, 1, tenants=(Tenant("default"), Tenant("s")), reservations=(kept,))
    w.submit(1, time_limit_ms=HOUR)
    assert w.plan().again_ms == 1_000_000 + MINUTE
    w.now += MINUTE
    assert w.plan().again_ms == 1_000_000 + 2 * MINUTE
    w.now += MINUTE
    assert len(w.plan().starts) == 1


def test_an_elastic_job_may_grow_again():
    w = World(node("a", 2), elastic_growth_period_ms=MINUTE)
    other, job = w.submit(1), w.submit(gang=GangAsk(1, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=2))
    w.run(other, job)
    w.exit_replica(other)
    assert w.plan().again_ms == w.now + MINUTE


def test_an_overdue_job_moves_the_reservation_behind_it():
    w = cluster(1, 2)
    w.run(w.submit(1, time_limit_ms=MINUTE, preemptible=False))
    w.submit(2, priority=900)
    w.submit(1, time_limit_ms=HOUR)
    assert w.plan().again_ms == w.now + MINUTE


def test_a_cycle_that_was_full_goes_on_at_once():
    w = cluster(1, 4, starts_per_cycle_max=1)
    w.submit(1)
    w.submit(2)
    assert w.plan().again_ms == w.now


@given(st.integers(0, 2**32))
@examples(60)
def test_before_that_time_alone_changes_nothing(seed):
    w = crowded(seed)
    for _ in range(3):
        w.cycle()
        follow(w)
    decided = w.cycle()
    if decided.starts or decided.preemptions:
        return
    until = min(decided.again_ms or w.now + HOUR, w.now + HOUR)
    for now in (w.now + 1, (w.now + until) // 2, until - 1):
        if w.now < now < until:
            found = plan(w.snapshot(), now)
            assert (found.starts, found.preemptions) == ((), ())
