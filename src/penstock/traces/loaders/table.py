"""Tables of text with a header line: rows in order, and cells read to numbers and times.

A fault names file, line and column of the cell, its text, and the expected one.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

from penstock.core.model.errors import nearest
from penstock.core.model.quantities import TIME_MAX_MS
from penstock.formats.files import lines_by_block
from penstock.formats.numbers import DIGITS_MAX, RUN_MAX_MS, moment_ms, seconds_to_ms, whole_number
from penstock.traces.errors import TraceError, TracePlace

COLUMNS_MAX = 1_000
COMMENT_CHARACTERS_MAX = 2**28
"""Of all comments before a header together."""
Row = list[str]
HeaderOf = Callable[[Sequence[str]], tuple[list[str], bool]]
"""Returns the names of the columns for the fields of the first line, and whether that line is a row already."""


class TextTable:
    """One file with a header, read from front to back once.

    `line` is the line of the row that was given out last, from 1.
    """

    def __init__(self, path: Path, *, separator: str = ",", comment: str = "", header: HeaderOf | None = None) -> None:
        """Read up to the header. Lines before it that start with `comment` are kept in `comments`, with their number.

        A line break within quotes is refused: line numbers stay true, and a lost quote swallows no lines.

        Args:
            header: how the first line is read where a source writes it in several ways, or not at all.
        Raises: TraceError when there is no header, or it names a column twice.
        """
        self.path, self.line = path, 0
        self.comments: list[tuple[int, str]] = []
        self._separator = separator
        self._quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE
        self._blocks = lines_by_block(path, TracePlace)
        self._rest: list[str] = []
        self.first = self._header(comment)
        """The first line that is no comment, as it stands: the header, or (`headless`) a row."""
        fields = [name.strip() for name in self._parsed([self.first], self.line)[0]]
        self._trailing = separator == "|" and fields[-1] == ""
        if self._trailing:
            fields.pop()
        self.names, self.headless = header(fields) if header is not None else (fields, False)
        self._check_names()
        if self.headless:
            self.line -= 1
            self._rest.insert(0, self.first)

    def _header(self, comment: str) -> str:
        size = 0
        for lines in self._blocks:
            if size > COMMENT_CHARACTERS_MAX:
                raise TraceError(str(self.path), line=self.line, found="only comments", expected="a header line")
            for at, line in enumerate(lines):
                self.line += 1
                if comment and line.startswith(comment):
                    self.comments.append((self.line, line))
                    size += len(line)
                elif line.strip():
                    self._rest = lines[at + 1 :]
                    return line
        raise TraceError(str(self.path), found="nothing", expected="a header line with the names of columns")

    def _check_names(self) -> None:
        for at, name in enumerate(self.names):
            if name in self.names[:at]:
                raise self.fault(name, name, "columns with different names", "two columns have this name")
        if len(self.names) > COLUMNS_MAX:
            raise self.fault("", f"{len(self.names)} columns", f"at most {COLUMNS_MAX}")

    def fault(self, column: str, found: str, expected: str, hint: str = "") -> TraceError:
        """Return an error at the present line."""
        return TraceError(str(self.path), line=self.line, column=column, found=found, expected=expected, hint=hint)

    def wrong(self, row: Row, at: int, expected: str, hint: str = "") -> TraceError:
        """Return an error about a cell of the present row."""
        return self.fault(self.names[at], row[at], expected, hint)

    def columns(self, *names: str) -> list[int]:
        """Return where these columns are. Raises: TraceError for the first that is missing, with the nearest name."""
        return [self._column(name) for name in names]

    def _column(self, name: str) -> int:
        if name in self.names:
            return self.names.index(name)
        hint = nearest(name, self.names)
        raise self.fault("", ",".join(self.names), f"a column '{name}' in the header", hint)

    def optional(self, name: str) -> int:
        """Return where a column is, or -1."""
        return self.names.index(name) if name in self.names else -1

    def rows(self) -> Iterator[Row]:
        """Yield the rows after the header, each as wide as it; empty lines are passed over."""
        width = len(self.names)
        rest, self._rest = self._rest, []
        for lines in chain([rest], self._blocks):
            for row in self._parsed(lines, self.line + 1):
                self.line += 1
                if len(row) == width or self._mended(row, width):
                    yield row

    def _mended(self, row: Row, width: int) -> bool:
        """Return whether a row of another width can be used: a closing separator is cut off."""
        if not row:
            return False
        if self._trailing and len(row) == width + 1 and not row[-1]:
            row.pop()
            return True
        hint = "leave out columns of free text, such as JobName: one may hold the separator" if self._quoting else ""
        raise self.fault("", f"{len(row)} fields", f"{width} fields, as the header has", hint)

    def _parsed(self, lines: list[str], first: int) -> list[Row]:
        try:
            found = list(csv.reader(lines, delimiter=self._separator, strict=True, quoting=self._quoting))
            if len(found) == len(lines):
                return found
        except csv.Error:
            pass
        for at, line in enumerate(lines):
            try:
                list(csv.reader([line], delimiter=self._separator, strict=True, quoting=self._quoting))
            except csv.Error as problem:
                self.line = first + at
                raise self.fault("", line, f"fields separated by '{self._separator}' ({problem})") from None
        raise self.fault("", "a quoted field over several lines", "each row on one line")

    # Cells.

    def whole(self, row: Row, at: int, *, low: int = 0, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        text = row[at]
        if text.isdigit() and text.isascii() and len(text) <= DIGITS_MAX:
            value = int(text)
        else:
            value = self._read(row, at, whole_number, f"a whole number from {low} to {high}")
        if not low <= value <= high:
            raise self.wrong(row, at, f"a whole number from {low} to {high}")
        return value

    def length_ms(self, row: Row, at: int) -> int:
        """Return milliseconds for a number of seconds; negative ones (a source's mistakes) come back as they are."""
        text = row[at].removesuffix(".0")
        if text.isdigit() and text.isascii() and len(text) < DIGITS_MAX:
            value = int(text) * 1000
        else:
            value = self._read(row, at, seconds_to_ms, "a number of seconds")
        if not -RUN_MAX_MS <= value <= RUN_MAX_MS:
            raise self.wrong(row, at, "a number of seconds, at most a hundred years")
        return value

    def milli(self, row: Row, at: int) -> int:
        """Return thousandths for a number, which may be negative."""
        return self._read(row, at, seconds_to_ms, "a number")

    def offset_ms(self, row: Row, at: int) -> int:
        """Return milliseconds for seconds since the start of the trace."""
        text = row[at]
        if text.isdigit() and text.isascii() and len(text) < DIGITS_MAX:
            value = int(text) * 1000
        else:
            value = self._read(row, at, seconds_to_ms, "a number of seconds from 0")
        if not 0 <= value < TIME_MAX_MS:
            raise self.wrong(row, at, "a number of seconds from 0")
        return value

    def moment_ms(self, row: Row, at: int) -> int:
        """Return unix milliseconds for an ISO 8601 time or unix seconds."""
        try:
            return moment_ms(row[at])
        except ValueError:
            raise self.wrong(row, at, "a time such as 2017-10-09 07:01:55, or unix seconds") from None

    def word(self, row: Row, at: int, known: Iterable[str]) -> str:
        """Return a cell that is one of `known`."""
        if row[at] in known:
            return row[at]
        words = sorted(known)
        raise self.wrong(row, at, "one of " + ", ".join(words), nearest(row[at], words))

    def _read(self, row: Row, at: int, read: Callable[[str], int], expected: str) -> int:
        try:
            return read(row[at])
        except (ValueError, OverflowError):
            raise self.wrong(row, at, expected) from None


def beside(path: Path, names: Sequence[str]) -> Path | None:
    """Return the first of `names`, plain or as .gz, that lies in the folder of `path`."""
    for name in names:
        for found in (path.parent / name, path.parent / f"{name}.gz"):
            if found.is_file():
                return found
    return None


def nodes_beside(path: Path, names: Sequence[str], expected: str) -> Path:
    """Return what `beside` does of a list of nodes. Raises: TraceError that says what was `expected` where none is."""
    found = beside(path, names)
    if found is None:
        hint = "or give the nodes with all that they have: --nodes 16x8xV100:cpus=64:memory=512GiB"
        raise TracePlace(str(path)).fault("", "none in its folder", expected, hint)
    return found


def words_of(path: Path) -> set[str]:
    """Return the words in the names of a file and its folder, in small letters."""
    letters = (f"{path.parent.name} {path.name}").lower()
    return set("".join(letter if letter.isalnum() else " " for letter in letters).split())


def stem(path: Path) -> str:
    """Return the name of a file without the endings of its format."""
    name = path.name
    for suffix in (".gz", ".csv", ".json", ".swf", ".txt"):
        name = name.removesuffix(suffix)
    return name or path.name
