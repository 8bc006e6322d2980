"""`runtime: ray`: the places of a job form a Ray cluster of its own, on the local engine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Client
from tests.engines.ray import needs  # noqa: F401 - without Ray these tests are skipped
from tests.server.harness import FINAL, Server, cluster_file, started_for, until

PROGRAM = Path(__file__).with_name("trainer.py")
STEPS = 300
WAIT_S = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    declared = cluster_file(2, devices=0)
    for node in declared["nodes"]:
        node["cpus"] = 2
    with Server(tmp_path_factory.mktemp("ray") / "data", declared) as made:
        yield made


def submitted(client: Client, steps: int, **fields: Any) -> int:
    given = {"command": [sys.executable, str(PROGRAM), str(steps)], "runtime": "ray", "memory": "1GiB"}
    request = {**given, "env": {"PATH": os.environ["PATH"]}, "workdir": "/", **fields}
    return client.submit(request).jobs[0].id


def state(client: Client, job: int) -> str:
    return client.job(job).state


def output(server: Server, job: int, attempt: int) -> str:
    return (server.data.job(job) / f"attempt-{attempt}.rank-0.log").read_text()


def processes(server: Server) -> set[str]:
    """Return the programs that run for the server's jobs, as Ray names its own."""
    names = set()
    for pid in started_for(server.data.root / "jobs"):
        names.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return names


def test_the_exit_code_is_that_of_the_program_and_the_cluster_is_of_one_place(server: Server) -> None:
    job = submitted(server.client, 3, cpus=1)
    until(lambda: state(server.client, job) in FINAL, "the program ended", WAIT_S)
    said = output(server, job, 1)
    assert server.client.job(job).reason == "exit 3", said
    assert "nodes 1 cpus 1\nreached 1\ncounted 3 from 0" in said


def test_a_gang_has_a_cluster_on_its_places_alone_saves_when_preempted_and_goes_on(server: Server) -> None:
    client = server.client
    job = submitted(client, STEPS, replicas=2, cpus=2, topology="spread")
    until(lambda: "reached" in output(server, job, 1) if state(client, job) == "running" else "", "tasks ran", WAIT_S)
    urgent = client.submit({"command": "true", "cpus": 2, "priority": "high"}).jobs[0].id
    until(lambda: state(client, urgent) == "succeeded", "the urgent job ran", WAIT_S)
    until(lambda: state(client, job) in FINAL, "the program ended", WAIT_S)
    first, second = output(server, job, 1), output(server, job, 2)
    assert state(client, job) == "succeeded", first + second
    assert "nodes 2 cpus 4\nreached 2\n" in first
    saved = first.rpartition("saved ")[2].strip()
    assert 0 < int(saved) < STEPS
    assert f"counted {STEPS} from {saved}" in second


def test_nothing_is_left(server: Server) -> None:
    """After the others: no process of Ray, and none of its folders."""
    until(lambda: not processes(server), "all processes of jobs have ended")
    assert processes(server) == set()
