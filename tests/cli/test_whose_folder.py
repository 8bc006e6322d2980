"""A data folder that somebody else could have filled: no command believes anything in it."""

import json
import os
import subprocess
import sys

import msgspec
import pytest

from penstock.engines.agent.worker import AgentConfig
from penstock.engines.processes.paths import DataFolder
from penstock.testing.builders import node
from tests.server.harness import environment, started_for

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders of other users")
COMMANDS = (
    ("up",),
    ("up", "--foreground"),
    ("run", "--", "true"),
    ("ps",),
    ("down",),
    ("shell", "1"),
    ("certificates",),
    ("store", "backup", "archive"),
    ("store", "verify"),
    ("token", "list"),
)


def nothing_was_started(alone) -> bool:
    return [pid for pid in started_for(alone.folder) if pid != os.getpid()] == []


@root_only
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_a_folder_of_another_user(alone, command):
    alone.data.mkdir()
    (alone.data / "server.json").write_text(json.dumps({"pid": os.getpid(), "host": "127.0.0.1", "port": 9}))
    os.chown(alone.data, 65534, 65534)
    told = alone(*command)
    assert (told.code, "(owner nobody, mode 0755) belongs to another user" in told.err) == (4, True), told.err
    assert f"chown root {alone.data}; or work as nobody" in told.err
    assert nothing_was_started(alone)


@pytest.mark.parametrize("name", ["tokens.json", "cluster.yaml", "nodes/n1/agent.json"])
def test_a_file_that_others_may_write_keeps_a_server_from_starting(alone, name):
    (alone.data / name).parent.mkdir(mode=0o700, parents=True)
    (alone.data / name).write_text("[]")
    (alone.data / name).chmod(0o666)
    told = alone("up")
    assert (told.code, f"chmod go-w {alone.data / name}" in told.err) == (4, True), told.err
    assert nothing_was_started(alone)


def test_a_server_looks_itself_whoever_starts_it(alone):
    alone.data.mkdir()
    alone.data.chmod(0o777)
    words = [sys.executable, "-P", "-m", "penstock.wire", json.dumps({"data": str(alone.data)})]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(alone.folder))
    assert (done.returncode, f"hint: chmod go-w {alone.data}" in done.stderr) == (4, True)
    assert list(alone.data.iterdir()) == []


@pytest.mark.parametrize("module", ["penstock.engines.agent.guardian", "penstock.engines.local.agent"])
def test_an_agent_looks_itself_whoever_starts_it(alone, module):
    folder = DataFolder(alone.data).node("n1")
    folder.mkdir(parents=True)
    (folder / "agent.json").write_bytes(msgspec.json.encode(AgentConfig(str(alone.data), node("n1"), "x")))
    (folder / "agent.json").chmod(0o666)
    words = [sys.executable, "-P", "-m", module, str(folder / "agent.json")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(alone.folder))
    assert (done.returncode, "can be written by everybody" in done.stderr) == (1, True)
    assert [path.name for path in folder.iterdir()] == ["agent.json"]


def test_what_up_makes_is_closed_whatever_the_umask(alone):
    before = os.umask(0)
    try:
        assert alone("run", "--", "sh", "-c", "umask; echo x > $PENSTOCK_CHECKPOINT_DIR/x").out == "0022\n"
    finally:
        os.umask(before)
    found = [alone.data, *alone.data.rglob("*")]
    assert [str(path) for path in found if path.lstat().st_mode & 0o022 and not path.is_symlink()] == []
    above = 0o711 if os.geteuid() == 0 else 0o700
    assert (alone.data.stat().st_mode & 0o777, (alone.data / "nodes").stat().st_mode & 0o777) == (above, 0o700)
    assert alone("down").code == 0


def test_down_ends_no_process_that_is_not_the_server(alone):
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        alone.data.mkdir(mode=0o700)
        (alone.data / "server.json").write_text(json.dumps({"pid": stranger.pid, "host": "127.0.0.1", "port": 9}))
        (alone.data / "server.lock").touch(mode=0o600)
        assert (alone("down").code, stranger.poll()) == (3, None)
    finally:
        stranger.kill()
        stranger.wait()
