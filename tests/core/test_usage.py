"""Usage: device-time and CPU-time from allocation to release, each exactly once."""

from hypothesis import given, settings

from penstock.core.ledger.usage import Usage, holdings, usage_by_tenant
from penstock.core.model.cluster import Tenant
from penstock.core.model.events import AttemptAllocated, JobSubmitted, NodeLost, ReplicaExited
from tests.core.builders import cluster, job_spec
from tests.core.histories import operations, play, small_world


def test_a_hold_lasts_from_its_allocation_to_its_exit():
    w = cluster(1, 4)
    job = w.submit(2, cpus=3)
    w.now += 100
    w.cycle()
    w.now += 50
    w.start(job)
    w.now += 1_000
    w.exit_replica(job)
    assert usage_by_tenant(w.records, w.now + 9_999) == [Usage("default", 2 * 1_050, 3 * 1_050, 1, 1)]


def test_an_open_hold_counts_up_to_now():
    w = cluster(1, 4)
    w.submit(2)
    w.cycle()
    (hold,), _ = holdings(w.records, w.now + 70)
    assert (hold.start_ms, hold.end_ms, hold.open, hold.devices) == (w.now, w.now + 70, True, (0, 1))
    assert usage_by_tenant(w.records, w.now + 70)[0].device_ms == 140


def test_a_replica_that_leaves_early_is_not_charged_on():
    w = cluster(1, 4)
    job = w.submit(1, 2)
    w.run(job)
    w.now += 100
    w.exit_replica(job, 0)
    w.now += 200
    w.exit_replica(job, 1)
    assert usage_by_tenant(w.records, w.now)[0].device_ms == 100 + 300


def test_a_lost_node_ends_its_holds_and_no_others():
    w = cluster(2, 1)
    job = w.submit(1, 2)
    w.run(job)
    w.now += 100
    w.lose("n0")
    w.now += 100
    w.leave(job)
    held = holdings(w.records, w.now)[0]
    assert [(h.node, h.end_ms - h.start_ms, h.open) for h in held] == [("n0", 100, False), ("n1", 200, False)]


def test_each_attempt_is_counted_once_and_each_tenant_by_name():
    w = cluster(1, 4, tenants=(Tenant("b"), Tenant("a")))
    first = w.submit(1, tenant="b", retries_max=1)
    w.submit(0, tenant="a")
    w.run(first)
    w.exit_replica(first, 0, 1)
    w.now += 1_000
    w.cycle()
    found = usage_by_tenant(w.records, w.now)
    assert [(u.tenant, u.attempts, u.jobs) for u in found] == [("a", 1, 1), ("b", 2, 1)]


def test_a_job_that_never_ran_costs_nothing():
    w = cluster(1, 1)
    w.request(job_spec(), job_spec())
    assert usage_by_tenant(w.records, w.now + 5) == [Usage("default", 0, 0, 0, 2)]


def recount(records, until_ms):
    """Charge replica by replica: for each, look up its end by a walk over the rest of the log."""
    specs = {r.event.job_id: r.event.spec for r in records if isinstance(r.event, JobSubmitted)}
    device_ms = cpu_ms = attempts = 0
    for at, record in enumerate(records):
        if not isinstance(record.event, AttemptAllocated):
            continue
        attempts += 1
        for rank, place in enumerate(record.event.places):
            end = until_ms
            for later in records[at:]:
                event = later.event
                mine = isinstance(event, ReplicaExited) and (event.job_id, event.attempt, event.rank) == (
                    record.event.job_id,
                    record.event.attempt,
                    rank,
                )
                if mine or (isinstance(event, NodeLost) and event.node == place.node):
                    end = later.time_ms
                    break
            length = end - record.time_ms
            device_ms += length * len(place.devices)
            cpu_ms += length * specs[record.event.job_id].ask.each.host.cpu_milli // 1000
    return [Usage("default", device_ms, cpu_ms, attempts, len(specs))] if specs else []


@settings(max_examples=80, deadline=None)
@given(operations)
def test_usage_equals_a_brute_force_recount(found):
    w = play(small_world(), found)
    assert usage_by_tenant(w.records, w.now + 7) == recount(w.records, w.now + 7)


@settings(max_examples=40, deadline=None)
@given(operations)
def test_closed_holds_never_change(found):
    w = play(small_world(), found)
    closed = [h for h in holdings(w.records, w.now)[0] if not h.open]
    assert [h for h in holdings(w.records, w.now + 10**6)[0] if not h.open] == closed
