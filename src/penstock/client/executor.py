"""An executor of the standard library whose calls are jobs: for whatever takes a `concurrent.futures.Executor`."""

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, ParamSpec, TypeVar, Unpack

from penstock.client.bulk import Prepared, batches, prepared, submitted
from penstock.client.client import Client
from penstock.client.following import Ended
from penstock.client.handles import Job, follow_ends, outcome
from penstock.client.requests import CallFields
from penstock.core.model.errors import PenstockError

P = ParamSpec("P")
T = TypeVar("T")
WAITING_MAX = 10_000
"""Calls that are not submitted yet; beyond, `submit` waits."""


class JobFuture(Future[T]):
    """The future of a call that is a job. It counts as pending until the job has ended, so it may be cancelled."""

    def __init__(self, executor: "PenstockExecutor") -> None:
        super().__init__()
        self._executor = executor
        self._settling = threading.RLock()
        self.job: Job[T] | None = None
        """Its handle, once it is submitted."""

    def cancel(self) -> bool:
        """Cancel the call, and ask its job to end; False when it is done already."""
        with self._settling:
            first = not self.cancelled()
            done = super().cancel()
            if done and first:
                self.set_running_or_notify_cancel()  # who waits for several futures is told then
        if done and self.job is not None:
            self._executor._cancel(self.job)
        return done

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """Give it the result of the call, unless it was cancelled."""
        with self._settling:
            if self.cancelled():
                return
            self.set_running_or_notify_cancel()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(value)


class PenstockExecutor(Executor):
    """Runs each call as a job. Calls that are made while a request is on its way are submitted together.

    Args:
        client: shared with others; without one, `Client.connect()` for this executor alone.
        python, fields: as for `Client.submit`, for all calls.
    """

    def __init__(
        self, client: Client | None = None, *, python: str | None = None, **fields: Unpack[CallFields]
    ) -> None:
        self._own = client is None
        self._client = client if client is not None else Client.connect()
        self._reader = self._client.twin()
        self._python, self._fields = python, fields
        self._queue: queue.SimpleQueue[tuple[Prepared, JobFuture[Any]] | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(WAITING_MAX)
        self._lock = threading.Lock()
        self._open: set[JobFuture[Any]] = set()
        self._shut = False
        self._ends = ThreadPoolExecutor(1, thread_name_prefix="penstock-results")
        self._submitter = threading.Thread(target=self._run, name="penstock-submitter", daemon=True)
        self._submitter.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "JobFuture[T]":
        """Return the future of a call; its `job` is the handle.

        Raises: InvalidInput for a call that cannot be pickled or is too large; RuntimeError after `shutdown`.
        """
        call = prepared(self._client, fn, args, self._fields, self._python, kwargs)
        future: JobFuture[T] = JobFuture(self)
        self._room.acquire()
        with self._lock:
            if self._shut:
                self._room.release()
                raise RuntimeError("calls cannot be submitted after shutdown")
            self._open.add(future)
            self._queue.put((call, future))
        future.add_done_callback(self._closed)
        return future

    def _closed(self, future: "Future[Any]") -> None:
        with self._lock:
            self._open.discard(future)

    def _run(self) -> None:
        """Submit what is there, as one request where it may be; then what has come in the meantime."""
        going_on = True
        while going_on:
            taken = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    taken.append(self._queue.get_nowait())
            going_on = None not in taken
            self._room.release(len(taken))
            waiting = {one.call.call_id: (one, future) for one, future in filter(None, taken) if not future.cancelled()}
            for batch in batches(one for one, _ in waiting.values()):
                self._submit([waiting[one.call.call_id] for one in batch])

    def _submit(self, batch: list[tuple[Prepared, JobFuture[Any]]]) -> None:
        try:
            jobs = submitted(self._client, [one for one, _ in batch])
            ends = follow_ends(self._client, jobs)
        except Exception as error:  # noqa: BLE001 - who waits for the future gets it
            for _, future in batch:
                future.settle(error=error)
            return
        for (_, future), job, end in zip(batch, jobs, ends, strict=True):
            future.job = job
            if future.cancelled():
                self._cancel(job)
            end.add_done_callback(lambda end, job=job, future=future: self._ended(job, future, end))  # type: ignore[misc]

    def _ended(self, job: Job[Any], future: JobFuture[Any], end: "Future[Ended]") -> None:
        with contextlib.suppress(RuntimeError):  # it was cancelled, and everything else is over
            self._ends.submit(self._fetch, job, future, end)

    def _fetch(self, job: Job[Any], future: JobFuture[Any], end: "Future[Ended]") -> None:
        if future.cancelled():
            return
        try:
            found = outcome(self._reader, job.name, end.result(), job.call)
        except Exception as error:  # noqa: BLE001 - who waits for the future gets it
            future.settle(error=error)
            return
        future.settle(found.value, found.error)

    def _cancel(self, job: Job[Any]) -> None:
        with contextlib.suppress(RuntimeError):
            self._ends.submit(self._try_to_cancel, job)

    def _try_to_cancel(self, job: Job[Any]) -> None:
        with contextlib.suppress(PenstockError):
            self._reader.cancel(job.id)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `wait` return when all futures are done, with `cancel_futures` cancel them first."""
        with self._lock:
            first, self._shut = not self._shut, True
            left = list(self._open)
        if cancel_futures:
            for future in left:
                future.cancel()
        if first:
            self._queue.put(None)
            closing = threading.Thread(target=self._close, args=(left,), name="penstock-closing", daemon=True)
            self._closing = closing
            closing.start()
        if wait:
            self._closing.join()

    def _close(self, left: list[JobFuture[Any]]) -> None:
        self._submitter.join()
        wait_for(left)
        self._ends.shutdown()
        self._reader.close()
        if self._own:
            self._client.close()
