"""A copy of all objects of one kind, kept current by a list and a watch.

A lost delete would leave a ghost on a node for ever, so a list is always compared with the copy: what it lacks is
removed. The copy never goes back: of one object only newer versions are taken in, whether they come from the watch,
from a list or from a write of our own (`wrote`), which is known at once, before the watch repeats it.

Resource versions are compared as numbers, as the API promises (KEP-5504) and every server since etcd 3 has done. Source
for the order of list and watch: KEP-3157 (streaming lists), and client-go's reflector.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from penstock.engines.kubernetes.api.client import Client, Kind, refusal
from penstock.engines.kubernetes.api.errors import Busy, Denied, Expired, KubernetesError, Rejected, Unavailable
from penstock.engines.kubernetes.objects.answers import AnyObject, WatchEvent
from penstock.engines.kubernetes.objects.common import Metadata

log = logging.getLogger(__name__)

WATCH_S = (300, 600)
"""A watch is asked for a random time between these, so that watches of many clients do not all end at once."""
BACKOFF_S = (0.5, 30.0)
"""Wait after the first failure, doubled with each; and the longest."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class HasMetadata(Protocol):
    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=HasMetadata)
Changed = TypeVar("Changed", bound=HasMetadata, contravariant=True)


class Sink(Protocol[Changed]):
    """Hears of each change, in order, on the reflector's loop; must not wait."""

    def changed(self, old: Changed | None, new: Changed) -> None:
        """An object is new, or another than before."""
        ...

    def removed(self, old: Changed) -> None:
        """An object is gone."""
        ...

    def listed(self) -> None:
        """The copy is whole: after the first list, and after each later one."""
        ...


class CallSink(Generic[T]):
    """A sink that calls these."""

    def __init__(self, changed: Callable[[T], None], removed: Callable[[T], None], listed: Callable[[], None]) -> None:
        self._changed, self._removed, self.listed = changed, removed, listed

    def changed(self, old: T | None, new: T) -> None:
        self._changed(new)

    def removed(self, old: T) -> None:
        self._removed(old)


class ChangeSink(Generic[T]):
    """A sink that calls one function with an object as it was and as it is; None: it was not there, or is gone."""

    def __init__(self, changed: Callable[[T | None, T | None], None], listed: Callable[[], None]) -> None:
        self._changed, self.listed = changed, listed

    def changed(self, old: T | None, new: T) -> None:
        self._changed(old, new)

    def removed(self, old: T) -> None:
        self._changed(old, None)


class _Dropped(Exception):
    """The watch ended as it should: begin the next one where it stopped."""


class Reflector(Generic[T]):
    """Keeps `objects`, by namespace and name.

    Args:
        query: selectors, such as `fieldSelector`.
        namespace: of the objects; empty: all.
        draw: spreads requests in time.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        into: type[T],
        sink: Sink[T],
        *,
        query: Mapping[str, str] | None = None,
        namespace: str = "",
        draw: random.Random | None = None,
    ) -> None:
        self._client, self._kind, self._sink = client, kind, sink
        self._path = kind.path(namespace)
        self._query = dict(query or {})
        self._decoder = msgspec.json.Decoder(into)
        self._draw = draw or random.Random()  # noqa: S311 - no secret
        self._streams = True
        """Whether the server is asked for a list as a stream; off once it has refused."""
        self.objects: dict[tuple[str, str], T] = {}
        self.version = 0
        """Everything up to this resource version is in the copy."""
        self.whole = False
        self.denied = False
        """The credentials do not suffice: the copy is empty, or stays as it was."""
        self.lists = 0
        """How often everything was listed."""

    async def run(self) -> None:
        """List and watch until cancelled."""
        wait_s = 0.0
        while True:
            try:
                await self._once()
            except _Dropped:
                wait_s = 0.0
                continue
            except Expired:
                log.info("the watch is too far behind: listing anew", extra={"kind": self._kind.plural})
                self.whole, wait_s = False, wait_s or BACKOFF_S[0]
            except KubernetesError as error:
                if isinstance(error, Denied) and not self.denied:
                    self.denied = True
                    self._sink.listed()
                wait_s = min(BACKOFF_S[1], 2 * wait_s or BACKOFF_S[0])
                if isinstance(error, Busy):
                    wait_s = max(wait_s, error.retry_after_s)
                log.warning(
                    "the API server gives no watch", extra={"kind": self._kind.plural, "problem": error.message}
                )
            await asyncio.sleep(wait_s * self._draw.uniform(0.5, 1.0))

    async def _once(self) -> None:
        if self.whole:
            await self._follow(resourceVersion=str(self.version))
            raise _Dropped
        if self._streams:
            try:
                await self._follow_from_list()
            except Rejected:
                self._streams = False  # a server before 1.32, or one that has it switched off
            except Unavailable as error:
                if not error.status:
                    raise
                # it answers, and cannot: as one from 1.32 on whose etcd is older than 3.4.31 or 3.5.13
        await self._list()
        await self._follow(resourceVersion=str(self.version))
        raise _Dropped

    async def _list(self) -> None:
        """Take in all pages; nothing is removed before the last one is here."""
        seen: set[tuple[str, str]] = set()
        following, version = "", 0
        while True:
            page = await self._client.page(self._path, following, **self._query)
            for raw in page.items:
                seen.add(self._take_read(*self._read(raw)))
            following, version = page.following, version or int(page.resource_version)
            if not following:
                break
        self._listed(seen, version)

    def _listed(self, seen: set[tuple[str, str]], version: int) -> None:
        """End a list: remove what it lacks, unless a write of our own is newer than the list."""
        for key in [key for key in self.objects if key not in seen]:
            if _version(self.objects[key]) <= version:
                self._sink.removed(self.objects.pop(key))
        self.version, self.whole, self.denied = max(self.version, version), True, False
        self.lists += 1
        self._sink.listed()

    async def _follow_from_list(self) -> None:
        """Watch from a streamed list on. Raises: Rejected where the server has no such lists; _Dropped."""
        seen: set[tuple[str, str]] | None = set()
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
        async for event, raw in self._events(**query):
            if event == "BOOKMARK":
                mark = msgspec.json.decode(raw, type=AnyObject).metadata
                if seen is not None and INITIAL_EVENTS_END in mark.annotations:
                    self._listed(seen, int(mark.resource_version))
                    seen = None
                elif seen is None:
                    self.version = max(self.version, int(mark.resource_version))
                continue
            if seen is None:
                self._apply(event, raw)
            else:
                seen.add(self._take_read(*self._read(raw)))
        raise _Dropped

    async def _follow(self, **query: str) -> None:
        async for event, raw in self._events(**query):
            if event == "BOOKMARK":
                self.version = max(
                    self.version, int(msgspec.json.decode(raw, type=AnyObject).metadata.resource_version)
                )
            else:
                self._apply(event, raw)

    async def _events(self, **query: str) -> AsyncIterator[tuple[str, msgspec.Raw]]:
        asked = {**self._query, **query, "timeoutSeconds": str(self._draw.randint(*WATCH_S))}
        lines = self._client.watch(self._path, **asked)
        async for line in lines:
            if not line:
                continue
            event = msgspec.json.decode(line, type=WatchEvent)
            if event.type == "ERROR":
                raise refusal(0, bytes(event.object), f"watch of {self._kind.plural}")
            yield event.type, event.object

    def _apply(self, event: str, raw: msgspec.Raw) -> None:
        about, one = self._read(raw)
        if event == "DELETED":
            key = _key(about)
            known = self.objects.get(key)
            if known is not None and (_version(known) <= _version(about)):
                self._sink.removed(self.objects.pop(key))
        else:
            self._take_read(about, one)
        self.version = max(self.version, _version(about))

    def _read(self, raw: msgspec.Raw) -> tuple[HasMetadata, T | None]:
        """Return what an object is about, and the object; None for one that cannot be read."""
        try:
            one = self._decoder.decode(raw)
        except msgspec.MsgspecError as error:
            about = msgspec.json.decode(raw, type=AnyObject)
            problem = {"kind": self._kind.plural, "object": about.metadata.key, "problem": str(error)}
            log.warning("an object cannot be read", extra=problem)
            return about, None
        return one, one

    def _take_read(self, about: HasMetadata, one: T | None) -> tuple[str, str]:
        """Take in an object; one that cannot be read stays as it was known: the others do not suffer from it."""
        return self._take(one) if one is not None else _key(about)

    def wrote(self, one: T) -> None:
        """Take in what the API server answered to a write of our own.

        It is ignored where the watch is further already: the object may be gone by now.
        """
        if _version(one) > self.version:
            self._take(one)

    def _take(self, one: T) -> tuple[str, str]:
        """Take in an object unless it is known as new or newer, and return its key."""
        key = _key(one)
        known = self.objects.get(key)
        if known is not None and known.metadata.uid != one.metadata.uid and _version(known) < _version(one):
            self._sink.removed(self.objects.pop(key))  # deleted and created anew in between
            known = None
        if known is None or _version(known) < _version(one):
            self.objects[key] = one
            self._sink.changed(known, one)
        return key


def _key(one: HasMetadata) -> tuple[str, str]:
    return one.metadata.namespace, one.metadata.name


def _version(one: HasMetadata) -> int:
    return int(one.metadata.resource_version)
