"""The agent stops the replica that uses more than its part of a device, and no other; the job is told why."""

import os
import signal

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import CheckpointSpec
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.engines.agent.journal import ExitBook, Journal
from penstock.engines.agent.replicas import Replicas
from penstock.engines.agent.watchdog import GRACE_MS, Watchdog
from penstock.engines.processes.paths import DataFolder
from penstock.testing.builders import GIB, device
from tests.engines.agent.builders import start
from tests.engines.processes.processes import SESSIONS
from tests.server.harness import until

GREEDY, MODEST, WHOLE = (ReplicaKey(JobId(i), AttemptNumber(1), Rank(0)) for i in (1, 2, 3))
QUARTER = ReplicaAsk(Resources(), DeviceAsk(1, share_milli=250, share_memory_bytes=8 * GIB))
LOOP = "while :; do sleep 0.01; done"
SAVES = f"trap 'touch saved' USR1; trap 'exit 3' TERM; touch ready; {LOOP}"
IGNORES = f"trap '' TERM; touch ready; {LOOP}"
SAVING = CheckpointSpec(request_signal="SIGUSR1")


class Agent:
    """An agent with two devices, whose readings are given by the test, one a second."""

    def __init__(self, folder) -> None:
        self.data, self.folder, self.ended, self.now_ms = DataFolder(folder / "data"), folder, {}, 0
        self.again()

    def again(self) -> None:
        """Begin a worker, the first or the next one."""
        self.journal, exits = Journal(self.folder / "journal"), ExitBook(self.folder / "exits")
        devices = {i: device(i) for i in range(2)}
        self.replicas = Replicas("n1", self.data, SESSIONS, devices, self.journal, exits, self.ended.__setitem__)
        self.watchdog = Watchdog(self.replicas)

    def start(self, key, command, ask=QUARTER, index=0) -> None:
        order = start(key, ("sh", "-c", command), devices=(index,), ask=ask, checkpoint=SAVING)
        assert self.replicas.start(order) is not None
        until((self.data.job(key.job_id) / "ready").exists, "the program runs")

    def reads(self, used, seconds=1) -> None:
        for _ in range(seconds):
            self.now_ms += 1_000
            self.watchdog.take(self.now_ms, used)

    def turn(self, passed_ms=0) -> None:
        self.now_ms += passed_ms
        self.watchdog.turn(self.now_ms)
        self.replicas.reap()
        self.replicas.poll(self.now_ms)

    def ends(self, key):
        until(lambda: self.turn(100) or key in self.ended, "it has ended")
        return self.ended[key]


@pytest.fixture
def agent(tmp_path):
    one = Agent(tmp_path)
    yield one
    for key in list(one.replicas.running):
        one.replicas.kill(key)
        one.ends(key)
    one.journal.close()


def test_one_that_oversteps_saves_and_is_stopped_alone_and_told_why(agent):
    for key in (GREEDY, MODEST):
        agent.start(key, SAVES)
    agent.reads({(GREEDY, 0): 12 * GIB, (MODEST, 0): 8 * GIB}, seconds=15)
    until((agent.data.job(GREEDY.job_id) / "saved").exists, "it has saved")
    assert agent.ended == {}
    agent.reads({(GREEDY, 0): 12 * GIB, (MODEST, 0): 8 * GIB}, seconds=45)
    info = agent.ends(GREEDY)
    assert (info.code, info.problem, info.observed) == (3, "", True)
    assert info.note == "it used 12 GiB of the memory of device 0, its part is 8 GiB"
    said = "penstock: this program used 12 GiB of the memory of device 0, its part is 8 GiB"
    lines = agent.data.output(GREEDY).read_text().splitlines()
    assert [line for line in lines if line.startswith("penstock: ")] == [
        f"{said}: unless it frees some, it is asked to save after 10 s of this, and stopped after 30 s",
        f"{said}: it is asked to save, if it can, and stopped after 30 s of this",
        f"{said}: it is stopped",
    ]
    assert agent.data.output(MODEST).read_text() == ""
    assert not (agent.data.job(MODEST.job_id) / "saved").exists()
    assert list(agent.replicas.running) == [MODEST]


def test_one_that_does_not_leave_is_killed_after_its_grace(agent):
    agent.start(GREEDY, IGNORES)
    agent.reads({(GREEDY, 0): 12 * GIB}, seconds=60)
    agent.turn()
    agent.now_ms += GRACE_MS - 1
    agent.turn()
    assert agent.ended == {}
    agent.now_ms += 1
    assert (agent.ends(GREEDY).signal, "its part is 8 GiB" in agent.ended[GREEDY].note) == (signal.SIGKILL, True)


@pytest.mark.parametrize("ask", [DeviceAsk(1), DeviceAsk(1, profile="1g.10gb")])
def test_one_with_a_whole_device_or_a_partition_has_nothing_to_overstep(agent, ask):
    agent.start(WHOLE, SAVES, ask=ReplicaAsk(Resources(), ask))
    agent.reads({(WHOLE, 0): 79 * GIB}, seconds=60)
    agent.turn()
    assert (agent.ended, agent.replicas.running[WHOLE].why_stopped) == ({}, "")


def test_the_next_worker_knows_the_part_of_a_replica_that_runs_on(agent):
    agent.start(GREEDY, SAVES)
    agent.journal.close()
    agent.again()
    agent.replicas.adopt(agent.journal.known[GREEDY])
    assert agent.replicas.running[GREEDY].memory_limit_bytes == 8 * GIB
    pid = agent.replicas.running[GREEDY].pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
