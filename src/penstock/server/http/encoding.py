"""Whole JSON answers to GET: an ETag, 304 where the client has them already, gzip where it takes that.

Streams pass as they are. What is large is worked on beside the event loop, in the caller's turn.
"""

import zlib
from hashlib import blake2b
from typing import Any, NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Send

from penstock.server.http.pools import Pools
from penstock.server.http.responses import ApiError
from penstock.server.http.turns import CallerGone

ASIDE_BYTES = 32_768
"""A larger body is hashed beside the event loop."""
GZIP_BYTES = 4_096
"""A shorter body is sent as it is."""
GZIP_LEVEL = 3
GZIP_MAX_BYTES = 64 * 2**20
TAGS_MAX = 2_000
"""Characters of `If-None-Match` that are looked at."""
_GZIP_WINDOW = 31


class AnswerEncoding:
    """ASGI middleware around the application, inside the door."""

    def __init__(self, app: ASGIApp, pools: Pools) -> None:
        self._app, self._pools = app, pools

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer = _Answer(self._pools, send, headers.get("if-none-match", "")[:TAGS_MAX], takes_gzip(headers))
        await self._app(scope, receive, answer.send)


def takes_gzip(headers: Headers) -> bool:
    """Return whether a request accepts gzip."""
    for one in headers.get("accept-encoding", "")[:500].split(","):
        name, _, quality = one.partition(";")
        if name.strip().lower() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class _Encoded(NamedTuple):
    tag: str
    body: bytes
    packed: bool


class _Answer:
    """One answer on its way."""

    def __init__(self, pools: Pools, send: Send, known: str, gzip: bool) -> None:
        self._pools, self._send, self._known, self._gzip = pools, send, known, gzip
        self._start: Message | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_json(message):
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            if message.get("more_body", False):
                await self._send(start)
            else:
                await self._whole(start, message)
                return
        await self._send(message)

    async def _whole(self, start: Message, message: Message) -> None:
        body = message.get("body", b"")
        headers = MutableHeaders(raw=list(start["headers"]))
        version = headers.get("etag", "").strip('"')
        pack = self._gzip and GZIP_BYTES <= len(body) <= GZIP_MAX_BYTES
        try:
            if pack or len(body) > ASIDE_BYTES:
                tag, body, packed = await self._pools.reads.run(_encoded, body, version, self._known, pack)
            else:
                tag, body, packed = _encoded(body, version, self._known, pack)
        except CallerGone:
            return
        except ApiError:  # too much waits: as it is, without a tag
            await self._send(start)
            await self._send(message)
            return
        headers["ETag"] = tag
        headers["Vary"] = "Accept-Encoding, Authorization, Cookie"
        headers.setdefault("Cache-Control", "private, no-cache")
        status = start["status"]
        if has_tag(self._known, tag):
            status, body = 304, b""
            del headers["content-length"]
        else:
            if packed:
                headers["Content-Encoding"] = "gzip"
            headers["Content-Length"] = str(len(body))
        await self._send({**start, "status": status, "headers": headers.raw})
        await self._send({**message, "body": body})


def _is_json(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    kind = headers.get("content-type", "").partition(";")[0]
    return start["status"] == 200 and kind == "application/json" and "content-encoding" not in headers


def _encoded(body: bytes, version: str, known: str, pack: bool) -> _Encoded:
    digest = blake2b(body, digest_size=12).hexdigest()
    tag = f'"{version}.{digest}"' if version else f'"{digest}"'
    if not pack or has_tag(known, tag):
        return _Encoded(tag, body, False)
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return _Encoded(f"W/{tag}", packer.compress(body) + packer.flush(), True)


def has_tag(given: str, tag: str) -> bool:
    """Return whether `If-None-Match` names a tag; weak tags are equal to strong ones (RFC 9110, 13.1.2)."""
    wanted = tag.removeprefix("W/")
    tags = [one.strip().removeprefix("W/") for one in given.split(",")]
    return wanted in tags or "*" in tags
