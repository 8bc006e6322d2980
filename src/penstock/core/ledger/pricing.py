"""What sessions cost: prices with validity, discount tiers by hours, surcharges, minimum periods. Exact integers.

Theory. One sweep over all sessions of a tenant tells from when on which tier holds; then each session is cut by itself
where its price or the tier changes. Within a piece all is constant, so a charge is quantity x time x price x tier x
factor, an integer over a fixed denominator; sums of them are exact, and only a line of an invoice is rounded. Hours
that count for tiers are device-hours of the tenant in the calendar month. The tier that holds at the beginning of a
millisecond holds for all of it. (It is the marginal reading, each tier's rate for the hours inside it; `whole` gives
every hour of the month the rate of the last.)

A session that ended counts for at least the minimum period, what it held when it ended being held on. Parts of one
hold (it was suspended in between) have one minimum together. Nothing here knows a clock or a calendar: where months
begin, in the tenant's time zone, is told.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from penstock.core.ledger.sessions import Session
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.prices import HOUR_MS, Price, Resource, Tariff

GIB = 2**30
_UNIT: dict[Resource, int] = {"device": 1000, "cpu": 1000, "memory": GIB}
"""How much of a quantity is one unit that a price is for: thousandths of devices and CPUs, bytes of memory."""


class Charge(NamedTuple):
    """A piece of a session at one price, tier and factor: [start_ms, end_ms)."""

    session: Session
    resource: Resource
    model: str
    start_ms: int
    end_ms: int
    quantity: int
    """Thousandths of devices or CPUs, bytes of memory."""
    micro_per_hour: int
    tier_milli: int
    factor_milli: int

    @property
    def full(self) -> int:
        """The charge in `micro_denominator` parts of a millionth of the currency, before tier and factor."""
        return self.quantity * (self.end_ms - self.start_ms) * self.micro_per_hour

    @property
    def parts(self) -> int:
        """The charge in parts of which `micro_denominator(resource)` are a millionth of the currency."""
        return self.full * self.tier_milli * self.factor_milli


def micro_denominator(resource: Resource) -> int:
    """Return how many parts (`Charge.parts`) make a millionth of the currency."""
    return _UNIT[resource] * HOUR_MS * 1000 * 1000


def charges(
    sessions: Iterable[Session], tariff: Tariff, months: Sequence[int], from_ms: int, until_ms: int
) -> Iterator[Charge]:
    """Yield what one tenant's sessions cost from `from_ms` to `until_ms` (unix ms), session by session.

    What is after `until_ms` counts for nothing, the tiers included.

    Args:
        sessions: all of the tenant since the month began in which `from_ms` lies: they count for the tiers.
        months: when months begin in the tenant's time zone, ascending; the first no later than any session begins.
    Raises: ValueError when `months` does not reach back far enough.
    """
    held = sorted(_billed(sessions, tariff.minimum_ms, until_ms), key=lambda s: (s.start_ms, s.job_id, s.rank))
    if not held:
        return
    if not months or months[0] > held[0].start_ms:
        raise ValueError(f"months: the first is to be no later than {held[0].start_ms}, found {months[:1]}")
    tiers = _tier_steps(held, tariff, months)
    flat = _Steps([0], [1000])
    prices: dict[tuple[Resource, str], _Steps] = {}
    for session in held:
        factors = (f.milli for f in tariff.factors if f.matches(session.priority, preemptible=session.preemptible))
        factor = next(factors, 1000)
        start_ms, end_ms = max(session.start_ms, from_ms), min(session.end_ms, until_ms)
        for resource, model, quantity in _held(session):
            if (resource, model) not in prices:
                prices[resource, model] = _price_steps(tariff.prices, resource, model)
            price, tier = prices[resource, model], tiers if resource == "device" else flat
            cuts = {start_ms, end_ms, *price.within(start_ms, end_ms), *tier.within(start_ms, end_ms)}
            for begin_ms, finish_ms in pairwise(sorted(cuts)) if start_ms < end_ms else ():
                micro, rate = price.at(begin_ms), tier.at(begin_ms)
                if micro:
                    yield Charge(session, resource, model, begin_ms, finish_ms, quantity, micro, rate, factor)


class _Steps(NamedTuple):
    """A value that changes at times, ascending; the first holds before them, too."""

    times: list[int]
    values: list[int]

    def at(self, time_ms: int) -> int:
        return self.values[max(0, bisect_right(self.times, time_ms) - 1)]

    def within(self, start_ms: int, end_ms: int) -> list[int]:
        """Return the changes inside (start_ms, end_ms)."""
        return self.times[bisect_right(self.times, start_ms) : bisect_left(self.times, end_ms)]

    def then(self, time_ms: int, value: int) -> None:
        """Have it change to `value`, later than all before."""
        if not self.values or self.values[-1] != value:
            self.times.append(time_ms)
            self.values.append(value)


def _held(session: Session) -> Iterator[tuple[Resource, str, int]]:
    for model, milli in session.amounts.models:
        yield "device", model, milli
    if session.amounts.cpu_milli:
        yield "cpu", "", session.amounts.cpu_milli
    if session.amounts.memory_bytes:
        yield "memory", "", session.amounts.memory_bytes


def _billed(sessions: Iterable[Session], minimum_ms: int, until_ms: int) -> Iterator[Session]:
    """Yield sessions as they are billed: each with an end, the last of a hold long enough, none beyond `until_ms`."""
    holds: dict[tuple[JobId, AttemptNumber, Rank], list[Session]] = {}
    for session in sessions:
        holds.setdefault((session.job_id, session.attempt, session.rank), []).append(session)
    for parts in holds.values():
        parts.sort(key=lambda s: s.start_ms)
        last = parts[-1]
        end_ms = max(last.end_ms, parts[0].start_ms + minimum_ms) if last.end_ms else until_ms
        for part in (*parts[:-1], replace(last, end_ms=max(end_ms, last.start_ms))):
            if part.start_ms < until_ms:
                yield part if part.end_ms <= until_ms else replace(part, end_ms=until_ms)


def _tier_steps(held: Sequence[Session], tariff: Tariff, months: Sequence[int]) -> _Steps:
    """Return which rate holds from when on, by the device-hours of each month."""
    changes: dict[int, int] = {}
    for session in held:
        milli = session.amounts.device_milli
        changes[session.start_ms] = changes.get(session.start_ms, 0) + milli
        changes[session.end_ms] = changes.get(session.end_ms, 0) - milli
    first_ms, last_ms = min(changes), max(changes)
    begins = [begin for begin in months if first_ms <= begin <= last_ms]
    times = sorted({*changes, *begins})
    if tariff.tier_reading == "whole":
        return _whole_month_steps(times, changes, tariff, months)
    steps, months_begin = _Steps([], []), set(begins)
    rate = used = 0
    steps.then(first_ms, _rate_after(tariff, 0))
    for start_ms, end_ms in pairwise(times):
        if start_ms in months_begin:
            used = 0
            steps.then(start_ms, _rate_after(tariff, 0))
        rate += changes.get(start_ms, 0)
        reached_ms = start_ms
        while rate and (border := _next_tier(tariff, used)) is not None:
            reached_ms += -((used - border) // rate)  # the first millisecond that begins with so much used
            if reached_ms >= end_ms:
                break
            used += rate * (reached_ms - start_ms)
            start_ms = reached_ms
            steps.then(reached_ms, _rate_after(tariff, used))
        used += rate * (end_ms - start_ms)
        if end_ms not in months_begin:
            steps.then(end_ms, _rate_after(tariff, used))
    return steps


def _whole_month_steps(
    times: Sequence[int], changes: Mapping[int, int], tariff: Tariff, months: Sequence[int]
) -> _Steps:
    used: dict[int, int] = {}
    rate = 0
    for start_ms, end_ms in pairwise(times):
        rate += changes.get(start_ms, 0)
        month = bisect_right(months, start_ms) - 1
        used[month] = used.get(month, 0) + rate * (end_ms - start_ms)
    steps = _Steps([], [])
    for month, begin_ms in enumerate(months):
        steps.then(begin_ms, _rate_after(tariff, used.get(month, 0)))
    return steps


def _rate_after(tariff: Tariff, used: int) -> int:
    """Return the rate that holds after so many thousandths of device-milliseconds in the month."""
    return next((milli for hours, milli in reversed(tariff.tiers) if used >= hours * HOUR_MS * 1000), 1000)


def _next_tier(tariff: Tariff, used: int) -> int | None:
    """Return after how much use the next tier begins, None in the last."""
    return next((h * HOUR_MS * 1000 for h, _ in tariff.tiers if h * HOUR_MS * 1000 > used), None)


def _price_steps(prices: Iterable[Price], resource: Resource, model: str) -> _Steps:
    """Return what a unit costs from when on (millionths of the currency); 0 where nothing is declared."""
    usable = [p for p in prices if p.resource == resource and p.model in ("", model)]
    steps = _Steps([0], [price_at(usable, resource, model, 0)])
    for begin_ms in sorted({p.from_ms for p in usable if p.from_ms > 0}):
        steps.then(begin_ms, price_at(usable, resource, model, begin_ms))
    return steps


def price_at(prices: Iterable[Price], resource: Resource, model: str, at_ms: int) -> int:
    """Return the price at a time (millionths of the currency per unit and hour); 0 where none is declared."""
    begun = [p for p in prices if p.resource == resource and p.model in ("", model) and p.from_ms <= at_ms]
    return max(begun, key=lambda p: (p.model == model, p.from_ms)).micro_per_hour if begun else 0
