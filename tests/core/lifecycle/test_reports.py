"""Reports of nodes: what is new is taken, what is known or not current changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lifecycle import reports
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.reports import NodeReport, ProgressSeen, ReplicaKey, ReplicaSeen
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.selectors import Taint, Toleration
from penstock.core.state import invariants
from penstock.core.state.state import fold
from penstock.testing.builders import device, node
from penstock.testing.harness import World, cluster
from tests.properties import examples


def started(replicas=1, **fields):
    w = cluster(1, 4)
    job = w.submit(1, replicas, **fields)
    w.run(job)
    return w, job


def unchanged(w, act):
    seq = w.state.seq
    act()
    return w.state.seq == seq


def test_a_doubled_start_changes_nothing():
    w, job = started()
    assert unchanged(w, lambda: w.report("n0", w.seen(job), inventory=False))


def test_a_doubled_exit_changes_nothing():
    w, job = started(retries_max=3)
    late = w.seen(job, 0, "exited", exit=ExitInfo(1))
    w.report("n0", late, inventory=False)
    assert w.phase(job) == "waiting"
    assert unchanged(w, lambda: w.report("n0", late, inventory=False))


@pytest.mark.parametrize("state", ["starting", "running", "stopping", "exited"])
def test_a_report_of_an_older_attempt_changes_nothing(state):
    w, job = started(retries_max=3)
    w.exit_replica(job, 0, 1)
    w.now += 1_000
    w.run(job)
    old = w.seen(job, 0, state, attempt=1, exit=ExitInfo(0))
    assert unchanged(w, lambda: w.report("n0", old, inventory=False))


@pytest.mark.parametrize(
    "key", [ReplicaKey(99, 1, 0), ReplicaKey(1, 1, 7), ReplicaKey(1, 9, 0), ReplicaKey(0, 0, 0)], ids=str
)
def test_a_report_of_what_nobody_knows_changes_nothing(key):
    w, _ = started()
    for state in ("running", "exited"):
        assert unchanged(w, lambda s=state: w.report("n0", ReplicaSeen(key, s, exit=ExitInfo(0)), inventory=False))


def test_a_report_of_another_node_changes_nothing():
    w = cluster(2, 1)
    job = w.submit(1)
    w.run(job)
    late = w.seen(job, 0, "exited", exit=ExitInfo(0))
    assert unchanged(w, lambda: w.report("n1", late, inventory=False))


def test_reports_of_a_former_life_of_a_lost_or_of_an_unknown_node_are_not_heard():
    w, job = started()
    late = w.seen(job, 0, "exited", exit=ExitInfo(0))
    assert unchanged(w, lambda: w.report("n0", late, inventory=False, incarnation="i0"))
    w.lose("n0")
    assert unchanged(w, lambda: w.report("n0", late, inventory=True))
    tx = Transaction(w.state, w.now)
    reports.on_report(tx, NodeReport("nowhere", "i1", 1, True, (late,)))
    assert tx.records == []


def test_a_report_after_the_end_raises_nobody_from_the_dead():
    w, job = started()
    alive = w.seen(job)
    w.exit_replica(job)
    assert w.ended[job] == "succeeded"
    assert unchanged(w, lambda: w.report("n0", alive, inventory=False))
    assert job not in w.state.jobs


def test_an_exit_may_come_without_its_start():
    w = cluster(1, 1)
    job = w.submit(1)
    w.cycle()
    w.exit_replica(job)
    assert w.ended[job] == "succeeded"


def test_an_exit_without_a_status_is_the_nodes_fault():
    w, job = started()
    w.report("n0", w.seen(job, 0, "exited"), inventory=False)
    assert (w.phase(job), w.job(job).infrastructure_failures) == ("waiting", 1)


def test_a_started_replica_that_is_not_listed_is_lost():
    w, job = started(2)
    w.report("n0", w.seen(job, 0), inventory=True)
    replica = w.job(job).attempt.replicas[1]
    assert (replica.state, replica.exit.problem) == ("exited", f"node n0 no longer knows replica {job}.1.1")
    assert w.job(job).attempt.stop.reason == "node_lost"


def test_an_inventory_that_lists_nothing_loses_a_whole_gang_once():
    w, job = started(3)
    w.report("n0", inventory=True)
    assert (w.phase(job), w.job(job).infrastructure_failures) == ("waiting", 1)


def test_a_replica_that_has_not_started_is_not_lost_by_not_being_listed():
    w = cluster(1, 1)
    job = w.submit(1)
    w.cycle()
    w.report("n0", inventory=True)
    assert w.phase(job) == "starting"


def test_a_report_that_is_no_inventory_loses_nobody():
    w, job = started(2)
    w.report("n0", w.seen(job, 0), inventory=False)
    assert w.phase(job) == "running"


def test_a_node_is_ready_once_its_inventory_shows_nothing_foreign():
    w = cluster(0)
    w.hello(node("a"), ready=False)
    stranger = ReplicaSeen(ReplicaKey(7, 1, 0), "running")
    w.report("a", stranger, inventory=True)
    assert w.state.nodes["a"].state == "joining"
    w.report("a", inventory=False)
    assert w.state.nodes["a"].state == "joining"
    w.report("a", ReplicaSeen(stranger.key, "exited"), inventory=True)
    assert w.state.nodes["a"].state == "ready"


def test_a_new_life_of_a_node_means_its_old_processes_are_gone():
    w, job = started()
    w.hello(w.state.nodes["n0"].spec, "i2")
    assert (w.phase(job), w.job(job).infrastructure_failures) == ("waiting", 1)
    assert (w.state.nodes["n0"].incarnation, w.state.nodes["n0"].state) == ("i2", "ready")
    assert [s.places[0].incarnation for s in w.plan().starts] == ["i2"]


def test_the_same_life_saying_hello_again_loses_nothing():
    w, job = started()
    assert unchanged(w, lambda: w.hello(w.state.nodes["n0"].spec, "i1", ready=False))
    assert w.phase(job) == "running"


def test_a_lost_node_comes_back_by_saying_hello():
    w = cluster(1, 1)
    w.lose("n0")
    w.hello(w.state.nodes["n0"].spec, "i1", ready=False)
    assert w.state.nodes["n0"].state == "joining"
    w.report("n0", inventory=True)
    assert w.state.nodes["n0"].state == "ready"


def test_a_node_that_comes_back_smaller_breaks_no_promise():
    w, job = started(4)
    w.hello(node("n0", 1), "i1")
    assert job


def test_a_checkpoint_is_taken_down_once():
    w, job = started()
    said = ProgressSeen(w.seen(job).key, "checkpoint", 10)
    w.report("n0", w.seen(job), inventory=False, progress=(said,))
    assert w.job(job).progress.checkpoint_step == 10
    assert unchanged(w, lambda: w.report("n0", w.seen(job), inventory=False, progress=(said, said)))


def test_steps_lost_are_counted_when_a_job_goes_on():
    from penstock.core.model.events import JobResumed

    w, job = started(retries_max=1)
    key = w.seen(job).key
    w.report("n0", w.seen(job), inventory=False, progress=(ProgressSeen(key, "checkpoint", 10),))
    w.report("n0", w.seen(job), inventory=False, progress=(ProgressSeen(key, "resumed", 4),))
    assert w.records[-1].event == JobResumed(job, 1, 4, 6)


def test_an_older_checkpoint_that_comes_late_does_not_undo_a_newer_one():
    w, job = started(2)
    for rank, step in ((0, 10), (0, 20), (1, 10)):
        said = ProgressSeen(w.seen(job, rank).key, "checkpoint", step)
        w.report("n0", w.seen(job, rank), inventory=False, progress=(said,))
    assert w.job(job).progress.checkpoint_step == 20


def test_progress_of_an_older_attempt_changes_nothing():
    w, job = started(retries_max=1)
    said = ProgressSeen(w.seen(job).key, "checkpoint", 10)
    w.exit_replica(job, 0, 1)
    w.now += 1_000
    w.run(job)
    assert unchanged(w, lambda: w.report("n0", w.seen(job), inventory=False, progress=(said,)))


STATES = ("starting", "running", "stopping", "exited")
seens = st.builds(
    ReplicaSeen,
    st.builds(ReplicaKey, st.integers(1, 4), st.integers(1, 3), st.integers(0, 2)),
    st.sampled_from(STATES),
    exit=st.sampled_from([None, ExitInfo(0), ExitInfo(1), ExitInfo(0, stop_sent=True), ExitInfo(problem="gone")]),
)
messages = st.builds(
    NodeReport,
    st.sampled_from(["n0", "n1"]),
    st.sampled_from(["i1", "i1", "i1", "i2"]),
    st.integers(1, 9),
    st.booleans(),
    st.lists(seens, max_size=4).map(tuple),
)


@examples(120)
@given(st.lists(messages, max_size=12), st.randoms(use_true_random=False))
def test_no_report_however_late_or_doubled_breaks_a_promise_or_raises_the_dead(found, rnd):
    w = cluster(2, 2)
    for i in range(4):
        w.submit(1, 1 + i % 2, retries_max=2)
    dead: set[int] = set()
    for message in [*found, *rnd.sample(found, len(found))]:
        w.cycle()
        w.commit(lambda tx, m=message: reports.on_report(tx, m))
        dead |= set(w.ended)
        assert not dead & set(w.state.jobs)
        w.now += 500
    assert invariants.violations(fold(w.records)) == []


@examples(60)
@given(messages)
def test_a_report_said_twice_is_a_report_said_once(message):
    w = cluster(2, 2)
    for i in range(4):
        w.submit(1, 1 + i % 2, retries_max=2)
    w.cycle()
    w.commit(lambda tx: reports.on_report(tx, message))
    assert unchanged(w, lambda: w.commit(lambda tx: reports.on_report(tx, message)))


def test_what_a_node_says_of_itself_counts_at_once_also_while_replicas_run_there():
    w = World(node("a", 2, cpus=8))
    job = w.submit(1)
    w.run(job)
    w.hello(node("a", 4, cpus=16, labels=(("disk", "ssd"),), taints=(Taint("spot"),)))
    spec = w.state.nodes["a"].spec
    assert (len(spec.devices), spec.capacity.cpu_milli, spec.labels) == (4, 16000, (("disk", "ssd"),))
    assert w.phase(job) == "running"
    w.report("a")
    tolerant = w.submit(3, tolerations=(Toleration("spot"),))
    assert [start.job_id for start in w.plan().starts] == [tolerant]
    assert w.state.indexes.free["a"].shape.taints == (Taint("spot"),)


def test_a_node_that_lost_something_keeps_what_its_replicas_hold_until_they_end():
    w = World(node("a", 4, cpus=8))
    job = w.submit(2, cpus=6)
    w.run(job)
    w.hello(node("a", 1, cpus=4))
    assert w.state.nodes["a"].spec.capacity.cpu_milli == 6000
    assert [one.healthy for one in w.state.nodes["a"].spec.devices] == [True, False, False, False]
    assert w.phase(job) == "running"
    w.exit_replica(job)
    w.hello(node("a", 1, cpus=4))
    spec = w.state.nodes["a"].spec
    assert (len(spec.devices), spec.capacity.cpu_milli) == (1, 4000)


def test_devices_of_another_kind_are_believed_once_nothing_is_held():
    w = World(node("a", 2))
    job = w.submit(1)
    w.run(job)
    other = tuple(device(i, model="H100") for i in range(2))
    w.hello(node("a", other))
    assert {one.model for one in w.state.nodes["a"].spec.devices} == {"A100"}
    w.exit_replica(job)
    w.hello(node("a", other))
    assert {one.model for one in w.state.nodes["a"].spec.devices} == {"H100"}
