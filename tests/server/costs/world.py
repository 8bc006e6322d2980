"""A server under probe, and what one exchange with it costs."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.core.model import events as ev
from penstock.store.sqlite import SqliteStore
from tests.server.costs.past import NODES, declared, secret_of
from tests.server.harness import Answer, Server, environment, until

API = "/api/v1"
PROBE = Path(__file__).with_name("probe.py")
MIB = 2**20
ANSWER_S = 60.0
"""Who waits longer for an answer gives up, and the server is ended: nobody has to wait for the next one."""
SETTLE_S = 20.0
QUIET_S, QUIET_SHARE = 0.2, 0.3
"""A server is quiet when it uses less than this share of a core for so long."""
RSS_MAX_MIB, LOG_MAX_MIB = 3_000, 1_500
"""A server beyond these is ended before it harms others on this machine."""
WATCH_S = 0.05


class Sent(NamedTuple):
    """One request as it goes over the wire; `path` is below /api/v1, unless it is a whole target."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


class Cost(NamedTuple):
    """What was used from before the first request was sent until the server was quiet again."""

    statuses: tuple[int, ...]
    answer_bytes: int = 0
    cpu_ms: float = 0.0
    """Of the server, and of the process that plays states on."""
    memory_mib: float = 0.0
    """Peak over what it had before."""
    log_kib: float = 0.0
    loop_ms: float = 0.0
    """The longest callback on the loop that answers requests."""
    agents_ms: float = 0.0
    """The longest on any other loop."""
    control_ms: float = 0.0
    """The longest time from one look of the control thread into its inbox to the next."""
    pause_ms: float = 0.0
    """The longest time that no other thread could run any Python."""
    peak_mib: float = 0.0
    ended: str = ""
    """Why the server was ended, or that it died."""
    loop_what: str = ""


class Watched(Server):
    """A server that may die, or has to be ended."""

    anew = True  # its memory is measured

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()


LARGEST = {"failed_logins_burst": 10_000, "jobs_per_request": 100_000, "jobs_burst": 10**9}
"""An operator may allow the largest requests that there are."""


class Probed(Watched):
    """A server of the costly past, with the probe in it."""

    def start(self) -> None:
        options = {"data": str(self.data.root), "cluster_file": str(self._file), "limits_file": str(self._limits)}
        asked, ask = os.pipe()
        heard, told = os.pipe()
        with (self.root / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(PROBE), json.dumps(options | self._options)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.root, PENSTOCK_PROBE=f"{asked},{told}"),
                pass_fds=(asked, told),
            )
        os.close(asked)
        os.close(told)
        self._ask, self._heard = os.fdopen(ask, "w"), os.fdopen(heard)
        until(self._ready, "the server answers and its nodes are ready", 60)

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(Exception):
            if json.loads(self.data.server_info.read_bytes())["pid"] == self.process.pid:
                return self.client.cluster().nodes_ready >= NODES + 1
        return False

    def probed(self) -> dict[str, Any]:
        """Return what was measured since the last time; raises OSError or ValueError when the server is gone."""
        self._ask.write("\n")
        self._ask.flush()
        found: dict[str, Any] = json.loads(self._heard.readline())
        return found

    def close(self) -> None:
        try:
            super().close()
        finally:
            for end in (getattr(self, "_ask", None), getattr(self, "_heard", None)):
                with contextlib.suppress(OSError):
                    if end is not None:
                        end.close()


# What is read of a process from outside.


def status_mib(pid: int, field: str) -> float:
    """Return VmRSS or VmHWM, 0 where the process is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, 0 where it is gone."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def helpers(pid: int) -> list[int]:
    """Return the processes that a server has started for work of its own: all but the agents of nodes."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                if b"penstock.engines" not in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


def forget_peak(pid: int) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def folder_mib(folder: Path) -> float:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total / MIB


class Watch:
    """Adds up what a server and its helpers use while it is open, and ends one that takes too much, or too long."""

    def __init__(self, server: Watched, limit_s: float) -> None:
        self._server, self._deadline = server, time.monotonic() + limit_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.ended = ""
        self._before_mib = status_mib(server.pid, "VmRSS")
        self._helped_mib = self._memory_of_helpers()
        self._first_s: dict[int, float] = {pid: cpu_s(pid) for pid in (server.pid, *helpers(server.pid))}
        self._last_s = dict(self._first_s)
        self._peak_mib = self._helpers_mib = 0.0

    def __enter__(self) -> "Watch":
        forget_peak(self._server.pid)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._note()

    @property
    def used_s(self) -> float:
        return sum(used - self._first_s.get(pid, 0.0) for pid, used in self._last_s.items())

    @property
    def peak_mib(self) -> float:
        return self._peak_mib

    @property
    def memory_mib(self) -> float:
        """Peaks of the server and of its helpers over what each had before."""
        return max(0.0, self._peak_mib - self._before_mib) + max(0.0, self._helpers_mib - self._helped_mib)

    def _memory_of_helpers(self) -> float:
        return sum(status_mib(pid, "VmRSS") for pid in helpers(self._server.pid))

    def _note(self) -> None:
        pid = self._server.pid
        self._peak_mib = max(self._peak_mib, status_mib(pid, "VmHWM"))
        self._helpers_mib = max(self._helpers_mib, self._memory_of_helpers())
        for one in (pid, *helpers(pid)):
            self._last_s[one] = max(self._last_s.get(one, 0.0), cpu_s(one))

    def _look(self) -> None:
        server, turn = self._server, 0
        while not self._done.wait(WATCH_S):
            turn += 1
            self._note()
            now_mib = status_mib(server.pid, "VmRSS") + self._memory_of_helpers()
            if not server.alive:
                self.ended = "died"
            elif now_mib > RSS_MAX_MIB:
                self.ended = f"ended at {now_mib:.0f} MiB"
            elif turn % 10 == 0 and (size := folder_mib(server.data.log)) > LOG_MAX_MIB:
                self.ended = f"ended with {size:.0f} MiB of log"
            elif time.monotonic() > self._deadline:
                self.ended = "ended: it took too long"
            if self.ended:
                for pid in helpers(server.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                server.kill()
                return


class World:
    """A server that is begun anew, from the same past, whenever a case has changed or ended it."""

    def __init__(self, past: Path, root: Path) -> None:
        self._past, self._root = past, root
        self._count = 0
        self._server: Probed | None = None

    @property
    def server(self) -> Probed:
        if self._server is None or not self._server.alive:
            self.renew()
        assert self._server is not None
        return self._server

    def renew(self) -> None:
        """Begin anew."""
        self.close()
        self._count += 1
        folder = self._root / f"server{self._count}"
        shutil.copytree(self._past, folder, copy_function=shutil.copy)
        self._server = Probed(folder, declared(), limits=LARGEST)
        try:
            self._server.start()
            ask(self._server.port, Sent("GET", "/bill"), "reader")  # the first is worked out of the whole log
            calm(self._server, SETTLE_S)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            server.kill()
            server.close()
            shutil.rmtree(server.root, ignore_errors=True)

    def cost(self, sent: Sequence[Sent], caller: str) -> Cost:
        """Return what some requests cost, sent one after the other."""
        server = self.server
        last = last_seq(server.data.log)
        server.probed()
        with Watch(server, ANSWER_S) as watch:
            answers = [ask(server.port, one, caller) for one in sent]
            calm(server, SETTLE_S)
        found: dict[str, Any] = {"longest_ms": {}, "what": {}}
        with contextlib.suppress(OSError, ValueError):
            found = server.probed()
        longest = found["longest_ms"]
        loops = {name: ms for name, ms in longest.items() if name.startswith("loop ")}
        return Cost(
            tuple(one.status for one in answers),
            sum(len(one.body) for one in answers),
            watch.used_s * 1000,
            watch.memory_mib,
            log_kib(server.data.log, last),
            loops.pop("loop MainThread", 0.0),
            max(loops.values(), default=0.0),
            longest.get("control", 0.0),
            longest.get("pause", 0.0),
            watch.peak_mib,
            watch.ended or ("" if server.alive else "died"),
            found["what"].get("loop MainThread", ""),
        )


def calm(server: Watched, limit_s: float) -> bool:
    """Wait until the server works no more, or is gone; return whether that came in time."""
    deadline = time.monotonic() + limit_s
    while server.alive and time.monotonic() < deadline:
        before = _all_cpu_s(server.pid)
        time.sleep(QUIET_S)
        if _all_cpu_s(server.pid) - before < QUIET_S * QUIET_SHARE:
            return True
    return False


def _all_cpu_s(pid: int) -> float:
    return cpu_s(pid) + sum(map(cpu_s, helpers(pid)))


def last_seq(log: Path) -> int:
    with _reading(log) as database:
        return int(database.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])


def log_kib(log: Path, after: int) -> float:
    """Return how much was written into the log after a record."""
    with contextlib.suppress(sqlite3.Error), _reading(log) as database:
        query = "SELECT coalesce(sum(length(body)), 0) FROM events WHERE seq > ?"
        return float(database.execute(query, (after,)).fetchone()[0]) / 1024
    return 0.0


def nodes_lost(log: Path, after: int) -> list[ev.Record]:
    """Return the records of nodes that were lost after a record."""
    store, found = SqliteStore(log), []
    with contextlib.closing(store):
        while batch := store.records(after, 10_000):
            found += [record for record in batch if isinstance(record.event, ev.NodeLost)]
            after = batch[-1].seq
    return found


@contextlib.contextmanager
def _reading(log: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(f"file:{log / 'log.sqlite'}?mode=ro", uri=True)) as database:
        yield database


# Requests, byte by byte: clients that check what they send could not send all of this.


def ask(port: int, sent: Sent, caller: str) -> Answer:
    """Send one request over a connection of its own; status 0 where no answer came."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before it was read
                connection.sendall(head(sent, caller))
                connection.sendall(sent.body)
            response = http.client.HTTPResponse(connection, method=sent.method)
            response.begin()
            endless = "text/event-stream" in response.headers.get("content-type", "")
            body = b"" if endless else response.read()
            return Answer(response.status, dict(response.headers.items()), body)
    except (OSError, http.client.HTTPException, ValueError):
        return Answer(0, {}, b"")


def head(sent: Sent, caller: str) -> bytes:
    target = sent.path if sent.path.startswith("/api") else API + sent.path
    lines = {"Host": "test", "Connection": "close", "Content-Length": str(len(sent.body))}
    if caller:
        lines["Authorization"] = f"Bearer {secret_of(caller)}"
    lines |= sent.headers
    text = f"{sent.method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return text.encode() + b"\r\n"
