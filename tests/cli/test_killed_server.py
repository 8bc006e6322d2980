"""What a killed server leaves is worth nothing to who takes its place: no token is sent there, no process is ended."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal
from tests.server.fakes import FakeServer
from tests.server.harness import Server, cluster_file


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", declared=cluster_file(1)) as running:
        yield running


@pytest.fixture
def terminal(own: Server, tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, own.data.root, own.root)


def kill(server: Server) -> dict:
    """Kill a server and return what it has left said of itself."""
    server.hang_up()
    server.process.kill()
    server.process.wait()
    return json.loads(server.data.server_info.read_bytes())


def say(server: Server, info: dict) -> None:
    server.data.server_info.write_text(json.dumps(info))


@pytest.mark.parametrize("words", [("ps",), ("nodes",), ("submit", "--", "true"), ("token", "list")])
@pytest.mark.parametrize("former", [False, True], ids=["now", "former version"])
def test_who_takes_the_port_of_a_killed_server_is_sent_no_token(own, terminal, words, former):
    left = kill(own)
    if former:
        say(own, {name: value for name, value in left.items() if name != "socket"})
    with contextlib.closing(FakeServer(port=left["port"])) as fake:
        told = terminal(*words)
        assert (told.code, told.out, fake.asked) == (3, "", [])
    assert f"no server runs on {own.data.root}" in told.err


def test_a_server_of_a_former_version_is_asked_while_it_lives(own, terminal):
    info = json.loads(own.data.server_info.read_bytes())
    say(own, {name: value for name, value in info.items() if name != "socket"})
    assert terminal("nodes", "--json").json()["nodes"][0]["name"] == "n1"


def test_who_takes_the_process_number_of_a_killed_server_is_not_ended(own, terminal):
    left = kill(own)
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as other:
        say(own, left | {"pid": other.pid})
        told = terminal("down", "--json").json()
        assert (told["server"], other.poll()) == (None, None)
        other.stdin.close()


def test_a_server_that_ends_takes_its_socket_with_it_and_the_next_removes_what_a_killed_one_left(own, terminal):
    kill(own)
    own.start()
    (path,) = own.data.root.glob("api-*.sock")
    assert (path.name, path.stat().st_mode & 0o777) == (json.loads(own.data.server_info.read_bytes())["socket"], 0o600)
    assert terminal("ps").code == 0
    assert terminal("down").code == 0
    own.process.wait(30)
    assert list(own.data.root.glob("api-*.sock")) == []


@pytest.mark.parametrize("words", [("ps",), ("up",), ("run", "--", "true")])
def test_a_folder_that_others_may_write_to_is_refused_before_anything_is_sent_or_started(alone, words):
    alone.data.mkdir()
    alone.data.chmod(0o777)
    (alone.data / "token").write_text("t")
    with contextlib.closing(FakeServer()) as fake:
        (alone.data / "server.json").write_text(json.dumps({"host": "127.0.0.1", "port": fake.port}))
        told = alone(*words)
        assert (told.code, fake.asked, f"chmod go-w {alone.data}" in told.err) == (4, [], True)
    assert sorted(path.name for path in alone.data.iterdir()) == ["server.json", "token"]


def test_a_new_folder_is_never_open_for_others_to_write(alone):
    former = os.umask(0)
    try:
        assert alone("up", "--cluster", alone.file(json.dumps(cluster_file(1)), "cluster.yaml")).code == 0
        assert alone.data.stat().st_mode & 0o022 == 0
        assert alone("down").code == 0
    finally:
        os.umask(former)
