"""Guarantees: lent while idle, got back whenever the owner wants them, and nobody evicts each other in turns."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.model.cluster import Queue
from penstock.testing.builders import device, job_spec, node
from penstock.testing.harness import World, cluster, cycles, follow, running, use
from penstock.testing.worlds import POLICIES
from tests.properties import examples


def guaranteed(devices):
    return (("devices", devices * 1_000),)


TWO = (Queue("a", guaranteed=guaranteed(4)), Queue("b", guaranteed=guaranteed(4)))


def borrowed(count=8, devices=1, tree=TWO, nodes=1, **fields):
    """Return a cluster of 8 devices that is full of jobs of queue b."""
    w = cluster(nodes, 8 // nodes, queues=tree)
    w.run(*[w.submit(devices, queue="b", **fields) for _ in range(count // devices)])
    assert use(w, "b") == count
    return w


def victims(found):
    return [(p.victim, p.rule) for p in found.preemptions]


def test_idle_guarantees_are_lent():
    assert use(borrowed(), "b") == 8


def test_the_owner_gets_its_guarantee_back_from_equals_and_no_more():
    w = borrowed()
    for _ in range(6):
        w.submit(1, queue="a")
    asked = cycles(w, 2)
    assert {rule for _, _, rule in asked} == {"reclaim"}
    assert (use(w, "a"), use(w, "b")) == (4, 4)
    assert cycles(w, 10) == []


def test_several_jobs_in_one_cycle_take_no_more_than_the_guarantee_together():
    w = borrowed()
    for _ in range(6):
        w.submit(1, queue="a")
    assert len(w.cycle().preemptions) == 4


def test_victims_that_are_still_leaving_count_as_gone():
    w = borrowed()
    for _ in range(3):
        w.submit(1, queue="a")
    assert len(w.cycle().preemptions) == 3
    for _ in range(4):
        w.submit(1, queue="a", cpus=2)
    assert len(w.cycle().preemptions) == 1


@pytest.mark.parametrize("priority", [100, 500, 900])
def test_reclaim_does_not_ask_for_priority(priority):
    w = borrowed(priority=500)
    w.submit(2, queue="a", priority=priority)
    assert len(w.cycle().preemptions) == 2


def test_the_last_indivisible_gang_goes_whole():
    w = borrowed(6, devices=6)
    w.submit(4, queue="a", priority=900)
    assert victims(w.cycle()) == [(1, "reclaim")]
    w = borrowed(6, devices=6)
    w.submit(4, queue="a")
    assert victims(w.cycle()) == [(1, "reclaim")]


def test_jobs_that_are_not_preemptible_are_never_reclaimed():
    w = borrowed(preemptible=False)
    w.submit(1, queue="a")
    assert victims(w.cycle()) == []


@pytest.mark.parametrize(("rule", "asked"), [("never", 0), ("reclaim", 1), ("lower_priority", 1)])
def test_a_queue_that_never_preempts_does_not_reclaim_either(rule, asked):
    tree = (Queue("a", guaranteed=guaranteed(4), preemption=rule), TWO[1])
    w = borrowed(tree=tree)
    w.submit(1, queue="a")
    assert len(w.cycle().preemptions) == asked


def test_a_queue_with_the_rule_reclaim_does_not_preempt_by_priority():
    tree = (Queue("a", preemption="reclaim"), Queue("b"))
    w = borrowed(tree=tree, priority=100)
    w.submit(1, queue="a", priority=900)
    assert victims(w.cycle()) == []


def test_a_job_beyond_its_own_guarantee_reclaims_nothing():
    w = borrowed()
    w.submit(5, queue="a")
    assert victims(w.cycle()) == []


def test_a_higher_priority_never_takes_what_a_queue_was_promised():
    w = borrowed(priority=100)
    for _ in range(6):
        w.submit(1, queue="a", priority=900)
    cycles(w, 4)
    assert (use(w, "a"), use(w, "b")) == (4, 4)


def test_what_nobody_promised_does_not_make_a_borrower():
    """Devices are promised and CPUs are not: that a queue uses CPUs makes it no borrower of its own devices."""
    w = World(node("a", 7), queues=TWO)
    w.run(*[w.submit(1, queue="a") for _ in range(4)], *[w.submit(1, queue="b") for _ in range(3)])
    w.submit(1, queue="b")
    assert cycles(w, 6) == []


def test_inside_the_owner_nobody_borrows_from_it():
    tree = (Queue("p", guaranteed=guaranteed(4)), Queue("p1", "p"), Queue("p2", "p"), Queue("c"))
    w = cluster(1, 4, queues=tree)
    w.run(*[w.submit(1, queue="p2") for _ in range(3)])
    dear = w.submit(1, queue="c", priority=900)
    w.run(dear)
    w.submit(1, queue="p1")
    assert cycles(w, 6) == [(dear, 5, "reclaim")]


def test_below_a_borrower_the_child_within_its_own_guarantee_is_left_alone():
    tree = (Queue("a", guaranteed=guaranteed(4)), Queue("p", guaranteed=guaranteed(4)))
    tree += (Queue("kept", "p", guaranteed=guaranteed(4)), Queue("greedy", "p"))
    w = cluster(1, 8, queues=tree)
    w.run(*[w.submit(1, queue="kept", priority=100) for _ in range(4)])
    greedy = [w.submit(1, queue="greedy", priority=900) for _ in range(4)]
    w.run(*greedy)
    w.submit(2, queue="a")
    assert {v for v, _, _ in cycles(w, 6)} <= set(greedy)
    assert (use(w, "a"), use(w, "kept"), use(w, "greedy")) == (2, 4, 2)


def test_a_gang_takes_from_each_queue_only_what_that_borrowed():
    tree = (Queue("a", guaranteed=guaranteed(4)), Queue("b", guaranteed=guaranteed(3)), Queue("c"))
    w = cluster(1, 8, queues=tree)
    w.run(*[w.submit(1, queue="b", priority=100) for _ in range(4)])
    w.run(*[w.submit(1, queue="c", priority=900) for _ in range(4)])
    w.submit(2, queue="a", priority=100)
    assert [w.job(v).spec.queue for v, _ in victims(w.cycle())] == ["b", "c"]


def test_one_victim_may_leave_a_shared_queue_where_all_together_may_not():
    tree = (Queue("a"), Queue("b", policy="fair_share", guaranteed=guaranteed(2)))
    w = cluster(1, 4, queues=tree)
    w.run(*[w.submit(1, queue="b", priority=100) for _ in range(4)])
    for _ in range(4):
        w.submit(1, queue="a", priority=900)
    assert {rule for _, _, rule in cycles(w, 4)} == {"lower_priority"}
    assert (use(w, "a"), use(w, "b")) == (2, 2)


def test_a_guarantee_of_one_model_takes_back_that_model():
    mixed = tuple(device(i, model="AH"[i % 2]) for i in range(4))
    tree = (Queue("a", guaranteed=(("devices:H", 1_000),)), Queue("b"))
    w = World(node("n", mixed), queues=tree)
    jobs = {m: w.submit(2, queue="b", models=(m,)) for m in "AH"}
    w.run(*jobs.values())
    w.submit(1, queue="a", models=("H",))
    assert victims(w.cycle()) == [(jobs["H"], "reclaim")]


def test_a_guarantee_counts_for_the_whole_subtree():
    tree = (Queue("p", guaranteed=guaranteed(4)), Queue("p1", "p"), Queue("b"))
    w = borrowed(tree=tree)
    w.submit(2, queue="p1")
    assert len(w.cycle().preemptions) == 2


# Random trees: got back in time, never below, then quiet.


def random_guarantees(rnd, policy="priority"):
    """Return a cluster, and a tree of up to four leaves whose guarantees fit it; `policy` compares queues."""
    nodes, devices = rnd.choice([(1, 8), (2, 4), (4, 2)])
    left, tree = 8, []
    for name in "wxyz"[: rnd.randint(2, 4)]:
        promised = rnd.randint(0, min(4, left))
        left -= promised
        quota = guaranteed(promised) if promised else ()
        if promised > 1 and rnd.random() < 0.4:
            inner = rnd.randint(0, promised)
            tree += [
                Queue(name, guaranteed=quota, policy=policy),
                Queue(f"{name}1", name, guaranteed=guaranteed(inner) if inner else ()),
            ]
            tree.append(Queue(f"{name}2", name))
        else:
            tree.append(Queue(name, guaranteed=quota))
    return cluster(nodes, devices, queues=tuple(tree), root_policy=policy), tree


def leaves(tree):
    inner = {q.parent for q in tree}
    return [q.name for q in tree if q.name not in inner]


def promised_below(w, name):
    queue = next(q for q in w.state.config.queues if q.name == name)
    return dict(queue.guaranteed).get("devices", 0) // 1_000


def ask_for(w, rnd, sizes, queue):
    """Submit a job that some node could hold."""
    most = len(w.state.nodes["n0"].spec.devices)
    w.submit(min(most, rnd.choice(sizes)), queue=queue, priority=rnd.choice([100, 500, 900]))


def saturate(w, tree, rnd, sizes):
    """Fill the cluster and let all of it run, with queues coming one after the other."""
    order = leaves(tree)
    rnd.shuffle(order)
    for queue in order:
        for _ in range(rnd.randint(0, 8)):
            ask_for(w, rnd, sizes, queue)
        cycles(w, 1)


def settle(w):
    """Run cycles until one starts nobody and preempts no job."""
    while (found := w.cycle()).starts or found.preemptions:
        follow(w)


def claim_all(w, tree, rnd):
    """Let one queue ask for all that it was promised, at the lowest priority, one device at a time; return it."""
    owner = rnd.choice(leaves(tree))
    for _ in range(promised_below(w, owner)):
        w.submit(1, queue=owner, priority=100)
    return owner


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from(POLICIES))
@example(86, "priority")
@example(9_746, "priority")
@example(10_095, "priority")
def test_a_guarantee_is_got_back_within_two_cycles_and_the_grace(seed, root):
    """From when nothing is under way: what was decided for others before the owner asked is carried through."""
    rnd = random.Random(seed)
    w, tree = random_guarantees(rnd, root)
    saturate(w, tree, rnd, [1])
    settle(w)
    owner = claim_all(w, tree, rnd)
    w.cycle()
    follow(w)
    w.cycle()
    assert use(w, owner) >= promised_below(w, owner)


def stream(w, count, priority):
    for _ in range(count):
        w.submit(1, queue="b", priority=priority)


@pytest.mark.parametrize("root", POLICIES)
def test_a_guarantee_is_got_back_whatever_the_root_orders_by_and_whoever_else_comes(root):
    """Jobs of the borrower that come before the owner's could take all its places, from one another, for ever."""
    w = cluster(1, 8, queues=TWO, root_policy=root)
    w.run(*[w.submit(1, queue="b", priority=100) for _ in range(8)])
    for _ in range(4):
        w.submit(1, queue="a", priority=100)
    for turn in range(2):
        stream(w, 8, priority=200 + 100 * turn)
        cycles(w, 1)
    stream(w, 8, priority=900)
    w.cycle()
    assert use(w, "a") == 4


@pytest.mark.parametrize("root", POLICIES)
def test_free_devices_go_to_the_owner_of_a_guarantee_before_anybody_has_to_leave_for_it(root):
    w = cluster(1, 8, queues=TWO, root_policy=root)
    w.run(*[w.submit(1, queue="b") for _ in range(6)])
    stream(w, 4, priority=900)
    for _ in range(4):
        w.submit(1, queue="a", priority=100)
    found = w.cycle()
    assert len(found.starts) == 2
    assert {w.job(s.job_id).spec.queue for s in found.starts} == {"a"}
    assert sum(w.job(p.beneficiary).spec.queue == "a" for p in found.preemptions) == 2


def test_many_claims_start_at_once_and_no_job_beyond_a_guarantee_before_them():
    tree = (Queue("a", guaranteed=guaranteed(100)), Queue("b"))
    w = cluster(20, 8, queues=tree)
    w.request(*[job_spec(queue="b", priority=900)] * 160)
    w.request(*[job_spec(queue="a", priority=100)] * 120)
    w.cycle()
    assert (use(w, "a"), use(w, "b")) == (100, 60)


def test_what_a_queue_asks_beyond_its_guarantee_waits_for_its_turn():
    w = cluster(1, 8, queues=TWO)
    w.run(*[w.submit(1, queue="b", preemptible=False) for _ in range(2)])
    wide = w.submit(6, queue="a", priority=100)
    high = w.submit(6, queue="b", priority=900)
    assert [s.job_id for s in w.cycle().starts] == [high]
    assert w.phase(wide) == "waiting"


def test_a_queue_that_never_preempts_is_ordered_like_any_other():
    tree = (Queue("a", guaranteed=guaranteed(4), preemption="never"), TWO[1])
    w = cluster(1, 4, queues=tree)
    w.submit(4, queue="a", priority=100)
    high = w.submit(4, queue="b", priority=900)
    assert [s.job_id for s in w.cycle().starts] == [high]


@examples(40)
@given(st.integers(0, 2**32), st.sampled_from(POLICIES))
@example(86, "priority")
@example(5_110, "capacity")
@example(10_095, "fifo")
def test_room_that_is_being_made_for_others_costs_a_guarantee_one_cycle_more_at_most(seed, root):
    rnd = random.Random(seed)
    w, tree = random_guarantees(rnd, root)
    saturate(w, tree, rnd, [1])
    owner = claim_all(w, tree, rnd)
    cycles(w, 2)
    w.cycle()
    assert use(w, owner) >= promised_below(w, owner)


@examples(50)
@given(st.integers(0, 2**32), st.sampled_from([(1,), (1, 2), (1, 2, 3)]))
@example(758, (1, 2, 3))
@example(810, (1,))
@example(1_012_613, (1, 2, 3))
@example(42_517_705, (1, 2))
def test_reclaim_never_takes_a_queue_below_its_guarantee_but_by_its_last_gang(seed, sizes):
    rnd = random.Random(seed)
    w, tree = random_guarantees(rnd)
    for _ in range(4):
        ask_for(w, rnd, sizes, rnd.choice(leaves(tree)))
        saturate(w, tree, rnd, sizes)
        found = w.plan()
        for queue in tree:
            foreign, left = taken_and_left(w, below(tree, queue.name), found)
            assert not foreign or left > promised_below(w, queue.name) - max(foreign)


def taken_and_left(w, path, found):
    """Return the sizes of those who leave these queues for others, and the devices that the queues have after it.

    They have what runs there, what the plan starts, and what it keeps room for. What they exchange among themselves
    is no loss to others, not even where a gang leaves whole for a smaller job.
    """
    foreign = [p.victim for p in found.preemptions if w.job(p.beneficiary).spec.queue not in path]
    own = [p for p in found.preemptions if {w.job(j).spec.queue for j in (p.victim, p.beneficiary)} <= path]
    taken = devices_in(w, path, foreign)
    come = devices_in(w, path, {s.job_id for s in found.starts} | found.held.keys())
    gave, got = devices_in(w, path, {p.victim for p in own}), devices_in(w, path, {p.beneficiary for p in own})
    return taken, use(w, *path) + sum(come) - sum(taken) - min(sum(gave), sum(got))


def devices_in(w, path, job_ids):
    return [w.job(j).spec.ask.device_total for j in job_ids if w.job(j).spec.queue in path]


def below(tree, name):
    return {name}.union(*(below(tree, q.name) for q in tree if q.parent == name))


@examples(50)
@given(st.integers(0, 2**32), st.sampled_from([(1,), (1, 2), (1, 2, 3, 4)]))
def test_after_a_while_nobody_is_preempted_any_more(seed, sizes):
    rnd = random.Random(seed)
    w, tree = random_guarantees(rnd)
    for _ in range(3):
        saturate(w, tree, rnd, sizes)
    cycles(w, 12, pause_ms=60_000)
    before = running(w)
    assert cycles(w, 5, pause_ms=60_000) == []
    assert running(w) == before
