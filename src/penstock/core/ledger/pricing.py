"""What sessions cost: prices with validity, discount tiers by hours, surcharges, minimum periods. Exact integers.

Theory. Time is cut wherever anything that matters changes: a session begins or ends, a price, a month, a tier. Within
a piece all is constant, so a charge is quantity x time x price x tier x factor, an integer over a fixed denominator;
sums of them are exact, and only a line of an invoice is rounded. Hours that count for tiers are device-hours of the
tenant in the calendar month. The tier that holds at the beginning of a millisecond holds for all of it. (It is the
marginal reading, each tier's rate for the hours inside it; `whole` gives every hour of the month the rate of the last.)

A session that ended counts for at least the minimum period, what it held when it ended being held on. Parts of one
hold (it was suspended in between) have one minimum together. Nothing here knows a clock or a calendar: where months
begin, in the tenant's time zone, is told.
"""

from bisect import bisect_right
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
    """Yield what one tenant's sessions cost from `from_ms` to `until_ms` (unix ms), in order of time.

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
    whole = _whole_rates(held, tariff, months) if tariff.tier_reading == "whole" else None
    for piece in _pieces(held, tariff, months, {from_ms, until_ms}):
        if piece.start_ms >= from_ms and piece.end_ms <= until_ms:
            tier = piece.tier_milli if whole is None else whole[bisect_right(months, piece.start_ms) - 1]
            for session in piece.sessions:
                yield from _charged(session, piece, tariff, tier)


class _Piece(NamedTuple):
    """A time in which nothing changes."""

    start_ms: int
    end_ms: int
    sessions: tuple[Session, ...]
    tier_milli: int


def _billed(sessions: Iterable[Session], minimum_ms: int, until_ms: int) -> Iterator[Session]:
    """Yield sessions as they are billed: each with an end, and the last of a hold long enough."""
    holds: dict[tuple[JobId, AttemptNumber, Rank], list[Session]] = {}
    for session in sessions:
        holds.setdefault((session.job_id, session.attempt, session.rank), []).append(session)
    for parts in holds.values():
        parts.sort(key=lambda s: s.start_ms)
        yield from parts[:-1]
        last = parts[-1]
        end_ms = max(last.end_ms, parts[0].start_ms + minimum_ms) if last.end_ms else until_ms
        yield replace(last, end_ms=max(end_ms, last.start_ms))


def _pieces(held: Sequence[Session], tariff: Tariff, months: Sequence[int], cuts: set[int]) -> Iterator[_Piece]:
    """Yield the times in which nothing changes, in order; device-hours of the month decide the tier."""
    borders = cuts | {s.start_ms for s in held} | {s.end_ms for s in held} | {p.from_ms for p in tariff.prices}
    first_ms, last_ms = min(s.start_ms for s in held), max(s.end_ms for s in held)
    times = sorted(b for b in {*borders, *months} if first_ms <= b <= last_ms)
    used = 0
    """Thousandths of device-milliseconds in the month so far."""
    begins = set(months)
    coming, running = 0, list[Session]()
    for start_ms, end_ms in pairwise(times):
        if start_ms in begins:
            used = 0
        while coming < len(held) and held[coming].start_ms <= start_ms:
            running.append(held[coming])
            coming += 1
        running = [session for session in running if session.end_ms > start_ms]
        rate = sum(session.amounts.device_milli for session in running)
        at_ms = start_ms
        for tier_milli, next_used in _tiers(tariff, used):
            reached = next_used is not None and rate and at_ms + -((used - next_used) // rate) < end_ms
            until_ms = at_ms + -((used - next_used) // rate) if reached and next_used is not None else end_ms
            if running and until_ms > at_ms:
                yield _Piece(at_ms, until_ms, tuple(running), tier_milli)
            used += rate * (until_ms - at_ms)
            at_ms = until_ms
            if at_ms >= end_ms:
                break


def _tiers(tariff: Tariff, used: int) -> Iterator[tuple[int, int | None]]:
    """Yield the rate that holds after `used`, and those that follow, each with the use at which the next begins."""
    begins = [hours * HOUR_MS * 1000 for hours, _ in tariff.tiers]
    at = bisect_right(begins, used)
    for index in range(at, len(begins) + 1):
        yield tariff.tiers[index - 1][1] if index else 1000, begins[index] if index < len(begins) else None


def _whole_rates(held: Sequence[Session], tariff: Tariff, months: Sequence[int]) -> Mapping[int, int]:
    """Return the rate of each month by all its device-hours."""
    used: dict[int, int] = {}
    for piece in _pieces(held, replace(tariff, tiers=()), months, set()):
        month = bisect_right(months, piece.start_ms) - 1
        rate = sum(session.amounts.device_milli for session in piece.sessions)
        used[month] = used.get(month, 0) + rate * (piece.end_ms - piece.start_ms)
    return {month: next(iter(_tiers(tariff, total)))[0] for month, total in used.items()}


def _charged(session: Session, piece: _Piece, tariff: Tariff, tier_milli: int) -> Iterator[Charge]:
    factor = next(
        (f.milli for f in tariff.factors if f.matches(session.priority, preemptible=session.preemptible)), 1000
    )
    held: list[tuple[Resource, str, int]] = [("device", model, milli) for model, milli in session.amounts.models]
    held += [("cpu", "", session.amounts.cpu_milli), ("memory", "", session.amounts.memory_bytes)]
    for resource, model, quantity in held:
        price = price_at(tariff.prices, resource, model, piece.start_ms)
        if quantity and price:
            tier = tier_milli if resource == "device" else 1000
            yield Charge(session, resource, model, piece.start_ms, piece.end_ms, quantity, price, tier, factor)


def price_at(prices: Iterable[Price], resource: Resource, model: str, at_ms: int) -> int:
    """Return the price at a time (millionths of the currency per unit and hour); 0 where none is declared."""
    begun = [p for p in prices if p.resource == resource and p.model in ("", model) and p.from_ms <= at_ms]
    return max(begun, key=lambda p: (p.model == model, p.from_ms)).micro_per_hour if begun else 0
