"""Who is ended by a number from a file: the process that holds the lock beside it, and no other with that number."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engines.local.launch import agent_pid, replace_agent, stop_agent
from penstock.engines.local.paths import DataFolder
from penstock.engines.local.procfs import has_open, signal_holder


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_only_a_process_that_has_the_file_open_gets_the_signal(tmp_path, stranger):
    (tmp_path / "lock").touch()
    assert not signal_holder(stranger.pid, tmp_path / "lock", signal.SIGTERM)
    with (tmp_path / "lock").open() as file:
        holder = subprocess.Popen(["sleep", "60"], stdin=file)
        assert has_open(os.getpid(), tmp_path / "lock")
    assert not has_open(os.getpid(), tmp_path / "lock")
    assert signal_holder(holder.pid, tmp_path / "lock", signal.SIGTERM)
    assert (holder.wait(), stranger.poll()) == (-signal.SIGTERM, None)
    assert not signal_holder(holder.pid, tmp_path / "lock", signal.SIGTERM)
    assert not has_open(holder.pid, tmp_path / "nothing")


@pytest.mark.parametrize("end", [stop_agent, replace_agent])
def test_the_number_of_a_former_agent_ends_nobody(tmp_path: Path, stranger, end):
    data = DataFolder(tmp_path)
    data.node("n1").mkdir(parents=True)
    (data.node("n1") / "agent.pid").write_text(str(stranger.pid))
    with (data.node("n1") / "agent.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert agent_pid(data, "n1") == stranger.pid
        end(data, "n1")
    assert stranger.poll() is None
