"""Consolidation: jobs that can save move so that a gang fits, when that is worth it, and nobody else is disturbed."""

import pytest

from penstock.core.model.jobs import CheckpointSpec
from penstock.core.state.snapshot import take_snapshot
from penstock.core.status.defrag import dry_run
from penstock.testing.builders import node
from penstock.testing.harness import World

SAVES = CheckpointSpec(request_signal="SIGUSR1")


def scattered(checkpoint=SAVES, **settings):
    """Two nodes of four devices, each with two busy ones: four are free, but no node has four."""
    w = World(node("a", 4), node("b", 4), starvation_after_ms=3_600_000, **settings)
    jobs = [w.submit(2, checkpoint=checkpoint, preemptible=True) for _ in range(2)]
    w.cycle()
    if w.where(jobs[0]) == w.where(jobs[1]):  # packed by the score: make the holes by hand
        w.cancel(jobs[1])
        w.start(jobs[0])
        w.leave(jobs[1])
        w.drain(w.where(jobs[0]))
        jobs[1] = w.submit(2, checkpoint=checkpoint)
        w.cycle()
        w.drain("a", on=False)
        w.drain("b", on=False)
    for job in jobs:
        if w.phase(job) == "starting":
            w.start(job)
    assert {w.where(j) for j in jobs} == {"a", "b"}
    return w, jobs


def rules(found):
    return [(p.victim, p.rule) for p in found.preemptions]


def test_one_job_moves_and_the_gang_starts_where_it_was():
    w, jobs = scattered(defrag=True)
    wide = w.submit(4)
    found = w.cycle()
    assert [rule for _, rule in rules(found)] == ["defrag"]
    (moved,) = [v for v, _ in rules(found)]
    left = w.where(moved)
    w.leave(moved)
    w.cycle()
    assert w.where(wide) == left
    assert w.where(moved) != left
    assert w.phase(next(j for j in jobs if j != moved)) == "running"
    assert w.job(moved).preemptions == 0


def test_nobody_moves_while_the_setting_is_off():
    w, _ = scattered()
    w.submit(4)
    assert rules(w.cycle()) == []


def test_the_dry_run_shows_it_and_changes_nothing():
    w, jobs = scattered()
    wide = w.submit(4)
    before = w.state.seq
    moves, places = dry_run(take_snapshot(w.state), w.now)
    assert list(moves) == [wide]
    ((victim, cost),) = moves[wide]
    assert victim in jobs
    assert cost == 2 * (2_000 + 10_000)
    assert [len(p.devices) for p in places[wide]] == [4]
    assert w.state.seq == before


def test_a_job_that_cannot_save_does_not_move():
    w, _ = scattered(checkpoint=CheckpointSpec(), defrag=True)
    w.submit(4)
    assert rules(w.cycle()) == []


@pytest.mark.parametrize(("gain_milli", "moves"), [(100_000, True), (10_000_000, False)])
def test_moving_must_gain_more_than_it_costs(gain_milli, moves):
    w, _ = scattered(defrag=True, defrag_gain_milli=gain_milli)
    w.submit(4)  # spared: 4 devices x one hour = 14.4 M; a move costs 24 k device-milliseconds
    assert bool(rules(w.cycle())) == moves


def test_a_gang_that_finds_no_room_for_the_moved_moves_nobody():
    w, _ = scattered(defrag=True)
    w.submit(2, preemptible=False)
    w.cycle()
    w.submit(4)
    assert rules(w.cycle()) == []
