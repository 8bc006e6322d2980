"""Answers that are kept for a moment: the same question asked again, or by many at once, is worked out once.

A caller may accept an older answer (`Cache-Control: max-stale`, RFC 9111). Pages do where a sum over a long log takes
seconds: it is given at once, with its age, and worked out anew behind them at a small share of a processor. They do,
too, where they follow changes: all who see the same share an answer that is at most a second old.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextvars import ContextVar
from hashlib import sha256
from typing import NamedTuple

from starlette.responses import Response

from penstock.core.order.turns import Submitter
from penstock.ports import Clock
from penstock.server.http.responses import ApiError
from penstock.server.http.turns import CallerGone, calling

SHARE_CODES = ("too_many_requests", "overloaded")
"""Refusals by the caller's limits."""
KEPT_MS = 200
COST_TIMES = 4
"""An answer is kept this many times as long as it took, if that is longer."""
KEPT_LONGEST_MS = 10_000
REFRESH_TIMES = 20
"""An answer that is given although it is stale is worked out anew when it is this many times as old as it took."""
REFRESH_LEAST_MS = 1_000
"""A younger one is not: who accepts no older ones gets the next when they ask for it."""
KEPT_MAX = 256
KEPT_MAX_BYTES = 64 * 2**20
REPEATED_MS = 600_000
REPEATED_PER_USER = 64
REPEATED_BYTES_PER_USER = 2**20
REPEATED_USERS = 256

_MAX_STALE = re.compile(r"(?:^|,)\s*max-stale=(\d{1,6})\s*(?:,|$)", re.IGNORECASE)

max_stale_ms: ContextVar[int] = ContextVar("max_stale_ms", default=0)
"""The age of answers that the caller accepts although something has changed since."""


def max_stale_of(cache_control: str) -> int:
    """Return for how long (ms) a `Cache-Control` header of a request accepts answers after they are stale; 0: not."""
    found = _MAX_STALE.search(cache_control)
    return 1000 * int(found[1]) if found else 0


class _Answer(NamedTuple):
    body: bytes
    media_type: str | None
    version: Hashable
    begun_ms: int
    made_ms: int
    owner: Submitter
    """Who asked for it first."""

    @property
    def cost_ms(self) -> int:
        return self.made_ms - self.begun_ms

    def is_fresh(self, version: Hashable, now_ms: int, for_ms: int) -> bool:
        longest_ms = max(for_ms, min(KEPT_LONGEST_MS, COST_TIMES * self.cost_ms))
        return self.version == version and now_ms < self.made_ms + longest_ms

    def response(self, version: Hashable, age_ms: int = 0) -> Response:
        """Return the answer, with its age where something has changed since, or may have."""
        stale = self.version != version or age_ms >= REFRESH_LEAST_MS
        return Response(self.body, media_type=self.media_type, headers={"Age": str(age_ms // 1000)} if stale else None)


class _Coming(NamedTuple):
    """An answer that is being worked out."""

    answer: "asyncio.Future[_Answer]"
    version: Hashable
    begun_ms: int


class KeptAnswers:
    """Lives on the event loop. Only for what depends on nothing but the question.

    Args:
        share: one user's answers are at most this part of all: their questions do not push out those of others.
    """

    def __init__(
        self,
        clock: Clock,
        for_ms: int = KEPT_MS,
        *,
        most: int = KEPT_MAX,
        most_bytes: int = KEPT_MAX_BYTES,
        share: int = 1,
    ) -> None:
        self._clock, self._for_ms = clock, for_ms
        self._most, self._most_bytes = most, most_bytes
        self._most_each, self._most_bytes_each = most // share, most_bytes // share
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._bytes = 0
        self._of_user: dict[Submitter, OrderedDict[Hashable, _Answer]] = {}
        self._coming: dict[tuple[str, Hashable], _Coming] = {}
        """The last that has begun, in the turn of the tenant that asked first."""
        self._refreshed: set[Hashable] = set()
        """What is worked out anew behind callers who were given a stale answer."""

    async def of(
        self, question: Hashable, work_out: Callable[[], Awaitable[Response]], version: Hashable = None
    ) -> Response:
        """Return the answer to a question: kept, being worked out for another of the tenant, or worked out now.

        Args:
            version: of what the answer is worked out from: a kept answer of another one is stale.
        Raises: what `work_out` raises; nothing is kept then.
        """
        while True:
            known, now_ms = self._answers.get(question), self._clock.monotonic_ms()
            if known is not None and known.is_fresh(version, now_ms, self._for_ms):
                return known.response(version)
            if known is not None and (age_ms := now_ms - known.made_ms) < max_stale_ms.get():
                due_ms = max(REFRESH_LEAST_MS, REFRESH_TIMES * known.cost_ms)
                if age_ms >= due_ms and question not in self._refreshed:
                    self._refreshed.add(question)
                    coming, _ = self._worked_out(question, version, work_out)
                    coming.add_done_callback(lambda _: self._refreshed.discard(question))
                return known.response(version, age_ms)
            coming, mine = self._worked_out(question, version, work_out, max_stale_ms.get())
            try:
                return (await asyncio.shield(coming)).response(version)
            except CallerGone:
                if mine:
                    raise
            except ApiError as error:
                if mine or error.details.code not in SHARE_CODES:
                    raise  # else the share of the first caller is used up: try again

    def _worked_out(
        self, question: Hashable, version: Hashable, work_out: Callable[[], Awaitable[Response]], stale_ms: int = 0
    ) -> tuple["asyncio.Future[_Answer]", bool]:
        """Return the answer that is coming, and whether it begins with this call."""
        at, now_ms = (calling.get().tenant, question), self._clock.monotonic_ms()
        known = self._coming.get(at)
        if known is not None and (known.version == version or now_ms - known.begun_ms < stale_ms):
            return known.answer, False
        coming = asyncio.ensure_future(self._made(version, work_out))
        self._coming[at] = _Coming(coming, version, now_ms)
        coming.add_done_callback(lambda done: self._came(at, done))
        return coming, True

    async def _made(self, version: Hashable, work_out: Callable[[], Awaitable[Response]]) -> _Answer:
        begun_ms = self._clock.monotonic_ms()
        answer = await work_out()
        now_ms = self._clock.monotonic_ms()
        return _Answer(bytes(answer.body), answer.media_type, version, begun_ms, now_ms, calling.get())

    def _came(self, at: tuple[str, Hashable], done: "asyncio.Future[_Answer]") -> None:
        if at in self._coming and self._coming[at].answer is done:
            del self._coming[at]
        _, question = at
        if not done.cancelled() and done.exception() is None:
            self._keep(question, done.result())

    def _keep(self, question: Hashable, answer: _Answer) -> None:
        former = self._answers.get(question)
        if former is not None and former.begun_ms > answer.begun_ms:
            return  # it was overtaken
        if former is not None:
            self._forget(question)
        if len(answer.body) > min(self._most_bytes_each, self._most_bytes // 2):
            return  # it would push out all others
        own = self._of_user.setdefault(answer.owner, OrderedDict())
        self._answers[question] = own[question] = answer
        self._bytes += len(answer.body)
        while len(own) > self._most_each or sum(len(one.body) for one in own.values()) > self._most_bytes_each:
            self._forget(next(iter(own)))
        while len(self._answers) > self._most or self._bytes > self._most_bytes:
            self._forget(next(iter(self._answers)))

    def _forget(self, question: Hashable) -> None:
        answer = self._answers.pop(question)
        self._bytes -= len(answer.body)
        own = self._of_user[answer.owner]
        del own[question]
        if not own:
            del self._of_user[answer.owner]


class RepeatedRequests:
    """Answers to requests that change something, by the caller's idempotency key: sent again, it has no other effect.

    Lives on the event loop. Keys are kept for `REPEATED_MS`, by this server alone; the newest `REPEATED_PER_USER` of
    each user, whatever other users send.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._users: OrderedDict[str, _Repeated] = OrderedDict()

    async def of(self, user: str, key: str, body: bytes, work_out: Callable[[], Awaitable[Response]]) -> Response:
        """Return the answer to a request; one without a key is always worked out.

        Raises: ApiError when the key was used for another request; what `work_out` raises, and the key is free then.
        """
        if not key:
            return await work_out()
        known = self._users.setdefault(user, _Repeated(self._clock))
        self._users.move_to_end(user)
        while len(self._users) > REPEATED_USERS:
            self._users.popitem(last=False)
        return await known.of(key, sha256(body).hexdigest(), work_out)


class _Repeated:
    """The keys of one user."""

    def __init__(self, clock: Clock) -> None:
        self._answers = KeptAnswers(clock, REPEATED_MS, most=REPEATED_PER_USER, most_bytes=REPEATED_BYTES_PER_USER)
        self._clock = clock
        self._digests: OrderedDict[str, tuple[str, int]] = OrderedDict()
        """Of the request of each key, and until when the key is its."""

    async def of(self, key: str, digest: str, work_out: Callable[[], Awaitable[Response]]) -> Response:
        now_ms = self._clock.monotonic_ms()
        first, until_ms = self._digests.get(key, ("", 0))
        if now_ms >= until_ms:
            self._digests[key] = digest, now_ms + REPEATED_MS
            self._digests.move_to_end(key)
        elif first != digest:
            hint = "use a new key for a new request"
            raise ApiError("conflict", "this Idempotency-Key was used for another request", hint=hint)
        while len(self._digests) > REPEATED_PER_USER:
            self._digests.popitem(last=False)
        try:
            return await self._answers.of((key, digest), work_out)
        except Exception:
            self._digests.pop(key, None)
            raise
