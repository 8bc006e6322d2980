"""Commands typed in a folder whose files are somebody else's: none of these runs."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from penstock.engines.local.launch import agent_pid
from penstock.engines.processes.paths import DataFolder
from tests.server.harness import SOURCES, cluster_file, started_for, until

MODULES = ("sitecustomize", "usercustomize", "logging", "msgspec", "json", "penstock/__init__", "multiprocessing")
TOOLS = ("sh", "python", "python3", "py-spy", "nvidia-smi")


@pytest.fixture
def hostile(alone):
    """A terminal in a folder of modules and programs that leave a note when they run."""
    note = alone.folder / "ran"
    for name in MODULES:
        path = alone.folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"open({str(note)!r}, 'a').write({name!r} + ' ')\nraise SystemExit(9)\n")
    for name in TOOLS:
        (alone.folder / name).write_text(f"#!/bin/sh\necho {name} >> {note}\nexit 9\n")
        (alone.folder / name).chmod(0o755)
    return alone


VARIABLES = {"PYTHONPATH": f"{SOURCES}::.", "PATH": f".::{os.environ['PATH']}:", "TMPDIR": "tmp"}


def ours(folder: Path) -> dict[int, list[str]]:
    """Return the words of the processes of Penstock that were started for a folder."""
    found = {}
    for pid in started_for(folder):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if pid != os.getpid() and any(word.startswith("penstock.") for word in words):
                found[pid] = words
    return found


def works_apart(pid: int, words: list[str]) -> bool:
    return os.readlink(f"/proc/{pid}/cwd") == "/" and words[1:3] == ["-P", "-m"]


def test_a_server_runs_nothing_of_the_folder_where_it_was_started(hostile):
    (hostile.folder / "tmp").mkdir()
    file = hostile.file(json.dumps(cluster_file(1)), "cluster.yaml")
    up = hostile("up", "--cluster", file, "--data", "data", "--json", **VARIABLES)
    assert up.json()["data"] == str(hostile.data)
    hostile("plan", "--devices", "4", "--", "true", **VARIABLES)
    hostile("nodes", **VARIABLES)
    found = ours(hostile.folder)
    assert {words[3] for words in found.values()} >= {"penstock.wire", "penstock.engines.agent.guardian"}
    assert [words for pid, words in found.items() if not works_apart(pid, words)] == []
    assert hostile("down", **VARIABLES).code == 0
    assert not (hostile.folder / "ran").exists()


def test_a_guardian_that_was_killed_is_followed_by_one_that_works_apart(hostile):
    file = hostile.file(json.dumps(cluster_file(1)), "cluster.yaml")
    assert hostile("up", "--cluster", file, "--no-respawn", **VARIABLES).code == 0
    data = DataFolder(hostile.data)
    former = agent_pid(data, "n1")
    os.kill(former, signal.SIGKILL)
    until(lambda: agent_pid(data, "n1") not in (None, -1, former), "the worker is the guardian")
    found = ours(hostile.folder)
    assert [words for pid, words in found.items() if not works_apart(pid, words)] == []
    assert hostile("down", **VARIABLES).code == 0
    assert not (hostile.folder / "ran").exists()


def test_run_in_a_cloned_repository_starts_a_server_that_runs_nothing_of_it(hostile):
    told = hostile("run", "--", "/bin/echo", "first", **VARIABLES)
    assert (told.code, told.out) == (0, "first\n")
    assert hostile("down", **VARIABLES).code == 0
    assert not (hostile.folder / "ran").exists()


def test_a_server_in_the_foreground_runs_nothing_of_the_folder(hostile):
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            hostile("up", "--foreground", "--data", "data", **VARIABLES)
        os._exit(0)
    server = DataFolder(hostile.data).server_info
    until(server.exists, "it answers")
    leader = json.loads(server.read_bytes())["pid"]
    assert works_apart(leader, ours(hostile.folder)[leader])
    assert hostile("down", **VARIABLES).code == 0
    os.waitpid(pid, 0)
    assert not (hostile.folder / "ran").exists()
