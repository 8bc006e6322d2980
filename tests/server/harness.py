"""A real server with real agents in a folder of its own, for the tests of server, command line and engine.

Everything it starts carries `PENSTOCK_TEST_ROOT`, so that `close` ends exactly that and nothing else.
"""

import contextlib
import hashlib
import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import penstock
from penstock.api.types import JobView
from penstock.client import Client
from penstock.core.model.errors import PenstockError
from penstock.core.state.live_jobs import LIVE_STATES
from penstock.engines.local.launch import agent_pid, known_nodes, stop_agent
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import all_pids
from penstock.testing import builders
from tests.server import preloaded

T = TypeVar("T")
SOURCES = str(Path(penstock.__file__).resolve().parents[1])
ROOT = Path(__file__).resolve().parents[2]
LIMITS = {"failed_logins_burst": 10_000}
"""For tests that try many wrong tokens; everything else is as it is by default."""
FINAL = ("succeeded", "failed", "cancelled")
POLL_MIN_S, POLL_MAX_S = 0.01, 0.05
"""What is awaited is looked at less often the longer it takes: most looks are requests, and cost the server, too."""
MARK = "PENSTOCK_TEST_ROOT"


def until(found: Callable[[], T], what: str, timeout_s: float = 30.0) -> T:
    """Return the first true value of `found`; fails, naming `what`, when none comes in time."""
    begun = time.monotonic()
    while not (value := found()):
        waited_s = time.monotonic() - begun
        assert waited_s < timeout_s, f"waited {timeout_s} s for: {what}"
        time.sleep(min(max(waited_s / 10, POLL_MIN_S), POLL_MAX_S))
    return value


def cluster_file(nodes: int = 2, devices: int = 4, **settings: str) -> dict[str, Any]:
    """Return a cluster file whose nodes report often: tests wait for what they say."""
    often = {"heartbeat": "100ms", "lease_ttl": "20s", "lease_margin": "8s"}
    return builders.cluster_file(nodes, devices, **(often | settings))


def sweep(root: Path) -> None:
    """End every process that was started for `root`, and drop its control groups."""
    own = str(root.resolve())
    preloaded.settle()
    until(lambda: not _killed(own), f"the processes of {own} are gone", 20)
    mark = hashlib.sha256(own.encode()).hexdigest()[:8]
    top = Path("/sys/fs/cgroup")
    for base in [*top.glob(f"*/penstock-{mark}-*"), *top.glob(f"penstock-{mark}-*")]:
        for folder in [*(p for p in base.iterdir() if p.is_dir()), base]:
            with contextlib.suppress(OSError):
                folder.rmdir()


def started_for(root: Path) -> list[int]:
    """Return living processes that carry the mark of `root`, or checkpoints in it."""
    own = str(root.resolve()).encode()
    found = []
    for pid in all_pids():
        with contextlib.suppress(OSError):
            if own in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def _killed(own: str) -> list[int]:
    left = [pid for pid in started_for(Path(own)) if pid != os.getpid()]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def environment(root: Path, **more: str) -> dict[str, str]:
    """Return the environment of processes that `sweep(root)` may end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return kept | {"PYTHONPATH": SOURCES, MARK: str(root.resolve())} | more


class Server:
    """Use as a context manager: it answers and its nodes are ready inside, and nothing is left after."""

    anew = False
    """Whether it may not be forked (`preloaded`)."""

    def __init__(
        self,
        root: Path,
        declared: dict[str, Any] | None = None,
        *,
        data: Path | None = None,
        limits: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self.data = DataFolder(data or self.root)
        self.declared = cluster_file() if declared is None else declared
        self._file = self.root / "cluster.yaml"
        self._file.write_text(json.dumps(self.declared), encoding="utf-8")
        self._limits = self.root / "given-limits.yaml"
        self._limits.write_text(json.dumps(LIMITS if limits is None else limits), encoding="utf-8")
        self._options = options
        self.nodes_wanted = len(self.declared["nodes"])
        """Nodes that are ready when the server has started."""
        self.process: subprocess.Popen[bytes] | preloaded.Forked | None = None
        self._client: Client | None = None

    def __enter__(self) -> "Server":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        options = {"data": str(self.data.root), "cluster_file": str(self._file), "check_invariants": True}
        options |= {"limits_file": str(self._limits), **self._options}
        with (self.root / "server.log").open("ab") as log:
            variables = environment(self.root)
            self.process = preloaded.start_server(json.dumps(options), output=log, variables=variables, anew=self.anew)
        until(self._ready, "the server answers and its nodes are ready")

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(PenstockError, OSError, ValueError):
            if json.loads(self.data.server_info.read_bytes())["pid"] == self.process.pid:
                return self.client.cluster().nodes_ready == self.nodes_wanted
        return False

    def log(self) -> str:
        return (self.root / "server.log").read_text(encoding="utf-8", errors="replace")[-4000:]

    @property
    def client(self) -> Client:
        """The server's own client, closed with it; for the main thread."""
        if self._client is None:
            self._client = Client.of(self.data.root)
        return self._client

    def hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def port(self) -> int:
        return int(json.loads(self.data.server_info.read_bytes())["port"])

    @property
    def token(self) -> str:
        return self.data.user_token.read_text(encoding="ascii").strip()

    def http(self, method: str, path: str, body: bytes | None = None, *, read: bool = True, **headers: str) -> "Answer":
        """Send one raw request with the right token; `token=''` sends none; a stream must not be read to its end."""
        token = headers.pop("token", self.token)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"Authorization": f"Bearer {token}"} if token else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers.items()), response.read() if read else b"")
        finally:
            connection.close()

    def stop(self) -> None:
        """End server and agents as an operator would."""
        self.hang_up()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
        names = [n for n in known_nodes(self.data) if agent_pid(self.data, n) is not None]
        for name in names:
            stop_agent(self.data, name)
        until(lambda: not any(agent_pid(self.data, n) for n in names), "the agents have left", 40)

    def close(self) -> None:
        try:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                self.stop()
        finally:
            self.hang_up()
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            sweep(self.root)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, {k.lower(): v for k, v in headers.items()}, body

    def json(self) -> Any:
        return json.loads(self.body)


class Jobs:
    """A client with waiting; cancels at `close` what it has submitted."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._made: list[int] = []

    def submit(self, command: str | list[str] = "true", **fields: Any) -> int:
        """Submit one job, with a short grace and few CPUs unless told otherwise."""
        job = {"command": command, "grace": "5s", "cpus": 1, **fields}
        made = self.client.submit(job).jobs[0].id
        self._made.append(made)
        return made

    def state(self, job_id: int, *states: str) -> JobView:
        """Return the job once it is in one of the states; fails when it has ended in another, or is late."""

        def found() -> JobView | None:
            job = self.client.job(job_id)
            assert job.state in (*states, *LIVE_STATES), f"job {job_id} is {job.state}: {job.reason}"
            return job if job.state in states else None

        try:
            return until(found, f"job {job_id} is {states}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.situation(job_id)}") from None

    def situation(self, job_id: int) -> str:
        """Return what a late job waits for, as lines: its explanation, all live jobs, and all nodes."""
        jobs = [f"job {job.id}: {job.state} {job.reason} on {job.nodes}" for job in self.client.jobs().jobs]
        nodes = [
            f"node {node.name}: {node.state}, {'connected' if node.connected else 'away'}, "
            f"{f'draining ({node.drain_reason})' if node.draining else 'open'}, jobs {node.jobs}"
            for node in self.client.nodes()
        ]
        return "\n".join([self.client.explain(job_id).text, *jobs, *nodes])

    def ended(self, job_id: int) -> JobView:
        return self.state(job_id, *FINAL)

    def output(self, job_id: int, attempt: int = 1, rank: int = 0) -> str:
        return self.client.logs(job_id, attempt, rank)[1].decode()

    def said(self, job_id: int, text: str, attempt: int = 1, rank: int = 0) -> None:
        """Wait until the output holds a text."""

        def found() -> bool:
            with contextlib.suppress(PenstockError):
                return text in self.output(job_id, attempt, rank)
            return False

        until(found, f"job {job_id} says {text!r}")

    def close(self) -> None:
        for job_id in self._made:
            self.client.cancel(job_id)
        for job_id in self._made:
            self.ended(job_id)
