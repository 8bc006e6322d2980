"""Each job of an allocation has its memory: one that takes more ends, with that reason, and the others go on."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conformance.jobsuite import left
from tests.engines.slurm import cluster as clusters
from tests.engines.slurm.pilot.flying import Flying, find, flying

MEMORY = Path("/sys/fs/cgroup/memory")
EATS = "x = bytearray(1)\nwhile True: x += bytes(1 << 20)"


def eating(server: Flying, memory: str) -> int:
    command = [sys.executable, "-S", "-c", EATS]
    return server.client.submit({"command": command, "cpus": 1, "memory": memory}).jobs[0].id


def ends_alone(server: Flying) -> str:
    """Return why a job that eats ended: alone, for the one beside it, of the same allocation, keeps its attempt."""
    other = server.run("sleep 300", env={"SHARED": str(server.root)}, grace="1s", memory="64MiB")
    server.wait_state(other, "running")
    job = eating(server, "96MiB")
    view = server.wait_state(job, "failed")
    assert view.nodes == server.client.job(other).nodes
    assert (view.attempt, view.exit_signal) == (1, 9)
    said = server.client.job(other)
    assert (said.state, said.attempt) == ("running", 1)
    server.client.cancel(other)
    server.wait_state(other, "cancelled")
    assert not left(server.root)
    return view.reason


@pytest.fixture
def server(tmp_path) -> Iterator[Flying]:
    with find(clusters.shared()) as slurm, flying(slurm, tmp_path) as made:
        yield made


def test_where_slurm_makes_no_groups_the_agent_ends_what_takes_too_much(server):
    reason = ends_alone(server)
    assert reason.startswith("signal 9 (out of memory: limit 96 MiB, ")
    assert reason.endswith(" held, ended by the node's agent)")


def test_where_slurm_makes_groups_the_kernel_does(tmp_path):
    if not MEMORY.is_dir():
        pytest.skip("no memory tree of version 1 here")
    before = set(MEMORY.glob("slurm*"))
    with contextlib.ExitStack() as stack:
        slurm = stack.enter_context(clusters.own(nodes=1, accounting=False, groups=True))
        stack.enter_context(find(slurm))
        server = stack.enter_context(flying(slurm, tmp_path))
        reason = ends_alone(server)
        assert reason == "signal 9 (out of memory: limit 96 MiB, killed by the kernel (1 process))"
        (number,) = server.allocations()
        assert list(MEMORY.glob(f"slurm*/uid_*/job_{number}/**/penstock-*")) == []
    for folder in set(MEMORY.glob("slurm*")) - before:
        for path in sorted(folder.glob("**/"), reverse=True):
            path.rmdir()
