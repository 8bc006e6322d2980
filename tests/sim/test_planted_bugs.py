"""Each planted bug that concerns the core alone is seen by the promises, or by what follows in the core."""

from contextlib import nullcontext

import pytest

from penstock.core.messages.orders import StopReplica
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.jobs import ExitInfo
from penstock.sim.world.planted import planted
from penstock.testing.builders import node
from penstock.testing.harness import World, cluster


@planted("gang_checked_one_by_one")
def test_a_gang_checked_one_by_one_is_caught_at_the_commit():
    w = World(node("a", 0, cpus=2))
    w.submit(0, cpus=2)
    w.submit(0, cpus=2)
    with pytest.raises(BrokenInvariant, match="no_host_beyond_capacity"):
        w.cycle()


@planted("gang_checked_one_by_one")
@planted("plan_not_verified")
def test_two_starts_on_one_device_are_caught_in_the_fold():
    w = cluster(1, 1)
    w.submit(1)
    w.submit(1)
    with pytest.raises(BrokenInvariant, match="device 0 of n0 given to job 2, held by 1"):
        w.cycle()


@planted("plan_not_verified")
def test_a_plan_that_is_not_verified_is_caught_on_a_lost_node():
    w = cluster(1, 1)
    w.submit(1)
    stale = w.plan()
    w.lose("n0")
    with pytest.raises(BrokenInvariant, match="holders_live_on_their_node"):
        w.apply(stale)


def test_the_same_histories_are_sound_without_the_bugs():
    w = cluster(1, 1)
    w.submit(1)
    w.submit(1)
    stale = w.plan()
    w.lose("n0")
    assert w.apply(stale).starts == ()


def preempting():
    w = cluster(1, 1)
    victim = w.submit(1, priority=100)
    w.run(victim)
    alive = w.seen(victim)
    w.submit(1, priority=1000)
    w.cycle()
    return w, victim, alive


@planted("released_before_gone")
def test_a_place_freed_before_its_processes_are_gone_shows_as_a_stranger_on_the_node():
    w, victim, alive = preempting()
    assert w.phase(victim) == "waiting"
    assert [s.places[0].devices for s in w.cycle().starts] == [(0,)]
    answer = w.report("n0", alive, inventory=True)
    assert StopReplica(alive.key, 0, "not current") in answer


def test_without_the_bug_the_victim_holds_its_place_until_it_is_gone():
    w, victim, alive = preempting()
    assert w.phase(victim) == "stopping"
    assert w.cycle().starts == ()
    assert [type(o).__name__ for o in w.report("n0", alive, inventory=True)] == ["StopReplica"]
    assert w.phase(victim) == "stopping"


@pytest.mark.parametrize(("bug", "phase"), [(None, "running"), ("old_attempt_accepted", "waiting")])
def test_an_old_attempt_that_is_believed_ends_the_new_one(bug, phase):
    w = cluster(1, 1)
    job = w.submit(1, retries_max=5)
    w.run(job)
    late = w.seen(job, 0, "exited", exit=ExitInfo(1))
    w.exit_replica(job, 0, 1)
    w.now += 1_000
    w.run(job)
    with planted(bug) if bug else nullcontext():
        w.report("n0", late, inventory=False)
    assert w.phase(job) == phase
