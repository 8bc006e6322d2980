"""Questions to the server, one after the other in a thread of its own: the screen never waits for an answer."""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.client import Client
from penstock.core.model.errors import PenstockError

T = TypeVar("T")
ANSWER_S = 10.0
"""How long a connection and each answer may take."""
WAITING_MAX = 4
"""Questions that may wait for the one before."""


class Busy(PenstockError):
    """Too many questions wait for their answers."""

    code = "overloaded"


class Unreadable(PenstockError):
    """An answer that this version does not know, as of a server that was updated meanwhile."""

    code = "unreadable_answer"


class Answered(NamedTuple):
    value: Any
    cpu_s: float
    """CPU time of this process for the question: request, decoding, and what is made of it."""


class _Asked(NamedTuple):
    question: Callable[[Client], Any]
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Answered]"


class Asker:
    """Asks with a client of its own, which only its thread uses.

    Args:
        connect: returns a client; called in the thread at the first question, and again until it succeeds.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._client: Client | None = None
        self._asked: queue.Queue[_Asked | None] = queue.Queue(WAITING_MAX)
        # A daemon: leaving the screen does not wait for a server that does not answer.
        threading.Thread(target=self._work, name="penstock-top-asks", daemon=True).start()

    async def ask(self, question: Callable[[Client], T]) -> Answered:
        """Return what `question` returns for the client. Raises: Busy; what the question raises."""
        loop = asyncio.get_running_loop()
        asked = _Asked(question, loop, loop.create_future())
        try:
            self._asked.put_nowait(asked)
        except queue.Full:
            raise Busy(f"{WAITING_MAX} requests are under way already", hint="try again in a moment") from None
        return await asked.answer

    def close(self) -> None:
        """End the thread after the question it works on."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._asked.get_nowait()
        self._asked.put_nowait(None)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            begun_s = time.thread_time()
            try:
                value = asked.question(self._connected())
                tell: Callable[[], None] = _setter(asked.answer, Answered(value, time.thread_time() - begun_s))
            except msgspec.MsgspecError as error:
                text = f"the server's answer cannot be read: {error}"
                tell = _failure(asked.answer, Unreadable(text, hint="is it of another version? penstock version"))
            except Exception as error:  # noqa: BLE001 - the top of the loop: whoever asked gets it
                tell = _failure(asked.answer, error)
            with contextlib.suppress(RuntimeError):  # the screen is closed, and its loop with it
                asked.loop.call_soon_threadsafe(tell)
        if self._client is not None:
            self._client.close()

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._connect()
            self._client.timeout_s = ANSWER_S
        return self._client


def _setter(answer: "asyncio.Future[Answered]", value: Answered) -> Callable[[], None]:
    return lambda: None if answer.done() else answer.set_result(value)


def _failure(answer: "asyncio.Future[Answered]", error: Exception) -> Callable[[], None]:
    return lambda: None if answer.done() else answer.set_exception(error)
