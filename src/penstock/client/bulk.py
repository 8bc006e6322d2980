"""Many calls of functions: submitted together in requests of bounded size, their results given in order."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock import calls
from penstock.client.functions import Call, call_request, name_of
from penstock.client.handles import Job, Jobs
from penstock.core.model.errors import InvalidInput, PenstockError

if TYPE_CHECKING:
    from penstock.client.client import Client

T = TypeVar("T")
REQUEST_JOBS = 500
"""Jobs of one request."""
REQUEST_BYTES = 8 * 2**20
"""Of the variables that carry calls, in one request."""
AHEAD = 1_000
"""Jobs that a map has submitted, and not yet given the results of."""


class Prepared(NamedTuple):
    """A call that is ready to be submitted."""

    job: Mapping[str, Any]
    call: Call

    @property
    def size_bytes(self) -> int:
        """Of the job's variables, which are most of it."""
        return sum(len(value) for value in self.job["env"].values())


def prepared(
    client: "Client",
    function: Callable[..., Any],
    arguments: Sequence[Any],
    fields: Mapping[str, Any],
    python: str | Mapping[str, Any] | None,
    named: Mapping[str, Any] | None = None,
) -> Prepared:
    """Return a call that is ready to be submitted. Raises: InvalidInput; as `call_request`."""
    if isinstance(python, Mapping):
        text = "python is a mapping: for a function it names the program that runs it"
        raise InvalidInput(text, hint="make the environment with penstock[sdk] in it, and name its python")
    key, program = client.function_key, python or client.python
    return Prepared(*call_request(key, function, arguments, fields, program, named))


def batches(waiting: Iterable[Prepared]) -> Iterator[list[Prepared]]:
    """Yield calls in pieces that one request may have."""
    batch: list[Prepared] = []
    size = 0
    for one in waiting:
        if batch and (len(batch) >= REQUEST_JOBS or size + one.size_bytes > REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size_bytes
    if batch:
        yield batch


def submitted(client: "Client", batch: Sequence[Prepared], idempotency_key: str | None = None) -> list[Job[Any]]:
    """Submit calls by one request, all or none, and return their handles in order."""
    client.follower.begin()  # so that no job has to be looked up later
    since = client.follower.mark
    made = client.submit_request([one.job for one in batch], idempotency_key=idempotency_key).jobs
    return [Job(client, ref.id, ref.name, call=one.call, since=since) for ref, one in zip(made, batch, strict=True)]


class MapPlan:
    """The jobs of one map: submitted in order, as far ahead of the results as it may be. Shared by both clients."""

    def __init__(
        self,
        function: Callable[..., Any],
        iterables: Sequence[Iterable[Any]],
        *,
        chunk_size: int,
        ahead: int,
        python: str | None,
        fields: Mapping[str, Any],
    ) -> None:
        if chunk_size < 1 or ahead < 1:
            name, value = ("chunk_size", chunk_size) if chunk_size < 1 else ("ahead", ahead)
            raise InvalidInput(f"{name} is {value}, expected at least 1")
        if not iterables:
            raise InvalidInput("there is nothing to map over: give at least one iterable")
        self._function, self._python = function, python
        self._fields = {"name": name_of(function), **fields}
        self._items = zip(*iterables, strict=False)
        self._chunk_size, self._ahead = chunk_size, ahead
        self._refill = max(1, min(REQUEST_JOBS, ahead // 2))
        self._left = True
        self.pending: deque[Job[list[Any]]] = deque()

    def fill(self, client: "Client") -> None:
        """Submit as many jobs as there may be, once some hundred are missing."""
        while self._left and self._ahead - len(self.pending) >= self._refill:
            chunks = list(islice(iter(self._chunk, []), self._refill))
            self._left = len(chunks) == self._refill
            waiting = (
                prepared(client, calls.each, (self._function, chunk), self._fields, self._python) for chunk in chunks
            )
            for batch in batches(waiting):
                self.pending += submitted(client, batch)

    def _chunk(self) -> list[tuple[Any, ...]]:
        return list(islice(self._items, self._chunk_size))

    def cancel(self, client: "Client") -> None:
        """Ask the jobs to end whose results nobody will take."""
        left, self.pending = list(self.pending), deque()
        if left:
            with contextlib.suppress(PenstockError):
                Jobs(client, left).cancel()


def results(client: "Client", plan: MapPlan, timeout: float | None) -> Iterator[Any]:
    """Yield the results in order. When it ends early, the jobs left are cancelled."""
    remaining = remaining_of(timeout)
    try:
        while plan.pending:
            values = plan.pending[0].result(remaining())
            plan.pending.popleft()
            plan.fill(client)
            yield from values
    finally:
        plan.cancel(client)


def remaining_of(timeout: float | None) -> Callable[[], float | None]:
    """Return a function that gives the seconds left from now on."""
    until = None if timeout is None else time.monotonic() + timeout
    return lambda: None if until is None else max(0.0, until - time.monotonic())
