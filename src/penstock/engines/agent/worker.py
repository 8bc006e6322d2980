"""The agent's worker: state, processes and the connection to the server, in one loop of one thread.

It may be killed at any moment: its state is in the journal or can be sent again.
"""

import contextlib
import logging
import selectors
import signal
import socket
import ssl
import time
from collections.abc import Callable

import msgspec

from penstock import __version__
from penstock.core.messages.orders import ChangeBatch, CheckNode, DivideDevice, LimitPower
from penstock.core.messages.reports import SHUT_DOWN, NodeCheck, ProgressSeen, ReplicaKey
from penstock.core.model.ids import Incarnation
from penstock.core.model.jobs import ExitInfo
from penstock.engines.agent import protocol, tls
from penstock.engines.agent import state_machine as br
from penstock.engines.agent.config import AgentConfig as AgentConfig
from penstock.engines.agent.devices import NodeDevices
from penstock.engines.agent.disk import DiskWatch
from penstock.engines.agent.failures import PAUSE_S, FailureLog
from penstock.engines.agent.journal import ExitBook, Journal, JournalReplica
from penstock.engines.agent.lease import AnnouncedServer, LeaseCell, boot_ms, server_is_gone
from penstock.engines.agent.parts import NodeParts
from penstock.engines.agent.replicas import SLICE_S, Replicas
from penstock.engines.agent.report_reader import ReportReader
from penstock.engines.processes.batches import tell_batch
from penstock.engines.processes.containment import choose
from penstock.engines.processes.cpu_topology import cpu_sets_of
from penstock.engines.processes.inspector import Inspector
from penstock.engines.processes.outputs import bound_output, last_error

log = logging.getLogger(__name__)

RECONNECT_MS = 200
POLL_MS = 5
IDLE_MS = 200
PREPARING_MS = 20
"""Between two looks whether the parts of devices of a replica are made, which takes seconds on real ones."""
OWN_LOG_MAX_BYTES = 16 * 2**20
SHUTDOWN_GRACE_MS = 3_000
GOODBYE_S = 1.0
SLOW_TURN_MS = 1_000


class Worker:
    """One life of the worker. `run` returns when asked to end, or when the guardian has died."""

    def __init__(self, config: AgentConfig, incarnation: Incarnation) -> None:
        self._config, self._incarnation = config, incarnation
        self._data = config.folder
        folder = self._data.node(config.spec.name)
        self._journal = Journal(folder / "journal")
        self._containment = choose(config.box_parent)
        self._cell = LeaseCell(folder / "lease")
        self._reports = ReportReader(self._data, self._on_progress)
        self._parts = NodeParts(folder, config.spec.devices, self._journal)
        self._parts.prepare_in(self._data, self._containment, self._wake)
        self._replicas = Replicas(
            config.spec.name,
            self._data,
            self._containment,
            {d.index: d for d in config.spec.devices},
            self._journal,
            ExitBook(folder / "exits"),
            self._gone,
            cpu_sets_of(config.spec),
            self._parts,
        )
        now_ms = boot_ms()
        self._state = br.AgentState(
            config.spec.name,
            incarnation,
            [self._entry(known) for known in self._journal.known.values()],
            lease_until_ms=self._cell.get(),
            first_report=now_ms * 1000,
        )
        self._replicas.lease_is_over = lambda: self._state.lease_over(boot_ms())
        self._failures, self._disk = FailureLog(), DiskWatch(folder, self._journal)
        for known in self._journal.known.values():
            if known.exit is None:
                self._adopt(known)
        for entry in self._state.living():
            if entry.state == "running" and self._replicas.freezer.frozen(entry.key):
                entry.state = "frozen"
            elif entry.state == "stopping":
                self._replicas.freezer.thaw(entry.key)
        self._selector = selectors.DefaultSelector()
        self._socket: socket.socket | None = None
        self._deframer = protocol.Deframer()
        self._channel: tls.Channel | None = None
        self._out = bytearray()
        """Encrypted, not yet taken by the socket."""
        self._inspector = Inspector()
        self._devices = NodeDevices(config.spec, folder, self._replicas, self._selector)
        self._replicas.measured = self._devices.measured
        self._connect_at_ms = 0
        self._exits_left = True
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        self._server = self._found_server()
        self._ending = False
        self._last_ms = now_ms

    def _found_server(self) -> AnnouncedServer:
        if not self._data.link.exists():
            return AnnouncedServer(self._data)
        from penstock.engines.agent.apart import DistantServer

        server = DistantServer(self._data, self._config.spec.name, self._wake, self._state.entries)
        self._replicas.sent_later = server.sender.sends
        return server

    def _wake(self) -> None:
        """Let the loop look for news soon. Any thread."""
        with contextlib.suppress(OSError):  # full: it is awake
            self._wake_write.send(b"\0")

    def _entry(self, known: JournalReplica) -> br.ReplicaEntry:
        entry = br.ReplicaEntry(known.key, "running", known.pid, problem=known.problem)
        if known.stopping:
            entry.state, entry.stop_sent, entry.kill_at_ms = "stopping", True, known.kill_at_ms
        if known.exit is not None:
            entry.state, entry.exit = "exited", br.ended(entry, known.exit)
        return entry

    def _adopt(self, known: JournalReplica) -> None:
        self._reports.follow(known.key)
        self._replicas.adopt(known)

    def run(self, still_wanted: Callable[[], bool]) -> None:
        """Serve until SIGTERM, or until `still_wanted` says no."""
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD, signal.SIGTERM])  # blocked since before the fork
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._parts.look()
        while not (self._ending and not self._replicas.running and not self._parts.preparing):
            ready = self._selector.select(self._timeout_s())
            if not still_wanted():  # what started now would be a child of the next guardian, whose death takes its exit
                break
            for key, mask in ready:
                with self._failures.outlive("taking exits and messages"):
                    if key.fileobj is self._wake_read:
                        with contextlib.suppress(BlockingIOError):
                            self._wake_read.recv(4096)
                        self._exits_left = True
                    elif key.data is not self._devices:
                        self._on_socket(mask)
            begun_ms = boot_ms()
            with self._failures.outlive("a turn of the worker", pause_s=PAUSE_S):  # what is due remains due
                self._turn()
            if (took_ms := boot_ms() - begun_ms) > SLOW_TURN_MS:
                log.warning("a turn of the agent's loop took %d ms: heartbeats are late", took_ms)
        signal.set_wakeup_fd(-1)
        if self._ending:
            self._say_goodbye()
        self._devices.end()
        self._disconnect()

    def _say_goodbye(self) -> None:
        """Report that no process is left here, so that the server need not wait for the lease's end."""
        self._state.leaving = True
        self._state.report_all()
        report = self._state.next_report(boot_ms())
        if report is None or self._socket is None:
            return
        self._send(report)
        deadline = time.monotonic() + GOODBYE_S
        while self._unsent() and time.monotonic() < deadline:
            time.sleep(POLL_MS / 1000)
            self._flush()

    def _unsent(self) -> bool:
        return self._socket is not None and bool(self._out)

    def _on_term(self, *_: object) -> None:
        self._ending = True

    def _timeout_s(self) -> float:
        now_ms = boot_ms()
        if self._reports.busy or self._exits_left:
            return 0
        if self._replicas.needs_polling:
            return POLL_MS / 1000
        due_ms = self._state.due_ms(connected=self._socket is not None)
        idle_ms = PREPARING_MS if self._parts.preparing else IDLE_MS
        due_ms = now_ms + idle_ms if due_ms is None else min(due_ms, now_ms + idle_ms)
        if self._socket is None:
            due_ms = min(due_ms, self._connect_at_ms)
        return max(0, due_ms - now_ms) / 1000

    def _turn(self) -> None:
        """Do what is due by time and messages, then report to the server."""
        now_ms = boot_ms()
        if self._socket is not None and (self._server.moved()):
            self._disconnect()
            self._connect_at_ms = now_ms
        if self._socket is None:
            if server_is_gone(self._data):
                self._state.pause_lease(now_ms - self._last_ms)
            if now_ms >= self._connect_at_ms or self._server.ready:
                self._connect(now_ms)
        self._last_ms = now_ms
        self._exits_left = self._exits_left and self._replicas.reap()
        self._replicas.poll(now_ms)
        for key, why in self._replicas.freezer.newly_frozen(now_ms):
            if why:
                self._state.on_refused(key, why)
            else:
                self._state.on_frozen(key)
        if self._reports.read(now_ms, SLICE_S):
            bound_output(self._data.node(self._config.spec.name) / "agent.log", OWN_LOG_MAX_BYTES)
            self._state.disk_problem = self._disk.problem()
        for seen in self._inspector.seen():
            if isinstance(seen, NodeCheck):
                self._state.on_checked(seen)
            else:
                self._state.on_inspected(seen)
        self._state.on_instances(self._parts.instances)
        if (news := self._devices.turn(now_ms, connected=self._socket is not None)) is not None:
            self._state.on_devices(news)
        self._state.power_limit_mw = self._devices.power_limit_mw
        for key, info in self._devices.released(now_ms, ending=self._ending):
            self._state.on_gone(key, info)
        if (figures := self._devices.figures(now_ms)) is not None:
            self._state.on_figures(figures)
        if self._ending:
            self._end_all(now_ms)
        self._carry_out(self._state.on_time(now_ms))
        for key, pid in self._replicas.newly_started():
            self._state.on_started(key, pid)
        self._cell.set(self._state.lease_until_ms)
        if self._state.must_say_hello:
            self._disconnect()
        if self._socket is not None and (report := self._state.next_report(now_ms)) is not None:
            self._send(report)
        needs = self._parts.preparations if self._socket is not None else None
        if needs is not None and needs.says_anew:
            needs.says_anew, self._state.must_say_hello = False, True
        if needs is not None and (fetch := needs.fetching.to_ask()) is not None:
            self._send(fetch)
        for message in self._server.messages() if self._socket is not None else ():
            self._send(message)

    def _end_all(self, now_ms: int) -> None:
        """On SIGTERM: ask everything to stop, kill after a short grace."""
        self._state.leaving = True
        for entry in self._state.living():
            if entry.state != "stopping":
                entry.state, entry.stop_sent = "stopping", True
                entry.problem = entry.problem or SHUT_DOWN
                entry.kill_at_ms = now_ms + SHUTDOWN_GRACE_MS
                self._replicas.ask_to_stop(entry.key, entry.kill_at_ms, entry.problem)

    def _carry_out(self, actions: list[br.Action]) -> None:
        """Act one by one: what the system refuses of one takes none of the others with it."""
        for action in actions:
            try:
                self._act([action])
            except (OSError, MemoryError) as error:
                self._failures.note(f"action {type(action).__name__}", error)
                if isinstance(action, br.Spawn) and action.order.key not in self._replicas.running:
                    self._state.on_gone(action.order.key, ExitInfo(problem=f"could not be started: {error}"))

    def _act(self, actions: list[br.Action]) -> None:
        for action in actions:
            match action:
                case br.Spawn():
                    key = action.order.key
                    self._reports.follow(key)
                    self._replicas.queue(action.order)
                case br.AskToStop():
                    kill_at_ms = self._state.entries[action.key].kill_at_ms or 0
                    self._replicas.ask_to_stop(action.key, kill_at_ms)
                case br.AskToSave():
                    self._replicas.ask_to_save(action.key)
                case ChangeBatch() if action.key in self._replicas.running:
                    tell_batch(self._data, action.key, action.batch)
                case br.Freeze():
                    if why := self._replicas.freezer.freeze(action.key, boot_ms()):
                        self._state.on_refused(action.key, why)
                case br.Thaw():
                    self._replicas.freezer.thaw(action.key)
                case br.KillAll():
                    self._replicas.kill(action.key)
                case br.Forget():
                    self._replicas.forget(action.key)
                case LimitPower():
                    self._devices.limit_power(action.limit_mw)
                case CheckNode():
                    self._inspector.check(action.command, self._data.root)
                case DivideDevice():
                    self._parts.divide(action.index, action.strategy)
                case br.Inspect():
                    pids, killed = self._replicas.processes(action.key), self._replicas.note(action.key)
                    self._inspector.look(action.key, pids, native=action.native, killed=killed)

    def _gone(self, key: ReplicaKey, info: ExitInfo) -> None:
        """No process is left: read its last reports, then report its exit."""
        if self._reports.end(key):
            info = msgspec.structs.replace(info, done=True)
        if info.code:
            info = msgspec.structs.replace(info, last_error=last_error(self._data.output(key)))
        entry, failed = self._state.entries.get(key), info.code or (info.signal is not None and not info.problem)
        if failed and entry is not None and not entry.stop_sent and self._replicas.held_last:
            self._devices.hold(key, info, boot_ms())
        else:
            self._state.on_gone(key, info)

    def _on_progress(self, seen: ProgressSeen) -> None:
        if seen.kind == "listens":
            self._replicas.on_listens(seen.key, seen.why)
        self._state.on_progress(seen)

    # The connection.

    def _connect(self, now_ms: int) -> None:
        self._connect_at_ms = now_ms + RECONNECT_MS
        link = self._server.dial()
        if link is None:
            return
        try:  # read anew each time: the files may have been renewed
            own = self._data.node_certificate(self._config.spec.name)
            channel = tls.Channel(tls.agent_context(self._data.trusted, own))
        except OSError as error:
            self._not_secure(error, now_ms)
            link.close()
            return
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._channel = link, channel
        self._deframer, self._out = protocol.Deframer(), bytearray()
        self._selector.register(link, selectors.EVENT_READ)
        if self._parts.preparations is not None:
            self._parts.preparations.fetching.ask_again()
        self._state.on_connected(now_ms)
        spec = self._parts.labelled(self._server.begin(self._config.spec, link), self._incarnation)
        self._send(protocol.AgentHello(protocol.PROTOCOL_VERSION, spec, self._incarnation, __version__))

    def _not_secure(self, error: OSError, now_ms: int) -> None:
        """Say why there is no secure connection, and try again after a pause."""
        log.warning("no secure connection to the server: %s", error)
        self._server.failed(f"no secure connection: {error}")
        self._connect_at_ms = now_ms + 5 * RECONNECT_MS

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = self._channel = None
            self._state.must_say_hello = False

    def _send(self, message: protocol.ToServer) -> None:
        assert self._channel is not None
        try:
            self._channel.send(protocol.frame(message))
        except ssl.SSLError as error:
            self._not_secure(error, boot_ms())
            self._disconnect()
            return
        self._flush()

    def _flush(self) -> None:
        assert self._socket is not None
        assert self._channel is not None
        self._out += self._channel.to_wire()
        try:
            sent = self._socket.send(self._out)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._disconnect()
            return
        del self._out[:sent]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        self._selector.modify(self._socket, wanted)

    def _on_socket(self, mask: int) -> None:
        if self._socket is None:
            return
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if not mask & selectors.EVENT_READ or self._channel is None:
            return
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        try:
            said = self._channel.receive(data)
        except ssl.SSLError as error:
            self._not_secure(error, boot_ms())
            self._flush()  # sends the TLS alert
            self._disconnect()
            return
        self._flush()
        try:
            messages = [protocol.decode_to_agent(body) for body in self._deframer.feed(said)]
        except protocol.ProtocolError as error:
            log.warning("connection dropped", extra={"problem": error.message})
            self._disconnect()
            return
        for message in messages:
            self._on_message(message)
        if self._hung_up():
            self._disconnect()

    def _hung_up(self) -> bool:
        return self._channel is not None and self._channel.ended

    def _on_message(self, message: protocol.ToAgent) -> None:
        now_ms = boot_ms()
        match message:
            case protocol.ServerWelcome():
                self._state.on_welcome(message, now_ms)
                self._server.welcome(message)
            case protocol.ServerOrders():
                self._carry_out(self._state.on_orders(message, now_ms))
            case protocol.ServerTaken():
                self._state.on_taken(message, now_ms)
                self._server.learn(message.servers)
            case protocol.ServerPart():
                if self._parts.preparations is not None:
                    self._parts.preparations.fetching.answered(message)
            case protocol.ServerCertificate() | protocol.ServerStored():
                self._server.take(message)
            case protocol.ServerRefused():
                log.error("refused by the server: %s", message.reason)
                self._server.failed(message.reason)
                self._connect_at_ms = now_ms + 5 * RECONNECT_MS
                self._disconnect()
