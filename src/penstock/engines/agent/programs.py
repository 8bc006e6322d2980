"""Programs that make something ready for replicas: each in a box of its own, as the account of the job, noted in the
journal under job 0, so that guardian and next worker know what to kill.

They run in threads beside the agent's loop, which never waits for one.
"""

import contextlib
import itertools
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, Rank
from penstock.core.model.jobs import WorkloadClass
from penstock.core.model.resources import Resources
from penstock.engines.agent.journal import PROGRAMS_JOB, Journal, JournalLine, JournalReplica, announce_start
from penstock.engines.processes.accounts import account_of, private
from penstock.engines.processes.boxes import Box, Containment, kill_inside
from penstock.engines.processes.procfs import REPLICA_MARK, Process
from penstock.engines.processes.spawn import NEVER_RAN_CODE, Gated, StartGate, gate

log = logging.getLogger(__name__)

LOOK_FIRST_S, LOOK_LAST_S = 0.005, 0.1
"""Between two looks whether a program has ended: at first, and in the end."""
KILL_WAIT_S = 10.0
"""For what is killed to be gone; what waits in the kernel for longer is left to the next worker."""
READ_BYTES = 65_536


class Ended(NamedTuple):
    """How a program ended: one of the two is set."""

    code: int | None
    signal: int | None
    note: str = ""
    """What the kernel has done to it, such as to kill some of it for want of memory."""


class Program(NamedTuple):
    """What to run."""

    command: Sequence[str]
    environment: Mapping[str, str]
    workdir: str
    account: str
    """Empty: that of the agent."""
    limits: Resources
    workload_class: WorkloadClass = "training"


class Programs:
    """Runs programs on a node.

    Args:
        folder: of the node.
        containment: where the boxes come from.
        left: programs of a former worker: `end_former` kills them.
    """

    def __init__(
        self, folder: Path, containment: Containment, journal: Journal, left: Iterable[JournalReplica] = ()
    ) -> None:
        self._folder, self._containment, self._journal = folder, containment, journal
        self._left = list(left)
        self._numbers = itertools.count(1 + max((int(known.key.rank) for known in self._left), default=-1))

    @property
    def grouped(self) -> bool:
        """Whether boxes are control groups."""
        return self._containment.kind.startswith("cgroup")

    def run(self, program: Program, said: Callable[[bytes], None], asked_to_end: Callable[[], bool]) -> Ended | None:
        """Run a program to its end and return how it ended; None where it was killed because `asked_to_end` said so.

        Nothing that it started is left. Raises: OSError when it cannot be started.

        Args:
            said: gets what it prints, as it comes.
        """
        key = ReplicaKey(PROGRAMS_JOB, AttemptNumber(1), Rank(next(self._numbers)))
        self._journal.announce(JournalLine(key, "spawning", limits=program.limits))
        box = self._containment.box(self._name(key), program.limits, workload_class=program.workload_class)
        read_end, write_end = os.pipe()
        try:
            started = self._start(program, key, box, write_end)
        except OSError:
            os.close(read_end)
            self._end(key, box)
            raise
        finally:
            os.close(write_end)
        try:
            ended = _follow(started.pid, read_end, said, asked_to_end)
            return ended._replace(note=box.note()) if ended is not None else None
        finally:
            self._end(key, box)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(started.pid, 0)
            _drain(read_end, said)
            os.close(read_end)

    def _start(self, program: Program, key: ReplicaKey, box: Box, output: int) -> StartGate:
        account = account_of(program.account) if program.account else None
        never_ran = private(self._folder / "preparing") / f"{key}.never-ran"
        environment = {**program.environment, REPLICA_MARK: box.mark}
        gated = Gated(program.command, environment, program.workdir, program.workdir, never_ran, box.gates)
        started = gate(gated, account, output)
        announce_start(self._journal, key, box, started)
        started.open()
        return started

    def _name(self, key: ReplicaKey) -> str:
        return f"{self._folder.name}.{key}"

    def _end(self, key: ReplicaKey, box: Box, deadline: float | None = None) -> None:
        """Kill what is left of a program, and forget it once nothing is."""
        deadline = deadline if deadline is not None else time.monotonic() + KILL_WAIT_S
        while not kill_inside(box):
            if time.monotonic() > deadline:
                log.error("a program that prepared something cannot be killed", extra={"key": str(key)})
                return
            time.sleep(LOOK_FIRST_S)
        box.remove()
        self._journal.write(JournalLine(key, "forgotten"))

    def end_former(self) -> None:
        """Kill what a former worker was running; what cannot be ended stays in the journal. In a thread."""
        left, self._left = self._left, []
        deadline = time.monotonic() + KILL_WAIT_S  # of all together: jobs of others wait for it
        for known in left:
            leader = Process(known.pid, known.ticks) if known.pid else None
            try:
                self._end(known.key, self._containment.box(self._name(known.key), known.limits, leader), deadline)
            except OSError:
                log.exception("a program of a former worker was not ended", extra={"key": str(known.key)})


def _follow(pid: int, output: int, said: Callable[[bytes], None], asked_to_end: Callable[[], bool]) -> Ended | None:
    """Pass on what a program prints until it has ended; it is not reaped."""
    pause_s, open_ = LOOK_FIRST_S, True
    while True:
        if asked_to_end():
            return None
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            exited = ended.si_code == os.CLD_EXITED
            return Ended(ended.si_status, None) if exited else Ended(None, ended.si_status)
        if open_ and select.select([output], [], [], pause_s)[0]:
            data = os.read(output, READ_BYTES)
            open_ = bool(data)
            if data:
                said(data)
        elif not open_:
            time.sleep(pause_s)
        pause_s = min(LOOK_LAST_S, 2 * pause_s)


def _drain(output: int, said: Callable[[bytes], None]) -> None:
    """Pass on what is left of an output that nobody writes to any more."""
    os.set_blocking(output, False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(output, READ_BYTES):
            said(data)


def text_of(ended: Ended) -> str:
    """Return how a program ended, for people."""
    note = f" ({ended.note})" if ended.note else ""
    if ended.signal is not None:
        return f"was killed by {signal.Signals(ended.signal).name}{note}"
    return "could not be started" if ended.code == NEVER_RAN_CODE else f"ended with exit {ended.code}{note}"
