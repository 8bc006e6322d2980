"""Processors of replicas, in real control groups: their own, or those that all others share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.engines.agent.journal import ExitBook, Journal
from penstock.engines.agent.replicas import Replicas
from penstock.engines.processes.containment import choose
from penstock.engines.processes.cpu_sets import CpuSets
from penstock.engines.processes.cpu_topology import read_topology
from penstock.engines.processes.paths import DataFolder
from penstock.testing.builders import device
from tests.engines.agent.builders import start
from tests.server.harness import until

PARENT = f"penstock-test-cpus-{os.getpid()}"
CPUS = sorted(os.sched_getaffinity(0))
CONTROLLED = os.access("/sys/fs/cgroup/cpuset/cpuset.cpus", os.W_OK) or os.access(
    "/sys/fs/cgroup/cgroup.procs", os.W_OK
)
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(len(CPUS) < 2, reason="one processor"),
    pytest.mark.skipif(not CONTROLLED, reason="no cpuset controller here"),
]
LONG = ("sleep", "60")


def key(job: int) -> ReplicaKey:
    return ReplicaKey(JobId(job), AttemptNumber(1), Rank(0))


class Node:
    """The replicas of a node with two simulated devices; a new worker of it adopts those of the former."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.journal = Journal(folder / "journal")
        self.containment = choose(PARENT)
        exits, data = ExitBook(folder / "exits"), DataFolder(folder)
        sets = CpuSets(read_topology(CPUS))
        devices = {index: device(index) for index in range(2)}
        self.replicas = Replicas("n1", data, self.containment, devices, self.journal, exits, lambda key, _: None, sets)
        for known in self.journal.known.values():
            if known.exit is None:
                self.replicas.adopt(known)

    def start(self, job: int, cpus: float, *devices: int) -> int:
        ask = ReplicaAsk(Resources(cpu_milli=int(1_000 * cpus)))
        pid = self.replicas.start(start(key(job), LONG, ask=ask, devices=devices))
        assert pid is not None
        until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "the program runs")
        return pid

    def end(self, *jobs: int) -> None:
        for job in jobs:
            self.replicas.kill(key(job))
        until(lambda: self.replicas.reap() or self.replicas.poll(0) or not self._running(jobs), "they have ended")

    def _running(self, jobs: tuple[int, ...]) -> set[ReplicaKey]:
        return {key(job) for job in jobs} & self.replicas.running.keys()

    def again(self) -> "Node":
        return Node(self._folder)


@pytest.fixture
def node(tmp_path) -> Iterator[Node]:
    found = Node(tmp_path)
    yield found
    found.end(*(each.job_id for each in found.replicas.running))
    found.journal.close()
    found.containment.close()
    assert [*Path("/sys/fs/cgroup").glob(f"*/{PARENT}"), *Path("/sys/fs/cgroup").glob(PARENT)] == []


def on(pid: int) -> set[int]:
    """Return the processors that a process may run on, as the kernel has it."""
    return os.sched_getaffinity(pid)


def test_who_holds_a_device_and_asks_for_whole_cpus_has_them_alone(node):
    light, heavy = node.start(1, 0.5), node.start(2, 1, 0)
    own = on(heavy)
    assert len(own) == 1
    assert on(light) == set(CPUS) - own
    later = node.start(3, 0.5, 1)
    assert on(later) == set(CPUS) - own
    node.end(2)
    assert on(light) == on(later) == set(CPUS)


def test_without_devices_or_whole_cpus_all_are_shared(node):
    assert [on(node.start(1, 1)), on(node.start(2, 0.5, 0))] == [set(CPUS), set(CPUS)]


def test_a_new_worker_gives_nobody_what_a_replica_of_the_former_has(tmp_path, node):
    heavy, light = node.start(1, 1, 0), node.start(2, 0.5)
    own = on(heavy)
    after = node.again()
    assert (on(heavy), on(light)) == (own, set(CPUS) - own)
    second = after.start(3, 1, 1)
    assert not on(second) & own
    after.end(3)
    assert on(light) == set(CPUS) - own
    after.journal.close()
