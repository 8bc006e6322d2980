"""Untrusted files: plain or gzip, within bounds, and every error with its line.

Memory stays bounded: a file is read in blocks, a line has a greatest length. The caller's `FilePlace` makes the errors.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol, TypeVar

import msgspec

from penstock.core.model.errors import PenstockError

LINE_BYTES_MAX = 65_536
LINES_MAX = 20_000_000
"""Lines of one file, with comments and empty ones; accounting has several lines a job."""
FILE_BYTES_MAX = 4 * 2**30
"""Unpacked size of a file: a little gzip can hold more than a machine does."""
DOCUMENT_BYTES_MAX = 512 * 2**20
"""Unpacked size of a file that must be read as a whole (JSON)."""
TEXT_BYTES_MAX = 16 * 2**20
"""Unpacked size of a text that is held as a whole, such as a configuration."""
BLOCK_BYTES = 2**17


class FilePlace(Protocol):
    """A place in a file."""

    def fault(self, field: str, found: str, expected: str, hint: str = "", /) -> PenstockError:
        """Return the error for this place; the caller raises it."""
        ...


PlaceOf = Callable[[str, int], FilePlace]
"""Makes a place of a file's name and a line; lines count from 1, 0 is the file as a whole."""

Decoded = TypeVar("Decoded")
_GZIP_MAGIC = b"\x1f\x8b"
_MARK = "\ufeff"


def lines_by_block(path: Path, place_of: PlaceOf) -> Iterator[list[str]]:
    """Yield the lines of a file without their ends, some thousand at a time, in order.

    Raises: the error of `place_of` with the line for bytes that are no text, overlong lines, too many lines, and a file
        that cannot be read to its end.
    """
    rest, done = b"", 0
    for block in blocks(path, place_of):
        whole, cut, rest = (rest + block).rpartition(b"\n")
        if cut:
            lines = _lines(whole, path, place_of, done)
            done += len(lines)
            if done > LINES_MAX:
                raise place_of(str(path), done).fault("", "more", f"at most {LINES_MAX} lines")
            yield lines
        if len(rest) > LINE_BYTES_MAX:
            raise _too_long(place_of(str(path), done + 1))
    if rest:
        yield _lines(rest, path, place_of, done)


def whole_file(path: Path, place_of: PlaceOf, *, bytes_max: int = DOCUMENT_BYTES_MAX) -> bytes:
    """Return all bytes of a file, unpacked. Raises: the error of `place_of` when it cannot be read, or is larger."""
    found, size = [], 0
    for block in blocks(path, place_of):
        found.append(block)
        size += len(block)
        if size > bytes_max:
            raise place_of(str(path), 0).fault("", "a larger one", f"a file of at most {bytes_max} bytes", "split it")
    return b"".join(found)


def whole_text(path: Path, place_of: PlaceOf, *, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """Return the text of a UTF-8 file, without a byte-order mark. Raises: as `whole_file`, also for what is no text."""
    return _text(whole_file(path, place_of, bytes_max=bytes_max), path, place_of, 0)


def from_json(
    raw: bytes | str, kind: type[Decoded], place: FilePlace, expected: str, *, field: str = "", hint: str = ""
) -> Decoded:
    """Return a value of `kind`. Raises: the error of `place` for what is no JSON, and for JSON of something else."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise place.fault(field, str(problem), expected, hint) from None


def blocks(path: Path, place_of: PlaceOf) -> Iterator[bytes]:
    """Yield the unpacked bytes of a file.

    Raises: the error of `place_of` when it is no file, or not readable to its end.
    """
    place = place_of(str(path), 0)
    try:
        if path.is_dir():
            raise place.fault("", "a folder", "a file", _files_in(path))
        if not path.is_file():
            raise place.fault("", "no file" if path.exists() else "nothing", "a file", "check the path")
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            if packed:
                with gzip.open(raw, "rb") as unpacked:
                    yield from _read(unpacked)
            else:
                yield from _read(raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        found, hint = str(problem) or type(problem).__name__, "the copy is damaged or was cut off: fetch it again"
        raise place.fault("", found, "a complete gzip file", hint) from None
    except (OSError, ValueError) as problem:
        found = getattr(problem, "strerror", None) or str(problem)
        raise place.fault("", found, "a file that can be read", "check the path") from None


def _read(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    size = 0
    while block := file.read(BLOCK_BYTES):
        size += len(block)
        if size > FILE_BYTES_MAX:
            raise OSError(f"more than {FILE_BYTES_MAX} bytes")
        yield block


def _text(raw: bytes, path: Path, place_of: PlaceOf, before: int) -> str:
    """Return the text of `raw`; `before` lines of the file came earlier."""

    def wrong(at: int, found: str, hint: str = "") -> PenstockError:
        line = before + 1 + raw.count(b"\n", 0, at)
        return place_of(str(path), line).fault("", found, "text in UTF-8", hint)

    if b"\0" in raw:
        raise wrong(raw.index(b"\0"), "a NUL byte")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        hint = "convert it first, for example with iconv -f LATIN1 -t UTF-8"
        raise wrong(problem.start, f"byte {raw[problem.start]:#04x}", hint) from None
    return text if before else text.removeprefix(_MARK)


def _lines(raw: bytes, path: Path, place_of: PlaceOf, before: int) -> list[str]:
    text = _text(raw, path, place_of, before)
    lines = text.split("\n")
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    if len(max(lines, key=len)) > LINE_BYTES_MAX:
        number = next(i for i, line in enumerate(lines, 1) if len(line) > LINE_BYTES_MAX)
        raise _too_long(place_of(str(path), before + number))
    return lines


def _too_long(place: FilePlace) -> PenstockError:
    found = f"more than {LINE_BYTES_MAX} bytes without a line end"
    return place.fault("", found, f"lines of at most {LINE_BYTES_MAX} bytes")


def _files_in(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix in (".gz", ".csv", ".swf", ".json"))[:5]
    return "name one of its files, such as " + ", ".join(names) if names else "name a file in it"
