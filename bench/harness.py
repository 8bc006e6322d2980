"""What the benchmarks share: a server of their own on loopback, lean clients, and the shape of a result line."""

import json
import os
import platform
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.client import Client
from penstock.engines.local.launch import agent_pid, known_nodes, stop_agent
from penstock.engines.processes.paths import DataFolder

START_WAIT_S = 30.0


class Server:
    """A running server with one virtual node of many CPUs."""

    def __init__(self, data: Path, pid: int) -> None:
        self.data, self.pid = data, pid
        self.client = Client.of(data)
        info = json.loads((data / "server.json").read_bytes())
        self.address = (info["host"], info["port"])
        self.trusted = str(info["ca"]) if info.get("tls") else ""
        """File of the authorities, where it speaks TLS."""
        self.token = (data / "token").read_text().strip()

    def rss_mb(self) -> float:
        text = Path(f"/proc/{self.pid}/status").read_text()
        line = next(part for part in text.splitlines() if part.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024


@contextmanager
def server(
    cpus: int = 64,
    declared: dict[str, Any] | None = None,
    *,
    tls: bool = False,
    limits: dict[str, Any] | None = None,
    before: Callable[[Path], object] | None = None,
) -> Iterator[Server]:
    """Run a server in a folder of its own; everything of it is gone afterwards.

    Args:
        declared: a cluster file instead of the one node with so many CPUs.
        limits: other limits than those by default.
        before: makes the data folder as it is when the server starts.
    """
    root = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    cluster = root / "cluster.yaml"
    one = {"nodes": [{"name": "bench", "cpus": cpus, "memory": "16GiB"}]}
    cluster.write_text(json.dumps(declared or one))
    data = root / "data"
    given = {"data": str(data), "cluster_file": str(cluster), "respawn_agents": False, "tls": tls}
    if limits is not None:
        (root / "limits.yaml").write_text(json.dumps(limits))
        given["limits_file"] = str(root / "limits.yaml")
    if before is not None:
        before(data)
    options = json.dumps(given)
    with (root / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-P", "-m", "penstock.wire", options], stdout=log, stderr=log)
    try:
        _wait_ready(data, process, len((declared or one)["nodes"]))
        yield Server(data, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        folder = DataFolder(data)
        for name in known_nodes(folder):
            stop_agent(folder, name)
        deadline = time.monotonic() + 10
        while any(agent_pid(folder, n) for n in known_nodes(folder)) and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.rmtree(root, ignore_errors=True)


def _wait_ready(data: Path, process: "subprocess.Popen[bytes]", nodes: int) -> None:
    deadline = time.monotonic() + START_WAIT_S + nodes
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if Client.of(data).cluster().nodes_ready >= nodes:
                return
        except Exception:  # noqa: BLE001 - not there yet
            pass
        time.sleep(0.05)
    raise SystemExit("the benchmark's server did not start")


class LeanClient:
    """Sends prepared HTTP requests over one connection: measures the server, not the client."""

    def __init__(self, address: tuple[str, int], token: str, trusted: str = "") -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if trusted:
            security = ssl.create_default_context(cafile=trusted)
            self._socket = security.wrap_socket(self._socket, server_hostname=address[0])
        self._head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n"

    def submit(self, body: bytes, key: str) -> bytes:
        """Submit and return the answer's body; raises on any status but 201."""
        head = f"{self._head}Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        headers, _, rest = data.partition(b"\r\n\r\n")
        if not headers.startswith(b"HTTP/1.1 201"):
            raise RuntimeError(headers.decode() + rest.decode(errors="replace"))
        length = int(headers.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(rest) < length:
            rest += self._receive()
        return rest

    def _receive(self) -> bytes:
        piece = self._socket.recv(1 << 20)
        if not piece:
            raise ConnectionError("the server closed the connection")
        return piece


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def result(
    metric: str, value: float, unit: str, better: str, limit: float | None, reference: dict[str, Any] | None = None
) -> None:
    """Print one result line."""
    line = {
        "metric": metric,
        "value": round(value, 3),
        "unit": unit,
        "better": better,
        "limit": limit,
        "reference": reference,
        "machine": machine(),
    }
    print(json.dumps(line), flush=True)
