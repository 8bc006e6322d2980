"""Fair turns of callers: at the door, and in each pool of threads.

The caller is known from the door on (`calling`), so that no route has to name it and none can forget to.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from penstock.control.inbox import SERVER
from penstock.core.model.access import Scope
from penstock.core.order.turns import FairQueue, Submitter, TooManyWaiting, WaitingLimit
from penstock.server.http.precedence import Precedence, is_change
from penstock.server.http.responses import ApiError

P = ParamSpec("P")
R = TypeVar("R")

STRANGERS = "\0strangers"
"""Tenant of requests without a valid token; each network counts as a user."""
CLUSTER = "\0cluster"
"""Tenant of users with a role in the cluster."""
RETRY_S = 1
LATELY_S = 2.0
"""A tenant that called within this time must not be slowed by requests of others."""

calling: ContextVar[Submitter] = ContextVar("calling", default=SERVER)
"""Whose request is being served; outside of requests it is the server itself."""


def _never() -> bool:
    return False


is_gone: ContextVar[Callable[[], bool]] = ContextVar("is_gone", default=_never)
"""Says whether nobody waits for the answer any more: of requests that only read."""


class CallerGone(Exception):
    """The client has disconnected before the work that its answer needs has begun."""


def for_all() -> None:
    """Let what follows in this task be the server's own: several callers share it."""
    calling.set(SERVER)
    is_gone.set(_never)
    is_change.set(False)


def caller_of(scope: Scope) -> Submitter:
    """Return the submitter of a token; a user of several tenants counts for the first."""
    return Submitter(CLUSTER if scope.role else min(scope.tenants, default=""), scope.user)


def overloaded(error: TooManyWaiting) -> ApiError:
    """Return the answer to a caller when too many requests wait."""
    if error.own:
        headers = {"Retry-After": str(RETRY_S)}
        return ApiError("too_many_requests", f"too many requests: {error.message}", hint=error.hint, headers=headers)
    return ApiError("overloaded", error.message, hint=error.hint)


def _ending() -> ApiError:
    return ApiError("unavailable", "the server is ending", hint="ask again once it is back")


class AdmissionPace:
    """Lets a few requests begin in each pass of the event loop, callers in turn.

    What a request costs on the loop is bounded; so what another caller has to wait for is bounded, too.
    """

    def __init__(self, at_once: int, share: WaitingLimit) -> None:
        self._at_once = at_once
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(share)
        self._begun = 0
        self._expected = False

    async def begin(self, caller: Submitter) -> bool:
        """Return when it is the caller's turn, and whether that took a while.

        Raises: ApiError when too many requests wait.
        """
        if self._begun < self._at_once and not self._queue:
            self._begun += 1
            self._expect_pass()
            return False
        turn = asyncio.get_running_loop().create_future()
        try:
            self._queue.put(caller, turn)
        except TooManyWaiting as error:
            raise overloaded(error) from error
        self._expect_pass()
        await turn
        return True

    def _expect_pass(self) -> None:
        if not self._expected:
            self._expected = True
            asyncio.get_running_loop().call_soon(self._passed)

    def _passed(self) -> None:
        self._expected, self._begun = False, 0
        while self._queue and self._begun < self._at_once:
            turn = self._queue.take()
            if not turn.done():
                turn.set_result(None)
                self._begun += 1
        if self._queue or self._begun:
            self._expect_pass()


class Turn:
    """One after the other, callers in turn: `async with turn.mine(): ...`. Lives on the event loop."""

    def __init__(self, share: WaitingLimit, what: str) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(share, what)
        self._taken = False

    @asynccontextmanager
    async def mine(self) -> AsyncIterator[None]:
        """Wait for the caller's turn, and have it until the end of the block. Raises: ApiError when too many wait."""
        await self._begin()
        try:
            yield
        finally:
            self._pass_on()

    async def _begin(self) -> None:
        if not self._taken:
            self._taken = True
            return
        turn = asyncio.get_running_loop().create_future()
        try:
            self._queue.put(calling.get(), turn)
        except TooManyWaiting as error:
            raise overloaded(error) from error
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._queue:
            turn = self._queue.take()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False


class Crowd:
    """Which tenants have called lately: the last two are enough to know whether one is alone."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last, self._last_s = "", -LATELY_S
        self._former_s = -LATELY_S
        """When another tenant than the last one called."""

    def note(self, tenant: str) -> None:
        """Take note of a request of a tenant."""
        if tenant != self._last:
            self._former_s = self._last_s
        self._last, self._last_s = tenant, self._now_s()

    def beside(self, tenant: str) -> bool:
        """Return whether another tenant has called lately."""
        other_s = self._former_s if tenant == self._last else self._last_s
        return self._now_s() - other_s < LATELY_S


class Lane:
    """Pools whose work takes alike long: while other tenants call, a tenant has one thread of all of them."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self.pools: list[WorkerPool] = []

    def full(self) -> set[str]:
        """Return the tenants of which no further work begins for now."""
        busy = {tenant for pool in self.pools for tenant in pool.begun}
        return {tenant for tenant in busy if self._crowd.beside(tenant)}


class _Work(NamedTuple):
    tenant: str
    answered: asyncio.Future[Any]
    function: Callable[[], Any]
    is_gone: Callable[[], bool]
    of_change: bool


class WorkerPool:
    """Threads for work of one kind; callers take turns. Lives on the event loop.

    Where there are several threads, no tenant has all of them: another need not wait for what has begun.
    """

    def __init__(
        self, name: str, threads: int, share: WaitingLimit, lane: Lane, precedence: Precedence | None = None
    ) -> None:
        self._threads, self._lane, self._precedence = threads, lane, precedence
        lane.pools.append(self)
        if precedence is not None:
            precedence.fills.append(self.fill)
        self.begun: Counter[str] = Counter()
        """Pieces of work of each tenant that have a thread."""
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._queue: FairQueue[_Work] = FairQueue(share)
        self._since_s = 0.0
        """Since when something is in the queue."""
        self._of_changes = 0
        """Pieces of work in the queue that changes wait for."""
        self._busy = 0
        self._closed = False

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what a function returns, called in a thread when it is the caller's turn.

        Raises: ApiError when too much waits; CallerGone when nobody waits for the answer by then; what the function
            raises.
        """
        if self._closed:
            raise _ending()
        answered: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        try:
            caller = calling.get()
            work = _Work(caller.tenant, answered, partial(function, *args, **kwargs), is_gone.get(), is_change.get())
            if not self._queue and self._precedence is not None:
                self._since_s = self._precedence.now_s()
            self._queue.put(caller, work)
        except TooManyWaiting as error:
            raise overloaded(error) from error
        self._of_changes += work.of_change
        self.fill()
        return await answered

    def close(self) -> None:
        """Begin nothing more, and refuse the requests that wait for a turn."""
        self._closed = True
        while self._queue:
            answered = self._queue.take().answered
            if not answered.done():
                answered.set_exception(_ending())
        self._executor.shutdown(wait=False, cancel_futures=True)

    def fill(self) -> None:
        """Begin what may begin."""
        loop = asyncio.get_running_loop()
        most = max(1, self._threads - 1)
        while self._queue and self._busy < self._threads:
            if self._precedence is not None and not self._of_changes and self._precedence.holds(self._since_s):
                return
            full = {tenant for tenant, count in self.begun.items() if count >= most}
            try:
                work = self._queue.take(full | self._lane.full())
            except IndexError:
                return  # left for other tenants
            self._of_changes -= work.of_change
            if work.answered.done():  # the caller waits no longer
                continue
            if work.is_gone():
                work.answered.set_exception(CallerGone())
            else:
                self._busy += 1
                self.begun[work.tenant] += 1
                if self._precedence is not None:
                    self._precedence.begin(work)
                done = loop.run_in_executor(self._executor, work.function)
                done.add_done_callback(partial(self._done, work))

    def _done(self, work: _Work, done: "asyncio.Future[Any]") -> None:
        answered = work.answered
        self._busy -= 1
        self.begun[work.tenant] -= 1
        if not self.begun[work.tenant]:
            del self.begun[work.tenant]
        if done.cancelled():
            answered.cancel()
        elif (error := done.exception()) is not None:
            if not answered.done():
                answered.set_exception(error)
        elif not answered.done():
            answered.set_result(done.result())
        if self._precedence is not None:
            self._precedence.end(work)
        for pool in self._lane.pools:
            pool.fill()
