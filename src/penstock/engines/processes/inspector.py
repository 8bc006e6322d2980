"""Looks at programs that make no step: process states, use of the CPU, and Python stacks by py-spy.

In a thread of its own, for a look takes a second, and some more where native stacks are asked for. A program is never
paused for it (`--nonblocking`), and a suspended one can be read, too.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from penstock import starts
from penstock.core.messages.reports import NodeCheck, ReplicaInspected, ReplicaKey
from penstock.core.model.hangs import FRAMES_MAX, Frame, Sight
from penstock.engines.processes import procfs

APART_S = 1.0
"""Between the two looks at one process."""
AT_ONCE = 8
STACK_WAIT_S = 2.0
NATIVE_WAIT_S = 6.0
SAID_MAX_BYTES = 16 * 2**20
"""Of what py-spy prints: all stacks of all threads, as the program has made them."""
COMPLAINTS_MAX_BYTES = 65_536
TOO_MUCH = f"its stacks take more than {SAID_MAX_BYTES // 2**20} MiB"
CHECK_WAIT_S = 60.0
NO_TOOL = "py-spy is not installed: pip install 'penstock[hang]'"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class _Order(NamedTuple):
    """Whom to look at, and how."""

    key: ReplicaKey
    pids: Sequence[int]
    native: bool = False
    """Also for native functions on the stack, which takes longer."""
    killed: str = ""
    """Why the kernel has killed other processes of the replica."""


class Inspector:
    """Takes inspection orders, and keeps results until `seen` fetches them."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._seen: queue.SimpleQueue[ReplicaInspected | NodeCheck] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="penstock-look")
        self._checks = ThreadPoolExecutor(1, thread_name_prefix="penstock-check")
        self._thread: threading.Thread | None = None

    def look(self, key: ReplicaKey, pids: Sequence[int], *, native: bool, killed: str = "") -> None:
        """Look at the program whose processes these are; `killed` says why the kernel has killed others of it."""
        self._orders.put(_Order(key, list(pids), native, killed))
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="penstock-inspector", daemon=True)
            self._thread.start()

    def check(self, command: str, folder: Path) -> None:
        """Check the node by a command for /bin/sh, or by our own check when it is empty."""
        self._checks.submit(self._check, command, folder)

    def seen(self) -> Iterator[ReplicaInspected | NodeCheck]:
        """Yield results since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._seen.get_nowait()

    def _run(self) -> None:
        """Work on all waiting orders together, so that the second between two looks passes once."""
        while True:
            orders = [self._orders.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    orders.append(self._orders.get_nowait())
            first = list(self._pool.map(_First, orders))
            time.sleep(APART_S)
            for look in first:
                self._pool.submit(self._finish, look)

    def _check(self, command: str, folder: Path) -> None:
        own = starts.python("penstock.engines.processes.selfcheck", str(folder))
        words = ["/bin/sh", "-c", command] if command else own
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own check of a node
                words,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                cwd=starts.HOME,
            )
        except OSError as error:
            self._seen.put(NodeCheck(False, str(error), ended=False))
            return
        try:
            told, _ = process.communicate(timeout=CHECK_WAIT_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            self._seen.put(NodeCheck(False, f"it did not end within {CHECK_WAIT_S:.0f} s", ended=False))
            return
        lines = told.strip().splitlines()
        self._seen.put(NodeCheck(process.returncode == 0, lines[-1][:500] if lines else f"exit {process.returncode}"))

    def _finish(self, look: "_First") -> None:
        self._seen.put(ReplicaInspected(look.order.key, look.second()))


class _First:
    """The first of two looks."""

    def __init__(self, order: _Order) -> None:
        self.order = order
        self._pid = program_of(order.pids)
        self._began = procfs.start_ticks(self._pid)
        self._cpu = _cpu_ticks(self._pid)
        self._at_s = time.monotonic()
        # States first: py-spy may disturb what they say for a moment.
        self._states = {pid: state_of(pid) for pid in order.pids}
        self._stack, self._problem = stack_of(self._pid)

    def second(self) -> Sight:
        """Return what both looks show."""
        rank = self.order.key.rank
        cpu = _cpu_ticks(self._pid)
        apart_s = time.monotonic() - self._at_s
        if cpu is None or self._cpu is None:
            return Sight(rank, state="X")
        stack, problem = stack_of(self._pid)
        names = native_of(self._pid) if self.order.native else ()
        if procfs.start_ticks(self._pid) != self._began:
            return Sight(rank, state="X")  # another process has its number, perhaps another tenant's
        children = [state for pid, state in self._states.items() if pid != self._pid]
        return Sight(
            rank,
            state=self._states.get(self._pid, "?"),
            child_stopped="T" in children,
            cpu_milli=round(1000 * (cpu - self._cpu) / _TICKS_PER_S / apart_s),
            stack=stack,
            changed=stack != self._stack,
            native=names,
            problem=problem or self._problem,
            killed=self.order.killed,
        )


def _cpu_ticks(pid: int) -> int | None:
    """Return the CPU time of a process's first thread in clock ticks, None when it is gone."""
    fields = _first_thread(pid)
    return int(fields[11]) + int(fields[12]) if fields else None


def state_of(pid: int) -> str:
    """Return the state of a process's first thread as in /proc/PID/stat, X when it is gone."""
    fields = _first_thread(pid)
    return fields[0] if fields else "X"


def _first_thread(pid: int) -> list[str]:
    """Return the fields of /proc/PID/task/PID/stat after the command name: state is the first."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def program_of(pids: Sequence[int]) -> int:
    """Return the process that trains: the first Python among those of a replica, else the first."""
    for pid in sorted(pids, key=lambda pid: procfs.start_ticks(pid) or 0):
        with contextlib.suppress(OSError):
            if "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
                return pid
    return pids[0] if pids else 0


def stack_of(pid: int) -> tuple[tuple[Frame, ...], str]:
    """Return the stack of a process's main thread, innermost first; or nothing, and why."""
    text, problem = _py_spy(pid, STACK_WAIT_S)
    if problem:
        return (), problem
    main = _main_thread(text, pid)
    if main is None:
        return (), "it has no Python thread that could be read"
    frames = (Frame(f["name"], f.get("filename") or "", int(f.get("line") or 0)) for f in main["frames"][:FRAMES_MAX])
    return tuple(frames), ""


def native_of(pid: int) -> tuple[str, ...]:
    """Return the names of all functions on the main thread's stack, native ones included, innermost first."""
    text, problem = _py_spy(pid, NATIVE_WAIT_S, "--native")
    main = None if problem else _main_thread(text, pid)
    return ("?",) if main is None else tuple(frame["name"] for frame in main["frames"][: 2 * FRAMES_MAX])


def _main_thread(text: str, pid: int) -> dict[str, Any] | None:
    try:
        threads = json.loads(text)
    except ValueError:
        return None
    named = [thread for thread in threads if thread.get("thread_name") == "MainThread"]
    return next(iter(named or [thread for thread in threads if thread.get("os_thread_id") == pid]), None)


def _py_spy(pid: int, wait_s: float, *options: str) -> tuple[str, str]:
    """Return what py-spy prints, or why it does not."""
    beside = Path(sys.executable).with_name("py-spy")
    tool = str(beside) if beside.exists() else starts.tool("py-spy")
    if tool is None:
        return "", NO_TOOL
    command = [tool, "dump", "--json", "--nonblocking", "--pid", str(pid), *options]
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell
                command, stdout=subprocess.PIPE, stderr=complaints, cwd=starts.HOME
            )
        except OSError as error:
            return "", f"py-spy: {error}"
        watchdog = threading.Timer(wait_s, process.kill)
        watchdog.start()
        with process:
            assert process.stdout is not None
            said = process.stdout.read(SAID_MAX_BYTES + 1)
            if len(said) > SAID_MAX_BYTES:
                process.kill()
            code = process.wait()
            watchdog.cancel()
        if len(said) > SAID_MAX_BYTES:
            return "", TOO_MUCH
        if code == -signal.SIGKILL:
            return "", f"py-spy: no answer within {wait_s:g} s"
        complaints.seek(0)
        lines = complaints.read(COMPLAINTS_MAX_BYTES).decode(errors="replace").strip().splitlines()
    return said.decode(errors="replace"), "" if code == 0 else f"py-spy: {lines[-1] if lines else code}"
