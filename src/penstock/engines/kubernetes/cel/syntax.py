"""The grammar of CEL: text to a tree. Source: doc/langdef.md of github.com/google/cel-spec."""

import re
from typing import Any, NamedTuple

TEXT_MAX = 10 * 1024
"""Of an expression, as the API server has it."""
DEPTH_MAX = 40
"""Of nesting: deeper expressions are refused."""


class BadExpression(ValueError):
    """Text that is no expression of CEL. Its text says why, and where."""


class Literal(NamedTuple):
    value: Any


class Name(NamedTuple):
    name: str


class Select(NamedTuple):
    """A field, by its name."""

    of: "Node"
    field: str
    optional: bool = False


class Index(NamedTuple):
    of: "Node"
    key: "Node"
    optional: bool = False


class Call(NamedTuple):
    of: "Node | None"
    function: str
    arguments: tuple["Node", ...]


class Listed(NamedTuple):
    items: tuple["Node", ...]


class Mapped(NamedTuple):
    items: tuple[tuple["Node", "Node"], ...]


class Chain(NamedTuple):
    """Operators of one precedence, from the left."""

    first: "Node"
    rest: tuple[tuple[str, "Node"], ...]


class Logic(NamedTuple):
    """`&&` or `||`."""

    operator: str
    parts: tuple["Node", ...]


class Unary(NamedTuple):
    """`!` or `-`."""

    operator: str
    of: "Node"


class Choice(NamedTuple):
    condition: "Node"
    then: "Node"
    other: "Node"


Node = Literal | Name | Select | Index | Call | Listed | Mapped | Chain | Logic | Unary | Choice

_TOKEN = re.compile(
    r"""(?P<space>(?:\s+|//[^\n]*)+)"""
    r"""|(?P<number>0x[0-9a-fA-F]+[uU]?|(?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?|[0-9]+[uU]?)"""
    r"""|(?P<text>[rR]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))"""
    r"""|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+*/%!<>?:.,()\[\]{}])"""
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_LEVELS = (("<", "<=", ">", ">=", "==", "!=", "in"), ("+", "-"), ("*", "/", "%"))
"""Operators by precedence, the loosest first; `&&` and `||` are looser."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parsed(text: str) -> Node:
    """Return the tree of an expression. Raises: BadExpression."""
    if len(text) > TEXT_MAX:
        raise BadExpression(f"an expression of {len(text):,} characters, at most {TEXT_MAX:,} are allowed")
    parser = _Parser(_tokens(text))
    found = parser.expression()
    parser.end()
    return found


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadExpression(f"Syntax error at character {at + 1}: {text[at : at + 10]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(_Token(kind, match[0], at))
        at = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._at, self._depth = [*tokens, _Token("end", "the end", -1)], 0, 0

    def end(self) -> None:
        if self._next.kind != "end":
            raise self._wrong("the end")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _wrong(self, expected: str) -> BadExpression:
        found = self._next
        where = f" at character {found.at + 1}" if found.at >= 0 else ""
        return BadExpression(f"Syntax error{where}: {found.text[:20]!r}, expected {expected}")

    def _take(self, *signs: str) -> str:
        """Return the next sign if it is one of these, and go on; else ''."""
        found = self._next
        if found.text in signs and (found.kind == "sign" or found.text == "in"):
            self._at += 1
            return found.text
        return ""

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise self._wrong(repr(sign))

    def _name(self) -> str:
        found = self._next
        if found.kind != "name" or found.text in _WORDS or found.text == "in":
            raise self._wrong("a name")
        self._at += 1
        return found.text

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadExpression(f"nested more than {DEPTH_MAX} deep")
        found = self._logic("||")
        if self._take("?"):
            then = self.expression()
            self._need(":")
            found = Choice(found, then, self.expression())
        self._depth -= 1
        return found

    def _logic(self, operator: str) -> Node:
        parts = [self._logic_part(operator)]
        while self._take(operator):
            parts.append(self._logic_part(operator))
        return Logic(operator, tuple(parts)) if len(parts) > 1 else parts[0]

    def _logic_part(self, operator: str) -> Node:
        return self._logic("&&") if operator == "||" else self._chain(0)

    def _chain(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        first, rest = self._chain(level + 1), []
        while sign := self._take(*_LEVELS[level]):
            rest.append((sign, self._chain(level + 1)))
        return Chain(first, tuple(rest)) if rest else first

    def _unary(self) -> Node:
        signs = []
        while sign := self._take("!", "-"):
            signs.append(sign)
        if len(signs) > DEPTH_MAX:
            raise BadExpression(f"nested more than {DEPTH_MAX} deep")
        found = self._member()
        for sign in reversed(signs):
            found = Unary(sign, found)
        return found

    def _member(self) -> Node:
        found, number = self._primary(), 0
        while sign := self._take(".", ".?", "[", "[?"):
            number += 1
            if number > DEPTH_MAX:
                raise BadExpression(f"more than {DEPTH_MAX} members of members")
            if sign in ("[", "[?"):
                found = Index(found, self.expression(), sign == "[?")
                self._need("]")
                continue
            name = self._name()
            if sign == "." and self._take("("):
                found = Call(found, name, self._arguments(")"))
            else:
                found = Select(found, name, sign == ".?")
        return found

    def _arguments(self, last: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self._take(last):
            if found:
                self._need(",")
                if self._take(last):
                    break
            found.append(self.expression())
        return tuple(found)

    def _primary(self) -> Node:
        token = self._next
        if token.kind == "number":
            self._at += 1
            return Literal(_number(token.text))
        if token.kind == "text":
            self._at += 1
            return Literal(_unquoted(token.text))
        if self._take("("):
            found = self.expression()
            self._need(")")
            return found
        if self._take("["):
            return Listed(self._arguments("]"))
        if self._take("{"):
            return self._map()
        if token.kind == "name" and token.text in _WORDS:
            self._at += 1
            return Literal(_WORDS[token.text])
        self._take(".")
        name = self._name()
        return Call(None, name, self._arguments(")")) if self._take("(") else Name(name)

    def _map(self) -> Node:
        found: list[tuple[Node, Node]] = []
        while not self._take("}"):
            if found:
                self._need(",")
                if self._take("}"):
                    break
            key = self.expression()
            self._need(":")
            found.append((key, self.expression()))
        return Mapped(tuple(found))


def _number(text: str) -> int | float:
    plain = text.rstrip("uU")
    if plain.startswith("0x"):
        return int(plain, 16)
    return int(plain) if plain.isdecimal() and len(plain) < 40 else float(plain)


def _unquoted(text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]

    def character(match: re.Match[str]) -> str:
        told = match[1]
        if told[0] in "xuU":
            number = int(told[1:], 16)
        elif told.isdecimal() and len(told) == 3:
            number = int(told, 8)
        else:
            return _ESCAPES.get(told, told)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise BadExpression(f"{match[0]} is no character")
        return chr(number)

    return _ESCAPE.sub(character, text[1:-1])
