"""A data folder of a former version, with an agent of that version that still runs a job."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import penstock
from penstock.engines.agent import protocol
from penstock.engines.local.launch import agent_pid
from tests.server.harness import Jobs, Server, cluster_file, until


def running_alone(server: Server) -> tuple[int, int, int | None]:
    """Start a job and kill the server; return the numbers of the job, of its process and of the agent's."""
    jobs = Jobs(server.client)
    job = jobs.submit("echo $$; sleep 60")
    jobs.state(job, "running")
    until(lambda: jobs.output(job), "it says its number")
    pid, agent = int(jobs.output(job)), agent_pid(server.data, "n1")
    server.hang_up()
    server.process.kill()
    server.process.wait()
    return job, pid, agent


def replaced(server: Server, agent: int | None) -> None:
    """Wait until the node's agent is another process, of the program that is installed now.

    The former one may have come back before it is replaced: it reads the new certificates as well.
    """
    until(lambda: agent_pid(server.data, "n1") not in (agent, None, -1), "the agent is another")


def test_an_old_folder_gets_certificates_and_its_jobs_run_on(tmp_path):
    with Server(tmp_path / "data", cluster_file(1)) as server:
        job, pid, agent = running_alone(server)
        for path in (*server.data.certificates.iterdir(), server.data.node_certificate("n1")):
            path.unlink()
        server.start()
        replaced(server, agent)
        (seen,) = until(lambda: [n for n in server.client.nodes() if n.connected], "the agent is back")
        os.kill(pid, 0)
        assert (seen.name, server.client.job(job).state, server.client.job(job).attempt) == ("n1", "running", 1)
        Jobs(server.client).client.cancel(job)


def another_installation(folder: Path, version: int, monkeypatch) -> tuple[Path, str]:
    """Let what is started from now on be of another protocol; return the file to change, and what it would be here."""
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(penstock.__file__).parent, folder / "penstock", ignore=without)
    spoken = folder / "penstock" / "engines" / "agent" / "protocol.py"
    now = spoken.read_text()
    spoken.write_text(re.sub(r"PROTOCOL_VERSION = \d+", f"PROTOCOL_VERSION = {version}", now))
    monkeypatch.setattr("tests.server.harness.SOURCES", str(folder))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return spoken, now


def test_an_agent_that_another_installation_starts_again_is_named(tmp_path, monkeypatch):
    with monkeypatch.context() as elsewhere:
        another_installation(tmp_path / "installed", protocol.PROTOCOL_VERSION + 1, elsewhere)
        server = Server(tmp_path / "data", cluster_file(1)).__enter__()
    with contextlib.closing(server):
        running_alone(server)
        server.start()
        (alert,) = until(lambda: [a for a in server.client.alerts() if a.code == "agent_version"], "it is named")
        runs = f"Penstock {penstock.__version__}, protocol {protocol.PROTOCOL_VERSION + 1}"
        assert alert.text.startswith(f"node n1 is not used: its agent runs {runs}, and the server")
        assert "penstock down" in alert.resolve
        assert "an agent of another version is refused, and its node not used" in server.log()


def test_an_agent_that_would_misunderstand_its_orders_is_replaced_and_its_jobs_run_on(tmp_path, monkeypatch):
    spoken, now = another_installation(tmp_path / "installed", protocol.PROTOCOL_VERSION - 1, monkeypatch)
    with Server(tmp_path / "data", cluster_file(1)) as server:
        job, pid, agent = running_alone(server)
        spoken.write_text(now)
        server.start()
        replaced(server, agent)
        until(lambda: [n for n in server.client.nodes() if n.connected], "the agent is back")
        os.kill(pid, 0)
        assert (server.client.job(job).state, server.client.job(job).attempt) == ("running", 1)
        after = Jobs(server.client)
        assert after.ended(after.submit("true")).state == "succeeded"
        after.client.cancel(job)
