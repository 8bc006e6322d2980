"""All objects of a cluster as the API server keeps them: versions, preconditions, finalizers, and a log to watch.

It knows no HTTP and no clock: one call is one request, decided at once. What kinds do beyond the usual (defaults,
checks, subresources) is in `kinds.py`.
"""

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.sim.apiserver.refusals import (
    absent_kind,
    already_exists,
    bad_request,
    conflict,
    expired,
    invalid,
    not_found,
)
from penstock.sim.apiserver.selecting import Matches, Object

LOG_MAX = 100_000
"""Events kept for watches, at most."""
FIRST_VERSION = 1_000
NAME_MAX = 253
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
Key = tuple[str, str]
"""Namespace (empty where the kind has none) and name."""


def copied(one: Object) -> Object:
    """Return a copy of an object; it has only what JSON has."""
    found: Object = msgspec.json.decode(msgspec.json.encode(one))
    return found


class Behaviour(Protocol):
    """What one kind does on writes. Each may change the object in place. Raises: Refused."""

    def create(self, one: Object, store: "Store") -> None: ...

    def update(self, one: Object, old: Object, store: "Store") -> None: ...

    def gone_at_once(self, one: Object) -> bool:
        """Return whether a deleted object is gone at once; else its kubelet or controller ends it."""
        ...


class Plain:
    """No more than every kind does."""

    def create(self, one: Object, store: "Store") -> None:
        """Nothing is filled in."""

    def update(self, one: Object, old: Object, store: "Store") -> None:
        """Everything may change."""

    def gone_at_once(self, one: Object) -> bool:
        return True


class Kind(NamedTuple):
    group: str
    version: str
    plural: str
    name: str
    namespaced: bool
    behaviour: Behaviour
    has_status: bool = True
    """Whether it has a status subresource: then other writes leave its status as it was."""
    status_at_create: bool = False
    """A creation may bring a status all the same, as the kubelet's of its node does."""

    @property
    def custom(self) -> bool:
        """Whether a definition of the cluster's made it: then nothing but the version is compared of its status."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class Change(NamedTuple):
    """One entry of the log."""

    version: int
    kind: Kind
    type: str
    new: Object
    old: Object | None


Listener = Callable[[Change], None]


class Store:
    """The objects, and what happened to them.

    Args:
        now: gives the time for timestamps, as `2026-11-24T09:00:00Z`.
    """

    def __init__(self, kinds: Mapping[tuple[str, str], Kind], now: Callable[[], str]) -> None:
        self.kinds, self.now = dict(kinds), now
        self.version = FIRST_VERSION
        self._objects: dict[str, dict[Key, Object]] = {}
        self._log: deque[Change] = deque(maxlen=LOG_MAX)
        self.oldest = self.version
        """Watches can begin at this version and later."""
        self.listeners: list[Listener] = []
        self._uids = 0

    def all_of(self, plural: str) -> dict[Key, Object]:
        """Return the objects of a kind; not to be changed."""
        return self._objects.setdefault(plural, {})

    def kind(self, group: str, plural: str) -> Kind:
        found = self.kinds.get((group, plural))
        if found is None:
            raise absent_kind()
        return found

    # Reads.

    def get(self, kind: Kind, key: Key) -> Object:
        found = self.all_of(kind.plural).get(key)
        if found is None:
            raise not_found(kind.plural, key[1])
        return found

    def select(self, kind: Kind, namespace: str, matches: Matches) -> Iterator[Object]:
        for key, one in sorted(self.all_of(kind.plural).items()):
            if (not namespace or key[0] == namespace) and matches(one):
                yield one

    def select_at(self, version: int, kind: Kind, namespace: str, matches: Matches) -> list[Object]:
        """Return what was selected at a version. Raises: Refused (410) when that is no longer known."""
        if version < self.oldest:
            raise expired(version, self.oldest)
        objects = dict(self.all_of(kind.plural))
        for change in reversed(self._log):
            if change.version <= version:
                break
            if change.kind is kind:
                key = _key_of(change.new)
                if change.old is None:
                    objects.pop(key, None)
                else:
                    objects[key] = change.old
        return [one for key, one in sorted(objects.items()) if (not namespace or key[0] == namespace) and matches(one)]

    def since(self, kind: Kind, version: int) -> list[Change]:
        """Return what happened to a kind after `version`. Raises: Refused (410) when that is no longer known."""
        if version < self.oldest:
            raise expired(version, self.oldest)
        found: list[Change] = []
        for change in reversed(self._log):
            if change.version <= version:
                break
            if change.kind is kind:
                found.append(change)
        return found[::-1]

    def compact(self) -> None:
        """Forget what happened so far, as etcd does every five minutes."""
        self.oldest = self.version
        self._log.clear()

    # Writes.

    def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        one = copied(body)
        meta = one.setdefault("metadata", {})
        if kind.namespaced and meta.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        self._uids += 1
        if not meta.get("name"):
            if not meta.get("generateName"):
                raise invalid(kind.name, "", "metadata.name", "Required value: name or generateName is required")
            meta["name"] = f"{meta['generateName']}{self._uids:05x}"
        key = _key_of(one)
        _check_name(kind, key[1])
        if key in self.all_of(kind.plural):
            raise already_exists(kind.plural, key[1])
        one["apiVersion"], one["kind"] = kind.api_version, kind.name
        meta.update(uid=f"uid-{self._uids:08d}", creationTimestamp=self.now(), generation=1)
        meta.pop("resourceVersion", None)
        if kind.has_status and not kind.status_at_create:
            one.pop("status", None)
        kind.behaviour.create(one, self)
        self._keep(kind, key, one, None)
        return one

    def update(
        self, kind: Kind, key: Key, change: Callable[[Object], Object], *, part: str = "", **preconditions: str
    ) -> Object:
        """Replace an object by what `change` makes of a copy of it.

        Args:
            part: `status` changes the status alone; '' everything else; `resize` also what its containers ask for;
                '*' all of it.
            preconditions: `uid` and `resourceVersion` that the object must have.
        """
        old = self.get(kind, key)
        required(kind, old, preconditions)
        new = change(copied(old))
        asked = new["metadata"].get("resourceVersion") or old["metadata"]["resourceVersion"]
        if asked != old["metadata"]["resourceVersion"]:
            raise conflict(kind.plural, key[1], "the object has been modified; please apply your changes to the latest")
        if part == "status":
            if not kind.custom:
                _check_uid(kind, new, old)
            managed = new["metadata"].get("managedFields")
            new = {**copied(old), "status": new.get("status", {})}
            if managed:
                new["metadata"]["managedFields"] = managed
        elif kind.has_status and part != "*":
            new["status"] = copied(old.get("status", {}))
        _check_identity(kind, new, old)
        if part not in ("*", "resize"):
            kind.behaviour.update(new, old, self)
        if new == old:
            return old  # a write that changes nothing makes no new version
        if {k: v for k, v in new.items() if k not in ("metadata", "status")} != {
            k: v for k, v in old.items() if k not in ("metadata", "status")
        }:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        leaving = new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers")
        if leaving and kind.behaviour.gone_at_once(new):
            return self._remove(kind, key, new)
        self._keep(kind, key, new, old)
        return new

    def delete(self, kind: Kind, key: Key, grace_s: int | None = None, **preconditions: str) -> Object:
        """Delete an object, or mark it where a finalizer or a kubelet has to let go of it first."""
        old = self.get(kind, key)
        required(kind, old, preconditions)
        new = copied(old)
        meta = new["metadata"]
        if not meta.get("deletionTimestamp"):
            default_s = new.get("spec", {}).get("terminationGracePeriodSeconds", 0) if grace_s is None else grace_s
            self._grant(meta, 0 if kind.behaviour.gone_at_once(new) else default_s)
        elif grace_s is not None and grace_s < meta["deletionGracePeriodSeconds"]:
            self._grant(meta, grace_s)
        at_once = meta["deletionGracePeriodSeconds"] == 0 or kind.behaviour.gone_at_once(new)
        if at_once and not meta.get("finalizers"):
            return self._remove(kind, key, new)
        self._keep(kind, key, new, old)
        return new

    def _grant(self, meta: Object, grace_s: int) -> None:
        """Note when what is deleted has to be gone."""
        ends = datetime.strptime(self.now(), _TIME) + timedelta(seconds=grace_s)  # noqa: DTZ007 - it stays text
        meta.update(deletionTimestamp=ends.strftime(_TIME), deletionGracePeriodSeconds=grace_s)

    @contextlib.contextmanager
    def undone(self) -> Iterator[None]:
        """Carry out what follows without any trace, as a dry run."""
        objects = {plural: dict(found) for plural, found in self._objects.items()}
        before = self.version, self._uids, len(self._log), self.listeners
        self.listeners = []
        try:
            yield
        finally:
            self._objects = objects
            self.version, self._uids, length, self.listeners = before
            while len(self._log) > length:
                self._log.pop()

    def _keep(self, kind: Kind, key: Key, one: Object, old: Object | None) -> None:
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        self.all_of(kind.plural)[key] = one
        self._tell(Change(self.version, kind, "ADDED" if old is None else "MODIFIED", one, old))

    def _remove(self, kind: Kind, key: Key, one: Object) -> Object:
        self.version += 1
        old = self.all_of(kind.plural).pop(key)
        one["metadata"]["resourceVersion"] = str(self.version)
        self._tell(Change(self.version, kind, "DELETED", one, old))
        return one

    def _tell(self, change: Change) -> None:
        if len(self._log) == LOG_MAX:
            self.oldest = self._log[0].version
        self._log.append(change)
        for listener in tuple(self.listeners):
            listener(change)


def required(kind: Kind, old: Object, preconditions: Mapping[str, str]) -> None:
    """Check `uid` and `resourceVersion`, as far as they are named. Raises: Refused (409)."""
    for field, wanted in preconditions.items():
        has = old["metadata"][field]
        if wanted and wanted != has:
            raise conflict(kind.plural, old["metadata"]["name"], f"Precondition failed: {field}: {wanted}, is {has}")


def passed_s(since: str | None, now: str) -> float:
    """Return how long ago a time was; a time that was never said was long ago."""
    if not since:
        return float("inf")
    both = [datetime.strptime(text, _TIME) for text in (since, now)]  # noqa: DTZ007 - they are compared alone
    return (both[1] - both[0]).total_seconds()


def _key_of(one: Object) -> Key:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


def _check_name(kind: Kind, name: str) -> None:
    if len(name) > NAME_MAX or not _NAME.fullmatch(name):
        raise invalid(kind.name, name, "metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 subdomain')


def _check_uid(kind: Kind, new: Object, old: Object) -> None:
    asked, uid = new["metadata"].get("uid"), old["metadata"]["uid"]
    if asked and asked != uid:
        text = f'Invalid value: "{asked}": field is immutable'
        raise invalid(kind.name, old["metadata"]["name"], "metadata.uid", text)


def _check_identity(kind: Kind, new: Object, old: Object) -> None:
    """Keep what never changes of an object's metadata. Raises: Refused (422)."""
    _check_uid(kind, new, old)
    meta, before = new["metadata"], old["metadata"]
    if before.get("deletionTimestamp") and {*(meta.get("finalizers") or ())} - {*(before.get("finalizers") or ())}:
        text = "Forbidden: no new finalizers can be added if the object is being deleted"
        raise invalid(kind.name, before["name"], "metadata.finalizers", text)
    for field in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation",
                  "deletionGracePeriodSeconds", "resourceVersion"):  # fmt: skip
        if field in before:
            meta[field] = before[field]
        else:
            meta.pop(field, None)


def seen_by(change: Change, namespace: str, matches: Matches) -> tuple[str, Object] | None:
    """Return what a watch with these selectors sees of a change; None: nothing.

    An object that begins to match is added for the watch, one that no longer matches is deleted, as it was last.
    """
    if namespace and change.new["metadata"].get("namespace", "") != namespace:
        return None
    was = change.old is not None and matches(change.old)
    matched = change.type != "DELETED" and matches(change.new)
    if matched:
        return ("MODIFIED" if was else "ADDED"), change.new
    if not was:
        return None
    if change.type == "DELETED":
        return "DELETED", change.new
    assert change.old is not None
    meta = {**change.old["metadata"], "resourceVersion": change.new["metadata"]["resourceVersion"]}
    return "DELETED", {**change.old, "metadata": meta}


def merged(old: Any, patch: Any) -> Any:
    """Return a value after a merge patch. Source: RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


MERGE_KEYS = {"conditions": "type", "containers": "name", "tolerations": "", "finalizers": "", "taints": "key",
              "ownerReferences": "uid", "addresses": "type"}  # fmt: skip
"""Lists that a strategic merge patch merges: by which field of their items; '': as a set."""


def strategically_merged(old: Any, patch: Any, field: str = "") -> Any:
    """Return a value after a strategic merge patch, for the lists in `MERGE_KEYS`; other lists are replaced."""
    if isinstance(patch, list) and field in MERGE_KEYS and isinstance(old, list):
        key, found = MERGE_KEYS[field], list(old)
        for item in patch:
            at = [i for i, one in enumerate(found) if (one.get(key) == item.get(key) if key else one == item)]
            if at:
                found[at[0]] = strategically_merged(found[at[0]], item)
            else:
                found.append(item)
        return found
    if not isinstance(patch, dict):
        return patch
    found_map = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            found_map.pop(name, None)
        else:
            found_map[name] = strategically_merged(found_map.get(name), value, name)
    return found_map
