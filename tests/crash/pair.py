"""Two real servers on one PostgreSQL and one data folder, to be killed, paused and continued at will.

Everything it starts carries `PENSTOCK_CRASH_ROOT`; `close` ends exactly that.
"""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.client import Client
from penstock.core.model.errors import PenstockError
from penstock.privatefiles import write_whole
from tests.crash.cluster import Cluster, is_stopped, kill, until
from tests.postgres import Postgres

T = TypeVar("T")
TRY_S = 1.0
"""How long a client waits for an answer: a leader that is paused gives none."""


class Pair(Cluster):
    """A `Cluster` whose log is in a database, with `servers` that may lead."""

    def __init__(self, root: Path, database: Postgres, *, lease_ttl: str = "20s", lease_margin: str = "8s") -> None:
        super().__init__(root, nodes=("n1", "n2"), lease_ttl=lease_ttl, lease_margin=lease_margin)
        self.database, self.url = database, database.database()
        self.servers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Pair":
        try:
            self.add_server()
            until(lambda: self.ready() == len(self.nodes), f"all nodes are ready\n{self.server_log()}", 40)
            self.add_server()
            until(lambda: len(self.waiting()) == 1, f"the other server waits\n{self.server_log()}", 40)
        except BaseException:
            self.close()
            raise
        return self

    def add_server(self) -> "subprocess.Popen[bytes]":
        """Start a server, without waiting for anything."""
        given = self.root / f"store.given-{len(self.servers)}-{time.monotonic_ns()}"
        write_whole(given, self.url)
        words = json.dumps({**self._options, "store_file": str(given)})
        with (self.root / "server.log").open("ab") as log:
            made = subprocess.Popen(
                [sys.executable, "-m", "penstock.wire", words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        self.servers.append(made)
        return made

    def leader(self) -> int:
        """Return the process of the server that the folder names as leader; 0 while that is none of ours."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads(self.data.server_info.read_bytes())["pid"])
            return pid if pid in self.alive() else 0
        return 0

    def waiting(self) -> list[int]:
        """Return the processes of servers that wait beside the leader."""
        named = [int(path.stem.partition("-")[2]) for path in self.root.glob("standby-*.json")]
        return [pid for pid in named if pid in self.alive()]

    def alive(self) -> list[int]:
        return [server.pid for server in self.servers if server.poll() is None]

    def kill_leader(self) -> int:
        """Kill the leader as the machine's death would, and return which process it was."""
        pid = until(self.leader, "a server leads")
        kill(pid)
        next(server for server in self.servers if server.pid == pid).wait()
        return pid

    def pause_leader(self) -> int:
        pid = until(self.leader, "a server leads")
        kill(pid, signal.SIGSTOP)
        until(lambda: is_stopped(pid), "it stands still")
        return pid

    def go_on(self, pid: int) -> None:
        kill(pid, signal.SIGCONT)

    def ask(self, call: Callable[[Client], T]) -> T:
        """Return what `call` gets from a fresh client that waits for no answer for long."""
        client = Client.of(self.root)
        client.timeout_s = TRY_S
        with contextlib.closing(client):
            return call(client)

    def asked(self, call: Callable[[Client], T]) -> T | None:
        """Return what `ask` does, None when it gets no answer."""
        with contextlib.suppress(PenstockError, OSError, ValueError):
            return self.ask(call)
        return None

    def close(self) -> None:
        for pid in self.alive():
            kill(pid, signal.SIGCONT)
            if pid in self.waiting():
                kill(pid, signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            until(lambda: not self.waiting(), "no server waits any more", 20)
        for server in self.servers:
            if server.poll() is None:
                server.terminate()
        for server in self.servers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(30)
            if server.poll() is None:
                server.kill()
                server.wait()
        super().close()


def environment_is_clean(pid: int, secret: str) -> bool:
    """Return whether neither command line nor environment of a process holds `secret`."""
    folder = Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):
        return secret.encode() not in (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
    return True
