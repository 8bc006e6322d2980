"""What gives a job the right to others' places, right by right."""

import pytest
from msgspec.structs import replace

from penstock.core.model.cluster import Queue, Settings
from penstock.core.preempt.rights import PreemptionRights
from penstock.testing.builders import device, node
from penstock.testing.harness import World, cluster
from tests.core.elastic.test_elastic_plan import elastic


def quota(**amounts):
    return tuple(sorted((name, 1_000 * n if name != "jobs" else n) for name, n in amounts.items()))


def claim(*found, queue="a", demand=(1_000, 1_000, 0, 1), **fields):
    """Return the claimant of a job in `queue`, and the tree, in which nobody uses anything yet."""
    w = cluster(1, 8, queues=found)
    job = w.job(w.submit(1, queue=queue, **fields))
    tree = w.state.queue_tree()
    key = next(key for class_id, key, _ in w.snapshot().classes if class_id == job.class_id)
    return PreemptionRights(job, key, tree.branches[queue], demand, tree), tree, job


def use(tree, name, devices=0, cpus=0, jobs=1):
    tree.charge(tree.branches[name], (1_000 * devices, 1_000 * cpus, 0, jobs))


def test_room_is_reclaimed_up_to_the_guarantee():
    one, tree, _ = claim(Queue("a", guaranteed=quota(devices=2)))
    assert one.may_reclaim
    use(tree, "a", devices=1)
    assert claim_again(one).may_reclaim
    use(tree, "a", devices=1)
    assert not claim_again(one).may_reclaim
    assert not claim(Queue("a"))[0].may_reclaim
    assert not claim(Queue("a", guaranteed=quota(memory=9)))[0].may_reclaim, "it asks for no memory"
    assert not claim(Queue("a", guaranteed=quota(devices=2), preemption="never"))[0].may_reclaim


def claim_again(one):
    return PreemptionRights(one.job, one.key, one.leaf, one.demand, one._tree)


def test_every_promise_that_the_job_asks_for_counts():
    one, tree, _ = claim(Queue("a", guaranteed=quota(devices=4, cpus=1)))
    assert one.may_reclaim
    use(tree, "a", cpus=1)
    assert not claim_again(one).may_reclaim


def test_a_queue_lends_what_it_holds_beyond_its_guarantee():
    one, tree, _ = claim(Queue("a", guaranteed=quota(devices=2)), Queue("b", guaranteed=quota(devices=1)), Queue("c"))
    b, c = tree.branches["b"], tree.branches["c"]
    use(tree, "b", devices=1)
    assert not one.lends(b)
    assert not one.somebody_lends()
    use(tree, "b", cpus=9)
    assert one.lends(b), "some place of it may be in the way with CPUs, of which nothing was promised to it"
    assert one.lends(b, (0, 1_000, 0, 1))
    assert not one.lends(b, (1_000, 1_000, 0, 1)), "of what the owner was promised it has no more than its own"
    use(tree, "b", devices=1)
    assert one.lends(b, (1_000, 1_000, 0, 1))
    assert one.somebody_lends()
    assert not one.lends(c)
    assert not one.lends(tree.branches["a"]), "to itself it lends nothing"


def test_the_number_of_jobs_is_nothing_to_lend():
    one, tree, _ = claim(Queue("a", guaranteed=quota(jobs=5)), Queue("b"))
    use(tree, "b")
    assert one.may_reclaim
    assert not one.lends(tree.branches["b"])
    assert not one.somebody_lends()
    use(tree, "b", cpus=1)
    assert one.lends(tree.branches["b"])
    assert one.lends(tree.branches["b"], (0, 1_000, 0, 1))
    assert not one.lends(tree.branches["b"], (0, 0, 1_000, 1)), "it holds nothing that is asked for"


def test_inside_the_owner_nobody_lends():
    one, tree, _ = claim(Queue("p", guaranteed=quota(devices=4)), Queue("a", "p"), Queue("b", "p"), Queue("c"))
    use(tree, "b", devices=2)
    assert not one.lends(tree.branches["b"])
    assert not one.somebody_lends()
    use(tree, "c", devices=1)
    assert one.lends(tree.branches["c"])
    assert one.somebody_lends()


def rule(one, tree, victim, name="b", now_ms=0, **settings):
    return one.rule_for(victim, tree.branches[name], (1_000, 0, 0, 1), Settings(**settings), now_ms)


@pytest.mark.parametrize(("priority", "found"), [(499, "lower_priority"), (500, None), (501, None)])
def test_only_who_is_less_urgent_leaves_for_urgency(priority, found):
    one, tree, job = claim(Queue("a"), Queue("b"), priority=500)
    victim = replace(job, spec=replace(job.spec, priority=priority, queue="b"))
    use(tree, "b", devices=1)
    assert rule(one, tree, victim) == found
    assert one.may_ask_in(tree.branches["b"], priority) == (found is not None)
    one, tree, _ = claim(Queue("a", preemption="reclaim"), Queue("b"), priority=500)
    assert rule(one, tree, victim) is None
    assert not one.may_ask_in(tree.branches["b"], priority)


def test_the_right_to_reclaim_is_the_stronger_one():
    one, tree, job = claim(Queue("a", guaranteed=quota(devices=1)), Queue("b"), priority=500)
    victim = replace(job, spec=replace(job.spec, priority=1, queue="b"))
    use(tree, "b", devices=1)
    assert rule(one, tree, victim) == "reclaim"
    assert one.may_ask_in(tree.branches["b"], 900)


def test_a_queue_at_its_guarantee_is_not_asked_for_urgency():
    one, tree, _ = claim(Queue("a"), Queue("b", guaranteed=quota(devices=1)), priority=500)
    use(tree, "b", devices=1)
    assert not one.may_ask_in(tree.branches["b"], 1)
    use(tree, "b", devices=1)
    assert one.may_ask_in(tree.branches["b"], 1)


def test_who_was_served_more_takes_turns_in_its_own_queue():
    step = 1_000
    one, tree, job = claim(Queue("a", policy="least_attained"), Queue("b"), priority=500)
    served = replace(job, served_device_ms=step)
    assert rule(one, tree, served, "a", least_attained_step_device_ms=step) == "less_service"
    assert one.may_ask_in(tree.branches["a"], 900)
    assert not one.may_ask_in(tree.branches["b"], 900)
    assert rule(one, tree, replace(job, served_device_ms=step - 1), "a", least_attained_step_device_ms=step) is None
    other = replace(served, spec=replace(job.spec, queue="b"))
    assert rule(one, tree, other, least_attained_step_device_ms=step) is None
    never, tree, _ = claim(Queue("a", policy="least_attained", preemption="never"), priority=500)
    assert rule(never, tree, served, "a", least_attained_step_device_ms=step) is None


# All who leave together.


def leaving(tree, name, rule_name, devices=1):
    return rule_name, tree.branches[name], (1_000 * devices, 0, 0, 1)


def test_together_they_leave_a_queue_what_it_was_promised():
    one, tree, _ = claim(Queue("a"), Queue("b", guaranteed=quota(devices=2)), priority=500)
    use(tree, "b", devices=3, jobs=3)
    before = list(tree.root.used)
    assert one.lawful([leaving(tree, "b", "lower_priority")])
    assert not one.lawful([leaving(tree, "b", "lower_priority")] * 2)
    assert not one.lawful([leaving(tree, "b", "lower_priority", 2)])
    assert tree.root.used == before, "nothing stays changed"


def test_reclaim_takes_the_last_gang_whole_and_then_no_more():
    one, tree, _ = claim(Queue("a", guaranteed=quota(devices=2)), Queue("b", guaranteed=quota(devices=2)))
    use(tree, "b", devices=5, jobs=3)
    assert one.lawful([leaving(tree, "b", "reclaim", 2), leaving(tree, "b", "reclaim", 2)])
    assert not one.lawful([leaving(tree, "b", "reclaim", 2), leaving(tree, "b", "reclaim", 2)] * 2)
    assert tree.branches["b"].used[0] == 5_000


def test_a_job_is_free_to_start_when_who_counts_under_its_maximum_leaves():
    one, tree, _ = claim(Queue("p", max=quota(devices=2)), Queue("a", "p"), Queue("b", "p"), Queue("c"))
    use(tree, "b", devices=2)
    use(tree, "c", devices=2)
    some = (1_000, 0, 0, 1)
    assert not one.unblocked([])
    assert not one.unblocked([(tree.branches["c"], some)])
    assert one.unblocked([(tree.branches["b"], some)])
    assert tree.branches["p"].used[0] == 2_000


@pytest.mark.parametrize("first", ["b", "c"])
def test_where_a_maximum_is_in_the_way_only_who_counts_under_it_is_asked(first):
    tree = (Queue("p", max=quota(devices=1)), Queue("a", "p"), Queue("b", "p"), Queue("c"))
    w = cluster(1, 4, queues=tree)
    jobs = {queue: w.submit(1, queue=queue, priority=1) for queue in (first, "c" if first == "b" else "b")}
    w.run(*jobs.values())
    w.submit(1, queue="a", priority=900)
    assert [p.victim for p in w.cycle().preemptions] == [jobs["b"]]


def test_nobody_shrinks_for_a_job_that_its_maximum_keeps_back():
    w = cluster(1, 4, queues=(Queue("a", max=quota(devices=1)), Queue("b")))
    w.run(w.submit(1, queue="a", preemptible=False), w.submit(gang=elastic(1, 4), queue="b"))
    w.submit(1, queue="a")
    assert w.cycle().preemptions == ()


def test_one_that_leaves_already_keeps_nobody_else_from_shrinking():
    w = cluster(1, 8)
    leaving, other = w.submit(gang=elastic(4, 5)), w.submit(gang=elastic(1, 4))
    w.run(leaving, other)
    w.cancel(leaving)
    w.submit(7)
    assert [(p.victim, p.rule) for p in w.cycle().preemptions] == [(other, "shrink")]


def test_room_that_was_just_made_counts_as_used_by_its_owner():
    w = cluster(1, 4, queues=(Queue("a", guaranteed=quota(devices=2)), Queue("b")))
    w.run(*(w.submit(1, queue="b") for _ in range(4)))
    for priority in (500, 501, 502):
        w.submit(1, queue="a", priority=priority, preemptible=False)
    assert [(p.beneficiary, p.rule) for p in w.cycle().preemptions] == [(7, "reclaim"), (6, "reclaim")]


def test_who_leaves_anyway_counts_as_gone_from_its_queue():
    w = cluster(1, 5, queues=(Queue("a", guaranteed=quota(devices=4)), Queue("b", guaranteed=quota(devices=2))))
    w.run(*(w.submit(1, queue="b") for _ in range(5)))
    w.cancel(1)
    for priority in (503, 502, 501, 500):
        w.submit(1, queue="a", priority=priority, preemptible=False)
    assert [p.beneficiary for p in w.cycle().preemptions] == [7, 8]


def test_urgency_costs_no_queue_the_model_that_it_was_promised():
    new = tuple(device(i, model="H") for i in range(2))
    w = World(node("n", new), queues=(Queue("a"), Queue("b", guaranteed=quota(**{"devices:H": 1}))))
    w.run(w.submit(2, queue="b", models=("H",), priority=1))
    w.submit(1, queue="a", models=("H",), priority=900)
    assert w.cycle().preemptions == ()
