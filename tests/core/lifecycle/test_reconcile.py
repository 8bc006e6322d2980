"""What a node has to do so that what is there becomes what should be there."""

from penstock.core.messages.orders import Acknowledge, LimitPower, StartReplica, StopReplica
from penstock.core.messages.reports import ReplicaKey, ReplicaSeen
from penstock.core.model.cluster import Pool
from penstock.core.model.events import ConfigChanged
from penstock.core.model.jobs import ExitInfo
from penstock.testing.builders import config, node
from penstock.testing.harness import World, cluster


def starting(replicas=1, **fields):
    w = cluster(1, 4)
    job = w.submit(1, replicas, **fields)
    w.cycle()
    return w, job


def test_a_start_that_got_lost_is_sent_again_word_for_word():
    w, job = starting(2)
    sent = [o for _, o in w.orders if isinstance(o, StartReplica)]
    assert [o.key for o in sent] == [ReplicaKey(job, 1, 0), ReplicaKey(job, 1, 1)]
    assert w.report("n0", inventory=True) == sent
    assert w.report("n0", w.seen(job, 0, "starting"), inventory=True) == sent[1:]


def test_a_report_that_is_no_inventory_calls_for_no_start():
    w, job = starting(2)
    assert w.report("n0", w.seen(job, 0), inventory=False) == []


def test_a_stop_that_did_not_arrive_is_repeated_until_it_is_seen():
    w, job = starting(grace_ms=7_000)
    w.start(job)
    w.cancel(job)
    key = ReplicaKey(job, 1, 0)
    assert w.report("n0", w.seen(job), inventory=True) == [StopReplica(key, 7_000, "cancelled")]
    assert w.report("n0", w.seen(job, 0, "stopping"), inventory=True) == []


def test_a_stop_before_the_start_arrived_still_reaches_the_node():
    w, job = starting()
    w.cancel(job)
    key = ReplicaKey(job, 1, 0)
    assert w.report("n0", inventory=True) == [StopReplica(key, 0, "cancelled")]


def test_what_should_not_live_is_killed_at_once():
    w, job = starting(retries_max=1)
    strangers = [ReplicaSeen(ReplicaKey(*k), "running") for k in ((job, 9, 0), (99, 1, 0))]
    answer = w.report("n0", w.seen(job), *strangers, inventory=True)
    assert answer == [StopReplica(s.key, 0, "not current") for s in strangers]


def test_an_older_attempt_is_killed_while_the_new_one_starts():
    w, job = starting(retries_max=1)
    w.exit_replica(job, 0, 1)
    w.now += 1_000
    w.cycle()
    answer = w.report("n0", w.seen(job, 0, "running", attempt=1), w.seen(job), inventory=True)
    assert answer == [StopReplica(ReplicaKey(job, 1, 0), 0, "not current")]


def test_an_exit_that_is_in_the_log_is_acknowledged_as_often_as_it_is_said():
    w, job = starting()
    gone = w.seen(job, 0, "exited", exit=ExitInfo(0))
    for _ in range(2):
        assert w.report("n0", gone, inventory=True) == [Acknowledge(gone.key)]


def test_what_runs_on_after_its_node_was_lost_is_killed():
    w, job = starting()
    w.start(job)
    alive = w.seen(job)
    w.lose("n0")
    assert w.report("n0", alive, inventory=True) == [StopReplica(alive.key, 0, "not current")]


def test_a_lost_node_gets_no_start():
    w, _ = starting()
    w.lose("n0")
    assert w.report("n0", inventory=True) == []


def test_what_is_as_it_should_be_needs_no_order():
    w, job = starting()
    assert w.report("n0", w.seen(job), inventory=True) == []


def test_a_start_order_carries_the_whole_rendezvous():
    w = World(node("a", 2, address="10.0.0.1"), node("b", 1))
    job = w.submit(
        1, 3, name="train", env=(("A", "1"),), workload_class="data", workdir="/data", grace_ms=5, runtime="ray"
    )
    w.cycle()
    found = {o.key.rank: (name, o) for name, o in w.orders}
    assert [(n, o.local_rank, o.local_world_size, o.node_rank) for n, o in (found[r] for r in range(3))] == [
        ("a", 0, 2, 0),
        ("a", 1, 2, 0),
        ("b", 0, 1, 1),
    ]
    last = found[2][1]
    assert (last.world_size, last.node_names, last.master_address) == (3, ("a", "b"), "10.0.0.1")
    assert last.master_port == w.job(job).attempt.port == 20_000
    assert (last.env, last.workdir, last.name, last.grace_ms) == ((("A", "1"),), "/data", "train", 5)
    assert (last.devices, last.incarnation, last.command) == ((0,), "i1", ("true",))
    assert (last.workload_class, last.runtime) == ("data", "ray")


def test_two_live_attempts_never_share_a_port():
    w = World(node("a", 4, port_count=2))
    jobs = [w.submit(1) for _ in range(3)]
    w.cycle()
    assert [w.job(j).attempt.port for j in jobs] == [20_000, 20_001, 0]
    w.exit_replica(jobs[0])
    last = w.submit(1)
    w.cycle()
    assert w.job(last).attempt.port == 20_000


def test_the_limit_of_power_of_its_pool_is_ordered_where_a_node_keeps_to_another():
    w = World(node("a", 1), node("b", 1, pool="p"), pools=(Pool("default", device_power_limit_mw=300_000), Pool("p")))
    assert [w.report(name, power_limit_mw=mw) for name in "ab" for mw in (None, 300_000, 0, 250_000)] == [
        *([], [], [LimitPower(300_000)], [LimitPower(300_000)]),
        *([], [LimitPower(0)], [], [LimitPower(0)]),
    ]
    w.emit(ConfigChanged(config(pools=(Pool("default"), Pool("p"))), "operator"))
    assert w.report("a", power_limit_mw=300_000) == [LimitPower(0)]
