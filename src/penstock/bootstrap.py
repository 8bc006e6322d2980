"""Parts of a server made before it: its options, the machine's clocks, its nodes, its log."""

import asyncio
import contextlib
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import msgspec

from penstock.control.joining import Joining
from penstock.control.service import ControlService
from penstock.core.config.cluster import ClusterFile
from penstock.core.config.nodes import VirtualNode
from penstock.core.messages.orders import Addressed, Order
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.errors import InvalidInput, StoreError
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.resources import Device
from penstock.devices.host import host_resources
from penstock.devices.installed import discovered
from penstock.devices.inventory import in_order
from penstock.devices.simulated import simulated
from penstock.engines.agent.joined import SERVERS_MAX, ServerAddress
from penstock.engines.agent.server_side import AgentLinks
from penstock.engines.local.launch import living
from penstock.engines.local.nodes import specs, this_machine
from penstock.engines.processes.outputs import bound_output
from penstock.engines.processes.paths import DataFolder
from penstock.engines.slurm.pilot.settings import PilotSettings
from penstock.ports import Clock, Engine, EngineEvents
from penstock.privatefiles import write_whole
from penstock.server.http.transport import LOOPBACK, Transport, is_unspecified, names_of_server, transport_of
from penstock.starts import whole
from penstock.store.address import Address, Store, open_store
from penstock.store.succession import kept_address, refuse_other

if TYPE_CHECKING:
    from penstock.engines.kubernetes.api.credentials import Access
    from penstock.engines.slurm.reading import Begun

log = logging.getLogger(__name__)

STORE_PAUSE_S = 0.5
FAULT_EXIT_CODE = 70
LOG_CHECK_S = 1.0
LOG_MAX_BYTES = 64 * 2**20
"""Of the server's own log: the newest part is kept."""


_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FieldsFormatter(logging.Formatter):
    """Writes a record's fields behind its message, as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        return super().format(record) + (f" ({told})" if told else "")


class RealClock:
    """The machine's clocks."""

    def unix_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class RayOptions(msgspec.Struct, frozen=True):
    address: str = ""
    """Of the head; empty: a cluster of this machine alone, started where it does not live."""
    share_milli: int = 1000
    """What is held of each node."""
    shared: str = ""
    """Folder for jobs that all nodes see; empty: each has its own."""
    idle_release_s: float = 0.0
    """Idle nodes are given back to Ray's autoscaler after it; 0: never."""


class ServeOptions(msgspec.Struct, frozen=True):
    data: Path
    transport: Transport = Transport()
    cluster_file: Path | None = None
    limits_file: Path | None = None
    store_file: Path | None = None
    """Holds the address of the log (or `sqlite`), and is removed once read; None: as before."""
    switch_store: bool = False
    """The folder's present log is left behind for the one of `store_file`."""
    store_wait_s: float = 0.0
    """Time to wait for an unreachable database."""
    agents: ServerAddress = ServerAddress("127.0.0.1", 0)
    """Where agents are listened for; port 0: a free one, the same as last time where it is."""
    respawn_agents: bool = True
    check_invariants: bool = False
    kubernetes: bool = False
    """Pods of a Kubernetes cluster are the jobs; this machine is no node then."""
    kubeconfigs: tuple[Path, ...] = ()
    """Read as one; none: the service account of the pod that the server runs in."""
    context: str = ""
    queue_config: str = ""
    """ConfigMap of the server's namespace that declares queues; empty: none."""
    shadow: bool = False
    """Other schedulers decide about the cluster: it is only watched."""
    slurm: bool = False
    """Jobs of a Slurm cluster are the jobs; this machine is no node then."""
    passing: bool = False
    """Each job becomes one of Slurm's."""
    shared: Path | None = None
    """Holds the folders of jobs, where nodes of other machines see it under the same path; None: the data folder."""
    pilot: PilotSettings | None = None
    """Slurm is asked for nodes, and jobs run on them."""
    refresh_s: float = 30.0
    """Time between two questions to Slurm for all jobs."""
    ray: RayOptions | None = None
    """A Ray cluster has the nodes; this machine is one only where it belongs to that cluster."""
    history_days: int = 7
    """How far back jobs of Slurm's accounts are read into an empty log."""


def options_of(raw: Mapping[str, Any]) -> ServeOptions:
    """Return the options as the command line hands them to the server; paths are absolute from here on."""
    return ServeOptions(
        data=whole(raw["data"]),
        transport=transport_of(raw),
        cluster_file=_place(raw, "cluster_file"),
        limits_file=_place(raw, "limits_file"),
        store_file=_place(raw, "store_file"),
        store_wait_s=raw.get("store_wait_s", 0.0),
        switch_store=raw.get("switch_store", False),
        agents=listened_at(raw.get("listen_agents", "")),
        respawn_agents=raw.get("respawn_agents", True),
        check_invariants=raw.get("check_invariants", False),
        kubernetes=raw.get("kubernetes", False),
        kubeconfigs=tuple(map(whole, raw.get("kubeconfigs") or ())),
        context=raw.get("context", ""),
        queue_config=raw.get("queue_config", ""),
        shadow=raw.get("shadow", False),
        slurm=raw.get("slurm", False),
        passing=raw.get("passing", False),
        pilot=msgspec.convert(raw["pilot"], PilotSettings) if raw.get("pilot") is not None else None,
        shared=_place(raw, "shared"),
        refresh_s=raw.get("refresh_s", 30.0),
        ray=msgspec.convert(raw["ray"], RayOptions) if raw.get("ray") else None,
        history_days=raw.get("history_days", 7),
    )


def listened_at(text: str) -> ServerAddress:
    """Return where agents are listened for, as `ADDRESS` or `ADDRESS:PORT` says. Raises: InvalidInput."""
    return ServerAddress.parsed(text or "127.0.0.1", 0)


async def begin_to_listen(
    links: AgentLinks, options: ServeOptions, data: DataFolder, events: EngineEvents, joining: Joining
) -> int:
    """Listen for agents, on this loop, and return the port.

    Where no port is named, that of the last time is taken again if it is free: nodes of other machines know it.

    Raises: OSError when the named one cannot be taken.
    """
    joining.records.load()
    host, port = options.agents.host, options.agents.port
    last = 0
    with contextlib.suppress(OSError, ValueError):
        last = int(data.agents_port.read_text(encoding="ascii")) % 2**16
    try:
        taken = await links.start(host, events, port or last)
    except OSError:
        if port or not last:
            raise
        taken = await links.start(host, events)
    write_whole(data.agents_port, str(taken))
    joining.addresses = _addresses(host, taken, options.transport)
    return taken


def _addresses(host: str, port: int, transport: Transport) -> list[ServerAddress]:
    every = is_unspecified(host)
    names = [*transport.names, *([] if every else [host])]
    if every:
        names += [name for name in names_of_server(Transport(host=host)) if name not in ("localhost", *LOOPBACK)]
    return [ServerAddress(name, port) for name in dict.fromkeys(names)][:SERVERS_MAX]


def _place(raw: Mapping[str, Any], name: str) -> Path | None:
    return whole(raw[name]) if raw.get(name) else None


def node_specs(declared: ClusterFile | None, data: DataFolder) -> list[NodeSpec]:
    """Return the nodes to run here: those declared, or this machine with its real devices."""
    nodes = declared.nodes if declared and declared.nodes else (this_machine(),)
    own = discovered()
    log.info("devices", extra={"note": own.note})
    former = living(data, nodes[0].name) or ()
    if any(device.simulated for device in former):
        former = ()
    return specs(nodes, host_resources(data.root), in_order(former, own.devices), simulated_of(nodes))


def simulated_of(nodes: Sequence[VirtualNode]) -> list[tuple[Device, ...]]:
    """Return the simulated devices of each node, as they are declared."""
    return [
        simulated(
            n.simulated_count,
            n.simulated_model,
            n.simulated_memory_bytes,
            mig=n.simulated_mig,
            mig_mode=n.simulated_mig_mode,
            links=n.simulated_links,
            isolation=n.simulated_isolation,
            power_limit_mw=n.simulated_power_limit_mw,
        )
        for n in nodes
    ]


class Engines:
    """Several engines as one: each passes on the orders to its own nodes, and drops the others."""

    def __init__(self, *engines: Engine) -> None:
        self._engines = list(engines)

    def add(self, engine: Engine) -> None:
        self._engines.append(engine)

    def send(self, orders: Sequence[Addressed]) -> None:
        for engine in self._engines:
            engine.send(orders)


def access_of(options: ServeOptions) -> "Access | None":
    """Return how the Kubernetes cluster is reached; None where there is none.

    Raises: BadCredentials, or InvalidInput where aiohttp is not installed.
    """
    if not options.kubernetes:
        return None
    if importlib.util.find_spec("aiohttp") is None:
        raise InvalidInput("--engine kubernetes needs aiohttp", hint="pip install 'penstock[kubernetes]'")
    from penstock.engines.kubernetes.api.credentials import from_kubeconfigs, in_cluster

    return from_kubeconfigs(options.kubeconfigs, options.context) if options.kubeconfigs else in_cluster()


def slurm_begun(
    options: ServeOptions, store: Store | None, clock: Clock, config: ClusterConfig | None, name: str
) -> "Begun | None":
    """Return how a server beside Slurm begins, with the history in its log; None for any other server.

    Args:
        store: None for a standby, which writes none.
        config: put in force where the log is empty; None: what it has.
    Raises: as `control.slurm_begin.begin`.
    """
    if not options.slurm or not options.shadow:
        return None
    from penstock.control.slurm_begin import begin
    from penstock.engines.slurm.reading import NOTHING_READ

    if store is None:
        return NOTHING_READ
    return begin(store, clock, config, name=name, history_days=options.history_days)


class Following(Engine, Protocol):
    """An engine that follows a cluster."""

    def connected(self) -> set[NodeName]:
        """Return the nodes that the server has taken in. Any thread."""
        ...


def following(
    options: ServeOptions,
    access: "Access | None",
    begun: "Begun | None",
    service: ControlService,
    prepare: Callable[[Order], Order],
    joining: Joining,
    started: Callable[[Following, Callable[[JobId], str] | None], None],
) -> Coroutine[Any, Any, None] | None:
    """Return what follows the cluster that the server has, until cancelled; None where it has none.

    Args:
        prepare: returns an order as its node needs it.
        joining: lets nodes in that an engine brings.
        started: gets the engine, which takes orders from then on, and what gives the words of the cluster's own
            scheduler about a job that waits, or '' (any thread); None where there is no other scheduler.
    """
    if begun is not None:
        from penstock.control.slurm import follow_slurm

        return follow_slurm(begun, service, lambda engine: started(engine, engine.said_of), options.refresh_s)
    if options.ray is not None:
        return _following_ray(options, options.ray, service, joining)
    if options.passing:
        from penstock.control.slurm_passing import pass_on

        shared = options.shared or options.data
        return pass_on(shared, service, prepare, lambda engine: started(engine, engine.said_of), options.refresh_s)
    if options.pilot is not None:
        from penstock.control.slurm_pilot import fly_pilot

        data = options.data.resolve()
        return fly_pilot(options.pilot, service, joining, data, lambda engine: started(engine, engine.said_of))
    if access is None:
        return None
    from penstock.control.pods import follow_cluster
    from penstock.engines.kubernetes.engine import KubernetesEngine
    from penstock.engines.kubernetes.shadow.engine import ShadowEngine

    def began(engine: KubernetesEngine | ShadowEngine) -> None:
        started(engine, engine.said_of if isinstance(engine, ShadowEngine) else None)

    return follow_cluster(access, service, began, options.queue_config, shadow=options.shadow)


def _following_ray(
    options: ServeOptions, ray: RayOptions, service: ControlService, joining: Joining
) -> Coroutine[Any, Any, None]:
    """Raises: InvalidInput where Ray is not installed."""
    from penstock.control.ray import RayNodes, follow_ray
    from penstock.engines.ray.driver_options import DriverOptions

    if importlib.util.find_spec("ray") is None:
        raise InvalidInput("--engine ray needs Ray, of the version of the cluster", hint="pip install 'penstock[ray]'")
    folder = options.data / "ray"
    driver = DriverOptions.of(folder, ray.address, ray.shared)
    nodes = RayNodes(service, joining, RealClock(), listens_locally=options.agents.host in LOOPBACK)
    return follow_ray(nodes, driver, folder, share_milli=ray.share_milli, idle_s=ray.idle_release_s)


def measured(declared: ClusterFile | None, nodes: Sequence[NodeSpec]) -> list[str]:
    """Return the names of the nodes whose storage is measured, not declared."""
    fixed = {node.name for node in declared.nodes if node.storage_bytes} if declared else set()
    return [spec.name for spec in nodes if spec.name not in fixed]


def read_once(path: Path | None) -> str:
    """Return the text of a file, '' without one, and remove it: it may hold a password."""
    if path is None:
        return ""
    with contextlib.suppress(FileNotFoundError):
        text = path.read_text(encoding="utf-8").strip()
        path.unlink()
        return text
    return ""


def opened_store(address: Address, data: DataFolder, wait_s: float, *, switch: bool = False) -> Store:
    """Open the log of a data folder.

    Args:
        switch: whichever log was the folder's before.
    Raises: StoreError; InvalidInput when the folder's log would be left behind.
    """
    if not switch:
        refuse_other(kept_address(data.log, data.store_address), address)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return open_store(address)
        except StoreError as error:
            if time.monotonic() > deadline:
                raise
            log.warning("the log cannot be opened yet: %s", error.message)
            time.sleep(STORE_PAUSE_S)


async def bounded(path: Path) -> None:
    """Keep the newest part of a log, until cancelled."""
    while True:
        bound_output(path, LOG_MAX_BYTES)
        await asyncio.sleep(LOG_CHECK_S)


def say_why(keeper: "asyncio.Task[None]") -> None:
    """Log the fault of a periodic service that ended."""
    if not keeper.cancelled() and (error := keeper.exception()) is not None:
        log.critical("a background task has ended", exc_info=error)


def die(error: BaseException) -> NoReturn:
    """End the process at once, for a fault of the control loop: a restart folds the log, and nothing is half done."""
    print(f"penstock: the control loop stopped: {error!r}", file=sys.stderr, flush=True)
    os._exit(FAULT_EXIT_CODE)
