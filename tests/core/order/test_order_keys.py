"""What each policy compares jobs by, and what the queue tree counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model.cluster import ClusterConfig, Pool, Queue, Settings, Tenant
from penstock.core.order import queues as tree_module
from penstock.core.order.policies import order_key, priority_score_milli
from penstock.core.order.queues import SHARE_SCALE, QueueTree
from penstock.core.order.usage_over_time import UsageOverTime, UsedAmounts, decayed
from penstock.core.order.walk import JobQueue
from penstock.testing.builders import GIB, node, queues
from penstock.testing.harness import World, cluster
from tests.properties import examples

AGEING_MS = Settings().ageing_ms
SUBMITTED_MS = cluster(1, 1).now


def order(w, now_ms=None):
    snapshot, tree = w.snapshot(), w.state.queue_tree()
    return list(JobQueue(snapshot.config, tree, snapshot.classes, w.now if now_ms is None else now_ms, {}))


def request_class(w, job):
    return next(key for class_id, key, _ in w.snapshot().classes if class_id == job.class_id)


@pytest.mark.parametrize(
    ("policy", "key"),
    [
        ("priority", (20_000 - 7_000, 2)),
        ("fifo", (0, 2)),
        ("fair_share", (-7, 2)),
        ("capacity", (-7, 2)),
        ("least_attained", (3, -7, 2)),
        ("shortest_predicted", (-7, SUBMITTED_MS + 3 * AGEING_MS // 4, 2)),
    ],
)
def test_each_policy_has_its_key(policy, key):
    w = cluster(1, 4)
    w.submit(1)
    job = w.job(w.submit(2, priority=7))
    assert order_key(policy, job, replace(request_class(w, job), rank=3), Settings(), w.now, {}) == key


def test_a_policy_that_nobody_knows_is_a_fault():
    w = cluster(1, 4)
    job = w.job(w.submit(1))
    with pytest.raises(ValueError, match="no policy 'lottery'"):
        order_key("lottery", job, request_class(w, job), Settings(), w.now, {})


@examples(80)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 900), st.integers(0, 40)), min_size=1, max_size=8),
    st.integers(-40, 200),
    st.sampled_from([0, 1, 50]),
)
def test_the_walk_orders_by_the_score_as_it_is_documented(submits, later_ms, horizon_ms):
    """Also before a submit, by a clock that went back, and without a horizon."""
    w = World(node("n", 8), queues=queues("default", policy="priority"), wait_bonus_horizon_ms=horizon_ms)
    for devices, priority, pause_ms in submits:
        w.submit(devices, priority=priority)
        w.now += pause_ms
    now = w.now + later_ms
    found = [w.job(i) for i in order(w, now)]
    keys = [
        (-priority_score_milli(job, job.spec.ask.device_milli, w.state.config.settings, now), job.id) for job in found
    ]
    assert keys == sorted(keys)
    assert len(found) == len(submits)


def test_tenants_of_equal_shares_go_by_name_whoever_came_first():
    w = World(node("n", 4), queues=queues("default", policy="fair_share"), tenants=(Tenant("s"), Tenant("t")))
    jobs = {tenant: w.submit(1, tenant=tenant) for tenant in "ts"}
    assert order(w) == [jobs["s"], jobs["t"]]


@pytest.mark.parametrize(
    ("policy", "first"), [("capacity", "p"), ("fair_share", "c"), ("fifo", "c"), ("least_attained", "c")]
)
def test_who_waits_in_an_inner_queue_goes_first_where_queues_are_compared_by_guarantees(policy, first):
    """Where tenants share it, they are compared with its children, and equal shares fall to these."""
    w = cluster(1, 8, queues=(Queue("p", policy=policy), Queue("c", "p")))
    jobs = {queue: w.submit(1, queue=queue) for queue in ("c", "p")}
    assert order(w)[0] == jobs[first]


def test_an_inner_queue_of_priorities_is_merged_with_its_children():
    w = cluster(1, 8, queues=(Queue("p", policy="priority"), Queue("c", "p")))
    low, high, middle = (w.submit(1, queue=q, priority=p) for q, p in (("p", 100), ("c", 900), ("p", 500)))
    assert order(w) == [high, middle, low]


def test_the_larger_of_equally_urgent_jobs_goes_first_where_the_pool_says_so():
    w = World(node("n", 8), pools=(Pool("default", placement="first_fit_decreasing"),))
    small, big, urgent, other = w.submit(1), w.submit(3), w.submit(2, priority=900), w.submit(3)
    assert order(w) == [urgent, big, other, small]


def test_a_walk_that_is_set_back_leaves_out_what_it_had_left_behind():
    w = cluster(1, 8)
    _, small, last = w.submit(4, priority=900), w.submit(1), w.submit(2, priority=1)
    snapshot, tree = w.snapshot(), w.state.queue_tree()
    walk = JobQueue(snapshot.config, tree, snapshot.classes, w.now, {})
    walk.drop(walk.peek())
    cursor, at = walk.peek(), walk.peek().at
    walk.skip(cursor)
    walk.set_back([(cursor, at)])
    assert list(walk) == [small, last]


# The tree.


def tree_of(*found, now_ms=0, total=None, usage=None, **fields):
    config = ClusterConfig(queues=found, settings=Settings(**fields))
    return QueueTree(config).load(usage or {}, total or UsedAmounts(8_000, 16_000, 64 * GIB, 0), now_ms)


def charge(devices=0, cpus=0, memory_gib=0, jobs=0):
    return UsedAmounts(1_000 * devices, 1_000 * cpus, memory_gib * GIB, jobs)


def test_use_of_a_queue_that_is_gone_counts_for_nobody():
    usage = {("gone", "t"): UsageOverTime(charge(2), 1 << 40), ("a", "t"): UsageOverTime(charge(1))}
    tree = tree_of(Queue("a"), usage=usage, fair_share_half_life_ms=1_000)
    assert (tree.root.used[0], tree.branches["a"].used[0]) == (1_000, 1_000)


def test_demands_are_forgotten_when_too_many_are_remembered(monkeypatch):
    monkeypatch.setattr(tree_module, "DEMANDS_MAX", 1)
    w = cluster(1, 4)
    tree = w.state.queue_tree()
    keys = [request_class(w, w.job(w.submit(devices, cpus=2))) for devices in (1, 2, 3)]
    for key in (*keys, *keys):
        assert tree.demand(key) == (key.ask.device_milli, 2_000, 0, 1)
        assert len(tree._demands) <= 2


def test_amounts_are_found_by_the_name_that_quotas_use():
    found = UsedAmounts(1, 2, 3, 4, (("A", 5),))
    names = ("devices", "cpus", "memory", "jobs", "devices:A", "devices:B")
    assert [found.amount(name) for name in names] == [1, 2, 3, 4, 5, 0]


def test_charges_add_up_by_model_and_leave_no_zeros():
    one, other = UsedAmounts(1, 2, 3, 4, (("B", 5), ("C", 1))), UsedAmounts(10, 20, 30, 40, (("A", 7), ("B", -5)))
    assert one.plus(other) == UsedAmounts(11, 22, 33, 44, (("A", 7), ("C", 1)))
    assert one.plus(other, 2) == UsedAmounts(21, 42, 63, 84, (("A", 14), ("B", -5), ("C", 1)))
    assert one.plus(one.negative()) == UsedAmounts()


def test_the_lowest_maximum_is_named_with_what_is_used_of_it():
    tree = tree_of(Queue("p", max=(("cpus", 4_000),)), Queue("a", "p", max=(("devices", 2_000),)))
    a = tree.branches["a"]
    tree.charge(a, (1_000, 3_000, 0, 1))
    assert tree.exceeded(a, (1_000, 1_000, 0, 1)) is None
    found = tree.exceeded(a, (2_000, 2_000, 0, 1))
    assert found == ("a", "devices", 1_000, 2_000, 2_000)
    assert found.short == 1_000
    assert tree.exceeded(a, (0, 2_000, 0, 1)) == ("p", "cpus", 3_000, 4_000, 2_000)
    tree.charge(a, (2_000, 0, 0, 1))
    assert tree.exceeded(a, (0, 1_000, 0, 1)) is None, "what is not asked for blocks nobody"


def test_what_siblings_do_not_lend_is_theirs():
    kept = Queue("a", guaranteed=(("devices", 4_000),), lend=(("devices", 1_000),))
    tree = tree_of(kept, Queue("b"), Queue("c"))
    b = tree.branches["b"]
    assert tree.exceeded(b, (5_000, 0, 0, 1)) is None
    assert tree.exceeded(b, (6_000, 0, 0, 1)) == ("root", "devices", 3_000, 8_000, 6_000)
    tree.charge(tree.branches["c"], (1_000, 0, 0, 1))
    tree.charge(tree.branches["a"], (4_000, 0, 0, 1))
    assert tree.exceeded(b, (3_000, 0, 0, 1)) is None
    assert tree.exceeded(b, (4_000, 0, 0, 1)) == ("root", "devices", 5_000, 8_000, 4_000)


def test_a_maximum_above_bounds_what_siblings_keep_from_each_other():
    kept = Queue("a", "p", guaranteed=(("devices", 2_000),), lend=())
    tree = tree_of(Queue("p", max=(("devices", 3_000),)), kept, Queue("b", "p"))
    assert tree.exceeded(tree.branches["b"], (1_000, 0, 0, 1)) is None
    assert tree.exceeded(tree.branches["b"], (2_000, 0, 0, 1)) == ("p", "devices", 2_000, 3_000, 2_000)


def test_what_is_lent_whole_keeps_nothing_from_anybody():
    lent = (("devices", 4_000),)
    tree = tree_of(Queue("a", guaranteed=lent, lend=(*lent, ("cpus", 1_000))), Queue("b"))
    assert tree.exceeded(tree.branches["b"], (8_000, 16_000, 0, 1)) is None


@pytest.mark.parametrize(
    ("value", "elapsed_ms", "half_life_ms", "left"),
    [
        (1_000, 1, 1, 500),
        (1_000, 0, 1, 1_000),
        (1_000, -1, 1, 1_000),
        (1_000, 9, 1, 1),
        (1_000, 10, 1, 0),
        (0, 5, 1, 0),
    ],
)
def test_half_is_left_after_each_half_life(value, elapsed_ms, half_life_ms, left):
    assert decayed(value, elapsed_ms, half_life_ms) == left


@pytest.mark.parametrize(
    ("used", "share"),
    [
        (charge(4, 4), SHARE_SCALE // 2),
        (charge(1, 8), SHARE_SCALE // 2),
        (charge(1, 4, 16), SHARE_SCALE // 4),
        (charge(0, 0, 48), 3 * SHARE_SCALE // 4),
        (charge(jobs=9), 0),
    ],
)
def test_the_dominant_share_is_the_largest(used, share):
    tree = tree_of(
        Queue("a", weight=1),
        Queue("b", weight=4),
        usage={("a", "t"): UsageOverTime(used), ("b", "t"): UsageOverTime(used)},
    )
    assert tree.share(tree.branches["a"]) == share
    assert tree.share(tree.branches["b"]) == share // 4


def test_nothing_of_a_resource_that_is_not_there_is_a_share():
    tree = tree_of(Queue("a"), usage={("a", "t"): UsageOverTime(charge(1, 1, 1))}, total=UsedAmounts(0, 4_000, 0, 0))
    assert tree.share(tree.branches["a"]) == SHARE_SCALE // 4


def test_the_past_counts_half_where_it_counts():
    usage = {("a", "t"): UsageOverTime(charge(2), average=4_000 << 20, since_ms=5)}
    tree = tree_of(Queue("a"), usage=usage, now_ms=5, fair_share_half_life_ms=1_000)
    assert tree.share(tree.branches["a"]) == 3_000 * SHARE_SCALE // 8_000
    without = tree_of(Queue("a"), usage=usage, now_ms=5)
    assert without.share(without.branches["a"]) == SHARE_SCALE // 4


def test_below_its_guarantee_a_queue_is_compared_by_it():
    promised = (("cpus", 8_000), ("devices", 4_000))
    tree = tree_of(Queue("a", guaranteed=promised), Queue("b"))
    a = tree.branches["a"]
    assert tree.guarantee_used(a) == (0, 0)
    tree.charge(a, (1_000, 4_000, 0, 1))
    assert tree.guarantee_used(a) == (0, SHARE_SCALE // 2)
    tree.charge(a, (3_000, 0, 0, 1))
    assert tree.guarantee_used(a) == (1, SHARE_SCALE // 2)
    assert tree.guarantee_used(tree.branches["b"]) == (1, 0)
