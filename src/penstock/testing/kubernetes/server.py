"""The HTTP face of the store: paths, lists in pages, watches with bookmarks, patches; and faults for tests."""

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aiohttp import web

from penstock.testing.kubernetes.kinds import bind, evict, usual_kinds
from penstock.testing.kubernetes.refusals import Refused, bad_request, expired
from penstock.testing.kubernetes.selecting import Matches, Object, matcher
from penstock.testing.kubernetes.store import Change, Key, Kind, Store, merged, seen_by, strategically_merged

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[0-9][^/]*)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)


class Fault(NamedTuple):
    """An answer that a test wants instead of the usual one.

    Args:
        path: a regular expression that the path contains.
        times: of how many requests.
        carried_out: the request is carried out before, and its answer lost.
    """

    method: str
    path: str
    status: int
    times: int = 1
    retry_after: str = ""
    carried_out: bool = False


class Seen(NamedTuple):
    """One request, for tests that count them."""

    method: str
    path: str
    query: dict[str, str]


class ApiServer:
    """A cluster's API server on loopback, in the loop that starts it.

        async with ApiServer() as server:
            Access(server.url, FixedToken())

    Args:
        streams: it serves lists as streams (`sendInitialEvents`), as from 1.32 on.
        bookmark_s: a watch gets a bookmark this often.
        now: gives the time for timestamps.
    """

    def __init__(self, *, streams: bool = True, bookmark_s: float = 60.0, now: Callable[[], str] | None = None) -> None:
        self.store = Store(usual_kinds(), now or (lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        self.streams, self.bookmark_s = streams, bookmark_s
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.tokens: set[str] = set()
        """Accepted bearer tokens; none: everybody is heard."""
        self.url = ""
        self._watches: set[asyncio.Task[None]] = set()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "ApiServer":
        app = web.Application(client_max_size=2**22)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut_watches()
        assert self._runner is not None
        await self._runner.cleanup()

    def cut_watches(self) -> None:
        """End every watch without a word, as a network does."""
        for task in tuple(self._watches):
            task.cancel()

    @property
    def watching(self) -> int:
        """Watches that are open."""
        return len(self._watches)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(Seen(request.method, request.path, dict(request.query)))
        fault = self._fault(request)
        try:
            if self.tokens and request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
                raise Refused(401, "Unauthorized", "Unauthorized")
            if fault is not None and not fault.carried_out:
                return _injected(fault)
            match = _PATH.fullmatch(request.path)
            if match is None:
                raise Refused(404, "NotFound", "the server could not find the requested resource")
            kind = self.store.kind(match["group"] or "", match["plural"])
            if request.method == "GET" and not match["name"] and request.query.get("watch") in ("1", "true"):
                return await self._watch(request, kind, match["namespace"] or "")
            told = await self._told(request, kind, match["namespace"] or "", match["name"] or "", match["sub"] or "")
        except Refused as refused:
            headers = {"Retry-After": str(s)} if (s := refused.details.get("retryAfterSeconds")) else {}
            return web.json_response(refused.status(), status=refused.code, headers=headers)
        if fault is not None:
            return _injected(fault)
        return web.json_response(told, status=201 if request.method == "POST" else 200)

    def _fault(self, request: web.Request) -> Fault | None:
        for at, fault in enumerate(self.faults):
            if fault.method == request.method and re.search(fault.path, request.path):
                if fault.times > 1:
                    self.faults[at] = fault._replace(times=fault.times - 1)
                else:
                    del self.faults[at]
                return fault
        return None

    async def _told(self, request: web.Request, kind: Kind, namespace: str, name: str, part: str) -> Object:
        key = (namespace, name)
        match request.method:
            case "GET":
                return self.store.get(kind, key) if name else self._list(request, kind, namespace)
            case "POST":
                body = await _body(request)
                if part == "binding":
                    body.setdefault("metadata", {}).setdefault("name", name)
                    bind(self.store, kind, namespace, body)
                elif part == "eviction":
                    evict(self.store, kind, namespace, name, body)
                elif part or name:
                    raise Refused(405, "MethodNotAllowed", "the server does not allow this method")
                else:
                    return self.store.create(kind, namespace, body)
                return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
            case "PUT":
                body = await _body(request)
                return self.store.update(kind, key, lambda _: body, part=part)
            case "PATCH":
                return await self._patch(request, kind, key, part)
            case "DELETE":
                options = await _body(request) if request.can_read_body else {}
                return self.store.delete(
                    kind, key, options.get("gracePeriodSeconds"), **(options.get("preconditions") or {})
                )
            case method:
                raise Refused(405, "MethodNotAllowed", f"the server does not allow {method}")

    async def _patch(self, request: web.Request, kind: Kind, key: Key, part: str) -> Object:
        patch, content = await _body(request), request.content_type
        if content == "application/merge-patch+json":
            return self.store.update(kind, key, lambda old: merged(old, patch), part=part)
        if content == "application/strategic-merge-patch+json":
            return self.store.update(kind, key, lambda old: strategically_merged(old, patch), part=part)
        raise Refused(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content}")

    def _list(self, request: web.Request, kind: Kind, namespace: str) -> Object:
        query = request.query
        found = list(self.store.select(kind, namespace, _matcher(request)))
        version, first = self.store.version, 0
        if query.get("continue"):
            try:
                first, version = json.loads(base64.urlsafe_b64decode(query["continue"]))
            except ValueError:
                raise bad_request("continue key is not valid") from None
            if version < self.store.oldest:
                raise expired(version, self.store.oldest)
        most = int(query.get("limit") or 0) or len(found)
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if first + most < len(found):
            meta["continue"] = base64.urlsafe_b64encode(json.dumps([first + most, version]).encode()).decode()
        items = found[first : first + most]
        return {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": meta, "items": items}

    async def _watch(self, request: web.Request, kind: Kind, namespace: str) -> web.StreamResponse:
        matches, query = _matcher(request), request.query
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.streams:
            raise Refused(422, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        task = asyncio.ensure_future(self._stream(answer, kind, namespace, matches, query, initial=initial))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await task
        return answer

    async def _stream(
        self, answer: web.StreamResponse, kind: Kind, namespace: str, matches: Matches, query: Any, *, initial: bool
    ) -> None:
        async def say(event: str, one: Object) -> None:
            await answer.write(json.dumps({"type": event, "object": one}).encode() + b"\n")

        def bookmark(version: int, **annotations: str) -> Object:
            meta: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
            return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {**meta, "annotations": annotations}}

        version = int(query.get("resourceVersion") or 0)
        if initial or not version:
            version, first = self.store.version, list(self.store.select(kind, namespace, matches))
            for one in first:
                await say("ADDED", one)
            if initial:
                await say("BOOKMARK", bookmark(version, **{INITIAL_EVENTS_END: "true"}))
        ends = asyncio.get_running_loop().time() + float(query.get("timeoutSeconds") or 1800)
        async for change in self._changes(kind, version, ends):
            if isinstance(change, Refused):
                await say("ERROR", change.status())
                return
            if isinstance(change, int):
                await say("BOOKMARK", bookmark(change))
            elif (seen := seen_by(change, namespace, matches)) is not None:
                await say(*seen)

    async def _changes(self, kind: Kind, version: int, ends: float) -> AsyncIterator[Change | Refused | int]:
        """Yield what happens to a kind after `version`; a version alone when a bookmark is due."""
        news, loop = asyncio.Event(), asyncio.get_running_loop()

        def hear(change: Change) -> None:
            if change.kind is kind:
                news.set()

        self.store.listeners.append(hear)
        try:
            due = loop.time() + self.bookmark_s
            while loop.time() < ends:
                news.clear()
                upto = self.store.version
                try:
                    changes = self.store.since(kind, version)
                except Refused as refused:
                    yield refused
                    return
                for change in changes:
                    yield change
                version = upto
                if loop.time() >= due:
                    due = loop.time() + self.bookmark_s
                    yield version
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), max(0.0, min(due, ends) - loop.time()))
        finally:
            self.store.listeners.remove(hear)


def _matcher(request: web.Request) -> Matches:
    return matcher(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))


async def _body(request: web.Request) -> Object:
    try:
        found = json.loads(await request.read())
    except ValueError:
        raise bad_request("the request body is no JSON") from None
    if not isinstance(found, dict):
        raise bad_request("the request body is no object")
    return found


def _injected(fault: Fault) -> web.Response:
    headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
    body = {"kind": "Status", "status": "Failure", "message": "a fault that the test asked for", "code": fault.status}
    return web.json_response(body, status=fault.status, headers=headers)
