"""Fair shares: the lowest weighted dominant share goes next, counted inside the cycle, and the past fades."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.model.cluster import Queue, Tenant
from penstock.core.order.queues import SHARE_SCALE
from penstock.core.order.usage_over_time import UsageOverTime, UsedAmounts, decayed
from penstock.testing.builders import node, queues
from penstock.testing.harness import World, cluster, cycles, finish
from tests.properties import examples

HOUR = 3_600_000


def tenants(*names):
    return tuple(Tenant(name) for name in names)


def shared(*nodes, names=("s", "t"), **fields):
    return World(*nodes, queues=queues("default", policy="fair_share"), tenants=tenants(*names), **fields)


def counts(w, found, of="tenant"):
    started = [getattr(w.job(s.job_id).spec, of) for s in found.starts]
    return {name: started.count(name) for name in sorted(set(started))}


def shares(w):
    tree = w.state.queue_tree()
    return {name: tree.share(branch) for name, branch in tree.branches.items() if name != "root"}


# The examples of the paper (Ghodsi et al., NSDI'11).


def test_the_first_example_of_the_paper():
    """9 CPUs and 18 GB; tasks of (1 CPU, 4 GB) and (3 CPUs, 1 GB): three and two of them, dominant shares 2/3 each."""
    w = shared(node("n", 0, cpus=9, memory_gib=18))
    for _ in range(9):
        w.submit(0, cpus=1, memory_gib=4, tenant="s")
        w.submit(0, cpus=3, memory_gib=1, tenant="t")
    assert counts(w, w.cycle()) == {"s": 3, "t": 2}


def test_the_order_of_starts_is_that_of_the_paper():
    """Shares of s and t in ninths before each start: 0 0, 2 0, 2 3, 4 3, 4 6; equal ones fall to the first."""
    w = shared(node("n", 0, cpus=9, memory_gib=18))
    for _ in range(4):
        w.submit(0, cpus=1, memory_gib=4, tenant="s")
        w.submit(0, cpus=3, memory_gib=1, tenant="t")
    order = [w.job(s.job_id).spec.tenant for s in w.plan().starts]
    assert order == ["s", "t", "s", "t", "s"]


def test_devices_are_a_resource_like_others():
    """A job of 1 of 4 devices and one of 1/4 of the CPUs weigh the same."""
    tree = (Queue("a"), Queue("b"))
    w = World(node("n", 4, cpus=16), queues=tree, root_policy="fair_share")
    w.run(w.submit(1, queue="a", cpus=0), w.submit(0, queue="b", cpus=4))
    assert shares(w) == {"a": SHARE_SCALE // 4, "b": SHARE_SCALE // 4}


def test_shares_are_not_rounded_to_whole_numbers():
    w = cluster(1, 7, queues=queues("a"))
    w.run(w.submit(1, queue="a"))
    assert shares(w) == {"a": SHARE_SCALE // 7}


def test_a_weight_divides_the_share():
    tree = (Queue("a", weight=2), Queue("b"))
    w = World(node("n", 6), queues=tree, root_policy="fair_share")
    for _ in range(6):
        w.submit(1, queue="a")
        w.submit(1, queue="b")
    assert counts(w, w.cycle(), "queue") == {"a": 4, "b": 2}


def test_use_counts_within_the_cycle_that_makes_it():
    w = shared(node("n", 4))
    for tenant in "ssssstttt":
        w.submit(1, tenant=tenant)
    assert counts(w, w.cycle()) == {"s": 2, "t": 2}


def test_what_runs_already_counts_against_its_tenant():
    w = shared(node("n", 4))
    w.run(w.submit(1, tenant="s"), w.submit(1, tenant="s"))
    for tenant in "sstt":
        w.submit(1, tenant=tenant)
    assert counts(w, w.cycle()) == {"t": 2}


def test_a_tenant_nobody_has_heard_of_runs_too():
    w = shared(node("n", 2), names=("s", "new"))
    w.run(w.submit(1, tenant="s"))
    w.submit(1, tenant="s")
    new = w.submit(1, tenant="new")
    assert [s.job_id for s in w.cycle().starts] == [new]


def test_shares_hold_level_by_level():
    tree = (Queue("x", policy="fair_share"), Queue("x1", "x"), Queue("x2", "x"), Queue("y"))
    w = World(node("n", 8), queues=tree, root_policy="fair_share")
    for queue in ("x1", "x2", "y") * 8:
        w.submit(1, queue=queue)
    assert counts(w, w.cycle(), "queue") == {"x1": 2, "x2": 2, "y": 4}


def test_what_was_started_for_a_starving_job_counts_in_the_same_cycle():
    tree = (Queue("a"), Queue("b"))
    w = World(node("n", 2), queues=tree, root_policy="fair_share", starvation_after_ms=HOUR)
    old = w.submit(1, queue="a")
    w.now += HOUR
    w.submit(1, queue="a")
    other = w.submit(1, queue="b")
    assert [s.job_id for s in w.plan().starts] == [old, other]


# The past.


@pytest.mark.parametrize(
    ("value", "elapsed_ms", "left"),
    [
        (1_000, 0, 1_000),
        (1_000, 100, 500),
        (1_000, 200, 250),
        (1_000, 1_000, 0),
        (1 << 30, 50, 759_250_124),  # 2^30 / sqrt 2 = 759250124.99
        (1 << 30, 25, 902_905_650),  # 2^30 / 2^(1/4) = 902905650.82
        (1 << 30, 150, 379_625_062),
        (0, 50, 0),
        (7, -5, 7),
    ],
)
def test_a_value_halves_in_each_half_life(value, elapsed_ms, left):
    assert decayed(value, elapsed_ms, 100) == left


@examples(200)
@given(st.integers(0, 1 << 60), st.integers(0, 10**6), st.integers(1, 10**6))
def test_decay_is_that_of_the_formula(value, elapsed_ms, half_life_ms):
    exact = value * 2.0 ** (-elapsed_ms / half_life_ms)
    assert abs(decayed(value, elapsed_ms, half_life_ms) - exact) <= 1e-5 * value + 30


@examples(200)
@given(st.integers(0, 1 << 50), st.lists(st.integers(0, 10**6), min_size=2, max_size=2), st.integers(1, 10**5))
@example(4, [1, 67], 7417)
def test_decay_never_rises(value, moments, half_life_ms):
    early, late = sorted(moments)
    assert decayed(value, late, half_life_ms) <= decayed(value, early, half_life_ms) <= value


def test_the_average_approaches_steady_use():
    share = UsageOverTime().changed(UsedAmounts(1_000), 0, 100)
    assert [share.average_at(at, 100) >> 20 for at in (0, 100, 200, 300)] == [0, 500, 750, 875]
    gone = share.changed(UsedAmounts(-1_000), 300, 100)
    assert [gone.average_at(at, 100) >> 20 for at in (300, 400, 500)] == [875, 437, 218]


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 4)), max_size=6), st.integers(0, 500))
def test_the_average_is_the_same_however_often_it_is_noted(changes, later):
    """Noting a change of nothing in between moves the average by no more than its rounding."""
    seldom = often = UsageOverTime()
    now = 0
    for pause, devices in changes:
        often = often.changed(UsedAmounts(), now + pause // 2, 100)
        now += pause
        seldom = seldom.changed(UsedAmounts(1_000 * devices), now, 100)
        often = often.changed(UsedAmounts(1_000 * devices), now, 100)
    assert abs(seldom.average_at(now + later, 100) - often.average_at(now + later, 100)) < 1 << 18


def worn(half_life_ms):
    """Return a world in which tenant s has used both devices for two hours and t nothing; all is free now."""
    w = shared(node("n", 2), fair_share_half_life_ms=half_life_ms)
    jobs = [w.submit(1, tenant="s") for _ in range(2)]
    w.run(*jobs)
    w.now += 2 * HOUR
    for job in jobs:
        finish(w, job)
    for tenant in "ssst":
        w.submit(1, tenant=tenant)
    w.submit(1, tenant="t")
    return w


def test_with_a_half_life_who_used_much_lately_comes_later():
    w = worn(HOUR)
    assert counts(w, w.cycle()) == {"t": 2}


def test_without_a_half_life_only_the_present_counts():
    w = worn(0)
    assert counts(w, w.cycle()) == {"s": 1, "t": 1}


def test_the_past_is_forgotten_after_many_half_lives():
    w = worn(HOUR)
    w.now += 60 * HOUR
    assert counts(w, w.cycle()) == {"s": 1, "t": 1}


def test_the_share_is_the_mean_of_present_and_past_use():
    w = cluster(1, 4, queues=queues("a"), fair_share_half_life_ms=HOUR)
    job = w.submit(2, queue="a")
    w.run(job)
    w.now += HOUR
    w.tick()
    w.submit(1, queue="a")  # an event, so that the state knows the time
    # now 2000 of 4000; average after one half-life 1000: (2000 + 1000) / 2 of 4000
    assert shares(w) == {"a": SHARE_SCALE * 1_500 // 4_000}


def test_the_past_comes_back_from_an_image():
    from penstock.core.state.state import State

    w = worn(HOUR)
    again = State.from_image(w.state.image())
    before, after = w.state.queue_tree(), again.queue_tree()
    assert [b.past for b in after.branches.values()] == [b.past for b in before.branches.values()]
    assert before.branches["default"].past > 0


@examples(40)
@given(st.integers(2, 4), st.integers(1, 12), st.integers(0, 3), st.integers(1, 3))
def test_equal_tenants_get_equal_shares_within_one_job(tenant_count, devices, already, size):
    names = "stuv"[:tenant_count]
    w = shared(node("n", devices), names=tuple(names))
    for name in names:
        for _ in range(devices + already):
            w.submit(min(size, devices), tenant=name)
    cycles(w, 2)
    held = [sum(1 for j in w.state.indexes.active.values() if j.spec.tenant == name) for name in names]
    assert max(held) - min(held) <= 1


@examples(40)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(4, 24))
def test_weighted_queues_get_devices_by_weight(weights, devices):
    tree = tuple(Queue(name, weight=weight) for name, weight in zip("abcd", weights, strict=False))
    w = World(node("n", devices, cpus=64), queues=tree, root_policy="fair_share")
    for queue in tree:
        for _ in range(devices):
            w.submit(1, queue=queue.name, cpus=1)
    w.cycle()
    held = {q.name: sum(j.spec.queue == q.name for j in w.state.indexes.active.values()) for q in tree}
    assert sum(held.values()) == devices
    for one in tree:  # nobody could give a device away and still be at the front of another
        for other in tree:
            assert (held[one.name] - 1) / one.weight <= held[other.name] / other.weight + 1e-9
