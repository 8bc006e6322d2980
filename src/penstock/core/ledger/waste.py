"""The waste ledger: devices held and not used, by holder and cause, in device time and in money at their price then.

Each moment of a hold is used, idle for a named cause, or not known (`activity.py`): the three are never mixed, and add
up to the hold. Money is that of the bill for the same time, of all resources, not devices alone: to the smallest unit
the parts of all rows add up to it. Billed time without a hold is apart: memory that a suspended attempt keeps, and the
addition of a minimum period.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from penstock.core.ledger.activity import Activity
from penstock.core.ledger.bill import apportioned
from penstock.core.ledger.consumption import Dimension, sortable
from penstock.core.ledger.pricing import MoneyCharge, micro_denominator
from penstock.core.ledger.sessions import UsageInterval
from penstock.core.ledger.settlement import BilledUse, Calendar, charges_for
from penstock.core.model.answers import WasteRow
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.prices import Billing, Resource

KINDS = ("used", "data", "hang", "unused", "unknown", "not_held")
_SessionKey = tuple[JobId, AttemptNumber, Rank, int]
_RowKey = tuple[object, ...]


def waste_of(
    held: BilledUse,
    activity: Activity,
    billing: Billing,
    calendar: Calendar,
    by: Sequence[Dimension],
    from_ms: int,
    until_ms: int,
) -> list[WasteRow]:
    """Return one tenant's use, idle time and their cost in [from_ms, until_ms), by `by` and in the order of that.

    Args:
        held, calendar: as for the tenant's bill of the same span (`settlement.bill_for`).
    """
    rows: dict[_RowKey, WasteRow] = {}
    ends = {_key(session): session.end_ms or until_ms for session in held.sessions}
    for session in held.sessions:
        start_ms, end_ms = max(session.start_ms, from_ms), min(ends[_key(session)], until_ms)
        if start_ms < end_ms and session.amounts.device_milli:
            row, milli = _row(rows, session, by), session.amounts.device_milli
            row.device_milli_ms += milli * (end_ms - start_ms)
            parts = _split(activity, session, start_ms, end_ms, end_ms)
            left = milli * (end_ms - start_ms)
            for kind in KINDS[1:-1]:
                part = milli * parts[kind] // 1000
                setattr(row, f"{kind}_milli_ms", getattr(row, f"{kind}_milli_ms") + part)
                left -= part
            row.used_milli_ms += left
    _add_costs(rows, charges_for(held, billing, calendar, from_ms, until_ms), ends, activity, billing, by)
    return [rows[key] for key in sorted(rows, key=lambda key: tuple(map(sortable, key)))]


def _add_costs(
    rows: dict[_RowKey, WasteRow],
    charged: Iterable[MoneyCharge],
    ends: dict[_SessionKey, int],
    activity: Activity,
    billing: Billing,
    by: Sequence[Dimension],
) -> None:
    sums: dict[tuple[_RowKey, str], dict[Resource, int]] = {}
    for charge in charged:
        session = charge.session
        key = _names(session, by)
        _row(rows, session, by)
        rate = charge.quantity * charge.micro_per_hour * charge.tier_milli * charge.factor_milli
        rate = -rate if charge.refund else rate
        parts = _split(activity, session, charge.start_ms, charge.end_ms, ends[_key(session)])
        for kind, milli in parts.items():
            found = sums.setdefault((key, kind), {})
            found[charge.resource] = found.get(charge.resource, 0) + rate * milli
    unit = 1000 * 10 ** (6 - billing.digits)
    keys = sorted(sums, key=lambda entry: (tuple(map(sortable, entry[0])), entry[1]))
    exact = [sum((Fraction(n, micro_denominator(r) * unit) for r, n in sums[key].items()), Fraction(0)) for key in keys]
    for (key, kind), amount in zip(keys, apportioned(exact), strict=True):
        row = rows[key]
        row.cost += amount
        setattr(row, f"{kind}_cost", getattr(row, f"{kind}_cost") + amount)


def _split(activity: Activity, session: UsageInterval, start_ms: int, end_ms: int, left_ms: int) -> dict[str, int]:
    """Return the billed time [start_ms, end_ms) of a session in thousandths of ms, by kind.

    Args:
        left_ms: it was held until then.
    """
    held_ms = 0 if session.suspended else max(0, min(end_ms, left_ms) - start_ms)
    found = dict.fromkeys(KINDS, 0)
    found["not_held"] = 1000 * (end_ms - start_ms - held_ms)
    known_ms = 0
    for piece in activity.between((session.job_id, session.attempt), start_ms, start_ms + held_ms):
        length_ms = piece.until_ms - piece.from_ms
        known_ms += length_ms
        found[piece.cause] += length_ms * piece.idle_milli
        found["used"] += length_ms * (1000 - piece.idle_milli)
    found["unknown"] = 1000 * (held_ms - known_ms)
    return found


def _row(rows: dict[_RowKey, WasteRow], session: UsageInterval, by: Sequence[Dimension]) -> WasteRow:
    key = _names(session, by)
    found = rows.get(key)
    if found is None:
        names: dict[str, Any] = dict(zip(by, key, strict=True))
        found = rows[key] = WasteRow(**names)
    return found


def _names(session: UsageInterval, by: Sequence[Dimension]) -> _RowKey:
    return tuple(session.job_id if name == "job" else getattr(session, name) for name in by)


def _key(session: UsageInterval) -> _SessionKey:
    return session.job_id, session.attempt, session.rank, session.start_ms
