"""Starting and ending the server and its agents."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock import starts
from penstock.cli.options import client_of, data_folder, remote, remote_client
from penstock.cli.output import print_json, say
from penstock.cli.secrets import hide
from penstock.client import Client, ServerNotRunning
from penstock.client.errors import NotTrusted
from penstock.client.proof import holds_lock
from penstock.core.model.errors import InvalidInput, PenstockError
from penstock.engines.local import procfs
from penstock.engines.local.launch import agent_pid, known_nodes, stop_agent
from penstock.engines.local.paths import DataFolder
from penstock.engines.local.presence import waiting_servers
from penstock.privatefiles import make_folder, open_own, passed_by_accounts, write_whole
from penstock.store.address import address_of

SERVER = "penstock.wire"
START_WAIT_S = 30.0
STOP_WAIT_S = 40.0


def up(
    data: Path | None,
    options: dict[str, object],
    store: str | None = None,
    *,
    standby: bool = False,
    foreground: bool,
    as_json: bool,
) -> None:
    """Start a server with these options of its process, and say where it answers."""
    folder = data_folder(data)
    options = {"data": str(folder), **options, **_store_options(folder, store, standby=standby)}
    if foreground:
        starts.become(SERVER, msgspec.json.encode(options).decode(), variables=_environment())
    if not standby and running_client(folder) is not None:
        hint = "penstock down ends it; with --store, --standby starts another beside it"
        raise PenstockError(f"a server runs on {folder} already", hint=hint)
    client, info = _started(folder, options)
    if note := info.get("note"):
        say(f"penstock: {note}", err=True)
    shown, url, leads = client.cluster(), _url(info), "nodes" in info
    if as_json:
        role = {} if leads else {"role": "standby"}
        print_json({"data": str(folder), "url": url, "cluster": shown, **role})
        return
    if not leads:
        say(f"Penstock waits at {url} (data in {folder}), beside the server that leads")
        return
    say(f"Penstock is up at {url} (data in {folder})")
    say(f"{shown.nodes_ready} node(s), {shown.devices} device(s). Try: penstock run -- echo hello")


def _store_options(folder: Path, store: str | None, *, standby: bool) -> dict[str, object]:
    """Return what the server is told of its store: the address itself only in a file that it takes away.

    Raises: InvalidInput when the address is none.
    """
    hide(store)
    data = DataFolder(folder)
    address = address_of(data.log, store, data.store_address)
    if standby and not address.url:
        raise InvalidInput(
            "--standby needs a database that both servers use", hint="--store postgresql://HOST/DATABASE"
        )
    if not store:
        return {}
    make_folder(folder, passed_by_accounts())
    given = folder / f"store.given-{os.getpid()}"
    write_whole(given, address.url or store)
    return {"store_file": str(given)}


def _environment() -> dict[str, str]:
    """Return the environment without the store's address: agents and jobs would inherit it."""
    return {name: value for name, value in os.environ.items() if name != "PENSTOCK_STORE"}


def _url(info: dict[str, Any]) -> str:
    host = f"[{info['host']}]" if ":" in info["host"] else info["host"]
    return f"{'https' if info.get('tls') else 'http'}://{host}:{info['port']}"


def running_client(folder: Path) -> Client | None:
    """Return a client of the server on `folder` if one answers. Raises: NotTrusted when others may write there."""
    try:
        client = Client.of(folder)
    except NotTrusted:
        raise
    except PenstockError:
        return None
    return client if client.healthy() else None


def start(folder: Path, options: dict[str, object]) -> Client:
    """Start a server in the background and wait until its nodes are ready.

    Raises: PenstockError with what the server said when it did not come up.
    """
    return _started(folder, options)[0]


def _started(folder: Path, options: dict[str, object]) -> tuple[Client, dict[str, Any]]:
    """Start a server; return a client and what it says of itself, once its nodes are ready or it waits for its turn."""
    make_folder(folder, passed_by_accounts())
    path = folder / "server.log"
    with os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND), "ab") as log:
        begin = os.fstat(log.fileno()).st_size
        words = msgspec.json.encode(options).decode()
        process = starts.begin(SERVER, words, output=log, variables=_environment())
    deadline = time.monotonic() + START_WAIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            with path.open("rb") as log:
                log.seek(begin)
                said = log.read().decode(errors="replace").strip()
            raise PenstockError(f"the server did not start:\n{said}", hint=f"its log is {path}")
        info = _said_by(folder, process.pid)
        client = running_client(folder) if info else None
        if info and client is not None and ("nodes" not in info or _ready(info, client)):
            process.returncode = 0  # it outlives this command on purpose
            return client, info
        time.sleep(0.05)
    raise PenstockError("the server did not become ready in time", hint=f"its log is {path}")


def _said_by(folder: Path, pid: int) -> dict[str, Any]:
    """Return what a server says of itself, with its `nodes` if it leads; {} while it says nothing."""
    data = DataFolder(folder)
    for path in (data.server_info, data.standby_info(pid)):
        with contextlib.suppress(OSError, msgspec.DecodeError, KeyError):
            info: dict[str, Any] = msgspec.json.decode(path.read_bytes())
            if info["pid"] == pid:
                return info
    return {}


def _ready(info: dict[str, Any], client: Client) -> bool:
    """Return whether every node that this server runs is ready for work."""
    wanted = set(info["nodes"])
    return wanted <= {node.name for node in client.nodes() if node.state == "ready" and node.connected}


def ensure(data: Path | None) -> Client:
    """Return a client of the running server; start an embedded one, and say so, where none runs."""
    if data is None and remote():
        return remote_client()
    folder = data_folder(data)
    if running_client(folder) is None:
        say(f"penstock: no server was running; starting one on {folder} (penstock down ends it)", err=True)
        start(folder, {"data": str(folder)})
    return client_of(data)  # with the token that the environment names


def down(data: Path | None, *, as_json: bool) -> None:
    folder = DataFolder(data_folder(data))
    waiting = waiting_servers(folder)
    for each in waiting:  # before the leader: none of them is to take over
        procfs.signal_holder(each, folder.standby_info(each), signal.SIGTERM)
    _wait(lambda: not waiting_servers(folder), "the servers that wait did not end")
    pid = _server_pid(folder)
    nodes = [name for name in known_nodes(folder) if agent_pid(folder, name) is not None]
    if pid is None and not nodes and not waiting:
        raise ServerNotRunning(f"no server runs on {folder.root}", hint="nothing to end")
    if pid is not None:
        procfs.signal_holder(pid, folder.server_lock, signal.SIGTERM)
        _wait(lambda: _server_pid(folder) is None, f"the server (process {pid}) did not end")
    for name in nodes:
        stop_agent(folder, name)
    _wait(lambda: not any(agent_pid(folder, n) for n in nodes), "some agents did not end")
    if as_json:
        print_json({"server": pid, "agents": nodes, **({"standbys": waiting} if waiting else {})})
    else:
        beside = f", {len(waiting)} that waited beside it" if waiting else ""
        say(f"ended the server{beside} and {len(nodes)} agent(s)")


def _server_pid(folder: DataFolder) -> int | None:
    """Return the process of the server that leads; a killed one has left its number, which may be anybody's by now."""
    try:
        pid = int(msgspec.json.decode(folder.server_info.read_bytes())["pid"])
    except (OSError, ValueError, TypeError, KeyError, msgspec.DecodeError):
        return None
    return pid if holds_lock(pid, folder.server_lock) else None


def _wait(done: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + STOP_WAIT_S
    while not done():
        if time.monotonic() > deadline:
            raise PenstockError(failure)
        time.sleep(0.05)
