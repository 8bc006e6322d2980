"""How a tool is declared: its arguments and answers as types, from which its schemas follow."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from penstock.core.model.errors import nearest
from penstock.core.model.foreign import one_line
from penstock.mcp.errors import EXPECTED, Refused

if TYPE_CHECKING:
    from penstock.mcp.callers import Caller

A = TypeVar("A", bound="Arguments")
B = TypeVar("B", bound=msgspec.Struct)
ARGUMENTS_MAX_BYTES = 256 * 2**10
"""Of the arguments of one call, as JSON."""
_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<field>[^`]*)`)?$", re.DOTALL)


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the arguments of a tool."""


class Tool(NamedTuple, Generic[A, B]):
    """One tool."""

    name: str
    description: str
    takes: type[A]
    gives: type[B]
    call: "Callable[[Caller, A], B]"
    """Works in a thread of its own, with a client of the caller. Raises: PenstockError."""
    writes: bool = False
    """Whether it leads to a change: offered only where writes are allowed."""
    commits: bool = False
    """Whether it makes the change itself, rather than its preview."""

    def arguments(self, given: Mapping[str, Any]) -> A:
        """Return checked arguments. Raises: Refused, naming the field."""
        if len(msgspec.json.encode(given)) > ARGUMENTS_MAX_BYTES:
            raise Refused("too_large", f"the arguments are larger than {ARGUMENTS_MAX_BYTES} bytes")
        known = self.takes.__struct_fields__
        for name in given:
            if name not in known:
                hint = nearest(name, known)
                text = f"{self.name} has no argument '{one_line(name)[:100]}'"
                raise Refused("unknown_field", text, field=name[:100], hint=hint)
        try:
            return msgspec.convert(given, self.takes)
        except msgspec.ValidationError as error:
            raise _refused(str(error)) from None

    @property
    def input_schema(self) -> dict[str, Any]:
        return schema_of(self.takes)

    @property
    def output_schema(self) -> dict[str, Any]:
        return schema_of(self.gives)


def _refused(text: str) -> Refused:
    """Return the refusal for what the parser says, such as "Expected `int`, got `str` - at `$.job`"."""
    found = _AT.match(text)
    what, field = (found["what"], found["field"] or "") if found else (text, "")
    wrong = what.replace("`", "")
    if wrong.startswith("Object missing required field "):
        name = wrong.removeprefix("Object missing required field ")
        return Refused("invalid_input", f"{name} is missing{EXPECTED}a value", field=name)
    expected = wrong.removeprefix("Expected ").partition(", got ")[0]
    return Refused("invalid_input", f"{field or 'the argument'} is not valid{EXPECTED}{expected}", field=field)


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a type, an object at its root as MCP wants it."""
    _, parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = parts.pop(kind.__name__)
    return {**root, "$defs": parts} if parts else root
