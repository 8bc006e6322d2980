"""Bills: charges summed into lines, and rounded so that no cent is lost or made.

The total is the exact sum, rounded once (half up). Lines are cut to whole units, and what is missing to the total goes
to those that lost most by that (largest remainder, Hamilton): lines always add up to the total, and ten thousand jobs
of a third of a cent do not cost nothing.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

import msgspec

from penstock.core.ledger.pricing import Charge, micro_denominator
from penstock.core.model.ids import JobId, QueueName, TenantName, UserName
from penstock.core.model.prices import Billing, Resource

LineKey = tuple[QueueName, UserName, JobId, str, Resource, str, int, int, int]


class Line(msgspec.Struct, frozen=True):
    """What one job cost of one resource at one price, tier and factor."""

    queue: QueueName
    user: UserName
    job_id: JobId
    job_name: str
    resource: Resource
    model: str
    quantity_ms: int
    """Thousandths of devices or CPUs, or bytes of memory, x milliseconds."""
    micro_per_hour: int
    tier_milli: int
    factor_milli: int
    full: int
    """What it would cost without tier and factor, in the smallest unit of the currency, rounded half up."""
    amount: int
    """What it costs, in the smallest unit of the currency."""


class Bill(msgspec.Struct, frozen=True):
    """What a tenant owes for [from_ms, until_ms)."""

    tenant: TenantName
    currency: str
    digits: int
    from_ms: int
    until_ms: int
    lines: tuple[Line, ...]
    total: int
    """In the smallest unit of the currency: the sum of all lines."""


def bill(tenant: TenantName, billing: Billing, charges: Iterable[Charge], from_ms: int, until_ms: int) -> Bill:
    """Return the bill of one tenant; lines by queue, user, job, resource, price."""
    unit = 10 ** (6 - billing.digits)  # millionths in the smallest unit
    sums: dict[LineKey, list[int]] = {}
    for one in charges:
        session = one.session
        job = (session.queue, session.user, session.job_id, session.job_name)
        key = (*job, one.resource, one.model, one.micro_per_hour, one.tier_milli, one.factor_milli)
        found = sums.setdefault(key, [0, 0, 0])
        found[0] += one.quantity * (one.end_ms - one.start_ms)
        found[1] += one.full * 1000 * 1000
        found[2] += one.parts
    keys = sorted(sums)
    exact = [Fraction(sums[key][2], micro_denominator(key[4]) * unit) for key in keys]
    amounts = _apportioned(exact)
    lines = []
    for key, amount in zip(keys, amounts, strict=True):
        quantity_ms, full, _ = sums[key]
        rounded = _half_up(Fraction(full, micro_denominator(key[4]) * unit))
        lines.append(Line(*key[:6], quantity_ms, *key[6:], rounded, amount))
    return Bill(tenant, billing.currency, billing.digits, from_ms, until_ms, tuple(lines), sum(amounts))


def _apportioned(exact: Sequence[Fraction]) -> list[int]:
    """Return whole numbers near `exact`, none of them off by one or more, that add up to its rounded sum."""
    whole = [value.numerator // value.denominator for value in exact]
    missing = _half_up(sum(exact, Fraction(0))) - sum(whole)
    for index in sorted(range(len(exact)), key=lambda i: (whole[i] - exact[i], i))[:missing]:
        whole[index] += 1
    return whole


def _half_up(value: Fraction) -> int:
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def money(amount: int, digits: int) -> str:
    """Return an amount of the smallest unit as people write it: 123456 with 2 digits is `1,234.56`."""
    sign, amount = "-" if amount < 0 else "", abs(amount)
    whole, part = divmod(amount, 10**digits)
    return f"{sign}{whole:,}.{part:0{digits}d}" if digits else f"{sign}{whole:,}"
