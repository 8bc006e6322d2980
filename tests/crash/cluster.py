"""A real server with real agents on one data folder, to be killed at will. Ends everything it started.

Its processes are known by their environment: server and agents carry `PENSTOCK_CRASH_ROOT`, replicas the folder of
their checkpoints. So nothing that somebody else started is ever touched.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import penstock
from penstock.client import Client
from penstock.core.model.errors import PenstockError
from penstock.engines.local.launch import agent_pid, stop_agent
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import REPLICA_MARK, all_pids
from penstock.privatefiles import write_whole

T = TypeVar("T")
POLL_MIN_S, POLL_MAX_S = 0.01, 0.05
START_WAIT_S = 40.0
_SOURCES = str(Path(penstock.__file__).resolve().parents[1])


def until(found: Callable[[], T], what: str, timeout_s: float = 30.0) -> T:
    """Return the first true value of `found`; raises AssertionError, naming `what`, when none comes in time."""
    begun = time.monotonic()
    while True:
        value = found()
        if value:
            return value
        waited_s = time.monotonic() - begun
        assert waited_s < timeout_s, f"waited {timeout_s} s for: {what}"
        time.sleep(min(max(waited_s / 10, POLL_MIN_S), POLL_MAX_S))


def kill(pid: int | None, number: int = signal.SIGKILL) -> bool:
    """Send a signal; return whether there was a process to get it."""
    if pid is None or pid <= 1:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def lives(pid: int) -> bool:
    """Return whether the process runs; one that is dead and not yet reaped does not."""
    return Path(f"/proc/{pid}/exe").exists()


class Cluster:
    """Use as a context manager. `start` and `kill_server` may follow each other as often as you like."""

    def __init__(
        self,
        root: Path,
        *,
        nodes: tuple[str, ...] = ("n1", "n2"),
        lease_ttl: str = "20s",
        lease_margin: str = "8s",
        heartbeat: str = "500ms",
        respawn_agents: bool = True,
        store: str = "",
    ) -> None:
        root.mkdir(parents=True)
        self.root, self.nodes = root.resolve(), nodes
        self.data = DataFolder(self.root)
        if store:  # as a former `up --store` has left it
            write_whole(self.data.store_address, store)
        declared = {
            "settings": {"lease_ttl": lease_ttl, "lease_margin": lease_margin, "heartbeat": heartbeat},
            "nodes": [{"name": n, "cpus": 64, "memory": "8GiB", "simulated_devices": {"count": 4}} for n in nodes],
        }
        file = self.root / "cluster.yaml"
        file.write_text(json.dumps(declared), encoding="utf-8")
        self._options = {"data": str(self.root), "cluster_file": str(file), "respawn_agents": respawn_agents}
        self._environment = {
            **os.environ,
            "PYTHONPATH": _SOURCES,
            "PENSTOCK_CRASH_ROOT": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "",  # servers start many times: let them keep what they compiled
            "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "penstock-crash-pycache"),
        }
        self.server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Cluster":
        try:
            self.start()
            until(lambda: self.ready() == len(self.nodes), "all nodes are ready", START_WAIT_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The server.

    def spawn_server(self) -> None:
        """Start a server process, without waiting for anything."""
        arguments = [sys.executable, "-m", "penstock.wire", json.dumps(self._options)]
        with (self.root / "server.log").open("ab") as log:
            self.server = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    def start(self) -> None:
        """Start a server and wait until it answers."""
        self.spawn_server()
        until(self.answers, f"the server answers\n{self.server_log()}", START_WAIT_S)

    def answers(self) -> bool:
        assert self.server is not None
        assert self.server.poll() is None, f"the server ended with {self.server.returncode}:\n{self.server_log()}"
        with contextlib.suppress(PenstockError, ValueError, OSError):
            info = json.loads(self.data.server_info.read_bytes())
            return info["pid"] == self.server.pid and self.ask(Client.healthy)
        return False

    def server_log(self) -> str:
        return (self.root / "server.log").read_text(encoding="utf-8", errors="replace")[-4000:]

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def ask(self, call: Callable[[Client], T]) -> T:
        """Return what `call` gets from a fresh client."""
        client = Client.of(self.root)
        with contextlib.closing(client):
            return call(client)

    def ready(self) -> int:
        with contextlib.suppress(PenstockError):
            return self.ask(Client.cluster).nodes_ready
        return 0

    # The agents.

    def agent(self, node: str) -> tuple[int | None, int | None]:
        """Return (guardian, worker) of the node, None for what does not live.

        The guardian is the one that says so; only its own child is the worker. A worker's child looks like an agent
        too, for as long as it has not yet become a replica: killing that one would hit a program.
        """
        try:
            guardian = int((self.data.node(node) / "agent.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None, None
        if not lives(guardian) or not self._is_agent(guardian, node):
            return None, None
        mine = [pid for pid in self.processes("agent") if parent_of(pid) == guardian and self._is_agent(pid, node)]
        return guardian, (mine[0] if mine else None)

    def settled(self, node: str) -> tuple[int, int]:
        """Return (guardian, worker) once both live."""

        def both() -> tuple[int, int] | None:
            guardian, worker = self.agent(node)
            return (guardian, worker) if guardian and worker else None

        found = until(both, f"guardian and worker of {node} live")
        assert found is not None
        return found

    def replaced(self, node: str, former: int) -> tuple[int, int]:
        """Return (guardian, worker) once both live and neither is the killed process `former`."""
        until(lambda: not lives(former), f"process {former} is dead")
        return self.settled(node)

    def _is_agent(self, pid: int, node: str) -> bool:
        return f"{self.data.node(node) / 'agent.json'}".encode() in command_of(pid).split(b"\0")

    # Everything.

    def processes(self, kind: str = "") -> list[int]:
        """Return living processes of this cluster: of `kind` 'agent' or 'replica', or all."""
        own = str(self.root).encode()
        found = []
        for pid in all_pids():
            environment = environment_of(pid)
            if own not in environment:
                continue
            is_replica = f"{REPLICA_MARK}=".encode() in environment
            is_agent = b"penstock.engines.agent.guardian" in command_of(pid)
            if not kind or (kind == "replica" and is_replica) or (kind == "agent" and is_agent and not is_replica):
                found.append(pid)
        return found

    def boxes(self) -> list[Path]:
        """Return the control groups of replicas that still exist."""
        return [box for base in self.box_parents() for box in base.iterdir() if box.is_dir()]

    def box_parents(self) -> list[Path]:
        mark = hashlib.sha256(str(self.root).encode()).hexdigest()[:8]
        top = Path("/sys/fs/cgroup")
        return [*top.glob(f"*/penstock-{mark}-*"), *top.glob(f"penstock-{mark}-*")]

    def stop(self) -> None:
        """End server and agents as an operator would; raises AssertionError when they do not leave."""
        if self.server is not None and self.server.poll() is None:
            self.server.terminate()
            self.server.wait(30)
        for node in self.nodes:
            until(lambda n=node: self._left(n), f"the agent of {node} has left", 40)

    def _left(self, node: str) -> bool:
        stop_agent(self.data, node)
        return agent_pid(self.data, node) is None

    def close(self) -> None:
        """End everything, by force where needed, and leave nothing behind."""
        try:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                if not any(is_stopped(pid) for pid in self.processes("agent")):
                    self.stop()
        finally:
            if self.server is not None and self.server.poll() is None:
                self.kill_server()
            until(self._swept, "every process of the cluster is gone", 20)
            for folder in [*self.boxes(), *self.box_parents()]:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def _swept(self) -> bool:
        left = self.processes()
        for pid in left:
            kill(pid)
        return not left


def environment_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _stat(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return []


def parent_of(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def is_stopped(pid: int) -> bool:
    """Return whether SIGSTOP holds the process."""
    return _stat(pid)[:1] == ["T"]
