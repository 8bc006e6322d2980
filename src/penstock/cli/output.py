"""Printing: tables for people, JSON for programs, errors with exit codes that mean something.

All output goes through here, for most of it was written by others: names, reasons, a program's last
words. A `str` is printed as it is, in one line, with control and invisible characters escaped; styles come from
`marked` and `styled` alone, so that no text of others is ever taken for markup. `raw` is the one way around it.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.tables import Table
from penstock.core.model.errors import PenstockError
from penstock.core.model.foreign import in_json, lines, one_line

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import ConsoleOptions
    from rich.segment import Segment
    from rich.text import Text

EXIT_CODES: dict[str, int] = {
    "invalid_input": 2,
    "bad_import": 2,
    "bad_trace": 2,
    "bad_certificate": 2,
    "conflict": 2,
    "usage": 2,
    "not_confirmed": 2,
    "too_large": 2,
    "server_not_running": 3,
    "unauthenticated": 4,
    "forbidden": 4,
    "not_trusted": 4,
    "not_private": 4,
    "not_found": 5,
    "store_full": 6,
    "store_unavailable": 6,
    "overloaded": 6,
    "too_many_requests": 6,
    "already_running": 7,
    "job_failed": 1,
    "timed_out": 8,
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


def say(*said: str, err: bool = False) -> None:
    """Print each text as one line, to standard output or standard error."""
    out = sys.stderr if err else sys.stdout
    out.write("".join(one_line(each) + "\n" for each in said))
    out.flush()


def print_document(text: str) -> None:
    """Print a document of several lines, such as a table for spreadsheets."""
    sys.stdout.write(lines(text))


def raw(data: bytes, *, err: bool = False) -> None:
    """Print a program's output unchanged, byte by byte, on the user's request."""
    out = sys.stderr if err else sys.stdout
    out.buffer.write(data)
    out.buffer.flush()


def clear_screen() -> None:
    """Clear a terminal, to draw on it again."""
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[2J\x1b[H")


def flush() -> None:
    """Write out what was printed. Raises: BrokenPipeError when nobody reads it."""
    sys.stdout.flush()


def print_json(value: Any) -> None:
    print_encoded(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_done(value: Any, *said: str, as_json: bool) -> None:
    """Print the result of a change: the value for programs, or lines for people."""
    if as_json:
        print_json(value)
    else:
        say(*said)


def print_encoded(data: bytes) -> None:
    """Print JSON, with `\\u` in strings for all control and invisible characters."""
    sys.stdout.write(in_json(data.decode()) + "\n")


def json_line(value: Any) -> str:
    """Return a value as one line of JSON, as `print_encoded` prints it."""
    return in_json(msgspec.json.encode(value).decode()) + "\n"


def error_code(error: PenstockError) -> str:
    """Return the stable code: the server's own where it is the server's error."""
    details = getattr(error, "details", None)
    return str(details.code) if details is not None else error.code


def print_error(error: PenstockError, *, as_json: bool) -> int:
    """Print the error to standard error and return the exit code."""
    code = error_code(error)
    if as_json:
        shown = {"code": code, "message": error.message, "hint": error.hint, "problems": error.problems}
        sys.stderr.write(json_line(shown))
        return EXIT_CODES.get(code, 1)
    told = [f"error: {error.message}"]
    if len(error.problems) == 1:
        told = [f"error: {error.problems[0].message}"]
        told += [f"  hint: {error.problems[0].hint}"] if error.problems[0].hint else []
    else:
        for problem in error.problems:
            told.append(f"  - {problem.message}" + (f" ({problem.hint})" if problem.hint else ""))
    if error.hint:
        told.append(f"  hint: {error.hint}")
    sys.stderr.write(lines("\n".join(told)) + "\n")
    return EXIT_CODES.get(code, 1)


class Console:
    """Prints tables, trees and lines with styles on standard output, or standard error."""

    def __init__(self, *, err: bool = False) -> None:
        from rich.console import Console as RichConsole

        class Rich(RichConsole):
            """Leaves a closed pipe to the program, which ends without a word."""

            def on_broken_pipe(self) -> None:
                raise BrokenPipeError

        self._width = None if (sys.stderr if err else sys.stdout).isatty() else PIPED_WIDTH
        self._rich = Rich(highlight=False, markup=False, emoji=False, width=self._width, stderr=err)

    def print(self, what: object = "") -> None:
        """Print a line, or a table or tree. A string is no markup. Lines are broken at a terminal only."""
        if isinstance(what, Table):
            self._print_table(what)
            return
        shown = _Harmless(one_line(what) if isinstance(what, str) else what)
        self._rich.print(shown, soft_wrap=self._width is not None)

    def _print_table(self, shown: Table) -> None:
        """Print a table; what does not fit a terminal is left out in the table's own order, and named."""
        from rich.text import Text

        fitted, left_out = shown.fitted(self._rich.width if self._width is None else None)
        self._rich.print(_Harmless(fitted), soft_wrap=True)
        if left_out:
            note = f"not shown for lack of width: {', '.join(reversed(left_out))}"
            self._rich.print(_Harmless(Text(note, style="dim")))


class _Harmless:
    """A printable without control and invisible characters: no output gets around this."""

    def __init__(self, what: object) -> None:
        self._what: Any = what

    def __rich_console__(self, out: "RichConsole", options: "ConsoleOptions") -> "Iterator[Segment]":
        from rich.segment import Segment

        for piece in out.render(self._what, options):
            yield piece if piece.control else Segment(lines(piece.text), piece.style)


def table(
    columns: Sequence[str],
    rows: "Sequence[Sequence[str | Text]]",
    *,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
    text: Sequence[str] = (),
) -> Table:
    """Return a plain table (see `Table`): columns in `right` are aligned to the right, those in `drop` may be left out,
    those in `text` may be cut."""
    return Table(columns, rows, right=right, drop=drop, text=text)


def marked(pattern: str, *given: object) -> "Text":
    """Return a line with the styles of `pattern`, each `{}` filled with a given value as it is.

    No given value is read as markup. (To escape it would not do: a backslash at its end would escape
    the pattern's own.)
    """
    from rich.text import Span, Text

    whole = Text.from_markup(pattern, emoji=False)
    made, left = Text(), list(given)
    while (at := whole.plain.find("{}")) >= 0:
        piece = _text(left.pop(0))
        styles = [Span(0, len(piece), style) for style in (*(s.style for s in whole[at : at + 2].spans), piece.style)]
        made.append_text(whole[:at]).append_text(Text(piece.plain, spans=[*styles, *piece.spans]))
        whole = whole[at + 2 :]
    if left:
        raise ValueError(f"{pattern!r} has no place for {left!r}")
    return made.append_text(whole)


def styled(state: str) -> "Text":
    from rich.text import Text

    return Text(one_line(state), style=STATE_STYLE.get(state, ""))


def _text(what: object) -> "Text":
    from rich.text import Text

    return what if isinstance(what, Text) else Text(one_line(str(what)))
