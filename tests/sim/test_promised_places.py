"""The fault simulator's own folds of rounds and moves: each thing that must not be is named."""

import pytest
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.batching import BatchAsk, BatchChoice, ElasticRule
from penstock.core.model.cluster import Pool
from penstock.core.model.jobs import CheckpointSpec, GangAsk, ReplicaPlace, Room
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.sim.world import mixed
from penstock.sim.world.rounds import RoundsCheck
from penstock.sim.world.training import POOL, out_of_range
from penstock.testing.builders import config, device, job_spec, node

PERIOD_MS = 1_000
CONFIG = config(
    pools=(Pool(POOL, elastic=ElasticRule(rebalance=True, restarts_per_hour=1)),), elastic_growth_period_ms=PERIOD_MS
)
HALF_S, LATER = 500, ev.NodeReady("n9")


def gang(least, most, pool=POOL):
    return GangAsk(least, ReplicaAsk(Resources(), DeviceAsk(1)), pool=pool, replicas_max=most)


def at(*devices, on="n0"):
    return tuple(ReplicaPlace(on, "i1", (index,)) for index in devices)


def submitted(job, least=1, most=4, **fields):
    return ev.JobSubmitted(
        job, job_spec(gang=gang(least, most), checkpoint=CheckpointSpec(request_signal="SIGUSR1"), **fields), "u"
    )


def runs(job, attempt, places, basis=1):
    started = [ev.ReplicaStarted(job, attempt, rank) for rank in range(len(places))]
    return [ev.AttemptAllocated(job, attempt, places, basis=basis), *started]


def asked(job, attempt, *rooms, basis=2, decided_ms=5_000, reason="resized"):
    return ev.AttemptStopRequested(
        job,
        attempt,
        reason,
        0,
        job,
        rule="rebalance",
        basis=basis,
        decided_ms=decided_ms,
        rooms=tuple(Room(*one) for one in rooms),
    )


def told(check, *events):
    """Return what is wrong with a log of events, half a second apart."""
    return list(check.violations([ev.Record(seq, seq * HALF_S, event) for seq, event in enumerate(events, 1)]))


OPEN = ev.NodeReady("n0")
BEGUN = [OPEN, submitted(1), submitted(2), *runs(1, 1, at(0, 1))]
GROWS = asked(1, 1, (1, at(0, 1, 2)))
LEFT = [ev.AttemptEnded(1, 1, "resized"), ev.JobRequeued(1, "resized")]


def test_a_job_that_grows_and_comes_back_is_as_it_should_be():
    assert told(RoundsCheck(CONFIG, POOL), *BEGUN, GROWS, *LEFT, *runs(1, 2, at(0, 1, 2), 3)) == []


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        (
            [*BEGUN, GROWS, *runs(2, 1, at(2), 3)],
            "job 2 was given n0:2, and n0:0, n0:1, n0:2 are kept for job 1 by the plan of 2",
        ),
        ([*BEGUN, asked(1, 1, (1, at(0, 1, 2)), decided_ms=3_200)], "job 1 is restarted 200 ms after it began to run"),
        ([*BEGUN, asked(1, 1, (1, at(0, 1, 2, 3, 4)))], "job 1 was given 5 replicas, 1 to 4 are accepted"),
        ([OPEN, submitted(1, 2), *runs(1, 1, at(0))], "job 1 was given 1 replicas, 2 to 4 are accepted"),
        ([*BEGUN, asked(1, 1, (1, at(0, on="n1")))], "a round gives job 1 places on n1, which takes no work"),
        (
            [*BEGUN, *runs(2, 1, at(3)), GROWS, asked(2, 1, (2, at(3)), basis=3)],
            "a round asks job 2 to leave while job 1 leaves",
        ),
        (
            [*BEGUN, GROWS, *LEFT, *runs(1, 2, at(0, 1, 2), 3), asked(1, 2, (1, at(0)), basis=9, decided_ms=60_000)],
            "job 1 is restarted 2 times in an hour, 1 are allowed",
        ),
        (
            [OPEN, submitted(1, preemptible=False), *runs(1, 1, at(0)), asked(1, 1, (2, at(0)), reason="preempted")],
            "job 1 is sent back to wait, and may not be preempted, or has nothing saved",
        ),
    ],
)
def test_what_a_round_must_not_do_is_named(log, wrong):
    assert told(RoundsCheck(CONFIG, POOL), *log) == [wrong]


@pytest.mark.parametrize(
    "void",
    [
        ev.NodeLost("n0", "no heartbeat"),
        ev.NodeDrainChanged("n0", True, "op"),
        ev.JobCancelRequested(1, "u"),
        ev.JobHeld(1, "u"),
        ev.AttemptEnded(1, 1, "failed"),
    ],
)
def test_places_are_kept_no_longer_than_their_job_may_come(void):
    assert told(RoundsCheck(CONFIG, POOL), *BEGUN, GROWS, void, *runs(2, 1, at(2), 3)) == []


# Moves between models.

FAST, SLOW = (
    ev.NodeRegistered(node("f", 2, pool=mixed.POOL), "i1"),
    ev.NodeRegistered(node("s", 2, pool=mixed.POOL), "i1"),
)
FAST = replace(FAST, spec=replace(FAST.spec, devices=tuple(device(i, model=mixed.FAST) for i in range(2))))
SLOW = replace(SLOW, spec=replace(SLOW.spec, devices=tuple(device(i, model=mixed.SLOW) for i in range(2))))


def comes(job, **fields):
    return ev.JobSubmitted(job, job_spec(gang=gang(1, 0, mixed.POOL), **fields), "u")


def moves(job, attempt, room, *, basis=2, decided_ms=20_000):
    return ev.AttemptStopRequested(
        job, attempt, "moved", 0, job, rule="model", basis=basis, decided_ms=decided_ms, room=room
    )


SAVED = ev.CheckpointSaved(1, 1, 10)
MOVER = [FAST, SLOW, comes(1), *runs(1, 1, at(0, on="s"))]


def test_a_job_that_has_saved_may_move():
    assert told(mixed.MovesCheck(), *MOVER, SAVED, moves(1, 1, at(0, on="f"))) == []


def test_two_jobs_of_one_priority_change_places():
    both = [*MOVER, SAVED, comes(2), *runs(2, 1, at(0, on="f")), ev.CheckpointSaved(2, 1, 5)]
    assert told(mixed.MovesCheck(), *both, moves(1, 1, at(0, on="f")), moves(2, 1, at(0, on="s"))) == []


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        ([*MOVER, moves(1, 1, at(0, on="f"))], ["job 1 is moved, and may not be, or has nothing saved"]),
        (
            [*MOVER, SAVED, moves(1, 1, at(0, on="f"), decided_ms=3_000)],
            ["job 1 is moved 500 ms after it began to run"],
        ),
        ([*MOVER, SAVED, moves(1, 1, at(1, on="s"))], ["job 1 is moved from ['V100-SIM'] to ['V100-SIM']"]),
        (
            [*MOVER, SAVED, comes(2, priority=900), *runs(2, 1, at(0, on="f")), moves(1, 1, at(0, on="f"))],
            ["job 2 of default leaves its model for job 1 of default", "job 1 moves to devices of job 2, which stays"],
        ),
    ],
)
def test_a_move_that_must_not_be_is_named(log, wrong):
    assert told(mixed.MovesCheck(), *log) == wrong


@pytest.mark.parametrize(
    ("batch", "replicas", "wrong"),
    [
        (BatchChoice(16), 4, ""),
        (BatchChoice(17), 4, "68 samples an update, at most 64 are accepted"),
        (BatchChoice(33), 1, "33 samples a pass, 1 to 32 are accepted"),
        (BatchChoice(7), 2, "14 samples an update, at least 16 are accepted"),
    ],
)
def test_a_batch_out_of_the_range_of_its_job_is_named(batch, replicas, wrong):
    assert out_of_range(batch, replicas, BatchAsk(16, 64, 32)) == wrong
