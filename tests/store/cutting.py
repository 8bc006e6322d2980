"""A wire between a program and PostgreSQL that can be cut at the worst moment."""

import contextlib
import socket
import tempfile
import threading
from pathlib import Path
from typing import Literal

ANSWER_WAIT_S = 5.0
"""An answer that has not come by then was held up by a lock: the session lives."""

Moment = Literal["", "before the answer", "before the request", "held"]


class Cutter:
    """Passes everything on until `cut` names a moment; the next exchange of an open session is cut then.

    "before the answer": the database has done it, and nobody hears of it. "before the request": it never hears of
    it. "held": the program loses its connection; what it asked for lies before the database until `release`.
    """

    def __init__(self, url: str) -> None:
        self._target, _, name = url.partition("?host=")
        self._behind = f"{name}/.s.PGSQL.5432"
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-cut-"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / ".s.PGSQL.5432"))
        self._listener.listen(16)
        self.url = f"{self._target}?host={self._folder}"
        self.cut: Moment = ""
        self._held: list[tuple[socket.socket, bytes]] = []
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._behind)
                self._open += [near, far]
                for source, sink, asking in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pass_on, args=(source, sink, asking), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, asking: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if asking and self.cut in ("before the request", "held"):
                    if self.cut == "held":
                        self._held.append((sink, data))
                    self.cut = ""
                    self._hang_up(source)
                    return
                if not asking and self.cut == "before the answer":
                    self.cut = ""
                    self._hang_up(sink)
                    return
                sink.sendall(data)
        if not any(sink is held for held, _ in self._held):
            self._hang_up(sink)

    def release(self) -> bool:
        """Let the database have what was held; return whether anybody was there to take it."""
        ((sink, data),) = self._held
        sink.settimeout(ANSWER_WAIT_S)
        try:
            sink.sendall(data)
            return bool(sink.recv(1 << 16))
        except TimeoutError:
            return True
        except OSError:
            return False

    @staticmethod
    def _hang_up(end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in [self._listener, *self._open]:
            self._hang_up(end)
            end.close()
        (self._folder / ".s.PGSQL.5432").unlink()
        self._folder.rmdir()
