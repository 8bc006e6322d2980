"""What is heard of a node: only about its own replicas, and never more than has room."""

import pytest
from msgspec.structs import replace

from penstock.control.report_filter import NAME_MAX_CHARS, SAID_MAX_CHARS, heard
from penstock.core.messages.reports import (
    NodeCheck,
    NodeReport,
    ProgressSeen,
    ReplicaInspected,
    ReplicaKey,
    ReplicaSeen,
)
from penstock.core.model.hangs import FRAMES_MAX, Frame, Sight
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.measured import Measured
from penstock.testing.builders import node
from penstock.testing.harness import World
from tests.control.rig import Rig

LONG = "x" * 100_000


@pytest.fixture
def cluster():
    """Job 1 on one of two nodes."""
    made = World()
    for name in ("a", "b"):
        made.hello(node(name))
    made.submit()
    made.run(1)
    return made


@pytest.fixture
def places(cluster):
    here = cluster.where(1)
    return here, {"a": "b", "b": "a"}[here]


def report(node: str, **fields) -> NodeReport:
    return NodeReport(node, "life", 1, False, **fields)


KEY = ReplicaKey(1, 1, 0)
CHECKPOINT = ProgressSeen(KEY, "checkpoint", 10, 5, "periodic")
SEEN = ReplicaInspected(KEY, Sight(0, stack=(Frame("f", "a.py", 3),)))


def test_a_node_is_heard_about_its_own_replicas(cluster, places):
    said = report(places[0], progress=(CHECKPOINT,), inspected=(SEEN,))
    assert heard(cluster.state, said, cluster.now) == said


def test_what_a_node_says_of_anothers_replica_is_not_heard(cluster, places):
    said = report(places[1], progress=(CHECKPOINT,), inspected=(SEEN,))
    assert heard(cluster.state, said, cluster.now) == report(places[1])


@pytest.mark.parametrize("key", [ReplicaKey(1, 1, 7), ReplicaKey(1, 1, -1), ReplicaKey(99, 1, 0), ReplicaKey(1, 2, 0)])
def test_what_a_node_says_of_a_replica_that_is_not_there_is_not_heard(cluster, places, key):
    said = report(
        places[0], progress=(ProgressSeen(key, "progress", 10),), inspected=(ReplicaInspected(key, Sight(0)),)
    )
    assert heard(cluster.state, said, cluster.now) == report(places[0])


USED = Measured(4_000, 3_000, 4_000, 2_000_000, 2**30, 1, 900)


def ended(**used) -> ReplicaSeen:
    return ReplicaSeen(KEY, "exited", exit=ExitInfo(0, measured=replace(USED, **used)))


def test_what_a_replica_can_have_used_is_heard(cluster, places):
    assert heard(cluster.state, report(places[0], replicas=(ended(),)), cluster.now).replicas == (ended(),)


@pytest.mark.parametrize(
    "used",
    [
        {"measured_ms": 70_001},
        {"powered_ms": 70_001},
        {"busy_ms": 4_001},
        {"busy_ms": -1},
        {"energy_mj": 4 * 5_000_000 + 1},
        {"energy_mj": -5},
        {"device_memory_peak_bytes": 2**50},
        {"devices_touched": 2},
        {"cpu_ms": 70_000 * 4_096 + 1},
    ],
)
def test_what_a_replica_cannot_have_used_is_dropped_and_its_exit_is_heard(cluster, places, used):
    """It holds one device, for 10 s."""
    cluster.now += 10_000
    found = heard(cluster.state, report(places[0], replicas=(ended(**used),)), cluster.now)
    assert [seen.exit for seen in found.replicas] == [ExitInfo(0)]


def test_what_a_node_says_of_the_use_of_anothers_replica_is_dropped(cluster, places):
    found = heard(cluster.state, report(places[1], replicas=(ended(),)), cluster.now)
    assert [seen.exit for seen in found.replicas] == [ExitInfo(0)]


def test_long_texts_are_cut(cluster, places):
    said = report(
        places[0],
        replicas=(
            ReplicaSeen(KEY, "exited", exit=ExitInfo(1, problem=LONG, note=LONG, last_error=LONG), refused=LONG),
        ),
        progress=(ProgressSeen(KEY, "checkpoint", 1, why=LONG),),
        inspected=(
            ReplicaInspected(KEY, Sight(0, "?", False, 0, (Frame(LONG, LONG),) * 99, False, (LONG,) * 99, LONG, LONG)),
        ),
        check=NodeCheck(passed=False, text=LONG),
    )
    found = heard(cluster.state, said, cluster.now)
    (seen,), (progress,), (sight,) = found.replicas, found.progress, [i.sight for i in found.inspected]
    of_replica = (seen.exit.problem, seen.exit.note, seen.exit.last_error, seen.refused)
    texts = (*of_replica, progress.why, found.check.text, sight.problem, sight.killed)
    assert {len(text) for text in texts} == {SAID_MAX_CHARS}
    assert (len(sight.stack), len(sight.native)) == (FRAMES_MAX, FRAMES_MAX)
    assert {len(n) for n in (sight.stack[0].function, sight.stack[0].file, sight.native[0])} == {NAME_MAX_CHARS}


def test_a_checkpoint_counts_only_when_the_jobs_own_node_says_so():
    rig = Rig("a", "b")
    job = rig.submit()
    rig.cycle()
    here = rig.state.jobs[job].attempt.replicas[0].place.node
    for name in ({"a": "b", "b": "a"}[here], here):
        seen = [ProgressSeen(ReplicaKey(job, 1, 0), kind, 7) for kind in ("checkpoint", "progress")]
        rig.report(name, progress=tuple(seen), inventory=False)
        heard_of = (rig.state.jobs[job].progress.checkpoint_step, rig.controller.reached.get(job, 0))
        assert heard_of == ((7, 7) if name == here else (0, 0))


def test_of_checkpoints_that_a_node_tells_of_at_once_the_newest_of_each_job_is_heard(cluster, places):
    here, _ = places
    told = tuple(ProgressSeen(KEY, "checkpoint", step) for step in (*range(1_000), 7))
    resumed = ProgressSeen(KEY, "resumed", 3)
    found = heard(cluster.state, report(here, progress=(*told, resumed)), cluster.now)
    assert found.progress == (ProgressSeen(KEY, "checkpoint", 999), resumed)


def test_of_signals_that_a_program_says_at_once_the_last_is_heard(cluster, places):
    here, _ = places
    told = tuple(ProgressSeen(KEY, "listens", 0, why=name) for name in ("SIGUSR1", "") * 500)
    saved = ProgressSeen(KEY, "checkpoint", 3)
    found = heard(cluster.state, report(here, progress=(saved, *told)), cluster.now)
    assert found.progress == (saved, told[-1])
