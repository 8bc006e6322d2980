"""Printing: tables for people, JSON for programs, errors with exit codes that mean something.

All output goes through here, for most of it was written by others: names, reasons, a program's last
words. A `str` is printed as it is, in one line, with control and invisible characters escaped; styles come from
`marked` and `styled` alone, so that no text of others is ever taken for markup. `raw` is the one way around it.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli import forms
from penstock.cli.rows import Rows, items_of
from penstock.cli.tables import Table, is_number
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
    """Print each text as one line, to standard output or standard error; to the first not among items for programs."""
    if forms.chosen().bare and not err:
        return
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


def print_json(value: Any, *, of: Sequence[Any] | None = None, key: str = "") -> None:
    """Print a value for programs, in the form that was chosen: JSON unless another is.

    Args:
        of: its items where items are wanted; by default those of the one list in it, or the value itself.
        key: the field that holds what one types for an item.
    """
    form = forms.chosen()
    if form.of_items:
        _print_rows(Rows(items_of(value) if of is None else of, key=key), form)
    elif form.output == "yaml":
        print_document(yaml_of(value))
    else:
        print_encoded(msgspec.json.format(msgspec.json.encode(value), indent=2))


def yaml_of(value: Any) -> str:
    """Return a value as YAML, which reads as the same value; with escapes for all that a terminal would obey."""
    import yaml

    plain = msgspec.to_builtins(value)
    text = yaml.safe_dump(plain, allow_unicode=True, sort_keys=False, width=10_000)
    return text if text == lines(text) else yaml.safe_dump(plain, allow_unicode=False, sort_keys=False, width=10_000)


def _print_rows(rows: Rows, form: forms.Form) -> None:
    """Print items in the form that was chosen."""
    forms.answered()
    if form.sort:
        rows = rows.sorted(form.sort)
    if form.output == "csv":
        sys.stdout.write(rows.csv(form.columns))
    elif form.output == "name":
        sys.stdout.write("".join(one_line(name) + "\n" for name in rows.names()))
    elif form.template:
        sys.stdout.write("".join(lines(line) + "\n" for line in rows.filled(form.template)))
    else:
        Console().fit(rows_table(rows, form.columns))


def rows_table(rows: Rows, columns: Sequence[str]) -> Table:
    """Return a table of fields; where all are shown, the last are left out first at a narrow terminal."""
    rows.known("--columns", columns)
    names = list(columns) or rows.fields
    cells = [[rows.text(at, name) for name in names] for at in range(len(rows))]
    right = [name for at, name in enumerate(names) if cells and all(is_number(row[at]) for row in cells)]
    return Table(names, cells, right=right, drop=() if columns else names[:0:-1], whole=bool(columns))


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
        if forms.chosen().bare:
            return
        shown = _Harmless(one_line(what) if isinstance(what, str) else what)
        self._rich.print(shown, soft_wrap=self._width is not None)

    def _print_table(self, shown: Table) -> None:
        """Print a table in the form that was chosen; what does not fit is left out in the table's order, and named."""
        form = forms.chosen()
        if shown.of is None and (form.bare or form.columns):
            return  # a table beside the list that was asked for
        if form.bare:
            _print_rows(shown.rows(), form)
            return
        if not shown and shown.empty:
            say(shown.empty)
            return
        if shown.of is not None and form.of_items:
            shown = shown.arranged(form.columns, form.sort)
            forms.answered()
        self.fit(shown)

    def fit(self, shown: Table) -> None:
        """Print a table as it is, but for the columns that a terminal has no room for."""
        from rich.text import Text

        narrow = self._width is None and forms.chosen().output != "wide"
        fitted, left_out = shown.fitted(self._rich.width if narrow else None)
        self._rich.print(_Harmless(fitted), soft_wrap=True)
        if left_out:
            note = f"not shown: {', '.join(reversed(left_out))} (-o wide)"
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
    of: Sequence[Any] | None = None,
    kind: type[msgspec.Struct] | None = None,
    key: str = "",
    empty: str = "",
) -> Table:
    """Return a plain table (see `Table`): columns in `right` are aligned to the right, those in `drop` may be left out,
    those in `text` may be cut; `of` are the items of the rows, of one `kind`, and `key` names them."""
    return Table(columns, rows, right=right, drop=drop, text=text, of=of, kind=kind, key=key, empty=empty)


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
