"""What threads of an agent want from the server: asked one part at a time, threads in turn, by the agent's loop."""

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from penstock.core.model.errors import PenstockError
from penstock.engines.agent.protocol import AgentFetch, ServerPart

ANSWER_S = 120.0
"""Without an answer by then a thread gives up."""


class NotFetched(PenstockError):
    """The server has not given what was wanted."""

    code = "not_unpacked"


class Question(NamedTuple):
    """Something that was asked; `Fetching.answer` waits for it."""

    fetch: AgentFetch
    answer: "queue.SimpleQueue[ServerPart]"


class Fetching:
    """Questions to the server; at most one of them is on its way, so that nothing else on the link waits long.

    Args:
        wake: called when there is something to ask. In the thread that asks.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: deque[Question] = deque()
        self._first_asked = False
        """Whether the first of those that wait is on its way."""
        self._number = 0

    def ask(self, fetch: AgentFetch) -> Question:
        """Put a question; it is sent when those before it are answered. Not on the agent's loop."""
        with self._lock:
            self._number += 1
            question = Question(replace(fetch, number=self._number), queue.SimpleQueue())
            self._waiting.append(question)
        self._wake()
        return question

    def answer(self, question: Question) -> ServerPart:
        """Return the server's answer. Not on the agent's loop. Raises: NotFetched."""
        try:
            part = question.answer.get(timeout=ANSWER_S)
        except queue.Empty:
            self.give_up(question)
            raise NotFetched(f"the server has not answered for {ANSWER_S:g} s") from None
        if part.problem:
            raise NotFetched(part.problem)
        return part

    def give_up(self, question: Question) -> None:
        """Ask no longer: nobody waits for the answer."""
        with self._lock:
            if self._waiting and self._waiting[0] is question:
                self._first_asked = False
            if question in self._waiting:
                self._waiting.remove(question)

    # On the agent's loop.

    def to_ask(self) -> AgentFetch | None:
        """Return what to ask the server now, once."""
        with self._lock:
            if not self._waiting or self._first_asked:
                return None
            self._first_asked = True
            return self._waiting[0].fetch

    def ask_again(self) -> None:
        """Take note that there is another connection: what was asked on a former one gets no answer."""
        with self._lock:
            self._first_asked = False

    def answered(self, part: ServerPart) -> None:
        """Take an answer of the server."""
        with self._lock:
            if not self._waiting or part.number != self._waiting[0].fetch.number:
                return
            question = self._waiting.popleft()
            self._first_asked = False
        question.answer.put(part)
