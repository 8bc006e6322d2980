"""A node gets a snapshot while a job that starts in it has a replica there, and nothing else."""

import pytest

from penstock.core.model import folder_snapshots as fs
from penstock.core.model.folder_snapshots import SnapshotFile
from penstock.core.model.ids import NodeName
from penstock.engines.agent.protocol import WANTED_MAX, AgentFetch
from penstock.server.services.folder_snapshots import NOT_HERE, SnapshotService
from penstock.store.folder_snapshots import FolderSnapshots, holder
from penstock.testing.builders import node
from penstock.testing.harness import World

BY = holder("ann", delegated=False, only=())
CONTENT = b"print('hello')"


@pytest.fixture
def kept(tmp_path):
    made = FolderSnapshots(tmp_path, lambda: 1)
    made.add(BY, [CONTENT])
    return made


@pytest.fixture
def name(kept):
    files = (SnapshotFile("train.py", "file", len(CONTENT), (fs.chunk_hash(CONTENT),)),)
    found = fs.name_of(fs.encoded(files))
    assert kept.declare(BY, found, files, ()).complete
    return f"{BY}/{found}"


@pytest.fixture
def world(name):
    made = World(node("n1"), node("n2"))
    made.submit(4, snapshot=name)
    made.cycle()
    return made


def asked(kept, world, at, wanted):
    return SnapshotService(kept, lambda: world.state).fetch(NodeName(at), wanted)


def test_only_the_node_of_the_replica_gets_it(kept, world, name):
    (here,) = {replica.place.node for job in world.state.jobs.values() for replica in job.attempt.replicas}
    other = {"n1": "n2", "n2": "n1"}[here]
    wanted = AgentFetch(7, name, (0,))
    assert asked(kept, world, here, wanted).chunks == (CONTENT,)
    assert (asked(kept, world, other, wanted).problem, asked(kept, world, "n9", wanted).problem) == (NOT_HERE,) * 2
    assert asked(kept, world, here, AgentFetch(7, f"{BY}/{'0' * 64}", (0,))).problem == NOT_HERE
    assert asked(kept, world, here, AgentFetch(7, name, (0,) * (WANTED_MAX + 1))).problem == NOT_HERE


def test_the_list_comes_in_pieces_with_its_size(kept, world, name):
    (here,) = {replica.place.node for job in world.state.jobs.values() for replica in job.attempt.replicas}
    whole = kept.files(BY, name.partition("/")[2])
    part = asked(kept, world, here, AgentFetch(1, name, offset=5))
    assert (part.number, part.chunks, part.total) == (1, (whole[5:],), len(whole))


def test_what_the_server_has_lost_is_a_problem_of_the_start(kept, world, name, tmp_path):
    (here,) = {replica.place.node for job in world.state.jobs.values() for replica in job.attempt.replicas}
    lost = FolderSnapshots(tmp_path / "elsewhere", lambda: 1)
    assert "there is no snapshot" in asked(lost, world, here, AgentFetch(1, name)).problem


def test_a_missing_chunk_number_is_a_problem_and_no_crash(kept, world, name):
    (here,) = {replica.place.node for job in world.state.jobs.values() for replica in job.attempt.replicas}
    assert "has 1 chunks" in asked(kept, world, here, AgentFetch(1, name, (5,))).problem
