"""Costs of sessions: prices with validity, tiers by hours, surcharges, minimum periods, refunds. Exact integers.

Theory. One sweep over all sessions of a tenant finds when each tier begins; then each session is cut on its own where
its price or the tier changes. Within a piece all is constant, so a charge is quantity x time x price x tier x factor,
an integer over a fixed denominator; sums of them are exact, and only a line of an invoice is rounded. Hours that count
for tiers are device-hours of the tenant in the calendar month. The tier that holds at the beginning of a millisecond
holds for all of it. (It is the marginal reading, each tier's rate for the hours inside it; `whole` gives every hour of
the month the rate of the last.)

A session that ended counts for at least the minimum period, at the amounts it held when it ended. Parts of one hold (it
was suspended in between) have one minimum together. Work lost with a failed node is refunded at the price it had, when
the loss is known: a piece of time is refunded in the period of the loss, or in its own if that is later.
Nothing here knows a clock or a calendar: the begin of months and the offset of the local clock are arguments.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from penstock.core.ledger.schedule import UTC, StepFunction, Zone, borders, inside
from penstock.core.ledger.sessions import Losses, UsageInterval
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.prices import HOUR_MS, Price, Resource, Tariff, Terms

GIB = 2**30
_UNIT: dict[Resource, int] = {"device": 1000, "cpu": 1000, "memory": GIB}
"""The quantity of one priced unit: thousandths of devices and CPUs, bytes of memory."""


class MoneyCharge(NamedTuple):
    """A piece of a session at one price, tier and factor: [start_ms, end_ms)."""

    session: UsageInterval
    resource: Resource
    model: str
    start_ms: int
    end_ms: int
    quantity: int
    """Thousandths of devices or CPUs, bytes of memory."""
    micro_per_hour: int
    tier_milli: int
    factor_milli: int
    refund: bool = False
    """It is given back."""

    @property
    def full(self) -> int:
        """The charge in `micro_denominator` parts of a millionth of the currency, before tier and factor."""
        whole = self.quantity * (self.end_ms - self.start_ms) * self.micro_per_hour
        return -whole if self.refund else whole

    @property
    def parts(self) -> int:
        """The charge in parts of which `micro_denominator(resource)` are a millionth of the currency."""
        return self.full * self.tier_milli * self.factor_milli


def micro_denominator(resource: Resource) -> int:
    """Return how many parts (`MoneyCharge.parts`) make a millionth of the currency."""
    return _UNIT[resource] * HOUR_MS * 1000 * 1000


def charges(
    sessions: Iterable[UsageInterval],
    tariff: Tariff,
    months: Sequence[int],
    from_ms: int,
    until_ms: int,
    *,
    zone: Zone = UTC,
    losses: Losses = MappingProxyType({}),
) -> Iterator[MoneyCharge]:
    """Yield the charges of one tenant's sessions from `from_ms` to `until_ms` (unix ms), session by session.

    Time after `until_ms` does not count, nor for tiers.

    Args:
        sessions: all of the tenant since the month began in which `from_ms` lies: they count for the tiers. Where
            `losses` reach back further, since that month.
        months: when months begin in the tenant's time zone, ascending; the first no later than any session begins.
        zone: how far the clock there is ahead, for prices by hours of the day.
        losses: work of attempts lost with failed nodes, to be refunded.
    Raises: ValueError when `months` does not reach back far enough.
    """
    held = sorted(_billed(sessions, tariff, until_ms), key=lambda s: (s.start_ms, s.job_id, s.rank))
    if not held:
        return
    if not months or months[0] > held[0].start_ms:
        raise ValueError(f"months: the first is to be no later than {held[0].start_ms}, found {months[:1]}")
    cutter = _Cutter(tariff, _tier_steps(held, tariff, months), zone, held[0].start_ms, until_ms)
    for session in held:
        start_ms, end_ms = max(session.start_ms, from_ms), min(session.end_ms, until_ms)
        yield from cutter.pieces(session, start_ms, end_ms)
        loss = losses.get((session.job_id, session.attempt))
        if loss is not None and loss.at_ms < until_ms:
            lost_ms = max(session.start_ms, loss.from_ms)
            lost_ms = max(lost_ms, from_ms) if loss.at_ms < from_ms else lost_ms
            yield from cutter.pieces(session, lost_ms, end_ms, refund=True)


class _Cutter:
    """Cuts sessions where their price, tier or factor changes."""

    def __init__(self, tariff: Tariff, tiers: StepFunction, zone: Zone, from_ms: int, until_ms: int) -> None:
        self._tariff, self._tiers, self._zone = tariff, tiers, zone
        self._flat = StepFunction([0], [1000])
        self._prices: dict[tuple[Resource, str], StepFunction] = {}
        self._factors: dict[tuple[int, bool], StepFunction] = {}
        windows = {w for terms in tariff.terms for factor in terms.factors for w in factor.windows}
        begins = (terms.from_ms for terms in tariff.later if from_ms < terms.from_ms < until_ms)
        self._moments = sorted({from_ms, *begins, *borders(windows, zone, from_ms, until_ms)})

    def pieces(
        self, session: UsageInterval, start_ms: int, end_ms: int, *, refund: bool = False
    ) -> Iterator[MoneyCharge]:
        """Yield the charges of [start_ms, end_ms) of a session."""
        if start_ms >= end_ms:
            return
        factor = self._factor_steps(session)
        for resource, model, quantity in _held(session):
            price = self._price_steps(resource, model)
            tier = self._tiers if resource == "device" else self._flat
            cuts = {start_ms, end_ms}.union(*(steps.within(start_ms, end_ms) for steps in (price, tier, factor)))
            for begin_ms, finish_ms in pairwise(sorted(cuts)):
                micro = price.at(begin_ms)
                if micro:
                    rates = tier.at(begin_ms), factor.at(begin_ms)
                    yield MoneyCharge(session, resource, model, begin_ms, finish_ms, quantity, micro, *rates, refund)

    def _price_steps(self, resource: Resource, model: str) -> StepFunction:
        found = self._prices.get((resource, model))
        if found is None:
            found = self._prices[resource, model] = _price_steps(self._tariff.prices, resource, model)
        return found

    def _factor_steps(self, session: UsageInterval) -> StepFunction:
        key = session.priority, session.preemptible
        found = self._factors.get(key)
        if found is None:
            found = self._factors[key] = StepFunction([], [])
            for moment in self._moments:
                found.then(moment, self._factor_at(session, moment))
        return found

    def _factor_at(self, session: UsageInterval, time_ms: int) -> int:
        for factor in self._tariff.terms_at(time_ms).factors:
            fits = factor.matches(session.priority, preemptible=session.preemptible)
            if fits and inside(factor.windows, self._zone, time_ms):
                return factor.milli
        return 1000


def _held(session: UsageInterval) -> Iterator[tuple[Resource, str, int]]:
    for model, milli in session.amounts.models:
        yield "device", model, milli
    if session.amounts.cpu_milli:
        yield "cpu", "", session.amounts.cpu_milli
    if session.amounts.memory_bytes:
        yield "memory", "", session.amounts.memory_bytes


def _billed(sessions: Iterable[UsageInterval], tariff: Tariff, until_ms: int) -> Iterator[UsageInterval]:
    """Yield sessions as they are billed: each with an end, the last of a hold long enough, none beyond `until_ms`."""
    holds: dict[tuple[JobId, AttemptNumber, Rank], list[UsageInterval]] = {}
    for session in sessions:
        holds.setdefault((session.job_id, session.attempt, session.rank), []).append(session)
    for parts in holds.values():
        parts.sort(key=lambda s: s.start_ms)
        first, last = parts[0], parts[-1]
        least_ms = first.start_ms + tariff.terms_at(first.start_ms).minimum_ms
        end_ms = max(last.end_ms, least_ms) if last.end_ms else until_ms
        for part in (*parts[:-1], replace(last, end_ms=max(end_ms, last.start_ms))):
            if part.start_ms < until_ms:
                yield part if part.end_ms <= until_ms else replace(part, end_ms=until_ms)


def _tier_steps(held: Sequence[UsageInterval], tariff: Tariff, months: Sequence[int]) -> StepFunction:
    """Return which rate holds from when on, by the device-hours of each month."""
    changes: dict[int, int] = {}
    for session in held:
        milli = session.amounts.device_milli
        changes[session.start_ms] = changes.get(session.start_ms, 0) + milli
        changes[session.end_ms] = changes.get(session.end_ms, 0) - milli
    first_ms, last_ms = min(changes), max(changes)
    begins = [begin for begin in months if first_ms < begin <= last_ms]
    times = sorted({*changes, *begins})
    steps, rate = StepFunction([], []), 0
    for begin_ms, end_ms in pairwise([first_ms, *begins, last_ms + 1]):
        terms = tariff.terms_at(months[bisect_right(months, begin_ms) - 1])
        spans = []
        for start_ms, finish_ms in pairwise(times[bisect_left(times, begin_ms) : bisect_right(times, end_ms)]):
            rate += changes.get(start_ms, 0)
            spans.append((start_ms, finish_ms, rate))
        _month_steps(steps, begin_ms, spans, terms)
    return steps


def _month_steps(steps: StepFunction, begin_ms: int, spans: Sequence[tuple[int, int, int]], terms: Terms) -> None:
    """Add the rates of one month, given [start, end) and how many devices were held in it."""
    if terms.tier_reading == "whole":
        steps.then(begin_ms, _rate_after(terms, sum(rate * (end_ms - start_ms) for start_ms, end_ms, rate in spans)))
        return
    used = 0
    steps.then(begin_ms, _rate_after(terms, used))
    for start_ms, end_ms, rate in spans:
        while rate and (border := _next_tier(terms, used)) is not None:
            reached_ms = start_ms - ((used - border) // rate)  # the first millisecond that begins with that use
            if reached_ms >= end_ms:
                break
            used += rate * (reached_ms - start_ms)
            start_ms = reached_ms
            steps.then(reached_ms, _rate_after(terms, used))
        used += rate * (end_ms - start_ms)
        steps.then(end_ms, _rate_after(terms, used))


def _rate_after(terms: Terms, used: int) -> int:
    """Return the rate that holds after `used` thousandths of device-milliseconds in the month."""
    return next((milli for hours, milli in reversed(terms.tiers) if used >= hours * HOUR_MS * 1000), 1000)


def _next_tier(terms: Terms, used: int) -> int | None:
    """Return after how much use the next tier begins, None in the last."""
    return next((h * HOUR_MS * 1000 for h, _ in terms.tiers if h * HOUR_MS * 1000 > used), None)


def _price_steps(prices: Iterable[Price], resource: Resource, model: str) -> StepFunction:
    """Return the unit price over time (millionths of the currency); 0 where none is declared."""
    usable = [p for p in prices if p.resource == resource and p.model in ("", model)]
    steps = StepFunction([0], [price_at(usable, resource, model, 0)])
    for begin_ms in sorted({p.from_ms for p in usable if p.from_ms > 0}):
        steps.then(begin_ms, price_at(usable, resource, model, begin_ms))
    return steps


def price_at(prices: Iterable[Price], resource: Resource, model: str, at_ms: int) -> int:
    """Return the price at a time (millionths of the currency per unit and hour); 0 where none is declared."""
    begun = [p for p in prices if p.resource == resource and p.model in ("", model) and p.from_ms <= at_ms]
    return max(begun, key=lambda p: (p.model == model, p.from_ms)).micro_per_hour if begun else 0
