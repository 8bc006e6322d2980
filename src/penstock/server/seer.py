"""The process beside the server that plays states on: started when it is first needed, and again after it died."""

import contextlib
import subprocess
import sys
import threading

import msgspec

from penstock.server.answers import ApiError
from penstock.sim.replay.foresee import Answer, Failed, Planned, Question, Started, read_frame, write_frame

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Answer).decode
COMMAND = (sys.executable, "-m", "penstock.sim.replay.foresee")


class Seer:
    """Answers one question at a time; `ask` blocks and may be called from any thread."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._closed = False

    def ask(self, question: Question) -> Started | Planned:
        """Return the answer. Raises: ApiError when the process dies over it, or cannot work it out."""
        body = _encode(question)
        with self._turn:
            if self._closed:
                raise ApiError("unavailable", "the server is ending")
            found = self._exchange(body)
            if found is None:
                self._end()
                raise ApiError("unavailable", "the process that looks ahead died", hint="ask again: it is started anew")
        reply: Answer = _decode(found)
        if isinstance(reply, Failed):
            raise ApiError("unavailable", f"what is ahead cannot be worked out: {reply.text}")
        return reply

    def _exchange(self, body: bytes) -> bytes | None:
        if self._process is None:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            write_frame(stdin, body)  # type: ignore[arg-type]
            return read_frame(stdout)  # type: ignore[arg-type]
        except OSError:
            return None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def close(self) -> None:
        """End the process, whatever it is at."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()  # whoever waits for its answer finds that it died
        with self._turn:
            self._end()
