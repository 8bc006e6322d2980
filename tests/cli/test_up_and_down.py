"""A server's life from the command line: it says what it starts, and ends everything that it started."""

import json
import os

from tests.server.harness import cluster_file, started_for, until


def nothing_is_left(alone) -> None:
    until(lambda: [pid for pid in started_for(alone.folder) if pid != os.getpid()] == [], "all processes are gone", 10)


def test_up_and_down_leave_nothing_behind(alone):
    file = alone.file(json.dumps(cluster_file()), "cluster.yaml")
    up = alone.anew("up", "--cluster", file, "--json").json()
    assert (up["data"], up["url"].startswith("http://127.0.0.1:")) == (str(alone.data), True)
    again = alone("up", "--cluster", file)
    assert (again.code, "already" in again.err) == (1, True)
    job = alone("submit", "--json", "--", "sh", "-c", "trap '' TERM; sleep 300").json()["jobs"][0]["id"]
    assert job == 1
    assert alone("down").out == "ended the server and 2 agent(s)\n"
    nothing_is_left(alone)
    assert alone("down").code == 3


def test_a_server_that_cannot_start_says_why(alone):
    file = alone.file("nodes: [{nam: x}]\n", "cluster.yaml")
    told = alone("up", "--cluster", file)
    assert told.code == 1
    assert "the server did not start" in told.err
    assert "did you mean 'name'?" in told.err or "nodes[0]" in told.err
    nothing_is_left(alone)


def test_run_starts_a_server_where_there_is_none_and_says_so(alone):
    told = alone.anew("run", "--", "sh", "-c", "echo first; exit 4")
    assert (told.code, told.out) == (4, "first\n")
    assert "no server was running; starting one on" in told.err
    again = alone("run", "--", "echo", "second")
    assert (again.out, "starting one" in again.err) == ("second\n", False)
    assert alone("down").code == 0
    nothing_is_left(alone)


def test_up_waits_for_every_node_that_the_file_declares(alone):
    file = alone.file(json.dumps(cluster_file(6)), "cluster.yaml")
    up = alone.anew("up", "--cluster", file, "--json").json()
    assert (up["cluster"]["nodes_ready"], up["cluster"]["devices"]) == (6, 24)
