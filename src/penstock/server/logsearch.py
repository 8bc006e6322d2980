"""Finds lines of an output from its end backwards, in bounded pieces. For a thread.

A regular expression is one of RE2, which takes time in proportion to the text whatever the expression is.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.api.jobs import LogLine
from penstock.core.model.errors import Problem
from penstock.server.http.parsing import invalid
from penstock.server.http.responses import ApiError

PIECE_BYTES = 256 * 1024
"""Read and searched at once; a longer line is searched in parts."""
PIECES_MAX = 16
"""Of one request."""
EXPRESSION_MAX_BYTES = 2**20
"""Memory of a compiled expression."""
LINE_MAX_BYTES = 1_000
"""Of a line that is shown."""
BEFORE_MATCH_BYTES = 200
"""Shown of a long line before the match."""
LINES_MAX = 10_000
"""Lines of one tail."""

Read = Callable[[int, int], tuple[int, bytes] | None]
"""From an offset up to so many bytes: where they begin (behind a gap), and the bytes."""
Find = Callable[[bytes, int], tuple[int, int] | None]
"""The first match in a piece from a position on: where it begins and ends, within one line."""


class Searched(NamedTuple):
    lines: list[LogLine]
    """The last ones first."""
    before: int
    """Where to go on; 0: nothing is left."""
    read: int
    """Bytes that were searched."""


def finder(text: str, *, regex: bool, ignore_case: bool) -> Callable[[bytes], Find]:
    """Return what makes the search for a text of a piece. Case is ignored of ASCII letters in a plain text.

    Raises: ApiError for an expression that is wrong or too large, or where the server lacks RE2.
    """
    if "\n" in text:
        raise invalid([Problem("bad_value", "q", "q has a line end: lines are searched one by one")])
    if regex:
        found = _expression(text, ignore_case=ignore_case)
        return lambda piece: found
    wanted = text.encode()
    wanted = wanted.lower() if ignore_case else wanted

    def of(piece: bytes) -> Find:
        where = piece.lower() if ignore_case else piece

        def find(_: bytes, at: int) -> tuple[int, int] | None:
            begin = where.find(wanted, at)
            return (begin, begin + len(wanted)) if begin >= 0 else None

        return find

    return of


def _expression(text: str, *, ignore_case: bool) -> Find:
    try:
        import re2
    except ImportError:
        hint = "search for a plain text, or install penstock[search] on the server"
        raise ApiError("unavailable", "this server has no regular expressions", hint=hint) from None
    options = re2.Options()
    options.max_mem, options.log_errors, options.never_nl = EXPRESSION_MAX_BYTES, False, True
    options.case_sensitive = not ignore_case
    try:
        compiled = re2.compile(b"(?m)" + text.encode(), options)
    except re2.error as error:
        said = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise invalid([Problem("bad_value", "q", f"q is no regular expression of RE2: {said}")]) from error

    def find(piece: bytes, at: int) -> tuple[int, int] | None:
        match = compiled.search(piece, at)
        return match.span() if match is not None else None

    return find


def search(read: Read, make: Callable[[bytes], Find], before: int, limit: int) -> Searched:
    """Return up to `limit` lines that match and begin before an offset, and where to go on."""
    lines: list[LogLine] = []
    end, searched = before, 0
    for _ in range(PIECES_MAX):
        if end <= 0 or len(lines) == limit:
            break
        begin = max(0, end - PIECE_BYTES)
        where, piece = _piece(read, begin, end)
        searched += len(piece)
        head = _head(piece) if where == begin > 0 else 0
        found = list(_matches(piece, head, make(piece)))[-(limit - len(lines)) :]
        lines += [_shown(piece, where, *one) for one in reversed(found)]
        end = where + head if where == begin else 0  # what was before a gap is gone
        if len(lines) == limit:
            end = lines[-1].offset
    return Searched(lines, end, searched)


def tail(read: Read, before: int, count: int, most_bytes: int) -> tuple[int, bytes]:
    """Return where the last lines before an offset begin, and their bytes: up to `count` lines and `most_bytes`."""
    where, piece = _piece(read, max(0, before - most_bytes), before)
    at = len(piece) - 1 if piece.endswith(b"\n") else len(piece)
    for _ in range(count):
        at = piece.rfind(b"\n", 0, max(0, at))
        if at < 0:
            return where, piece
    return where + at + 1, piece[at + 1 :]


def _piece(read: Read, begin: int, end: int) -> tuple[int, bytes]:
    """Return the bytes of [begin, end), or of what is left of it behind a gap."""
    found = read(begin, end - begin) if end > begin else None
    if found is None or not begin <= found[0] < end:
        return end, b""
    return found[0], found[1][: end - found[0]]


def _head(piece: bytes) -> int:
    """Return the length of what belongs to a line that begins before the piece; 0 where no line begins in it."""
    return piece.find(b"\n", 0, max(0, len(piece) - 1)) + 1


def _matches(piece: bytes, at: int, find: Find) -> Iterator[tuple[int, int, int, int]]:
    """Yield begin and end of each line that matches, and of its first match."""
    while at < len(piece) and (found := find(piece, at)) is not None:
        begin, end = found
        line = max(at, piece.rfind(b"\n", at, begin) + 1)
        line_end = piece.find(b"\n", end)
        line_end = line_end if line_end >= 0 else len(piece)
        if line < len(piece):
            yield line, line_end, begin, end
        at = line_end + 1


def _shown(piece: bytes, where: int, line: int, line_end: int, begin: int, end: int) -> LogLine:
    first = line if line_end - line <= LINE_MAX_BYTES else max(line, begin - BEFORE_MATCH_BYTES)
    last = min(line_end, first + LINE_MAX_BYTES)
    before, match, after = (
        piece[a:b].decode(errors="replace")
        for a, b in ((first, begin), (begin, min(end, last)), (min(end, last), last))
    )
    text = before + match + after.removesuffix("\r")
    return LogLine(where + line, text, len(before), len(before) + len(match), (first, last) != (line, line_end))
