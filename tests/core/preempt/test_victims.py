"""The search for victims by itself: the cheapest set that works, nobody in it who is not needed."""

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model.cluster import Queue, Settings
from penstock.core.model.ids import QueueName
from penstock.core.order.queues import QueueNode
from penstock.core.preempt import victims as module
from penstock.core.preempt.victims import Victim, cheapest_victims, shrink_cost, victim_cost
from penstock.testing.builders import node
from penstock.testing.harness import World, cluster, cycles
from tests.properties import examples

MINUTE = 60_000


def running_jobs(count):
    w = cluster(1, 16)
    w.run(*[w.submit(1) for _ in range(count)])
    return [w.job(i + 1) for i in range(count)]


JOBS = running_jobs(12)
LEAF = QueueNode(QueueName("q"), "fifo", None, 1, 4)


def victims(*costs):
    return [Victim(job, cost, (), "reclaim", LEAF, ()) for job, cost in zip(JOBS, costs, strict=False)]


def ids(found):
    return None if found is None else sorted(v.job.id for v in found)


def covering(*wanted):
    """Whether the chosen include any of these sets of job ids."""
    return lambda chosen: any(set(w) <= {v.job.id for v in chosen} for w in wanted)


@pytest.mark.parametrize("tries", [0, 1, 256])
def test_nobody_is_chosen_from_nobody(tries):
    assert cheapest_victims([], lambda chosen: True, tries_max=tries) is None


@pytest.mark.parametrize("tries", [0, 256])
def test_nobody_is_chosen_when_even_all_would_not_do(tries):
    assert cheapest_victims(victims(1, 2, 3), lambda chosen: False, tries_max=tries) is None


def test_two_cheap_ones_are_better_than_one_that_costs_more_than_both():
    works = covering({1, 2}, {3})
    assert ids(cheapest_victims(victims(1, 2, 4), works, tries_max=256)) == [1, 2]
    assert ids(cheapest_victims(victims(1, 2, 2), works, tries_max=256)) == [3]


def test_equal_costs_fall_to_the_younger_job():
    assert ids(cheapest_victims(victims(5, 5, 5), covering({1}, {2}, {3}), tries_max=256)) == [3]


@pytest.mark.parametrize("tries", [0, 3])
def test_without_tries_left_needless_ones_are_dropped_again(tries):
    assert ids(cheapest_victims(victims(1, 2, 3, 4, 5), covering({2, 4}), tries_max=tries)) == [2, 4]


def test_one_node_that_suffices_is_found_among_many_cheap_ones_elsewhere():
    w = World(*(node(f"n{i}", 8) for i in range(8)), victim_sets_tried_max=4)
    for _ in range(8):
        w.run(*[w.submit(1, priority=100) for _ in range(8)])
    wide = w.submit(8, priority=900)
    found = w.cycle()
    gone = {w.job(p.victim).attempt.replicas[0].place.node for p in found.preemptions}
    assert (len(found.preemptions), len(gone)) == (8, 1)
    assert cycles(w, 2) == []
    assert w.phase(wide) in ("waiting", "starting", "running")


def test_more_victims_than_can_be_tried_exactly_are_weighed_all_the_same(monkeypatch):
    monkeypatch.setattr(module, "EXACT_MAX", 2)
    assert ids(cheapest_victims(victims(1, 2, 3, 4), covering({2, 3}), tries_max=256)) == [2, 3]


@examples(150)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.integers(0, 2**32))
def test_the_first_set_that_works_is_the_cheapest_of_all(costs, seed):
    """With rights that more victims may destroy: whoever works need not work with one more."""
    rnd, found = random.Random(seed), victims(*costs)
    wanted = [set(rnd.sample(range(1, len(costs) + 1), rnd.randint(1, len(costs)))) for _ in range(2)]
    lawful = {frozenset(v.job.id for v in s) for n in range(1, 8) for s in combinations(found, n) if rnd.random() < 0.6}

    def works(chosen):
        held = frozenset(v.job.id for v in chosen)
        return held in lawful and any(w <= held for w in wanted)

    best = min((sum(v.cost for v in s) for n in range(1, 8) for s in combinations(found, n) if works(s)), default=None)
    chosen = cheapest_victims(found, works, tries_max=256)
    assert (None if chosen is None else sum(v.cost for v in chosen)) == best


@examples(150)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 2**32), st.sampled_from([0, 2, 256]))
def test_nobody_is_needless_however_little_was_tried(costs, seed, tries):
    rnd, found = random.Random(seed), victims(*costs)
    wanted = [set(rnd.sample(range(1, len(costs) + 1), rnd.randint(1, len(costs)))) for _ in range(3)]
    works = covering(*wanted)
    chosen = cheapest_victims(found, works, tries_max=tries)
    assert works(chosen)
    assert not any(works([v for v in chosen if v is not one]) for one in chosen if len(chosen) > 1)


def test_costs_count_from_the_newest_checkpoint_and_are_never_nothing():
    w = cluster(1, 4)
    w.submit(2)
    job = w.job(1)
    free = Settings(checkpoint_cost_ms=0, restart_cost_ms=0, priority_cost_ms_per_point=0)
    assert victim_cost(job, free, w.now) == 1
    w.run(1)
    w.now += 9_000
    running = w.job(1)
    assert victim_cost(running, free, w.now) == 2 * 9_000
    saved = replace(running, progress=replace(running.progress, checkpoint_ms=w.now - 4_000))
    assert victim_cost(saved, free, w.now) == 2 * 4_000
    assert shrink_cost(running, Settings(checkpoint_cost_ms=3, restart_cost_ms=4)) == 2 * 7


def test_a_higher_priority_costs_more():
    w = cluster(1, 4)
    jobs = [w.submit(1, priority=p) for p in (100, 101)]
    w.run(*jobs)
    low, high = (victim_cost(w.job(j), Settings(), w.now) for j in jobs)
    assert high - low == Settings().priority_cost_ms_per_point


def test_a_leaving_attempt_spares_others():
    """Room that comes anyway is counted together with victims: one leaves, where two would have had to."""
    w = cluster(1, 2)
    leaving, low = w.submit(1, priority=100), w.submit(1, priority=100)
    w.run(leaving, low)
    w.cancel(leaving)
    w.submit(2, priority=900)
    assert [p.victim for p in w.cycle().preemptions] == [low]


def test_room_whose_beneficiary_is_gone_belongs_to_whoever_comes_next():
    w = cluster(1, 2)
    low = w.submit(1, priority=100)
    stays = w.submit(1, priority=100)
    w.run(low, stays)
    gone = w.submit(1, priority=900)
    assert len(w.cycle().preemptions) == 1
    w.cancel(gone)
    w.submit(1, priority=800)
    assert w.cycle().preemptions == ()


def test_a_victim_in_a_queue_of_its_own_minimum_run_time_is_spared_until_then():
    tree = (Queue("a"), Queue("b", min_runtime_ms=MINUTE))
    w = cluster(1, 1, queues=tree)
    w.run(w.submit(1, queue="b", priority=100))
    w.submit(1, queue="a", priority=900)
    w.now += MINUTE - 1
    assert w.plan().preemptions == ()
    w.now += 1
    assert len(w.plan().preemptions) == 1
