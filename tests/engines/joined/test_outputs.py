"""What programs on another machine write is on the server: whole, once, in order, and in nobody's way."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank
from penstock.engines.agent import sending
from penstock.engines.agent.protocol import OUTPUT_PIECE_BYTES, AgentOutput, ServerStored
from penstock.engines.agent.sending import OutputSender
from penstock.engines.agent.state_machine import ReplicaEntry
from penstock.engines.joined import outputs as arriving
from penstock.engines.joined.outputs import ArrivingOutputs, JobPlaces
from penstock.engines.local.launch import agent_pid
from penstock.engines.processes.jobfolders import mark_of
from penstock.engines.processes.paths import DataFolder
from tests.engines.joined.conftest import MARK_OF_JOB, JoinServer, Machine
from tests.server.harness import until

AWAY = NodeName("away")


def key(job: int = 1, attempt: int = 1, rank: int = 0) -> ReplicaKey:
    return ReplicaKey(JobId(job), AttemptNumber(attempt), Rank(rank))


@pytest.fixture
def joined(server: JoinServer, machine: Machine) -> JoinServer:
    machine.join(server.bundle())
    until(lambda: server.joining.declared()[0].joined_ms and server.reports, "it has joined")
    return server


def same(server: JoinServer, machine: Machine, one: ReplicaKey) -> bool:
    here, there = server.data.output(one), machine.data.output(one)
    return here.exists() and here.read_bytes() == there.read_bytes()


def whole(server: JoinServer, one: ReplicaKey) -> bool:
    assert server.arriving is not None
    return not server.arriving.arriving(one.job_id, lambda: {AWAY})


# Over the link.


def test_output_and_report_of_a_program_arrive(joined: JoinServer, machine: Machine) -> None:
    joined.place(key())
    joined.start(
        "sh", "-c", 'echo first; echo \'{"kind": "progress", "step": 3}\' >> "$PENSTOCK_REPORT_FILE"; seq 100000'
    )
    until(lambda: whole(joined, key()), "all has come")
    assert same(joined, machine, key())
    assert joined.data.report(key()).read_text() == '{"kind": "progress", "step": 3}\n'
    assert mark_of(joined.data.job(JobId(1))) == MARK_OF_JOB


def test_an_output_is_followed_while_its_program_runs(joined: JoinServer) -> None:
    joined.place(key())
    running = joined.start("sh", "-c", "echo hello; sleep 60")
    until(
        lambda: joined.data.output(key()).exists() and joined.data.output(key()).read_text() == "hello\n", "it is here"
    )
    assert not whole(joined, running)


def test_nothing_is_lost_or_doubled_when_agent_and_connection_go(joined: JoinServer, machine: Machine) -> None:
    joined.place(key())
    joined.start("sh", "-c", "for i in 1 2 3 4 5 6; do seq 20000; sleep 0.2; done")
    for size in (10_000, 200_000, 400_000):
        until(
            lambda size=size: joined.data.output(key()).exists() and joined.data.output(key()).stat().st_size > size,
            "more",
        )
        if size == 200_000:
            joined.engine.hang_up()
        else:
            os.kill(agent_pid(machine.data, "away") or 0, signal.SIGKILL)
    until(lambda: whole(joined, key()), "all has come")
    assert same(joined, machine, key())


def test_a_node_is_believed_about_its_own_replicas_alone(joined: JoinServer) -> None:
    joined.place(key(), node="other")
    joined.start("sh", "-c", "echo hello")
    joined.ended(key())
    joined.place(key(2))
    joined.start("sh", "-c", "echo mine")
    until(lambda: whole(joined, key(2)), "its own has come")
    assert not joined.data.output(key()).exists()


# What the server keeps.


class Kept:
    def __init__(self, root: Path) -> None:
        self.data = DataFolder(root)
        places = {JobId(1): JobPlaces({(AttemptNumber(1), Rank(0)): AWAY}, "")}
        self.outputs = ArrivingOutputs(self.data, places.get, lambda name: name == AWAY)

    def store(self, offset: int, data: bytes = b"", *, ends: bool = False, **fields: Any) -> ServerStored:
        kind = fields.pop("kind", "output")
        return self.outputs.store(fields.pop("node", AWAY), AgentOutput(7, key(**fields), kind, offset, data, ends))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_a_piece_that_comes_twice_is_kept_once(kept: Kept) -> None:
    assert [kept.store(0, b"abc").size, kept.store(0, b"xyz").size, kept.store(3, b"de").size] == [3, 3, 5]
    assert kept.data.output(key()).read_bytes() == b"abcde"


def test_what_the_node_has_given_up_is_a_hole_here_too(kept: Kept) -> None:
    kept.store(0, b"abc")
    assert kept.store(10, b"x").size == 11
    assert kept.data.output(key()).read_bytes() == b"abc" + bytes(7) + b"x"


@pytest.mark.parametrize("wrong", [{"node": "other"}, {"attempt": 2}, {"job": 2}, {"rank": 1}])
def test_pieces_of_what_is_not_there_are_unwanted(kept: Kept, wrong: dict[str, Any]) -> None:
    assert kept.store(0, b"abc", **wrong) == ServerStored(7, unwanted=True)
    assert not kept.data.job(JobId(1)).exists()


@pytest.mark.parametrize("offset", [-1, 2**50 + 1])
def test_offsets_are_within_bounds(kept: Kept, offset: int) -> None:
    assert kept.store(offset, b"abc").unwanted


def test_on_a_full_disk_nothing_is_kept_and_nothing_lost(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(arriving, "DISK_LEAST_BYTES", 2**62)
        assert kept.store(0, b"abc").problem == "the server's disk is nearly full"
    assert kept.store(0, b"abc").size == 3


def test_a_link_in_the_place_of_an_output_is_not_followed(kept: Kept, tmp_path: Path) -> None:
    kept.store(0)
    kept.data.output(key()).unlink()
    kept.data.output(key()).symlink_to(tmp_path / "elsewhere")
    assert "cannot keep it" in kept.store(0, b"abc").problem
    assert not (tmp_path / "elsewhere").exists()


def test_outputs_are_awaited_from_connected_nodes_until_their_end(kept: Kept) -> None:
    def awaited(*nodes: str) -> bool:
        return kept.outputs.arriving(JobId(1), lambda: set(map(NodeName, nodes)))

    assert awaited("away")
    assert not awaited("other")
    kept.store(0, b"abc")
    assert awaited("away")
    kept.store(3, ends=True)
    assert not awaited("away")
    assert Kept(kept.data.root).outputs.arriving(JobId(1), lambda: {AWAY}) is False, "a restart knows it, too"


def test_whose_output_never_came_is_known(kept: Kept) -> None:
    assert kept.outputs.missing(JobId(1), AttemptNumber(1), Rank(0)) == "away"
    assert kept.outputs.missing(JobId(1), AttemptNumber(1), Rank(5)) == ""


# What the node sends.


class Node:
    """A sender with a clock by hand, and a server that keeps what it gets."""

    def __init__(self, root: Path) -> None:
        self.data, self.now_s = DataFolder(root), 100.0
        self.folder = root / "nodes" / "away"
        self.folder.mkdir(parents=True)
        self.entries: dict[ReplicaKey, ReplicaEntry] = {}
        self.got: dict[tuple[ReplicaKey, str], bytes] = {}
        self.sender = self.again()

    def again(self) -> OutputSender:
        self.sender = OutputSender(self.data, self.folder, self.entries, lambda: self.now_s)
        return self.sender

    def writes(self, one: ReplicaKey, data: bytes, state: Any = "running") -> None:
        self.entries[one] = ReplicaEntry(one, state)
        self.data.job(one.job_id).mkdir(parents=True, exist_ok=True)
        with self.data.output(one).open("ab") as file:
            file.write(data)

    def piece(self) -> AgentOutput | None:
        self.now_s += 1
        return self.sender.next()

    def answer(self, piece: AgentOutput) -> None:
        place = piece.key, piece.kind
        had = self.got.setdefault(place, b"")
        if piece.data and piece.offset >= len(had):
            self.got[place] = had.ljust(piece.offset, b"\0") + piece.data
        self.sender.stored(ServerStored(piece.number, len(self.got[place])))

    def run(self, turns: int = 60) -> list[AgentOutput]:
        seen = []
        for _ in range(turns):
            if (piece := self.piece()) is not None:
                seen.append(piece)
                self.answer(piece)
        return seen


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_one_piece_is_on_its_way_at_a_time(node: Node) -> None:
    node.writes(key(), b"abc")
    first = node.piece()
    assert first is not None
    assert node.piece() is None
    node.answer(first)
    assert node.piece() is not None


def test_a_flood_of_one_replica_holds_up_no_other(node: Node) -> None:
    node.writes(key(1), b"x" * (20 * OUTPUT_PIECE_BYTES))
    node.writes(key(2), b"short")
    seen = [piece for piece in node.run(30) if piece.data]
    assert JobId(2) in [piece.key.job_id for piece in seen[:2]]
    assert max(len(piece.data) for piece in seen) == OUTPUT_PIECE_BYTES


def test_the_end_of_a_replica_is_said_after_its_last_byte(node: Node) -> None:
    node.writes(key(), b"abc")
    node.run()
    node.writes(key(), b"def", "exited")
    outputs = [piece for piece in node.run() if piece.kind == "output"]
    assert [(piece.data, piece.ends) for piece in outputs] == [(b"def", False), (b"", True)]
    assert not node.sender.sends(key())
    assert node.run() == []


def test_a_new_worker_sends_what_a_former_one_had_not(node: Node) -> None:
    node.writes(key(), b"abcdef", "exited")
    node.piece()
    node.entries.clear()  # acknowledged: the agent has forgotten it
    node.again()
    node.run()
    assert node.got[key(), "output"] == b"abcdef"


def test_a_server_that_can_keep_nothing_is_asked_again_later(node: Node) -> None:
    node.writes(key(), b"abc")
    piece = node.piece()
    assert piece is not None
    node.sender.stored(ServerStored(piece.number, problem="full"))
    assert node.piece() is None
    node.now_s += sending.PAUSE_S
    node.run()
    assert node.got[key(), "output"] == b"abc"


def test_what_is_unwanted_is_not_sent_again(node: Node) -> None:
    node.writes(key(), b"abc")
    for _ in range(2):
        piece = node.piece()
        assert piece is not None
        node.sender.stored(ServerStored(piece.number, unwanted=True))
    assert node.run() == []


@given(st.lists(st.sampled_from(["write", "next", "answer", "cut", "worker"]), max_size=60), st.randoms())
def test_whatever_breaks_in_between_the_server_has_it_whole(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], random: Any
) -> None:
    node = Node(tmp_path_factory.mktemp("node"))
    out: AgentOutput | None = None
    written = b""
    for step in steps:
        if step == "write":
            data = random.randbytes(random.choice([1, 1000, OUTPUT_PIECE_BYTES + 5]))
            written += data
            node.writes(key(), data)
        elif step == "next":
            out = node.piece() or out
        elif step == "answer" and out is not None:
            node.answer(out)
        elif step == "cut":
            node.sender.begin()
        elif step == "worker":
            node.again()
    node.writes(key(), b"", "exited")
    node.sender.begin()
    node.run(400)
    assert node.got[key(), "output"] == written
