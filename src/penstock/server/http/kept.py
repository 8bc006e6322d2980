"""Answers that are kept for a moment: the same question asked again, or by many at once, is worked out once."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from hashlib import sha256
from typing import NamedTuple

from starlette.responses import Response

from penstock.ports import Clock
from penstock.server.http.responses import ApiError
from penstock.server.http.turns import calling

SHARE_CODES = ("too_many_requests", "overloaded")
"""Refusals by the caller's limits."""
KEPT_MS = 200
COST_TIMES = 4
"""An answer is kept this many times as long as it took, if that is longer."""
KEPT_LONGEST_MS = 10_000
KEPT_MAX = 256
KEPT_MAX_BYTES = 64 * 2**20
REPEATED_MS = 600_000
REPEATED_PER_USER = 64
REPEATED_BYTES_PER_USER = 2**20
REPEATED_USERS = 256


class _Answer(NamedTuple):
    body: bytes
    media_type: str | None
    until_ms: int


class KeptAnswers:
    """Lives on the event loop. Only for what depends on nothing but the question."""

    def __init__(
        self, clock: Clock, for_ms: int = KEPT_MS, *, most: int = KEPT_MAX, most_bytes: int = KEPT_MAX_BYTES
    ) -> None:
        self._clock, self._for_ms = clock, for_ms
        self._most, self._most_bytes = most, most_bytes
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._bytes = 0
        self._coming: dict[tuple[str, Hashable], asyncio.Future[_Answer]] = {}
        """In the turn of the tenant that asked first."""

    async def of(self, question: Hashable, work_out: Callable[[], Awaitable[Response]]) -> Response:
        """Return the answer to a question: kept, being worked out for another of the tenant, or worked out now.

        Raises: what `work_out` raises; nothing is kept then.
        """
        at = (calling.get().tenant, question)
        while True:
            known = self._answers.get(question)
            if known is not None and self._clock.monotonic_ms() < known.until_ms:
                break
            coming = self._coming.get(at)
            mine = coming is None
            if coming is None:
                coming = self._coming[at] = asyncio.ensure_future(self._made(work_out))
                coming.add_done_callback(lambda done: self._came(at, done))
            try:
                known = await asyncio.shield(coming)
                break
            except ApiError as error:
                if mine or error.details.code not in SHARE_CODES:
                    raise  # else the share of the first caller is used up: try again
        return Response(known.body, media_type=known.media_type)

    async def _made(self, work_out: Callable[[], Awaitable[Response]]) -> _Answer:
        begun_ms = self._clock.monotonic_ms()
        answer = await work_out()
        now_ms = self._clock.monotonic_ms()
        for_ms = max(self._for_ms, min(KEPT_LONGEST_MS, COST_TIMES * (now_ms - begun_ms)))
        return _Answer(bytes(answer.body), answer.media_type, now_ms + for_ms)

    def _came(self, at: tuple[str, Hashable], done: "asyncio.Future[_Answer]") -> None:
        del self._coming[at]
        _, question = at
        if done.cancelled() or done.exception() is not None:
            return
        former = self._answers.pop(question, None)
        self._answers[question] = done.result()
        self._bytes += len(done.result().body) - (len(former.body) if former is not None else 0)
        while len(self._answers) > self._most or (self._bytes > self._most_bytes and len(self._answers) > 1):
            _, oldest = self._answers.popitem(last=False)
            self._bytes -= len(oldest.body)


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
