"""The node agent's processes: a guardian that never does anything risky, and a worker that does the rest.

Both are one program, forked. The guardian is the subreaper of the node's processes: when the worker is killed, its
children become the guardian's, which notes their exits exactly and starts a new worker. When the guardian is killed,
the worker turns into a guardian itself (exec keeps process number and children). It also ends the node's processes
when the lease is over and the worker cannot, because it is stopped or stuck. So nothing that the system refuses it,
such as a write, a descriptor or a new process, may end it: its loop continues, and tries again.

Started as `python -P -m penstock.engines.agent.guardian CONFIG`, with an absolute path.
"""

import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock import starts
from penstock.core.model.ids import Incarnation
from penstock.engines.agent.failures import FailureLog
from penstock.engines.agent.journal import GUARDIAN, ExitBook, JournalReplica, replay
from penstock.engines.agent.lease import LeaseCell, boot_ms, server_is_gone
from penstock.engines.agent.worker import AgentConfig, Worker
from penstock.engines.processes import locks, procfs
from penstock.engines.processes.boxes import Box, Containment, kill_inside
from penstock.engines.processes.containment import choose
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import Process
from penstock.engines.processes.trust import check_data
from penstock.privatefiles import NotPrivate, check, open_own, write_whole

log = logging.getLogger(__name__)
T = TypeVar("T")

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
WATCH_S = 0.25
RESPAWN_PAUSE_S = 0.2
RESPAWN_LAST_S = 5.0
"""Between two workers that fail at once, in the end."""
REAP_PAUSE_S = 0.01
END_WAIT_S = 5.0
LEASE_SLACK_MS = 1_000
"""The guardian acts this much after the lease's end: the worker should have."""
LOCK_WAIT_S = 1.0
"""Another agent holds the node's lock for longer; who asks whether there is one, for a moment."""
PID_CHARS = 10
_LOCK_VARIABLE = "PENSTOCK_AGENT_LOCK_FD"


def main() -> None:
    """Run as guardian until SIGTERM; returns when worker and processes are gone."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    path = starts.whole(sys.argv[1])
    sys.argv[1] = str(path)
    follows = _LOCK_VARIABLE in os.environ
    if not follows:  # else its jobs run and need a guardian; the file was checked when they began
        _believe(check, path)
    starts.settle()
    failures = FailureLog()
    guardian = None
    while guardian is None:
        try:
            guardian = _guardian(path, follows=follows)
        except (OSError, MemoryError) as error:
            if not follows:
                raise
            failures.note("taking the place of a guardian", error)
            time.sleep(WATCH_S)
    guardian.run()


def _guardian(path: Path, *, follows: bool) -> "Guardian":
    config = msgspec.json.decode(path.read_bytes(), type=AgentConfig)
    data = config.folder
    if not follows:
        _believe(check_data, data)
    folder = data.node(config.spec.name)
    lock = _lock(folder)
    _adopt_orphans()
    _note_pid(folder / "agent.pid")
    return Guardian(config, data, _incarnation(folder), lock)


def _adopt_orphans() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _note_pid(path: Path) -> None:
    """Write over what is there: on a full disk there is no room for a new file."""
    descriptor = open_own(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, f"{os.getpid():<{PID_CHARS}}".encode(), 0)
    finally:
        os.close(descriptor)


def _believe(checked: Callable[[T], None], what: T) -> None:
    """Exit when `what` is not private."""
    try:
        checked(what)
    except NotPrivate as error:
        log.error("refused: %s (%s)", error.message, error.hint)
        sys.exit(1)


def _lock(folder: Path) -> int:
    """Hold the node's lock, or leave when another agent of this node lives."""
    given = os.environ.get(_LOCK_VARIABLE, "")
    if given:
        os.set_inheritable(int(given), True)
        return int(given)
    descriptor = open_own(folder / "agent.lock", os.O_RDWR)
    if not locks.take(descriptor, LOCK_WAIT_S):
        log.error("another agent of this node is running")
        sys.exit(1)
    os.set_inheritable(descriptor, True)
    return descriptor


def _incarnation(folder: Path) -> Incarnation:
    """Return the node's incarnation: it lasts until the machine reboots, over restarts of the agent."""
    path = folder / "incarnation"
    boot = procfs.boot_id()
    with contextlib.suppress(FileNotFoundError, ValueError):  # another error says nothing: its replicas may run
        known_boot, known = path.read_text(encoding="ascii").split()
        if known_boot == boot:
            return Incarnation(known)
    for stale in ("journal", "exits", "lease"):
        (folder / stale).unlink(missing_ok=True)
    fresh = uuid.uuid4().hex
    write_whole(path, f"{boot} {fresh}", synced=False)
    return Incarnation(fresh)


class Guardian:
    """Keeps a worker running, notes exits of inherited processes, ends everything when the lease is over."""

    def __init__(self, config: AgentConfig, data: DataFolder, incarnation: Incarnation, lock: int) -> None:
        self._config, self._data, self._incarnation, self._lock = config, data, incarnation, lock
        folder = data.node(config.spec.name)
        self._folder = folder
        self._exits = ExitBook(folder / "exits", GUARDIAN)
        self._cell = LeaseCell(folder / "lease")
        self._noted: set[tuple[int, int]] = set()
        """Whom it has ended since the lease was over."""
        self._failures = FailureLog()
        self._worker = 0
        """None lives: 0."""
        self._start_at = 0.0
        self._pause_s = RESPAWN_PAUSE_S
        self._stale = False
        """It was a worker: this process is to start the program anew before it makes another."""
        self._ending = False

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the server ignores it, which is inherited and loses exits
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM])
        while self._worker or not self._ending:
            with self._failures.outlive("a turn of the guardian"):
                self._turn()
        self._end_all()

    def _turn(self) -> None:
        if not self._worker and not self._ending and time.monotonic() >= self._start_at:
            self._start_at = time.monotonic() + RESPAWN_PAUSE_S
            with self._failures.outlive("starting a worker"):
                self._start_worker()
        wait_s = WATCH_S if self._worker else min(WATCH_S, max(0.0, self._start_at - time.monotonic()))
        got = signal.sigtimedwait([signal.SIGCHLD, signal.SIGTERM], wait_s)
        if got is not None and got.si_signo == signal.SIGTERM:
            self._ending = True
            if self._worker:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._worker, signal.SIGTERM)
        if self._reap():
            self._start_at = time.monotonic() + self._pause_s
        self._watch_lease()

    def _start_worker(self) -> None:
        os.environ.pop(_LOCK_VARIABLE, None)
        if self._stale:
            os.environ[_LOCK_VARIABLE] = str(self._lock)
            starts.become("penstock.engines.agent.guardian", sys.argv[1])
        guardian = os.getpid()
        pid = os.fork()
        if pid:
            self._worker = pid
            return
        code = 1
        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCHLD, 0, 0, 0)  # wakes it when the guardian is killed
            os.set_inheritable(self._lock, False)
            Worker(self._config, self._incarnation).run(lambda: os.getppid() == guardian)
            code = 0
        except BaseException:
            log.exception("worker failed")
        finally:
            try:
                if os.getppid() != guardian:
                    self._succeed()
            finally:
                os._exit(code)

    def _succeed(self) -> None:
        """Be the guardian in place of the one that was killed. The program is started anew for that, which keeps
        process number and children; until the system lets it, this process guards as it is."""
        _adopt_orphans()
        os.set_inheritable(self._lock, True)
        self._exits.resume()
        self._stale, self._worker, self._start_at = True, 0, 0.0
        self.run()

    def _reap(self) -> bool:
        """Note and reap ended children; return whether the worker was one."""
        worker_ended = False
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                worker_ended, self._worker = worker_ended or bool(self._worker), 0
                return worker_ended
            if info is None:
                return worker_ended
            if info.si_pid == self._worker:
                worker_ended, self._worker = True, 0
                failed = info.si_code == os.CLD_EXITED and info.si_status
                self._pause_s = min(RESPAWN_LAST_S, 2 * self._pause_s) if failed else RESPAWN_PAUSE_S
            elif procfs.session_of(info.si_pid) == info.si_pid:  # else it was no replica's first process
                ticks = procfs.start_ticks(info.si_pid) or 0
                exited = info.si_code == os.CLD_EXITED
                code, number = (info.si_status, None) if exited else (None, info.si_status)
                self._exits.add(info.si_pid, ticks, code, number)
            os.waitpid(info.si_pid, 0)

    def _watch_lease(self) -> None:
        """End the replicas without a lease, and note that after it: who is late with a note has ended them all the
        same, and a worker that wakes up meanwhile looks at the lease itself."""
        until_ms = self._cell.get()
        if until_ms is None or boot_ms() < until_ms + LEASE_SLACK_MS or server_is_gone(self._data):
            self._noted.clear()
            return
        containment = choose(self._config.box_parent)
        for known in self._unfinished():
            with self._failures.outlive("ending a replica without a lease"):
                remains = _leader_remains(known)
                kill_inside(self._box(containment, known))
                if remains and (known.pid, known.ticks) not in self._noted:
                    self._noted.add((known.pid, known.ticks))
                    self._exits.add_ended_by_lease(known.pid, known.ticks)

    def _end_all(self) -> None:
        """Kill the remaining replicas: a worker that leaves has ended them, but it may have died before."""
        deadline = time.monotonic() + END_WAIT_S
        while time.monotonic() < deadline:
            with self._failures.outlive("ending what is left"):
                containment = choose(self._config.box_parent)
                left = [self._box(containment, known) for known in self._unfinished()]
                if self._ended(left, deadline):
                    containment.close()
                    return
            time.sleep(REAP_PAUSE_S)

    def _ended(self, left: list[Box], deadline: float) -> bool:
        while left and time.monotonic() < deadline:
            for box in [box for box in left if kill_inside(box)]:
                box.remove()
                left.remove(box)
            self._reap()
            time.sleep(REAP_PAUSE_S)
        return not left

    def _unfinished(self) -> list[JournalReplica]:
        """Return the replicas that may have processes: their leader, or only its descendants."""
        return [known for known in replay(self._folder / "journal").values() if known.exit is None]

    def _box(self, containment: Containment, known: JournalReplica) -> Box:
        leader = Process(known.pid, known.ticks) if known.pid else None
        name = f"{self._config.spec.name}.{known.key}"
        return containment.box(name, known.limits, leader, cpus=known.cpus)


def _leader_remains(known: JournalReplica) -> bool:
    return bool(known.pid) and procfs.start_ticks(known.pid) == known.ticks


if __name__ == "__main__":
    main()
