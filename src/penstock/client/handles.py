"""Handles of submitted jobs: waited for, followed, explained, cancelled, and asked for their result."""

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from penstock import calls
from penstock.api import types as api
from penstock.client import functions, outputs
from penstock.client.errors import ApiProblem, JobFailed, NotVerified
from penstock.client.following import Ended, listed_around
from penstock.core.model.explanation import Explanation
from penstock.core.model.quantities import listed
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.http import ApiClient

T = TypeVar("T")
LATE_OUTPUT_S = 5.0
"""The last lines of a job's output may reach the server after its end."""
LATE_POLL_S = 0.2
CANCELLED_AT_ONCE = 1_000


class Job(Generic[T]):
    """A submitted job. `T` is what `result` returns: None for a command."""

    def __init__(
        self, client: "Client", job_id: int, name: str, *, call: functions.Call | None = None, since: int | None = None
    ) -> None:
        self.id = job_id
        self.name = name
        self._client, self.call, self.since = client, call, since
        self.ended: Ended | None = None
        self._outcome: functions.Outcome | None = None

    def __repr__(self) -> str:
        state = f", {self.ended.state}" if self.ended is not None else ""
        return f"<Job {self.id} ({self.name}){state}>"

    @property
    def status(self) -> str:
        """Its present state: `waiting`, `starting`, `running`, `suspended`, `stopping`, or how it ended."""
        return self.ended.state if self.ended is not None else self.view().state

    def view(self) -> api.JobView:
        """Return all that the server shows of it."""
        return self._client.job(self.id)

    def explain(self) -> Explanation:
        """Return what keeps it waiting, what would let it start now, and when it may."""
        return self._client.explain(self.id)

    def eta(self) -> api.EtaView | None:
        """Return when it probably starts; None when it does not wait, or too many wait before it."""
        return next((one for one in self._client.etas().jobs if one.id == self.id), None)

    def cancel(self) -> None:
        """Ask it to end; nothing changes for one that has ended."""
        self._client.cancel(self.id)

    def logs(self, *, follow: bool = False, rank: int | None = None) -> Iterator[str]:
        """Yield the lines of its output, of its newest attempt; with `follow` until it has ended."""
        return outputs.lines_of(self._client, self.id, follow=follow, rank=rank)

    def wait(self, timeout: float | None = None) -> str:
        """Return how it ended: `succeeded`, `failed` or `cancelled`.

        Raises: TimeoutError when it has not ended after `timeout` seconds.
        """
        if self.ended is None:
            wait_all(self._client, [self], timeout)
        assert self.ended is not None
        return self.ended.state

    def result(self, timeout: float | None = None) -> T:
        """Return what the function of the job has returned; None for a command that has succeeded.

        Raises: what the function has raised; CallFailed for a result that cannot be brought here; JobFailed for a job
        that has failed otherwise or was cancelled; NotVerified; TimeoutError after `timeout` seconds.
        """
        self.wait(timeout)
        return self.result_by(self._client)

    def result_by(self, client: "ApiClient") -> T:
        """Return the result of the job, which has ended; a client brings it here. Raises: as `result`."""
        assert self.ended is not None
        if self._outcome is None:
            self._outcome = outcome(client, self.name, self.ended, self.call)
        if self._outcome.error is not None:
            raise self._outcome.error
        return cast(T, self._outcome.value)

    def _repr_html_(self) -> str:
        from penstock.client.notebook import html_of

        return html_of(self, lambda: [self.view()])


class Jobs(Sequence[Job[T]]):
    """Jobs of one request, or any others, in order."""

    def __init__(self, client: "Client", jobs: Iterable[Job[T]]) -> None:
        self._client, self._jobs = client, list(jobs)

    @overload
    def __getitem__(self, at: int) -> Job[T]: ...
    @overload
    def __getitem__(self, at: slice) -> "Jobs[T]": ...
    def __getitem__(self, at: int | slice) -> "Job[T] | Jobs[T]":
        return Jobs(self._client, self._jobs[at]) if isinstance(at, slice) else self._jobs[at]

    def __len__(self) -> int:
        return len(self._jobs)

    def __repr__(self) -> str:
        return f"<Jobs {listed(job.id for job in self._jobs)}>"

    def wait(self, timeout: float | None = None, *, progress: bool = False) -> list[str]:
        """Return how each has ended. Raises: TimeoutError when not all have after `timeout` seconds."""
        self._client.wait(self._jobs, timeout, progress=progress)
        return [job.status for job in self._jobs]

    def results(self, timeout: float | None = None) -> Iterator[T]:
        """Yield the result of each, in order. Raises: as `Job.result`; TimeoutError, `timeout` seconds after this."""
        until = None if timeout is None else time.monotonic() + timeout
        return (job.result(None if until is None else max(0.0, until - time.monotonic())) for job in self._jobs)

    def as_completed(self, timeout: float | None = None) -> Iterator[Job[T]]:
        """Yield each when it has ended. Raises: TimeoutError when not all have after `timeout` seconds."""
        return as_completed(self._client, self._jobs, timeout)

    def cancel(self) -> None:
        """Ask all of them to end."""
        ids = [str(job.id) for job in self._jobs]
        for at in range(0, len(ids), CANCELLED_AT_ONCE):
            self._client.act("cancel", {"ids": ids[at : at + CANCELLED_AT_ONCE]})

    def views(self) -> list[api.JobView]:
        """Return all that the server shows of them; by lists where they lie close together."""
        return views(self._client, [job.id for job in self._jobs])

    def _repr_html_(self) -> str:
        from penstock.client.notebook import html_of

        return html_of(self, self.views)


def follow_ends(client: "Client", jobs: Sequence[Job[Any]]) -> "list[Future[Ended]]":
    """Return a future for the end of each job, in this order, all followed together."""
    groups: dict[int | None, list[int]] = {}
    for job in jobs:
        groups.setdefault(job.since, []).append(job.id)
    found: dict[int, Future[Ended]] = {}
    for since, ids in groups.items():
        found.update(zip(ids, client.follower.ended(client, ids, since=since), strict=True))
    return [found[job.id] for job in jobs]


def wait_all(client: "Client", jobs: Sequence[Job[Any]], timeout: float | None) -> None:
    """Return when all jobs have ended. Raises: TimeoutError."""
    for _ in as_completed(client, jobs, timeout):
        pass


def as_completed(client: "Client", jobs: Sequence[Job[Any]], timeout: float | None) -> Iterator[Job[Any]]:
    """Yield each job when it has ended. Raises: TimeoutError when not all have after `timeout` seconds."""
    until = None if timeout is None else time.monotonic() + timeout
    left = [job for job in jobs if job.ended is None]
    yield from (job for job in jobs if job.ended is not None)
    by_future: dict[Future[Ended], list[Job[Any]]] = {}
    for job, future in zip(left, follow_ends(client, left) if left else (), strict=True):
        by_future.setdefault(future, []).append(job)
    pending = set(by_future)
    while pending:
        remaining = None if until is None else max(0.0, until - time.monotonic())
        done, pending = wait_for(pending, remaining, FIRST_COMPLETED)
        if not done:
            missing = [job.id for future in pending for job in by_future[future]]
            raise late(missing, timeout)
        for future in done:
            for job in by_future[future]:
                job.ended = future.result()
                yield job


def late(missing: Sequence[int], timeout: float | None) -> TimeoutError:
    """Return the error that these jobs have not ended in time."""
    verb = "has" if len(missing) == 1 else "have"
    text = f"{counted(len(missing), 'job')} {verb} not ended after {timeout or 0:g} s: {listed(sorted(missing))}"
    return TimeoutError(text)


def outcome(client: "ApiClient", name: str, ended: Ended, call: functions.Call | None) -> functions.Outcome:
    """Return what an ended job came to; of one that has no result the error says why."""
    attempt = ended.attempt
    if not attempt and ended.state != "cancelled":
        attempt = client.job(ended.id).attempt  # it began before the log was followed
    found = _found(client, ended, attempt, call) if call is not None and attempt else None
    if found is not None and call is not None and (ended.state == "succeeded") == (found.kind == calls.VALUE):
        return functions.outcome_of(found, call)
    if ended.state != "succeeded":
        return functions.Outcome(error=_failed(client, name, ended, attempt))
    if call is None:
        return functions.Outcome()
    text = f"job {ended.id} has succeeded, but its output has no result of {call.function} that is known to be its own"
    return functions.Outcome(error=NotVerified(text, hint=f"penstock logs {ended.id} shows what it printed"))


def _found(client: "ApiClient", ended: Ended, attempt: int, call: functions.Call) -> calls.Found | None:
    until = time.monotonic() + (LATE_OUTPUT_S if ended.state == "succeeded" else 0)
    while True:
        try:
            found = functions.result_in(client, ended.id, attempt, call)
        except ApiProblem as error:
            if error.details.code != "not_found":
                raise
            found = None  # it has written nothing yet
        if found is not None or time.monotonic() >= until:
            return found
        time.sleep(LATE_POLL_S)


def _failed(client: "ApiClient", name: str, ended: Ended, attempt: int) -> JobFailed:
    last = outputs.last_lines(client, ended.id, attempt) if attempt else []
    text = f"job {ended.id} ({name}) {'was cancelled' if ended.state == 'cancelled' else 'has failed'}"
    text += f": {ended.reason}" if ended.reason else ""
    return JobFailed(text, ended.id, ended.state, output="\n".join(last))


def views(client: "ApiClient", job_ids: Sequence[int]) -> list[api.JobView]:
    """Return the views of jobs, in this order."""
    known = {view.id: view for view in listed_around(client, job_ids)} if job_ids else {}
    return [known.get(job_id) or client.job(job_id) for job_id in job_ids]
