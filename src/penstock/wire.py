"""The one place that picks the real clock, store, engine and devices, and runs the server with them."""

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import uvicorn
import uvloop

from penstock.control import collector
from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.declared import read_cluster_file
from penstock.control.service import ControlService, InboxFull, OnReply
from penstock.core.clusterfile import ClusterFile
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.lifecycle.reports import NodeReport
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.events import Record
from penstock.core.model.ids import Incarnation
from penstock.devices import discovery
from penstock.engines.local.launch import agent_pid, start_agent
from penstock.engines.local.link import LocalEngine, Session
from penstock.engines.local.nodes import specs, this_machine
from penstock.engines.local.outputs import LocalOutputs
from penstock.engines.local.paths import DataFolder
from penstock.extensions import installed_policies
from penstock.server.app import create_app
from penstock.server.auth import Tokens, ensure_agent_token, write_private
from penstock.server.backend import Backend, deliver_on
from penstock.server.foresight import Foresight
from penstock.server.scaler import Scaler
from penstock.store.sqlite import SqliteStore

log = logging.getLogger(__name__)

LOCK_WAIT_S = 3.0
AGENT_CHECK_S = 1.0
FAULT_EXIT_CODE = 70
GC_THRESHOLDS = (50_000, 20, 100)
"""The state is many long-lived frozen values and no cycles: looking through all of them often finds nothing."""


class RealClock:
    """The machine's clocks."""

    def unix_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class ServeOptions(msgspec.Struct, frozen=True):
    data: Path
    host: str = "127.0.0.1"
    port: int = 0
    cluster_file: Path | None = None
    respawn_agents: bool = True
    check_invariants: bool = False


class AlreadyRunning(PenstockError):
    code = "already_running"


def node_specs(declared: ClusterFile | None, data: DataFolder) -> list[NodeSpec]:
    """Return the nodes to run here: those declared, or this machine with its real devices."""
    nodes = declared.nodes if declared and declared.nodes else (this_machine(),)
    found = discovery.nvidia()
    log.info("devices", extra={"provider": found.provider, "note": found.note})
    fake = [
        discovery.simulated(
            n.simulated_count, n.simulated_model, n.simulated_memory_bytes, mig=n.simulated_mig, links=n.simulated_links
        )
        for n in nodes
    ]
    return specs(nodes, discovery.host_resources(data.root), found.devices, fake)


def hold_server_lock(data: DataFolder) -> int:
    """Hold the lock that proves a server's life, for as long as the process lives.

    Raises: AlreadyRunning when another server holds it.
    """
    descriptor = os.open(data.server_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise AlreadyRunning(f"another server runs on {data.root}", hint="penstock down ends it") from None
            time.sleep(0.02)


def serve(options: ServeOptions) -> None:
    """Run a server until SIGTERM or SIGINT.

    Raises: AlreadyRunning, InvalidInput or StoreError before anything is served.
    """
    options.data.mkdir(parents=True, exist_ok=True)
    data = DataFolder(options.data.resolve())
    kept = data.root / "cluster.yaml"
    declared = read_cluster_file(options.cluster_file or kept) if options.cluster_file or kept.exists() else None
    lock = hold_server_lock(data)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        running = _Running(options, data, declared)
        if options.cluster_file:  # it was taken over: a restart without it means the same cluster
            write_private(kept, options.cluster_file.read_text(encoding="utf-8"))
        uvloop.run(running.run())
    finally:
        os.close(lock)


class _Running:
    """One server's parts, and how they are joined."""

    def __init__(self, options: ServeOptions, data: DataFolder, declared: ClusterFile | None) -> None:
        self._options, self._data = options, data
        self._clock = RealClock()
        self._store = SqliteStore(data.log)
        self._nodes = node_specs(declared, data)
        name = f"{socket.gethostname()}:{os.getpid()}"
        self._controller = Controller(self._store, self._clock, name=name, check_invariants=options.check_invariants)
        self._controller.open(declared.config if declared else None)
        self._engine = LocalEngine(ensure_agent_token(data.agent_token), self._on_hello, self._on_report)
        self._tokens = Tokens(data.root / "tokens.json")
        self._tokens.ensure_local(data.user_token)
        self._name = name

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._service = ControlService(
            self._controller,
            self._store,
            self._engine,
            self._clock,
            deliver=deliver_on(self._loop),
            on_records=self._publish,
            on_fault=_die,
            policies=installed_policies(),
        )
        self._backend = Backend(
            self._service,
            self._store,
            self._clock,
            self._tokens,
            LocalOutputs(self._data),
            self._engine.connected,
            self._name,
        )
        self._backend.durable_seq = self._controller.state.seq
        self._foresight = Foresight(self._backend)
        agent_port = await self._engine.start("127.0.0.1")
        listener = _listen(self._options.host, self._options.port)
        collector.settle()
        self._service.start()
        self._announce(listener.getsockname()[1], agent_port)
        keepers = [asyncio.create_task(self._keep_agents()), asyncio.create_task(self._foresight.keep())]
        keepers.append(asyncio.create_task(Scaler(self._backend).keep()))
        try:
            await self._http(listener)
        finally:
            for keeper in keepers:
                keeper.cancel()
            self._foresight.close()
            self._engine.stop()
            await asyncio.to_thread(self._service.stop)
            self._data.server_info.unlink(missing_ok=True)
            self._store.close()

    async def _http(self, listener: socket.socket) -> None:
        config = uvicorn.Config(
            create_app(self._backend, self._foresight),
            log_level="warning",
            access_log=False,
            lifespan="off",
            http="httptools",
            timeout_graceful_shutdown=2,
            timeout_keep_alive=75,
        )
        server = _Server(config)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, server.ask_to_end)
        ending = asyncio.create_task(self._watch_end(server))
        await server.serve(sockets=[listener])
        ending.cancel()

    async def _watch_end(self, server: uvicorn.Server) -> None:
        """Let streams end by themselves once the server is asked to end."""
        while not server.should_exit:
            await asyncio.sleep(0.1)
        self._backend.closing.set()
        self._backend.committed(())

    def _announce(self, port: int, agent_port: int) -> None:
        info = {
            "host": self._options.host,
            "port": port,
            "agent_host": "127.0.0.1",
            "agent_port": agent_port,
            "pid": os.getpid(),
            "nodes": [spec.name for spec in self._nodes],
        }
        write_private(self._data.server_info, msgspec.json.encode(info).decode("ascii"))

    async def _keep_agents(self) -> None:
        """Start the nodes' agents, and start them again when they die, where that is wished."""
        first = True
        while first or self._options.respawn_agents:
            for spec in self._nodes:
                if first or agent_pid(self._data, spec.name) is None:
                    start_agent(self._data, spec)
            first = False
            await asyncio.sleep(AGENT_CHECK_S)

    def _publish(self, records: tuple[Record, ...]) -> None:
        self._loop.call_soon_threadsafe(self._backend.committed, records)

    def _on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: Session) -> None:
        def welcome(reply: msg.Reply) -> None:
            if isinstance(reply, msg.Welcome):
                session.welcome(reply.epoch, reply.lease_ms, reply.heartbeat_ms)
            else:
                session.close()

        self._ask(msg.Hello(spec, incarnation), welcome, session)

    def _on_report(self, report: NodeReport, session: Session) -> None:
        def taken(reply: msg.Reply) -> None:
            if isinstance(reply, msg.ReportTaken):
                session.taken(reply.seq, reply.orders, accepted=reply.accepted)

        self._ask(report, taken, session)

    def _ask(self, request: msg.Request, on_reply: OnReply, session: Session) -> None:
        try:
            self._service.ask(request, on_reply)
        except InboxFull:
            session.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which raise the signal again at the end and cut off ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def ask_to_end(self) -> None:
        self.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY by it
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InvalidInput(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="--port 0 takes a free one"
        ) from error
    listener.listen(1024)
    return listener


def _die(error: BaseException) -> None:
    """A fault of the control loop ends the process at once: a restart folds the log, and nothing is half done."""
    print(f"penstock: the control loop stopped: {error!r}", file=sys.stderr, flush=True)
    os._exit(FAULT_EXIT_CODE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the server process: one argument, the options as JSON."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    raw = msgspec.json.decode(given[0])
    cluster = Path(raw["cluster_file"]) if raw.get("cluster_file") else None
    options = ServeOptions(
        data=Path(raw["data"]),
        host=raw.get("host", "127.0.0.1"),
        port=raw.get("port", 0),
        cluster_file=cluster,
        respawn_agents=raw.get("respawn_agents", True),
        check_invariants=raw.get("check_invariants", False),
    )
    try:
        serve(options)
    except PenstockError as error:
        for problem in error.problems:
            print(f"  {problem.message} {problem.hint}", file=sys.stderr)
        print(f"penstock: {error.message}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
