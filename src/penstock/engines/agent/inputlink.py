"""An agent's side of the talk with the program that reads URLs (`fetchinputs.py`), which nothing is believed."""

import json
import os
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from penstock.core.model.errors import PenstockError

SILENT_S = 150.0
"""The program waits less for what it asks; one that says nothing for longer is broken."""
LINE_MAX_BYTES = 2**20
DATA_MAX_BYTES = 64 * 2**20
TEXT_MAX = 600
LOOK_S = 0.2
"""Between two looks whether anybody still waits, and whether the program lives."""
ENDING_S = 2.0
_CREDENTIALS = struct.Struct("3i")


class Failed(PenstockError):
    """What an URL names cannot be had; `passing`: perhaps later."""

    code = "not_fetched"

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


class RemoteFile(NamedTuple):
    """A file that an URL names, or that lies below it."""

    name: str
    """Relative to the URL; '' where the URL names it."""
    size: int
    """In bytes; -1 where that is not known."""
    version: str
    """Other where the content is other; '' where nothing says that."""


class Remote(NamedTuple):
    """What an URL names."""

    folder: bool
    files: tuple[RemoteFile, ...]


class InputLink:
    """One run of the program; to be used in one thread.

    Args:
        run: starts the program as this account, given the name of the socket, and returns when it has ended. In a
            thread.
        first: what the program is given first.
        check: raises when nobody waits any more.
    """

    def __init__(
        self,
        run: Callable[[str], object],
        first: Mapping[str, Any],
        check: Callable[[], None],
        *,
        uid: int | None = None,
    ) -> None:
        self._check, self._first = check, first
        self._uid = os.geteuid() if uid is None else uid
        """Of the account as which the program starts; others are not listened to."""
        self._ended: BaseException | object = ""
        self._over = threading.Event()
        name = f"penstock-inputs-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(b"\0" + name.encode())
        self._listener.listen(1)
        self._link: socket.socket | None = None
        self._buffer = bytearray()
        self._thread = threading.Thread(target=self._run, args=(run, name), name="penstock-inputs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up: the program ends."""
        for one in (self._link, self._listener):
            if one is not None:
                one.close()

    def look(self, url: str) -> Remote:
        """Return what an URL names. Raises: Failed."""
        self._begin()
        self._ask({"look": url})
        files: list[RemoteFile] = []
        while "end" not in (said := self._said()):
            files += [_file(one) for one in said.get("files", ())]
        return Remote(bool(said.get("folder")), tuple(files))

    def read(self, url: str, one: RemoteFile, offset: int) -> Iterator[bytes]:
        """Yield a file's content from an offset (bytes) on. Raises: Failed."""
        self._begin()
        self._ask({"read": url, "name": one.name, "offset": offset, "version": one.version})
        while "end" not in (said := self._said()):
            left = said.get("data")
            if not isinstance(left, int) or not 0 <= left <= DATA_MAX_BYTES:
                raise Failed("the program that fetches says what it should not", passing=False)
            while left:
                data = self._take(left)
                left -= len(data)
                yield data

    def _run(self, run: Callable[[str], object], name: str) -> None:
        try:
            self._ended = run(name) or ""
        except BaseException as error:  # noqa: BLE001 - raised in the thread that reads
            self._ended = error
        finally:
            self._over.set()

    def _begin(self) -> None:
        """Tell the program as whom it reads, once. Raises: Failed."""
        if self._first:
            self._ask(self._first)
            self._first = {}
            self._said()

    def _ask(self, question: Mapping[str, Any]) -> None:
        try:
            self._connected().sendall(json.dumps(question).encode() + b"\n")
        except OSError as error:
            raise self._broken() from error

    def _connected(self) -> socket.socket:
        """Return the connection of the program. Raises: Failed."""
        deadline_s = time.monotonic() + SILENT_S
        while self._link is None:
            self._check()
            if time.monotonic() > deadline_s:
                raise Failed("the program that fetches did not start in time", passing=True)
            over = self._over.is_set()
            ready, _, _ = select.select([self._listener], [], [], 0 if over else LOOK_S)
            if over and not ready:
                raise self._broken()
            if ready:
                link, _ = self._listener.accept()
                data = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
                if _CREDENTIALS.unpack(data)[1] == self._uid:
                    self._link = link
                else:
                    link.close()
        return self._link

    def _broken(self) -> Failed:
        self._over.wait(ENDING_S)
        if isinstance(self._ended, PenstockError):
            raise self._ended
        return Failed(f"the program that fetches has ended {self._ended or ''}".rstrip(), passing=True)

    def _said(self) -> dict[str, Any]:
        """Return the next line. Raises: Failed, also where it says so."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > LINE_MAX_BYTES:
                raise Failed("the program that fetches says too much", passing=False)
            self._receive()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise Failed("the program that fetches says what it should not", passing=False)
        if "problem" in said:
            raise Failed(str(said["problem"])[:TEXT_MAX], passing=said.get("passing") is True)
        return said

    def _take(self, most: int) -> bytes:
        if not self._buffer:
            self._receive()
        data = bytes(self._buffer[:most])
        del self._buffer[:most]
        return data

    def _receive(self) -> None:
        link, deadline_s = self._connected(), time.monotonic() + SILENT_S
        while True:
            self._check()
            ready, _, _ = select.select([link], [], [], LOOK_S)
            if ready:
                break
            if time.monotonic() > deadline_s:
                raise Failed(f"nothing came for {SILENT_S:g} s", passing=True)
        try:
            data = link.recv(2**20)
        except OSError as error:
            raise self._broken() from error
        if not data:
            raise self._broken()
        self._buffer += data


def _file(said: Any) -> RemoteFile:
    match said:
        case [str() as name, int() as size, str() as version] if size >= -1:
            return RemoteFile(name, size, version)
    raise Failed("the program that fetches says what it should not", passing=False)
