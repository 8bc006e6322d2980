"""Costs of a tenant's hours, and which hours cost unusually much.

An hour is compared with the same hour of the week and its neighbors in the last four weeks, where enough of them are
known, else with all hours: a tenant that works by day gets no alert each morning, and a forgotten job at night is
noticed. The bound is that of days (`budgets.py`): a robust z-score of 6 and twice the median; and an amount, so that
pennies raise no alert.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from statistics import median_high

from penstock.core.ledger.bill import half_up
from penstock.core.ledger.pricing import MoneyCharge, micro_denominator
from penstock.core.model.prices import HOUR_MS, Resource

WEEK_HOURS = 168
HISTORY_HOURS = 4 * WEEK_HOURS
ALIKE_LEAST = 8
ALL_LEAST = 72
"""Hours of history needed before any hour is unusual."""
LEAST = 500
"""Cost above the usual from which an hour is unusual, in the currency's smallest unit."""
MAD_FACTOR_MILLI = 1483
"""A normal distribution's standard deviation over its median absolute deviation, in thousandths."""
MEAN_FACTOR_MILLI = 1253
"""The same over its mean absolute deviation."""
Z_MIN = 6


def hour_costs(charged: Iterable[MoneyCharge], first_ms: int, count: int, digits: int) -> list[int]:
    """Return the cost of each of `count` hours from `first_ms` on, in the smallest unit, the earliest first.

    Each is rounded separately. Charges before the first do not count.
    """
    inside: dict[Resource, list[int]] = {}
    whole: dict[Resource, list[int]] = {}
    for charge in charged:
        rate = charge.quantity * charge.micro_per_hour * charge.tier_milli * charge.factor_milli
        rate = -rate if charge.refund else rate
        parts = inside.setdefault(charge.resource, [0] * count)
        changes = whole.setdefault(charge.resource, [0] * (count + 1))
        start_ms = max(0, charge.start_ms - first_ms)
        end_ms = min(charge.end_ms - first_ms, count * HOUR_MS)
        if start_ms >= end_ms:
            continue
        first, last = start_ms // HOUR_MS, (end_ms - 1) // HOUR_MS
        if first == last:
            parts[first] += rate * (end_ms - start_ms)
            continue
        parts[first] += rate * ((first + 1) * HOUR_MS - start_ms)
        parts[last] += rate * (end_ms - last * HOUR_MS)
        changes[first + 1] += rate * HOUR_MS
        changes[last] -= rate * HOUR_MS
    exact = [Fraction(0)] * count
    for resource, parts in inside.items():
        unit = micro_denominator(resource) * 10 ** (6 - digits)
        for at, (part, between) in enumerate(zip(parts, accumulate(whole[resource]), strict=False)):
            exact[at] += Fraction(part + between, unit)
    return [half_up(amount) for amount in exact]


def unusual(cost: int, past: Sequence[int]) -> bool:
    """Return whether a cost is far above those before it: a robust z-score of 6, and twice their median."""
    usual = median_high(past)
    return cost >= max(1, 2 * usual) and cost - usual > Z_MIN * _deviation([abs(amount - usual) for amount in past])


def usual_hour(hours: Sequence[int]) -> tuple[Sequence[int], str] | None:
    """Return the hours that the present one is compared with, and in words what they are; None: too few are known.

    Args:
        hours: costs of the hours before the present one, the latest first.
    """
    at = [WEEK_HOURS * week + beside for week in range(1, 5) for beside in (-2, -1, 0)]
    alike = [hours[index] for index in at if index < len(hours)]
    if len(alike) >= ALIKE_LEAST:
        return alike, "at about this hour of the week"
    return (hours, "an hour") if len(hours) >= ALL_LEAST else None


def _deviation(distances: Sequence[int]) -> int:
    """Return how far amounts are from the usual, as a standard deviation.

    Where most of them do not differ at all (use on Mondays only) the median is 0: then the mean is taken.
    """
    median = median_high(distances) * MAD_FACTOR_MILLI // 1000
    return median or sum(distances) * MEAN_FACTOR_MILLI // (len(distances) * 1000)
