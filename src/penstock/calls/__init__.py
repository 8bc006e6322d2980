"""Function calls as jobs: what goes into a job's variables, and what its program writes as the result.

Imported by `client.functions` on one side and run by the job on the other (`python -P -m penstock.calls`); so it needs
the standard library alone. Both directions carry a MAC: neither side unpickles a byte that the other has not made.
"""

import base64
import hashlib
import hmac
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

KEY_VARIABLE = "SDK_CALL_KEY"
"""Gets the user's secret: the key of all MACs."""
ABOUT_VARIABLE = "SDK_CALL"
PIECE_VARIABLE = "SDK_CALL_{}"
CALL_MAX_BYTES = 256 * 1024
"""Of a function and its arguments, pickled and compressed: they stay in the log as part of the job."""
RESULT_MAX_BYTES = 4 * 2**20
"""Of a result, pickled and compressed."""
PLAIN_MAX_BYTES = 2**30
"""Of either before compression: an unpacked bomb takes no more memory."""
PIECE_CHARACTERS = 60_000
"""A value of a job's variable has at most 65,536."""
LINE_CHARACTERS = 3_000
"""A line of a result is written at once: a pipe does not mix up to 4,096 bytes with those of others."""
MARK = b"\x1epenstock-result "
CALL, RESULT = "call", "result"


class About(NamedTuple):
    """How a call is to be read."""

    call_id: str
    pieces: int
    python: str
    """Version such as `3.11`: pickled functions are bytecode of one."""
    paths: list[str]
    """Folders in which the caller's modules are found."""
    mac: str


def mac_of(key: str, direction: str, call_id: str, data: bytes) -> str:
    """Return the MAC (HMAC-SHA256, hexadecimal) of bytes that belong to one call and go one way."""
    return hmac.new(key.encode(), f"{direction}\0{call_id}\0".encode() + data, hashlib.sha256).hexdigest()


def made_by(key: str, direction: str, call_id: str, data: bytes, mac: str) -> bool:
    """Return whether a MAC is the right one."""
    return hmac.compare_digest(mac_of(key, direction, call_id, data).encode(), mac.encode(errors="replace"))


def each(function: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return what a function gives for each of some arguments: one job of a map."""
    return [function(*one) for one in items]


def packed(data: bytes) -> bytes:
    return zlib.compress(data, 1)


def unpacked(data: bytes) -> bytes:
    """Return what was packed. Raises: ValueError for more than `PLAIN_MAX_BYTES`, or for other bytes."""
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(data, PLAIN_MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
    if not reader.eof:
        raise ValueError(f"it has more than {PLAIN_MAX_BYTES:,} bytes, or is cut off")
    return plain


def variables_of(key: str, call_id: str, data: bytes, *, python: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the variables that carry a call, `data` being packed bytes of at most `CALL_MAX_BYTES`."""
    text = base64.b64encode(data).decode()
    pieces = [text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS)]
    about = {"call_id": call_id, "pieces": len(pieces), "python": python, "paths": list(paths)}
    signed = data + json.dumps(about, sort_keys=True).encode()
    about["mac"] = mac_of(key, CALL, call_id, signed)
    return {
        ABOUT_VARIABLE: json.dumps(about),
        **{PIECE_VARIABLE.format(number): piece for number, piece in enumerate(pieces)},
    }


def call_in(variables: Mapping[str, str], key: str) -> tuple[About, bytes]:
    """Return the call that a job's variables carry, as packed bytes.

    Raises: ValueError when it is incomplete, or not made by the holder of the key.
    """
    try:
        about = About(**json.loads(variables[ABOUT_VARIABLE]))
        text = "".join(variables[PIECE_VARIABLE.format(number)] for number in range(about.pieces))
        data = base64.b64decode(text, validate=True)
        fields = {name: value for name, value in about._asdict().items() if name != "mac"}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the variables of this job carry no call of a function: {error!r}") from error
    if not made_by(key, CALL, about.call_id, data + json.dumps(fields, sort_keys=True).encode(), about.mac):
        raise ValueError("this call of a function was not made by the user of this job: it is not unpickled")
    return about, data


def lines_of(key: str, call_id: str, kind: str, data: bytes) -> list[bytes]:
    """Return the lines that carry a result of a kind (one letter), `data` being packed bytes."""
    whole = kind.encode() + data
    text = base64.b64encode(whole).decode()
    pieces = [text[at : at + LINE_CHARACTERS] for at in range(0, len(text), LINE_CHARACTERS)]
    mac = mac_of(key, RESULT, call_id, whole)
    return [MARK + f"{call_id} {number} {len(pieces)} {mac} {piece}\n".encode() for number, piece in enumerate(pieces)]


class Found(NamedTuple):
    """A result that the holder of the key has made."""

    kind: str
    data: bytes


class Gathering:
    """Collects the lines of one call's result from an output, which may hold anything else as well.

    Lines of another call, or with another MAC, count for nothing: a program's own output may have been written by
    others, so a complete set of lines is a result only once its MAC is right.
    """

    SETS_MAX = 16
    """Sets of lines kept at once: forged ones could be many."""

    def __init__(self, key: str, call_id: str) -> None:
        self._key, self._call_id = key, call_id
        self._sets: dict[tuple[bytes, int], dict[int, bytes]] = {}
        self.expected = 0
        """Lines of the set seen last; 0: none was seen."""

    def add(self, output: bytes) -> Found | None:
        """Look through a piece of output that begins and ends with whole lines; return the result once it is whole."""
        prefix = MARK + self._call_id.encode() + b" "
        for line in output.split(b"\n"):
            begin = line.rfind(prefix)
            parts = line[begin + len(prefix) :].split(b" ") if begin >= 0 else []
            if len(parts) == 4 and parts[0].isdigit() and parts[1].isdigit() and len(parts[1]) <= 5:
                found = self._add(int(parts[0]), int(parts[1]), parts[2], parts[3])
                if found is not None:
                    return found
        return None

    def _add(self, number: int, count: int, mac: bytes, piece: bytes) -> Found | None:
        if not 0 <= number < count <= LINES_MAX or len(piece) > LINE_CHARACTERS:
            return None
        if (mac, count) not in self._sets and len(self._sets) >= self.SETS_MAX:
            self._sets.pop(next(iter(self._sets)))
        known = self._sets.setdefault((mac, count), {})
        known[number] = piece
        self.expected = count
        if len(known) < count:
            return None
        del self._sets[mac, count]  # with a wrong piece among them they are worked through once
        try:
            whole = base64.b64decode(b"".join(known[each] for each in range(count)), validate=True)
        except ValueError:
            return None
        if not made_by(self._key, RESULT, self._call_id, whole, mac.decode(errors="replace")):
            return None
        return Found(chr(whole[0]), whole[1:]) if whole else None


LINES_MAX = (RESULT_MAX_BYTES + 1) * 4 // 3 // LINE_CHARACTERS + 2
VALUE, RAISED, TEXT = "V", "E", "T"
"""Kinds of results: a pickled value; a pickled exception with its traceback; an error as text alone."""
