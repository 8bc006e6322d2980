"""A Ray cluster of the tests' own: a head without CPUs and four nodes, each a raylet on this machine.

Each part is a `ray start --block` in a session of its own, and ends with this process. Parts are killed and started
again by name: `head`, `r1` to `r4`.
"""

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import penstock
from penstock.engines.processes import procfs
from penstock.engines.processes.ray_place import head_port
from tests.engines.ray import needs  # noqa: F401 - without Ray what asks for a cluster is skipped
from tests.server.harness import MARK
from tests.sharedservice import SharedService

NODES, CPUS, MEMORY = 4, 4, 2**30
PR_SET_PDEATHSIG = 1
START_WAIT_S = 90.0
SOURCES = str(Path(penstock.__file__).resolve().parents[1])
START = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
PORTS = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")


def until(said: str, true: Callable[[], object], wait_s: float = START_WAIT_S) -> None:
    deadline = time.monotonic() + wait_s
    while not true():
        assert time.monotonic() < deadline, f"waited {wait_s:.0f} s for {said}"
        time.sleep(0.05)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class RayCluster:
    """One cluster, with a token of its own."""

    def __init__(self, nodes: int = NODES, cpus: int = CPUS) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pr-", dir="/tmp"))  # short: Ray's sockets lie deep below it
        self.nodes, self.cpus = [f"r{number}" for number in range(1, nodes + 1)], cpus
        self.token = secrets.token_hex(16)
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """What a program needs to be let in."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}

    def start(self) -> None:
        self.start_head()
        for name in self.nodes:
            self.start_node(name)

    def start_head(self) -> None:
        """Start the head: without a store it is a new cluster each time."""
        folder = self.folder / f"h{secrets.token_hex(2)}"
        port = f"--port={self.port}"
        words = ["--head", "--node-ip-address=127.0.0.1", port, "--num-cpus=0", "--include-dashboard=false"]
        self._begin("head", [*words, f"--temp-dir={folder}"])
        until("the head", lambda: head_port(folder) and self._alive("head"))
        self.port = head_port(folder) or 0

    def start_node(self, name: str) -> None:
        words = [f"--address={self.address}", "--node-ip-address=127.0.0.1", f"--num-cpus={self.cpus}"]
        words += [f"--memory={MEMORY}", f'--labels={{"part":"{name}"}}', "--include-log-monitor=false"]
        self._begin(name, [*words, f"--temp-dir={self.folder / name}"])

    def _begin(self, name: str, words: list[str]) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY", "PENSTOCK"))}
        environment = {
            **kept, **self.variables, "PYTHONPATH": f"{SOURCES}:{Path(__file__).parents[3]}", MARK: str(self.folder),
            "RAY_prestart_worker_first_driver": "0",
        }  # fmt: skip
        command = [sys.executable, "-P", "-c", START, "start", "--block", *words, *PORTS]
        command += ["--object-store-memory=80000000", "--disable-usage-stats"]
        with (self.folder / f"{name}.log").open("ab") as log, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of preexec_fn beside threads
            self._parts[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - a test run that is killed leaves no cluster behind
                cwd="/",
                env=environment,
            )

    def _alive(self, name: str) -> bool:
        assert self._parts[name].poll() is None, (self.folder / f"{name}.log").read_text()[-2000:]
        return True

    def processes(self, name: str) -> dict[str, int]:
        """Return what runs for a part: its raylet, its gcs_server (of the head), by the names of their programs."""
        of = {pid: procfs.parent_of(pid) for pid in procfs.all_pids()}
        return {procfs.name_of(pid): pid for pid, parent in of.items() if parent == self._parts[name].pid}

    def kill(self, name: str, number: int = signal.SIGKILL) -> bool:
        """Kill the raylet of a node, or the GCS of the head; the rest of the part is ended.

        Returns whether it was killed: it may have ended by itself before.
        """
        part = self._parts.pop(name)
        victims = [0]

        def begun() -> bool:
            found = self._children(part.pid)
            victims[0] = found.get("gcs_server") or found.get("raylet") or 0
            return bool(victims[0]) or part.poll() is not None

        until(f"{name} to begin", begun)  # it may have been started a moment ago
        killed = False
        if victims[0]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victims[0], number)
                killed = True
        until(f"{name} to end", lambda: part.poll() is not None)
        return killed

    def _children(self, parent: int) -> dict[str, int]:
        return {procfs.name_of(pid): pid for pid in procfs.all_pids() if procfs.parent_of(pid) == parent}

    def holders(self) -> list[int]:
        """Return the workers of this cluster that holders run in: children of its raylets."""
        raylets = {self._children(part.pid).get("raylet", 0) for part in self._parts.values()}
        named = [pid for pid in procfs.all_pids() if procfs.name_of(pid).startswith("ray::HolderAct")]
        return [pid for pid in named if procfs.parent_of(pid) in raylets]

    def restart(self, pause_s: float = 0.0) -> None:
        """Kill the head, and `pause_s` later start it again at its port: a new cluster, whose nodes are new raylets."""
        part = self._parts.pop("head")
        found = self._children(part.pid)
        os.kill(found.pop("gcs_server"), signal.SIGKILL)
        time.sleep(pause_s)
        for pid in found.values():  # its raylet would wait a minute for the GCS, and end then
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.killpg(part.pid, signal.SIGKILL)
        part.wait()
        self.start_head()
        for name in self.nodes:
            part = self._parts.pop(name)  # it would wait a minute for its head, and end then
            os.killpg(part.pid, signal.SIGKILL)
            part.wait()
            self.start_node(name)

    def part_of(self, node: str) -> str:
        """Return the name of the part that is the Ray node of this id."""
        for name, part in self._parts.items():
            raylet = self._children(part.pid).get("raylet")
            if raylet and node.encode() in Path(f"/proc/{raylet}/cmdline").read_bytes():
                return name
        raise AssertionError(f"no part is Ray node {node}")

    def remove(self) -> None:
        for part in reversed(list(self._parts.values())):
            part.terminate()
        for part in self._parts.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                part.wait(10)
            part.kill()
            part.wait()
        mark = f"{MARK}={self.folder}".encode()
        for pid in procfs.all_pids():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


shared: SharedService[RayCluster] = SharedService(RayCluster)
