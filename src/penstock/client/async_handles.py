"""Handles of jobs for the asynchronous client: the methods of `Job` and `Jobs`, awaited."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from penstock.api import types as api
from penstock.client.bulk import MapPlan, remaining_of
from penstock.client.following import Ended
from penstock.client.handles import Job, Jobs, follow_ends, late, views
from penstock.client.outputs import Lines
from penstock.core.model.explanation import Explanation
from penstock.core.model.quantities import listed

if TYPE_CHECKING:
    from penstock.client.asynchronous import AsyncClient

T = TypeVar("T")


class AsyncJob(Generic[T]):
    """A submitted job. `T` is what `result` returns: None for a command."""

    def __init__(self, client: "AsyncClient", job: Job[T]) -> None:
        self.id, self.name = job.id, job.name
        self._client, self._job = client, job

    def __repr__(self) -> str:
        return f"<Async{repr(self._job)[1:]}"

    async def status(self) -> str:
        """Return its present state, or how it ended."""
        return self._job.ended.state if self._job.ended is not None else (await self.view()).state

    async def view(self) -> api.JobView:
        """Return all that the server shows of it."""
        return await self._client.job(self.id)

    async def explain(self) -> Explanation:
        """Return what keeps it waiting, what would let it start now, and when it may."""
        return await self._client.explain(self.id)

    async def eta(self) -> api.EtaView | None:
        """Return when it probably starts; None when it does not wait, or too many wait before it."""
        return next((one for one in (await self._client.etas()).jobs if one.id == self.id), None)

    async def cancel(self) -> None:
        """Ask it to end; nothing changes for one that has ended."""
        await self._client.cancel(self.id)

    async def logs(self, *, follow: bool = False, rank: int | None = None) -> AsyncIterator[str]:
        """Yield the lines of its output, of its newest attempt; with `follow` until it has ended."""
        lines = Lines(self.id, rank)
        while not lines.over:
            new, pause_s = await self._client.run(lambda client: lines.step(client, follow=follow))
            for line in new:
                yield line
            await asyncio.sleep(pause_s)

    async def wait(self, timeout: float | None = None) -> str:
        """Return how it ended. Raises: TimeoutError when it has not ended after `timeout` seconds."""
        async for _ in as_completed(self._client, [self], timeout):
            pass
        return cast(Ended, self._job.ended).state

    async def result(self, timeout: float | None = None) -> T:
        """Return what the function of the job has returned; None for a command that has succeeded.

        Raises: as `Job.result`.
        """
        await self.wait(timeout)
        return await self._client.run(self._job.result_by)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(repr(self))}</p>"


class AsyncJobs(Sequence[AsyncJob[T]]):
    """Jobs of one request, or any others, in order."""

    def __init__(self, client: "AsyncClient", jobs: Iterable[AsyncJob[T]]) -> None:
        self._client, self._jobs = client, list(jobs)

    @overload
    def __getitem__(self, at: int) -> AsyncJob[T]: ...
    @overload
    def __getitem__(self, at: slice) -> "AsyncJobs[T]": ...
    def __getitem__(self, at: int | slice) -> "AsyncJob[T] | AsyncJobs[T]":
        return AsyncJobs(self._client, self._jobs[at]) if isinstance(at, slice) else self._jobs[at]

    def __len__(self) -> int:
        return len(self._jobs)

    def __repr__(self) -> str:
        return f"<AsyncJobs {listed(job.id for job in self._jobs)}>"

    async def wait(self, timeout: float | None = None) -> list[str]:
        """Return how each has ended. Raises: TimeoutError when not all have after `timeout` seconds."""
        await self._client.wait(self._jobs, timeout)
        return [await job.status() for job in self._jobs]

    async def results(self, timeout: float | None = None) -> AsyncIterator[T]:
        """Yield the result of each, in order. Raises: as `Job.result`; TimeoutError, `timeout` seconds after this."""
        remaining = remaining_of(timeout)
        for job in self._jobs:
            yield await job.result(remaining())

    def as_completed(self, timeout: float | None = None) -> AsyncIterator[AsyncJob[T]]:
        """Yield each when it has ended. Raises: TimeoutError when not all have after `timeout` seconds."""
        return as_completed(self._client, self._jobs, timeout)

    async def cancel(self) -> None:
        """Ask all of them to end."""
        await self._client.run(lambda client: Jobs(client, [job._job for job in self._jobs]).cancel())

    async def views(self) -> list[api.JobView]:
        """Return all that the server shows of them."""
        return await self._client.run(lambda client: views(client, [job.id for job in self._jobs]))


async def as_completed(
    client: "AsyncClient", jobs: Sequence[AsyncJob[Any]], timeout: float | None
) -> AsyncIterator[AsyncJob[Any]]:
    """Yield each job when it has ended. Raises: TimeoutError when not all have after `timeout` seconds."""
    remaining = remaining_of(timeout)
    left = [job for job in jobs if job._job.ended is None]
    for job in jobs:
        if job._job.ended is not None:
            yield job
    ends = await client.run(lambda one: follow_ends(one, [job._job for job in left])) if left else []
    waits: dict[asyncio.Future[Ended], list[AsyncJob[Any]]] = {}
    known: dict[Future[Ended], asyncio.Future[Ended]] = {}
    for job, end in zip(left, ends, strict=True):
        if end not in known:
            known[end] = _shared(end)
        waits.setdefault(known[end], []).append(job)
    pending: set[asyncio.Future[Ended]] = set(waits)
    try:
        while pending:
            done, pending = await asyncio.wait(pending, timeout=remaining(), return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise late([job.id for one in pending for job in waits[one]], timeout)
            for one in done:
                for job in waits[one]:
                    job._job.ended = one.result()
                    yield job
    finally:
        for one in waits:
            one.cancel()  # nobody takes its result any more


def _shared(end: "Future[Ended]") -> "asyncio.Future[Ended]":
    """Return a future of this event loop for one that others wait for as well: cancelling it leaves them alone."""
    loop = asyncio.get_running_loop()
    own: asyncio.Future[Ended] = loop.create_future()

    def take(end: "Future[Ended]") -> None:
        if own.done():
            return
        error = end.exception()
        if error is not None:
            own.set_exception(error)
        else:
            own.set_result(end.result())

    def pass_on(end: "Future[Ended]") -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(take, end)

    end.add_done_callback(pass_on)
    return own


async def mapped(client: "AsyncClient", plan: MapPlan, timeout: float | None) -> AsyncIterator[Any]:
    """Yield the results of a map in order. When it ends early, the jobs left are cancelled."""
    remaining = remaining_of(timeout)
    try:
        await client.run(plan.fill)
        while plan.pending:
            values = await AsyncJob(client, plan.pending[0]).result(remaining())
            plan.pending.popleft()
            await client.run(plan.fill)
            for value in values:
                yield value
    finally:
        if plan.pending:
            await client.run(plan.cancel)
