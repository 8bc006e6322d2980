"""What the agent of another machine does beside: it finds the server among its addresses, and renews its certificate.

Names are resolved and connections made in a thread, since both may take seconds, and the agent's loop has leases and
deadlines to keep.
"""

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.errors import InvalidInput
from penstock.core.model.nodes import NodeSpec
from penstock.engines.agent import protocol
from penstock.engines.agent.joined import SERVERS_MAX, LinkState, NodeLink, ServerAddress, mark_of, read_link
from penstock.engines.agent.lease import AnnouncedServer
from penstock.engines.agent.sending import OutputSender
from penstock.engines.agent.state_machine import ReplicaEntry
from penstock.engines.processes.paths import DataFolder
from penstock.privatefiles import write_whole

log = logging.getLogger(__name__)

CONNECT_S = 3.0
"""For one address of a server."""
ASK_AGAIN_S = 60.0
"""After a certificate was not renewed."""


class NodeFiles:
    """The files of a joined node that its connection needs, below its own folder."""

    def __init__(self, folder: Path) -> None:
        self.key, self.request, self.certificate = (
            folder / name for name in ("key.pem", "request.pem", "certificate.pem")
        )
        self.renewal, self.state = folder / "renewal.json", folder / "link-state.json"
        self.bundle = folder / "bundle.mark"
        """Of the bundle that it has joined with."""


class Renewal(msgspec.Struct, frozen=True):
    """When to ask for another certificate. There is none while the node has only the one of its bundle."""

    from_ms: int


class Dialer:
    """Connects to the servers of a node, one address after the other, in a thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._made: queue.SimpleQueue[tuple[ServerAddress, socket.socket]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._next = 0
        self.problem = ""
        """Of the last address tried; '' after a connection."""

    @property
    def ready(self) -> bool:
        """Whether a connection has been made."""
        return not self._made.empty()

    def connection(self, servers: Sequence[ServerAddress]) -> tuple[ServerAddress, socket.socket] | None:
        """Return a connection once one is made; None meanwhile."""
        with contextlib.suppress(queue.Empty):
            return self._made.get_nowait()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._dial, args=(tuple(servers),), name="penstock-dialer", daemon=True
            )
            self._thread.start()
        return None

    def _dial(self, servers: Sequence[ServerAddress]) -> None:
        """Try each address once, beginning behind the last one used: that may be a server that leads no longer."""
        for _ in servers:
            server = servers[self._next % len(servers)]
            self._next += 1
            try:
                link = socket.create_connection((server.host, server.port), timeout=CONNECT_S)
            except OSError as error:
                self.problem = f"{server} cannot be reached: {error.strerror or error}"
                continue
            self.problem = ""
            self._made.put((server, link))
            self._wake()
            return


class DistantServer(AnnouncedServer):
    """The server as an agent of another machine finds it. Everything but `Dialer`'s thread on the agent's loop."""

    def __init__(
        self, data: DataFolder, node: str, wake: Callable[[], None], entries: Mapping[ReplicaKey, ReplicaEntry]
    ) -> None:
        super().__init__(data)
        self._dialer = Dialer(wake)
        self.sender = OutputSender(data, data.node(node), entries)
        self._begun = False
        """Whether there is a session."""
        self._files = NodeFiles(data.node(node))
        self._link = NodeLink(node=node, servers=())  # type: ignore[arg-type]
        self._server: ServerAddress | None = None
        self._said = LinkState(welcome=False)
        self._out: list[protocol.ToServer] = []
        self._asked_at_s: float | None = None
        self._reconnects = False
        """The connection was made with the bundle's certificate: it is to be made anew."""

    # Finding it.

    @property
    def ready(self) -> bool:
        return self._dialer.ready

    def moved(self) -> bool:
        """Return whether the server in use is none of the node's servers any more, or to be greeted anew."""
        return self._reconnects or (
            self._read() and self._server is not None and self._server not in self._link.all_servers
        )

    def dial(self) -> socket.socket | None:
        """Return a new connection, None while there is none."""
        self._read()
        made = self._dialer.connection(self._link.all_servers)
        if made is None:
            if self._dialer.problem:
                self._say(LinkState(welcome=False, problem=self._dialer.problem))
            return None
        self._server, link = made
        return link

    def _read(self) -> bool:
        """Take up the node's link as it is now; return whether it has changed."""
        try:
            known = self._data.link.stat()
            if (known.st_ino, known.st_mtime_ns) == self._stamp:
                return False
            link = read_link(self._data)
        except (OSError, msgspec.MsgspecError):
            return False
        self._stamp = (known.st_ino, known.st_mtime_ns)
        self._link = link or self._link
        return True

    # The connection.

    def begin(self, spec: NodeSpec, link: socket.socket) -> NodeSpec:
        """Return the spec, with the address by which the others reach this node, as a new connection shows it."""
        self._out, self._asked_at_s, self._reconnects, self._begun = [], None, False, False
        address = self._link.address
        if not address:
            with contextlib.suppress(OSError):
                address = str(link.getsockname()[0]).partition("%")[0]
        return replace(spec, address=address or spec.address)

    def failed(self, problem: str) -> None:
        """Take note that the server has refused this node, or is not the one that it trusts."""
        self._say(LinkState(welcome=False, server=str(self._server or ""), problem=problem))

    def welcome(self, welcome: protocol.ServerWelcome) -> None:
        """Ask for a certificate where the present one is the bundle's, will end, or others are trusted now."""
        self._say(LinkState(welcome=True, server=str(self._server or "")))
        self._begun = True
        self.sender.begin()
        self.learn(welcome.servers)
        if self._due() or (welcome.trusted and welcome.trusted != mark_of(self._data.trusted)):
            self._ask()

    def learn(self, servers: tuple[str, ...]) -> None:
        """Keep where servers may be found, beside the addresses that people gave: those of before are forgotten."""
        try:
            learned = tuple(ServerAddress.parsed(one) for one in servers[:SERVERS_MAX])
        except InvalidInput as error:
            log.warning("the server says an address that is none: %s", error.message)
            return
        self._read()  # people may have changed it
        if not learned or learned == self._link.learned:
            return
        link = replace(self._link, learned=learned)
        try:
            write_whole(self._data.link, msgspec.json.encode(link))
        except OSError as error:
            log.error("new addresses of the server cannot be kept: %s", error)
            return
        self._link = link
        log.info("the server may be found elsewhere, too", extra={"servers": list(servers)})

    def messages(self) -> list[protocol.ToServer]:
        if self._asked_at_s is not None and time.monotonic() - self._asked_at_s > ASK_AGAIN_S and self._due():
            self._ask()
        out, self._out = self._out, []
        if self._begun and (piece := self.sender.next()) is not None:
            out.append(piece)
        return out

    def take(self, message: protocol.ServerCertificate | protocol.ServerStored) -> None:
        if isinstance(message, protocol.ServerStored):
            self.sender.stored(message)
        else:
            self._keep(message)

    def _keep(self, message: protocol.ServerCertificate) -> None:
        if message.problem:
            log.warning("the certificate is not renewed: %s", message.problem)
            return
        first = not self._files.renewal.exists()
        try:
            write_whole(self._data.trusted, message.trusted, 0o644)
            key = self._files.key.read_text(encoding="ascii")
            write_whole(self._files.certificate, key + message.certificate)
            write_whole(self._files.renewal, msgspec.json.encode(Renewal(message.renewed_from_ms)))
        except OSError as error:
            log.error("the new certificate cannot be kept: %s", error)
            return
        log.info("a new certificate is in use")
        self._reconnects = first

    def _due(self) -> bool:
        try:
            renewal = msgspec.json.decode(self._files.renewal.read_bytes(), type=Renewal)
        except (OSError, msgspec.MsgspecError):
            return True
        return time.time() * 1000 >= renewal.from_ms

    def _ask(self) -> None:
        self._asked_at_s = time.monotonic()
        with contextlib.suppress(OSError):
            self._out.append(protocol.AgentRenew(self._files.request.read_text(encoding="ascii")))

    def _say(self, state: LinkState) -> None:
        state = replace(state, program=protocol.PROGRAM)
        if state != self._said:
            self._said = state
            with contextlib.suppress(OSError):
                write_whole(self._files.state, msgspec.json.encode(state), synced=False)
