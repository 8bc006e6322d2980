"""Limits of one caller: rates of requests, streams open at once, jobs and bytes of one submit.

Rates are token buckets. A full bucket equals a new one, and is forgotten; so the memory is bounded, and no caller
gets a fresh bucket by crowding out others: where all are in use, newcomers share one.
"""

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.core.lifecycle.size import over_size, over_weight, size_of, weight_of
from penstock.core.lifecycle.thresholds import Holding, SharedAmount, over_share
from penstock.core.messages.requests import NewJob
from penstock.core.model.errors import InvalidInput
from penstock.core.model.ids import TenantName
from penstock.core.order.turns import Submitter
from penstock.core.state.live_jobs import LiveJobs
from penstock.ports import Clock
from penstock.server.http.listener import ANSWER_S, BODY_S, CONNECTIONS_MAX, HEADERS_S, ListenerBounds
from penstock.server.http.responses import ApiError, problem

_SHARED = ""
DAY_S = 86_400
PAID_AT_BYTES = 65_536
"""Bytes that a tenant adds to the log are charged in pieces of this size."""

Count = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=10**9)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits that an operator may set, with their defaults."""

    requests_per_s: Rate = 5_000
    """Of one user, in the long run."""
    requests_burst: Count = 10_000
    """Of one user, at once."""
    failed_logins_per_s: Rate = 10
    """Of one address (of IPv6: one /64), in the long run."""
    failed_logins_burst: Count = 50
    callers_kept: Count = 10_000
    """Users, and addresses, whose rate is kept apart; all others share one."""
    streams_per_user: Count = 64
    """Followers of the log."""
    streams: Count = 512
    live_jobs: Count = 1_000_000
    """Waiting and running, of all tenants; one may have at most as many as it leaves free."""
    live_bytes: Count = 512 * 2**20
    """Of the requests of live jobs, those of an array counted once; shared in the same way."""
    log_bytes_per_s: Count = 2 * 2**20
    """Of one tenant, in the long run: what its requests add to the log."""
    log_bytes_burst: Count = 256 * 2**20
    """Of one tenant, at once."""
    log_bytes_per_day: Count = 8 * 2**30
    """Of one tenant."""
    jobs_per_request: Count = 2_000
    """Where several tenants share the server: while a request is committed, all others wait."""
    jobs_per_s: Count = 5_000
    """Of one tenant, where there are several, in the long run."""
    jobs_burst: Count = 20_000
    """Of one tenant, where there are several, at once."""
    folder_bytes: Count = 4 * 2**30
    """Of one user: snapshots of folders that jobs start in (`workdir: {snapshot: .}`)."""
    connections: Count = CONNECTIONS_MAX
    headers_s: Rate = HEADERS_S
    body_s: Rate = BODY_S
    answer_s: Rate = ANSWER_S

    def bounds(self) -> ListenerBounds:
        """Return the limits on connections."""
        return ListenerBounds(self.connections, self.headers_s, self.body_s, self.answer_s)


def read_limits(path: Path) -> Limits:
    """Return the limits that a YAML file sets. Raises: InvalidInput."""
    from penstock.yamltext import loaded

    try:
        raw = loaded(path.read_text(encoding="utf-8"))
        return msgspec.convert(raw or {}, Limits)
    except (OSError, ValueError) as error:  # of the text, of YAML, or of a value
        hint = "known: " + ", ".join(Limits.__struct_fields__)
        raise InvalidInput(f"{path} cannot be used: {error}", hint=hint) from error


class TokenBucket(msgspec.Struct, frozen=True):
    """Tokens at a moment; times are monotonic milliseconds."""

    tokens: float
    at_ms: int


def refilled(bucket: TokenBucket, rate: float, burst: float, now_ms: int) -> TokenBucket:
    """Return the bucket as it is by now: `rate` tokens a second were added, up to `burst`."""
    passed_s = max(0, now_ms - bucket.at_ms) / 1000
    return TokenBucket(min(burst, bucket.tokens + passed_s * rate), max(now_ms, bucket.at_ms))


def take(bucket: TokenBucket, rate: float, burst: float, now_ms: int, amount: float = 1) -> tuple[TokenBucket, int]:
    """Return the bucket after `amount` tokens were taken, and 0; or unchanged, and the wait for them in ms."""
    full = refilled(bucket, rate, burst, now_ms)
    needed = min(amount, burst)  # more than the burst passes when the bucket is full, and leaves a debt
    if full.tokens >= needed:
        return TokenBucket(full.tokens - amount, full.at_ms), 0
    return full, max(1, int((needed - full.tokens) / rate * 1000) + 1)


class Rates:
    """One bucket for each caller, at most `kept` of them; the rest share one."""

    def __init__(self, rate: float, burst: float, kept: int) -> None:
        self._rate, self._burst, self._kept = rate, burst, kept
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, caller: str, now_ms: int, amount: float = 1) -> int:
        """Take tokens of the caller's and return 0, or the wait for them in ms."""
        key = caller if caller in self._buckets or self._room(now_ms) else _SHARED
        known = self._buckets.get(key) or TokenBucket(self._burst, now_ms)
        self._buckets[key], wait_ms = take(known, self._rate, self._burst, now_ms, amount)
        self._buckets.move_to_end(key)
        return wait_ms

    def _room(self, now_ms: int) -> bool:
        """Return whether one more caller may be kept; forgets the longest unused if that makes no difference."""
        while len(self._buckets) >= self._kept:
            oldest = next(iter(self._buckets))
            if refilled(self._buckets[oldest], self._rate, self._burst, now_ms).tokens < self._burst:
                return False
            del self._buckets[oldest]
        return True


class RateGate:
    """Lets callers in at their rates. Lives on the event loop."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits, self._clock = limits, clock
        self._users = Rates(limits.requests_per_s, limits.requests_burst, limits.callers_kept)
        self._failed = Rates(limits.failed_logins_per_s, limits.failed_logins_burst, limits.callers_kept)
        self.streams = Streams(limits.streams_per_user, limits.streams)
        day_rate = limits.log_bytes_per_day / DAY_S
        self._log = Rates(limits.log_bytes_per_s, limits.log_bytes_burst, limits.callers_kept)
        self._jobs = Rates(limits.jobs_per_s, limits.jobs_burst, limits.callers_kept)
        self._unpaid: Counter[str] = Counter()
        """Bytes that are counted with the next ones: most requests are small."""
        self._log_of_day = Rates(day_rate, limits.log_bytes_per_day, limits.callers_kept)

    def check(self, user: str | None, address: str) -> None:
        """Count a request of `user`, or one from `address` whose token is not valid.

        A valid token is never refused for failed logins from the same address: tokens cannot be guessed, and no
        caller may lock others out.

        Raises: ApiError when the rate is over its limit.
        """
        now_ms = self._clock.monotonic_ms()
        if user is not None:
            wait_ms = self._users.take(user, now_ms)
            what = f"{self.limits.requests_per_s:g} requests a second"
        else:
            wait_ms = self._failed.take(network_of(address), now_ms)
            what = f"{self.limits.failed_logins_per_s:g} requests a second without a valid token"
        if wait_ms:
            raise too_many(f"more than {what}", wait_ms)

    def admit(self, jobs: Sequence[NewJob], live: LiveJobs) -> int:
        """Check the size of a submit, and return how many bytes it adds to the log. Any thread.

        Raises: ApiError when it is too large.
        """
        size = size_of(jobs)
        weight = weight_of(jobs) if (over := over_size(size)) is None else None
        over = over or (over_weight(weight, size.jobs) if weight is not None else None)
        if over is not None or weight is None:
            assert over is not None, "else it was weighed"
            whole = over.code == "too_large" and over.field == "jobs"
            raise ApiError("too_large" if whole else "invalid_input", over.message, hint=over.hint, problems=[over])
        if len(live) + size.jobs > self.limits.live_jobs:
            text = f"{len(live)} jobs are there and {size.jobs} more were sent; at most {self.limits.live_jobs} may be"
            raise ApiError("overloaded", text, hint="come back when some have ended")
        return weight.log_bytes

    def share(self, jobs: Sequence[NewJob], log_bytes: int, live: LiveJobs, tenants: int) -> None:
        """Check that a submit leaves enough time, live jobs, and bytes of them, to other tenants. Any thread.

        Raises: ApiError when it does not.
        """
        if tenants < 2:
            return
        coming: Counter[TenantName] = Counter()
        for new in jobs:
            coming[new.spec.tenant] += new.count
        if coming.total() > self.limits.jobs_per_request:
            text = f"one request may create {self.limits.jobs_per_request} jobs, this one asks for {coming.total()}"
            raise ApiError("too_large", text, hint="send several; the server's operator sets jobs_per_request")
        for what, used, own, most, more in (
            ("live jobs", len(live), live.of_tenant, self.limits.live_jobs, coming.total()),
            ("bytes of live jobs", live.spec_bytes(), live.spec_bytes, self.limits.live_bytes, log_bytes),
        ):
            claims = (Holding(f"tenant '{name}'", own(name)) for name in sorted(coming))
            over = over_share(claims, used=used, most=most, more=more)
            if over is not None:
                text = f"{over.who} has {over.own} {what}; {more} more would leave too few of the {over.left} to others"
                raise ApiError("overloaded", text, hint="come back when some have ended, or send less")

    def jobs(self, tenant: str, count: int) -> None:
        """Count the jobs that one of several tenants submits. Raises: ApiError above its rate."""
        wait_ms = self._jobs.take(tenant, self._clock.monotonic_ms(), count)
        if wait_ms:
            limits = self.limits
            text = f"more than {limits.jobs_per_s} new jobs a second, {limits.jobs_burst} at once, of your tenant"
            raise too_many(text, wait_ms)

    def log(self, tenant: str, log_bytes: int) -> None:
        """Count the bytes that a tenant's request adds to the log. Raises: ApiError above its rate."""
        owed = self._unpaid[tenant] + log_bytes
        if owed < PAID_AT_BYTES:
            self._unpaid[tenant] = owed
            return
        now_ms = self._clock.monotonic_ms()
        for rates, what in ((self._log, "at once"), (self._log_of_day, "a day")):
            wait_ms = rates.take(tenant, now_ms, owed)
            if wait_ms:  # what was taken before stays owed
                raise too_many(f"those of your tenant add more bytes to the log than they may {what}", wait_ms)
        del self._unpaid[tenant]


class Streams:
    """Counts open streams."""

    def __init__(self, per_user: int, most: int) -> None:
        self._per_user, self._room = per_user, SharedAmount(most)
        self._open: Counter[str] = Counter()

    def begin(self, caller: Submitter) -> None:
        """Count one more. Raises: ApiError when the user has too many, or their tenant leaves too few to others."""
        if self._open[caller.user] >= self._per_user:
            raise too_many(f"more than {self._per_user} streams of one user", 1000)
        if self._room.take((caller.tenant,), 1) is not None:
            raise ApiError("overloaded", f"of {self._room.most} streams the rest is for others", hint="come back later")
        self._open[caller.user] += 1

    def end(self, caller: Submitter) -> None:
        self._room.give_back((caller.tenant,), 1)
        self._open[caller.user] -= 1
        if self._open[caller.user] <= 0:
            del self._open[caller.user]


class CountedStream(StreamingResponse):
    """A stream that is refused where there are too many, and that is counted exactly for as long as it is sent."""

    def __init__(self, streams: Streams, caller: Submitter, content: AsyncIterator[bytes], media_type: str) -> None:
        super().__init__(content, media_type=media_type, headers={"Cache-Control": "no-cache"})
        self._streams, self._caller = streams, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._streams.begin(self._caller)
        except ApiError as error:
            await problem(error)(scope, receive, send)
            return
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.end(self._caller)


def too_many(what: str, wait_ms: int) -> ApiError:
    """Return the refusal of one request too many, with when to come back."""
    seconds = -(-wait_ms // 1000)
    return ApiError(
        "too_many_requests",
        f"too many requests: {what}",
        hint=f"come back in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )


def network_of(address: str) -> str:
    """Return the network of one caller: an IPv4 address, or a /64 of IPv6, of which one caller has all."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return address
