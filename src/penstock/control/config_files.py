"""Reads cluster files, and applies changes in their words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.control.calendar import zone_problem
from penstock.core.config.cluster import ClusterFile, declaration, parse_cluster
from penstock.core.config.reader import short
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import InvalidInput, Problem, nearest
from penstock.core.model.words import counted
from penstock.extensions import installed_policies
from penstock.yamltext import loaded

PATH_MAX = 512
VALUE_MAX = 65_536
"""Characters of one value of a change."""
ENTRIES = ("pools", "tenants", "users", "queues", "reservations")
"""Sections of a cluster file that have entries with names."""
SECTIONS = {"setting": "settings", **{name.removesuffix("s"): name for name in ENTRIES}}
"""Sections in the singular, as people name one entry of them."""


def read_cluster_file(path: Path) -> ClusterFile:
    """Return the declarations of the cluster file.

    Raises: InvalidInput naming every problem.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error
    try:
        raw = loaded(text)
    except ValueError as error:
        raise InvalidInput(f"{path} is no YAML: {error}") from error
    parsed, problems = _parsed(raw)
    if problems:
        raise InvalidInput(f"{path} has {counted(len(problems), 'problem')}", problems=problems)
    return parsed


def _value(text: str) -> Any:
    """Return the YAML value of one change. Raises: ValueError."""
    if len(text) > VALUE_MAX:
        raise ValueError(f"it has {len(text)} characters, at most {VALUE_MAX} are read")
    return loaded(text, aliases=False)


def cluster_config(raw: object) -> ClusterConfig:
    """Return the configuration that plain data in the words of a cluster file declares.

    Raises: InvalidInput naming every problem.
    """
    parsed, problems = _parsed(raw)
    if problems:
        raise InvalidInput(f"the cluster file has {counted(len(problems), 'problem')}", problems=problems)
    return parsed.config


def _parsed(raw: object) -> tuple[ClusterFile, list[Problem]]:
    """Check a cluster file, also against this machine's policies and time zones."""
    parsed, problems = parse_cluster(raw, installed_policies())
    unknown = zone_problem(parsed.config.billing.time_zone)
    return parsed, [*problems, unknown] if unknown is not None else problems


def with_changes(
    config: ClusterConfig, changes: Sequence[str], *, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> ClusterConfig:
    """Return `config` with entries removed and added, and then fields of the cluster file set.

    Args:
        changes: PATH=VALUE in the words of a cluster file, such as `queue.research.max.devices=16`,
            `pools.default.backfill=strict`, `settings.starvation_after=2h` or `root_policy=fifo`. An empty value
            removes the field.
        add: new entries such as `user.ann`, whose fields the changes may set.
        remove: entries such as `queue.research`.
    Raises: InvalidInput naming a missing entry, an existing one, or a value that the cluster file does not allow.
    """
    if not (changes or add or remove):
        return config
    raw = declaration(config)
    for path in remove:
        entries, name, kind = _entry(raw, path)
        if name not in _names(entries):
            raise _bad(path, f"there is no {kind} '{name}'", nearest(name, _names(entries)))
        entries[:] = [entry for entry in entries if entry["name"] != name]
    for path in add:
        entries, name, kind = _entry(raw, path)
        if name in _names(entries):
            raise _bad(path, f"there is a {kind} '{name}' already")
        entries.append({"name": name})
    for change in changes:
        path, equals, value = change.partition("=")
        if len(path) > PATH_MAX:
            raise _bad(change, f"a path may have {PATH_MAX} characters")
        if not equals:
            raise _bad(change, "expected PATH=VALUE, such as queue.research.max.devices=16")
        try:
            read = _value(value) if value else None
        except ValueError as error:
            raise _bad(change, f"the value is no YAML: {error}") from error
        _set(raw, change, path.split("."), read)
    parsed, problems = _parsed(raw)
    if problems:
        said = ", ".join([*remove, *add, *changes])
        raise InvalidInput(f"{said}: {counted(len(problems), 'problem')}", problems=problems)
    return parsed.config


def _entry(raw: dict[str, Any], path: str) -> tuple[list[dict[str, Any]], str, str]:
    """Return the list that an entry such as `user.ann` belongs to, its name, and its kind."""
    kind, _, name = path.partition(".")
    section = SECTIONS.get(kind, kind)
    if section not in ENTRIES or not name:
        raise _bad(path, f"expected an entry such as user.ann, one of {', '.join(ENTRIES)}")
    found = raw.setdefault(section, [])
    assert isinstance(found, list), "entries have names"
    return found, name, kind


QUOTAS = ("max", "guaranteed", "lend")
"""Fields whose own fields are resources: these may have dots in their names."""


def _set(raw: dict[str, Any], change: str, path: Sequence[str], value: object) -> None:
    at: Any = raw
    words = [SECTIONS.get(path[0], path[0]), *path[1:]]
    while len(words) > 1:
        word = words.pop(0)
        found = at.setdefault(word, {})
        if isinstance(found, list):
            if not all(isinstance(entry, dict) and "name" in entry for entry in found):
                raise _bad(change, f"entries of '{word}' have no names", f"set all of {word} at once")
            name = next((n for n in _names(found) if ".".join(words).startswith(f"{n}.")), "")
            if not name:
                raise _bad(change, f"there is no {word} '{words[0]}'", nearest(words[0], _names(found)))
            words = ".".join(words).removeprefix(f"{name}.").split(".")
            found = next(entry for entry in found if entry["name"] == name)
        elif not isinstance(found, dict):
            raise _bad(change, f"'{word}' has no fields")
        at = found
        if word in QUOTAS:
            words = [".".join(words)]
    if value is None:
        at.pop(words[0], None)
    else:
        at[words[0]] = value


def _names(entries: Sequence[dict[str, Any]]) -> list[str]:
    return sorted((str(entry["name"]) for entry in entries), key=lambda name: (-len(name), name))


def _bad(change: str, what: str, hint: str = "") -> InvalidInput:
    shown = short(change)
    problem = Problem("invalid_value", "set", f"'{shown}': {what}", shown, hint)
    return InvalidInput(problem.message, problems=(problem,))
