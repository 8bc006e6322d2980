"""A job fills the disk of its node: nothing else is lost, nothing runs twice, and people learn of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engines.local.launch import agent_pid, stop_agent
from penstock.engines.processes.paths import DataFolder
from tests.engines.agent.overlap import Witness
from tests.server.harness import Jobs, Server, cluster_file, environment, started_for, sweep, until
from tests.smalldisk import small_file_system

FILLS = """
dd if=/dev/zero of=$PENSTOCK_SCRATCH_DIR/ballast bs=4k 2> /dev/null
touch {full}
while [ ! -e {over} ]; do sleep 0.1; done
rm $PENSTOCK_SCRATCH_DIR/ballast
"""


class SmallNode:
    """A node of another machine whose disk has 32 MB."""

    def __init__(self, server: Server, disk: Path) -> None:
        self.data = DataFolder(disk)
        words = [sys.executable, "-P", "-m", "penstock.joining", "-", "--data", str(disk), "--simulated", "0"]
        subprocess.run(
            [*words, "--cpus", "8", "--wait", "60"],
            input=server.client.declare_node({"name": "away"}).bundle.encode(),
            stdout=subprocess.PIPE,
            check=True,
            env=environment(disk),
        )
        until(lambda: server.client.cluster().nodes_ready == 2, "both nodes are ready")
        server.client.drain("n1")

    @property
    def guardian(self) -> int | None:
        return agent_pid(self.data, "away")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "disk", "32m") as folder:
        yield folder / "data"
        sweep(folder / "data")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "server", cluster_file(1, 0), listen_agents="127.0.0.1") as made:
        yield made


@pytest.mark.root
def test_a_job_that_fills_its_node_costs_no_other_job(server: Server, disk: Path, tmp_path: Path) -> None:
    node, jobs, witness = SmallNode(server, disk), Jobs(server.client), Witness(tmp_path / "witness")
    guardian, full, over = node.guardian, tmp_path / "full", tmp_path / "over"
    short = [jobs.submit(witness.command("sleep 1"), cpus=0.1) for _ in range(12)]
    filler = jobs.submit(FILLS.format(full=full, over=over), cpus=0.1)
    until(full.exists, "the disk is full", 60)
    until(lambda: "node_disk" in [alert.code for alert in server.client.alerts()], "an alert says so", 60)
    late = [jobs.submit(witness.command("true"), cpus=0.1) for _ in range(4)]
    for job in short:
        assert jobs.ended(job).state == "succeeded"
    assert {server.client.job(job).state for job in late} == {"waiting"}
    over.touch()
    for job in (filler, *late):
        assert jobs.ended(job).state == "succeeded"
    assert server.client.alerts() == []
    assert (witness.problems(), node.guardian) == ([], guardian)


@pytest.mark.root
def test_an_agent_on_a_full_disk_ends_all_that_runs(server: Server, disk: Path, tmp_path: Path) -> None:
    node, jobs, full = SmallNode(server, disk), Jobs(server.client), tmp_path / "full"
    jobs.submit(FILLS.format(full=full, over=tmp_path / "never"))
    until(full.exists, "the disk is full", 60)
    stop_agent(node.data, "away")
    until(lambda: node.guardian is None, "the agent has left")
    assert [pid for pid in started_for(disk) if pid != os.getpid()] == []
