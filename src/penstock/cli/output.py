"""Printing: tables for people, JSON for programs, errors with exit codes that mean something."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from rich.console import Console

EXIT_CODES: dict[str, int] = {
    "invalid_input": 2,
    "bad_import": 2,
    "bad_trace": 2,
    "bad_certificate": 2,
    "conflict": 2,
    "too_large": 2,
    "server_not_running": 3,
    "unauthenticated": 4,
    "forbidden": 4,
    "not_trusted": 4,
    "not_found": 5,
    "store_full": 6,
    "store_unavailable": 6,
    "overloaded": 6,
    "too_many_requests": 6,
    "already_running": 7,
}
"""Exit code by error code; any other error is 1."""

PIPED_WIDTH = 200
STATE_STYLE = {
    "waiting": "yellow",
    "starting": "cyan",
    "running": "green",
    "suspended": "blue",
    "stopping": "magenta",
    "succeeded": "dim green",
    "failed": "red",
    "cancelled": "dim",
}


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def error_code(error: PenstockError) -> str:
    """Return the stable code: the server's own where it is the server's error."""
    details = getattr(error, "details", None)
    return str(details.code) if details is not None else error.code


def print_error(error: PenstockError, *, as_json: bool) -> int:
    """Print the error to standard error and return the exit code."""
    code = error_code(error)
    if as_json:
        shown = {"code": code, "message": error.message, "hint": error.hint, "problems": error.problems}
        sys.stderr.write(msgspec.json.encode(shown).decode() + "\n")
        return EXIT_CODES.get(code, 1)
    lines = [f"error: {error.message}"]
    if len(error.problems) == 1:
        lines = [f"error: {error.problems[0].message}"]
        lines += [f"  hint: {error.problems[0].hint}"] if error.problems[0].hint else []
    else:
        for problem in error.problems:
            lines.append(f"  - {problem.message}" + (f" ({problem.hint})" if problem.hint else ""))
    if error.hint:
        lines.append(f"  hint: {error.hint}")
    sys.stderr.write("\n".join(lines) + "\n")
    return EXIT_CODES.get(code, 1)


def console() -> "Console":
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=PIPED_WIDTH)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> Any:
    """Return a plain table; columns named in `right` are aligned to the right, empty columns are left out.

    Text that does not fit is cut with an ellipsis, so that each row stays one line.
    """
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    used = [i for i in range(len(columns)) if not rows or any(row[i] for row in rows)]
    for i in used:
        made.add_column(
            columns[i], justify="right" if columns[i] in right else "left", no_wrap=True, overflow="ellipsis"
        )
    for row in rows:
        made.add_row(*(row[i] for i in used))
    return made


def styled(state: str) -> str:
    style = STATE_STYLE.get(state)
    return f"[{style}]{state}[/]" if style else state


def plain(text: str) -> str:
    """Return text that a table prints as it is, markup and control characters made harmless."""
    from rich.markup import escape

    return escape(shown(text))


def shown(text: str) -> str:
    """Return text with control characters made harmless."""
    return "".join(c if c.isprintable() else "�" for c in text)
