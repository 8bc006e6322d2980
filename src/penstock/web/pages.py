"""The built pages over HTTP, around the API: files from memory, one index for all paths of pages, strict headers.

It keeps no state, and reads nothing of a request but method, path, host and what it accepts. Pages find their root
relative to where they are, so that a proxy may serve them under a path of its own.
"""

import gzip
import ipaddress
import mimetypes
from collections.abc import Collection, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api.types import ProblemDetails

INDEX = "index.html"
ROOT = b"{root}"
"""In the index: where the pages begin, relative to the path that was asked for."""
DEPTH_MAX = 8
"""Folders in the path of a page."""
SMALL_BYTES = 1_000
"""Files below are sent as they are."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; worker-src 'self'; frame-src blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types penstock"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}
API_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
]
"""Answers of the API are never documents of this origin, whatever they hold."""
KEPT_FOR_EVER = "public, max-age=31536000, immutable"
"""Of files whose names have a digest of their content."""


class BuiltFile(NamedTuple):
    body: bytes
    zipped: bytes
    media_type: str


class WebPages:
    """ASGI application: the pages, and beneath `/api/` the API.

    Args:
        hosts: names and addresses under which the server is reached, of the `Host` header; None: any. A page of
            another site whose name leads to this address (DNS rebinding) has that site's name there.
    """

    def __init__(self, api: ASGIApp, hosts: Collection[str] | None) -> None:
        self._api, self._hosts = api, None if hosts is None else {_plain(host) for host in hosts}
        self._files = built_files()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/api/"):
            await self._api(scope, receive, _guarded(send))
            return
        asked = dict(reversed(scope["headers"]))
        host = asked.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and _plain(_without_port(host)) not in self._hosts:
            hint = "start the server with --name and that name, or use the address that penstock ui prints"
            await _send_problem(send, 421, "wrong_host", f"this server is not known as '{host[:80]}'", hint)
        elif scope["method"] not in ("GET", "HEAD"):
            await _send_problem(send, 405, "method_not_allowed", "pages are only read")
        else:
            await self._send_file(scope["path"], asked, send, body=scope["method"] == "GET")

    async def _send_file(self, path: str, asked: Mapping[bytes, bytes], send: Send, *, body: bool) -> None:
        name = path.removeprefix("/")
        known = self._files.get(name) if name != INDEX else None
        depth = path.count("/") - 1
        if known is not None:
            fresh = KEPT_FOR_EVER if name.startswith("assets/") else "no-cache"
            await _send(send, known, {**HEADERS, "Cache-Control": fresh}, asked, body=body)
        elif name.startswith("assets/") or depth > DEPTH_MAX or INDEX not in self._files:
            text = "these pages were not built: make ui" if INDEX not in self._files else f"there is no '{path[:80]}'"
            await _send_problem(send, 404, "not_found", text)
        else:
            index = self._files[INDEX]
            root = b"../" * depth or b"./"
            page = _file(index.body.replace(ROOT, root), index.media_type)
            await _send(send, page, {**HEADERS, "Cache-Control": "no-cache"}, asked, body=body)


def built_files() -> dict[str, BuiltFile]:
    """Return the built pages by their paths."""
    found: dict[str, BuiltFile] = {}
    folders = [("", files("penstock.web") / "static")]
    while folders:
        prefix, folder = folders.pop()
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.is_dir():
                folders.append((f"{prefix}{entry.name}/", entry))
            else:
                kind = mimetypes.guess_type(entry.name)[0] or "application/octet-stream"
                found[prefix + entry.name] = _file(entry.read_bytes(), kind)
    return found


def _file(body: bytes, media_type: str) -> BuiltFile:
    zipped = gzip.compress(body, 9, mtime=0) if len(body) > SMALL_BYTES else b""
    text = media_type.startswith("text/") or media_type.endswith(("javascript", "json"))
    return BuiltFile(body, zipped, f"{media_type}; charset=utf-8" if text else media_type)


def _guarded(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *API_HEADERS]}
        await send(message)

    return guarded


async def _send(
    send: Send, file: BuiltFile, headers: Mapping[str, str], asked: Mapping[bytes, bytes], *, body: bool
) -> None:
    zipped = bool(file.zipped) and b"gzip" in asked.get(b"accept-encoding", b"")
    data = file.zipped if zipped else file.body
    extra = {"Content-Type": file.media_type, "Content-Length": str(len(data)), "Vary": "Accept-Encoding"}
    extra |= {"Content-Encoding": "gzip"} if zipped else {}
    await _send_answer(send, 200, {**headers, **extra}, data if body else b"")


async def _send_problem(send: Send, status: int, code: str, title: str, hint: str = "") -> None:
    data = msgspec.json.encode(ProblemDetails(title, status, code, hint=hint))
    extra = {"Content-Type": "application/problem+json", "Content-Length": str(len(data)), "Cache-Control": "no-store"}
    await _send_answer(send, status, {**HEADERS, **extra}, data)


async def _send_answer(send: Send, status: int, headers: Mapping[str, str], data: bytes) -> None:
    pairs: list[Any] = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": data})


def _without_port(host: str) -> str:
    """Return the name or address of a `Host` header."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _plain(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return host.lower().rstrip(".")
