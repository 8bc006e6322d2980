"""The part of CEL that the rules of our definitions use, as functions of `self`.

Source: https://github.com/google/cel-spec/blob/master/doc/langdef.md. Anything else of the language is a ValueError.
"""

import functools
import operator
import re
from collections.abc import Callable
from typing import Any

Evaluated = Callable[[Any], Any]
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<word>[A-Za-z_]\w*)|(?P<sign>\|\||&&|[=!<>]=|[-+!<>.,()\[\]]))"
)
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
    "in": lambda one, many: one in many,
}  # fmt: skip


@functools.cache
def compiled(text: str) -> Evaluated:
    """Return an expression as a function of `self`. It raises KeyError where a field is absent."""
    reader = _Reader(text)
    found = reader.either()
    if reader.rest:
        raise ValueError(f"{text!r} cannot be read from {reader.rest[0]!r} on")
    return found


class _Reader:
    """Reads one expression, its loosest operators first."""

    def __init__(self, text: str) -> None:
        self.rest: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"{text!r} cannot be read from {text[at:]!r} on")
            self.rest.append(match[match.lastgroup or 0])
            at = match.end()

    def _takes(self, *signs: str) -> str:
        return self.rest.pop(0) if self.rest and self.rest[0] in signs else ""

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise ValueError(f"expected {sign} before {self.rest[:3]}")

    def either(self) -> Evaluated:
        one = self._both()
        while self._takes("||"):
            one = functools.partial(_either, one, self._both())
        return one

    def _both(self) -> Evaluated:
        one = self._compared()
        while self._takes("&&"):
            one = functools.partial(_both, one, self._compared())
        return one

    def _compared(self) -> Evaluated:
        one = self._sum()
        if sign := self._takes(*_COMPARED):
            return functools.partial(_applied, _COMPARED[sign], one, self._sum())
        return one

    def _sum(self) -> Evaluated:
        one = self._single()
        while self._takes("+"):
            one = functools.partial(_applied, operator.add, one, self._single())
        return one

    def _single(self) -> Evaluated:
        if self._takes("!"):
            inner = self._single()
            return lambda own: not inner(own)
        one = self._first()
        while self._takes("."):
            name = self.rest.pop(0)
            if not self._takes("("):
                one = functools.partial(_field, one, name)
            elif name == "matches":
                one = functools.partial(
                    _applied, lambda text, rule: re.search(rule, text) is not None, one, self._end()
                )
            elif name == "format":
                one = functools.partial(_applied, lambda text, given: text % tuple(given), one, self._end())
            else:
                raise ValueError(f"{name} is no method that is known here")
        return one

    def _end(self) -> Evaluated:
        """Read an argument and the bracket after it."""
        found = self.either()
        self._expect(")")
        return found

    def _first(self) -> Evaluated:
        word = self.rest.pop(0)
        if word == "self":
            return lambda own: own
        if word == "(":
            return self._end()
        if word == "[":
            return self._list()
        if word in ("has", "size"):
            self._expect("(")
            inner = self._end()
            return functools.partial(_has, inner) if word == "has" else lambda own: len(inner(own))
        if word.isdecimal():
            return lambda _, value=int(word): value  # type: ignore[misc]
        if word[0] in "'\"":
            return lambda _, value=word[1:-1]: value  # type: ignore[misc]
        raise ValueError(f"{word!r} is not known here")

    def _list(self) -> Evaluated:
        items = [self.either()]
        while self._takes(","):
            items.append(self.either())
        self._expect("]")
        return lambda own: [item(own) for item in items]


def _either(one: Evaluated, other: Evaluated, own: Any) -> bool:
    return bool(one(own) or other(own))


def _both(one: Evaluated, other: Evaluated, own: Any) -> bool:
    return bool(one(own) and other(own))


def _applied(work: Callable[[Any, Any], Any], one: Evaluated, other: Evaluated, own: Any) -> Any:
    return work(one(own), other(own))


def _field(one: Evaluated, name: str, own: Any) -> Any:
    return one(own)[name]


def _has(path: Evaluated, own: Any) -> bool:
    try:
        path(own)
    except KeyError:
        return False
    return True
