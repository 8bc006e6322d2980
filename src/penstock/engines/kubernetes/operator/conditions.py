"""Conditions of our own objects, with the time of their last change and the generation that they are about."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import msgspec

from penstock.engines.kubernetes.objects.common import Condition, Metadata


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
        time = before.last_transition_time if before is not None and same else _now()
        found.append(Condition(kind, status, reason, message, time, one.metadata.generation))
    return tuple(found)


def alike(wanted: msgspec.Struct, known: msgspec.Struct) -> bool:
    """Return whether two statuses say the same, whenever their conditions began."""

    def plain(status: msgspec.Struct) -> tuple[msgspec.Struct, list[tuple[str, str, str, str]]]:
        kept: tuple[Condition, ...] = status.conditions  # type: ignore[attr-defined]
        told = [(one.type, one.status, one.reason, one.message) for one in kept]
        return msgspec.structs.replace(status, conditions=()), told

    return plain(wanted) == plain(known)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
