"""Reads plain data (from YAML or JSON) field by field and collects every problem instead of stopping at the first."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.core.model.errors import Problem, nearest
from penstock.core.model.quantities import parse_milli, parse_time_ms

Raw = Mapping[str, Any]
TEXT_MAX = 65_536
NAME_MAX = 256
"""Characters of a name."""
PAIRS_MAX = 1_000
"""Names in one mapping of names to texts."""
QUANTITY_MAX = 64
"""Characters of a number with its unit."""
SHOWN_MAX = 80
"""Characters of a value as error messages show it."""
_shortened = reprlib.Repr()
_shortened.maxlist = _shortened.maxdict = _shortened.maxtuple = 6
_shortened.maxstring = _shortened.maxother = _shortened.maxlong = SHOWN_MAX


class Reader:
    """Collects problems while values are read from one mapping; a bad value reads as its default."""

    def __init__(self, where: str, problems: list[Problem]) -> None:
        self.where, self.problems = where, problems

    def path(self, field: str) -> str:
        return f"{self.where}.{field}" if self.where and field else self.where or field

    def wrong(self, field: str, value: object, expected: str, *, code: str = "bad_value", hint: str = "") -> None:
        found = shown(value)
        text = f"{self.path(field)} is {found}, expected {expected}"
        self.problems.append(Problem(code, self.path(field), text, found, hint))

    def unknown(self, raw: Raw, known: Sequence[str]) -> None:
        """Report fields that do not exist, each with the nearest right word."""
        for name in raw:
            if name not in known:
                path = self.path(short(str(name)))
                hint = nearest(str(name), known)
                self.problems.append(Problem("unknown_field", path, f"{path} is not a field", shown(raw[name]), hint))

    def integer(self, field: str, value: object, *, low: int, high: int, default: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.wrong(field, value, f"a whole number from {low} to {high}")
            return default
        return value

    def text(self, field: str, value: object, default: str = "", most: int = TEXT_MAX) -> str:
        if not isinstance(value, str) or not value or len(value) > most or "\0" in value:
            self.wrong(field, value, f"a text of 1 to {most} characters")
            return default
        return value

    def name(self, field: str, value: object) -> str:
        return self.text(field, value, most=NAME_MAX)

    def word(self, field: str, value: object, words: Sequence[str], default: str) -> str:
        if not isinstance(value, str) or value not in words:
            self.wrong(field, value, "one of " + ", ".join(words), hint=nearest(str(value), words))
            return default
        return value

    def flag(self, field: str, value: object, *, default: bool) -> bool:
        if not isinstance(value, bool):
            self.wrong(field, value, "true or false")
            return default
        return value

    def quantity(self, field: str, value: object, parse: Callable[[Any], int], example: str) -> int:
        try:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError(value)
            if isinstance(value, str) and len(value) > QUANTITY_MAX:
                raise ValueError(value)
            parsed = parse(value)
            if not 0 <= parsed < 2**62:
                raise ValueError(value)
        except (ValueError, TypeError, OverflowError):
            self.wrong(field, value, f"a quantity such as {example}")
            return 0
        return parsed

    def milli(self, field: str, value: object, expected: str, *, low: int = 0, high: int, default: int) -> int:
        """Read a number in steps of 0.001 as thousandths, from `low` to `high` thousandths."""
        try:
            milli = parse_milli(value)
        except ValueError:
            milli = low - 1
        if not low <= milli <= high:
            self.wrong(field, value, expected)
            return default
        return milli

    def time(self, field: str, value: object) -> int:
        """Read a moment as unix ms; 0 for an unreadable one."""
        try:
            return parse_time_ms(value)
        except ValueError:
            self.wrong(field, value, "a time with its offset such as 2026-03-01T00:00+01:00, or unix seconds")
            return 0

    def pairs(self, field: str, value: object, most: int = PAIRS_MAX) -> tuple[tuple[str, str], ...]:
        """Read a mapping of texts; numbers and booleans are taken as they print in YAML."""
        if not isinstance(value, Mapping) or len(value) > most:
            found_text = f"a mapping of {len(value)}" if isinstance(value, Mapping) else value
            self.wrong(field, found_text, f"a mapping of at most {most} names to texts")
            return ()
        found = []
        for name, item in value.items():
            if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX or "=" in name or "\0" in name:
                self.wrong(field, name, f"names of 1 to {NAME_MAX} characters without '='")
            elif isinstance(item, bool):
                found.append((name, "true" if item else "false"))
            elif isinstance(item, str | int | float) and "\0" not in str(item):
                found.append((name, str(item)))
            else:
                self.wrong(f"{field}.{name}", item, "a text or number")
        return tuple(sorted(found))


def shown(value: object) -> str:
    """Return a value as error messages show it, cut when it is long; cheap for values of any size."""
    if isinstance(value, str):
        return short(f"'{value[: SHOWN_MAX + 1]}'")
    if isinstance(value, bool | float | None):
        return str(value)
    return short(_shortened.repr(value))


def brief(value: object) -> str:
    """Return a value of a declaration in a few words: of a list how long it is, of a mapping what is in it."""
    if isinstance(value, list):
        return f"[{len(value)}]"
    return "{" + ", ".join(map(str, value)) + "}" if isinstance(value, Mapping) else str(value)


def short(text: str) -> str:
    """Return a text, cut when it is long."""
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."
