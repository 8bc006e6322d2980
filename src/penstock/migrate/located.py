"""YAML with the line of every value, within limits. Scalars stay texts: each field parses its own.

Values are built from the parser's events, not by its constructor: no tags are followed, no dates or floats are made,
depth is counted, and an alias counts as much as its target, so that a few lines cannot mean millions.
"""

from typing import NamedTuple

import yaml

from penstock.migrate.errors import ImportFault
from penstock.migrate.report import SourcePlace

YAML_BYTES_MAX = 8 * 2**20
DEPTH_MAX = 64
VALUES_MAX = 500_000
"""Values in one file, those behind aliases counted each time."""
DOCUMENTS_MAX = 10_000
_NULLS = ("", "~", "null", "Null", "NULL")
_MERGE = "<<"


class Text(NamedTuple):
    """A scalar as it is written, without quotes."""

    place: SourcePlace
    text: str
    plain: bool
    """Written without quotes: only then `true`, `null` and numbers mean something else than their text."""
    block: bool = False
    """Written as a block (`|` or `>`)."""

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS


class Listing(NamedTuple):
    place: SourcePlace
    items: "tuple[Value, ...]"


class LocatedPair(NamedTuple):
    key: str
    place: SourcePlace
    value: "Value"


class LocatedTable(NamedTuple):
    """A mapping; its keys are texts and differ."""

    place: SourcePlace
    pairs: tuple[LocatedPair, ...]


Value = Text | Listing | LocatedTable


class _Open:
    """A list or mapping whose end has not been seen."""

    def __init__(self, place: SourcePlace, anchor: str | None, *, table: bool) -> None:
        self.place, self.anchor, self.table = place, anchor, table
        self.items: list[Value] = []
        self.size = 1

    def close(self) -> Value:
        if not self.table:
            return Listing(self.place, tuple(self.items))
        pairs: dict[str, LocatedPair] = {}
        merged: list[LocatedPair] = []
        for key, value in zip(self.items[::2], self.items[1::2], strict=True):
            if not isinstance(key, Text):
                raise key.place.fault("key", "", "a key that is a text")
            if key.text == _MERGE and key.plain:
                merged += _merged(value)
            elif key.text in pairs:
                raise key.place.fault(key.text, "", f"each key once; it is also in line {pairs[key.text].place.line}")
            else:
                pairs[key.text] = LocatedPair(key.text, key.place, value)
        for pair in merged:
            pairs.setdefault(pair.key, pair)
        return LocatedTable(self.place, tuple(pairs.values()))


def _merged(value: Value) -> list[LocatedPair]:
    """Return the pairs that a merge key (`<<`) brings in, the first mapping first."""
    tables = value.items if isinstance(value, Listing) else (value,)
    found: list[LocatedPair] = []
    for table in tables:
        if not isinstance(table, LocatedTable):
            raise table.place.fault(_MERGE, "", "a mapping to merge")
        found += table.pairs
    return found


def documents(text: str, file: str, *, line_first: int = 1) -> list[Value]:
    """Return the documents of a YAML text; empty ones are left out.

    Args:
        line_first: line of `file` in which the text begins.
    Raises: ImportFault for invalid YAML, for doubles of a key, and above the limits of this module.
    """
    if len(text) > YAML_BYTES_MAX:
        raise ImportFault(file, line=line_first, expected=f"at most {YAML_BYTES_MAX} bytes of YAML", hint="split it")
    builder = _Builder(file, line_first)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + line_first if mark else 0
        said = " ".join(str(error.problem or error.context or "").split())
        raise ImportFault(file, line=line, expected=f"YAML ({said})", hint="check indentation and quotes") from error
    except (yaml.YAMLError, ValueError) as error:
        said = " ".join(str(error).split())[:120]
        raise ImportFault(file, expected=f"YAML ({said})", hint="remove control characters") from error
    return [found for found in builder.found if not (isinstance(found, Text) and found.is_null)]


class _Builder:
    """Folds parser events to values, and counts."""

    def __init__(self, file: str, line_first: int) -> None:
        self._file, self._line_first = file, line_first
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Value, int]] = {}
        self.found: list[Value] = []
        self._count = 0

    def take(self, event: yaml.Event) -> None:
        place = SourcePlace(self._file, (event.start_mark.line if event.start_mark else 0) + self._line_first)
        if isinstance(event, yaml.DocumentStartEvent):
            self._anchors = {}
            if len(self.found) >= DOCUMENTS_MAX:
                raise place.fault("document", "", f"at most {DOCUMENTS_MAX} documents")
        elif isinstance(event, yaml.ScalarEvent):
            if "\0" in event.value:
                raise place.fault("", event.value, "text without NUL characters")
            text = Text(place, event.value, event.style in (None, ""), event.style in ("|", ">"))
            self._put(text, 1, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._put(*self._alias(place, event.anchor or ""), None)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self._open) >= DEPTH_MAX:
                raise place.fault("depth", "", f"at most {DEPTH_MAX} levels")
            self._open.append(_Open(place, event.anchor, table=isinstance(event, yaml.MappingStartEvent)))
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self._open.pop()
            self._put(done.close(), done.size, done.anchor)

    def _alias(self, place: SourcePlace, anchor: str) -> tuple[Value, int]:
        known = self._anchors.get(anchor)
        if known is None:
            raise place.fault(f"*{anchor}", "", "an alias of an anchor above it, not around it")
        self._count += known[1]
        return known

    def _put(self, value: Value, size: int, anchor: str | None) -> None:
        self._count += 1
        if self._count > VALUES_MAX or size > VALUES_MAX:
            raise value.place.fault("values", "", f"at most {VALUES_MAX} values, aliases counted", "split the file")
        if anchor:
            self._anchors[anchor] = (value, size)
        if self._open:
            self._open[-1].items.append(value)
            self._open[-1].size += size
        else:
            self.found.append(value)


def shown_value(value: Value) -> str:
    """Return a value as reports show it: a text as it is, of other values only their size."""
    if isinstance(value, Text):
        return value.text
    if isinstance(value, Listing):
        return f"[{len(value.items)}]"
    return "{" + ", ".join(pair.key for pair in value.pairs[:8]) + "}"


def line_inside(value: Text) -> int:
    """Return the line in which the content of a scalar begins: a block scalar (`|`) starts below its key."""
    return value.place.line + (1 if value.block else 0)
