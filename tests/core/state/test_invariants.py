"""Each promise can be broken, and is then the one that is named."""

import pytest
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.accounts import InvoiceHead
from penstock.core.model.actions import JobChange
from penstock.core.model.batching import REBALANCE, RESTARTS_MAX, BatchChoice
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.jobs import JobHold, ReplicaPlace, Scheduled, StopOrder
from penstock.core.state import invariants
from penstock.core.state.copy_on_write import ByNode
from penstock.testing.builders import config, node, queues
from penstock.testing.harness import World, cluster


def names(state):
    return {v.promise for v in invariants.violations(state)}


def two_running(**fields):
    """Return a world with jobs 1 and 2 running on the only node, 3 waiting, and 4 waiting for 3."""
    from penstock.core.model.jobs import Dependency

    w = World(node("a", 2, cpus=8), node("b", 0, cpus=1))
    w.submit(1, cpus=2, **fields)
    w.submit(1, cpus=2)
    w.run(1, 2)
    w.submit(1, cpus=2)
    w.submit(1, cpus=2, after=(Dependency(3, "after_ok"),))
    return w


def put(w, job_id, **fields):
    w.state._put(replace(w.job(job_id), **fields))


def put_attempt(w, job_id, **fields):
    put(w, job_id, attempt=replace(w.job(job_id).attempt, **fields))


def put_place(w, job_id, node_name="a", incarnation="i1", devices=(0,)):
    attempt = w.job(job_id).attempt
    place = ReplicaPlace(node_name, incarnation, devices)
    put_attempt(w, job_id, replicas=(replace(attempt.replicas[0], place=place),))


def shrink(w):
    known = w.state.nodes["a"]
    capacity = replace(known.spec.capacity, cpu_milli=1)
    w.state._put_node(replace(known, spec=replace(known.spec, capacity=capacity)))


def stop_for(w, reason="preempted", beneficiary=3):
    put(w, 1, state="stopping")
    put_attempt(w, 1, stop=StopOrder(reason, w.now, 0, beneficiary))
    w.state.indexes.stopping[1] = beneficiary


def restart_often(w):
    stop_for(w, reason="resized", beneficiary=1)
    stop = replace(w.job(1).attempt.stop, rule=REBALANCE, seq=1 << 40)
    put(w, 1, changes_ms=(w.now,) * (RESTARTS_MAX + 1))
    put_attempt(w, 1, stop=stop)


def cut_up(w):
    """Let two instances lie on the same slice."""
    free = w.state.indexes.free
    free.set("a", free["a"]._replace(mig=((0, (("1g.10gb", 0), ("2g.20gb", 0))),)))


def limit(w, device_milli):
    """Change what the queue may use, as if it had been so when the jobs were started."""
    w.state.config = config(queues=queues("default", max=(("devices", device_milli),)))


def credit(w, **fields):
    """Give the tenant a credit that its account tells otherwise."""
    tenant = w.job(1).spec.tenant
    w.commit(lambda tx: tx.emit(ev.CreditAdded(tenant, "TRANSFER-1", 500, "payment")))
    w.state.money.of[tenant] = replace(w.state.money.of[tenant], **fields)


def number(w, *numbers):
    for one in numbers:
        kind = "invoice" if one.startswith("INV-") else "credit_note"
        corrects = "INV-000001" if kind == "credit_note" else ""
        w.state.money.invoices[one] = InvoiceHead(one, kind, w.job(1).spec.tenant, 1, 1, 2, 5, 5, 1, corrects)


def hold(w):
    held = ev.TenantHeld(w.job(1).spec.tenant, "balance", "nothing is left", suspend=True)
    w.state.apply(ev.Record(w.state.seq + 1, w.now, held))


def close(w, **fields):
    """Close the device of job 1, and change the closure."""
    w.emit(ev.DeviceClosed("a", 0, "xid", "Xid 79", "penstock"))
    node_a = w.state.nodes["a"]
    w.state.nodes["a"] = replace(node_a, devices_closed=(replace(node_a.devices_closed[0], **fields),))


def open_wrongly(w):
    close(w)
    node_a = w.state.nodes["a"]
    w.state.nodes["a"] = replace(node_a, spec=node_a.spec_said)


CORRUPTIONS = [
    ("closed_devices_are_kept_back", open_wrongly),
    ("closed_devices_are_kept_back", lambda w: close(w, index=9)),
    ("closed_devices_are_kept_back", lambda w: close(w, uuid="another")),
    ("closed_devices_are_kept_back", lambda w: close(w, closed_ms=1)),
    ("closed_devices_are_kept_back", lambda w: w.state.indexes.with_closed.add("b")),
    ("no_device_beyond_capacity", lambda w: put_place(w, 2, devices=(0,))),
    ("no_device_beyond_capacity", lambda w: put_place(w, 2, devices=(7,))),
    ("no_host_beyond_capacity", shrink),
    ("loads_match_jobs", lambda w: w.state.indexes.loads["a"].replicas.clear()),
    ("loads_match_jobs", lambda w: w.state.indexes.loads["a"].replicas.add((9, 0))),
    ("loads_match_jobs", lambda w: w.state.indexes.loads.pop("a")),
    ("loads_match_jobs", lambda w: w.state.indexes.free.set("a", w.state.indexes.free["b"])),
    ("loads_match_jobs", lambda w: setattr(w.state.indexes, "free", ByNode(reversed([*w.state.indexes.free.items()])))),
    ("loads_match_jobs", lambda w: setattr(w.state.indexes, "nodes", dict(reversed(w.state.nodes.items())))),
    ("mig_instances_are_legal", cut_up),
    ("held_jobs_wait", lambda w: put(w, 1, hold=JobHold("ann", 1))),
    ("held_jobs_wait", lambda w: put(w, 3, hold=JobHold("ann", 1))),
    ("arrays_keep_their_width", lambda w: w.state.indexes.arrays.in_turn.update({3: 1})),
    ("use_matches_jobs", lambda w: w.state.indexes.usage.clear()),
    ("use_matches_jobs", lambda w: w.state.indexes.ends.add((1, 1))),
    ("use_matches_jobs", lambda w: w.state.indexes.unending.add((1, 1))),
    ("use_matches_jobs", lambda w: w.state.indexes.evictable.clear()),
    ("no_queue_beyond_its_maximum", lambda w: limit(w, 1_999)),
    ("loads_match_jobs", lambda w: w.state.indexes.loads["a"].devices.pop(0)),
    ("loads_match_jobs", lambda w: w.state.indexes.loads["a"].devices.update({5: [1]})),
    ("live_jobs_are_indexed", lambda w: dict.pop(w.state.jobs, 3)),
    ("waiting_jobs_are_indexed", lambda w: w.state.indexes.pending.clear()),
    ("waiting_jobs_are_indexed", lambda w: w.state.indexes.pending[w.job(3).class_id].jobs.append(w.job(4))),
    ("waiting_jobs_are_indexed", lambda w: w.state.indexes.pending[w.job(3).class_id].jobs.append(w.job(3))),
    ("waiting_jobs_are_indexed", lambda w: dict.pop(w.state.indexes.pending, w.job(3).class_id)),
    ("waiting_jobs_are_indexed", lambda w: w.state.indexes.pending._by_tenant.clear()),
    ("dependencies_are_alive", lambda w: w.state.indexes.dependants.awaited.clear()),
    ("dependencies_are_alive", lambda w: put(w, 4, unmet=(99,))),
    ("dependencies_are_alive", lambda w: put(w, 4, unmet=(4,))),
    ("attempts_fit_states", lambda w: put(w, 3, state="running")),
    ("attempts_fit_states", lambda w: put(w, 1, last_attempt=2)),
    ("attempts_fit_states", lambda w: put(w, 1, state="stopping")),
    ("attempts_fit_states", lambda w: put_attempt(w, 1, replicas=w.job(1).attempt.replicas * 2)),
    ("holders_live_on_their_node", lambda w: put_place(w, 1, incarnation="i0")),
    ("ports_are_unique", lambda w: put_attempt(w, 2, port=w.job(1).attempt.port)),
    ("ports_are_unique", lambda w: w.state.indexes.ports.add(("a", 1))),
    ("ports_are_unique", lambda w: put_attempt(w, 2, ports=(w.job(1).attempt.port,))),
    ("runs_match_jobs", lambda w: w.state.schedules.live.update({("ann", "nightly"): {1: {1}}})),
    ("runs_match_jobs", lambda w: put(w, 3, scheduled=Scheduled("nightly", 1, 3))),
    ("preemptions_are_lawful", stop_for),
    ("actives_match", lambda w: w.state.indexes.active.remove(1)),
    ("actives_match", lambda w: w.state.indexes.stopping.update({1: None})),
    ("actives_match", lambda w: w.state.indexes.beneficiaries.add(3)),
    ("ledger_adds_up", lambda w: w.state.money.ledger.update(cash=1)),
    ("ledger_adds_up", lambda w: credit(w, lots=())),
    ("ledger_adds_up", lambda w: credit(w, open=(("INV-000001", -1), ("INV-000002", 1)))),
    ("numbers_have_no_gaps", lambda w: number(w, "INV-000001", "INV-000003")),
    ("numbers_have_no_gaps", lambda w: number(w, "INV-000001", "CN-000002")),
    ("numbers_have_no_gaps", lambda w: number(w, "CN-000001")),
    ("suspended_tenants_leave", hold),
    ("batches_are_within_range", lambda w: put_attempt(w, 1, batch=BatchChoice(8))),
    ("rounds_restart_seldom", restart_often),
]


def test_a_sound_state_breaks_no_promise():
    w = two_running()
    credit(w)
    number(w, "INV-000001", "CN-000001", "INV-000002")
    assert invariants.violations(w.state) == []


@pytest.mark.parametrize(("promise", "corrupt"), CORRUPTIONS)
def test_a_broken_promise_is_named(promise, corrupt):
    w = two_running()
    corrupt(w)
    assert promise in names(w.state)
    with pytest.raises(BrokenInvariant, match=promise):
        invariants.require(w.state)


def test_exactly_the_broken_promise_is_named():
    exact = {
        "no_host_beyond_capacity": shrink,
        "waiting_jobs_are_indexed": lambda w: w.state.indexes.pending.clear(),
        "dependencies_are_alive": lambda w: w.state.indexes.dependants.awaited.clear(),
        "holders_live_on_their_node": lambda w: put_place(w, 1, incarnation="i0"),
        "ports_are_unique": lambda w: w.state.indexes.ports.clear(),
        "preemptions_are_lawful": stop_for,
        "actives_match": lambda w: w.state.indexes.active.remove(1),
        "ledger_adds_up": lambda w: w.state.money.ledger.update(cash=1),
        "numbers_have_no_gaps": lambda w: number(w, "INV-000002"),
        "suspended_tenants_leave": hold,
    }
    for promise, corrupt in exact.items():
        w = two_running()
        corrupt(w)
        assert names(w.state) == {promise}


def test_every_promise_has_a_way_to_be_broken_here():
    assert {promise for promise, _ in CORRUPTIONS} == {check.__name__ for check in invariants.INVARIANTS}


def test_a_job_that_is_not_preemptible_is_no_lawful_victim():
    w = two_running(preemptible=False, priority=1)
    stop_for(w)
    assert "preemptions_are_lawful" in names(w.state)


def test_a_stop_for_another_reason_needs_no_beneficiary():
    w = two_running(preemptible=False)
    stop_for(w, "drained", None)
    assert names(w.state) == set()


def edited(priority):
    return ev.JobEdited(3, JobChange(priority=priority), "ann")


def stopped_for_it(w):
    return ev.AttemptStopRequested(1, w.job(1).attempt.number, "preempted", 0, 3, rule="lower_priority")


def test_an_edit_of_before_the_order_excuses_no_unlawful_preemption():
    w = two_running(priority=500)
    w.emit(edited(400))
    with pytest.raises(BrokenInvariant, match="job 1 is preempted for job 3 of no higher priority"):
        w.emit(stopped_for_it(w))


def test_an_edit_after_the_order_leaves_the_preemption_lawful():
    w = two_running(priority=400)
    w.emit(edited(450), stopped_for_it(w))
    w.emit(edited(300))
    assert names(w.state) == set()


def test_a_finished_job_may_not_stay():
    w = two_running()
    put(w, 3, state="succeeded")
    assert "attempts_fit_states" in names(w.state)


def test_an_attempt_that_holds_nothing_has_to_end():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    gone = replace(w.job(job).attempt.replicas[0], state="exited")
    put_attempt(w, job, replicas=(gone,))
    assert "attempts_fit_states" in names(w.state)


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda w: w.state.indexes.waiting_by_queue.update({"default": 77}),
        lambda w: w.state.indexes.wait_limited.add(3),
        lambda w: w.state.indexes.time_limited.add(1),
        lambda w: w.state.indexes.evicted_later.add("n0"),
        lambda w: w.state.indexes.dependants.add(replace(w.job(3), spec=w.job(4).spec), {3: 0}),
        lambda w: w.state.indexes.dependants.ended(3, {}),
        lambda w: setattr(w.state.indexes.dependants.awaited[3, 1], "left", 2),
        lambda w: w.state.indexes.dependants.runs.pop(3),
        lambda w: put(w, 4, unmet=(1, 3)),
    ],
    ids=[
        "waiting_by_queue",
        "wait_limited",
        "time_limited",
        "evicted_later",
        "dependants",
        "awaited",
        "left",
        "runs",
        "unmet",
    ],
)
def test_every_cache_is_recounted(corrupt):
    w = two_running()
    corrupt(w)
    assert names(w.state) != set()
