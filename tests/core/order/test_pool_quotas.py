"""Quotas of one pool: maxima that hold there, guarantees that are given back there, and what they are not about."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.config.cluster import declaration, parse_cluster
from penstock.core.explain import explain
from penstock.core.model import events as ev
from penstock.core.model.cluster import Pool, Queue, Tenant
from penstock.core.model.jobs import GangAsk
from penstock.core.model.plan import QuotaExceeded
from penstock.core.model.quantities import split_resource
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.state import State
from penstock.core.status.quotas import holders, quota_rows
from penstock.testing.builders import GIB, ask, device, job_spec, node
from penstock.testing.harness import World, follow, running
from tests.properties import examples

POOLS = {"pools": (Pool("default"), Pool("p"))}


def two_pools(*, devices=4, **config):
    return World(node("a", devices), node("b", devices, pool="p"), **POOLS, **config)


def started(found):
    return sorted(s.job_id for s in found.starts)


def blocks(w, found):
    return {v.first: v.quota for v in found.verdicts.values()}


@pytest.mark.parametrize(
    ("name", "pool", "resource"),
    [
        ("devices", "", "devices"),
        ("p/devices", "p", "devices"),
        ("p/devices:H100", "p", "devices:H100"),
        ("devices:A/B", "", "devices:A/B"),
        ("p/devices:A/B", "p", "devices:A/B"),
        ("/devices", "", "/devices"),
    ],
)
def test_a_resource_names_its_pool_before_a_slash(name, pool, resource):
    assert split_resource(name) == (pool, resource)


@pytest.mark.parametrize(
    ("resource", "limit", "job", "block"),
    [
        ("p/devices", 3_000, {"devices": 2}, (2_000, 3_000, 2_000)),
        ("p/cpus", 5_000, {"devices": 0, "cpus": 3}, (3_000, 5_000, 3_000)),
        ("p/memory", 5 * GIB, {"devices": 0, "memory_gib": 3}, (3 * GIB, 5 * GIB, 3 * GIB)),
        ("p/jobs", 1, {"devices": 1}, (1, 1, 1)),
        ("p/devices:A100", 1_500, {"devices": 1, "models": ("A100",)}, (1_000, 1_500, 1_000)),
    ],
)
def test_a_maximum_of_a_pool_is_about_jobs_in_it_alone(resource, limit, job, block):
    w = two_pools(queues=(Queue("default", max=((resource, limit),)),))
    other = [w.submit(**job), w.submit(**job)]
    first, second = w.submit(pool="p", **job), w.submit(pool="p", **job)
    found = w.cycle()
    assert started(found) == sorted([*other, first])
    assert blocks(w, found) == {second: QuotaExceeded("default", resource, *block)}


def test_a_tenants_maximum_of_a_pool_is_named_with_what_would_have_to_be_raised():
    w = two_pools(tenants=(Tenant("default"), Tenant("t", max=(("p/devices", 2_000),))))
    w.run(w.submit(2, tenant="t", pool="p", preemptible=False))
    job = w.submit(1, tenant="t", pool="p")
    found = explain(w.state, w.state.jobs[job], w.now)
    assert "tenant t: devices of pool p 2 of 2 used, short by 1" in found.text
    assert ("tenants.t.max.p/devices", "2", "3") in [(e.path, e.old, e.new) for e in found.edits]


def test_an_explanation_names_the_jobs_that_use_what_is_short_in_that_pool():
    w = two_pools(tenants=(Tenant("default"), Tenant("t", max=(("p/devices", 3_000),))))
    for devices, fields in ((1, {"tenant": "t"}), (1, {"pool": "p"}), (1, {"tenant": "t", "pool": "p"})):
        w.run(w.submit(devices, preemptible=False, **fields))
    w.run(w.submit(2, tenant="t", pool="p", preemptible=False))
    job = w.submit(1, tenant="t", pool="p")
    (quota,) = (c for c in explain(w.state, w.state.jobs[job], w.now).constraints if c.code == "quota")
    assert quota.text == "tenant t: devices of pool p 3 of 3 used, short by 1; in use by job 4, 3"


@pytest.mark.parametrize(("resource", "pool"), [("storage", "default"), ("p/storage", "p")])
def test_storage_that_jobs_ask_for_has_a_maximum_too(resource, pool):
    host = Resources(1_000, 0, 3 * GIB)
    nodes = (replace(node(name, 0, pool=at), capacity=host * 4) for name, at in (("a", "default"), ("b", "p")))
    w = World(*nodes, **POOLS, queues=(Queue("default", max=((resource, 5 * GIB),)),))
    first, second = (w.submit(gang=GangAsk(1, ReplicaAsk(host), pool=pool)) for _ in range(2))
    found = w.cycle()
    assert started(found) == [first]
    assert blocks(w, found) == {second: QuotaExceeded("default", resource, 3 * GIB, 5 * GIB, 3 * GIB)}
    text = explain(w.state, w.state.jobs[second], w.now).text
    assert f"storage{' of pool p' if pool == 'p' else ''} 3GiB of 5GiB used, short by 1GiB" in text


def test_what_is_more_than_a_pools_maximum_is_refused_in_that_pool():
    w = two_pools(queues=(Queue("default", max=(("p/devices", 2_000),)),))
    (problem,) = w.request(job_spec(3, pool="p")).problems
    assert (problem.code, w.request(job_spec(3)).job_ids) == ("over_maximum", (1,))
    assert "queue default may hold 2 of devices of pool p" in problem.message


def test_an_alternative_in_another_pool_is_taken_where_the_first_is_full():
    w = two_pools(queues=(Queue("default", max=(("p/devices", 1_000),)),))
    w.run(w.submit(1, pool="p", preemptible=False))
    job = w.submit(1, pool="p", alternatives=(ask(1),))
    found = w.cycle()
    assert [(s.job_id, s.choice, s.ask.pool) for s in found.starts] == [(job, 1, "default")]
    assert not [r for r in quota_rows(take_snapshot(w.state), w.now) if r.resource == "p/devices" and r.used != 1_000]


def owner_and_borrower(**of):
    tree = (Queue("a", preemption="reclaim", guaranteed=(("p/devices", 2_000),)), Queue("b", **of))
    w = two_pools(queues=tree)
    jobs = [w.submit(1, queue="b", pool=pool) for pool in ("p", "p", "p", "p", "default", "default")]
    for job in jobs:
        w.run(job)
    return w, jobs


def test_what_a_queue_is_guaranteed_in_a_pool_is_taken_back_there():
    w, jobs = owner_and_borrower()
    w.submit(1, queue="a", pool="p")
    (stop,) = w.plan().preemptions
    assert (stop.rule, stop.victim in jobs[:4]) == ("reclaim", True)


def test_no_more_is_taken_back_than_is_guaranteed_in_that_pool():
    w, _ = owner_and_borrower()
    for _ in range(3):
        w.submit(1, queue="a", pool="p")
    assert len(w.plan().preemptions) == 2


def test_a_guarantee_in_one_pool_takes_nothing_back_in_another():
    w, _ = owner_and_borrower()
    w.run(w.submit(2, queue="b"))
    w.submit(1, queue="a")
    assert w.plan().preemptions == ()


def test_a_promise_in_a_pool_goes_before_one_of_all_pools_and_not_back_and_forth():
    w, _ = owner_and_borrower(preemption="reclaim", guaranteed=(("devices", 6_000),))
    mine = [w.submit(1, queue="a", pool="p") for _ in range(2)]
    for _ in range(12):
        w.now += 60_000
        w.cycle()
        follow(w)
    assert set(mine) <= running(w)
    assert [w.state.jobs[job].last_attempt for job in mine] == [1, 1]


def test_rows_and_holders_say_what_is_used_in_a_pool():
    w = two_pools(queues=(Queue("default", max=(("p/devices", 4_000),), guaranteed=(("p/devices", 1_000),)),))
    w.run(w.submit(2, pool="p"))
    w.run(w.submit(1))
    snapshot = take_snapshot(w.state)
    (row,) = quota_rows(snapshot, w.now)
    assert (row.resource, row.used, row.guaranteed, row.borrowed, row.percent) == ("p/devices", 2_000, 1_000, 1_000, 50)
    held = {one.resource: one.used for one in holders(w.state.indexes.charges.alike, w.state.config.quota_pools)}
    assert (held["devices"], held["p/devices"], held["p/devices:A100"]) == (3_000, 2_000, 2_000)


def test_quotas_of_a_pool_that_come_later_count_what_runs_already():
    w = two_pools(queues=(Queue("default"),))
    w.run(w.submit(2, pool="p"))
    w.emit(ev.ConfigChanged(replace(w.state.config, queues=(Queue("default", max=(("p/devices", 4_000),)),)), "ann"))
    assert w.state.indexes.bound == {"p"}
    assert quota_rows(take_snapshot(w.state), w.now)[0].used == 2_000
    assert State.from_image(w.state.image()).indexes.usage == w.state.indexes.usage
    w.emit(ev.ConfigChanged(replace(w.state.config, queues=(Queue("default"),)), "ann"))
    assert next(iter(w.state.indexes.usage.values())).now.pools == ()


# Cluster files.


def parsed(queue=None, tenant=None):
    raw = {"pools": ["default", "a100"], "queues": [{"name": "q"} | (queue or {})]}
    return parse_cluster(raw | {"tenants": [{"name": "t"} | (tenant or {})]})


def test_quotas_of_a_pool_are_read_and_written_exactly():
    own = {"guaranteed": {"a100/devices": 4}, "max": {"a100/devices:H100": 2.5, "a100/memory": "512GiB"}}
    file, problems = parsed(own | {"lend": {"a100/devices": 1}}, {"max": {"a100/jobs": 3, "a100/cpus": 8}})
    assert problems == []
    assert file.config.tenants[0].max == (("a100/cpus", 8_000), ("a100/jobs", 3))
    assert file.config.queues[0].max == (("a100/devices:H100", 2_500), ("a100/memory", 512 * GIB))
    assert parse_cluster(declaration(file.config))[0].config == file.config


@pytest.mark.parametrize(
    ("queue", "tenant", "code", "field", "hint"),
    [
        ({"max": {"a10/devices": 1}}, {}, "unknown_pool", "queues[0].max.a10/devices", "a100"),
        ({}, {"max": {"a10/jobs": 1}}, "unknown_pool", "tenants[0].max.a10/jobs", "a100"),
        ({"max": {"a100/devcies": 1}}, {}, "unknown_resource", "queues[0].max.a100/devcies", "a100/devices"),
        (
            {"guaranteed": {"a100/devices": 4}, "max": {"devices": 2}},
            {},
            "guarantee_above_max",
            "queues[0].guaranteed.devices",
            "raise max, or guarantee less",
        ),
    ],
)
def test_what_is_wrong_with_a_quota_of_a_pool_is_said_with_field_and_nearest_word(queue, tenant, code, field, hint):
    (problem,) = parsed(queue, tenant)[1]
    assert (problem.code, problem.field) == (code, field)
    assert hint in problem.hint


# Random guarantees.


@examples(20)
@given(st.integers(0, 2**32))
def test_room_made_for_guarantees_in_pools_is_never_made_back_and_forth(seed):
    """Each world checks all invariants; here: with nothing new the preemptions come to an end."""
    rnd = random.Random(seed)
    names = ("devices", "p/devices", "default/devices", "p/devices:A100")
    promised = [tuple(sorted((n, 1_000 * rnd.randint(1, 3)) for n in names if rnd.random() < 0.4)) for _ in "abc"]
    tree = tuple(Queue(q, preemption="reclaim", guaranteed=own) for q, own in zip("abc", promised, strict=True))
    mixed = tuple(device(i) for i in range(4))
    w = World(node("a", mixed), node("b", mixed, pool="p"), **POOLS, queues=tree)
    for _ in range(14):
        w.submit(rnd.randint(1, 2), queue=rnd.choice("abc"), pool=rnd.choice(("default", "p")))
        if rnd.random() < 0.5:
            w.cycle()
            follow(w)
    for _ in range(30):
        w.now += 60_000
        found = w.cycle()
        follow(w)
    assert found.preemptions == ()
