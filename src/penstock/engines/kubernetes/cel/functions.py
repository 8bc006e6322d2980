"""Functions of CEL and of the libraries of Kubernetes for strings, lists, quantities and versions."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.engines.kubernetes.cel.values import Maybe, Quantity, Version, quantity, version

INCLUDES_MAX = 48
"""Values of one attribute, as the API server allows them."""
PATTERN_MAX = 1_000
"""Characters of a regular expression."""


class Failed(Exception):
    """An evaluation that gives no value. Its text says why."""


def _is(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def needed(value: Any, what: str, *kinds: type) -> Any:
    if not _is(value, *kinds):
        raise Failed(f"{kind_of(value)}, expected {what}")
    return value


def kind_of(value: Any) -> str:
    """Return the name of a value's type, as CEL has it."""
    names = {bool: "bool", int: "int", float: "double", str: "string", list: "list", Quantity: "quantity",
             Version: "semver", Maybe: "optional", type(None): "null"}  # fmt: skip
    return "map" if isinstance(value, dict) else names.get(type(value), "value")


def text(value: Any) -> str:
    found: str = needed(value, "a string", str)
    return found


def whole(value: Any) -> int:
    found: int = needed(value, "an int", int)
    return found


def truth(value: Any) -> bool:
    found: bool = needed(value, "a bool", bool)
    return found


def size(value: Any) -> int:
    return len(needed(value, "a string, list or map", str, list, dict))


def compared(one: Any, other: Any) -> int:
    """Return -1, 0 or 1, for quantities and versions."""
    if isinstance(one, Quantity) and isinstance(other, Quantity):
        return (one > other) - (one < other)
    if isinstance(one, Version) and isinstance(other, Version):
        return (one.order > other.order) - (one.order < other.order)
    raise Failed(f"{kind_of(one)} and {kind_of(other)} cannot be compared")


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; those of different types never are, but numbers."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if _is(one, int, float) and _is(other, int, float):
        return bool(one == other)
    if type(one) is not type(other) and not (isinstance(one, dict) and isinstance(other, dict)):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return bool(one == other)


def includes(one: Any, value: Any) -> bool:
    """Return whether an attribute, a list or not, has a value."""
    if not isinstance(one, list):
        return same(one, value)
    if len(one) > INCLUDES_MAX:
        raise Failed(f"'includes' is for lists of at most {INCLUDES_MAX} values")
    return any(same(item, value) for item in one)


def _pattern(pattern: str) -> Any:
    """Return a regular expression of linear time, in the syntax of Kubernetes (RE2)."""
    if len(pattern) > PATTERN_MAX:
        raise Failed(f"a regular expression of {len(pattern):,} characters, at most {PATTERN_MAX:,} are allowed")
    try:
        import re2
    except ImportError:
        raise Failed("regular expressions need the package google-re2 (penstock[kubernetes])") from None
    try:
        options = re2.Options()
        options.log_errors = False
        return re2.compile(pattern, options)
    except re2.error:
        raise Failed(f"{pattern[:40]!r} is no regular expression") from None


def _matches(one: str, pattern: str) -> bool:
    return _pattern(text(pattern)).search(text(one)) is not None


def _find(one: str, pattern: str) -> str:
    found = _pattern(text(pattern)).search(text(one))
    return str(found[0]) if found is not None else ""


def _find_all(one: str, pattern: str) -> list[str]:
    return [str(found[0]) for found in _pattern(text(pattern)).finditer(text(one))]


def _split(one: str, by: str, limit: int = -1) -> list[str]:
    one, by = text(one), text(by)
    if limit == 0:
        return []
    return one.split(by, limit - 1 if limit > 0 else -1) if by else list(one)


def _substring(one: str, begin: int, end: int | None = None) -> str:
    stop = len(text(one)) if end is None else end
    if not 0 <= whole(begin) <= whole(stop) <= len(one):
        raise Failed(f"substring {begin} to {stop} of a string of {len(one)} characters")
    return one[begin:stop]


def _character(one: str, at: int) -> str:
    return _substring(one, at, min(at + 1, len(text(one))))


def _index(one: Any, what: Any) -> int:
    if isinstance(one, list):
        return next((i for i, item in enumerate(one) if same(item, what)), -1)
    return text(one).find(text(what))


def _joined(one: Sequence[Any], by: str = "") -> str:
    return text(by).join(text(item) for item in needed(one, "a list", list))


def _to_int(value: Any) -> int:
    try:
        return int(needed(value, "a number or string", int, float, str))
    except (ValueError, OverflowError):
        raise Failed(f"{str(value)[:40]!r} is no int") from None


def _to_float(value: Any) -> float:
    try:
        return float(needed(value, "a number or string", int, float, str))
    except ValueError:
        raise Failed(f"{str(value)[:40]!r} is no double") from None


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(needed(value, "a string, number or bool", str, int, float))


def _quantity(value: Any) -> Quantity:
    try:
        return quantity(text(value))
    except ValueError:
        raise Failed(f"{str(value)[:40]!r} is no quantity") from None


def _version(value: Any, loose: Any = False) -> Version:
    try:
        return version(text(value), loose=bool(loose))
    except ValueError as error:
        raise Failed(str(error)) from None


def _readable(read: Callable[..., Any]) -> Callable[..., bool]:
    def readable(*arguments: Any) -> bool:
        try:
            read(*arguments)
        except Failed:
            return False
        return True

    return readable


def _number(value: Any) -> Any:
    return needed(value, "a quantity", Quantity).number


def _plus(one: Any, other: Any, sign: int) -> Quantity:
    return Quantity(_number(one) + sign * (other if _is(other, int) else _number(other)))


def _as_integer(one: Any) -> int:
    number = _number(one)
    if number.denominator != 1:
        raise Failed("the quantity is no whole number")
    return int(number)


def _total(one: Any) -> Any:
    return sum(needed(item, "a number", int, float) for item in needed(one, "a list", list))


def _extreme(choose: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def extreme(one: Any) -> Any:
        items = needed(one, "a list", list)
        if not items or not (all(_is(i, int, float) for i in items) or all(isinstance(i, str) for i in items)):
            raise Failed("the smallest or largest of a list of numbers or of strings alone")
        return choose(items)

    return extreme


def _maybe(one: Any) -> Maybe:
    found: Maybe = needed(one, "an optional value", Maybe)
    return found


def _value(one: Any) -> Any:
    if not _maybe(one).there:
        raise Failed("the optional value is not there")
    return one.value


_VERB = re.compile(r"%(?:\.([0-9]{1,2}))?(.?)", re.DOTALL)


def _formatted(template: Any, given: Any) -> str:
    left: Iterator[Any] = iter(needed(given, "a list", list))

    def shown(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        try:
            value = next(left)
        except StopIteration:
            raise Failed("'format': more verbs than values") from None
        match match[2]:
            case "s":
                return str(value).lower() if isinstance(value, bool) else str(value)
            case "d" | "b" | "o" | "x" | "X":
                return format(whole(value), match[2])
            case "f" | "e":
                return format(needed(value, "a number", int, float), f".{match[1] or 6}{match[2]}")
            case verb:
                raise Failed(f"'format': unknown verb {verb!r}")

    found = _VERB.sub(shown, text(template))
    if next(left, left) is not left:
        raise Failed("'format': more values than verbs")
    return found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": size, "int": _to_int, "uint": _to_int, "double": _to_float, "string": _to_text,
    "bool": lambda v: v if isinstance(v, bool) else text(v) == "true", "dyn": lambda v: v,
    "quantity": _quantity, "isQuantity": _readable(_quantity), "semver": _version, "isSemver": _readable(_version),
    "matches": _matches,
}  # fmt: skip
"""Called as they are."""
METHODS: dict[str, Callable[..., Any]] = {
    "size": size, "contains": lambda a, b: text(b) in text(a), "startsWith": lambda a, b: text(a).startswith(text(b)),
    "endsWith": lambda a, b: text(a).endswith(text(b)), "matches": _matches, "find": _find, "findAll": _find_all,
    "lowerAscii": lambda a: text(a).lower(), "upperAscii": lambda a: text(a).upper(), "trim": lambda a: text(a).strip(),
    "split": _split, "join": _joined, "substring": _substring, "charAt": _character, "indexOf": _index,
    "lastIndexOf": lambda a, b: text(a).rfind(text(b)), "replace": lambda a, b, c: text(a).replace(text(b), text(c)),
    "includes": includes, "format": _formatted, "sum": _total, "min": _extreme(min), "max": _extreme(max),
    "isGreaterThan": lambda a, b: compared(a, b) > 0, "isLessThan": lambda a, b: compared(a, b) < 0,
    "compareTo": compared, "add": lambda a, b: _plus(a, b, 1), "sub": lambda a, b: _plus(a, b, -1),
    "sign": lambda a: (_number(a) > 0) - (_number(a) < 0), "isInteger": lambda a: _number(a).denominator == 1,
    "asInteger": _as_integer, "asApproximateFloat": lambda a: float(_number(a)),
    "major": lambda a: needed(a, "a version", Version).numbers[0],
    "minor": lambda a: needed(a, "a version", Version).numbers[1],
    "patch": lambda a: needed(a, "a version", Version).numbers[2],
    "hasValue": lambda a: _maybe(a).there, "value": _value,
    "orValue": lambda a, b: a.value if _maybe(a).there else b, "or": lambda a, b: a if _maybe(a).there else _maybe(b),
}  # fmt: skip
"""Called with a value before them."""
