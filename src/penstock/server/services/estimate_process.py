"""The simulation process beside the server: started when it is first needed, and again after it died."""

import contextlib
import subprocess
import threading

import msgspec

from penstock import starts
from penstock.server.http.responses import ApiError
from penstock.sim.forecast.worker import (
    Answer,
    ForecastFailed,
    ForecastPlan,
    Question,
    Started,
    read_frame,
    write_frame,
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Answer).decode
COMMAND = tuple(starts.python("penstock.sim.forecast.worker"))
PATIENCE_S = 30.0
"""A process that has not answered this long after its time was up is ended."""


class EstimateProcess:
    """Answers one question at a time; `ask` blocks and may be called from any thread."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._closed = False

    def ask(self, question: Question) -> Started | ForecastPlan:
        """Return the answer. Raises: ApiError when the process dies over it, or cannot work it out."""
        body = _encode(question)
        with self._turn:
            try:
                reply = self._exchange(body, PATIENCE_S + question.budget_ms / 1000)
            except (OSError, EOFError, MemoryError, msgspec.DecodeError) as error:
                self._end()
                if self._closed:
                    raise ApiError("unavailable", "the server is ending") from error
                text = "the process that looks ahead died"
                raise ApiError("unavailable", text, hint="ask again: it is being restarted") from error
        if isinstance(reply, ForecastFailed):
            raise ApiError("unavailable", f"start times cannot be estimated: {reply.text}")
        return reply

    def _exchange(self, body: bytes, patience_s: float) -> Answer:
        """Send a question and return its answer. Raises: EOFError when none comes in time."""
        if self._closed:
            raise EOFError
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - this program itself
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                cwd=starts.HOME,
            )
        process = self._process
        if self._closed:  # while it was being started
            raise EOFError
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(patience_s, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            write_frame(process.stdin, body)  # type: ignore[arg-type]
            found = read_frame(process.stdout)  # type: ignore[arg-type]
        finally:
            watchdog.cancel()
        if found is None:
            raise EOFError
        answer: Answer = _decode(found)
        return answer

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
        """End the process, busy or not."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()  # the caller waiting for its answer sees it die
        with self._turn:
            self._end()
