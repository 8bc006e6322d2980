"""Replicas whose fraction runs through MPS: they start beside a daemon that runs, with their limits, or not at all."""

import os
import signal

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.engines.agent.journal import ExitBook, Journal
from penstock.engines.agent.replicas import Replicas
from penstock.engines.processes.mps import members
from penstock.engines.processes.paths import DataFolder
from penstock.testing.builders import GIB, device
from tests.engines.agent.builders import start
from tests.engines.processes.mps_program import MpsProgram, short_folder
from tests.engines.processes.processes import SESSIONS
from tests.server.harness import until

KEY = ReplicaKey(JobId(1), AttemptNumber(1), Rank(0))
QUARTER = ReplicaAsk(Resources(), DeviceAsk(1, share_milli=250, share_memory_bytes=8 * GIB))
SAY = 'echo "$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"; ls "$CUDA_MPS_PIPE_DIRECTORY"'


class Agent:
    """What starts replicas on a node of one device; `again` is the next worker of it."""

    def __init__(self, folder) -> None:
        self.data, self.folder, self.ended = DataFolder(folder / "data"), folder, {}
        self.now_ms, self.step_ms = 0, 1
        self.again()

    def again(self) -> None:
        self.journal = Journal(self.folder / "journal")
        devices = {0: device(0, uuid="GPU-0")}
        exits = ExitBook(self.folder / "exits")
        self.replicas = Replicas("n1", self.data, SESSIONS, devices, self.journal, exits, self.ended.__setitem__)

    def turn(self) -> None:
        self.now_ms += self.step_ms
        self.replicas.reap()
        self.replicas.poll(self.now_ms)

    def start(self, *command, mps=True):
        return self.replicas.start(start(KEY, command, devices=(0,), ask=QUARTER, mps=mps))

    def started(self) -> list:
        found: list = []
        until(lambda: self.turn() or found.extend(self.replicas.newly_started()) or found, "it has started")
        return found

    def ends(self):
        until(lambda: self.turn() or KEY in self.ended, "it has ended")
        return self.ended[KEY]

    def daemons(self):
        return list(members(self.data.mps("n1") / "0" / "pipes"))


@pytest.fixture
def agent(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    MpsProgram(tmp_path / "bin")
    with short_folder() as folder:
        one = Agent(folder)
        yield one
        for key in list(one.replicas.running):
            one.replicas.kill(key)
            one.ends()
        until(lambda: one.turn() or not one.daemons(), "no daemon is left")
        one.replicas.end()
        one.journal.close()


def test_a_program_begins_beside_its_daemon_with_its_limits(agent):
    assert agent.start("sh", "-c", SAY) is None
    ((key, pid),) = agent.started()
    assert (key, pid > 0, agent.ends().code) == (KEY, True, 0)
    limits, *pipes = agent.data.output(KEY).read_text().splitlines()
    assert (limits, "nvidia-cuda-mps-control.pid" in pipes) == ("25 0=8192M", True)


def test_without_mps_it_begins_at_once_and_without_limits(agent):
    assert agent.start("sh", "-c", SAY, mps=False) is not None
    agent.ends()
    assert agent.data.output(KEY).read_text().splitlines()[0] == " "
    assert agent.daemons() == []


@pytest.mark.parametrize("stop", [lambda r: r.ask_to_stop(KEY, 0), lambda r: r.kill(KEY)], ids=["stop", "kill"])
def test_one_that_is_stopped_while_it_waits_never_begins(agent, stop):
    agent.start("sh", "-c", SAY)
    stop(agent.replicas)
    assert agent.ended[KEY].problem == "stopped before it started"
    until(lambda: agent.turn() or not agent.daemons(), "the daemon is gone")
    assert not agent.data.output(KEY).exists()


def test_where_no_daemon_starts_the_node_is_at_fault_and_not_the_job(agent, tmp_path):
    (tmp_path / "bin" / "fails").write_text("no device")
    agent.start("sh", "-c", SAY)
    assert agent.ends().problem == "the MPS daemon of device 0 did not start: no device"
    assert [fault.index for fault in agent.replicas.device_faults()] == [0]


def kill_daemon(agent):
    number = agent.data.mps("n1") / "0" / "pipes" / "nvidia-cuda-mps-control.pid"
    os.kill(int(number.read_text()), signal.SIGKILL)
    until(lambda: agent.turn() or agent.replicas.device_faults(), "the device is at fault")


@pytest.mark.parametrize(("code", "problem"), [(1, "the MPS daemon of its device ended"), (0, "")])
def test_a_program_that_fails_after_its_daemon_ended_is_not_to_blame(agent, code, problem):
    agent.start("sh", "-c", f"until [ -e {agent.folder}/go ]; do sleep 0.01; done; exit {code}")
    agent.started()
    kill_daemon(agent)
    (agent.folder / "go").touch()
    assert agent.ends().problem == problem


def test_the_next_worker_keeps_the_daemon_of_a_replica_that_runs_on(agent):
    agent.start("sh", "-c", f"until [ -e {agent.folder}/go ]; do sleep 0.01; done")
    ((_, pid),) = agent.started()
    before = agent.daemons()
    agent.journal.close()
    agent.again()
    known = agent.journal.known[KEY]
    assert (agent.replicas.adopt(known), known.mps) == (pid, 0)
    agent.turn()
    assert agent.daemons() == before
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    agent.step_ms = 100  # the exit is waited for: the guardian might have noted it
