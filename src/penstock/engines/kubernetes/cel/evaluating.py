"""The evaluation of an expression, within its steps. Source: doc/langdef.md of github.com/google/cel-spec."""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from penstock.engines.kubernetes.cel.functions import FUNCTIONS, METHODS, Failed, kind_of, needed, same, size, truth
from penstock.engines.kubernetes.cel.syntax import (
    BadExpression,
    Call,
    Chain,
    Choice,
    Index,
    Listed,
    Literal,
    Logic,
    Mapped,
    Name,
    Node,
    Select,
    Unary,
)
from penstock.engines.kubernetes.cel.values import Maybe, Quantity

STEPS_MAX = 4_000
"""Of one evaluation: some 4 ms."""
INT_MAX = 2**63
MACROS = ("all", "exists", "exists_one", "existsOne", "map", "filter")
NESTED_MAX = 120
"""Parts within parts of a tree: a few calls of Python are made for each."""
_PER_STEP = 32
"""Characters that one step makes or compares."""
_PER_ITEM = 8
"""Characters that an item counts as."""


class Domains(dict[str, Any]):
    """Attributes or capacities of a device by domain: one that is unknown has none."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


class Evaluation:
    """One evaluation."""

    def __init__(self, steps_max: int = STEPS_MAX) -> None:
        self._left, self._max = steps_max, steps_max

    @property
    def spent(self) -> int:
        """Steps that it took so far."""
        return self._max - self._left

    def _spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise Failed(f"actual cost limit exceeded: more than {self._max:,} steps")

    def value(self, node: Node, names: Mapping[str, Any]) -> Any:
        """Return the value of a tree with these names. Raises: Failed."""
        self._spend()
        match node:
            case Literal():
                return node.value
            case Name():
                if node.name not in names:
                    raise Failed(f"undeclared reference to '{node.name}'")
                return names[node.name]
            case Select():
                return self._selected(self.value(node.of, names), node.field, optional=node.optional)
            case Index():
                return self._indexed(node, names)
            case Call():
                return self._called(node, names)
            case Listed():
                return [self.value(item, names) for item in node.items]
            case Mapped():
                return {_key(self.value(key, names)): self.value(value, names) for key, value in node.items}
            case Chain():
                found = self.value(node.first, names)
                for operator, other in node.rest:
                    found = self._operated(operator, found, self.value(other, names))
                return found
            case Logic():
                return self._logic(node, names)
            case Unary():
                return _negated(node.operator, self.value(node.of, names))
            case Choice():
                chosen = truth(self.value(node.condition, names))
                return self.value(node.then if chosen else node.other, names)

    def _selected(self, found: Any, field: str, *, optional: bool) -> Any:
        if isinstance(found, Maybe):
            if not found.there:
                return found
            found, optional = found.value, True
        if not isinstance(found, dict):
            raise Failed(f"{kind_of(found)} has no field '{field}'")
        if optional:
            return Maybe(True, found[field]) if field in found else Maybe(False)
        try:
            return found[field]
        except KeyError:
            raise Failed(f"no such key: {field}") from None

    def _indexed(self, node: Index, names: Mapping[str, Any]) -> Any:
        found, key = self.value(node.of, names), self.value(node.key, names)
        if isinstance(found, (dict, Maybe)):
            return self._selected(found, key, optional=node.optional) if isinstance(key, str) else _no_key(key)
        if not isinstance(found, list):
            raise Failed(f"{kind_of(found)} has no items")
        at = needed(key, "an int", int)
        there = 0 <= at < len(found)
        if node.optional:
            return Maybe(True, found[at]) if there else Maybe(False)
        return found[at] if there else _no_key(at)

    def _logic(self, node: Logic, names: Mapping[str, Any]) -> bool:
        return self._decided(((part, names) for part in node.parts), decides=node.operator == "||")

    def _operated(self, operator: str, one: Any, other: Any) -> Any:
        match operator:
            case "==":
                self._spend_for(one)
                return same(one, other)
            case "!=":
                self._spend_for(one)
                return not same(one, other)
            case "in":
                self._spend_for(list(other) if isinstance(other, dict) else other)
                return any(same(one, item) for item in _items(other))
            case "+" if isinstance(one, str | list) and type(one) is type(other):
                self._spend((len(one) + len(other)) // _PER_STEP)
                return [*one, *other] if isinstance(one, list) else f"{one}{other}"
            case "<" | "<=" | ">" | ">=":
                return _ordered(operator, one, other)
            case _:
                return _calculated(operator, one, other)

    def _spend_for(self, value: Any) -> None:
        """Spend steps for all of a value: a list may hold one list many times, and be far larger than what made it."""
        waiting, amount, amount_max = [value], 0, (self._left + 1) * _PER_STEP
        while waiting and amount <= amount_max:
            one = waiting.pop()
            if isinstance(one, str):
                amount += len(one)
            elif isinstance(one, (list, dict)):
                amount += len(one) * _PER_ITEM
                waiting += one.values() if isinstance(one, dict) else one
        self._spend(amount // _PER_STEP)

    # Calls.

    def _called(self, node: Call, names: Mapping[str, Any]) -> Any:
        if node.of is None:
            if node.function == "has":
                return self._has(node, names)
            return self._function(FUNCTIONS, node.function, [self.value(one, names) for one in node.arguments])
        if isinstance(node.of, Name) and node.of.name in ("cel", "optional") and node.of.name not in names:
            return self._bound(node, names)
        if node.function in MACROS:
            if len(node.arguments) >= 2:
                return self._macro(node, names)
            raise Failed(f"'{node.function}' needs a name and an expression")
        values = [self.value(node.of, names), *(self.value(one, names) for one in node.arguments)]
        return self._function(METHODS, node.function, values)

    def _function(self, among: Mapping[str, Any], name: str, values: list[Any]) -> Any:
        function = among.get(name)
        if function is None:
            raise Failed(f"undeclared reference to '{name}'")
        for value in values:
            self._spend_for(value)
        if name == "replace" and all(isinstance(value, str) for value in values) and len(values) == 3:
            self._spend((len(values[0]) + 1) * (len(values[2]) + 1) // _PER_STEP)
        if name == "join" and len(values) == 2 and isinstance(values[1], str) and isinstance(values[0], list):
            self._spend(sum(size(one) for one in values[0]) + len(values[0]) * len(values[1]) // _PER_STEP)
        try:
            found = function(*values)
        except TypeError:
            raise Failed(f"'{name}' takes no {', '.join(map(kind_of, values))}") from None
        except (ValueError, OverflowError) as error:
            raise Failed(f"'{name}': {str(error)[:60]}") from None
        self._spend_for(found)
        return found

    def _has(self, node: Call, names: Mapping[str, Any]) -> bool:
        (one,) = node.arguments if len(node.arguments) == 1 else (None,)
        if not isinstance(one, Select):
            raise Failed("'has' needs a field")
        found = self.value(one.of, names)
        return one.field in dict(needed(found, "a map", dict))

    def _bound(self, node: Call, names: Mapping[str, Any]) -> Any:
        assert isinstance(node.of, Name)
        full = f"{node.of.name}.{node.function}"
        if full == "optional.none" and not node.arguments:
            return Maybe(False)
        if full == "optional.of" and len(node.arguments) == 1:
            return Maybe(True, self.value(node.arguments[0], names))
        if full != "cel.bind" or len(node.arguments) != 3 or not isinstance(node.arguments[0], Name):
            raise Failed(f"undeclared reference to '{full}'")
        variable = node.arguments[0].name
        return self.value(node.arguments[2], {**names, variable: self.value(node.arguments[1], names)})

    def _macro(self, node: Call, names: Mapping[str, Any]) -> Any:
        assert node.of is not None
        items, first, last = _items(self.value(node.of, names)), node.arguments[0], node.arguments[-1]
        if not isinstance(first, Name):
            raise Failed(f"'{node.function}' needs a name first")
        scopes = [{**names, first.name: item} for item in items]
        self._spend(len(scopes))
        if node.function in ("all", "exists"):
            return self._decided(((last, scope) for scope in scopes), decides=node.function == "exists")
        chosen = scopes
        if node.function != "map" or len(node.arguments) == 3:
            condition = node.arguments[1]
            chosen = [scope for scope in scopes if truth(self.value(condition, scope))]
        if node.function == "map":
            return [self.value(last, scope) for scope in chosen]
        if node.function == "filter":
            return [scope[first.name] for scope in chosen]
        return len(chosen) == 1

    def _decided(self, parts: Iterable[tuple[Node, Mapping[str, Any]]], *, decides: bool) -> bool:
        """Return `decides` where one part is that, wherever it stands: errors of the others do not count then."""
        failed = None
        for part, names in parts:
            try:
                if truth(self.value(part, names)) is decides:
                    return decides
            except Failed as error:
                if self._left < 0:
                    raise
                failed = failed or error
        if failed is not None:
            raise failed
        return not decides


def check(node: Node) -> None:
    """Check that a tree can be evaluated: it names only what there is, and is not too deep. Raises: BadExpression."""
    waiting: list[tuple[Any, int]] = [(node, 1)]
    while waiting:
        one, depth = waiting.pop()
        if depth > NESTED_MAX:
            raise BadExpression(f"more than {NESTED_MAX} parts within one another")
        if isinstance(one, Call) and one.of is None and one.function != "has" and one.function not in FUNCTIONS:
            raise BadExpression(f"undeclared reference to '{one.function}'")
        if isinstance(one, Call) and one.of is not None:
            known = isinstance(one.of, Name) and one.of.name in ("cel", "optional")
            if not known and one.function not in METHODS and one.function not in MACROS:
                raise BadExpression(f"undeclared reference to '{one.function}'")
        waiting += ((part, depth + 1) for part in _within(one))


def _within(one: Any) -> Iterable[Any]:
    """Yield the trees in a tree."""
    for part in one if isinstance(one, tuple) else ():
        if isinstance(part, tuple) and not hasattr(part, "_fields"):
            for item in part:
                yield from (item,) if hasattr(item, "_fields") else [x for x in item if hasattr(x, "_fields")]
        elif hasattr(part, "_fields"):
            yield part


def _items(found: Any) -> list[Any]:
    if isinstance(found, dict):
        return list(found)
    if not isinstance(found, list):
        raise Failed(f"got '{kind_of(found)}', expected iterable type")
    return found


def _key(value: Any) -> str:
    key: str = needed(value, "a string as key", str)
    return key


def _no_key(key: Any) -> NoReturn:
    raise Failed(f"no such key: {key}")


def _negated(operator: str, value: Any) -> Any:
    if operator == "!":
        return not truth(value)
    return _within_int(-needed(value, "a number", int, float))


def _ordered(operator: str, one: Any, other: Any) -> bool:
    alike = type(one) is type(other) and not isinstance(one, (list, dict, Quantity, type(None)))
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (one, other))
    if not (numbers or alike):
        raise Failed(f"no '{operator}' of {kind_of(one)} and {kind_of(other)}")
    match operator:
        case "<":
            return bool(one < other)
        case "<=":
            return bool(one <= other)
        case ">":
            return bool(one > other)
        case _:
            return bool(one >= other)


def _calculated(operator: str, one: Any, other: Any) -> Any:
    for value in (one, other):
        needed(value, f"numbers for '{operator}'", int, float)
    if type(one) is not type(other):
        raise Failed(f"no '{operator}' of {kind_of(one)} and {kind_of(other)}")
    match operator:
        case "+":
            return _within_int(one + other)
        case "-":
            return _within_int(one - other)
        case "*":
            return _within_int(one * other)
    if other == 0:
        raise Failed("division by zero")
    if isinstance(one, float):
        if operator == "/":
            return one / other
        raise Failed("no '%' of double and double")
    quotient = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    return quotient if operator == "/" else one - quotient * other


def _within_int(number: Any) -> Any:
    if isinstance(number, int) and not -INT_MAX <= number < 2 * INT_MAX:
        raise Failed("integer overflow")
    return number
