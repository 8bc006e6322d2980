"""Reads YAML that users write: no text of theirs ends the process or runs code; each gives a value or an error.

Every reader of YAML that has no positions to report goes through here; `migrate/located.py` reads with positions.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from penstock.core.model.errors import InvalidInput

NUMBER_CHARACTERS_MAX = 1_000
"""Of a whole number: Python shows none of more than 4,300 digits, and one of 1,000 in any base has fewer."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, with a bound on whole numbers."""

    def construct_yaml_int(self, node: yaml.Node) -> int:
        text = str(self.construct_scalar(node))
        if len(text) > NUMBER_CHARACTERS_MAX:
            problem = f"a number has {len(text):,} characters, expected {NUMBER_CHARACTERS_MAX:,} at most"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return int(super().construct_yaml_int(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
DEPTH_MAX = 64
"""Depth of nested lists and mappings."""
KEY_SHOWN_MAX = 40
"""Characters of a key in a message."""
VALUES_MAX = 2**23
"""Values of a text, repeated ones (*alias) counted each time; more than the largest request can hold."""


def read_yaml(name: str, what: str) -> Any:
    """Return what a YAML file, or - for standard input, stands for, as values of JSON; None for an empty one.

    Raises: InvalidInput, which calls it `what` and its name.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise InvalidInput(f"{what} {name} cannot be read: {reason}") from error
    try:
        return jsonable(loaded(text))
    except ValueError as error:
        raise InvalidInput(f"{what} {name} is no YAML: {error}") from error


class _Keys:
    """The keys of the mappings that are open while events of a text are read."""

    def __init__(self) -> None:
        self._open: list[tuple[set[str] | None, int]] = []
        """Of each collection its keys (None: a list), and how many nodes it has by now."""

    def take(self, event: yaml.Event) -> None:
        """Follow one event. Raises: ValueError for a key that its mapping has already."""
        if isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
        if not isinstance(event, yaml.NodeEvent):
            return
        if self._open:
            keys, count = self._open[-1]
            self._open[-1] = keys, count + 1
            if keys is not None and count % 2 == 0 and isinstance(event, yaml.ScalarEvent):
                if event.value in keys:
                    line = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
                    raise ValueError(f"{line}the key '{event.value[:KEY_SHOWN_MAX]}' stands there twice")
                keys.add(event.value)
        if isinstance(event, yaml.CollectionStartEvent):
            self._open.append((set() if isinstance(event, yaml.MappingStartEvent) else None, 0))


def loaded(text: str, *, aliases: bool = True, doubles: bool = True) -> Any:
    """Return the value of a YAML text.

    Args:
        aliases: whether aliases are allowed: with them a short text can stand for gigabytes.
        doubles: whether a mapping may have a key twice; the last one counts.
    Raises: ValueError, also for dates that do not exist, and for nesting beyond `DEPTH_MAX`.
    """
    try:
        depth, keys = 0, _Keys()
        for event in yaml.parse(text, Loader=_Loader):  # first: the loader itself would end the process
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.AliasEvent) and not aliases:
                raise ValueError("it repeats a part of itself (*alias): write it out")
            if depth > DEPTH_MAX:
                raise ValueError(TOO_DEEP)
            if not doubles:
                keys.take(event)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    except (LookupError, AttributeError, TypeError, ArithmeticError) as error:
        raise ValueError("a value is not what its tag says (such as !!int)") from error


TOO_DEEP = f"it is nested too deep: at most {DEPTH_MAX} lists and mappings"


def jsonable(value: Any) -> Any:
    """Return a YAML value as JSON has it: keys as texts, and dates and whatever else JSON does not know.

    Raises: ValueError where aliases make it deeper than `DEPTH_MAX` or longer than `VALUES_MAX`.
    """
    left = VALUES_MAX

    def made(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if depth > DEPTH_MAX:
            raise ValueError(TOO_DEEP)
        if left < 0:
            raise ValueError(f"it stands for more than {VALUES_MAX:,} values")
        if isinstance(value, dict):
            return {str(key): made(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [made(item, depth + 1) for item in value]
        if isinstance(value, str | int | float | None):
            return value
        return value.isoformat() if hasattr(value, "isoformat") else str(value)

    return made(value, 0)
