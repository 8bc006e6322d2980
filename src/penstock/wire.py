"""The one place that picks the real clock, store, engine and devices, and runs the server with them."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import uvloop

gc.disable()  # while modules load: a fifth of the start would be collections that find nothing

from penstock import starts
from penstock.bootstrap import (
    Engines,
    FieldsFormatter,
    Following,
    RealClock,
    ServeOptions,
    access_of,
    begin_to_listen,
    bounded,
    die,
    following,
    measured,
    node_specs,
    opened_store,
    options_of,
    read_once,
    say_why,
    slurm_begun,
)
from penstock.cli.output import EXIT_CODES
from penstock.control import gc as collector
from penstock.control.arriving import places_in
from penstock.control.config_files import read_cluster_file
from penstock.control.controller import Controller
from penstock.control.joining import Joining
from penstock.control.metrics import MemoryMetrics
from penstock.control.service import ControlService
from penstock.core.config.cluster import ClusterFile
from penstock.core.messages.orders import Order
from penstock.core.model.errors import PenstockError, StaleEpoch
from penstock.core.model.events import Record
from penstock.core.model.ids import JobId, NodeName
from penstock.devices.installed import discovered, present
from penstock.diskroom import why_full
from penstock.engines.agent import tls
from penstock.engines.agent.server_side import AgentLinks
from penstock.engines.joined.outputs import ArrivingOutputs
from penstock.engines.joined.records import JoinedNodes
from penstock.engines.local.admission import Admission, CheckedEvents
from penstock.engines.local.agents import LocalAgents
from penstock.engines.local.new_devices import NewDevices
from penstock.engines.local.server_lock import alone, hold_server_lock, waiting
from penstock.engines.processes.accounts import accounted, may_switch, one_for_all
from penstock.engines.processes.outputs import LocalOutputs
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.trust import check_data, close_secrets
from penstock.extensions import installed_policies
from penstock.loopthread import LoopThread
from penstock.privatefiles import make_folder, passed_by_accounts, write_whole
from penstock.security.redaction import Redactor, unsealed
from penstock.security.vault import Vault
from penstock.server.app import create_app
from penstock.server.backend import Backend, deliver_on
from penstock.server.http.auth import LocalTokens
from penstock.server.http.limits import Limits, read_limits
from penstock.server.http.listener import Listener
from penstock.server.http.pools import ASIDE
from penstock.server.http.sessions import Sessions
from penstock.server.http.transport import advertised, checked, listen, listen_in, local_host, names_of_server
from penstock.server.routes.outputs import CensoredOutputs
from penstock.server.services.access_notes import AccessKeeper
from penstock.server.services.autoscaler import Autoscaler
from penstock.server.services.billing import BillingService
from penstock.server.services.certificates import CertificateService
from penstock.server.services.estimates import EstimateService
from penstock.server.services.folder_snapshots import SnapshotService
from penstock.server.services.history import HistoryService
from penstock.server.services.notifying.service import NotificationService
from penstock.server.services.quota_alerts import QuotaAlertService
from penstock.server.services.signin.service import SignInService
from penstock.server.services.whatif import WhatIfService
from penstock.store.address import Address, address_of, open_seat, remember
from penstock.store.folder_snapshots import FolderSnapshots
from penstock.web.pages import WebPages

gc.enable()
log = logging.getLogger(__name__)

RETURN_WAIT_S = 600.0
"""How long a server that led, and begins anew, waits for its database."""
END_WAIT_S = 2.0
"""How long an ending server waits for busy threads: a bill over years, a provider's answer."""
SWITCH_S = 0.0005
"""A thread that computes gives way to the loops after this long: each wait of theirs would cost five times as much."""
GC_THRESHOLDS = (50_000, 20, 100)
"""The state is many long-lived frozen values and no cycles: looking through all of them often finds nothing."""


def serve(options: ServeOptions) -> None:
    """Run a server until SIGTERM or SIGINT.

    Raises: AlreadyRunning, InvalidInput, NotPrivate or StoreError before anything is served.
    """
    checked(options.transport)
    make_folder(options.data, passed_by_accounts())
    data = DataFolder(options.data.resolve())
    check_data(data)
    close_secrets(data)
    kept, kept_limits = data.root / "cluster.yaml", data.root / "limits.yaml"
    declared = read_cluster_file(options.cluster_file or kept) if options.cluster_file or kept.exists() else None
    limits_file = options.limits_file or kept_limits
    limits = read_limits(limits_file) if options.limits_file or kept_limits.exists() else Limits()
    address = address_of(data.log, read_once(options.store_file), data.store_address)
    lock = hold_server_lock(data, shared=bool(address.url))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL if options.slurm else signal.SIG_IGN)  # Slurm's commands: how they end
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_S)
    try:
        with alone(data):
            running = _Running(options, data, declared, limits, address)
            remember(address, data.store_address)
        for given, place in ((options.cluster_file, kept), (options.limits_file, kept_limits)):
            if given:  # it was taken over: a restart without it means the same
                write_whole(place, given.read_bytes())
        uvloop.run(running.run())
    finally:
        os.close(lock)


class _Running:
    """One server's parts, and how they are joined."""

    def __init__(
        self, options: ServeOptions, data: DataFolder, declared: ClusterFile | None, limits: Limits, address: Address
    ) -> None:
        self._options, self._data, self._limits = options, data, limits
        self._jobs_data = DataFolder(options.shared) if options.shared else data
        self._clock, self._metrics = RealClock(), MemoryMetrics()
        self._listener = listen(options.transport)
        self._port = int(self._listener.getsockname()[1])
        self._unix = listen_in(data.root)
        self._store = opened_store(address, data, options.store_wait_s, switch=options.switch_store)
        self._cluster_access = access_of(options)
        local = self._cluster_access is None and not options.slurm and options.ray is None
        self._nodes = node_specs(declared, data) if local else []
        joined = JoinedNodes(data.joined, self._clock.unix_ms)
        self._admission = Admission(data, self._nodes, measured(declared, self._nodes), joined)
        own = self._admission.is_own
        self._joining = Joining(data, self._clock, joined, own, lambda: self._service, lambda: self._engine)
        name = f"{socket.gethostname()}:{os.getpid()}"
        self._seat = open_seat(address, name=name, at=advertised(options.transport, self._port))
        self._controller = Controller(
            self._store, self._clock, name=name, check_invariants=options.check_invariants, shadow=options.shadow
        )
        self._no_longer_waits: Callable[[], None] = lambda: None
        leads = self._seat is None or self._seat.take()
        config = declared.config if declared and options.cluster_file else None
        self._slurm = slurm_begun(options, self._store if leads else None, self._clock, config, name)
        if leads:
            self._controller.open(config)
        else:
            self._controller.follow()
        self._local_agents = LocalAgents(data, self._nodes, respawn=options.respawn_agents)
        self._security = CertificateService(
            data.certificates,
            self._local_agents.certificates,
            options.transport,
            self._clock,
            lambda: tls.server_context(data.trusted, data.certificates / "server.pem"),
        )
        self._vault = Vault(data.secret_keys)
        self._snapshots = FolderSnapshots(data.folder_snapshots, self._clock.unix_ms, quota_bytes=limits.folder_bytes)
        self._folders = SnapshotService(self._snapshots, lambda: self._controller.state)
        self._censor = Redactor(lambda: self._controller.state, self._vault)
        self._arriving = ArrivingOutputs(data, places_in(self._store, lambda: self._controller.state), joined.declares)
        self._engine = AgentLinks(
            self._security.agents.context,
            self._prepared,
            self._local_agents.replace_other,
            self._folders.fetch,
            self._joining,
            self._arriving.store,
        )
        self._engines = Engines(self._engine)
        self._pods: Following | None = None
        self._agents = LoopThread("penstock-agents")
        self._security.on_change = self._engine.hang_up
        self._tokens = LocalTokens(data.root / "tokens.json")
        self._tokens.ensure_local(data.user_token)
        self._name = name

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._agents.start()
        self._aside = ThreadPoolExecutor(thread_name_prefix=ASIDE)
        self._loop.set_default_executor(self._aside)
        self._service = ControlService(
            self._controller,
            self._store,
            self._engines,
            self._clock,
            deliver=deliver_on(self._loop),
            deliver_reports=deliver_on(self._agents.loop),
            on_records=self._publish,
            on_fault=self._on_fault,
            policies=installed_policies(),
            seat=self._seat,
            on_lead=self._on_lead,
            metrics=self._metrics,
        )
        self._backend = Backend(
            self._service,
            self._store,
            self._clock,
            self._tokens,
            CensoredOutputs(LocalOutputs(self._jobs_data), self._censor, self._store),
            self._connected,
            self._name,
            self._limits,
            self._vault,
            self._metrics,
            Sessions.kept(self._data.root / "session.key"),
            self._snapshots if self._cluster_access is None and not self._options.passing else None,
        )
        self._backend.why_full = partial(why_full, self._data.root)
        self._admission.on_more = lambda node, text: self._backend.access.note("node_claimed_more", node, text)
        self._security.on_replaced = self._backend.access.replaced
        self._backend.durable_seq, self._backend.other_agents = self._controller.state.seq, self._engine.others
        self._foresight, self._billing = EstimateService(self._backend), BillingService(self._backend, self._store)
        self._history = HistoryService(self._backend, self._store)
        link = advertised(self._options.transport, self._port)
        self._notifications = NotificationService(self._backend, self._store, link)
        self._lab, self._signins = WhatIfService(self._backend), SignInService(self._backend)
        self._access = AccessKeeper(self._backend)
        collector.settle()
        self._keepers: list[asyncio.Task[None]] = []
        for keeper in (self._security.keep(), bounded(self._data.root / "server.log"), self._history.keep()):
            self._keep(keeper)
        with contextlib.ExitStack() as said:
            if leads := self._controller.leads:
                self._no_longer_waits = lambda: None
            else:
                self._no_longer_waits = said.enter_context(waiting(self._data, self._said()))
            self._service.start()
            if leads:
                await self._lead()
            try:
                await self._http([self._listener, *([self._unix[0]] if self._unix else [])])
            finally:
                await self._end()
        await self._leave()

    async def _leave(self) -> None:
        """Give up running work of threads, after a moment: all durable data is on disk by now."""
        self._aside.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + END_WAIT_S
        while any(thread.name.startswith(ASIDE) for thread in threading.enumerate()):
            if time.monotonic() > deadline:
                log.warning("unfinished work is abandoned")
                os._exit(0)
            await asyncio.sleep(0.05)

    async def _end(self) -> None:
        self._loop.set_default_executor(ThreadPoolExecutor(1))  # for the end, however busy the others are
        for keeper in self._keepers:
            keeper.cancel()
        self._foresight.close()
        self._notifications.close()
        self._lab.close()
        self._signins.close()
        self._backend.pools.close()
        self._access.say_last()
        self._engine.stop()
        await asyncio.to_thread(self._service.stop)
        await asyncio.to_thread(self._agents.stop)
        if self._is_announced():
            self._data.server_info.unlink(missing_ok=True)
        if self._unix is not None:
            self._unix[1].unlink(missing_ok=True)
        if self._seat is not None:
            await asyncio.to_thread(self._seat.leave)
        self._store.close()

    def _keep(self, keeper: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background until the end."""
        task = asyncio.create_task(keeper)
        task.add_done_callback(say_why)
        self._keepers.append(task)

    def _on_lead(self) -> None:
        asyncio.run_coroutine_threadsafe(self._lead(), self._loop).add_done_callback(self._led)

    def _led(self, beginning: "Future[None]") -> None:
        if not beginning.cancelled() and (error := beginning.exception()) is not None:
            self._on_fault(error)  # it would commit, and hear no agent

    async def _lead(self) -> None:
        """Start the services of a leader: serve agents, announce the address, run periodic work."""
        refused = partial(self._backend.access.note, "node_refused")
        events = CheckedEvents(self._service, self._admission, self._censor.report, refused)
        self._backend.joining, self._backend.arriving = self._joining, self._arriving
        begun = begin_to_listen(self._engine, self._options, self._data, events, self._joining)
        agent_port = await asyncio.wrap_future(self._agents.run(begun))
        self._follow_cluster()
        self._announce(agent_port)
        self._no_longer_waits()
        for keeper in (
            self._local_agents.keep(),
            self._new_devices().keep(),
            self._foresight.keep(),
            self._billing.keep(),
            *(() if self._options.shadow else (Autoscaler(self._backend).keep(),)),
            QuotaAlertService(self._backend).keep(),
            self._notifications.keep(),
            self._backend.standing.keep(),
            self._access.keep(),
            self._folders.keep(),
        ):
            self._keep(keeper)

    def _new_devices(self) -> NewDevices:
        def said(node: NodeName) -> int:
            now = self._service.figures.of(node, self._clock.unix_ms())
            return now.new_devices if now is not None else 0

        return NewDevices(self._local_agents, self._admission, said, present, discovered, time.monotonic)

    def _follow_cluster(self) -> None:
        """Start the engine of a cluster, where there is one, on the agents' loop: answers to nodes are given there."""
        if self._options.passing:
            from penstock.engines.slurm.passing.options import refused_job

            self._backend.not_kept = refused_job

        def started(engine: Following, said_of: Callable[[JobId], str] | None) -> None:
            self._pods = engine
            if said_of is not None:
                self._backend.said_elsewhere = said_of
            self._engines.add(engine)

        engine = (self._options, self._cluster_access, self._slurm)
        follows = following(*engine, self._service, self._prepared, self._joining, started)
        if follows is not None:
            self._agents.run(follows).add_done_callback(self._led)

    def _connected(self) -> set[NodeName]:
        return self._engine.connected() | (self._pods.connected() if self._pods is not None else set())

    async def _http(self, listeners: list[socket.socket]) -> None:
        security = self._security.api.context if self._security.api else None
        transport = self._options.transport
        services = (self._foresight, self._billing, self._history, self._notifications, self._lab, self._signins)
        app = create_app(self._backend, *services)
        pages = WebPages(app, None if transport.secure else names_of_server(transport))
        server = Listener(pages, security, self._limits.bounds())
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, server.ask_to_end)
        ending = asyncio.create_task(self._watch_end(server))
        await server.serve(sockets=listeners)
        ending.cancel()

    async def _watch_end(self, server: Listener) -> None:
        """Let streams end by themselves once the server is asked to end."""
        while not server.should_exit:
            await asyncio.sleep(0.1)
        self._backend.closing.set()
        self._backend.committed(())

    def _said(self) -> dict[str, object]:
        """Return the connection data of local clients."""
        told = self._security.announced(self._port)
        return told | {"socket": self._unix[1].name} if self._unix else told

    def _announce(self, agent_port: int) -> None:
        info = {
            **self._said(),
            "agent_host": local_host(self._options.agents.host),
            "agent_port": agent_port,
            "pid": os.getpid(),
            "nodes": [spec.name for spec in self._nodes],
        }
        if self._options.shadow:
            info["shadow"] = True
        if note := one_for_all(self._controller.state.config, root=may_switch()):
            log.warning(note)
            info["note"] = note
        write_whole(self._data.server_info, msgspec.json.encode(info))

    def _is_announced(self) -> bool:
        """Return whether the folder names this server as the leader."""
        try:
            return bool(msgspec.json.decode(self._data.server_info.read_bytes())["pid"] == os.getpid())
        except (OSError, msgspec.DecodeError, KeyError):
            return False

    def _publish(self, records: tuple[Record, ...]) -> None:
        self._loop.call_soon_threadsafe(self._backend.committed, records)

    def _prepared(self, order: Order) -> Order:
        """Return an order as its node needs it. The agents' thread."""
        state = self._controller.state
        return unsealed(accounted(order, state, self._tokens.users, root=may_switch()), self._vault)

    def _on_fault(self, error: BaseException) -> None:
        """End the process; one that has lost the lead starts again as a standby."""
        if self._seat is None or not isinstance(error, StaleEpoch):
            die(error)
        print(
            f"penstock: another server leads now ({error.message}): waiting as its standby", file=sys.stderr, flush=True
        )
        again = msgspec.json.decode(sys.argv[1]) | {"port": self._port, "store_wait_s": RETURN_WAIT_S}
        for once in ("cluster_file", "limits_file", "store_file", "switch_store"):  # their contents are in the folder
            again.pop(once, None)
        starts.become("penstock.wire", msgspec.json.encode(again).decode())


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the server process: one argument, the options as JSON."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    handler = logging.StreamHandler()
    handler.setFormatter(FieldsFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    raw = msgspec.json.decode(given[0])
    try:
        options = options_of(raw)
        starts.settle()
        serve(options)
    except PenstockError as error:
        for problem in error.problems:
            print(f"  {problem.message} {problem.hint}", file=sys.stderr)
        hint = f"\n  hint: {error.hint}" if error.hint else ""
        print(f"penstock: {error.message}{hint}", f"  code: {error.code}", sep="\n", file=sys.stderr)  # for `up`
        sys.exit(EXIT_CODES.get(error.code, 1))


if __name__ == "__main__":
    main()
