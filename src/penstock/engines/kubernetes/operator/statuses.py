"""Statuses of our own objects: conditions with the time of their last change, written where they say something new."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.api.errors import KubernetesError
from penstock.engines.kubernetes.binding import AnyWorkload
from penstock.engines.kubernetes.objects.common import Condition, Metadata, timestamp
from penstock.engines.kubernetes.tasks import Tasks

log = logging.getLogger(__name__)

WRITES_MAX = 8
"""Statuses that are written at a time."""
PAUSE_S = 0.5
"""An object whose status was written is left alone for so long: the watch shows it by then."""


class Told(NamedTuple):
    """A condition without its times."""

    status: str
    reason: str
    message: str


class _Status(Protocol):
    @property
    def conditions(self) -> tuple[Condition, ...]: ...


class WithConditions(Protocol):
    """An object whose status has conditions."""

    @property
    def metadata(self) -> Metadata: ...

    @property
    def status(self) -> _Status: ...


def conditions(one: WithConditions, told: Mapping[str, Told]) -> tuple[Condition, ...]:
    """Return conditions with their times: that of the last change of their status."""
    known = {condition.type: condition for condition in one.status.conditions}
    found = []
    for kind, (status, reason, message) in told.items():
        before = known.get(kind)
        same = before is not None and before.status == status
        time = before.last_transition_time if before is not None and same else timestamp()
        found.append(Condition(kind, status, reason, message, time, one.metadata.generation))
    return tuple(found)


def alike(wanted: msgspec.Struct, known: msgspec.Struct) -> bool:
    """Return whether two statuses say the same, whenever their conditions began."""

    def plain(status: msgspec.Struct) -> tuple[msgspec.Struct, list[tuple[str, str, str, str]]]:
        kept: tuple[Condition, ...] = status.conditions  # type: ignore[attr-defined]
        told = [(one.type, one.status, one.reason, one.message) for one in kept]
        return msgspec.structs.replace(status, conditions=()), told

    return plain(wanted) == plain(known)


class Statuses:
    """Writes statuses, of each object one at a time. Everything runs on the engine's loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._writing: set[str] = set()
        self._tasks = Tasks()

    def close(self) -> None:
        self._tasks.cancel()

    @property
    def full(self) -> bool:
        return len(self._writing) >= WRITES_MAX

    def busy(self, uid: str) -> bool:
        """Return whether the status of the object with this uid was written a moment ago."""
        return uid in self._writing

    def write(
        self, kind: Kind, one: WithConditions, status: msgspec.Struct, failed: Callable[[], None] | None = None
    ) -> None:
        """Write the status of an object that is not busy; `failed` hears where that did not succeed."""
        self._writing.add(one.metadata.uid)
        self._tasks.begin(self._patch(kind, one, status, failed))

    async def _patch(
        self, kind: Kind, one: WithConditions, status: msgspec.Struct, failed: Callable[[], None] | None
    ) -> None:
        meta = one.metadata
        path = kind.path(meta.namespace, meta.name, "status")
        # The version keeps an object of the same name, made anew, from it: a definition's statuses have no other check.
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": _body(one, status)}
        try:
            await self._client.patch(path, body, AnyWorkload)
            await asyncio.sleep(PAUSE_S)
        except KubernetesError as error:
            if failed is not None:
                failed()
            log.info("a status could not be written", extra={"path": path, "problem": error.message})
            await asyncio.sleep(2 * PAUSE_S)
        finally:
            self._writing.discard(meta.uid)


def _body(one: WithConditions, status: msgspec.Struct) -> dict[str, Any]:
    """Return a merge patch that leaves nothing of the former status: numbers that are 0, keys of maps that are gone."""
    body: dict[str, Any] = msgspec.to_builtins(status)
    for field in msgspec.structs.fields(type(status)):
        if field.default == 0:
            body.setdefault(field.encode_name, 0)
        known = getattr(one.status, field.name)
        if isinstance(known, dict):
            body[field.encode_name] = {**dict.fromkeys(known), **body.get(field.encode_name, {})}
    return body
