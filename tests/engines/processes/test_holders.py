"""Who is ended by a number from a file: the process that holds the lock beside it, and no other with that number."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engines.local.launch import agent_pid, replace_agent, stop_agent
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import has_open, signal_holder


class Stranger:
    """A process that has nothing to do with us, and answers."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid

    def answers(self) -> bool:
        """Return whether it still runs: a signal that was sent before would have ended it first."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"x\n")
        self.process.stdin.flush()
        return self.process.stdout.readline() == b"x\n"


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    with made.process:
        yield made
        made.process.kill()


def test_only_a_process_that_has_the_file_open_gets_the_signal(tmp_path, stranger):
    (tmp_path / "lock").touch()
    assert not signal_holder(stranger.pid, tmp_path / "lock", signal.SIGTERM)
    with (tmp_path / "lock").open() as file:
        holder = subprocess.Popen(["sleep", "60"], stdin=file)
        assert has_open(os.getpid(), tmp_path / "lock")
    assert not has_open(os.getpid(), tmp_path / "lock")
    assert signal_holder(holder.pid, tmp_path / "lock", signal.SIGTERM)
    assert (holder.wait(), stranger.answers()) == (-signal.SIGTERM, True)
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
    assert stranger.answers()
