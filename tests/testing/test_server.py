"""A server in the process: the real loop, log and API; time and nodes are virtual, and it leaves nothing behind."""

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import ApiProblem, Client
from penstock.core.model.errors import InvalidInput
from penstock.core.model.jobs import Job
from penstock.testing.builders import cluster_file
from penstock.testing.engine import Behaviour
from penstock.testing.server import InProcessServer


@pytest.fixture
def server() -> Iterator[InProcessServer]:
    with InProcessServer() as running:
        yield running


def states(server: InProcessServer, *jobs: int) -> list[str]:
    return [server.client.job(job).state for job in jobs]


def test_jobs_start_at_once_and_end_as_time_passes(server):
    long, bad = server.submit({"command": "sleep 90", "devices": 4}), server.submit({"command": "exit 3"})
    assert states(server, long, bad) == ["running", "running"]
    server.advance(10)
    assert states(server, long, bad) == ["running", "failed"]
    server.advance(80)
    shown = server.client.job(long)
    assert (shown.state, shown.finished_ms - shown.started_ms) == ("succeeded", 90_000)


def test_it_is_reached_with_its_token_alone(server):
    def ready(token: str) -> int:
        with contextlib.closing(Client.at(server.url, token=token, insecure=True)) as client:
            return client.cluster().nodes_ready

    assert ready(server.token) == 2
    with pytest.raises(ApiProblem) as refused:
        ready("another")
    assert refused.value.details.code == "unauthenticated"


def test_a_preempted_job_saves_and_resumes_where_it_was(server):
    program = Behaviour(600, saves_every=100)
    low = server.submit({"command": list(program.command()), "devices": 4, "replicas": 2, "preemptible": True})
    server.advance(25)
    high = server.submit({"command": "sleep 20", "devices": 4, "replicas": 2, "priority": "high"})
    server.advance(1)
    assert states(server, low, high) == ["waiting", "running"]
    server.advance(60)
    shown = server.client.job(low)
    assert (shown.state, shown.preemptions, shown.attempt) == ("succeeded", 1, 2)
    assert shown.finished_ms - shown.started_ms == 60_000 + 20_000  # its work, done once, and its wait


def test_a_job_whose_machine_dies_runs_again_on_another(server):
    job = server.submit({"command": "sleep 600", "devices": 4})
    (first,) = server.client.job(job).nodes
    server.engine.crash(first)
    server.advance(60)
    shown = server.client.job(job)
    assert (shown.state, shown.attempt) == ("running", 2)
    assert shown.nodes != [first]
    server.engine.boot(first)
    assert {node.name: node.state for node in server.client.nodes()} == {"n1": "ready", "n2": "ready"}


class Last:
    name = "last"

    def order_key(self, job: Job, now_ms: int, settings: object) -> tuple[int, ...]:
        return (-job.id,)


def test_a_third_party_policy_orders_its_queue():
    cluster = cluster_file(1, 1) | {"queues": [{"name": "q", "policy": "ext:last"}]}
    with InProcessServer(cluster, policies=[Last()]) as server:
        jobs = [server.submit({"command": "sleep 10", "devices": 1, "queue": "q"}) for _ in range(3)]
        server.advance(10)
        assert states(server, *jobs) == ["succeeded", "waiting", "running"]


def test_the_same_requests_make_the_same_log():
    def played() -> list[tuple[int, object]]:
        with InProcessServer(cluster_file(2, 2)) as server:
            for seconds in (5, 30, 12, 7):
                server.submit({"command": f"sleep {seconds}", "devices": 2})
                server.advance(3)
            server.advance(60)
            return [(r.time_ms, r.event) for job in range(1, 5) for r in server.client.job_events(job)]

    first = played()
    assert first == played()
    assert len(first) > 12


def test_nothing_is_left_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(threading.enumerate())
    with InProcessServer() as server:
        server.submit({"command": "sleep 60", "devices": 4})
        assert server.client.plan({"command": "true", "devices": 4}).jobs
        assert list(Path(tmp_path).iterdir())
    assert list(Path(tmp_path).iterdir()) == []
    assert set(threading.enumerate()) == before


def test_a_cluster_file_with_problems_is_refused_with_all_of_them():
    with pytest.raises(InvalidInput) as refused:
        InProcessServer({"nodes": [{"name": "n1", "cpus": "x"}], "queue": []})
    assert len(refused.value.problems) == 2


def test_settling_fails_when_the_control_loop_has_stopped(server, monkeypatch):
    def fail(group: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server.service.controller, "handle", fail)
    with pytest.raises(RuntimeError, match="the control loop does not answer"):
        server.settle()
    assert isinstance(server._fault, ZeroDivisionError)
