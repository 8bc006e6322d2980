"""Requests to the API server: each answer decoded once, each refusal an error that says what follows from it.

A request of a caller is bounded in time and in the size of its answer. Reads are tried again by their callers, who know
what they still need; writes are not, for the caller has to know whether one was carried out.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeVar

import aiohttp
import msgspec

from penstock.engines.kubernetes.api.credentials import Access
from penstock.engines.kubernetes.api.errors import (
    Busy,
    Conflict,
    Denied,
    Expired,
    KubernetesError,
    Missing,
    ReadOnly,
    Rejected,
    Unavailable,
)
from penstock.engines.kubernetes.objects.answers import Page, Status

T = TypeVar("T")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

CONNECTIONS_MAX = 32
REQUEST_WAIT_S = 30.0
"""A request that is no watch has been answered by then."""
ANSWER_MAX_BYTES = 64 * 2**20
"""Of one answer; lists come in pages."""
LINE_MAX_BYTES = 8 * 2**20
"""Of one event of a watch: etcd keeps no object above 1.5 MiB by default."""
WATCH_SILENCE_S = 150.0
"""A watch that says nothing for so long is dead: bookmarks come every minute."""
PAGE_ITEMS = 500
ERROR_TEXT_MAX = 500

PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_DECODE_STATUS = msgspec.json.Decoder(Status)
_DECODE_PAGE = msgspec.json.Decoder(Page)


class Kind(NamedTuple):
    """A kind of object, by where the API serves it.

    Args:
        group: empty for the core group.
    """

    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of one object, or of all: of one namespace, or of the cluster."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


class Listed(NamedTuple):
    """One page of a list: its items undecoded, and the version of the whole list."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str
    following: str
    """Token of the next page; empty on the last."""


class Client:
    """One API server. Everything runs on the loop on which it was entered.

        async with Client(access) as client:
            await client.get(PODS.path("default", "web"), Pod)

    Args:
        connections: requests at a time; others wait for one of them to end. Watches come on top.
        agent: how the requests name this program in the server's audit log.
        read_only: nothing but reads is ever sent.
        leads: returns once it is certain that this program led after the call. Each write is sent after that: what it
            says was decided, and the version that it names was read, while no other program led.
    """

    def __init__(
        self,
        access: Access,
        *,
        connections: int = CONNECTIONS_MAX,
        agent: str = "penstock",
        read_only: bool = False,
        leads: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._access, self._agent, self._read_only, self._leads = access, agent, read_only, leads
        self._turns = asyncio.Semaphore(connections)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Client":
        connector = aiohttp.TCPConnector(limit=0, ssl=self._access.security or True, keepalive_timeout=90)
        self._session = aiohttp.ClientSession(
            self._access.server,
            connector=connector,
            headers={"User-Agent": self._agent, "Accept": "application/json"},
            auto_decompress=True,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, path: str, into: type[T], **query: str) -> T:
        """Return one object. Raises: KubernetesError."""
        return _decoded(await self.request("GET", path, query=query), into, path)

    async def write(self, method: Method, path: str, body: object, into: type[T], **query: str) -> T:
        """Create, replace or delete, and return the server's answer. Raises: KubernetesError."""
        return _decoded(await self.request(method, path, body=body, query=query), into, path)

    async def patch(
        self,
        path: str,
        body: object,
        into: type[T],
        how: Literal["merge", "strategic", "apply"] = "merge",
        **query: str,
    ) -> T:
        """Change parts of an object, and return it. Raises: KubernetesError."""
        return _decoded(await self.request("PATCH", path, body=body, query=query, content=PATCHES[how]), into, path)

    async def page(self, path: str, following: str = "", **query: str) -> Listed:
        """Return one page of a list. Raises: KubernetesError; Expired when `following` is too old."""
        asked = {**query, "limit": str(PAGE_ITEMS), **({"continue": following} if following else {})}
        found = _decoded(await self.request("GET", path, query=asked), Page, path)
        return Listed(found.items, found.metadata.resource_version, found.metadata.continue_)

    async def request(
        self,
        method: Method,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
    ) -> bytes:
        """Send one request, and return the body of its answer.

        Raises: KubernetesError. `Unavailable` says nothing of whether a write was carried out.
        """
        if self._leads is not None and method != "GET":
            await self._leads()
        return await self._answered(method, path, body, query, content)

    async def _answered(
        self, method: Method, path: str, body: object, query: Mapping[str, str] | None, content: str
    ) -> bytes:
        sent = None if body is None else msgspec.json.encode(body)
        async with self._turns:
            try:
                async with asyncio.timeout(REQUEST_WAIT_S), self._sent(method, path, query, sent, content) as answer:
                    told = await _whole(answer, path)
                    if answer.status >= 400:
                        raise self._refusal(answer, told, method, path)
                    return told
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise Unavailable(f"{method} {path}: {str(error) or type(error).__name__}") from None

    async def watch(self, path: str, **query: str) -> AsyncIterator[bytes]:
        """Yield the lines of a watch until the server ends it. Raises: KubernetesError."""
        asked = {**query, "watch": "1", "allowWatchBookmarks": "true"}
        try:
            async with self._sent("GET", path, asked, None, "", silence_s=WATCH_SILENCE_S) as answer:
                if answer.status >= 400:
                    raise self._refusal(answer, await _whole(answer, path), "GET", path)
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if max(map(len, (*lines, rest))) > LINE_MAX_BYTES:
                        raise Unavailable(f"GET {path}: an event of more than {LINE_MAX_BYTES:,} bytes")
                    for line in lines:
                        yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"GET {path}: {str(error) or type(error).__name__}") from None

    @contextlib.asynccontextmanager
    async def _sent(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content: str,
        silence_s: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "the client is entered first"
        if self._read_only and method != "GET":
            raise ReadOnly(f"{method} {path}: this client only reads")
        token = await self._access.tokens.token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = content
        limits = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_WAIT_S, sock_read=silence_s)
        async with self._session.request(
            method, path, params=query, data=body, headers=headers, timeout=limits, allow_redirects=False
        ) as answer:
            yield answer

    def _refusal(self, answer: aiohttp.ClientResponse, told: bytes, method: Method, path: str) -> KubernetesError:
        if answer.status == 401:
            self._access.tokens.refused()
        return refusal(answer.status, told, f"{method} {path}", answer.headers.get("Retry-After", ""))


def refusal(status: int, told: bytes, request: str, retry_after: str = "") -> KubernetesError:
    """Return the error that a status of HTTP, or the Status object of a watch's ERROR event, stands for."""
    try:
        said = _DECODE_STATUS.decode(told)
    except msgspec.MsgspecError:
        said = Status(message=told.decode("utf-8", "replace"))
    status = status or said.code
    text = f"{request}: {said.message[:ERROR_TEXT_MAX] or f'HTTP {status}'}"
    if status == 429:
        asked_s = said.details.retry_after_seconds if said.details is not None else 0
        wait_s = float(retry_after) if retry_after.isdecimal() else float(asked_s)
        return Busy(text, reason=said.reason, retry_after_s=wait_s)
    kinds: dict[int, type[KubernetesError]] = {401: Denied, 403: Denied, 404: Missing, 409: Conflict, 410: Expired}
    kind = kinds.get(status, Rejected if 400 <= status < 500 else Unavailable)
    return kind(text, status=status, reason=said.reason)


async def _whole(answer: aiohttp.ClientResponse, path: str) -> bytes:
    """Return the body of an answer, within its bound."""
    parts, size = [], 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > ANSWER_MAX_BYTES:
            raise Rejected(f"{path}: an answer of more than {ANSWER_MAX_BYTES:,} bytes", status=413)
        parts.append(chunk)
    return b"".join(parts)


_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {Page: _DECODE_PAGE}


def _decoded(told: bytes, into: type[T], path: str) -> T:
    decoder = _DECODERS.get(into)
    if decoder is None:
        decoder = _DECODERS[into] = msgspec.json.Decoder(into)
    try:
        found: T = decoder.decode(told)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"{path}: the answer is no {into.__name__}: {error}") from None
    return found
