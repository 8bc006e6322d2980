"""Items with named fields, as lists for programs: CSV, names, lines by a template; and their order and columns.

A name means a field of an item, as in its JSON, or a column as the table shows it.
"""

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.cli.errors import UsageError
from penstock.core.model.errors import nearest
from penstock.core.model.foreign import csv_text, one_line
from penstock.core.model.quantities import parse_duration_ms, parse_size_bytes

NAMED_BY = ("id", "number", "name", "job_id", "token", "user", "tenant", "value")
"""Fields that hold what one types for an item, the first that is there."""
LISTED_MAX = 40
_DURATION = re.compile(r"(\d+(\.\d+)?[smhd] ?)+")
_SIZE = re.compile(r"(\d+(\.\d+)?) ?([KMGT]i?B)\b")
_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?")


class Rows:
    """Items and, where a table shows them, the cells of its columns.

    Args:
        items: structs or mappings; anything else has one field, `value`.
        kind: the struct that they are of; its fields are known where there are no items.
        key: the field, or column, that holds what one types for an item; by default the first known of `NAMED_BY`.
        columns: by name, the text of each item's cell.
    """

    def __init__(
        self,
        items: Iterable[Any],
        *,
        kind: type[msgspec.Struct] | None = None,
        key: str = "",
        columns: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        made = msgspec.to_builtins(list(items))
        self._items: list[dict[str, Any]] = [one if isinstance(one, dict) else {"value": one} for one in made]
        fields = [field.encode_name for field in msgspec.structs.fields(kind)] if kind is not None else []
        self.fields = list(dict.fromkeys([*fields, *(str(name) for item in self._items for name in item)]))
        self._key, self._columns = key, dict(columns or {})

    def __len__(self) -> int:
        return len(self._items)

    def known(self, option: str, names: Iterable[str]) -> None:
        """Raise UsageError, with the nearest right name, for one that is neither a field nor a column."""
        for name in names:
            if name.partition(".")[0] in self.fields or column_name(name) in self._columns:
                continue
            every = list(dict.fromkeys([*self._columns, *self.fields]))
            near = nearest(name, every)
            hint = near if near.startswith("did you mean") else "known: " + ", ".join(every[:LISTED_MAX])
            raise UsageError(f"{option}: there is no column or field '{name}'", hint=hint)

    def text(self, at: int, name: str) -> str:
        """Return a field of an item as text, or the cell of a column."""
        if name.partition(".")[0] in self.fields:
            return text_of(self._field(at, name))
        return self._columns[column_name(name)][at]

    def csv(self, columns: Sequence[str] = ()) -> str:
        """Return a heading and a line for each item  as `csv_text` makes them."""
        names = list(columns) or self.fields
        self.known("--columns", names)
        return csv_text([names] * bool(names) + [[self.text(at, name) for name in names] for at in range(len(self))])

    def names(self) -> list[str]:
        """Return what one types for each item. Raises: UsageError where nothing is."""
        key = self._key or next((name for name in NAMED_BY if name in self.fields), "")
        if not self._items:
            return []
        if not key:
            raise UsageError("-o name: nothing here has a name", hint="-o json shows what there is")
        return [self.text(at, key) for at in range(len(self))]

    def filled(self, template: str) -> list[str]:
        r"""Return the template for each item, with its fields. `\t` and `\n` stand for a tab and a new line."""
        parts = _parts(template)
        self.known("--format", [name for _, name, _ in parts if name is not None])
        return ["".join(self._part(at, *part) for part in parts) for at in range(len(self))]

    def _part(self, at: int, literal: str, name: str | None, layout: str) -> str:
        if name is None:
            return literal
        is_field = name.partition(".")[0] in self.fields
        value = self._field(at, name) if is_field else self.text(at, name)
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        try:
            shown = format(value, layout) if plain and layout else format(one_line(text_of(value)), layout)
        except ValueError as error:
            raise UsageError(f"--format: {{{name}:{layout}}}: {str(error).lower()}", hint=_LAYOUT_HINT) from None
        return literal + shown

    def order(self, by: str) -> list[int]:
        """Return the items' places, sorted by a name, empty ones last. Raises: UsageError."""
        name = by.removeprefix("-")
        self.known("--sort", [name])
        keys = {at: self._sort_key(at, name) for at in range(len(self))}
        there = [at for at, key in keys.items() if key[0] < _EMPTY]
        empty = [at for at, key in keys.items() if key[0] == _EMPTY]
        return sorted(there, key=lambda at: keys[at], reverse=by.startswith("-")) + empty

    def sorted(self, by: str) -> "Rows":
        """Return the same items sorted by a name. Raises: UsageError."""
        order = self.order(by)
        columns = {name: [cells[at] for at in order] for name, cells in self._columns.items()}
        made = Rows([self._items[at] for at in order], key=self._key, columns=columns)
        made.fields = self.fields
        return made

    def _sort_key(self, at: int, name: str) -> tuple[int, float, str]:
        if name.partition(".")[0] in self.fields:
            value = self._field(at, name)
            if isinstance(value, int | float):
                return 0, float(value), ""
        return sort_key(self.text(at, name))

    def _field(self, at: int, name: str) -> Any:
        """Return a field, or what is in it, if there is such a thing: `replica_list.0.node`, `array_counts.waiting`."""
        found: Any = self._items[at]
        for step in name.split("."):
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list | tuple):
                found = found[int(step)] if step.isdecimal() and int(step) < len(found) else None
            else:
                return None
        return found


_EMPTY = 2
_LAYOUT_HINT = "after a colon: the width, such as {name:<20} or {step:>8}"


def column_name(heading: str) -> str:
    """Return a heading as one types it: `nodes open` is `nodes_open`, `devices (x: held)` is `devices`."""
    return heading.partition(" (")[0].strip().lower().replace(" ", "_")


def text_of(value: Any) -> str:
    """Return a value as text: nothing for None, plain values of a list with commas, anything deeper as JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and not any(isinstance(one, dict | list | tuple) for one in value):
        return ",".join(text_of(one) for one in value)
    if isinstance(value, dict | list | tuple):
        return msgspec.json.encode(value).decode() if value else ""
    return str(value)


def sort_key(text: str) -> tuple[int, float, str]:
    """Return the place of a cell: numbers, durations and sizes by their amount, then text, then what is empty."""
    if not text:
        return _EMPTY, 0, ""
    if _DURATION.fullmatch(text):
        return 0, parse_duration_ms(text), ""
    if size := _SIZE.match(text):
        return 0, parse_size_bytes(size[0]), ""
    if number := _NUMBER.match(text):
        return 0, float(number[0].replace(",", "") or 0), text
    return 1, 0, text.casefold()


def items_of(value: Any) -> list[Any]:
    """Return the items of a result: those of the one list that it holds, or itself."""
    made = msgspec.to_builtins(value)
    if isinstance(made, dict) and len(made) == 1:
        made = next(iter(made.values()))
    return list(made) if isinstance(made, list | tuple) else [made]


def _parts(template: str) -> list[tuple[str, str | None, str]]:
    """Return the parts of a template: text, and then the name and layout of a field, if one follows."""
    written = template.replace("\\t", "\t").replace("\\n", "\n")
    try:
        parsed = list(string.Formatter().parse(written))
    except ValueError as error:
        raise UsageError(f"--format is '{template}': {error}", hint="such as '{id} {name}'; {{ is a brace") from None
    parts: list[tuple[str, str | None, str]] = []
    for literal, name, layout, _ in parsed:
        if name == "":
            raise UsageError(f"--format is '{template}': a brace without a name", hint="such as '{id} {name}'")
        parts.append((literal, name, layout or ""))
    return parts
