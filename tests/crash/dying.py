"""An agent that dies at one exact step of a start, and its heir. Run as `python -m tests.crash.dying FOLDER STEP`.

The process plays the guardian: its first worker starts a replica and kills itself at STEP ('spawned': the gate
waits, nothing is noted; 'noted': the gate waits and is noted; 'ended': the program has run, its exit is noted).
Then it notes what it inherited, takes the replica over as the next worker would, and prints what that tells the
server.
"""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, Incarnation, JobId, NodeName, Rank
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.engines.agent.guardian import PR_SET_CHILD_SUBREAPER
from penstock.engines.agent.journal import ExitBook, Journal, JournalLine
from penstock.engines.agent.replicas import Replicas
from penstock.engines.processes.boxes import Box
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import Process
from penstock.engines.processes.sessions import SessionContainment

KEY = ReplicaKey(JobId(1), AttemptNumber(1), Rank(0))
HEIR_WAIT_S = 10.0


class FolderBox:
    """A box that shows as a folder whether it was removed, as a control group does."""

    def __init__(self, folder: Path, inner: Box) -> None:
        self._folder, self._inner = folder, inner
        self.mark, self.gates, self.lead, self.note = inner.mark, inner.gates, inner.lead, inner.note
        self.exceeded = inner.exceeded
        self.pids, self.empty, self.usage = inner.pids, inner.empty, inner.usage
        folder.mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        self._folder.rmdir()


class FolderContainment(SessionContainment):
    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self._folder = folder

    def box(self, name: str, limits: Resources, leader: Process | None = None, **more: Any) -> Box:
        return FolderBox(self._folder / name, super().box(name, limits, leader, **more))


class DyingJournal(Journal):
    """Kills its process just before, or just after, the start is noted."""

    step = ""

    def announce(self, line: JournalLine) -> None:
        if line.what == "started" and self.step == "spawned":
            os.kill(os.getpid(), signal.SIGKILL)
        super().announce(line)
        if (line.what, self.step) == ("started", "noted"):
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, line: JournalLine) -> None:
        super().write(line)
        if (line.what, self.step) == ("exited", "ended"):
            os.kill(os.getpid(), signal.SIGKILL)


def order(folder: Path) -> StartReplica:
    return StartReplica(
        key=KEY,
        incarnation=Incarnation("life"),
        command=("sh", "-c", f"echo ran >> {folder / 'ran'}"),
        ask=ReplicaAsk(Resources()),
        devices=(),
        env=(),
        world_size=1,
        local_rank=0,
        local_world_size=1,
        node_rank=0,
        node_names=(NodeName("n1"),),
        master_address="127.0.0.1",
        master_port=0,
        workdir="",
        name="one",
    )


def replicas(folder: Path, journal: Journal, told: list[ExitInfo]) -> Replicas:
    book = ExitBook(folder / "exits")
    return Replicas(
        "n1", DataFolder(folder), FolderContainment(folder / "boxes"), {}, journal, book, lambda _, i: told.append(i)
    )


def inherit(folder: Path) -> None:
    """Note and reap all that the dead worker has left, as a guardian does."""
    book = ExitBook(folder / "exits")
    while True:
        try:
            info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return
        assert info is not None
        ticks = int(Path(f"/proc/{info.si_pid}/stat").read_text().rpartition(")")[2].split()[19])
        exited = info.si_code == os.CLD_EXITED
        book.add(info.si_pid, ticks, info.si_status if exited else None, None if exited else info.si_status)
        os.waitpid(info.si_pid, 0)


def main() -> None:
    folder, step = Path(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    worker = os.fork()
    if not worker:
        journal = DyingJournal(folder / "journal")
        journal.step = step
        started = replicas(folder, journal, [])
        started.start(order(folder))
        while started.running:
            started.reap()
            started.poll(0)
        os._exit(0)
    inherit(folder)
    told: list[ExitInfo] = []
    journal = Journal(folder / "journal")
    heir = replicas(folder, journal, told)
    noted = [known.pid for known in journal.known.values()]
    for known in journal.known.values():
        if known.exit is None:
            heir.adopt(known)
        else:
            told.append(known.exit)
    begin = time.monotonic()
    while heir.running and time.monotonic() < begin + HEIR_WAIT_S:
        heir.poll(int((time.monotonic() - begin) * 1000))
    answer = {"noted": [bool(pid) for pid in noted], "told": [(i.code, i.signal, i.problem) for i in told]}
    print(json.dumps(answer | {"boxes": os.listdir(folder / "boxes")}))


if __name__ == "__main__":
    main()
