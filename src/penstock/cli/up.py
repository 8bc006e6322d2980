"""`penstock up` and `down`: the server here and its agents; the server that `run` starts where none runs."""

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock import starts
from penstock.cli.engines import (
    QUEUE_CONFIG,
    EngineWish,
    KubeconfigOption,
    PassingOption,
    PilotOption,
    PilotSettingsOption,
    QueueConfigOption,
    ShadowOption,
    SharedOption,
    engine_options,
)
from penstock.cli.options import JsonOption, StoreOption
from penstock.cli.output import print_done, print_json, say
from penstock.cli.place import client_of, data_folder, folder_here, remote
from penstock.cli.progress import waiting
from penstock.cli.ray import RayAddressOption, RayShareOption, end_nodes, ray_options
from penstock.cli.secrets import hide
from penstock.cli.ui import address_in, login_address
from penstock.core.model.errors import InvalidInput, PenstockError
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.core.model.answers import Alert
    from penstock.engines.processes.paths import DataFolder

SERVER = "penstock.wire"
SwitchOption = Annotated[
    bool, typer.Option("--switch-store", help="Leave the data folder's present log behind for that of --store.")
]
StandbyOption = Annotated[
    bool, typer.Option("--standby", help="Start as a standby of the leading server; needs a store.")
]
RefreshOption = Annotated[
    float, typer.Option(help="Beside Slurm: seconds between two questions for all jobs.", min=5, max=3600)
]
HistoryOption = Annotated[
    int, typer.Option(help="Beside Slurm: days of its accounts that a new log begins with.", min=0, max=3650)
]
ListenAgentsOption = Annotated[
    str, typer.Option(help="Address for agents of other machines, ADDRESS or ADDRESS:PORT; 0.0.0.0: all addresses.")
]
START_WAIT_S = 30.0
"""For a server to answer; then for each further node to become ready."""
HISTORY_WAIT_S = 900.0
"""For one beside Slurm, which writes what its accounts have into a new log first."""
NODE_WAIT_S = 0.25
"""For each node, on top of that: their agents all start at once, on the same processors."""
CODE_LINE = re.compile(r"\n  code: ([a-z_]+)\Z")
"""What a server that cannot start says last: the code of its error."""
SAY_EVERY_S = 3.0
STOP_WAIT_S = 40.0
NAMED_MAX = 5


class NotStarted(PenstockError):
    """The server has ended, or not all of it came up. `code` is that of the server's own error, where it has one."""

    def __init__(self, message: str, *, hint: str, code: str = "error") -> None:
        super().__init__(message, hint=hint)
        self.code = code


def up(
    cluster: Annotated[Path | None, typer.Option(help="Cluster file (YAML): pools, tenants, queues, nodes.")] = None,
    host: Annotated[str, typer.Option(help="Address of the API; 0.0.0.0: all addresses.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the API; 0: a free port.", min=0, max=65_535)] = 0,
    tls: Annotated[bool, typer.Option("--tls", help="Serve HTTPS with a certificate of the own authority.")] = False,
    certificate: Annotated[Path | None, typer.Option(help="Serve HTTPS with it (PEM, with chain).")] = None,
    key: Annotated[Path | None, typer.Option(help="Key of that certificate (PEM).")] = None,
    name: Annotated[list[str] | None, typer.Option(help="Further name of the server; may be repeated.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow plain HTTP beyond this machine.")] = False,
    limits: Annotated[Path | None, typer.Option(help="Limits of requests and connections (YAML).")] = None,
    store: StoreOption = None,
    switch: SwitchOption = False,
    standby: StandbyOption = False,
    engine: Annotated[str, typer.Option(help="What runs the jobs: local, kubernetes (pods), ray, or slurm.")] = "local",
    kubeconfig: KubeconfigOption = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig; its current one by default.")] = "",
    queue_config: QueueConfigOption = QUEUE_CONFIG,
    shadow: ShadowOption = False,
    passing: PassingOption = False,
    shared: SharedOption = None,
    pilot: PilotOption = False,
    pilot_settings: PilotSettingsOption = None,
    ray_address: RayAddressOption = "",
    ray_share: RayShareOption = 1.0,
    refresh: RefreshOption = 30.0,
    history: HistoryOption = 7,
    listen_agents: ListenAgentsOption = "127.0.0.1",
    foreground: Annotated[bool, typer.Option(help="Run in the foreground.")] = False,
    respawn: Annotated[bool, typer.Option(help="Restart agents that die.")] = True,
    json: JsonOption = False,
) -> None:
    """Start the server and the agents of this machine's nodes."""
    from penstock.engines.local.server_lock import AlreadyRunning
    from penstock.server.http.transport import checked, transport_of

    options: dict[str, object] = {
        **_paths(cluster_file=cluster, limits_file=limits, certificate=certificate, key=key),
        "host": host,
        "port": port,
        "tls": tls,
        "insecure": insecure,
        "names": name or [],
        "listen_agents": listen_agents,
        "respawn_agents": respawn,
        **engine_options(
            EngineWish(engine, kubeconfig, context, queue_config, shadow, passing, shared, pilot, pilot_settings)
        ),
        "ray": ray_options(engine, ray_address, ray_share, shared),
        "refresh_s": refresh,
        "history_days": history,
    }
    checked(transport_of(options))
    folder = folder_here()
    options = {"data": str(folder.root), **options, **_store_options(folder, store, standby=standby, switch=switch)}
    if foreground:
        starts.become(SERVER, msgspec.json.encode(options).decode(), variables=_environment())
    if not standby and running_client(folder) is not None:
        hint = "penstock down ends it; with --store, --standby starts a standby"
        raise AlreadyRunning(f"a server runs on {folder.root} already", hint=hint)
    _print_started(folder, *_started(folder, options, quiet=json), as_json=json)


def _paths(**given: Path | None) -> dict[str, object]:
    return {name: _whole(path) for name, path in given.items()}


def _whole(path: Path | None) -> str | None:
    return str(starts.whole(path)) if path is not None else None


def _print_started(folder: "DataFolder", client: "Client", info: dict[str, Any], *, as_json: bool) -> None:
    """Print the server's address, and the mode in which it was started."""
    if note := info.get("note"):
        say(f"penstock: {note}", err=True)
    shown, url, leads = client.cluster(), address_in(info), "nodes" in info
    if as_json:
        role = {} if leads else {"role": "standby"}
        print_json({"data": str(folder.root), "url": url, "cluster": shown, **role})
    elif leads:
        say(f"Penstock is up at {url} (data in {folder.root})")
        tenant = "" if client.me().default_tenant else " --tenant TENANT"
        have = f"{counted(shown.nodes_ready, 'node')}, {counted(shown.devices, 'device')}"
        if info.get("shadow"):
            say(f"{have}; other schedulers decide, and nothing is written. Try: penstock ps")
        else:
            say(f"{have}. Try: penstock run{tenant} -- echo hello")
        say(f"Web pages: {login_address(url, client)} (works once, for two minutes; penstock ui makes another)")
    else:
        say(f"Penstock waits at {url} (data in {folder.root}), as a standby of the server that leads")


def _store_options(folder: "DataFolder", store: str | None, *, standby: bool, switch: bool) -> dict[str, object]:
    """Return the server's options for its store: the address itself only in a file that the server removes.

    Raises: InvalidInput for an invalid address.
    """
    from penstock.privatefiles import make_folder, passed_by_accounts, write_whole
    from penstock.store.address import address_of

    hide(store)
    address = address_of(folder.log, store, folder.store_address)
    if standby and not address.url:
        raise InvalidInput(
            "--standby needs a database that both servers use", hint="--store postgresql://HOST/DATABASE"
        )
    if switch and not store:
        raise InvalidInput("--switch-store needs --store", hint="--store postgresql://HOST/DATABASE, or --store sqlite")
    if not store:
        return {}
    make_folder(folder.root, passed_by_accounts())
    given = folder.root / f"store.given-{os.getpid()}"
    write_whole(given, address.url or store)
    return {"store_file": str(given), "switch_store": switch}


def _environment() -> dict[str, str]:
    """Return the environment without the store's address: agents and jobs would inherit it."""
    return {name: value for name, value in os.environ.items() if name != "PENSTOCK_STORE"}


def running_client(folder: "DataFolder") -> "Client | None":
    """Return a client of the server on `folder` if one answers. Raises: NotTrusted when others may write there."""
    from penstock.client import Client
    from penstock.client.errors import NotTrusted

    try:
        client = Client.of(folder.root)
    except NotTrusted:
        raise
    except PenstockError:
        return None
    return client if client.healthy() else None


def ensure() -> "Client":
    """Return a client of the running server; start an embedded one, and say so, where none runs.

    Raises: PenstockError with the server's message when it did not come up.
    """
    if not remote():
        folder = data_folder()
        if running_client(folder) is None:
            say(f"penstock: no server was running; starting one on {folder.root} (penstock down ends it)", err=True)
            _started(folder, {"data": str(folder.root)})
    return client_of()  # with the token that the environment names


def _started(
    folder: "DataFolder", options: dict[str, object], *, quiet: bool = False
) -> "tuple[Client, dict[str, Any]]":
    """Start a server; return a client and the server's info, once its nodes are ready or it is on standby.

    Args:
        quiet: say nothing of how many nodes are ready.
    Raises: NotStarted.
    """
    from penstock.privatefiles import make_folder, open_own, passed_by_accounts

    make_folder(folder.root, passed_by_accounts())
    path = folder.root / "server.log"
    with os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND), "ab") as log:
        begin = os.fstat(log.fileno()).st_size
        words = msgspec.json.encode(options).decode()
        process = starts.begin(SERVER, words, output=log, variables=_environment())

    def lives() -> None:
        if process.poll() is not None:
            with path.open("rb") as log:
                log.seek(begin)
                said = log.read().decode(errors="replace").strip()
            text, code = CODE_LINE.sub("", said), CODE_LINE.search(said)
            hint = f"its log is {path}"
            raise NotStarted(f"the server did not start:\n{text}", hint=hint, code=code[1] if code else "error")

    wait_s = HISTORY_WAIT_S if options.get("shadow") and options.get("slurm") else START_WAIT_S
    deadline = time.monotonic() + wait_s
    reading = ", which reads the history of the cluster" if wait_s == HISTORY_WAIT_S else ""
    with waiting(f"starting the server{reading}", quiet=quiet) as change:
        while time.monotonic() < deadline:
            lives()
            info = _said_by(folder, process.pid)
            client = running_client(folder) if info else None
            if info and client is not None:
                _wait_for_nodes(set(info.get("nodes", ())), client, path, lives, change, quiet=quiet)
                process.returncode = 0  # it outlives this command on purpose
                return client, info
            time.sleep(0.05)
    process.returncode = 0
    raise NotStarted(
        f"the server (process {process.pid}) does not answer after {wait_s:g} s",
        hint=f"it is still starting; its log is {path}",
    )


def _wait_for_nodes(
    wanted: set[str],
    client: "Client",
    path: Path,
    lives: Callable[[], None],
    change: Callable[[str], None],
    *,
    quiet: bool,
) -> None:
    """Return once all nodes of a server are ready; say how many are. Raises: NotStarted when no further one gets so."""
    most, said_s = 0, time.monotonic()
    deadline = said_s + START_WAIT_S + NODE_WAIT_S * len(wanted)
    while wanted:
        lives()
        ready = _ready(wanted, client)
        now_s = time.monotonic()
        change(f"{ready} of {counted(len(wanted), 'node')} ready")
        if ready == len(wanted):
            return
        if ready > most:
            most, deadline = ready, max(deadline, now_s + START_WAIT_S)
        if now_s > deadline:
            raise NotStarted(
                f"{most} of {counted(len(wanted), 'node')} became ready, and no other within {START_WAIT_S:g} s",
                hint=f"the server keeps running: penstock nodes shows which are missing, its log is {path}",
            )
        if now_s - said_s >= SAY_EVERY_S:
            said_s = now_s
            _refuse_other(wanted, client)
            if not quiet and not sys.stderr.isatty():
                say(f"{ready} of {counted(len(wanted), 'node')} ready", err=True)
        time.sleep(min(0.5, 0.05 + len(wanted) / 500))  # a list of many nodes takes the time of their agents


def _refuse_other(wanted: set[str], client: "Client") -> None:
    """Raises: NotStarted when an agent stays one of another version: its node will not become ready."""
    alerts: list[Alert] = []
    with contextlib.suppress(PenstockError):  # a busy server does not say
        alerts = [one for one in client.alerts() if one.code == "agent_version"]
    if found := [one for one in alerts if one.text.split(" ", 2)[1] in wanted]:
        text = "; ".join(one.text for one in found[:NAMED_MAX])
        raise NotStarted(f"the server runs, but {text}", hint=found[0].resolve)


def _said_by(folder: "DataFolder", pid: int) -> dict[str, Any]:
    """Return a server's info, with its `nodes` if it leads; {} while it does not answer."""
    for path in (folder.server_info, folder.standby_info(pid)):
        with contextlib.suppress(OSError, msgspec.DecodeError, KeyError):
            info: dict[str, Any] = msgspec.json.decode(path.read_bytes())
            if info["pid"] == pid:
                return info
    return {}


def _ready(wanted: set[str], client: "Client") -> int:
    """Return how many of these nodes are ready for work; 0 where a busy server does not say."""
    try:
        return sum(node.name in wanted and node.state == "ready" and node.connected for node in client.nodes())
    except PenstockError:
        return 0


def down(json: JsonOption = False) -> None:
    """Stop the server and its agents. Running jobs are stopped, and resume when it is up again."""
    from penstock.client import ServerNotRunning
    from penstock.engines.local.launch import agent_pid, known_nodes, stop_agent
    from penstock.engines.local.server_lock import waiting_servers
    from penstock.engines.processes.procfs import signal_holder

    folder = folder_here()
    waiting = waiting_servers(folder)
    for each in waiting:  # standbys before the leader: none of them may take over
        signal_holder(each, folder.standby_info(each), signal.SIGTERM)
    _wait(lambda: not waiting_servers(folder), "the standbys did not stop in time")
    pid = _server_pid(folder)
    nodes = [name for name in known_nodes(folder) if agent_pid(folder, name) is not None]
    if pid is None and not nodes and not waiting:
        raise ServerNotRunning(f"no server runs on {folder.root}", hint="nothing to end")
    if pid is not None:
        signal_holder(pid, folder.server_lock, signal.SIGTERM)
        _wait(lambda: _server_pid(folder) is None, f"the server (process {pid}) did not stop in time")
    for name in nodes:
        stop_agent(folder, name)
    _wait(lambda: not any(agent_pid(folder, n) for n in nodes), "some agents did not stop in time")
    nodes += end_nodes(folder.root / "ray")
    done = {"server": pid, "agents": nodes, **({"standbys": waiting} if waiting else {})}
    standbys = f", {counted(len(waiting), 'standby')}" if waiting else ""
    print_done(done, f"ended the server{standbys} and {counted(len(nodes), 'agent')}", as_json=json)


def _server_pid(folder: "DataFolder") -> int | None:
    """Return the process of the server that leads; a killed one has left its pid, which any process may have by now."""
    from penstock.client.proof import holds_lock

    try:
        pid = int(msgspec.json.decode(folder.server_info.read_bytes())["pid"])
    except (OSError, ValueError, TypeError, KeyError, msgspec.DecodeError):
        return None
    return pid if holds_lock(pid, folder.server_lock) else None


def _wait(done: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + STOP_WAIT_S
    with waiting("stopping; running jobs get their grace"):
        while not done():
            if time.monotonic() > deadline:
                raise PenstockError(failure)
            time.sleep(0.05)
