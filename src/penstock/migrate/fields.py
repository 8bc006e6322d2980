"""Reads the fields of one YAML mapping, with an entry of the report for each, and refuses near misses.

An unknown field is refused when it is close to a known word: it is a slip. Any other unknown field is of another
version of the format; it is reported as not mapped.
"""

import difflib
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from penstock.core.model.errors import nearest
from penstock.migrate.errors import ImportFault
from penstock.migrate.located import Listing, LocatedPair, LocatedTable, Text, Value, shown_value
from penstock.migrate.report import Fate, KeyReader, MigrationReport, SourcePlace

FIELDS_MAX = 1_000
"""Fields of one mapping."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_TRUE = ("true", "True", "TRUE")
_FALSE = ("false", "False", "FALSE")
Kind = TypeVar("Kind", Text, Listing, LocatedTable)


class Fields(KeyReader):
    """The fields of a mapping that have not been read yet; `where` is the path of the mapping in its document."""

    def __init__(self, table: LocatedTable, where: str, report: MigrationReport) -> None:
        if len(table.pairs) > FIELDS_MAX:
            raise table.place.fault(where, len(table.pairs), f"a mapping of at most {FIELDS_MAX} fields")
        self.place, self.where, self.report = table.place, where, report
        self._pairs = {pair.key: pair for pair in table.pairs if not _is_null(pair.value)}
        self._seen: set[str] = set()
        self._known: set[str] = set()
        self._table = table

    def as_table(self) -> LocatedTable:
        return self._table

    def path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def has(self, key: str) -> bool:
        self._known.add(key)
        return key in self._pairs

    def names(self) -> tuple[str, ...]:
        return tuple(self._pairs)

    def place_of(self, key: str) -> SourcePlace:
        """Return where a field stands, or where its mapping does when it is left out."""
        return self._pairs[key].place if key in self._pairs else self.place

    def _take(self, key: str) -> LocatedPair | None:
        self._seen.add(key)
        return self._pairs.get(key)

    def value(self, key: str) -> Value | None:
        pair = self._take(key)
        return None if pair is None else pair.value

    def _value_of(self, kind: type[Kind], key: str, expected: str) -> Kind | None:
        value = self.value(key)
        if value is not None and not isinstance(value, kind):
            raise self.fault(key, expected)
        return value

    def text(self, key: str, default: str = "") -> str:
        value = self._value_of(Text, key, "a text or number")
        return default if value is None else value.text

    def required(self, key: str) -> str:
        found = self.text(key)
        if not found:
            raise self.place_of(key).fault(self.path(key), found, "a text that is not empty")
        return found

    def word(self, key: str, words: Sequence[str], default: str) -> str:
        found = self.text(key, default)
        if found not in words:
            raise self.fault(key, "one of " + ", ".join(words), nearest(found, words))
        return found

    def integer(self, key: str, default: int, *, low: int, high: int) -> int:
        found = self.text(key, str(default))
        if not _INTEGER.fullmatch(found) or not low <= int(found) <= high:
            raise self.fault(key, f"a whole number from {low} to {high}")
        return int(found)

    def flag(self, key: str, *, default: bool) -> bool:
        found = self.text(key, "true" if default else "false")
        if found not in (*_TRUE, *_FALSE):
            raise self.fault(key, "true or false")
        return found in _TRUE

    def quantity(self, key: str, parse: Callable[[str], Fraction], example: str) -> Fraction:
        found = self.text(key)
        try:
            return parse(found)
        except ValueError:
            raise self.fault(key, f"a quantity such as {example}, at most 2^60") from None

    def items(self, key: str) -> "list[Fields]":
        """Return the mappings of a list, each to be read on."""
        listing = self._value_of(Listing, key, "a list of mappings")
        found = []
        for index, item in enumerate(listing.items if listing else ()):
            path = f"{self.path(key)}[{index}]"
            if not isinstance(item, LocatedTable):
                raise item.place.fault(path, shown_value(item), "a mapping")
            found.append(Fields(item, path, self.report))
        return found

    def texts(self, key: str) -> list[str]:
        listing = self._value_of(Listing, key, "a list of texts")
        found = []
        for item in listing.items if listing else ():
            if not isinstance(item, Text):
                raise item.place.fault(self.path(key), shown_value(item), "a text")
            found.append(item.text)
        return found

    def inner(self, key: str) -> "Fields | None":
        """Return the fields of a mapping, or None when it is left out."""
        table = self._value_of(LocatedTable, key, "a mapping")
        return None if table is None else Fields(table, self.path(key), self.report)

    def fault(self, key: str, expected: str, hint: str = "") -> ImportFault:
        pair = self._pairs.get(key)
        value = shown_value(pair.value) if pair else ""
        return self.place_of(key).fault(self.path(key), value, expected, hint)

    def say(self, key: str, fate: Fate) -> None:
        pair = self._take(key)
        if pair is not None:
            self.report.add(pair.place, self.path(key), shown_value(pair.value), fate)

    def skip(self, *keys: str) -> None:
        """Count fields as read that need no entry in the report."""
        self._seen.update(keys)

    def done(self) -> None:
        """Refuse unread fields that look like slips; report the other unread ones."""
        for key in [key for key in self._pairs if key not in self._seen]:
            near = difflib.get_close_matches(key, sorted(self._seen | self._known), n=1, cutoff=0.8)
            if near:
                raise self.fault(key, "a field that exists", f"did you mean '{near[0]}'?")
        for key in [key for key in self._pairs if key not in self._seen]:
            self.lost(key, "this importer does not know the field")


def _is_null(value: Value) -> bool:
    return isinstance(value, Text) and value.is_null
