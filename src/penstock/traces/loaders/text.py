"""Lines of an untrusted file: plain or gzip, within bounds, and every fault with its line.

Memory stays bounded for any file: it is read in blocks, and the length of a line is bounded.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from penstock.traces.errors import TraceError

LINE_BYTES_MAX = 65_536
LINES_MAX = 20_000_000
"""Lines of one file, with comments and empty ones; accounting has several lines a job."""
FILE_BYTES_MAX = 4 * 2**30
"""Unpacked size of a file: a little gzip can hold more than a machine does."""
DOCUMENT_BYTES_MAX = 512 * 2**20
"""Unpacked size of a file that must be read as a whole (JSON)."""
BLOCK_BYTES = 2**17

_GZIP_MAGIC = b"\x1f\x8b"
_MARK = "\ufeff"


def lines_by_block(path: Path) -> Iterator[list[str]]:
    """Yield the lines of a file without their ends, some thousand at a time, in order.

    Raises: TraceError with the line for bytes that are no text, overlong lines, too many lines, and a file that cannot
    be read to its end.
    """
    rest, done = b"", 0
    for block in blocks(path):
        whole, cut, rest = (rest + block).rpartition(b"\n")
        if cut:
            lines = _text_lines(path, whole, done)
            done += len(lines)
            if done > LINES_MAX:
                raise TraceError(str(path), line=done, found="more", expected=f"at most {LINES_MAX} lines")
            yield lines
        if len(rest) > LINE_BYTES_MAX:
            raise _too_long(path, done + 1)
    if rest:
        yield _text_lines(path, rest, done)


def whole_file(path: Path) -> bytes:
    """Return all bytes of a file, unpacked. Raises: TraceError when it cannot be read, or is too large."""
    found, size = [], 0
    for block in blocks(path):
        found.append(block)
        size += len(block)
        if size > DOCUMENT_BYTES_MAX:
            raise TraceError(str(path), found="a larger one", expected=f"a file of at most {DOCUMENT_BYTES_MAX} bytes")
    return b"".join(found)


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the unpacked bytes of a file. Raises: TraceError when it is no file, or not readable to its end."""
    try:
        if path.is_dir():
            raise TraceError(str(path), found="a folder", expected="a file", hint=_files_in(path))
        if not path.is_file():
            raise TraceError(str(path), found="nothing" if not path.exists() else "no file", expected="a file")
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            if packed:
                with gzip.open(raw, "rb") as unpacked:
                    yield from _read(unpacked)
            else:
                yield from _read(raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        said = str(problem) or type(problem).__name__
        hint = "the copy is damaged or was cut off: fetch it again"
        raise TraceError(str(path), found=said, expected="a complete gzip file", hint=hint) from None
    except (OSError, ValueError) as problem:
        said = getattr(problem, "strerror", None) or str(problem)
        raise TraceError(str(path), found=said, expected="a file that can be read") from None


def _read(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    size = 0
    while block := file.read(BLOCK_BYTES):
        size += len(block)
        if size > FILE_BYTES_MAX:
            raise OSError(f"more than {FILE_BYTES_MAX} bytes")
        yield block


def _text_lines(path: Path, raw: bytes, before: int) -> list[str]:
    """Return the lines of `raw`; `before` lines of the file came earlier."""
    if b"\0" in raw:
        line = before + 1 + raw[: raw.index(b"\0")].count(b"\n")
        raise TraceError(str(path), line=line, found="a NUL byte", expected="text in UTF-8")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = before + 1 + raw[: problem.start].count(b"\n")
        found = f"byte {raw[problem.start]:#04x}"
        hint = "convert it first, for example with iconv -f LATIN1 -t UTF-8"
        raise TraceError(str(path), line=line, found=found, expected="text in UTF-8", hint=hint) from None
    if not before:
        text = text.removeprefix(_MARK)
    lines = text.split("\n")
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    if len(max(lines, key=len)) > LINE_BYTES_MAX:
        raise _too_long(path, before + next(i for i, line in enumerate(lines, 1) if len(line) > LINE_BYTES_MAX))
    return lines


def _too_long(path: Path, line: int) -> TraceError:
    found = f"more than {LINE_BYTES_MAX} bytes without a line end"
    return TraceError(str(path), line=line, found=found, expected=f"lines of at most {LINE_BYTES_MAX} bytes")


def _files_in(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix in (".gz", ".csv", ".swf", ".json"))[:5]
    return "name one of its files, such as " + ", ".join(names) if names else "name a file in it"
