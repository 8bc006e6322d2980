"""Faults of another scheduler's configuration, with the place where its owner finds them."""

from collections.abc import Sequence

from penstock.core.config.reader import shown
from penstock.core.model.errors import PenstockError, Problem


class ImportFault(PenstockError):
    """A file that cannot be read in the expected format; nothing of it was kept."""

    code = "bad_import"

    def __init__(
        self, file: str, *, line: int = 0, field: str = "", value: str = "", expected: str, hint: str = ""
    ) -> None:
        """Take the place (`line` counts from 1; 0 for the file as a whole), the text found there, the expected one."""
        where = file + (f", line {line}" if line else "") + (f", {field}" if field else "")
        found = shown(value)
        said = f" found {found}," if value or field else ""
        message = f"{where}:{said} expected {expected}"
        place = f"{file}:{line}" if line else file
        problem = Problem(self.code, f"{place}: {field}" if field else place, message, found, hint)
        super().__init__(message, hint=hint, problems=[problem])
        self.file, self.line, self.field, self.value, self.expected = file, line, field, value, expected


def all_of(faults: Sequence[ImportFault]) -> ImportFault:
    """Return one fault that stands at the place of the first and lists the problems of all."""
    first = faults[0]
    first.problems = tuple(problem for fault in faults for problem in fault.problems)
    return first
