"""A Ray cluster has the nodes: found, held, lost and found again; agents and jobs outlive everything of Ray."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from penstock.engines.processes import procfs
from penstock.engines.ray.driver_options import DriverOptions
from tests.engines.ray.cluster import CPUS
from tests.engines.ray.serving import RayServing
from tests.server.harness import FINAL, until

WAIT_S = 120.0
LEASE_S = 10.0
FREE = """
import ray
ray.init(address="{address}", log_to_driver=False, logging_level="ERROR")
print(sum(one.get("CPU", 0) for one in ray._private.state.available_resources_per_node().values()))
for one in ray.util.list_named_actors(all_namespaces=True):
    print(one["namespace"], one["name"])
"""


def submitted(serving: RayServing, command: str, **fields: Any) -> int:
    request = {"command": command, "env": {"PATH": os.environ["PATH"]}, "workdir": "/", **fields}
    return serving.client.submit(request).jobs[0].id


def running(serving: RayServing, job: int) -> bool:
    return serving.client.job(job).state == "running"


def place(serving: RayServing, job: int) -> str:
    return serving.client.job(job).nodes[0]


def drained(serving: RayServing, node: str) -> str:
    return next(one.drain_reason for one in serving.client.nodes() if one.name == node and one.draining)


def ended(serving: RayServing, job: int) -> str:
    until(lambda: serving.client.job(job).state in FINAL, f"job {job} ended", WAIT_S)
    return serving.client.job(job).state


def holders(serving: RayServing) -> dict[str, int]:
    """Return the workers that the holders run in."""
    return {str(pid): pid for pid in serving.cluster.holders()}


def test_nodes_of_the_cluster_are_nodes_here_and_others_see_them_taken(serving: RayServing) -> None:
    nodes = serving.client.nodes()
    assert [(one.state, one.cpu_milli, one.at[:8]) for one in nodes] == [("ready", CPUS * 1000, "Ray node")] * 4
    assert {(one.engine, one.not_promised[0].name) for one in nodes} == {("ray", "exclusive use")}
    words = [sys.executable, "-c", FREE.format(address=serving.cluster.address)]
    said = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **serving.cluster.variables})
    free, *named = said.stdout.splitlines()
    assert float(free) == 0, said.stderr
    space = DriverOptions.of(serving.data.root / "ray", "x", "").namespace
    assert [line.split()[0] for line in named] == [space] * 4
    assert ended(serving, submitted(serving, "test $PENSTOCK_NODES != ''", replicas=4, cpus=CPUS)) == "succeeded"


def test_a_killed_holder_means_nothing_to_the_agent_and_its_job(serving: RayServing) -> None:
    job = submitted(serving, "sleep 3; exit 5", cpus=1)
    until(lambda: running(serving, job), "the job runs", WAIT_S)
    agents, killed = serving.agents(), holders(serving)
    assert len(killed) == 4
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    assert ended(serving, job) == "failed"
    assert serving.client.job(job).reason == "exit 5"
    until(lambda: len(set(holders(serving)) - set(killed)) == 4, "Ray has the holders back", WAIT_S)
    assert serving.agents() == agents


def test_a_server_that_is_killed_finds_its_nodes_and_their_jobs_again(serving: RayServing) -> None:
    job = submitted(serving, "sleep 4; exit 6", cpus=1)
    until(lambda: running(serving, job), "the job runs", WAIT_S)
    agents = serving.agents()
    serving.kill()
    serving.start()
    assert ended(serving, job) == "failed"
    assert (serving.client.job(job).reason, len(serving.client.attempts(job).attempts)) == ("exit 6", 1)
    assert serving.agents() == agents


def test_a_node_whose_raylet_is_killed_is_closed_within_a_lease_and_taken_over_when_it_is_back(
    serving: RayServing,
) -> None:
    job = submitted(serving, "sleep 15; exit 7", cpus=1)
    until(lambda: running(serving, job), "the job runs", WAIT_S)
    node, agents = place(serving, job), serving.agents()
    part = serving.part_of(node)
    begun = time.monotonic()
    serving.cluster.kill(part)
    until(lambda: any(one.draining for one in serving.client.nodes()), "the node is closed", WAIT_S)
    closed_s = time.monotonic() - begun
    assert "raylet" in drained(serving, node) or "dead" in drained(serving, node)
    serving.cluster.start_node(part)
    until(lambda: not any(one.draining for one in serving.client.nodes()), "the node is open again", WAIT_S)
    assert ended(serving, job) == "failed"
    assert (serving.client.job(job).reason, len(serving.client.attempts(job).attempts)) == ("exit 7", 1)
    assert serving.agents() == agents
    assert closed_s < LEASE_S or os.getloadavg()[0] > 4


def test_nothing_of_the_jobs_is_left(serving: RayServing) -> None:
    mark = str(serving.base).encode()
    shown = [pid for pid in procfs.all_pids() if any(mark in one for one in procfs.environment_of(pid))]
    assert [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in shown] == []
