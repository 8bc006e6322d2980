"""Faults of a trace file, with the place where its owner finds them."""

from typing import NamedTuple

from penstock.core.model.errors import PenstockError


class TraceError(PenstockError):
    """A file that cannot be read as the expected trace; nothing of it was kept."""

    code = "bad_trace"

    def __init__(
        self, path: str, *, line: int = 0, column: str = "", found: str = "", expected: str, hint: str = ""
    ) -> None:
        """Take the place (`line` counts from 1, `column` by name), the text found there, and the expected one."""
        where = path + (f", line {line}" if line else "") + (f", column {column}" if column else "")
        shown = found if len(found) <= 80 else f"{found[:77]}..."
        said = f" found {shown!r}," if found or column else ""
        super().__init__(f"{where}:{said} expected {expected}", hint=hint)
        self.path, self.line, self.column, self.found, self.expected = path, line, column, found, expected


class TracePlace(NamedTuple):
    """A file, and a line in it; lines count from 1, 0 is the file as a whole."""

    file: str
    line: int = 0

    def fault(self, column: str, found: str, expected: str, hint: str = "") -> TraceError:
        """Return the error for this place; the caller raises it."""
        return TraceError(self.file, line=self.line, column=column, found=found, expected=expected, hint=hint)
