"""The HTTP listener: uvicorn with bounds on what a connection may hold, and for how long.

uvicorn bounds neither headers nor the time in which a request has to come. Here a client has a deadline for its
headers, for its body (at a least rate), and for reading its answer. One sweep a second checks all connections, so
that a request costs no timer.
"""

import asyncio
import contextlib
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.api.types import ProblemDetails

HEADERS_MAX_BYTES = 64 * 2**10
"""Of one request: its first line and all headers together."""
HEADERS_MAX = 128
PIPELINED_MAX = 32
"""Requests that were sent before the answer to the one before."""
HEADERS_S = 10.0
"""From the connection, or from the first byte of a later request, until its headers are complete."""
BODY_S = 20.0
BODY_LEAST_BYTES_S = 4 * 2**10
"""A body has `BODY_S`, and a second more per this many bytes received."""
ANSWER_S = 60.0
"""A client that reads nothing of its answer for this long is disconnected."""
IDLE_S = 75
HANDSHAKE_S = 10.0
GOODBYE_S = 2.0
SWEEP_S = 1.0
CONNECTIONS_MAX = 4_096
"""Fewer where the process may open fewer files."""
PER_ADDRESS_SHARE = 4
"""One address may have one in this many connections; this machine itself all of them."""
OWNER = "unix"
"""Instead of the address of a client of the data folder's socket, which only the folder's owner and root can use."""
OWNER_CONNECTIONS = 64
"""Connections beyond the limit that are the owner's alone, so that the administrator is never shut out."""
FILES_RESERVED = 256
"""Files that the server needs for itself."""
GONE = "penstock.gone"
"""Of the ASGI scope: says whether the client has disconnected."""

_REFUSED = {
    408: ("too_slow", "the request did not come in time"),
    431: ("headers_too_large", f"a request may have {HEADERS_MAX} headers of {HEADERS_MAX_BYTES} bytes together"),
    503: ("overloaded", "too many connections are open"),
}
_PHRASE = {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}


class ListenerBounds(msgspec.Struct, frozen=True):
    """What one listener allows; times in seconds."""

    connections: int = CONNECTIONS_MAX
    headers_s: float = HEADERS_S
    body_s: float = BODY_S
    answer_s: float = ANSWER_S


class Doors:
    """Counts the connections of one listener, by address."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open: set[Connection] = set()
        self._by_address: Counter[str] = Counter()

    def enter(self, connection: "Connection", address: str) -> bool:
        """Count a connection and return whether it may stay."""
        self.open.add(connection)
        self._by_address[address] += 1
        if address == OWNER and self._by_address[address] <= OWNER_CONNECTIONS:
            return True
        own = address.startswith("127.") or address in ("::1", OWNER)
        most = self.most if own else max(1, self.most // PER_ADDRESS_SHARE)
        return len(self.open) <= self.most and self._by_address[address] <= most

    def leave(self, connection: "Connection", address: str) -> None:
        self.open.discard(connection)
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]


def connections_allowed(wished: int) -> int:
    """Return how many connections may be open, so that files are left for the log and for agents."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wished
    return max(1, min(wished, files - FILES_RESERVED if files > 2 * FILES_RESERVED else files // 2))


class Connection(HttpToolsProtocol):
    """One connection. `due`: deadline of headers or body; None while none is owed."""

    bounds: ListenerBounds
    doors: Doors

    due: float | None = None
    _head_bytes: int | None = None
    """Of the headers that are coming; None while none are."""
    _in_body = False
    _body_bytes = 0
    _body_since = 0.0
    _unread = 0
    _unread_since: float | None = None
    _refused = False
    _lost = False
    _address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is None:
            self.client = (OWNER, 0)
        self._address = self.client[0]
        if not self.doors.enter(self, self._address):
            self._refuse(503)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self.doors.leave(self, self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        head_bytes = None if self._in_body else (self._head_bytes or 0) + len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_bytes is not None and head_bytes is not None:
            self._head_bytes = head_bytes
        if self._head_bytes is not None and self._head_bytes > HEADERS_MAX_BYTES:
            self._refuse(431)
        elif self.due is None and not self._answering():
            self.due = self.loop.time() + self.bounds.headers_s  # it sent something, but no request began

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_headers()

    def _expect_headers(self) -> None:
        self._head_bytes = 0
        self.due = self.loop.time() + self.bounds.headers_s

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEADERS_MAX_BYTES or len(self.headers) > HEADERS_MAX or len(self.pipeline) >= PIPELINED_MAX:
            self._refuse(431)
            return
        self._head_bytes, self._in_body = None, True
        self._body_bytes, self._body_since = 0, self.loop.time()
        self.due = self._body_since + self.bounds.body_s
        scope: Any = self.scope
        scope[GONE] = self._is_lost
        super().on_headers_complete()

    def _is_lost(self) -> bool:
        return self._lost

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        self._body_bytes += len(body)
        self.due = self._body_since + self.bounds.body_s + self._body_bytes / BODY_LEAST_BYTES_S
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refused:
            return
        self.due, self._in_body = None, False
        super().on_message_complete()

    def pause_writing(self) -> None:
        self._unread, self._unread_since = self.transport.get_write_buffer_size(), self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def look(self, now: float) -> None:
        """Drop the connection when its client is late."""
        if self._unread_since is not None:
            unread = self.transport.get_write_buffer_size()
            if unread < self._unread:
                self._unread, self._unread_since = unread, now
            elif now - self._unread_since > self.bounds.answer_s:
                self.transport.abort()
        elif self.due is not None and now > self.due and not self._refused:
            if self.flow.read_paused:
                self.due = now + self.bounds.body_s  # it is the server that does not read
            elif self._head_bytes == 0:
                self.transport.close()  # no byte ever came: no client waits for an answer
            else:
                self._refuse(408)

    def _answering(self) -> bool:
        """Return whether a request is with the application."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _refuse(self, status: int) -> None:
        """Answer, and close."""
        self._refused, self.due = True, None
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle
        if not self._answering() or not cycle.response_started:
            code, title = _REFUSED[status]
            body = msgspec.json.encode(ProblemDetails(title, status, code))
            head = (
                f"HTTP/1.1 {status} {_PHRASE[status]}\r\ncontent-type: application/problem+json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


class Listener(uvicorn.Server):
    """uvicorn without its signal handlers, which raise the signal again at the end and cut off ours."""

    def __init__(self, app: ASGIApp, security: ssl.SSLContext | None, bounds: ListenerBounds) -> None:
        self._doors = Doors(connections_allowed(bounds.connections))
        kind = type("BoundedConnection", (Connection,), {"bounds": bounds, "doors": self._doors})
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                lifespan="off",
                http=kind,
                ws="none",
                proxy_headers=False,  # any client could claim any address
                server_header=False,
                timeout_graceful_shutdown=2,
                timeout_keep_alive=IDLE_S,
            )
        )
        self._security = security

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. As uvicorn does, but for the times of the TLS handshake and its end."""
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        times: dict[str, Any] = {}
        if self._security is not None:
            times = {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": GOODBYE_S}

        def connection() -> asyncio.Protocol:
            made = self.config.http_protocol_class
            return made(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[call-arg]

        self.servers = []
        for each in sockets or ():
            if each.family == socket.AF_UNIX:  # nothing leaves the machine: no TLS
                self.servers.append(await loop.create_unix_server(connection, sock=each))
            else:
                self.servers.append(await loop.create_server(connection, sock=each, ssl=self._security, **times))
        self._sweeper = asyncio.create_task(self._sweep())
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._sweeper.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def ask_to_end(self) -> None:
        self.should_exit = True

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = loop.time()
            for connection in list(self._doors.open):
                connection.look(now)
