"""MCP over streamable HTTP on loopback: every request carries the Penstock token of its caller, and nothing is kept.

Requests are independent of each other (no sessions to take over, none to fill up): budgets and confirmations belong to
the token. A page of a browser cannot call: it has no token, and a foreign Host or any Origin is refused before that.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from penstock.client.errors import ApiProblem
from penstock.core.model.errors import PenstockError
from penstock.mcp.callers import Caller, Callers
from penstock.mcp.errors import Refused, error_of
from penstock.mcp.serve import server_for

PATH = "/mcp"
BODY_MAX_BYTES = 512 * 2**10
BODY_S = 10.0
"""In which the whole body of a request has to come."""
REQUESTS_MAX = 256
"""Connections at a time; one more is refused."""
CHECKS_AT_ONCE = 8
"""Unknown tokens that are checked at a time; one more is refused."""
TOKEN_MAX_CHARS = 1_000
CALLER = "penstock.caller"
_log = logging.getLogger(__name__)


def app_for(callers: Callers, *, port: int, writes: bool) -> Starlette:
    """Return the application for the port that it listens on."""
    hosts = [f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[])
    server = server_for(_caller_of, writes=writes)
    manager = StreamableHTTPSessionManager(
        server,
        json_response=True,
        stateless=True,
        security_settings=security,
        max_request_body_size=BODY_MAX_BYTES,
    )
    door = _Door(manager, callers, security)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Route(PATH, endpoint=door)], lifespan=lifespan)


def _caller_of(ctx: Any) -> Caller:
    caller = ctx.request.scope[CALLER]
    assert isinstance(caller, Caller)
    return caller


class _Door:
    """Lets in requests with a token that the Penstock server accepts; an ASGI application."""

    def __init__(
        self, manager: StreamableHTTPSessionManager, callers: Callers, security: TransportSecuritySettings
    ) -> None:
        self._manager, self._callers = manager, callers
        self._security = TransportSecurityMiddleware(security)
        self._checks = 0
        self._threads: anyio.CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = await self._security.validate_request(request, is_post=request.method == "POST")
        if answer is None and request.method != "POST":
            answer = Response(status_code=405, headers={"Allow": "POST"})
        if answer is not None:
            await answer(scope, receive, send)
            return
        try:
            scope[CALLER] = caller = await self._admitted(request)
        except PenstockError as error:
            await _refusal(error)(scope, receive, send)
            return
        try:
            receive = await _whole_body(request, receive)
            await self._manager.handle_request(scope, receive, send)
        except PenstockError as error:
            await _refusal(error)(scope, receive, send)
        finally:
            self._callers.leave(caller)

    async def _admitted(self, request: Request) -> Caller:
        """Return the caller of a request, who is to leave. Raises: PenstockError."""
        given = request.headers.get("authorization", "")
        token = given[7:].strip() if given[:7].lower() == "bearer " else ""
        if not token or len(token) > TOKEN_MAX_CHARS or not token.isascii():
            hint = "Authorization: Bearer TOKEN, the caller's own Penstock token"
            raise Refused("unauthenticated", "the request has no token", hint=hint)
        if (caller := self._callers.enter(token)) is not None:
            return caller
        if self._checks >= CHECKS_AT_ONCE:
            raise Refused("overloaded", f"{CHECKS_AT_ONCE} tokens are being checked", retry_after_s=1)
        self._threads = self._threads or anyio.CapacityLimiter(CHECKS_AT_ONCE)
        self._checks += 1
        try:
            return await anyio.to_thread.run_sync(self._callers.admit, token, limiter=self._threads)
        finally:
            self._checks -= 1


async def _whole_body(request: Request, receive: Receive) -> Receive:
    """Return a `receive` that has the whole body already. Raises: Refused when it is too large or too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > BODY_MAX_BYTES:
                    raise Refused("too_large", f"the request has more than {BODY_MAX_BYTES} bytes")
    except TimeoutError:
        raise Refused("timed_out", f"the request did not come within {BODY_S:.0f} s") from None
    waiting = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def replayed() -> Any:
        return waiting.pop() if waiting else await receive()

    return replayed


_STATUS = {"unauthenticated": 401, "too_large": 413, "timed_out": 408, "overloaded": 503, "too_many_requests": 429}


def _refusal(error: PenstockError) -> Response:
    said = error_of(error)
    status = error.details.status if isinstance(error, ApiProblem) else _STATUS.get(said.code, 503)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if said.retry_after is not None:
        headers["Retry-After"] = str(said.retry_after)
    return Response(msgspec.json.encode({"error": said}), status, headers, "application/json")


def listening(port: int) -> socket.socket:
    """Return a socket that listens on loopback. Raises: OSError."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
        found.listen(128)
    except BaseException:
        found.close()
        raise
    return found


def http_server(callers: Callers, *, port: int, writes: bool) -> uvicorn.Server:
    """Return the server for a socket that listens on `port`; `serve(sockets=[...])` runs it."""
    config = uvicorn.Config(
        app_for(callers, port=port, writes=writes),
        limit_concurrency=REQUESTS_MAX,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=5,
        access_log=False,
        log_level="warning",
        server_header=False,
        ws="none",
    )
    return uvicorn.Server(config)
