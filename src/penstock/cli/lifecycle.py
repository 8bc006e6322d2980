"""Starting and ending the server and its agents."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import typer

from penstock.cli.options import data_folder
from penstock.cli.output import print_json
from penstock.client import Client, ServerNotRunning
from penstock.core.errors import PenstockError
from penstock.engines.local.launch import agent_pid, known_nodes, stop_agent
from penstock.engines.local.paths import DataFolder

START_WAIT_S = 30.0
STOP_WAIT_S = 40.0


def up(data: Path | None, cluster: Path | None, port: int, *, foreground: bool, respawn: bool, as_json: bool) -> None:
    folder = data_folder(data)
    options = {
        "data": str(folder),
        "port": port,
        "cluster_file": str(cluster) if cluster else None,
        "respawn_agents": respawn,
    }
    if foreground:
        os.execv(sys.executable, [sys.executable, "-m", "penstock.wire", msgspec.json.encode(options).decode()])
    running = running_client(folder)
    if running is not None:
        raise PenstockError(f"a server runs on {folder} already", hint="penstock down ends it")
    client = start(folder, options)
    shown = client.cluster()
    address = msgspec.json.decode((folder / "server.json").read_bytes())
    if as_json:
        print_json({"data": str(folder), "url": f"http://{address['host']}:{address['port']}", "cluster": shown})
        return
    typer.echo(f"Penstock is up at http://{address['host']}:{address['port']} (data in {folder})")
    typer.echo(f"{shown.nodes_ready} node(s), {shown.devices} device(s). Try: penstock run -- echo hello")


def running_client(folder: Path) -> Client | None:
    """Return a client of the server on `folder` if one answers."""
    try:
        client = Client.of(folder)
    except PenstockError:
        return None
    return client if client.healthy() else None


def start(folder: Path, options: dict[str, object]) -> Client:
    """Start a server in the background and wait until its nodes are ready.

    Raises: PenstockError with what the server said when it did not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "server.log"
    begin = path.stat().st_size if path.exists() else 0
    with path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.wire", msgspec.json.encode(options).decode()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_WAIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            with path.open("rb") as log:
                log.seek(begin)
                said = log.read().decode(errors="replace").strip()
            raise PenstockError(f"the server did not start:\n{said}", hint=f"its log is {path}")
        client = running_client(folder)
        if client is not None and _ready(folder, client):
            process.returncode = 0  # it outlives this command on purpose
            return client
        time.sleep(0.05)
    raise PenstockError("the server did not become ready in time", hint=f"its log is {path}")


def _ready(folder: Path, client: Client) -> bool:
    """Return whether every node that this server runs is ready for work."""
    wanted = set(msgspec.json.decode((folder / "server.json").read_bytes())["nodes"])
    return wanted <= {node.name for node in client.nodes() if node.state == "ready" and node.connected}


def ensure(data: Path | None) -> Client:
    """Return a client of the running server; start an embedded one, and say so, where none runs."""
    folder = data_folder(data)
    client = running_client(folder)
    if client is None:
        typer.echo(f"penstock: no server was running; starting one on {folder} (penstock down ends it)", err=True)
        client = start(folder, {"data": str(folder)})
    return client


def down(data: Path | None, *, as_json: bool) -> None:
    folder = DataFolder(data_folder(data))
    pid = _server_pid(folder)
    nodes = [name for name in known_nodes(folder) if agent_pid(folder, name) is not None]
    if pid is None and not nodes:
        raise ServerNotRunning(f"no server runs on {folder.root}", hint="nothing to end")
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        _wait(lambda: _server_pid(folder) is None, f"the server (process {pid}) did not end")
    for name in nodes:
        stop_agent(folder, name)
    _wait(lambda: not any(agent_pid(folder, n) for n in nodes), "some agents did not end")
    if as_json:
        print_json({"server": pid, "agents": nodes})
    else:
        typer.echo(f"ended the server and {len(nodes)} agent(s)")


def _server_pid(folder: DataFolder) -> int | None:
    try:
        pid = int(msgspec.json.decode(folder.server_info.read_bytes())["pid"])
        os.kill(pid, 0)
    except (OSError, ValueError, KeyError, msgspec.DecodeError):
        return None
    return pid


def _wait(done: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + STOP_WAIT_S
    while not done():
        if time.monotonic() > deadline:
            raise PenstockError(failure)
        time.sleep(0.05)
