"""What all kinds of objects have in common: metadata, conditions, selectors."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

Amounts = dict[str, str | int | float]
"""Quantities by resource; clients may write plain numbers without quotes."""


class Wire(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """Base of all: fields in camel case on the wire, absent where they have their default."""


class OwnerReference(Wire, frozen=True):
    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


class Metadata(Wire, frozen=True):
    """`metadata` of any object; `managedFields` is never kept."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Namespace and name, as people write them."""
        return f"{self.namespace}/{self.name}"

    @property
    def controller(self) -> OwnerReference | None:
        """The object whose controller made this one, and makes it anew; None where there is none."""
        return next((owner for owner in self.owner_references if owner.controller), None)


def as_known(meta: Metadata) -> dict[str, str]:
    """Return what a write names so that it is refused where the object is another one, or has changed since."""
    return {"uid": meta.uid, "resourceVersion": meta.resource_version}


class ListMetadata(Wire, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


def timestamp() -> str:
    """Return the time now as fields of objects have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Condition(Wire, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class Requirement(Wire, frozen=True):
    """One entry of `matchExpressions` or `matchFields`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    """All of it must hold; an empty one selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether it selects an object with these labels; an unknown operator selects nothing."""
        if any(labels.get(key) != value for key, value in self.match_labels.items()):
            return False
        return all(_holds(one, labels) for one in self.match_expressions)

    def __str__(self) -> str:
        parts = [f"{key}={value}" for key, value in sorted(self.match_labels.items())]
        for one in self.match_expressions:
            values = f" ({', '.join(one.values)})" if one.values else ""
            parts.append(f"{one.key} {one.operator}{values}")
        return ", ".join(parts) or "any label"


def _holds(one: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(one.key)
    match one.operator:
        case "In":
            return value is not None and value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
