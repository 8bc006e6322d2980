"""Reads what operators declare in files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from penstock.control.calendar import zone_problem
from penstock.core.clusterfile import ClusterFile, parse_cluster
from penstock.core.errors import InvalidInput, Problem, nearest
from penstock.core.model.cluster import ClusterConfig
from penstock.extensions import installed_policies
from penstock.imports import Imported, to_cluster_file

SECTIONS = {"queue": "queues", "pool": "pools", "tenant": "tenants", "setting": "settings"}
"""Sections of a cluster file in the singular, as people name one entry of them."""
NOT_WRITTEN = ("reservations", "candidates", "billing")
"""What a configuration has that is not written out to be changed: it stays as it is."""


def read_cluster_file(path: Path) -> ClusterFile:
    """Return what the cluster file declares.

    Raises: InvalidInput naming every problem.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} is no YAML: {error}") from error
    parsed, problems = _parsed(raw)
    if problems:
        raise InvalidInput(f"{path} has {len(problems)} problem(s)", problems=problems)
    return parsed


def _parsed(raw: object) -> tuple[ClusterFile, list[Problem]]:
    """Check a cluster file with what only this machine knows: its policies and time zones."""
    parsed, problems = parse_cluster(raw, installed_policies())
    unknown = zone_problem(parsed.config.billing.time_zone)
    return parsed, [*problems, unknown] if unknown is not None else problems


def with_changes(config: ClusterConfig, changes: Sequence[str]) -> ClusterConfig:
    """Return `config` with fields of the cluster file set.

    Args:
        changes: PATH=VALUE in the words of a cluster file, such as `queue.research.max.devices=16`,
            `pools.default.backfill=strict`, `settings.starvation_after=2h` or `root_policy=fifo`. An empty value takes
            the field away.
    Raises: InvalidInput naming what is not there, or what the cluster file would not allow.
    """
    if not changes:
        return config
    raw = yaml.safe_load(to_cluster_file(Imported((), config, ())))
    for change in changes:
        path, equals, value = change.partition("=")
        if path.split(".")[0] in NOT_WRITTEN and "." in path:
            raise _bad(change, f"fields of {path.split('.')[0]} cannot be set one by one")
        if not equals:
            raise _bad(change, "expected PATH=VALUE, such as queue.research.max.devices=16")
        _set(raw, change, path.split("."), yaml.safe_load(value) if value else None)
    parsed, problems = _parsed(raw)
    if problems:
        raise InvalidInput(f"{', '.join(changes)}: {len(problems)} problem(s)", problems=problems)
    kept = {name: getattr(config, name) for name in NOT_WRITTEN if name not in raw}
    return msgspec.structs.replace(parsed.config, **kept)


def _set(raw: dict[str, Any], change: str, path: Sequence[str], value: object) -> None:
    at: Any = raw
    words = [SECTIONS.get(path[0], path[0]), *path[1:]]
    while len(words) > 1:
        word = words.pop(0)
        found = at.setdefault(word, {})
        if isinstance(found, list):
            name = next((n for n in _names(found) if ".".join(words).startswith(f"{n}.")), "")
            if not name:
                raise _bad(change, f"there is no {word} '{words[0]}'", nearest(words[0], _names(found)))
            words = ".".join(words).removeprefix(f"{name}.").split(".")
            found = next(entry for entry in found if entry["name"] == name)
        elif not isinstance(found, dict):
            raise _bad(change, f"'{word}' has no fields")
        at = found
    if value is None:
        at.pop(words[0], None)
    else:
        at[words[0]] = value


def _names(entries: Sequence[dict[str, Any]]) -> list[str]:
    return sorted((str(entry["name"]) for entry in entries), key=lambda name: (-len(name), name))


def _bad(change: str, what: str, hint: str = "") -> InvalidInput:
    problem = Problem("invalid_value", "set", f"set is '{change}': {what}", change, hint)
    return InvalidInput(problem.message, problems=(problem,))
