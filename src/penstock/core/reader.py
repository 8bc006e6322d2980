"""Reads plain data (from YAML or JSON) field by field and collects every problem instead of stopping at the first."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.core.errors import Problem, nearest

Raw = Mapping[str, Any]
TEXT_MAX = 65_536


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
                text = f"{self.path(str(name))} is not a field"
                hint = nearest(str(name), known)
                self.problems.append(Problem("unknown_field", self.path(str(name)), text, shown(raw[name]), hint))

    def integer(self, field: str, value: object, *, low: int, high: int, default: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.wrong(field, value, f"a whole number from {low} to {high}")
            return default
        return value

    def text(self, field: str, value: object, default: str = "") -> str:
        if not isinstance(value, str) or not value or len(value) > TEXT_MAX or "\0" in value:
            self.wrong(field, value, f"a text of 1 to {TEXT_MAX} characters")
            return default
        return value

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
            parsed = parse(value)
            if not 0 <= parsed < 2**62:
                raise ValueError(value)
        except (ValueError, TypeError, OverflowError):
            self.wrong(field, value, f"a quantity such as {example}")
            return 0
        return parsed

    def pairs(self, field: str, value: object) -> tuple[tuple[str, str], ...]:
        """Read a mapping of texts; numbers and booleans are taken as they print in YAML."""
        if not isinstance(value, Mapping):
            self.wrong(field, value, "a mapping of names to texts")
            return ()
        found = []
        for name, item in value.items():
            if not isinstance(name, str) or not name or "=" in name or "\0" in name:
                self.wrong(field, name, "names without '='")
            elif isinstance(item, bool):
                found.append((name, "true" if item else "false"))
            elif isinstance(item, str | int | float) and "\0" not in str(item):
                found.append((name, str(item)))
            else:
                self.wrong(f"{field}.{name}", item, "a text or number")
        return tuple(sorted(found))


def shown(value: object) -> str:
    """Return a value as error messages show it, cut when it is long."""
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
