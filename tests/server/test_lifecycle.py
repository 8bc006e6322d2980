"""A server's beginning and end: full disks, second servers, bad cluster files, and what a restart finds."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import ApiProblem
from penstock.engines.local.launch import agent_pid, stop_agent
from tests.server.harness import Jobs, Server, cluster_file, environment, until
from tests.smalldisk import small_file_system


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", cluster_file(1)) as server:
        yield server


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    with small_file_system(tmp_path / "disk", "4m") as folder:
        yield folder


@pytest.mark.root
def test_a_full_disk_refuses_a_submit_whole_and_the_next_one_works(tmp_path, small_disk):
    with Server(tmp_path / "server", cluster_file(1), data=small_disk / "data") as server:
        ballast = small_disk / "ballast"
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(b"x" * (4 << 20))
        body = json.dumps([{"command": "true", "name": "n" * 200, "env": {"A": "x" * 900}}] * 900).encode()
        answer = server.http("POST", "/api/v1/jobs", body, Idempotency_Key="k")
        assert (answer.status, answer.json()["code"]) == (507, "store_full")
        assert answer.json()["hint"] == "free space; nothing was half done"
        assert server.client.jobs().jobs == []
        (alert,) = server.client.alerts()
        assert (alert.code, alert.text) == ("log_disk", "the log cannot be written: the disk of the event log is full")
        assert server.http("GET", "/api/v1/health").json()["status"] == "log_disk"
        ballast.unlink()
        again = server.http("POST", "/api/v1/jobs", b'{"command": "true"}', Idempotency_Key="k")
        jobs = Jobs(server.client)
        assert (again.status, jobs.ended(again.json()["jobs"][0]["id"]).state) == (201, "succeeded")
        until(lambda: not server.client.alerts(), "no alert is left")
        assert server.http("GET", "/api/v1/health").json()["status"] == "ok"


@pytest.mark.root
def test_a_full_disk_is_told_before_anything_is_refused(tmp_path, small_disk):
    with Server(tmp_path / "server", cluster_file(0), data=small_disk / "data") as server:
        with pytest.raises(OSError, match="No space"):
            (small_disk / "ballast").write_bytes(b"x" * (4 << 20))
        (alert,) = server.client.alerts()
        assert (alert.code, alert.text) == (
            "log_disk",
            "the log cannot be written for long: its disk is full: 0 B are free",
        )


def test_an_agent_that_cannot_be_started_for_a_while_is_started_then(own):
    config = own.data.node("n1") / "agent.json"
    config.unlink()
    config.mkdir()
    stop_agent(own.data, "n1")
    until(lambda: "agent not started" in own.log(), "it is said that it cannot be")
    config.rmdir()
    until(lambda: agent_pid(own.data, "n1"), "it is started")
    jobs = Jobs(own.client)
    assert jobs.ended(jobs.submit("true")).state == "succeeded"


def test_a_restart_goes_on_with_everything(own):
    jobs = Jobs(own.client)
    done, running = jobs.submit("true"), jobs.submit("echo ready; sleep 60", devices=4)
    waiting = jobs.submit("true", devices=4)
    jobs.ended(done)
    jobs.said(running, "ready")
    own.process.kill()
    own.process.wait()
    own.hang_up()
    own.start()
    client = own.client
    assert [client.job(j).state for j in (done, running, waiting)] == ["succeeded", "running", "waiting"]
    assert (client.job(running).attempt, client.cluster().epoch) == (1, 2)
    client.cancel(running)
    assert Jobs(client).ended(waiting).state == "succeeded"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_asked_to_end_puts_its_things_in_order(own, number):
    own.process.send_signal(number)
    assert own.process.wait(20) == 0
    assert not own.data.server_info.exists()
    assert list((own.data.log / "snapshots").iterdir())


def run_second(server: Server, **options: object) -> subprocess.CompletedProcess[str]:
    given = json.dumps({"data": str(server.data.root), **options})
    command = [sys.executable, "-m", "penstock.wire", given]
    return subprocess.run(command, env=environment(server.root), capture_output=True, text=True, timeout=60)


def test_there_is_one_server_a_folder(server):
    second = run_second(server)
    assert second.returncode == 7
    assert f"another server runs on {server.data.root}" in second.stderr
    assert server.client.healthy()


def test_a_bad_cluster_file_is_refused_with_every_problem(server, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("nodes: [{name: a b}]\nqueus: []\n")
    second = run_second(server, data=str(tmp_path / "other"), cluster_file=str(bad))
    assert second.returncode == 2
    assert "2 problems" in second.stderr
    assert "did you mean 'queues'?" in second.stderr


def test_a_port_in_use_is_named(server, tmp_path):
    given = json.dumps({"data": str(tmp_path / "other"), "port": server.port, "respawn_agents": False})
    command = [sys.executable, "-m", "penstock.wire", given]
    second = subprocess.run(command, env=environment(server.root), capture_output=True, text=True, timeout=60)
    assert second.returncode == 2
    assert f"cannot listen on 127.0.0.1:{server.port}" in second.stderr


def test_a_dead_agent_is_started_again(own):
    from penstock.engines.local.launch import agent_pid

    first = agent_pid(own.data, "n1")
    os.killpg(first, signal.SIGKILL)
    until(lambda: agent_pid(own.data, "n1") not in (None, -1, first), "another agent lives")
    assert Jobs(own.client).ended(Jobs(own.client).submit("true")).state == "succeeded"


def test_jobs_of_a_node_that_was_killed_whole_run_again(own):
    from penstock.engines.local.launch import agent_pid

    jobs = Jobs(own.client)
    job = jobs.submit("echo ready; sleep 60")
    jobs.said(job, "ready")
    os.killpg(agent_pid(own.data, "n1"), signal.SIGKILL)
    jobs.client.cancel(job)
    assert jobs.ended(job).state == "cancelled"


def test_a_wrong_token_is_named_by_the_client(server):
    from penstock.client import Client

    client = Client.of(server.data.root, token="wrong")
    with pytest.raises(ApiProblem) as refused:
        client.jobs()
    client.close()
    assert refused.value.details.code == "unauthenticated"
