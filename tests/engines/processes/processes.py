"""Real processes for the tests of containment: programs that try to get away, and what is left of them."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.core.messages.reports import ReplicaKey
from penstock.engines.processes.boxes import Box, kill_inside
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import Process, alive, start_ticks
from penstock.engines.processes.sessions import SessionContainment
from penstock.engines.processes.spawn import StartGate, spawn
from tests.engines.agent.builders import KEY, start
from tests.server.harness import until

ESCAPE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1], sys.argv[2])
        time.sleep(60)
    os._exit(0)
if "stay" in sys.argv:
    time.sleep(60)
"""
"""Double fork into a session of its own, SIGTERM ignored, output inherited; the parent leaves at once or stays."""

HEADLESS = """
import _thread, ctypes, os, signal, time
def stay():
    time.sleep(60)
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
_thread.start_new_thread(stay, ())
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
"""Two processes, one in a session of its own, whose first threads end while others go on: /proc shows zombies."""


PARENT = f"penstock-test-{os.getpid()}"
"""Above the boxes of this test process: other processes run the same tests on this machine."""
SESSIONS = SessionContainment(PARENT)


class Program:
    """One gated program in a box; `close` ends it, whatever the test did."""

    def __init__(self, box: Box, folder: Path, command: tuple[str, ...], key: ReplicaKey = KEY, **fields: object):
        self.box, self.data, self.key = box, DataFolder(folder), key
        self.gate: StartGate = spawn(start(key, command, **fields), (), self.data, box.gates, box.mark)
        self.pid = self.gate.pid
        self._ticks = start_ticks(self.pid) or 0
        box.lead(Process(self.pid, self._ticks))
        self._status: int | None = None

    def open(self) -> "Program":
        self.gate.open()
        return self

    def status(self) -> int:
        """Wait for the end of the leader; return its exit code, or minus its signal."""
        if self._status is None:
            until(lambda: os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "the leader ends")
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def output(self) -> str:
        return self.data.output(self.key).read_text()

    def lives(self) -> bool:
        return alive(self.pid, self._ticks)

    def close(self) -> None:
        until(lambda: kill_inside(self.box), "the box is empty")
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.status()
        self.box.remove()


def escaping(folder: Path, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", ESCAPE, str(folder / "pid.new"), str(folder / "pid"), *words)


def escaped(folder: Path) -> int:
    """Return the number of the process that got away, once it has."""
    return int(until(lambda: (folder / "pid").exists() and (folder / "pid").read_text(), "a grandchild lives"))


def closing(programs: list[Program]) -> Iterator[None]:
    yield
    for program in programs:
        program.close()
