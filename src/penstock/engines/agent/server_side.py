"""The server's end of the agents' connections: an `Engine` for the control loop, a socket server for the agents.

An agent is heard only for the node that its certificate names: in its first message, and in each report after it.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from penstock.core.messages.orders import Addressed, Order
from penstock.core.model.ids import Epoch, NodeName, is_node_name
from penstock.engines.agent import protocol, tls
from penstock.ports import EngineEvents

log = logging.getLogger(__name__)

OUT_MAX_BYTES = 64 * 2**20
"""Backlog at which an agent that reads nothing is disconnected; it reconnects and gets its orders again."""
CONNECTIONS_MAX = 10_000
"""Connections of agents, and of strangers; more are closed at once, and come back."""
HANDSHAKE_S = 10.0
"""A peer without a certificate by then is dropped."""
HELLO_S = 10.0
"""A peer without a hello by then is dropped."""
GOODBYE_S = 2.0
"""Time that an orderly close waits for the other side."""


PARTS_AT_ONCE = 64
"""Parts of snapshots on their way, to all nodes."""
PART_S = 60.0
"""An agent that takes a part more slowly is disconnected."""
Fetch = Callable[[NodeName, protocol.AgentFetch], protocol.ServerPart]
Store = Callable[[NodeName, protocol.AgentOutput], protocol.ServerStored]
OUTPUTS_BYTES_PER_S = 64 * 2**20
"""Of outputs, of all nodes together: each of these bytes is decrypted beside reports and orders."""
OUTPUTS_AHEAD_S = 0.05
SILENT_S = 20
"""A connection to another machine of which nothing comes back for so long is given up: its cable may be cut."""
PROBE_S = 5
OTHER_S = 60.0
"""An agent of another version that has not tried for so long is gone."""
PROGRAM_MAX = 80


class Peers(Protocol):
    """Which agents with a certificate are heard, and the certificates of nodes of other machines."""

    def refusal(self, node: NodeName, certificate: bytes) -> str:
        """Return why an agent with this certificate (DER) may not speak for `node`, or ''."""
        ...

    def renewed(self, node: NodeName, request: str) -> protocol.ServerCertificate:
        """Answer a request for a certificate. In a thread."""
        ...

    def trusted_mark(self) -> str:
        """Return the mark of the authorities that are trusted now."""
        ...

    def servers(self, node: NodeName) -> tuple[str, ...]:
        """Return where a node of another machine may find servers (`HOST:PORT`); () for others. Called often."""
        ...


class AllPeers:
    """Hears every agent with a certificate, and gives out none."""

    def refusal(self, node: NodeName, certificate: bytes) -> str:
        return ""

    def renewed(self, node: NodeName, request: str) -> protocol.ServerCertificate:
        return protocol.ServerCertificate(problem="this server gives out no certificates")

    def trusted_mark(self) -> str:
        return ""

    def servers(self, node: NodeName) -> tuple[str, ...]:
        return ()


class AgentConnection:
    """One connection of one agent. Everything here runs on the event loop."""

    def __init__(
        self,
        number: int,
        certified: NodeName | None,
        writer: asyncio.StreamWriter,
        unseal: Callable[[Order], Order],
        peers: Peers | None = None,
    ) -> None:
        self.number, self.certified, self._unseal, self._peers = number, certified, unseal, peers or AllPeers()
        self.node = NodeName("")
        """Empty before its hello; its certificate agrees."""
        self._writer = writer
        self._seq = 0
        self._epoch = Epoch(0)
        self.fetching = False
        """A part of a snapshot is being read for it, or on its way."""
        self.renewing = self.storing = False
        self._servers: tuple[str, ...] = ()
        """As last said."""

    def welcome(self, epoch: Epoch, lease_ms: int, heartbeat_ms: int) -> None:
        self._epoch, self._servers = epoch, self._peers.servers(self.node)
        mark = self._peers.trusted_mark()
        self._send(protocol.ServerWelcome(epoch, self.number, lease_ms, heartbeat_ms, mark, self._servers))

    def taken(self, report_seq: int, orders: Sequence[Order], *, accepted: bool) -> None:
        servers = self._peers.servers(self.node)
        said, self._servers = servers if servers != self._servers else (), servers
        self._send(protocol.ServerTaken(self._epoch, self.number, report_seq, accepted, said))
        if orders:
            self.order(orders)

    def accepts(self, message: protocol.AgentReport) -> bool:
        """Return whether the message is of this very session, and about its own node."""
        same = message.session == self.number and message.epoch == self._epoch
        return same and message.report.node == self.node

    def order(self, orders: Iterable[Order]) -> None:
        if self._epoch:
            self._seq += 1
            self._send(protocol.ServerOrders(self._epoch, self.number, self._seq, tuple(map(self._unseal, orders))))

    def refuse(self, reason: str) -> None:
        self._send(protocol.ServerRefused(reason))
        self.close()

    async def part(self, part: protocol.ServerPart) -> None:
        """Send a part of a snapshot; return when the agent has taken most of it."""
        self._send(part)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()

    def certificate(self) -> bytes:
        """Return the peer's certificate (DER)."""
        return self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""

    def answer(self, answer: protocol.ServerCertificate | protocol.ServerStored) -> None:
        self._send(answer)

    def close_unless_known(self) -> None:
        if not self.node:
            self.close()

    def _send(self, message: protocol.ToAgent) -> None:
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > OUT_MAX_BYTES:
            log.warning("agent does not read; dropped", extra={"node": self.node})
            self.close()
            return
        self._writer.write(protocol.frame(message))


class AgentLinks:
    """Keeps one session for each node. Lives on the loop it was started on; `send` and `hang_up` on any thread.

    Args:
        unseal: puts the values of secrets into an order, on its way to the node.
        on_other: called with a node whose agent is of another version, and is refused; returns whether it is replaced.
        fetch: reads a part of a snapshot for a node; called in a thread.
        peers: who is heard, of those with a certificate.
        store: keeps a piece of an output of another machine; called in a thread.
    """

    def __init__(
        self,
        security: ssl.SSLContext,
        unseal: Callable[[Order], Order] = lambda order: order,
        on_other: Callable[[NodeName], bool] = lambda node: False,
        fetch: Fetch | None = None,
        peers: Peers | None = None,
        store: Store | None = None,
    ) -> None:
        self._security, self._unseal, self._on_other, self._fetch = security, unseal, on_other, fetch
        self._peers: Peers = peers or AllPeers()
        self._store, self._stored_at_s = store, 0.0
        self._writers = ThreadPoolExecutor(1, thread_name_prefix="penstock-agents-outputs")
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="penstock-agents-fetch")
        self._parts = asyncio.Semaphore(PARTS_AT_ONCE)
        self._fetches: set[asyncio.Task[None]] = set()
        self._events: EngineEvents | None = None
        self._sessions: dict[NodeName, AgentConnection] = {}
        self._others: dict[NodeName, tuple[str, float]] = {}
        """What an agent of another version runs that stays, and when it was refused last (monotonic seconds)."""
        self._last = 0
        self._connections: set[AgentConnection] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None

    async def start(self, host: str, events: EngineEvents, port: int = 0) -> int:
        """Listen for agents on `host` and return the port; `events` gets what they send, on this loop.

        Args:
            port: 0: a free one.
        Raises: OSError when it cannot be taken.
        """
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(
            self._serve,
            host,
            port,
            ssl=self._security,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=GOODBYE_S,
        )
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Stop serving agents. Any thread."""
        self._soon(self._stop_here)

    def hang_up(self) -> None:
        """Close every session; agents come back at once, and show their certificates again. Any thread."""
        self._soon(self._hang_up_here)

    def drop(self, node: NodeName) -> None:
        """Close the session of a node. Any thread."""
        self._soon(lambda: session.close() if (session := self._sessions.get(node)) is not None else None)

    def _stop_here(self) -> None:
        for threads in (self._readers, self._writers):
            threads.shutdown(wait=False, cancel_futures=True)
        if self._server is not None:
            self._server.close()
        for connection in self._connections:  # those that have said no hello, too
            connection.close()

    def _hang_up_here(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _soon(self, function: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def connected(self) -> set[NodeName]:
        return set(self._sessions)

    def others(self) -> dict[NodeName, str]:
        """Return what those agents run that are refused for their version, and go on trying. Any thread."""
        since_s = time.monotonic() - OTHER_S
        return {node: runs for node, (runs, at_s) in sorted(self._others.copy().items()) if at_s > since_s}

    def send(self, orders: Sequence[Addressed]) -> None:
        self._soon(lambda: self._send_here(orders))

    def _send_here(self, orders: Sequence[Addressed]) -> None:
        by_node: dict[NodeName, list[Order]] = {}
        for node, order in orders:
            by_node.setdefault(node, []).append(order)
        for node, batch in by_node.items():
            session = self._sessions.get(node)
            if session is not None:
                session.order(batch)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._last += 1
        certified = tls.node_of(writer.get_extra_info("peercert"))
        session = AgentConnection(self._last, certified, writer, self._unseal, self._peers)
        self._connections.add(session)
        _notice_silence(writer)
        late = asyncio.get_running_loop().call_later(HELLO_S, session.close_unless_known)
        deframer = protocol.Deframer(protocol.HELLO_MAX_BYTES)
        try:
            while len(self._connections) <= CONNECTIONS_MAX and (data := await reader.read(1 << 18)):
                for body in deframer.feed(data):
                    if not session.node and (other := protocol.other_hello(body)) is not None:
                        self._refuse_other(other, session)
                        return
                    self._on_message(protocol.decode_to_server(body), session)
                    deframer.most_bytes = protocol.FRAME_MAX_BYTES if session.node else protocol.HELLO_MAX_BYTES
        except (protocol.ProtocolError, OSError) as error:
            log.info("agent connection ended", extra={"node": session.node, "problem": str(error)})
        finally:
            self._connections.discard(session)
            late.cancel()
            session.close()
            if self._sessions.get(session.node) is session:
                del self._sessions[session.node]

    def _on_message(self, message: protocol.ToServer, session: AgentConnection) -> None:
        assert self._events is not None
        if isinstance(message, protocol.AgentHello):
            self._hello(message, session, self._events)
        elif isinstance(message, protocol.AgentFetch):
            if session.node and not session.fetching:  # an agent asks for one after the other
                session.fetching = True
                self._beside(self._serve_part(message, session))
        elif isinstance(message, protocol.AgentRenew):
            if session.node and not session.renewing:
                session.renewing = True
                self._beside(self._renew(message, session))
        elif isinstance(message, protocol.AgentOutput):
            if session.node and not session.storing and len(message.data) <= protocol.OUTPUT_PIECE_BYTES:
                session.storing = True
                self._beside(self._keep_output(message, session))
        elif session.node and session.accepts(message):
            self._events.on_report(message.report, session)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work beside everything else on this loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._fetches.add(task)
        task.add_done_callback(self._fetches.discard)

    async def _renew(self, wanted: protocol.AgentRenew, session: AgentConnection) -> None:
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._readers, self._peers.renewed, session.node, wanted.request)
        session.renewing = False
        session.answer(answer)

    async def _keep_output(self, piece: protocol.AgentOutput, session: AgentConnection) -> None:
        """Keep a piece of an output; answer once it is kept, and not before all nodes together may send more."""
        answer = protocol.ServerStored(piece.number, unwanted=True)
        loop = asyncio.get_running_loop()
        if self._store is not None:
            answer = await loop.run_in_executor(self._writers, self._store, session.node, piece)
        self._stored_at_s = max(self._stored_at_s, loop.time()) + len(piece.data) / OUTPUTS_BYTES_PER_S
        if (wait_s := self._stored_at_s - loop.time()) > OUTPUTS_AHEAD_S:
            await asyncio.sleep(wait_s)
        session.storing = False
        session.answer(answer)

    async def _serve_part(self, wanted: protocol.AgentFetch, session: AgentConnection) -> None:
        """Answer a request for a part of a snapshot, beside everything else on this loop."""
        try:
            async with self._parts, asyncio.timeout(PART_S):
                part = protocol.ServerPart(wanted.number, problem="this server has no snapshots")
                if self._fetch is not None:
                    loop = asyncio.get_running_loop()
                    part = await loop.run_in_executor(self._readers, self._fetch, session.node, wanted)
                session.fetching = False  # before it is sent: the next request follows it at once
                await session.part(part)
        except (OSError, TimeoutError) as error:
            log.warning("a part of a snapshot was not sent", extra={"node": session.node, "problem": str(error)})
            session.close()

    def _refuse_other(self, hello: protocol.OtherHello, session: AgentConnection) -> None:
        """Refuse an agent of another version; say so where it is not replaced."""
        node, runs, own = session.certified, _runs(hello), protocol.PROGRAM
        session.refuse(f"the agent runs {runs}, this server {own}: the node needs the server's version of Penstock")
        if node is None or self._peers.refusal(node, session.certificate()):
            return
        said = {"node": node, "agent": runs, "server": own}
        if self._on_other(node):
            log.warning("an agent of another version is replaced by the installed one", extra=said)
            return
        if self._others.get(node, ("", 0.0))[0] != runs:
            log.error("an agent of another version is refused, and its node not used", extra=said)
        self._others[node] = runs, time.monotonic()

    def _hello(self, hello: protocol.AgentHello, session: AgentConnection, events: EngineEvents) -> None:
        if not is_node_name(hello.spec.name):
            session.refuse("its name cannot be that of a node: no '/', no '.' first, nothing that does not print")
            return
        if session.certified != hello.spec.name:
            session.refuse(f"the certificate is for node '{session.certified}', not for '{hello.spec.name}'")
            return
        if refusal := self._peers.refusal(hello.spec.name, session.certificate()):
            log.warning("an agent is refused: %s", refusal, extra={"node": hello.spec.name})
            session.refuse(refusal)
            return
        session.node = hello.spec.name
        former = self._sessions.get(session.node)
        if former is not None and former is not session:
            former.close()
        self._sessions[session.node] = session
        self._others.pop(session.node, None)
        events.on_hello(hello.spec, hello.incarnation, session)


def _runs(hello: protocol.OtherHello) -> str:
    return (f"Penstock {hello.program[:PROGRAM_MAX]}, " if hello.program else "") + f"protocol {hello.version}"


def _notice_silence(writer: asyncio.StreamWriter) -> None:
    """Let the kernel end a connection of which nothing comes back: its machine may be gone."""
    link = writer.get_extra_info("socket")
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_S)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_S * 1000)
