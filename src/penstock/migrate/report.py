"""The report of an import: the outcome of each key of the source, with its place."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from penstock.migrate.errors import ImportFault

Outcome = Literal["mapped", "approximated", "not mapped"]
DIGITS_MAX = 15
VALUE_CHARACTERS_MAX = 120
"""A longer value is cut in the report."""


class SourcePlace(NamedTuple):
    """A file as its owner named it, and a line in it; lines count from 1, 0 is the file as a whole."""

    file: str
    line: int = 0

    def fault(self, field: str, value: object, expected: str, hint: str = "") -> ImportFault:
        """Return the error for a fault at this place; the caller raises it."""
        return ImportFault(self.file, line=self.line, field=field, value=str(value), expected=expected, hint=hint)

    def whole(self, field: str, text: str, most: int, expected: str = "") -> int:
        """Return a whole number from 0 to `most`. Raises: ImportFault that says what was `expected`."""
        if not text.isascii() or not text.isdecimal() or len(text) > DIGITS_MAX or int(text) > most:
            raise self.fault(field, text, expected or f"a whole number from 0 to {most}")
        return int(text)


class Fate(NamedTuple):
    """What becomes of a key."""

    outcome: Outcome
    note: str = ""
    """How it was approximated, why it was not mapped, or where a mapped one went."""


def fates(outcome: Outcome, notes: Mapping[str, str]) -> dict[str, Fate]:
    """Return by key what becomes of it. Args: notes: by note the keys it holds for, divided by blanks."""
    return {key: Fate(outcome, note) for note, keys in notes.items() for key in keys.split()}


class KeyReader(ABC):
    """Reads keys of one place, and says what becomes of each."""

    def mapped(self, key: str, note: str = "") -> None:
        self.say(key, Fate("mapped", note))

    def approximated(self, key: str, how: str) -> None:
        self.say(key, Fate("approximated", how))

    def lost(self, key: str, why: str) -> None:
        self.say(key, Fate("not mapped", why))

    @abstractmethod
    def say(self, key: str, fate: Fate) -> None:
        """Add an entry for a key, if it is there, and count it as read."""


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
        self.add(place, key, value, Fate("mapped", note))

    def approximated(self, place: SourcePlace, key: str, value: object, how: str) -> None:
        self.add(place, key, value, Fate("approximated", how))

    def lost(self, place: SourcePlace, key: str, value: object, why: str) -> None:
        self.add(place, key, value, Fate("not mapped", why))

    def add(self, place: SourcePlace, key: str, value: object, fate: Fate) -> None:
        text = "" if value is None else str(value)
        text = text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 3] + "..."
        self._entries.append(MigrationEntry(place.file, place.line, key, text, *fate))

    def entries(self) -> tuple[MigrationEntry, ...]:
        """Return all entries by file and line; entries of one line keep their order."""
        for entry in self._entries:
            self._files.setdefault(entry.file, len(self._files))
        return tuple(sorted(self._entries, key=lambda e: (self._files[e.file], e.line)))
