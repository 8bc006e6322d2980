"""Waiting for many jobs at once: one thread follows the log, whatever number of jobs is waited for.

Theory. A wait must miss no end. So a job is first registered, then, unless it was submitted while the log was being
followed already, looked up once: an end before the registration is found by the look-up, one after it in the log. Ends
that the log says of jobs that nobody has registered yet are kept for a while, for those that are just being submitted.
"""

import contextlib
import http.client
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING

import msgspec

from penstock.api import types as api
from penstock.client.calling import problem_of
from penstock.client.errors import ApiProblem, ServerNotRunning
from penstock.core.model.errors import PenstockError
from penstock.core.model.jobs import FINAL_STATES

if TYPE_CHECKING:
    from penstock.client.http import ApiClient

KEPT_MAX = 10_000
"""Ends of jobs that are not waited for (yet)."""
ATTEMPTS_MAX = 100_000
"""Live jobs of which the present attempt is known."""
PAUSE_FIRST_S, PAUSE_MOST_S = 0.1, 5.0
"""Between two tries to follow the log."""
GIVEN_UP_S = 60.0
"""After this time without a server, those who wait get the error."""
PAGE = 1_000
FEW = 3
"""So many jobs are looked up one by one."""
JOBS_PER_PAGE = 100
"""A further page is read for so many jobs: where others lie between them, they are looked up one by one."""
READ_BYTES = 65_536
PASSING = (429, 502, 503, 504)
"""Statuses of a server that may follow later."""


class Ended(msgspec.Struct, frozen=True):
    """How a job ended."""

    id: int
    state: str
    """`succeeded`, `failed` or `cancelled`."""
    reason: str = ""
    attempt: int = 0
    """The last one; 0: it never started, or not while the log was followed."""
    exit_code: int | None = None
    exit_signal: int | None = None


class _Exit(msgspec.Struct, frozen=True):
    code: int | None = None
    signal: int | None = None


class _Event(msgspec.Struct, frozen=True):
    """What is needed of `JobFinished` and `AttemptAllocated`."""

    job_id: int = 0
    attempt: int = 0
    state: str = ""
    reason: str = ""
    exit: _Exit | None = None


class _Seen(msgspec.Struct, frozen=True):
    event: _Event


_read = msgspec.json.Decoder(_Seen).decode


class Follower:
    """Follows the log for one client, from the first wait on. Any thread may ask it."""

    def __init__(self, client: "ApiClient") -> None:
        self._client = client.twin()
        self._client.patience_s = 0
        self._lock = threading.Lock()
        self._waits: dict[int, Future[Ended]] = {}
        self._kept: OrderedDict[int, Ended] = OrderedDict()
        self._attempts: OrderedDict[int, int] = OrderedDict()
        self._ends = 0
        """Ends seen since the log is followed."""
        self._following = threading.Event()
        self._failure: BaseException | None = None
        self._position: int | None = None
        self._heard = False
        """Whether the present connection has said anything."""
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def mark(self) -> int | None:
        """Where the log is followed by now; None: not yet. Taken before jobs are submitted, and given to `ended`."""
        return self._ends if self._following.is_set() else None

    def begin(self) -> None:
        """Return when the log is followed. Raises: the error that prevents it."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._failure = None
                self._following.clear()
                self._thread = threading.Thread(target=self._run, name="penstock-follower", daemon=True)
                self._thread.start()
        self._following.wait()
        if self._failure is not None:
            raise self._failure

    def ended(self, client: "ApiClient", job_ids: Sequence[int], *, since: int | None = None) -> list[Future[Ended]]:
        """Return a future for the end of each job, in this order. They are shared: nobody may cancel one.

        Args:
            client: looks up jobs that may have ended before.
            since: the mark from before they were submitted; None: of other jobs.
        Raises: ApiProblem when there is no such job; whatever keeps the log from being followed.
        """
        self.begin()
        futures, unknown = [], []
        with self._lock:
            fresh = since is not None and self._ends - since < KEPT_MAX
            for job_id in job_ids:
                future = self._waits.get(job_id)
                if future is None:
                    future = self._waits[job_id] = Future()
                    if job_id in self._kept:
                        future.set_result(self._kept[job_id])
                        del self._waits[job_id]
                    elif not fresh:
                        unknown.append(job_id)
                futures.append(future)
        try:
            self._look_up(client, unknown)
        except BaseException as error:
            with self._lock:
                left = [self._waits.pop(job_id) for job_id in unknown if job_id in self._waits]
            for future in left:
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(error)  # others may wait for it by now
            raise
        return futures

    def _look_up(self, client: "ApiClient", job_ids: Sequence[int]) -> None:
        """Note which of these jobs have ended, by lists where there are many."""
        left = set(job_ids)
        for view in listed_around(client, job_ids):
            if view.id in left:
                left.discard(view.id)
                self._note(view)
        for job_id in sorted(left):
            self._note(client.job(job_id))

    def _note(self, view: api.JobView) -> None:
        if view.state in FINAL_STATES:
            self._end(Ended(view.id, view.state, view.reason, view.attempt, view.exit_code, view.exit_signal))
        elif view.attempt:
            self._attempts.setdefault(view.id, view.attempt)

    def _end(self, ended: Ended) -> None:
        with self._lock:
            future = self._waits.pop(ended.id, None)
            self._attempts.pop(ended.id, None)
            self._kept[ended.id] = ended
            self._kept.move_to_end(ended.id)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        if future is not None:
            with contextlib.suppress(InvalidStateError):  # the look-up and the log may both say it
                future.set_result(ended)

    # The thread.

    def _run(self) -> None:
        pause_s, failing_s = PAUSE_FIRST_S, math.inf
        while not self._closing.is_set():
            self._heard = False
            try:
                self._follow()
                failing_s = math.inf
            except (PenstockError, OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
                if self._closing.is_set():
                    break
                failing_s = time.monotonic() if self._heard else min(failing_s, time.monotonic())
                passing = not isinstance(error, ApiProblem) or error.details.status in PASSING
                if not passing or time.monotonic() - failing_s > GIVEN_UP_S or self._position is None:
                    self._fail(error if isinstance(error, PenstockError) else _broken(error))
                    return
            finally:
                self._client.close()
            pause_s = PAUSE_FIRST_S if self._heard else min(2 * pause_s, PAUSE_MOST_S)
            self._closing.wait(pause_s)
        self._fail(ServerNotRunning("the client was closed"))

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            waits, self._waits = list(self._waits.values()), {}
            self._failure, self._position = error, None
            self._kept.clear()
            self._ends += KEPT_MAX  # marks from before are worth nothing: what came since was not seen
        self._following.set()
        for future in waits:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)

    def _follow(self) -> None:
        """Read events until the server ends the stream."""
        at = self._client.cluster()  # turns to the server that leads, and proves it: the stream takes that connection
        position = at.seq if self._position is None else self._position
        with contextlib.closing(self._client.opened(f"/events/stream?after={position}")) as response:
            if response.status != 200:
                raise problem_of(response.status, response.read())
            self._position = position
            self._following.set()
            rest = b""
            while data := response.read1(READ_BYTES):
                self._heard = True
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    self._take(event)
                if self._closing.is_set():
                    return

    def _take(self, event: bytes) -> None:
        """Take one server-sent event."""
        if not event.startswith(b"id: "):
            return
        head, kind, data = event.split(b"\n", 2)
        if kind == b"event: AttemptAllocated":
            seen = _read(data.removeprefix(b"data: ")).event
            self._attempts[seen.job_id] = seen.attempt
            if len(self._attempts) > ATTEMPTS_MAX:
                self._attempts.popitem(last=False)
        elif kind == b"event: JobFinished":
            seen = _read(data.removeprefix(b"data: ")).event
            exit_code, exit_signal = (seen.exit.code, seen.exit.signal) if seen.exit is not None else (None, None)
            attempt = self._attempts.get(seen.job_id, 0)
            self._ends += 1
            self._end(Ended(seen.job_id, seen.state, seen.reason, attempt, exit_code, exit_signal))
        self._position = int(head[4:])

    def close(self) -> None:
        self._closing.set()
        self._client.interrupt()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(PAUSE_MOST_S)


def _broken(error: Exception) -> ServerNotRunning:
    return ServerNotRunning(f"the server does not go on with its log: {str(error) or type(error).__name__}")


def listed_around(client: "ApiClient", job_ids: Sequence[int]) -> Iterator[api.JobView]:
    """Yield jobs among which these are, if they are many and lie close together: live ones first, then others."""
    if len(job_ids) <= FEW:
        return
    first, last, pages = min(job_ids), max(job_ids), 1 + len(job_ids) // JOBS_PER_PAGE
    after, left = first - 1, pages
    while after < last and left > 0:
        live = client.jobs(after=after, limit=PAGE).jobs
        yield from live
        left -= 1
        if len(live) < PAGE:
            break
        after = live[-1].id
    before: int | None = last + 1
    while before is not None and before > first and pages > 0:
        page = client.jobs(finished=True, before=before, limit=PAGE)
        yield from page.jobs
        before, pages = page.next_before, pages - 1
