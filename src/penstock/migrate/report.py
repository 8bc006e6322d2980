"""The report of an import: the outcome of each key of the source, with its place."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from penstock.migrate.errors import ImportFault

Outcome = Literal["mapped", "approximated", "not mapped"]
VALUE_CHARACTERS_MAX = 120
"""A longer value is cut in the report."""


class SourcePlace(NamedTuple):
    """A file as its owner named it, and a line in it; lines count from 1, 0 is the file as a whole."""

    file: str
    line: int = 0

    def fault(self, field: str, value: object, expected: str, hint: str = "") -> ImportFault:
        """Return the error for a fault at this place; the caller raises it."""
        return ImportFault(self.file, line=self.line, field=field, value=str(value), expected=expected, hint=hint)


class MigrationEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Outcome of one key."""

    file: str
    line: int
    key: str
    value: str
    outcome: Outcome
    note: str = ""
    """How it was approximated, why it was not mapped, or where a mapped one went."""


class MigrationReport:
    """Collects entries while sources are read. Every key that is read gets one."""

    def __init__(self, files: Iterable[str] = ()) -> None:
        """Take the files in their order in the report; others come after them."""
        self._files = {name: index for index, name in enumerate(files)}
        self._entries: list[MigrationEntry] = []

    def mapped(self, place: SourcePlace, key: str, value: object, note: str = "") -> None:
        self._add(place, key, value, "mapped", note)

    def approximated(self, place: SourcePlace, key: str, value: object, how: str) -> None:
        self._add(place, key, value, "approximated", how)

    def lost(self, place: SourcePlace, key: str, value: object, why: str) -> None:
        self._add(place, key, value, "not mapped", why)

    def _add(self, place: SourcePlace, key: str, value: object, outcome: Outcome, note: str) -> None:
        text = "" if value is None else str(value)
        text = text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 3] + "..."
        self._entries.append(MigrationEntry(place.file, place.line, key, text, outcome, note))

    def entries(self) -> tuple[MigrationEntry, ...]:
        """Return all entries by file and line; entries of one line keep their order."""
        for entry in self._entries:
            self._files.setdefault(entry.file, len(self._files))
        return tuple(sorted(self._entries, key=lambda e: (self._files[e.file], e.line)))
