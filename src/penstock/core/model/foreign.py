"""Makes untrusted text safe to show: finds what controls a terminal, deceives the reader or is run by a spreadsheet."""

import csv
import io
import re
from collections.abc import Iterable

_COMMANDS = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # of terminals: C0 without tab and line feed, DEL, C1
    r"\u061c\u200e\u200f\u202a-\u202e\u2060-\u206f"  # turn the order of letters, or are not seen
    r"\u00ad\u115f\u1160\u180e\u200b\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f"  # are not seen
    r"\u2028\u2029\ud800-\udfff"  # break lines, cannot be written
)
IN_LINES = re.compile(f"[{_COMMANDS}]")
"""What must not be in text of several lines. Joiners stay: names of many peoples have them."""
IN_A_LINE = re.compile(rf"[{_COMMANDS}\t\n]")
"""What must not be in text of one line."""
_FORMULA = r"(?='*\s*[=+\-@\uff1d\uff0b\uff0d\uff20])"
"""Full-width signs begin a formula where they are set to Chinese or Japanese; a `;` ends a cell in many."""
_IN_CELL, _FROM_CELL = re.compile(rf"(^|;){_FORMULA}"), re.compile(rf"(^|;)'{_FORMULA}")
_NUMBER = re.compile(r"-?(\d[\d,]*(\.\d+)?([eE][+-]?\d+)?)?")


def lines(text: str) -> str:
    """Return text of several lines with terminal control characters made visible, such as `\\x1b`."""
    return IN_LINES.sub(_visible, text)


def one_line(text: str) -> str:
    """Return the same in one line, so that untrusted text cannot pass for a line of Penstock's own."""
    return IN_A_LINE.sub(_visible, text)


def in_json(text: str) -> str:
    """Return equal JSON with `\\u` for terminal control characters: they can only stand in strings."""
    return IN_LINES.sub(_escaped, text)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV (RFC 4180, with line feeds), a line for each row; no text in it is taken for a formula.

    Source: OWASP, CSV Injection.
    """
    out = io.StringIO()
    cells = ([in_cell(one_line(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows)
    csv.writer(out, lineterminator="\n").writerows(cells)
    return out.getvalue()


def in_cell(text: str) -> str:
    """Return a cell's text with `'` before what a spreadsheet would run; numbers, also negative ones, as they are."""
    return text if _NUMBER.fullmatch(text) else _IN_CELL.sub(r"\1'", text)


def from_cell(text: str) -> str:
    """Return the text that `in_cell` was given."""
    return _FROM_CELL.sub(r"\1", text) if "'" in text else text


def _visible(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
