"""A server's life from the command line: it says what it starts, and ends everything that it started."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.cli import up
from penstock.core.model.answers import Alert
from tests.server.harness import SOURCES, cluster_file, environment, started_for, sweep, until


def nothing_is_left(alone) -> None:
    until(lambda: [pid for pid in started_for(alone.folder) if pid != os.getpid()] == [], "all processes are gone", 10)


def test_up_and_down_leave_nothing_behind(alone):
    file = alone.file(json.dumps(cluster_file()), "cluster.yaml")
    up = alone.anew("up", "--cluster", file, "--json").json()
    assert (up["data"], up["url"].startswith("http://127.0.0.1:")) == (str(alone.data), True)
    again = alone("up", "--cluster", file)
    assert (again.code, "already" in again.err) == (7, True)
    job = alone("submit", "--json", "--", "sh", "-c", "trap '' TERM; sleep 300").json()["jobs"][0]["id"]
    assert job == 1
    assert alone("down").out == "ended the server and 2 agents\n"
    nothing_is_left(alone)
    assert alone("down").code == 3


def test_a_server_that_cannot_start_says_why(alone):
    file = alone.file("nodes: [{nam: x}]\n", "cluster.yaml")
    told = alone("up", "--cluster", file)
    assert told.code == 2
    assert "the server did not start" in told.err
    assert "did you mean 'name'?" in told.err or "nodes[0]" in told.err
    nothing_is_left(alone)


def test_the_code_of_a_server_that_cannot_start_is_its_own(alone, monkeypatch):
    told = alone("up", "--store", "postgresql://127.0.0.1:1/none", "--json")
    assert (told.code, json.loads(told.err)["code"]) == (6, "store_unavailable")
    assert "code:" not in json.loads(told.err)["message"]
    monkeypatch.setattr(up, "SERVER", "penstock.no_such_server")
    told = alone("up", "--json")
    assert (told.code, json.loads(told.err)["code"]) == (1, "error")
    nothing_is_left(alone)


@pytest.mark.parametrize("port", ["-1", "65536", "99999"])
def test_a_port_that_there_is_not_is_refused(alone, port):
    told = alone("up", "--port", port)
    assert (told.code, "--port: expected" in told.err, alone.data.exists()) == (2, True, False)


def test_run_starts_a_server_where_there_is_none_and_says_so(alone):
    told = alone.anew("run", "--", "sh", "-c", "echo first; exit 4")
    assert (told.code, told.out) == (4, "first\n")
    assert "no server was running; starting one on" in told.err
    again = alone("run", "--", "echo", "second")
    assert (again.out, "starting one" in again.err) == ("second\n", False)
    assert alone("down").code == 0
    nothing_is_left(alone)


NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture
def as_nobody() -> Iterator[Callable[..., "subprocess.CompletedProcess[str]"]]:
    """Run commands as another user, in a folder of theirs; that user's Python and our files have to be there."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    with tempfile.TemporaryDirectory(prefix="penstock-nobody-") as name:
        folder = Path(name)
        os.chown(folder, NOBODY, NOBODY)
        packages = [SOURCES, *(path for path in sys.path if path.endswith("site-packages"))]
        variables = environment(folder, PENSTOCK_HOME=f"{folder}/data", PYTHONPATH=os.pathsep.join(packages), HOME=name)

        def run(*words: str) -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                [SYSTEM_PYTHON, "-P", *words],
                capture_output=True,
                text=True,
                cwd=folder,
                env=variables,
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
            )

        if run("-c", "import penstock.cli.main, penstock.wire").returncode:
            pytest.skip("another user cannot run what is tested here")
        yield run
        sweep(folder)


def test_up_warns_once_where_all_tenants_run_as_one_account(as_nobody):
    declared = cluster_file(1) | {"tenants": ["default", "vision"]}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(declared, file)
        file.flush()
        os.chmod(file.name, 0o644)
        up = as_nobody("-m", "penstock.cli.main", "up", "--cluster", file.name)
    assert up.returncode == 0, up.stderr
    assert up.stderr.count("jobs of all tenants run as one account of the machine") == 1
    ran = as_nobody("-m", "penstock.cli.main", "run", "--", "id", "-u")
    assert (ran.stdout, "one account" in ran.stderr) == (f"{NOBODY}\n", False)
    assert as_nobody("-m", "penstock.cli.main", "down").returncode == 0


def test_up_waits_for_every_node_that_the_file_declares(alone):
    file = alone.file(json.dumps(cluster_file(6)), "cluster.yaml")
    up = alone.anew("up", "--cluster", file, "--json").json()
    assert (up["cluster"]["nodes_ready"], up["cluster"]["devices"]) == (6, 24)


def test_up_says_how_many_nodes_are_ready_while_it_waits(alone, monkeypatch):
    monkeypatch.setattr(up, "SAY_EVERY_S", 0.0)
    file = alone.file(json.dumps(cluster_file(6)), "cluster.yaml")
    told = alone("up", "--cluster", file)
    assert all(re.fullmatch(r"[0-5] of 6 nodes ready", line) for line in told.err.splitlines())
    assert "6 nodes, 24 devices. Try: penstock run -- echo hello" in told.out
    assert alone("down").code == 0
    told = alone("up", "--json")
    assert (told.json()["cluster"]["nodes_ready"], told.err) == (6, "")


class Growing:
    """A server of which one more node is ready at each look, up to a number."""

    def __init__(self, most: int) -> None:
        self.most, self.ready = most, 0

    def nodes(self):
        self.ready = min(self.ready + 1, self.most)
        return [NodeView(f"n{i}", "ready", connected=True) for i in range(self.ready)]


class NodeView(NamedTuple):
    name: str
    state: str
    connected: bool


def waited(client: Growing, count: int) -> None:
    up._wait_for_nodes(
        {f"n{i}" for i in range(count)}, client, Path("server.log"), lambda: None, lambda text: None, quiet=True
    )


def test_up_waits_for_as_long_as_further_nodes_become_ready(monkeypatch):
    monkeypatch.setattr(up, "START_WAIT_S", 0.3)
    monkeypatch.setattr(up, "NODE_WAIT_S", 0.0)
    client = Growing(9)
    waited(client, 9)  # at least 0.5 s
    assert client.ready == 9


def test_up_gives_up_when_no_further_node_becomes_ready(monkeypatch):
    monkeypatch.setattr(up, "START_WAIT_S", 0.2)
    monkeypatch.setattr(up, "NODE_WAIT_S", 0.0)
    with pytest.raises(up.NotStarted) as failed:
        waited(Growing(2), 3)
    assert failed.value.message == "2 of 3 nodes became ready, and no other within 0.2 s"
    assert "penstock nodes shows which are missing" in failed.value.hint


def test_up_says_which_agent_stays_one_of_another_version(monkeypatch):
    monkeypatch.setattr(up, "SAY_EVERY_S", 0.0)
    client = Growing(1)
    found = [Alert("agent_version", (), 0, f"node {name} is old", f"mend {name}") for name in ("x", "n1")]
    client.alerts = lambda: found
    with pytest.raises(up.NotStarted) as failed:
        waited(client, 2)
    assert (failed.value.message, failed.value.hint) == ("the server runs, but node n1 is old", "mend n1")


def test_two_servers_that_start_at_once_are_refused_as_one_after_the_other(alone):
    file = alone.file(json.dumps(cluster_file(1)), "cluster.yaml")
    both = [alone.begin("up", "--cluster", file) for _ in range(2)]
    told = [one.communicate(timeout=60)[1] for one in both]
    assert sorted(one.returncode for one in both) == [0, 7], told
