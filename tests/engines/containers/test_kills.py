"""What is killed around a container leaves nothing, and its exit is right, or said not to be known."""

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.model.jobs import ExitInfo
from penstock.engines.processes import procfs
from penstock.engines.processes.spawn import KEEPER_KILLED
from tests.engines.agent.fakeserver import FakeServer
from tests.engines.containers import images
from tests.engines.containers.test_replicas import contained, nothing_left
from tests.engines.processes.test_containment import needs_groups
from tests.server.harness import until

pytestmark = [needs_groups, pytest.mark.root]
WAITS = "echo ready; while [ ! -e $PENSTOCK_SCRATCH_DIR/go ]; do sleep 0.05; done; echo later; exit 7"


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server with one agent, whose processes tests kill."""
    images.need("podman", "runc")
    images.imported()
    root = Path(tempfile.mkdtemp(prefix="penstock-containers-"))
    made = FakeServer(root / "data")
    try:
        made.agent()
        made.ready()
        yield made
    finally:
        made.close()
        shutil.rmtree(root, ignore_errors=True)


def waiting(server: FakeServer):
    """Return a replica in a container that waits for `go`."""
    key = contained(server, "sh", "-c", WAITS)
    server.said(key, "ready")
    return key


def go(server: FakeServer, key) -> None:
    (server.data.work(key.job_id) / "go").touch()


def conmon_of(server: FakeServer, key) -> int:
    return int((server.data.keeper("n1", key).with_suffix(".conmon")).read_text())


def test_a_killed_conmon_costs_neither_the_program_nor_its_exit(server):
    key = waiting(server)
    os.kill(conmon_of(server, key), signal.SIGKILL)
    go(server, key)
    assert server.ended(key) == ExitInfo(7)
    assert server.data.output(key).read_text() == "ready\nlater\n"
    nothing_left(server, key)


def test_a_killed_keeper_ends_the_container_and_the_exit_is_said_not_to_be_known(server):
    key = waiting(server)
    os.kill(server.seen(key, "running").pid, signal.SIGKILL)
    assert server.ended(key) == ExitInfo(problem=KEEPER_KILLED)
    nothing_left(server, key)


@pytest.mark.parametrize("whose", ["worker", "guardian"])
def test_a_killed_agent_leaves_the_container_to_the_next(server, whose):
    key = waiting(server)
    guardian = int((server.data.node("n1") / "agent.pid").read_text())
    worker = next(pid for pid in procfs.all_pids() if procfs.parent_of(pid) == guardian and _is_agent(pid))
    os.kill(worker if whose == "worker" else guardian, signal.SIGKILL)
    server.next_inventory(lambda report: any(seen.key == key for seen in report.replicas))
    go(server, key)
    assert server.ended(key) == ExitInfo(7)
    nothing_left(server, key)


def _is_agent(pid: int) -> bool:
    return b"penstock.engines.agent.guardian" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.slow
def test_kills_at_random_points_leave_nothing(server):
    rolls = random.Random(7)
    for _ in range(40):
        key = contained(server, "sh", "-c", "sleep 0.3; exit 7")
        until(lambda key=key: any(s.key == key for r in server.reports for s in r.replicas), "it is known")
        time.sleep(rolls.uniform(0, 1.0))
        victims = [*_processes(server, key)]
        if victims:
            with_kill(rolls.choice(victims))
        ended = server.ended(key)
        assert ended in (ExitInfo(7), ExitInfo(137), ExitInfo(signal=9)) or ended.problem, ended
        nothing_left(server, key)


def _processes(server: FakeServer, key) -> list[int]:
    """Return the processes in the groups of a replica's box: keeper, runtime, conmon, program."""
    for folder in Path("/sys/fs/cgroup/freezer").glob(f"*/n1.{key}"):
        return [int(pid) for path in folder.rglob("cgroup.procs") for pid in path.read_text().split()]
    return []


def with_kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
