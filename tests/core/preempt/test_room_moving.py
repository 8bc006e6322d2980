"""Making room, piece by piece: who can move, what that costs and gains, and who counts where."""

import pytest
from msgspec.structs import replace

from penstock.core.model.cluster import Pool, Queue, Settings
from penstock.core.model.events import ConfigChanged
from penstock.core.model.jobs import StopOrder
from penstock.core.place.backfill import held_places
from penstock.core.place.gang import GangPlacer
from penstock.core.preempt import victims as module
from penstock.core.preempt.consolidate import can_move, fits_when_moved, gain_of, move_cost
from penstock.core.preempt.rights import attained_device_ms
from penstock.core.preempt.victims import Victim, cheapest_victims, victim_cost
from penstock.core.status.defrag import dry_run
from penstock.testing.builders import ask, config, node
from penstock.testing.harness import World, cluster, cycles
from tests.core.elastic.test_elastic_plan import elastic
from tests.core.preempt.test_capacity_reclaim import guaranteed
from tests.core.status.test_defrag import SAVES, rules, scattered

MINUTE = 60_000
FREE = Settings(checkpoint_cost_ms=0, restart_cost_ms=0, priority_cost_ms_per_point=0)


def running(devices=2, replicas=1, **fields):
    """Return a world whose only job runs."""
    w = cluster(2, 4)
    w.run(w.submit(devices, replicas, **fields))
    return w, w.job(1)


def saved(job, at_ms):
    return replace(job, progress=replace(job.progress, checkpoint_ms=at_ms))


def test_a_job_holds_nothing_before_it_starts():
    w = cluster(1, 1)
    assert held_places(w.job(w.submit(1))) == ()


# Who can move.


def test_who_can_be_asked_to_save_can_move():
    _, job = running(checkpoint=SAVES)
    assert can_move(job)
    assert not can_move(replace(job, attempt=None))
    assert not can_move(replace(job, spec=replace(job.spec, preemptible=False)))
    assert not can_move(replace(job, attempt=replace(job.attempt, stop=StopOrder("cancelled", 0, 0))))
    assert not can_move(replace(job, attempt=replace(job.attempt, running_ms=0)))


def test_who_saved_since_it_runs_can_move():
    w, job = running()
    assert not can_move(job)
    assert not can_move(saved(job, w.now - 1))
    assert can_move(saved(job, w.now))


def test_moving_costs_what_cannot_be_saved_on_request():
    w, job = running(2, 3)
    overheads = Settings(checkpoint_cost_ms=3, restart_cost_ms=4)
    assert move_cost(job, overheads, w.now + 100) == 6 * (7 + 100)
    assert move_cost(saved(job, w.now + 60), overheads, w.now + 100) == 6 * (7 + 40)
    assert move_cost(saved(job, w.now + 160), overheads, w.now + 100) == 6 * 7
    asked = replace(job, spec=replace(job.spec, checkpoint=SAVES))
    assert move_cost(asked, overheads, w.now + 100) == 6 * 7


def gain(w, gang, now_ms=None):
    job = w.job(w.submit(gang=gang))
    free = w.free()
    return gain_of(job, GangPlacer(gang, free), free, w.snapshot(), w.now if now_ms is None else now_ms)


def test_what_is_gained_is_the_wait_until_the_next_expected_end():
    pools = (Pool("default"), Pool("other"))
    w = World(node("a", 4), node("b", 4, pool="other"), pools=pools, starvation_after_ms=10 * MINUTE)
    w.run(w.submit(2, pool="other", time_limit_ms=MINUTE), w.submit(2, time_limit_ms=4 * MINUTE))
    assert gain(w, ask(4)) == 4 * 4 * MINUTE, "who ends in another pool is of no use"


def test_no_wait_is_counted_beyond_the_bound_of_starvation():
    w = World(node("a", 4), starvation_after_ms=3 * MINUTE)
    w.run(w.submit(2, time_limit_ms=4 * MINUTE))
    assert gain(w, ask(2, 2)) == 4 * 3 * MINUTE
    w = World(node("a", 4), starvation_after_ms=3 * MINUTE)
    w.run(w.submit(2))
    assert gain(w, ask(4)) == 4 * 3 * MINUTE, "nobody knows when it ends"
    assert gain(w, ask(0, 2, cpus=8)) == 2 * 3 * MINUTE, "without devices each replica counts"


def test_an_overdue_end_is_expected_at_once():
    w = World(node("a", 4), starvation_after_ms=3 * MINUTE)
    w.run(w.submit(2, time_limit_ms=MINUTE))
    assert gain(w, ask(4), w.now + 2 * MINUTE) == 4


def test_whoever_moves_has_to_fit_again_beside_the_gang():
    w = World(node("a", 4), node("b", 2, cpus=3))
    w.drain("b")
    moves, leaves = w.submit(2, cpus=2), w.submit(2)
    w.run(moves, leaves)
    w.drain("b", on=False)
    branch = w.state.queue_tree().branches["default"]
    victim = Victim(w.job(moves), 1, held_places(w.job(moves)), "defrag", branch, (0,) * 4)
    free, gone = w.free(), [w.job(leaves)]
    before = list(free.state_of)
    assert fits_when_moved([victim], gone, GangPlacer(ask(4), free), free)
    assert not fits_when_moved([victim], [], GangPlacer(ask(4), free), free), "who stays is in the way"
    assert not fits_when_moved([], gone, GangPlacer(ask(4), free), free)
    assert not fits_when_moved([victim], gone, GangPlacer(ask(4, cpus=1, replicas=2), free), free)
    assert free.state_of == before
    w.drain("b")
    free = w.free()
    assert not fits_when_moved([victim], gone, GangPlacer(ask(4), free), free), "it would have nowhere to go"


# Consolidation in a cycle.


@pytest.mark.parametrize(("gain_milli", "moves"), [(600_000, True), (600_001, False)])
def test_a_gain_that_is_just_enough_is_enough(gain_milli, moves):
    """Four devices for an hour are 14.4 M device-milliseconds, 600 times what a move costs."""
    w, _ = scattered(defrag=True, defrag_gain_milli=gain_milli)
    w.submit(4)
    assert bool(rules(w.cycle())) == moves


def test_a_job_in_a_queue_that_is_gone_is_not_moved():
    w, _ = scattered(defrag=True)
    w.emit(ConfigChanged(config(defrag=True, queues=(Queue("new"),)), "operator"))
    w.submit(4, queue="new")
    assert rules(w.plan()) == []


def test_nobody_is_moved_before_its_minimum_run_time():
    w, _ = scattered(defrag=True, min_runtime_before_preemption_ms=MINUTE)
    w.submit(4)
    w.now += MINUTE - 1
    assert rules(w.plan()) == []
    w.now += 1
    assert [rule for _, rule in rules(w.plan())] == ["defrag"]


def test_the_dry_run_shows_moves_only():
    w = cluster(1, 4)
    w.run(w.submit(4, priority=100))
    w.submit(4, priority=900)
    assert rules(w.plan()) == [(1, "lower_priority")]
    assert dry_run(w.snapshot(), w.now) == ({}, {})


# Costs and the search.


@pytest.mark.parametrize(
    ("running_ms", "now_ms", "attained"),
    [(0, 900, 50), (100, 900, 50 + 6 * 800), (100, 100, 50), (100, 40, 50)],
)
def test_attained_service_counts_the_present_attempt(running_ms, now_ms, attained):
    _, job = running(2, 3)
    job = replace(job, served_device_ms=50, attempt=replace(job.attempt, running_ms=running_ms))
    assert attained_device_ms(job, now_ms) == attained
    assert attained_device_ms(replace(job, attempt=None), now_ms) == 50


def test_replicas_without_devices_count_one_each():
    w, job = running(0, 3)
    assert attained_device_ms(job, w.now + 10) == 3 * 10
    assert victim_cost(job, FREE, w.now + 10) == 3 * 10


def test_what_is_lost_counts_from_the_start_or_the_newest_checkpoint():
    w, job = running(2)
    assert victim_cost(saved(job, w.now - 9), FREE, w.now + 10) == 2 * 10
    assert victim_cost(saved(job, w.now + 99), FREE, w.now + 10) == 1
    assert victim_cost(replace(job, attempt=None), FREE, w.now + 10) == 1
    below = replace(job, spec=replace(job.spec, priority=-4))
    assert victim_cost(below, replace(FREE, priority_cost_ms_per_point=1_000), w.now + 10) == 2 * 10


def some(*costs, nodes=()):
    """Return victims 1, 2, ... of which each is alone on a node, or where `nodes` says."""
    w = cluster(len(costs), 1)
    w.run(*(w.submit(1) for _ in costs))
    branch = w.state.queue_tree().branches["default"]
    found = []
    for cost, job_id in zip(costs, sorted(w.state.jobs), strict=True):
        rank, place = held_places(w.job(job_id))[0]
        where = ((rank, replace(place, node=nodes[job_id - 1])),) if nodes else ((rank, place),)
        found.append(Victim(w.job(job_id), cost, where, "lower_priority", branch, (1_000, 0, 0, 1)))
    return found


def chosen(found, works, tries_max):
    seen = []

    def noted(some):
        seen.append([v.job.id for v in some])
        return works(set(seen[-1]))

    answer = cheapest_victims(found, noted, tries_max=tries_max)
    return None if answer is None else [v.job.id for v in answer], seen


def test_sets_are_tried_in_order_of_cost():
    answer, seen = chosen(some(1, 2, 4), lambda ids: {1, 3} <= ids, 99)
    assert answer == [1, 3]
    assert seen == [[1, 2, 3], [1], [2], [1, 2], [3], [1, 3]]


def test_only_so_many_sets_are_tried_before_the_search_turns_greedy():
    answer, seen = chosen(some(1, 2, 4), lambda ids: {2, 3} <= ids, 3)
    assert answer == [2, 3]
    assert seen[:7] == [[1, 2, 3], [1], [2], [1, 2], [1], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize(("exact_max", "answer"), [(3, [3]), (2, [2, 1])])
def test_up_to_a_number_of_victims_the_search_is_exact(monkeypatch, exact_max, answer):
    """One for 3 is cheaper than two for 2 each, which the greedy search comes upon first."""
    monkeypatch.setattr(module, "EXACT_MAX", exact_max)
    assert chosen(some(2, 2, 3), lambda ids: 3 in ids or {1, 2} <= ids, 99)[0] == answer


def borrowers(*costs, nodes):
    """Return victims of whom some may leave though all together may not."""
    return [replace(v, rule="reclaim") for v in some(*costs, nodes=nodes)]


def test_whole_nodes_are_tried_after_the_cheapest_of_many():
    """Greedy first takes the cheapest, 1 2 4 3, then whole nodes, the cheapest node first: 2 4, 1 3."""
    found = borrowers(1, 2, 9, 3, nodes=("x", "y", "x", "y"))
    answer, seen = chosen(found, lambda ids: ids == {2, 4}, 0)
    assert (answer, seen[1:6]) == ([2, 4], [[1], [1, 2], [1, 2, 4, 3], [2], [2, 4]])


def test_nodes_of_equal_cost_go_by_their_cheapest():
    found = borrowers(2, 1, 3, 4, nodes=("x", "y", "x", "y"))
    assert chosen(found, lambda ids: ids == {2, 4}, 0)[0] == [2, 4]


def test_a_victim_whose_queue_has_a_guarantee_may_do_where_all_together_do_not():
    w = cluster(1, 2, queues=(Queue("a", guaranteed=guaranteed(1)), Queue("default")))
    branch = w.state.queue_tree().branches["a"]
    found = [replace(v, branch=branch) for v in some(1, 2)]
    assert chosen(found, lambda ids: ids == {2}, 99)[0] == [2]
    assert chosen([found[0], some(1, 2)[1]], lambda ids: ids == {2}, 99)[0] == [2]
    assert chosen(some(1, 2), lambda ids: ids == {2}, 99)[0] is None


def test_jobs_whose_queue_is_gone_are_no_victims():
    w = World(node("a", 2), queues=(Queue("default"), Queue("old")))
    w.run(w.submit(2, queue="old", priority=1))
    w.submit(2, priority=900)
    assert len(w.plan().preemptions) == 1
    w.emit(ConfigChanged(config(), "operator"))
    assert w.plan().preemptions == ()


def test_an_elastic_job_whose_queue_is_gone_does_not_shrink():
    w = cluster(1, 4, queues=(Queue("default"), Queue("old")))
    w.run(w.submit(gang=elastic(1, 4), queue="old"))
    w.submit(1)
    assert [rule for _, rule in rules(w.plan())] == ["shrink"]
    w.emit(ConfigChanged(config(), "operator"))
    assert rules(w.plan()) == []


def test_what_a_victim_frees_beyond_what_was_needed_is_not_free_yet():
    w = cluster(1, 2)
    w.run(w.submit(2, priority=100))
    high, small = w.submit(1, priority=900), w.submit(1, priority=50)
    found = w.cycle()
    assert (rules(found), found.starts, list(found.held)) == ([(1, "lower_priority")], (), [high])
    w.leave(1)
    assert {s.job_id for s in w.cycle().starts} == {high, small}


def test_what_victims_free_of_a_maximum_is_kept_for_their_beneficiary():
    """Else a lower job, then the victim itself, takes it, and they are preempted in turns for ever."""
    w = cluster(1, 8, queues=(Queue("default"), Queue("q", max=(("devices", 2_000),))))
    victim = w.submit(1, queue="q", priority=100)
    w.run(victim)
    wide, _ = w.submit(2, queue="q", priority=900), w.submit(1, queue="q", priority=50)
    assert cycles(w, 6) == [(victim, wide, "lower_priority")]
    assert w.phase(wide) == "running"
