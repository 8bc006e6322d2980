"""What tools print, taken apart: lines, tables drawn with bars, `name: value` lines, rows of commas, JSON.

No vendor's words live here. A row is whole when both of its outer bars and as many cells as its heading's are there;
a line that only the end of the text ends may be cut, and is taken for nothing where no bar closes it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from penstock.devices.reading import Finding, Reading, pci_address, said, short

TEXT_BYTES_MAX = 4 * 2**20
LINE_CHARACTERS_MAX = 2000
"""No tool's line is longer; what is done for a line may take the square of it."""
OBJECTS_MAX = 4096
DIGITS_MAX = 10
PERCENT_MAX = 100
TEMPERATURE_C_MAX = 200
POWER_W_MAX = 100_000

_BORDER = frozenset("+-=|_ ")
_DRAWN = str.maketrans(dict.fromkeys("┃│║", "|") | dict.fromkeys("━─═┏┓┗┛┡┩┠┨├┤┬┴┼╇╈┳┻╋└┘┌┐╭╮╰╯╞╡╪╤╧", "-"))
_GAP = re.compile(r"\s{2,}")


class Lines(NamedTuple):
    """The lines of an output that can be read, with what is wrong with the rest."""

    lines: tuple[str, ...]
    ended: bool
    """Whether the last line is known to be whole: a newline follows it."""
    findings: tuple[Finding, ...]

    @property
    def whole(self) -> tuple[str, ...]:
        """The lines without a last one that may be cut."""
        return self.lines if self.ended else self.lines[:-1]


class Block(NamedTuple):
    """The rows between two borders of a table."""

    rows: tuple[str, ...]
    broken: tuple[str, ...]
    """Lines between them that are no whole rows."""
    closed: bool
    """Whether a border follows."""


def read_lines(text: str, *, drawn: bool = False) -> Lines:
    """Return the lines of an output without its ill ones; none at all of one that is too long or says nothing.

    Args:
        drawn: whether lines of box characters stand for bars and dashes.
    """
    if len(text) > TEXT_BYTES_MAX or len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
        return Lines((), True, (Finding(code="unreadable", text=f"the output is longer than {TEXT_BYTES_MAX} bytes"),))
    if not text.strip():
        return Lines((), True, (Finding(code="unreadable", text="the tool printed nothing"),))
    lines = (text.translate(_DRAWN) if drawn else text).split("\n")
    ended = lines[-1] == ""
    readable = [line.removesuffix("\r") for line in lines[:-1] if not _ill(line)]
    last = [] if ended or _ill(lines[-1]) else [lines[-1]]
    ill = sum(map(_ill, lines))
    found = [Finding(code="unreadable", text=f"lines with no text or too long: {ill}")] if ill else []
    if not ended:
        found.append(Finding(code="cut", text=short(f"the last line may be cut: {lines[-1]}")))
    return Lines((*readable, *last), not last, tuple(found))


def _ill(line: str) -> bool:
    return len(line) > LINE_CHARACTERS_MAX or _spoilt(line) or "\r" in line.removesuffix("\r")


def is_border(line: str) -> bool:
    """Tell whether a line only draws."""
    return len(line) > 2 and set(line) <= _BORDER and ("--" in line or "==" in line)


def is_row(line: str) -> bool:
    """Tell whether a line has both outer bars."""
    stripped = line.strip()
    return len(stripped) > 2 and stripped.startswith("|") and stripped.endswith("|")


def blocks(lines: Iterable[str]) -> Iterator[Block]:
    """Yield the blocks of the tables in an output, those without rows left out."""
    rows: list[str] = []
    broken: list[str] = []
    for line in lines:
        if is_border(line.strip()):
            if rows or broken:
                yield Block(tuple(rows), tuple(broken), closed=True)
            rows, broken = [], []
        elif is_row(line):
            rows.append(line)
        elif line.strip():
            broken.append(line)
    if rows or broken:
        yield Block(tuple(rows), tuple(broken), closed=False)


def cells(row: str) -> list[str]:
    """Return what stands between the bars of a row."""
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split("|")]


def values(cell: str) -> list[str]:
    """Return the values of a cell, which gaps of two blanks part; `0    / 0` is one."""
    first, *others = cell.split("/")
    joined = first
    for part in others:
        bare = part.lstrip()
        pair = bare[:1].isdigit()
        joined = f"{joined.rstrip()}/{bare}" if pair else f"{joined}/{part}"
    return [value for value in _GAP.split(joined.strip()) if value]


def fields(heading: str, row: str) -> dict[str, str] | None:
    """Return the values of a row by the words of its heading; None where they do not fit each other."""
    names, given = cells(heading), cells(row)
    if len(names) != len(given):
        return None
    read: dict[str, str] = {}
    for name, cell in zip(names, given, strict=True):
        words = values(name)
        told = [cell] if len(words) == 1 else values(cell)
        if len(told) != len(words):
            told = cell.split()
        if len(told) != len(words) or read.keys() & set(words):
            return None
        read |= zip(words, told, strict=True)
    return read


def record(headings: Sequence[str], rows: Sequence[str]) -> dict[str, str] | None:
    """Return the values of one device, which has as many rows as the heading; None where they do not fit."""
    if len(headings) != len(rows):
        return None
    read: dict[str, str] = {}
    for heading, row in zip(headings, rows, strict=True):
        more = fields(heading, row)
        if more is None or read.keys() & more.keys():
            return None
        read |= more
    return read


def listed(heading: str, row: str) -> dict[str, str] | None:
    """Return the values of a row with one text among them (the last but one), which may hold gaps and bars."""
    words = [word for name in cells(heading) for word in values(name)]
    told = [value for cell in cells(row) for value in (values(cell) if cell else [""])]
    before = len(words) - 2
    if before < 1 or len(told) < len(words):
        return None
    return dict(zip(words, [*told[:before], "  ".join(told[before:-1]), told[-1]], strict=True))


def comma_rows(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the cells of each line that is not blank."""
    for line in lines:
        if line.strip():
            yield [cell.strip() for cell in line.split(",")]


def named(line: str) -> tuple[str, str] | None:
    """Return the name and the value of a line such as `NPU ID   : 0`; None for another."""
    name, colon, value = line.partition(":")
    return (name.strip(), value.strip()) if colon and name.strip() else None


def integer(text: str | None) -> int | None:
    """Return a number of digits alone, None for what is none or has too many."""
    digits = said(text)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX else None


def within(value: int | None, most: int) -> int | None:
    """Return a value that can be true: at most `most`; None for another."""
    return value if value is not None and value <= most else None


def memory(used: int | None, total: int | None) -> tuple[int | None, int | None]:
    """Return used and total bytes: neither where the total is zero, and no used that is more than the total."""
    if total == 0:
        return None, None
    return (used if total is None or used is None or used <= total else None), total


def label(text: str | None) -> str:
    """Return a name of a model or a uuid, '' for one of which a part is not told."""
    name = said(text)
    return "" if "N/A" in name else name


def address(text: str | None) -> str | None:
    """Return a PCI address, '' for one that is not told, None for what is none."""
    told = said(text)
    return "" if not told else pci_address(told) or None


def masked(what: str, *, index: int | None = None, uuid: str = "", pci: str = "") -> Finding:
    return Finding(code="masked", text=f"not told: {what}", index=index, uuid=uuid, pci=pci)


def refused(rows: Sequence[str]) -> list[Finding]:
    """Return one finding for all rows that could not be read; none for none."""
    if not rows:
        return []
    return [Finding(code="unknown_format", text=short(f"rows that could not be read: {len(rows)}; first: {rows[0]}"))]


_COMPLAINTS = (
    ("no_permission", ("permission", "not permitted", "access denied")),
    ("tool_timeout", ("timed out", "timeout")),
    ("tool_failed", ("not found", "no such file", "failed", "error", "cannot", "unable")),
)


def complaint(lines: Sequence[str]) -> Finding:
    """Return a finding for an output without the table that was asked for."""
    first = next((line for line in lines if line.strip()), "")
    if any(is_border(line.strip()) for line in lines):
        return Finding(code="cut", text=short(f"no whole table in the output; it begins: {first}"))
    lower = "\n".join(lines).lower()
    code = next((code for code, words in _COMPLAINTS if any(word in lower for word in words)), "unknown_format")
    return Finding(code=code, text=short(first))


def closing(lines: Lines) -> list[Finding]:
    """Return a finding where a table has no border at its end."""
    last = next((line.strip() for line in reversed(lines.lines) if line.strip()), "")
    return [] if is_border(last) else [Finding(code="cut", text=short(f"no border ends the table; last line: {last}"))]


def reading(parts: Reading, *findings: Iterable[Finding]) -> Reading:
    """Return a reading with more findings, each once."""
    every = [*parts.findings, *(finding for several in findings for finding in several)]
    return Reading(
        devices=parts.devices,
        links=parts.links,
        processes=parts.processes,
        findings=tuple(dict.fromkeys(every)),
        driver=parts.driver,
    )


def decode(text: str) -> tuple[Any, tuple[Finding, ...]]:
    """Return a JSON value; a list of the objects that are whole, and a finding, where the text is not clean."""
    if len(text) > TEXT_BYTES_MAX:
        return [], read_lines(text).findings
    if not text.strip():
        return [], read_lines(text).findings
    try:
        if not _spoilt(text):
            return _strict(text), ()
        unclean = Finding(code="unreadable", text="not clean JSON: it has characters that are no text")
    except (ValueError, RecursionError) as error:
        unclean = Finding(code="unreadable", text=short(f"not clean JSON: {str(error).split(' (char')[0]}"))
    parts = (part for part in islice(_objects(text), OBJECTS_MAX) if not _spoilt(part))
    return [value for part in parts if (value := _lenient(part)) is not None], (unclean,)


def _spoilt(text: str) -> bool:
    return "\x00" in text or "\ufffd" in text


def _strict(text: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        read = dict(pairs)
        if len(read) != len(pairs):
            raise ValueError("a name stands twice in one object")
        return read

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no number")

    return json.loads(text, object_pairs_hook=once, parse_constant=refuse)


def _lenient(text: str) -> Any:
    """Return an object that may have a comma behind its last value; None for what is no object all the same."""
    body = text.removesuffix("}").rstrip()
    try:
        return _strict(f"{body.removesuffix(',')}}}")
    except (ValueError, RecursionError):
        return None


def _objects(text: str) -> Iterator[str]:
    """Yield the outermost objects that stand directly in the text, or in a list."""
    depth, start, quoted, escaped = 0, 0, False, False
    for at, character in enumerate(text):
        if quoted:
            quoted, escaped = escaped or character != '"', not escaped and character == "\\"
        elif character == '"':
            quoted = True
        elif character == "{":
            start = at if depth == 0 else start
            depth += 1
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                yield text[start : at + 1]
