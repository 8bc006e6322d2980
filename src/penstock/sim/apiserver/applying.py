"""Server-side apply: who manages which fields of an object, which of them are in conflict, and what an apply makes.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/. An object's fields are paths, written as in
`fieldsV1`: `f:NAME` of a map, `k:{...}` of a list by its keys, `v:VALUE` of a set; any other list is one field. Writes
that are no apply are noted of objects alone to which something was applied before.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from penstock.sim.apiserver.definitions import Defined
from penstock.sim.apiserver.refusals import Refused, bad_request, conflict, invalid_for, required_field
from penstock.sim.apiserver.selecting import Object
from penstock.sim.apiserver.store import Key, Kind, Store, copied

Path = tuple[str, ...]
KeysOf = Callable[[Path], tuple[str, ...] | None]
"""Gives the keys of the items of a list; none: it is a set; None: it is one field."""
_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",), "initContainers": ("name",), "volumes": ("name",), "env": ("name",),
    "volumeMounts": ("mountPath",), "conditions": ("type",), "ownerReferences": ("uid",), "finalizers": (),
    "resourceClaims": ("name",), "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}  # fmt: skip
_OWN = ("apiVersion", "kind")
_OWN_META = ("name", "namespace", "uid", "resourceVersion", "managedFields", "generation", "creationTimestamp",
             "deletionTimestamp", "deletionGracePeriodSeconds", "generateName")  # fmt: skip
BEFORE = "before-first-apply"
"""Manages what an object had before something was applied to it."""


class Manager(NamedTuple):
    """Who writes, and how."""

    name: str
    operation: str
    part: str = ""


def keys_of(kind: Kind) -> KeysOf:
    """Return which lists of a kind are managed by their items: by its definition, or as is usual."""
    if not isinstance(kind.behaviour, Defined):
        return lambda path: _KEYS.get(path[-1].removeprefix("f:"))
    whole = kind.behaviour.schema

    def by_schema(path: Path) -> tuple[str, ...] | None:
        schema: Any = whole
        for step in path:
            inner = schema.get("properties", {}).get(step[2:]) or schema.get("additionalProperties")
            schema = (inner if step.startswith("f:") else schema.get("items")) or {}
        match schema.get("x-kubernetes-list-type"):
            case "map":
                return tuple(schema["x-kubernetes-list-map-keys"])
            case "set":
                return ()
        return _KEYS.get(path[-1].removeprefix("f:")) if path[:1] == ("f:metadata",) else None

    return by_schema


def fields_of(value: Any, keys: KeysOf, path: Path = ()) -> Iterator[Path]:
    """Yield the fields of a value."""
    listed = keys(path) if isinstance(value, list) and path else None
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from fields_of(inner, keys, (*path, f"f:{name}"))
    elif listed is not None:
        for item in value:
            at = (*path, _step(item, listed))
            yield at
            if listed:
                yield from fields_of(item, keys, at)
    else:
        yield path


def _step(item: Any, keys: tuple[str, ...]) -> str:
    told = {key: item.get(key) for key in keys} if keys else item
    return ("k:" if keys else "v:") + json.dumps(told, separators=(",", ":"), sort_keys=True)


def _at(value: Any, path: Path) -> tuple[Any, ...]:
    """Return what a field holds; () where it is absent."""
    for step in path:
        if step.startswith("f:"):
            found = (value[step[2:]],) if isinstance(value, dict) and step[2:] in value else ()
        else:
            items = value if isinstance(value, list) else ()
            found = tuple(item for item in items if _is(item, step))[:1]
        if not found:
            return ()
        value = found[0]
    return (value,)


def _is(item: Any, step: str) -> bool:
    wanted = json.loads(step[2:])
    if step.startswith("v:"):
        return bool(item == wanted)
    return isinstance(item, dict) and all(item.get(key) == one for key, one in wanted.items())


def _without(value: Any, path: Path) -> None:
    """Remove a field, and the maps that are left empty by that."""
    inside = _at(value, path[:-1])
    if inside and isinstance(inside[0], list):
        inside[0][:] = [item for item in inside[0] if not _is(item, path[-1])]
    elif inside and isinstance(inside[0], dict):
        inside[0].pop(path[-1][2:], None)
    if len(path) > 1 and inside == ({},) and path[-2].startswith("f:"):
        _without(value, path[:-1])


def _laid(old: Any, new: Any, keys: KeysOf, path: Path = ()) -> Any:
    """Return a value with an applied one laid over it."""
    if isinstance(new, dict) and isinstance(old, dict):
        found = dict(old)
        for name, inner in new.items():
            found[name] = _laid(found.get(name), inner, keys, (*path, f"f:{name}"))
        return found
    listed = keys(path) if isinstance(new, list) and isinstance(old, list) else None
    if listed is None:
        return new
    items = {_step(item, listed): item for item in old}
    for item in new:
        step = _step(item, listed)
        items[step] = _laid(items.get(step), item, keys, (*path, step))
    return list(items.values())


# Who manages what.


def _nested(fields: Iterable[Path]) -> Object:
    found: Object = {}
    for path in sorted(fields):
        inner = found
        for step in path:
            inner = inner.setdefault(step, {})
        if path[-1].startswith("k:"):
            inner["."] = {}
    return found


def _paths(nested: Object, path: Path = ()) -> Iterator[Path]:
    if not nested or "." in nested:
        yield path
    for step, inner in nested.items():
        if step != ".":
            yield from _paths(inner, (*path, step))


def _managers(one: Object) -> dict[Manager, set[Path]]:
    entries = one["metadata"].get("managedFields") or ()
    return {_who(entry): set(_paths(entry["fieldsV1"])) for entry in entries}


def _who(entry: Object) -> Manager:
    return Manager(entry["manager"], entry["operation"], entry.get("subresource", ""))


def _entries(kind: Kind, one: Object, managers: dict[Manager, set[Path]], now: str) -> list[Object]:
    """Return `managedFields`; what a manager had before keeps its time."""
    before = {_who(entry): entry for entry in one["metadata"].get("managedFields") or ()}
    found = []
    for who, fields in managers.items():
        if not fields:
            continue
        entry = {"manager": who.name, "operation": who.operation, "apiVersion": kind.api_version, "time": now,
                 "fieldsType": "FieldsV1", "fieldsV1": _nested(fields)}  # fmt: skip
        known = before.get(who)
        same = known is not None and known["fieldsV1"] == entry["fieldsV1"]
        found.append(
            known if known is not None and same else {**entry, **({"subresource": who.part} if who.part else {})}
        )
    return found


def _managed(kind: Kind, one: Object, part: str) -> Object:
    """Return what can be managed of an object through a part of it."""
    if part:
        return {part: one[part]} if part in one else {}
    meta = {name: value for name, value in one.get("metadata", {}).items() if name not in _OWN_META}
    rest = {name: value for name, value in one.items() if name not in (*_OWN, "metadata")}
    if kind.has_status:
        rest.pop("status", None)
    return {**rest, **({"metadata": meta} if meta else {})}


def noting(kind: Kind, change: Callable[[Object], Object], who: Manager, now: str) -> Callable[[Object], Object]:
    """Return a change that also updates `managedFields`, on objects that have them."""
    keys = keys_of(kind)

    def changed(old: Object) -> Object:
        if not old["metadata"].get("managedFields"):
            return change(old)
        before = copied(old)
        new = change(old)
        had, has = _managed(kind, before, who.part), _managed(kind, new, who.part)
        written = {path for path in fields_of(has, keys) if path and _at(had, path) != _at(has, path)}
        lost = written | {path for path in fields_of(had, keys) if path and not _at(has, path)}
        managers = {one: fields - lost if lost else fields for one, fields in _managers(before).items()}
        managers[who] = managers.get(who, set()) | written
        new["metadata"]["managedFields"] = _entries(kind, before, managers, now)
        return new

    return changed


def apply(store: Store, kind: Kind, key: Key, body: Object, who: Manager, *, force: bool) -> tuple[Object, bool]:
    """Apply an object. Returns: the object, and whether it is new. Raises: Refused."""
    if not who.name:
        raise invalid_for(
            "PatchOptions.meta.k8s.io", "", [required_field("fieldManager", "is required for apply patch")]
        )
    meta = body.setdefault("metadata", {})
    if (body.get("apiVersion"), body.get("kind")) != (kind.api_version, kind.name):
        raise bad_request(f"invalid object type: {body.get('apiVersion')}, Kind={body.get('kind')}")
    if meta.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if meta.setdefault("name", key[1]) != key[1]:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({key[1]})")
    keys, body = keys_of(kind), _without_nulls(body)
    wanted = _managed(kind, body, who.part)
    fields = {path for path in fields_of(wanted, keys) if path}
    if key not in store.all_of(kind.plural):
        if meta.get("uid") or who.part:
            raise conflict(kind.plural, key[1], "uid mismatch: the provided object specified a uid, and none was found")
        body["metadata"]["managedFields"] = _entries(kind, {"metadata": {}}, {who: fields}, store.now())
        return store.create(kind, key[0], body), True

    def laid(old: Object) -> Object:
        managers = _managers(old) or {Manager(BEFORE, "Update"): {*fields_of(_managed(kind, old, ""), keys)} - {()}}
        _settle(
            managers,
            who,
            {path for path in fields if _at(old, path) != _at(wanted, path)},
            kind.api_version,
            force=force,
        )
        new = copied(_laid(old, wanted, keys))
        new["metadata"].update({name: meta[name] for name in ("uid", "resourceVersion") if meta.get(name)})
        others = {path for one, theirs in managers.items() if one != who for path in theirs}
        for path in sorted(managers.get(who, set()) - fields - others, key=len):
            if not any(other[: len(path)] == path for other in others | fields):
                _without(new, path)
        managers[who] = fields
        new["metadata"]["managedFields"] = _entries(kind, old, managers, store.now())
        return new

    return store.update(kind, key, laid, part=who.part), False


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _settle(managers: dict[Manager, set[Path]], who: Manager, changed: set[Path], version: str, *, force: bool) -> None:
    """Take fields from their managers by force. Raises: Refused (409) without it."""
    causes = []
    for one, theirs in managers.items():
        disputed = theirs & changed if one != who else set()
        if force:
            theirs -= disputed
        told = f'conflict with "{one.name}"' + (f" using {version}" if one.operation == "Update" else "")
        causes += [
            {"reason": "FieldManagerConflict", "message": told, "field": _shown(path)} for path in sorted(disputed)
        ]
    if causes and not force:
        count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
        listed = ", ".join(f"{one['message']}: {one['field']}" for one in causes)
        raise Refused(409, "Conflict", f"Apply failed with {count}: {listed}", causes=causes)


def _shown(path: Path) -> str:
    """Return a field as people read it."""
    found = ""
    for step in path:
        if step.startswith("f:"):
            found += f".{step[2:]}"
        elif step.startswith("k:"):
            told = json.loads(step[2:])
            found += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in told.items()) + "]"
        else:
            found += f"[={step[2:]}]"
    return found
