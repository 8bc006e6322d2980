"""Maxima of the queue tree: never exceeded, at any level, whatever happens; and what is not lent stays idle."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.explain import explain
from penstock.core.model.cluster import ROOT_QUEUE, Pool, Queue, Tenant
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.plan import QuotaExceeded
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.testing.builders import GIB, ask, device, job_spec, node, queues
from penstock.testing.harness import World, cluster, follow, running, use
from tests.properties import examples


def started(found):
    return [s.job_id for s in found.starts]


def blocks(w, found):
    return {v.first: v.quota for v in found.verdicts.values()}


def limited(**amounts):
    return tuple(sorted(amounts.items()))


@pytest.mark.parametrize(
    ("resource", "limit", "job", "block"),
    [
        ("devices", 3_000, {"devices": 2}, (2_000, 3_000, 2_000)),
        ("cpus", 5_000, {"devices": 0, "cpus": 3}, (3_000, 5_000, 3_000)),
        ("memory", 5 * GIB, {"devices": 0, "memory_gib": 3}, (3 * GIB, 5 * GIB, 3 * GIB)),
        ("jobs", 1, {"devices": 1}, (1, 1, 1)),
        ("devices:A100", 1_500, {"devices": 1, "models": ("A100",)}, (1_000, 1_500, 1_000)),
    ],
)
def test_a_maximum_keeps_the_next_job_waiting_and_says_by_how_much(resource, limit, job, block):
    w = cluster(1, 8, queues=queues("default", max=((resource, limit),)))
    first, second = w.submit(**job), w.submit(**job)
    found = w.cycle()
    assert started(found) == [first]
    assert blocks(w, found) == {second: QuotaExceeded("default", resource, *block)}
    assert blocks(w, found)[second].short == block[0] + block[2] - limit


def test_exactly_the_maximum_is_allowed():
    w = cluster(1, 8, queues=queues("default", max=(("devices", 4_000),)))
    jobs = [w.submit(2), w.submit(2)]
    assert started(w.plan()) == jobs


def test_the_lowest_queue_that_is_full_is_named():
    tree = (Queue("a", max=(("devices", 2_000),)), Queue("b", "a", max=(("devices", 1_000),)), Queue("c", "a"))
    w = cluster(1, 8, queues=tree)
    jobs = [w.submit(1, queue=q) for q in "bbccc"]
    found = w.cycle()
    assert started(found) == [jobs[0], jobs[2]]
    assert {first: b.queue for first, b in blocks(w, found).items()} == {jobs[1]: "b", jobs[3]: "a"}


def test_a_job_of_another_queue_goes_past_one_over_its_maximum():
    w = cluster(1, 3, queues=(Queue("a", max=(("devices", 2_000),)), Queue("b")))
    w.run(w.submit(1, queue="a", priority=900))
    w.submit(2, queue="a", priority=900)
    other = w.submit(1, queue="b")
    assert started(w.plan()) == [other]


def test_fractions_and_instances_count_as_parts_of_devices():
    limit = queues("default", policy="fifo", max=(("devices", 900),))
    w = World(node("a", (device(0, mig=True), device(1, mig=True))), queues=limit)
    half = w.submit(1, share_milli=500)
    instance = w.submit(1, profile="2g.20gb")  # 2 of 7 compute slices: 285
    w.submit(1, share_milli=200)
    assert sorted(started(w.cycle())) == [half, instance]
    assert w.state.queue_tree().branches["default"].used[0] == 785


def test_all_groups_of_a_gang_count():
    w = cluster(1, 8, queues=queues("default", max=(("devices", 5_000),)))
    w.run(w.submit(1))
    each = ReplicaAsk(Resources(), DeviceAsk(1))
    w.submit(gang=GangAsk(2, each, others=(GroupAsk(1, ReplicaAsk(Resources(), DeviceAsk(3))),)))
    assert started(w.plan()) == []
    fits = w.submit(gang=GangAsk(2, each, others=(GroupAsk(1, ReplicaAsk(Resources(), DeviceAsk(2))),)))
    assert started(w.plan()) == [fits]


def test_a_model_counts_by_what_was_given_not_by_what_was_asked():
    new = tuple(device(i, model="H100") for i in range(2))
    w = World(node("n", new), queues=queues("default", max=(("devices:H100", 1_000),)))
    jobs = [w.submit(1), w.submit(1)]
    found = w.cycle()
    assert started(found) == jobs[:1]
    assert blocks(w, found) == {jobs[1]: QuotaExceeded("default", "devices:H100", 1_000, 1_000, 1_000)}


def test_an_alternative_beyond_the_maximum_gives_way_to_one_within_it():
    w = cluster(2, 4, queues=queues("default", max=(("devices", 3_000),)))
    w.run(w.submit(1, preemptible=False))
    w.drain("n1")
    job = w.submit(1, topology="spread", replicas=2, alternatives=(ask(3), ask(2)))
    found = w.cycle()
    assert [(s.job_id, s.choice, len(s.places[0].devices)) for s in found.starts] == [(job, 2, 2)]


def test_a_job_all_of_whose_free_shapes_are_beyond_the_maximum_is_told_so():
    w = cluster(2, 4, queues=queues("default", max=(("devices", 3_000),)))
    w.run(w.submit(1, preemptible=False))
    w.drain("n1")
    job = w.submit(1, topology="spread", replicas=2, alternatives=(ask(3),))
    assert blocks(w, w.plan()) == {job: QuotaExceeded("default", "devices", 1_000, 3_000, 3_000)}


def test_a_stale_plan_never_exceeds_a_maximum():
    w = cluster(1, 8, queues=queues("default", max=(("devices", 2_000),)))
    w.submit(2)
    stale = w.plan()
    w.cancel(1)
    w.submit(2)
    stale_too = w.plan()
    w.cycle()
    assert w.apply(stale).starts == ()
    assert w.apply(stale_too).starts == ()
    assert use(w, "default") == 2


def test_two_stale_plans_together_do_not_exceed_a_maximum():
    w = cluster(2, 2, queues=(Queue("p", max=(("devices", 2_000),)), Queue("a", "p"), Queue("b", "p")))
    one = w.submit(2, queue="a")
    first = w.plan()
    w.drain("n0")
    two = w.submit(2, queue="b", priority=900)
    second = w.plan()
    assert (started(first), started(second)) == ([one], [two])
    w.drain("n0", on=False)
    assert [started(w.apply(first)), started(w.apply(second))] == [[one], []]


def test_two_starving_jobs_of_two_pools_share_one_maximum():
    pools = (Pool("default"), Pool("q"))
    limit = queues("default", max=(("devices", 1_000),))
    w = World(node("a", 1), node("b", 1, pool="q"), pools=pools, queues=limit, starvation_after_ms=0)
    w.submit(1)
    w.submit(1, pool="q")
    assert w.cycle().dropped == 0
    assert use(w, "default") == 1


def test_what_a_queue_does_not_lend_stays_idle_for_it():
    tree = (Queue("a", guaranteed=(("devices", 4_000),), lend=(("devices", 1_000),)), Queue("b"))
    w = cluster(1, 8, queues=tree)
    jobs = [w.submit(1, queue="b") for _ in range(8)]
    found = w.cycle()
    assert started(found) == jobs[:5]
    assert blocks(w, found) == {jobs[5]: QuotaExceeded(ROOT_QUEUE, "devices", 8_000, 8_000, 1_000)}
    owners = [w.submit(1, queue="a") for _ in range(4)]
    assert started(w.cycle()) == owners[:3]


def test_what_the_owner_uses_is_not_kept_a_second_time():
    tree = (Queue("a", guaranteed=(("devices", 4_000),), lend=()), Queue("b"))
    w = cluster(1, 8, queues=tree)
    w.run(w.submit(4, queue="a"))
    jobs = [w.submit(1, queue="b") for _ in range(5)]
    assert started(w.cycle()) == jobs[:4]


# Tenants.


def of_tenant(**amounts):
    return {"tenants": (Tenant("default"), Tenant("t", max=limited(**amounts)))}


def test_a_tenant_has_its_maximum_over_all_queues_together():
    w = cluster(1, 8, queues=queues("a", "b"), **of_tenant(devices=2_000))
    jobs = [w.submit(1, queue=queue, tenant="t") for queue in "abb"]
    other = w.submit(1, queue="b")
    found = w.cycle()
    assert sorted(started(found)) == [*jobs[:2], other]
    assert blocks(w, found) == {jobs[2]: QuotaExceeded("tenant:t", "devices", 2_000, 2_000, 1_000)}


def test_what_a_tenant_gave_back_it_may_use_again():
    w = cluster(1, 8, **of_tenant(jobs=1))
    first, second = w.submit(1, tenant="t"), w.submit(1, tenant="t")
    w.run(first)
    w.cycle()
    assert running(w) == {first}
    w.exit_replica(first)
    assert started(w.cycle()) == [second]


def test_a_job_beyond_its_tenants_maximum_makes_room_among_its_own_alone():
    w = cluster(1, 8, **of_tenant(devices=2_000))
    low, other = w.submit(2, tenant="t", priority=100), w.submit(2, priority=100)
    w.run(low)
    w.run(other)
    w.submit(2, tenant="t", priority=900)
    assert [p.victim for p in w.plan().preemptions] == [low]


def test_a_plan_made_before_a_tenant_was_full_does_not_exceed_its_maximum():
    w = cluster(1, 8, **of_tenant(devices=2_000))
    w.submit(2, tenant="t")
    stale = w.plan()
    w.cancel(1)
    w.submit(2, tenant="t")
    w.cycle()
    assert w.apply(stale).starts == ()


def test_a_job_that_is_more_than_its_tenant_may_have_is_refused():
    w = cluster(1, 8, **of_tenant(devices=2_000))
    (problem,) = w.request(job_spec(3, tenant="t")).problems
    assert problem.code == "over_maximum"
    assert "tenant t may hold 2 of devices" in problem.message


def test_an_explanation_names_the_tenant_and_what_would_have_to_be_raised():
    w = cluster(1, 8, **of_tenant(devices=2_000))
    w.run(w.submit(2, tenant="t", preemptible=False))
    job = w.submit(1, tenant="t")
    found = explain(w.state, w.state.jobs[job], w.now)
    assert [(c.code, c.where) for c in found.constraints[:1]] == [("quota", "tenant:t")]
    assert "tenant t: devices 2 of 2 used, short by 1" in found.text
    assert ("tenants.t.max.devices", "2", "3") in [(e.path, e.old, e.new) for e in found.edits]


# Random trees.

NAMES = ("a", "b", "c", "d", "e")
MODELS = ("A100", "H100")
LIMITS = {
    "devices": lambda rnd: 1_000 * rnd.randint(0, 5),
    "cpus": lambda rnd: 1_000 * rnd.randint(1, 8),
    "memory": lambda rnd: GIB * rnd.randint(1, 12),
    "jobs": lambda rnd: rnd.randint(1, 4),
    "devices:A100": lambda rnd: 1_000 * rnd.randint(0, 3),
    "devices:H100": lambda rnd: 1_000 * rnd.randint(0, 3),
}


TENANTS = ("x", "y", "z")
POOLS = ("default", "q")


def random_limits(rnd, more):
    """Return limits on some resources, and some in one pool alone, which are drawn from `more`."""
    found = [(r, draw(rnd)) for r, draw in LIMITS.items() if rnd.random() < 0.3]
    found += [(f"{p}/{r}", draw(more)) for p in POOLS for r, draw in LIMITS.items() if more.random() < 0.15]
    return sorted(found)


def random_tree(rnd, more):
    """Return up to five queues, each below the root or an earlier one, with limits on some resources."""
    tree = []
    for i, name in enumerate(NAMES):
        parent = rnd.choice([ROOT_QUEUE, *NAMES[:i]])
        limits = random_limits(rnd, more)
        policy = rnd.choice(["priority", "fifo", "fair_share", "capacity", "shortest_predicted"])
        tree.append(Queue(name, parent, policy, max=tuple(limits)))
    return tuple(tree)


def recounted(w):
    """Return what each queue uses, counted from specs and places alone."""
    parents = {q.name: q.parent for q in w.state.config.queues}
    used = {}
    for job in w.state.jobs.values():
        if job.attempt is None:
            continue
        each, replicas = job.placed.each, job.attempt.replicas
        pool = w.state.nodes[replicas[0].place.node].spec.pool
        counted = {"jobs": 1, "cpus": each.host.cpu_milli * len(replicas)}
        counted["memory"] = each.host.memory_bytes * len(replicas)
        counted["devices"] = 1_000 * each.device_count * len(replicas)
        for replica in replicas:
            for index in replica.place.devices if replica.holds else ():
                model = w.state.nodes[replica.place.node].spec.devices[index].model
                counted[f"devices:{model}"] = counted.get(f"devices:{model}", 0) + 1_000
        counted |= {f"{pool}/{resource}": amount for resource, amount in counted.items()}
        holders, at = [f"tenant:{job.spec.tenant}"], job.spec.queue
        while at in parents:
            holders.append(at)
            at = parents[at]
        for holder in holders:
            for resource, amount in counted.items():
                used[holder, resource] = used.get((holder, resource), 0) + amount
    return used


def maxima(w):
    """Return the limits of each queue and tenant."""
    found = {q.name: dict(q.max) for q in w.state.config.queues}
    return found | {f"tenant:{t.name}": dict(t.max) for t in w.state.config.tenants}


def assert_within(w):
    used = recounted(w)
    for holder, limits in maxima(w).items():
        for resource, limit in limits.items():
            assert used.get((holder, resource), 0) <= limit, (holder, resource)


def tree_world(rnd, more):
    mixed = tuple(device(i, model=MODELS[i % 2]) for i in range(4))
    nodes = (node("n0", mixed, cpus=8), node("n1", 3, cpus=8), node("n2", mixed, cpus=8, pool="q"))
    tenants = tuple(Tenant(name, max=tuple(random_limits(rnd, more))) for name in TENANTS)
    shape = {"queues": random_tree(rnd, more), "tenants": tenants, "pools": tuple(map(Pool, POOLS))}
    w = World(*nodes, **shape, starvation_after_ms=20_000, allow_waiting_for_nodes=True)
    w.stale = [w.plan()]
    return w


def tree_step(w, rnd, more):
    w.now += 5_000
    for _ in range(rnd.randint(0, 3)):
        models = rnd.choice([(), (), ("A100",), MODELS])
        shape = {"models": models} if (devices := rnd.randint(0, 2)) else {}
        priority = rnd.choice([100, 500, 900])
        shape |= {"cpus": rnd.randint(0, 2), "memory_gib": rnd.randint(0, 3)}
        shape |= {"queue": rnd.choice(NAMES), "tenant": rnd.choice(TENANTS)}
        shape |= {"pool": more.choice(POOLS)}
        if more.random() < 0.2:
            shape |= {"alternatives": (ask(more.randint(0, 1), pool=more.choice(POOLS)),)}
        w.request(job_spec(devices, rnd.randint(1, 2), priority=priority, **shape))
    what = rnd.random()
    if what < 0.2:
        w.stale.append(w.plan())
    elif what < 0.4:
        w.apply(rnd.choice(w.stale))
    elif what < 0.8:
        assert w.cycle().dropped == 0
    elif running(w):
        w.cancel(rnd.choice(sorted(running(w))))
    if rnd.random() < 0.7:
        follow(w)


@examples(40)
@given(st.integers(0, 2**32))
def test_no_maximum_is_exceeded_at_any_level_whatever_happens(seed):
    rnd, more = random.Random(seed), random.Random(f"{seed} pools")
    w = tree_world(rnd, more)
    for _ in range(30):
        tree_step(w, rnd, more)
        assert_within(w)


@examples(40)
@given(st.integers(0, 2**32))
def test_a_verdict_of_quota_is_true_and_its_numbers_are_those_of_a_recount(seed):
    rnd, more = random.Random(seed), random.Random(f"{seed} pools")
    w = tree_world(rnd, more)
    for _ in range(10):
        tree_step(w, rnd, more)
    w.cycle()
    used, limits = recounted(w), maxima(w)
    for verdict in w.plan().verdicts.values():
        block = verdict.quota
        if block is not None:
            assert block.limit == limits[block.queue][block.resource]
            assert block.used >= used.get((block.queue, block.resource), 0)
            assert block.used + block.asked > block.limit


def test_a_job_that_starves_waits_for_its_tenants_maximum_too():
    w = cluster(1, 8, starvation_after_ms=10_000, **of_tenant(jobs=1))
    first, second = w.submit(1, tenant="t"), w.submit(1, tenant="t")
    w.run(first)
    w.now += 20_000
    found = w.cycle()
    assert (started(found), found.dropped) == ([], 0)
    assert blocks(w, found) == {second: QuotaExceeded("tenant:t", "jobs", 1, 1, 1)}
