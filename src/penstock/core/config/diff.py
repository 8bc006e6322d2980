"""A configuration as data: its digest, and the changes from one to another in the words of a cluster file.

Both walk the structs of the model, so a field that is added there is covered here without a line.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.quantities import exact_duration, format_milli, format_resource, format_time

ABSENT = ""
"""Text of an absent value: the old side of an addition, the new side of a removal."""
_TIMES = frozenset({"start_ms", "end_ms"})
_QUOTAS = frozenset({"guaranteed", "max", "lend"})


class ConfigEdit(msgspec.Struct, frozen=True):
    """One difference: a path such as `queues.research.max.devices`, and its two texts, which are never equal."""

    path: str
    old: str
    new: str

    def text(self) -> str:
        """Return one line for people."""
        if self.old == ABSENT:
            return f"{self.path}: added ({self.new})"
        if self.new == ABSENT:
            return f"{self.path}: removed ({self.old})"
        return f"{self.path}: {self.old} -> {self.new}"


def digest(config: ClusterConfig) -> str:
    """Return 64 hex digits that two configurations share if and only if they are equal.

    Fields that have their default value do not count: a new version that adds one keeps the digests of old files.
    """
    return hashlib.sha256(msgspec.json.encode(config, order="sorted")).hexdigest()


def diff(old: ClusterConfig, new: ClusterConfig) -> tuple[ConfigEdit, ...]:
    """Return every difference, fields in the order of the model and entries by name; empty only for equal ones.

    Entries (pools, queues, amounts of a quota, ...) are matched by name, so moving one is no change of it. When
    common entries stand in another order, the list itself is one change: equal jobs go by that order.
    Names are unique in each list, as the parser sees to.
    """
    return tuple(_fields("", old, new))


def describe(config: ClusterConfig) -> tuple[ConfigEdit, ...]:
    """Return the differences of `config` from the defaults without any cluster file."""
    return diff(ClusterConfig(), config)


def _fields(path: str, old: msgspec.Struct, new: msgspec.Struct) -> list[ConfigEdit]:
    found = []
    for field in old.__struct_fields__:
        found += _value(path, field, getattr(old, field), getattr(new, field))
    return found


def _value(parent: str, field: str, old: Any, new: Any) -> list[ConfigEdit]:
    if old == new:
        return []
    path = f"{parent}.{_word(field)}" if parent else _word(field)
    if isinstance(old, msgspec.Struct) and isinstance(new, msgspec.Struct):
        return _fields(path, old, new)
    if isinstance(old, tuple) and isinstance(new, tuple):
        before, after = _keyed(old), _keyed(new)
        if before is not None and after is not None:
            return _entries(path, field, before, after)
    return [ConfigEdit(path, _text(field, old), _text(field, new))]


def _entries(path: str, field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[ConfigEdit]:
    found = []
    for name in sorted(old.keys() | new.keys()):
        at = f"{path}.{name}"
        if name not in new:
            found.append(ConfigEdit(at, _entry_text(field, name, old[name]), ABSENT))
        elif name not in old:
            found.append(ConfigEdit(at, ABSENT, _entry_text(field, name, new[name])))
        elif isinstance(old[name], msgspec.Struct):
            found += _fields(at, old[name], new[name])
        elif old[name] != new[name]:
            found.append(ConfigEdit(at, _entry_text(field, name, old[name]), _entry_text(field, name, new[name])))
    before, after = [n for n in old if n in new], [n for n in new if n in old]
    if before != after:
        found.append(ConfigEdit(path, "in the order " + ", ".join(before), "in the order " + ", ".join(after)))
    return found


def _keyed(entries: tuple[Any, ...]) -> dict[str, Any] | None:
    """Return entries by their name: structs that have one, and tuples by their first item. None for a plain list."""
    if all(isinstance(entry, msgspec.Struct) for entry in entries):
        return {str(getattr(entry, "name", index)): entry for index, entry in enumerate(entries)}
    if all(isinstance(entry, tuple) and entry and isinstance(entry[0], str) for entry in entries):
        return {entry[0]: entry[1:] for entry in entries}
    return None


def _entry_text(field: str, name: str, value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        default = {f.name: f.default for f in msgspec.structs.fields(value)}
        said = {f: getattr(value, f) for f in value.__struct_fields__ if f != "name"}
        parts = [f"{_word(f)} {_text(f, v)}" for f, v in said.items() if v != default[f]]
        return ", ".join(parts) or "defaults"
    return _AMOUNTS.get(field, _plain_amount)(name, value)


def _quota_amount(name: str, value: tuple[int, ...]) -> str:
    return format_resource(name, value[0])


def _speed(name: str, value: tuple[int, ...]) -> str:
    return f"speed {format_milli(value[0])} cost {format_milli(value[1])}"


def _plain_amount(name: str, value: tuple[Any, ...]) -> str:
    return " ".join(str(part) for part in value)


_AMOUNTS: dict[str, Callable[[str, tuple[Any, ...]], str]] = {
    **dict.fromkeys(_QUOTAS, _quota_amount),
    "speeds": _speed,
}


def _word(field: str) -> str:
    """Return a field's name as a cluster file has it: units stand in the value there."""
    return field.removesuffix("_ms").removesuffix("_milli")


def _text(field: str, value: Any) -> str:
    """Return a value in its unit, exactly: two values of one field never have one text."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _number(field, value)
    if isinstance(value, msgspec.Struct):
        return _entry_text(field, "", value)
    if isinstance(value, tuple):
        keyed = _keyed(value)
        texts = (
            list(map(str, value)) if keyed is None else [f"{n} {_entry_text(field, n, v)}" for n, v in keyed.items()]
        )
        return ", ".join(texts) or "nothing"
    return value if value and value.isprintable() and value[0] not in "'\"" else repr(value)


def _number(field: str, value: int) -> str:
    if field in _TIMES:
        return format_time(value)
    if field.endswith("_ms"):
        return exact_duration(value)
    return format_milli(value) if field.endswith("_milli") else str(value)
