"""What the API server answers, without HTTP: paths, lists in pages, watches with bookmarks, patches; and faults."""

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from penstock.sim.apiserver.applying import Manager, apply, noting
from penstock.sim.apiserver.definitions import Defined, scale_of, scaled
from penstock.sim.apiserver.kinds import bind, evict, usual_kinds
from penstock.sim.apiserver.pods import NOT_READY
from penstock.sim.apiserver.refusals import Refused, absent_kind, bad_request
from penstock.sim.apiserver.selecting import Matches, Object, matcher
from penstock.sim.apiserver.store import Change, Key, Kind, Store, merged, seen_by, strategically_merged

BOOKMARK_EARLY_S = 2.0
"""A watch gets a last bookmark this long before it ends."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[0-9][^/]*)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
_VERSION_PATH = re.compile(r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[0-9][^/]*)")


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


class Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes = b""
    content: str = "application/json"
    token: str = ""


class Answer(NamedTuple):
    status: int
    body: Object
    retry_after: str = ""


class Seen(NamedTuple):
    """One request, for tests that count them."""

    method: str
    path: str
    query: dict[str, str]


class Api:
    """The objects of one cluster, and what is answered about them.

    Args:
        streams: it serves lists as streams (`sendInitialEvents`), as from 1.32 on.
        old_etcd: it would, but for its etcd (older than 3.4.31 or 3.5.13), and says so as an event of the stream.
        bookmark_s: a watch gets a bookmark this often.
        now: gives the time for timestamps.
    """

    def __init__(
        self,
        *,
        streams: bool = True,
        old_etcd: bool = False,
        bookmark_s: float = 60.0,
        now: Callable[[], str] | None = None,
    ) -> None:
        self.store = Store(usual_kinds(), now or (lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        self.streams, self.old_etcd, self.bookmark_s = streams, old_etcd, bookmark_s
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self._created = False
        """What was asked last made an object."""
        self.tokens: set[str] = set()
        """Accepted bearer tokens; none: everybody is heard."""

    def answer(self, request: Request) -> Answer:
        """Carry out one request that is no watch."""
        self.seen.append(Seen(request.method, request.path, dict(request.query)))
        fault, self._created = self._fault(request), request.method == "POST"
        try:
            self._admit(request)
            if fault is not None and not fault.carried_out:
                return _injected(fault)
            told = self._told(request)
        except Refused as refused:
            return Answer(refused.code, refused.status(), str(refused.details.get("retryAfterSeconds") or ""))
        if fault is not None:
            return _injected(fault)
        return Answer(201 if self._created else 200, told)

    def watched(self, request: Request) -> Kind:
        """Return the kind that a watch is for. Raises: Refused."""
        self.seen.append(Seen(request.method, request.path, dict(request.query)))
        self._admit(request)
        fault = self._fault(request)
        if fault is not None:
            asked_s = {"retryAfterSeconds": int(fault.retry_after)} if fault.retry_after else {}
            raise Refused(fault.status, "Fault", "a fault that the test asked for", **asked_s)
        kind, _ = self._kind(request.path)
        if request.query.get("sendInitialEvents") == "true" and not self.streams:
            raise Refused(422, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")
        _matcher(request)
        return kind

    def _admit(self, request: Request) -> None:
        if self.tokens and request.token not in self.tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")

    def _fault(self, request: Request) -> Fault | None:
        for at, fault in enumerate(self.faults):
            if fault.method == request.method and re.search(fault.path, request.path):
                if fault.times > 1:
                    self.faults[at] = fault._replace(times=fault.times - 1)
                else:
                    del self.faults[at]
                return fault
        return None

    def _kind(self, path: str) -> tuple[Kind, re.Match[str]]:
        match = _PATH.fullmatch(path)
        if match is None:
            raise absent_kind()
        kind = self.store.kind(match["group"] or "", match["plural"])
        if kind.version != match["version"]:
            raise absent_kind()
        return kind, match

    def _told(self, request: Request) -> Object:
        if request.method == "GET" and (version := _VERSION_PATH.fullmatch(request.path)):
            return self._resources(version["group"] or "", version["version"])
        kind, match = self._kind(request.path)
        namespace, name, part = match["namespace"] or "", match["name"] or "", match["sub"] or ""
        if part and part not in _parts(kind):
            raise absent_kind()
        if part == "scale":
            return self._scale(request, kind, (namespace, name))
        if request.method == "GET":
            return self.store.get(kind, (namespace, name)) if name else self._list(request, kind, namespace)
        body = _body(request)
        dry = request.query.get("dryRun") or ((body.get("deleteOptions") or {}).get("dryRun") or [""])[0]
        with self.store.undone() if dry else contextlib.nullcontext():
            return self._written(request, kind, (namespace, name), part, body)

    def _scale(self, request: Request, kind: Kind, key: Key) -> Object:
        if request.method == "GET":
            return scale_of(kind, self.store.get(kind, key))
        if request.method != "PATCH" or request.content != "application/merge-patch+json":
            raise Refused(405, "MethodNotAllowed", "of a scale, reads and merge patches are known here")
        return scaled(self.store, kind, key, _body(request))

    def _resources(self, group: str, version: str) -> Object:
        found = [kind for kind in self.store.kinds.values() if (kind.group, kind.version) == (group, version)]
        if not found:
            raise absent_kind()
        listed = [{"name": kind.plural, "kind": kind.name, "namespaced": kind.namespaced} for kind in found]
        return {"kind": "APIResourceList", "groupVersion": found[0].api_version, "resources": listed}

    def _written(self, request: Request, kind: Kind, key: Key, part: str, body: Object) -> Object:
        match request.method:
            case "POST":
                return self._posted(kind, key, part, body)
            case "PUT":
                wanted = (body.get("metadata") or {}).get("uid", "")
                return self._updated(request, kind, key, part, lambda _: body, wanted)
            case "PATCH":
                return self._patch(request, kind, key, part, body)
            case "DELETE":
                preconditions = body.get("preconditions") or {}
                return self.store.delete(kind, key, body.get("gracePeriodSeconds"), **preconditions)
            case method:
                raise Refused(405, "MethodNotAllowed", f"the server does not allow {method}")

    def _posted(self, kind: Kind, key: Key, part: str, body: Object) -> Object:
        namespace, name = key
        if part == "binding":
            body.setdefault("metadata", {}).setdefault("name", name)
            bind(self.store, kind, namespace, body)
        elif part == "eviction":
            evict(self.store, kind, namespace, name, body)
        elif part or name:
            raise Refused(405, "MethodNotAllowed", "the server does not allow this method")
        else:
            if kind.custom and body.get("kind") != kind.name:
                raise bad_request(f"the object provided is unrecognized (must be of type {kind.name})")
            if kind.plural == "nodes":  # an admission plugin's; a controller takes it away once the node is ready
                spec = body.setdefault("spec", {})
                spec["taints"] = [*(spec.get("taints") or ()), {"key": NOT_READY[0], "effect": "NoSchedule"}]
            return self.store.create(kind, namespace, body)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _patch(self, request: Request, kind: Kind, key: Key, part: str, patch: Object) -> Object:
        if request.content == "application/apply-patch+yaml":
            who, force = self._manager(request, part, "Apply"), request.query.get("force") == "true"
            found, self._created = apply(self.store, kind, key, patch, who, force=force)
            return found
        merge = {
            "application/merge-patch+json": merged, "application/strategic-merge-patch+json": strategically_merged,
        }.get(request.content)  # fmt: skip
        if merge is None:
            raise Refused(
                415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {request.content}"
            )
        return self._updated(request, kind, key, part, lambda old: merge(old, patch))

    def _updated(
        self, request: Request, kind: Kind, key: Key, part: str, change: Callable[[Object], Object], uid: str = ""
    ) -> Object:
        who = self._manager(request, part if part == "status" else "", "Update")
        return self.store.update(kind, key, noting(kind, change, who, self.store.now()), part=part, uid=uid)

    def _manager(self, request: Request, part: str, operation: str) -> Manager:
        return Manager(
            request.query.get("fieldManager") or ("" if operation == "Apply" else "unknown"), operation, part
        )

    def _list(self, request: Request, kind: Kind, namespace: str) -> Object:
        query, matches = request.query, _matcher(request)
        after, version = "", self.store.version
        if query.get("continue"):
            after, version = _begin(query["continue"])
        found = self.store.select_at(version, kind, namespace, matches)
        rest = [one for one in found if _place(one) > after]
        items = rest[: int(query.get("limit") or 0) or len(rest)]
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if len(items) < len(rest):
            meta["continue"] = _following(_place(items[-1]), version)
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                meta["remainingItemCount"] = len(rest) - len(items)
        return {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": meta, "items": items}

    async def watch(self, request: Request, kind: Kind) -> AsyncIterator[bytes]:
        """Yield the lines of a watch until its time is over."""
        match, query = _PATH.fullmatch(request.path), request.query
        assert match is not None, "`watched` has read the path"
        namespace, matches = match["namespace"] or "", _matcher(request)
        initial, version = query.get("sendInitialEvents") == "true", int(query.get("resourceVersion") or 0)
        if initial and self.old_etcd:
            text = "a watch stream was requested by the client but the required storage feature is disabled"
            yield _line("ERROR", Refused(500, "InternalError", text).status())
            return
        if initial or not version:
            version, first = self.store.version, list(self.store.select(kind, namespace, matches))
            for one in first:
                yield _line("ADDED", one)
            if initial:
                yield _line("BOOKMARK", _bookmark(kind, version, **{INITIAL_EVENTS_END: "true"}))
        ends = asyncio.get_running_loop().time() + float(query.get("timeoutSeconds") or 1800)
        async for change in self._changes(kind, version, ends):
            if isinstance(change, Refused):
                yield _line("ERROR", change.status())
                return
            if isinstance(change, int):
                yield _line("BOOKMARK", _bookmark(kind, change))
            elif (seen := seen_by(change, namespace, matches)) is not None:
                yield _line(*seen)

    async def _changes(self, kind: Kind, version: int, ends: float) -> AsyncIterator[Change | Refused | int]:
        """Yield what happens to a kind after `version`; a version alone when a bookmark is due."""
        news, loop = asyncio.Event(), asyncio.get_running_loop()

        def hear(change: Change) -> None:
            if change.kind is kind:
                news.set()

        self.store.listeners.append(hear)
        try:
            due = min(loop.time() + self.bookmark_s, ends - BOOKMARK_EARLY_S)
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
                with contextlib.suppress(TimeoutError):  # not `wait_for`: up to Python 3.11 it may drop a cancellation
                    async with asyncio.timeout_at(min(due, ends)):
                        await news.wait()
        finally:
            self.store.listeners.remove(hear)


def _parts(kind: Kind) -> tuple[str, ...]:
    """Return the subresources of a kind."""
    own: tuple[str, ...] = ("binding", "eviction", "resize") if kind.plural == "pods" else ()
    if isinstance(kind.behaviour, Defined) and kind.behaviour.scale is not None:
        own = ("scale",)
    return (*own, "status") if kind.has_status else own


def _place(one: Object) -> str:
    """Return an object's key in lists, which come by it."""
    return f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}"


def _following(place: str, version: int) -> str:
    """Return the token of the page after an object. Source: apiserver/pkg/storage/continue.go of Kubernetes."""
    token = {"v": "meta.k8s.io/v1", "rv": version, "start": f"{place}\0"}
    return base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")


def _begin(token: str) -> tuple[str, int]:
    """Return after which object a page begins, and its version. Raises: Refused (400)."""
    try:
        told = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return told["start"].removesuffix("\0"), told["rv"]
    except (ValueError, KeyError, TypeError):
        raise bad_request("continue key is not valid") from None


def _line(event: str, one: Object) -> bytes:
    return json.dumps({"type": event, "object": one}).encode()


def _bookmark(kind: Kind, version: int, **annotations: str) -> Object:
    meta: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {**meta, "annotations": annotations}}


def _matcher(request: Request) -> Matches:
    return matcher(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))


def _body(request: Request) -> Object:
    if not request.body:
        return {}
    try:
        found = json.loads(request.body)
    except ValueError:
        raise bad_request("the request body is no JSON") from None
    if not isinstance(found, dict):
        raise bad_request("the request body is no object")
    return found


def _injected(fault: Fault) -> Answer:
    body = {"kind": "Status", "status": "Failure", "message": "a fault that the test asked for", "code": fault.status}
    return Answer(fault.status, body, fault.retry_after)
