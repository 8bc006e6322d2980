"""The order in which waiting jobs are looked at."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.cluster import Queue, Settings, Tenant
from penstock.core.order.policies import priority_score_milli
from penstock.core.order.walk import JobQueue
from penstock.testing.builders import node, queues
from penstock.testing.harness import World, cluster
from tests.properties import examples

HOUR = 3_600_000


def walk(w, now_ms=None):
    snapshot, tree = w.snapshot(), w.state.queue_tree()
    return JobQueue(snapshot.config, tree, snapshot.classes, w.now if now_ms is None else now_ms, {})


def order(w, now_ms=None):
    return list(walk(w, now_ms))


@pytest.mark.parametrize(
    ("priority", "devices", "replicas", "waited_ms", "score_milli"),
    [
        (500, 0, 1, 0, 500_000),
        (500, 1, 1, 0, 490_000),
        (500, 2, 3, 0, 440_000),
        (100, 0, 1, HOUR // 2, 150_000),
        (1000, 0, 1, HOUR, 1_100_000),
        (1000, 0, 1, 9 * HOUR, 1_100_000),
        (100, 1, 1, 36_000, 91_000),
        (100, 0, 1, -5, 100_000),
    ],
)
def test_the_score_is_base_plus_wait_less_size(priority, devices, replicas, waited_ms, score_milli):
    w = cluster(2, 4)
    job = w.job(w.submit(devices, replicas, priority=priority))
    found = priority_score_milli(job, job.spec.ask.device_milli, Settings(), w.now + waited_ms)
    assert found == score_milli


def test_weights_of_the_score_are_settings():
    w = cluster(2, 4)
    job = w.job(w.submit(2, priority=10))
    given = Settings(wait_bonus_max=7, wait_bonus_horizon_ms=100, size_penalty_per_device=3)
    assert priority_score_milli(job, 2_000, given, w.now + 50) == 10_000 + 3_500 - 6_000


def test_a_score_is_not_frozen_at_submit():
    w = cluster(1, 4, queues=queues("default", policy="priority"))
    old = w.submit(4, priority=500)
    w.now += HOUR // 2
    fresh = w.submit(1, priority=500)
    assert order(w) == [old, fresh]
    assert order(w, w.now - HOUR // 2) == [fresh, old]


def test_fifo_is_submit_order_whatever_priority():
    w = cluster(1, 4, queues=queues("default", policy="fifo"))
    jobs = [w.submit(1, priority=p) for p in (100, 1000, 500)]
    assert order(w) == jobs


def test_a_requeued_job_keeps_its_place_in_fifo():
    w = cluster(1, 1, queues=queues("default", policy="fifo"))
    first, second = w.submit(1, retries_max=1), w.submit(1)
    w.run(first)
    w.exit_replica(first, code=1)
    assert order(w) == [second]
    assert order(w, w.now + 1_000) == [first, second]


@pytest.mark.parametrize("policy", ["priority", "shortest_predicted"])
def test_a_tree_of_queues_is_merged_level_by_level(policy):
    tree = (
        Queue("a", policy="fifo"),
        Queue("a1", "a", policy=policy),
        Queue("a2", "a"),
        Queue("a11", "a1", policy="fifo"),
    )
    w = cluster(1, 8, queues=tree)
    one = w.submit(1, queue="a1", priority=100)
    two = w.submit(1, queue="a2", priority=1000)
    three = w.submit(1, queue="a11", priority=900)
    four = w.submit(1, queue="a11", priority=1000)
    five = w.submit(1, queue="a2", priority=100)
    # Inside a1 the head of a11 (900) beats job one; in the fifo above, the older head of both sides goes first.
    assert order(w) == [two, three, four, one, five]


def test_the_policy_of_the_root_is_declared():
    w = cluster(1, 8, queues=queues("a", "b"), root_policy="fifo")
    jobs = [w.submit(1, queue="a", priority=1), w.submit(1, queue="b", priority=9), w.submit(1, queue="a", priority=5)]
    assert order(w) == [jobs[1], jobs[2], jobs[0]]


def test_dropping_a_class_leaves_out_all_of_it_and_nothing_else():
    w = cluster(1, 8)
    big = [w.submit(4, priority=900) for _ in range(3)]
    small = w.submit(1)
    found = walk(w)
    assert found.peek().job.id == big[0]
    found.drop(found.peek())
    assert list(found) == [small]


jobs = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([100, 110, 500]), st.sampled_from("ab"), st.integers(0, HOUR // 3)),
    max_size=12,
)


def waiting(submits, policy="priority"):
    w = World(node("a", 8), queues=queues("a", "b", policy=policy), root_policy=policy)
    for devices, priority, queue, pause_ms in submits:
        w.submit(devices, priority=priority, queue=queue)
        w.now += pause_ms
    return w


@examples(60)
@given(jobs, st.sampled_from(["priority", "fifo"]))
def test_a_flat_tree_is_a_plain_sort(submits, policy):
    w = waiting(submits, policy)
    now = w.now

    def key(job):
        score = 1000 * job.spec.priority + 100_000 * min(now - job.submitted_ms, HOUR) // HOUR
        score -= 10_000 * job.spec.ask.device_total
        return (-score if policy == "priority" else 0, job.id)

    assert order(w) == [j.id for j in sorted(w.state.jobs.values(), key=key)]


@examples(60)
@given(jobs, st.integers(0, 3 * HOUR))
def test_jobs_of_one_class_never_change_places(submits, later_ms):
    w = waiting(submits)
    found = order(w, w.now + later_ms)
    assert sorted(found) == sorted(w.state.jobs)
    for class_id in {j.class_id for j in w.state.jobs.values()}:
        of_class = [i for i in found if w.job(i).class_id == class_id]
        assert of_class == sorted(of_class)


def test_order_does_not_depend_on_how_queues_are_listed():
    tree = (Queue("a"), Queue("b"), Queue("c", "b"))
    orders = []
    for listed in (tree, tree[::-1]):
        w = World(node("n", 8), queues=listed)
        for queue, priority in (("a", 5), ("c", 5), ("b", 7), ("a", 7)):
            w.submit(1, queue=queue, priority=priority)
        orders.append(order(w))
    assert orders[0] == orders[1] == [3, 4, 1, 2]


def crowd(rnd):
    """Return a world with jobs of many classes in a random tree of two levels, some tenants sharing queues."""
    policies = ["priority", "fifo", "fair_share", "capacity"]
    tree = [Queue(q, policy=rnd.choice(policies), guaranteed=(("devices", 1_000),)) for q in "ab"]
    tree += [Queue(f"{q}{i}", q, policy=rnd.choice(policies), weight=rnd.randint(1, 3)) for q in "ab" for i in "xyz"]
    tenants = (Tenant("s"), Tenant("t"))
    w = World(node("n", 64), queues=tuple(tree), root_policy=rnd.choice(policies), tenants=tenants)
    for _ in range(rnd.randint(5, 30)):
        fields = {"priority": rnd.choice([100, 500]), "tenant": rnd.choice("st"), "cpus": rnd.choice([1, 8])}
        w.submit(rnd.randint(1, 3), queue=rnd.choice(tree).name, **fields)
    return w


def walked(w, rnd, *, anew):
    """Return the jobs in the order of a walk that starts, skips and drops at random; `anew`: sorted again each time."""
    found, at = [], walk(w)
    while True:
        if anew:
            at.set_back(())
        cursor = at.peek()
        if cursor is None:
            return found
        found.append(cursor.job.id)
        rnd.choice([at.started, at.started, at.skip, at.drop])(cursor)


@examples(150)
@given(st.integers(0, 2**32))
def test_a_walk_that_is_kept_in_order_is_one_that_is_sorted_again_each_time(seed):
    w = crowd(random.Random(seed))
    assert walked(w, random.Random(seed), anew=False) == walked(w, random.Random(seed), anew=True)


def test_a_queues_own_job_comes_before_its_children_that_are_compared_by_guarantees():
    child = Queue("child", parent="parent", guaranteed=(("devices", 4_000),))
    w = cluster(2, 4, queues=(Queue("parent", policy="capacity"), child))
    below, own = w.submit(queue="child"), w.submit(queue="parent")
    assert order(w) == [own, below]
