"""Programs in MIG instances of simulated devices: made by a real agent before they start, kept for the next one."""

import os
import queue
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.core.messages.orders import DivideDevice, StopReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.nodes import DeviceInstances
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.devices.mig_apply import NotMade
from penstock.devices.mig_journal import Given
from penstock.devices.simulated import simulated
from penstock.devices.simulated_mig import SimulatedMig, simulated_uuid
from penstock.engines.agent.journal import ExitBook, Journal, JournalLine
from penstock.engines.agent.parts import NodeParts
from penstock.engines.agent.replicas import Replicas
from penstock.engines.local.launch import agent_pid
from penstock.engines.processes.containment import choose
from penstock.engines.processes.paths import DataFolder
from penstock.testing.builders import device
from tests.engines.agent.builders import start
from tests.engines.agent.fakeserver import FakeServer
from tests.server.harness import until

A100S = simulated(2, "A100", 40 * 10**9, mig=True)
SHOWS = ("sh", "-c", 'echo "sees=$PENSTOCK_DEVICE_UUIDS,$PENSTOCK_DEVICES,$CUDA_VISIBLE_DEVICES"; exec sleep 60')


def part(profile: str, start: int, *, index: int = 0) -> dict:
    ask = ReplicaAsk(Resources(1_000), DeviceAsk(1, profile=profile))
    return {"ask": ask, "devices": (index,), "slots": (start,)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    made = FakeServer(tmp_path_factory.mktemp("node"))
    try:
        made.agent(devices=A100S)
        made.ready()
        made.next_inventory(lambda _: True)  # so the first one is acknowledged, and the agent has its lease
        yield made
    finally:
        made.close()


def lies(server: FakeServer, index: int = 0) -> list[str]:
    smi = SimulatedMig(server.data.node("n1") / "mig.json", A100S)
    return [f"{profile}@{at}" for profile, at in smi.lies(index)]


def uuid_of(server: FakeServer, key: ReplicaKey) -> str:
    server.said(key, "sees=")
    found = re.search(r"sees=(MIG-[0-9a-f-]{36}),0,\n", server.data.output(key).read_text())
    assert found, server.data.output(key).read_text()
    return found[1]


def ended(server: FakeServer, key: ReplicaKey) -> None:
    server.order(StopReplica(key, 0))
    server.ended(key)


def test_a_program_sees_its_instance_which_stays_for_the_next_one_until_it_is_in_the_way(server):
    first = server.start(*SHOWS, **part("3g.20gb", 4))
    other = server.start(*SHOWS, **part("1g.5gb", 0))
    uuid = uuid_of(server, first)
    assert (uuid != uuid_of(server, other), lies(server)) == (True, ["1g.5gb@0", "3g.20gb@4"])
    ended(server, first)
    assert lies(server) == ["1g.5gb@0", "3g.20gb@4"]
    second = server.start(*SHOWS, **part("3g.20gb", 4))
    assert uuid_of(server, second) == uuid
    ended(server, other)
    third = server.start(*SHOWS, **part("4g.20gb", 0))
    uuid_of(server, third)
    assert lies(server) == ["4g.20gb@0", "3g.20gb@4"]
    for key in (second, third):
        ended(server, key)


def test_an_instance_outlives_the_agents_worker_and_is_still_its_programs(server):
    key = server.start(*SHOWS, **part("2g.10gb", 0))
    uuid_of(server, key)
    sessions = len(server.hellos)
    os.kill(_worker(server), signal.SIGKILL)
    until(lambda: len(server.hellos) > sessions, "another worker")
    server.next_inventory(lambda report: any(seen.key == key for seen in report.replicas))
    taken = server.start("true", **part("4g.20gb", 0))
    problem = server.ended(taken).problem
    assert problem == (
        "no part of a device on n1: device 0 has no room for 4g.20gb at 0 beside what is in use there (2g.10gb at 0)"
    )
    ended(server, key)
    assert server.ended(server.start("true", **part("4g.20gb", 0))) == ExitInfo(0)


def _worker(server: FakeServer) -> int:
    guardian = agent_pid(server.data, "n1")
    return int(Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()[0])


class Slow:
    """A keeper whose answers a test gives."""

    def __init__(self) -> None:
        self.answers: queue.SimpleQueue = queue.SimpleQueue()
        self.asked: list[tuple] = []
        self.living: tuple = ()
        self.divided: object = NotMade("it is not said here")

    def give(self, owner, place):
        self.asked.append(("give", owner, place))
        return self.answers.get(timeout=10)

    def take_back(self, owner):
        self.asked.append(("back", owner))

    def keep_only(self, living):
        self.living = living

    def instances(self):
        return NotMade("not asked here")

    def divide(self, gpu, strategy):
        self.asked.append(("divide", gpu, strategy))
        if isinstance(self.divided, Exception):
            raise self.divided
        return self.divided


class Node:
    """A node's replicas with the real thread, and a tool that is as slow as a test wants."""

    def __init__(self, folder, monkeypatch) -> None:
        self.tool, self.gone, self.now_s = Slow(), {}, 0.0
        monkeypatch.setattr(NodeParts, "_keeper", lambda _: self.tool)
        monkeypatch.setattr("penstock.engines.agent.parts.TRY_PAUSE_S", 0.0)
        self.journal = Journal(folder / "journal")
        self.parts = NodeParts(folder, A100S, self.journal)
        devices = {device.index: device for device in A100S}
        self.replicas = Replicas(
            "n1", DataFolder(folder), choose("penstock-parts"), devices, self.journal, ExitBook(folder / "exits"),
            self.gone.__setitem__, None, self.parts,
        )  # fmt: skip

    def start(self, job, *command, **fields):
        key = ReplicaKey(JobId(job), AttemptNumber(1), Rank(0))
        assert self.replicas.start(start(key, command or ("true",), **(part("1g.5gb", 0) | fields))) is None
        return key

    def turn(self):
        self.replicas.poll(0)
        return self.replicas.newly_started()

    def started(self):
        return until(self.turn, "something has started")


@pytest.fixture
def node(tmp_path, monkeypatch):
    made = Node(tmp_path, monkeypatch)
    yield made
    for key in list(made.replicas.running):
        made.replicas.kill(key)
    until(lambda: made.replicas.reap() or made.replicas.poll(0) or not made.replicas.running, "all have ended")


def given(place):
    return Given(place, "MIG-1")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_replica_that_is_stopped_while_its_instance_is_made_never_starts(node, how):
    key = node.start(1)
    until(lambda: node.tool.asked, "the tool was asked")
    node.replicas.ask_to_stop(key, 0) if how == "stop" else node.replicas.kill(key)
    assert node.gone == {key: ExitInfo(problem="stopped before it started")}
    node.tool.answers.put(given(node.tool.asked[0][2]))
    until(lambda: ("back", "1.1.0") in node.tool.asked, "the instance is taken back")
    assert (node.turn(), node.replicas.running) == ([], {})


def test_what_passes_is_tried_again_and_what_does_not_ends_the_replica(node):
    first, second = node.start(1), node.start(2, "sleep", "60")
    node.tool.answers.put(NotMade("no", passing=False))
    node.tool.answers.put(NotMade("it is just ending", passing=True))
    node.tool.answers.put(given(None))
    assert [key for key, _ in node.started()] == [second]
    assert node.gone == {first: ExitInfo(problem="no part of a device on n1: no")}


def test_a_replica_that_is_stopped_between_two_tries_is_not_tried_again(node, monkeypatch):
    key = node.start(1)
    until(lambda: node.tool.asked, "the tool was asked")
    monkeypatch.setattr("penstock.engines.agent.parts.TRY_PAUSE_S", 1e6)
    node.tool.answers.put(NotMade("it is just ending", passing=True))
    until(lambda: node.parts._waiting, "it will be tried again")
    node.replicas.kill(key)
    until(lambda: not node.parts._waiting, "it will not")
    until(lambda: ("back", "1.1.0") in node.tool.asked, "what it had is for others")


def test_a_fault_ends_the_replica_that_it_was_met_for_and_no_other(node):
    first, second = node.start(1), node.start(2, "sleep", "60")
    node.tool.answers.put(None)  # nothing that a keeper answers
    node.tool.answers.put(given(None))
    assert [key for key, _ in node.started()] == [second]
    assert "AttributeError" in node.gone[first].problem


def test_a_folder_that_cannot_be_written_refuses_and_hangs_nothing(tmp_path):
    parts = NodeParts(tmp_path / "missing", A100S, Journal(tmp_path / "journal"))
    for job in (1, 2):
        parts.takes(start(ReplicaKey(JobId(job), AttemptNumber(1), Rank(0)), **part("1g.5gb", 3)))
        prepared = until(lambda: list(parts.prepared()), "it is refused")[0]
        assert "No such file or directory" in prepared.problem


def test_tries_have_an_end(node):
    key = node.start(1)
    for _ in range(5):
        node.tool.answers.put(NotMade("somebody has it open", passing=True))
    until(lambda: node.turn() or node.gone, "it is given up")
    assert node.gone[key].problem == "no part of a device on n1: somebody has it open"
    assert len(node.tool.asked) == 5 or node.tool.asked[5:] == [("back", "1.1.0")]


def test_an_order_that_does_not_say_where_is_refused(node):
    key = node.start(1, slots=())
    until(lambda: node.turn() or node.gone, "it is refused")
    assert "does not say where its instances lie" in node.gone[key].problem


H200 = {"model": "NVIDIA H200", "memory_bytes": 141 * 10**9, "mig": True}
REAL = (device(0, uuid="GPU-0", **H200), device(1, uuid="GPU-1", **H200))


@pytest.mark.parametrize(
    ("asked", "devices", "places"),
    [
        (DeviceAsk(1), (1,), "MIG mode is on on device 1, which gives out instances alone: ask for a profile"),
        (DeviceAsk(2), (0, 1), "MIG mode is on on device 0"),
        (DeviceAsk(1, share_milli=500), (0,), "MIG mode is on on device 0"),
        (DeviceAsk(1, profile="1g.18gb"), (0,), "the order does not say where its instances lie"),
    ],
)
def test_what_is_no_instance_of_a_device_with_mig_mode_on_is_refused(tmp_path, asked, devices, places):
    parts = NodeParts(tmp_path, REAL, Journal(tmp_path / "journal"))
    order = start(ReplicaKey(JobId(1), AttemptNumber(1), Rank(0)), ask=ReplicaAsk(Resources(), asked), devices=devices)
    assert parts.takes(order)
    assert parts._places(order).startswith(places)


@pytest.mark.parametrize("devices", [simulated(1, "A100", 40 * 10**9, mig=True), (replace(REAL[0], mig=False),)])
def test_whole_devices_without_mig_wait_for_nothing(tmp_path, devices):
    parts = NodeParts(tmp_path, devices, Journal(tmp_path / "journal"))
    key = ReplicaKey(JobId(1), AttemptNumber(1), Rank(0))
    assert not parts.takes(start(key, ask=ReplicaAsk(Resources(), DeviceAsk(1)), devices=(0,)))
    assert not parts.takes(start(key))


def test_what_living_replicas_of_a_former_worker_have_is_theirs(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "journal")
    lives, gone = (ReplicaKey(JobId(job), AttemptNumber(1), Rank(0)) for job in (1, 2))
    for key in (lives, gone):
        journal.write(JournalLine(key, "spawning"))
    journal.write(JournalLine(gone, "exited", exit=ExitInfo(0)))
    journal.close()
    node = Node(tmp_path, monkeypatch)
    node.parts.left(gone)
    until(lambda: node.tool.asked, "the thread runs")
    assert node.tool.living == (str(lives),)


def test_the_simulated_tool_stands_in_where_devices_are_simulated(tmp_path):
    parts = NodeParts(tmp_path, A100S, Journal(tmp_path / "journal"))
    assert parts._place(1, "1g.5gb", 3) == (simulated_uuid(1), "1g.5gb", 3)
    key = ReplicaKey(JobId(1), AttemptNumber(1), Rank(0))
    assert parts.takes(start(key, **part("1g.5gb", 3, index=1)))
    prepared = until(lambda: list(parts.prepared()), "it is made")[0]
    assert prepared.problem == ""
    assert SimulatedMig(tmp_path / "mig.json", A100S).lies(1) == [("1g.5gb", 3)]


def test_a_node_without_devices_that_may_be_divided_has_no_thread(tmp_path):
    parts = NodeParts(tmp_path, simulated(1, "A100", 40 * 10**9), Journal(tmp_path / "journal"))
    parts.left(ReplicaKey(JobId(1), AttemptNumber(1), Rank(0)))
    assert parts._thread is None


# Divided ahead of demand.


def reported(server: FakeServer) -> dict[int, list[str]]:
    """Return the instances of each device in the last report that has any."""
    last = next(r.instances for r in reversed(server.reports) if r.instances is not None)
    return {one.index: [f"{profile}@{at}" for profile, at in one.instances] for one in last}


def test_a_device_is_divided_by_order_beside_what_runs_and_the_report_says_what_there_is(server):
    until(lambda: reported(server)[1] == lies(server, 1), "the instances are reported")
    key = server.start(*SHOWS, **part("3g.20gb", 4, index=1))
    server.said(key, "sees=")
    until(lambda: "3g.20gb@4" in reported(server)[1], "its instance is reported")
    server.order(DivideDevice(1, "training"))
    until(lambda: reported(server)[1] == ["3g.20gb@0", "3g.20gb@4"], "it is divided beside it")
    ended(server, key)
    server.order(DivideDevice(1, "inference"), DivideDevice(7, "inference"))
    until(lambda: reported(server)[1] == [f"1g.5gb@{at}" for at in range(7)], "it is divided anew")
    assert lies(server, 1) == reported(server)[1]


def test_what_a_killed_worker_was_dividing_is_settled_by_the_next_order(server):
    server.order(DivideDevice(1, "training"))
    sessions = len(server.hellos)
    os.kill(_worker(server), signal.SIGKILL)
    until(lambda: len(server.hellos) > sessions, "another worker")
    server.next_inventory(lambda report: report.instances is not None)
    server.order(DivideDevice(1, "training"))
    until(lambda: reported(server)[1] == ["3g.20gb@0", "3g.20gb@4"], "it is divided")


def test_replicas_that_wait_go_before_a_division(node):
    node.tool.instances = dict
    node.start(1, "sleep", "60")
    until(lambda: node.tool.asked, "the tool was asked")
    node.parts.divide(1, "training")
    second = node.start(2, "sleep", "60")
    node.tool.answers.put(given(None))
    node.tool.answers.put(given(None))
    until(lambda: ("divide", simulated_uuid(1), "training") in node.tool.asked, "it is divided")
    assert [asked[0] for asked in node.tool.asked] == ["give", "give", "divide"]
    assert node.tool.asked[1][1] == str(second)
    until(lambda: node.turn() is not None and len(node.replicas.running) == 2, "both run")


def test_a_division_that_fails_ends_nothing_else(node):
    node.tool.divided = ValueError("no such layout")
    node.parts.divide(1, "training")
    until(lambda: node.tool.asked, "it was tried")
    key = node.start(1, "sleep", "60")
    node.tool.answers.put(given(None))
    assert [one for one, _ in node.started()] == [key]


def test_what_the_tool_does_not_say_is_asked_again(node, monkeypatch):
    monkeypatch.setattr("penstock.engines.agent.parts.LOOK_AGAIN_S", 0.0)
    node.parts.look()
    until(lambda: node.parts._thread, "the thread runs")
    node.tool.instances = lambda: {simulated_uuid(1): (("3g.20gb", 0),)}
    until(lambda: node.parts.instances, "it says")
    assert node.parts.instances == (DeviceInstances(1, (("3g.20gb", 0),)),)


def test_what_an_administrator_changes_is_seen_later(node, monkeypatch):
    monkeypatch.setattr("penstock.engines.agent.parts.LOOK_EVERY_S", 0.01)
    node.tool.instances = dict
    node.parts.look()
    until(lambda: node.parts.instances == (), "nothing is there")
    node.tool.instances = lambda: {simulated_uuid(0): (("1g.5gb", 6),)}
    until(lambda: node.parts.instances == (DeviceInstances(0, (("1g.5gb", 6),)),), "it is seen")
