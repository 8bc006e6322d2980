"""What the log and the state do at their edges: bounds of caches, faults that must be named, orders that come late."""

import pytest

from penstock.core.ledger.sessions import sessions
from penstock.core.lifecycle import orders, requests
from penstock.core.model import events as ev
from penstock.core.model.access import User
from penstock.core.model.cluster import ClusterConfig, Pool, Queue, Tenant
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.jobs import CheckpointSpec, Dependency, ExitInfo, ReplicaPlace
from penstock.core.model.prices import Billing, Price, Tariff
from penstock.core.model.resources import Resources
from penstock.core.place import backfill
from penstock.core.state import idempotency, invariants
from penstock.core.state import indexes as indexes
from penstock.testing.builders import ask, config, job_spec, node, queues
from penstock.testing.harness import World, cluster
from tests.core.place.test_backfill import half_full, reserved
from tests.core.state.test_invariants import names, put_place


def running(*devices, **fields):
    w = cluster(1, 4, **fields)
    jobs = [w.submit(count) for count in devices or (1,)]
    w.run(*jobs)
    return w


# Faults in the log.


def test_a_job_number_out_of_turn_is_a_fault():
    w = cluster(1, 1)
    with pytest.raises(BrokenInvariant, match="job id 5 given out, expected 1"):
        w.emit(ev.JobSubmitted(5, job_spec(), "ann", None, 0, "", "", 1))


def test_an_attempt_does_not_end_while_it_holds_places():
    w = running()
    with pytest.raises(BrokenInvariant, match="attempt 1 ended while replicas hold places"):
        w.emit(ev.AttemptEnded(1, 1, "ok"))


def test_a_job_does_not_finish_while_an_attempt_holds_places():
    w = running()
    with pytest.raises(BrokenInvariant, match="job 1 finished while an attempt holds places"):
        w.emit(ev.JobFinished(1, "succeeded", "", None))


def test_more_of_a_device_than_is_free_is_not_given_out():
    w = cluster(1, 1)
    first, second = w.submit(1, share_milli=600), w.submit(1, share_milli=600)
    w.run(first)
    place = ReplicaPlace("n0", "i1", (0,))
    with pytest.raises(BrokenInvariant, match=rf"job {second} was given more of n0 \(0,\) than is free"):
        w.emit(ev.AttemptAllocated(second, 1, (place,), 2_000))


# Broken promises.


def test_parts_beyond_a_device_are_named():
    w = World(node("a", 2))
    jobs = [w.submit(1, share_milli=600) for _ in range(2)]
    w.run(*jobs)
    assert names(w.state) == set()
    put_place(w, jobs[1], devices=w.job(jobs[0]).attempt.replicas[0].place.devices)
    assert "no_device_beyond_capacity" in names(w.state)


def test_an_elastic_job_that_is_not_counted_as_such_is_named():
    w = running()
    w.state.indexes.elastic.add(1)
    assert names(w.state) == {"use_matches_jobs"}


def test_a_job_in_a_class_that_is_not_its_own_is_named():
    w = cluster(1, 1)
    w.submit(1, priority=9)
    w.submit(1)
    one, two = w.job(1), w.job(2)
    w.state.indexes.class_ids[next(k for k, v in w.state.indexes.class_ids.items() if v == one.class_id)] = two.class_id
    assert "job 1 is in class 0, which is not its own" in [v.detail for v in invariants.violations(w.state)]


# Bounds.


def test_a_log_of_changes_that_is_full_starts_anew(monkeypatch):
    w = cluster(2, 4)
    before = w.state.indexes.changes
    monkeypatch.setattr(indexes, "CHANGES_MAX", len(before) + 1)
    w.run(w.submit(1), w.submit(1))
    assert w.state.indexes.changes is not before
    assert len(w.state.indexes.changes) <= len(before) + 1
    w.run(w.submit(4))
    assert w.phase(3) == "running"


def test_only_so_many_ends_are_looked_at(monkeypatch):
    w, blocked = half_full()
    w.submit(2, estimated_duration_ms=1_000)
    assert list(reserved(w.plan())) == [blocked]
    monkeypatch.setattr(backfill, "RELEASES_MAX", 0)
    assert reserved(w.plan()) == {}


def test_idempotency_keys_beyond_the_limit_are_forgotten_oldest_first(monkeypatch):
    monkeypatch.setattr(idempotency, "IDEMPOTENCY_KEPT_MAX", 2)
    w = cluster(1, 1)
    for key in "abc":
        w.request(job_spec(), key=key)
    assert list(w.state.idempotency) == ["b", "c"]
    monkeypatch.setattr(idempotency, "IDEMPOTENCY_KEPT_MAX", 0)
    w.request(job_spec(), key="d")
    assert list(w.state.idempotency) == []


def test_answers_about_what_never_fits_are_forgotten_when_there_are_too_many():
    w = cluster(1, 2)
    known = w.state.indexes.never_fits
    known.update((ask(1, cpus=i), ()) for i in range(20_000, 30_001))
    assert requests.could_never_fit(w.state, ask(3)) == (("devices_too_few", 1),)
    assert known == {ask(3): (("devices_too_few", 1),)}


# A configuration that changes.


def test_what_live_jobs_still_need_may_not_be_taken_away():
    pools, tenants = (Pool("default"), Pool("p")), (Tenant("default"), Tenant("t"))
    w = World(node("a", 1, pool="p"), queues=queues("default", "q"), pools=pools, tenants=tenants, users=(User("ann"),))
    w.submit(1, queue="q", pool="p", tenant="t")
    found = requests.config_problems(w.state, ClusterConfig(), w.now)
    assert [(p.code, p.field, p.value) for p in found] == [
        ("still_used", "queues", "q"),
        ("still_used", "tenants", "t"),
        ("still_used", "pools", "p"),
        ("still_used", "users", "ann"),
    ]
    assert requests.config_problems(w.state, w.state.config, w.now) == []
    assert requests.config_problems(cluster(1, 1).state, ClusterConfig(queues=()), 0) == []


def test_waiting_jobs_go_to_the_classes_that_a_new_policy_gives_them():
    w = cluster(1, 1, queues=queues("default", policy="priority"))
    w.submit(1, estimated_duration_ms=1_000)
    w.submit(1, estimated_duration_ms=900_000)
    w.submit(1, estimated_duration_ms=900_000)
    w.emit(ev.ConfigChanged(config(queues=queues("default", policy="shortest_predicted")), "op"))
    ranks = {job.id: key.rank for _, key, jobs in w.snapshot().classes for job in jobs}
    assert ranks[1] < ranks[2] == ranks[3]
    assert w.job(2).class_id == w.job(3).class_id != w.job(1).class_id


def test_use_of_a_tree_without_use_is_counted_from_nothing():
    w = running()
    assert w.state.queue_tree().root.used[0] == 1_000


def test_a_start_in_a_queue_that_is_gone_does_not_hold():
    w = cluster(1, 4, queues=queues("default", policy="fifo"))
    w.submit(1)
    proposed = w.plan()
    w.state.config = config(queues=(Queue("other", max=(("devices", 1_000),)),))
    found = w.apply(proposed)
    assert (found.starts, found.dropped) == ((), 1)


# Orders that come late or are about nothing.


def test_a_start_that_was_overtaken_orders_nothing():
    w = running()
    allocated = next(r for r in w.records if isinstance(r.event, ev.AttemptAllocated))
    assert len(orders.orders_of(allocated, w.state)) == 1
    w.exit_replica(1)
    assert orders.orders_of(allocated, w.state) == []


def test_a_stop_that_was_overtaken_orders_nothing():
    w = running()
    w.cancel(1)
    stop = next(r for r in w.records if isinstance(r.event, ev.AttemptStopRequested))
    assert len(orders.orders_of(stop, w.state)) == 1
    w.leave(1)
    assert orders.orders_of(stop, w.state) == []


def test_every_started_replica_is_asked_to_save():
    w = cluster(1, 4)
    w.submit(1, 3)
    assert orders.save_orders(w.state, 1) == []
    assert orders.save_orders(w.state, 99) == []
    w.cycle()
    assert orders.save_orders(w.state, 1) == []
    w.start(1)
    w.exit_replica(1, 1)
    found = orders.save_orders(w.state, 1)
    assert [(name, order.key.attempt, order.key.rank) for name, order in found] == [("n0", 1, 0), ("n0", 1, 2)]


def test_who_can_be_asked_to_save_and_carry_on():
    w = cluster(1, 2)
    w.submit(1)
    w.submit(1, checkpoint=CheckpointSpec(request_signal="SIGUSR1"))
    assert requests.may_ask_checkpoint(w.state, 2).code == "not_running"
    assert requests.may_ask_checkpoint(w.state, 9).code == "not_running"
    w.run(1, 2)
    assert requests.may_ask_checkpoint(w.state, 1).code == "cannot_checkpoint"
    assert requests.may_ask_checkpoint(w.state, 2) is None


def test_a_job_that_waits_for_two_that_never_end_well_is_cancelled_once():
    w = cluster(1, 1)
    first = w.submit(1)
    second = w.submit(1, after=(Dependency(first, "after_ok"),))
    third = w.submit(1, after=(Dependency(first, "after_ok"), Dependency(second, "after_ok")))
    fourth = w.submit(1, after=(Dependency(third, "after_ok"), Dependency(second, "after_ok")))
    w.cancel(first)
    assert [w.ended[j] for j in (first, second, third, fourth)] == ["cancelled"] * 4
    assert len([r for r in w.records if isinstance(r.event, ev.JobFinished)]) == 4


def test_of_one_request_a_job_that_can_never_start_takes_its_followers_with_it():
    w = cluster(1, 1)
    gone = w.submit(1)
    w.cancel(gone)
    one = requests.NewJob(job_spec(name="one", after=(Dependency(gone, "after_ok"),)), 0)
    both = (("one", "after_ok"),)
    two = requests.NewJob(job_spec(name="two", after=(Dependency(gone, "after_ok"),)), 0, after_names=both)
    w.commit(lambda tx: requests.submit(tx, requests.Submit((one, two), "ann", "", ""), w.ended))
    assert [w.ended[j] for j in (gone, 2, 3)] == ["cancelled"] * 3


def test_an_exit_reported_after_the_loss_of_its_node_ends_no_hold_twice():
    w = cluster(1, 1)
    w.run(w.submit(1))
    w.now += 100
    w.lose("n0")
    late = ev.Record(w.state.seq + 1, w.now + 50, ev.ReplicaExited(1, 1, 0, ExitInfo(1)))
    (found,) = sessions([*w.records, late])
    assert found.length_ms(w.now + 500) == 100


def test_resources_are_subtracted_one_by_one():
    assert Resources(5, 6, 7, 8) - Resources(1, 2, 3, 5) == Resources(4, 4, 4, 3)


NOW = 1_000_000
OLD = Price("device", 5, 0), Price("device", 7, 2 * NOW)


@pytest.mark.parametrize(
    ("after", "names"),
    [
        (OLD, []),
        ((OLD[0], Price("device", 9, NOW + 1)), []),
        ((OLD[0],), []),
        ((*OLD, Price("cpu", 1, NOW + 1)), []),
        ((OLD[1],), ["device"]),
        ((*OLD, Price("cpu", 1, NOW)), ["cpu"]),
        ((Price("device", 6, 0), OLD[1]), ["device", "device"]),
        ((), ["device"]),
    ],
)
def test_a_price_that_has_begun_is_never_another(after, names):
    w = World(billing=Billing(Tariff(OLD)))
    found = requests.config_problems(w.state, ClusterConfig(billing=Billing(Tariff(after))), NOW)
    assert [(p.code, p.value) for p in found] == [("past_price", name) for name in names]


def test_the_first_prices_may_begin_at_any_time():
    assert requests.config_problems(World().state, ClusterConfig(billing=Billing(Tariff(OLD))), NOW) == []


def test_classes_of_requests_that_have_ended_are_forgotten(monkeypatch):
    monkeypatch.setattr(indexes, "CLASSES_KEPT", 4)
    w = World(node())
    first = w.submit(1)
    w.run(first)
    waiting = [w.submit(4, memory_gib=gib) for gib in (1, 2)]
    for gib in range(3, 50):
        w.cancel(w.submit(1, memory_gib=gib))
    kept = w.state.indexes.class_ids
    assert (len(kept) <= 5, {w.job(one).class_id for one in (first, *waiting)} <= set(kept.values())) == (True, True)
    w.exit_replica(first)
    w.run(waiting[0])
    assert w.phase(waiting[0]) == "running"
