"""What a tenant's entry in a cluster file says of money: budgets, credit limit, whom invoices are for."""

from collections.abc import Mapping
from typing import Any, cast, get_args

from penstock.core.config.billing import AT_ZERO, read_amount, read_party
from penstock.core.config.queues import read_alerts, read_quota
from penstock.core.config.reader import Reader
from penstock.core.model.amounts import parse_time_ms
from penstock.core.model.cluster import QUOTA_ALERTS, Tenant
from penstock.core.model.ids import TenantName
from penstock.core.model.prices import AtZero, Budget, BudgetPeriod

FIELDS = ("name", "description", "max", "device_hours", "budgets", "credit_limit", "at_zero", "bill_to", "alerts")
PERIODS: tuple[str, ...] = get_args(BudgetPeriod)
BUDGETS_MAX = 20


def read_tenant(reader: Reader, raw: Mapping[str, Any], description: str, digits: int) -> Tenant:
    """Return one tenant.

    Args:
        digits: of the currency's smallest unit.
    """
    reader.unknown(raw, FIELDS)
    at_zero = raw.get("at_zero")
    return Tenant(
        TenantName(raw["name"]),
        description,
        max=read_quota(reader, "max", raw.get("max")) or (),
        device_hours_max=reader.integer("device_hours", raw.get("device_hours", 0), low=0, high=10**9, default=0),
        budgets=_budgets(reader, raw.get("budgets") or [], digits),
        credit_limit=read_amount(reader, "credit_limit", raw.get("credit_limit", 0), digits),
        at_zero=None if at_zero is None else cast("AtZero", reader.word("at_zero", at_zero, AT_ZERO, "nothing")),
        bill_to=read_party(reader, "bill_to", raw.get("bill_to")),
        alerts=read_alerts(reader, raw.get("alerts", list(QUOTA_ALERTS))),
    )


def _budgets(reader: Reader, value: object, digits: int) -> tuple[Budget, ...]:
    if not isinstance(value, list) or len(value) > BUDGETS_MAX or not all(isinstance(e, Mapping) for e in value):
        reader.wrong("budgets", value, f"a list of at most {BUDGETS_MAX} mappings such as {{amount: 5000}}")
        return ()
    found = [_budget(Reader(reader.path(f"budgets[{i}]"), reader.problems), e, digits) for i, e in enumerate(value)]
    names = [budget.name for budget in found]
    if len(set(names)) < len(names):
        reader.wrong("budgets", ", ".join(names), "budgets with different names")
    return tuple(found)


def _budget(reader: Reader, raw: Mapping[str, Any], digits: int) -> Budget:
    reader.unknown(raw, ("name", "amount", "period", "from", "until", "hard", "alerts"))
    once = raw.get("from") is not None or raw.get("until") is not None
    period = reader.word("period", raw.get("period", "once" if once else "month"), PERIODS, "month")
    if once != (period == "once"):
        reader.wrong("period", period, "once, with from and until, or a period without them")
    from_ms, until_ms = (_day(reader, name, raw.get(name)) for name in ("from", "until")) if once else (0, 0)
    if once and until_ms <= from_ms:
        reader.wrong("until", raw.get("until"), "a time later than from")
    amount = read_amount(reader, "amount", raw.get("amount"), digits)
    if not amount:
        reader.wrong("amount", raw.get("amount"), "an amount above 0")
    return Budget(
        reader.text("name", raw.get("name", period), period),
        amount,
        cast("BudgetPeriod", period),
        from_ms,
        until_ms,
        reader.flag("hard", raw.get("hard", False), default=False),
        read_alerts(reader, raw.get("alerts", [80, 95, 100])),
    )


def _day(reader: Reader, field: str, value: object) -> int:
    try:
        return parse_time_ms(value)
    except ValueError:
        reader.wrong(field, value, "a time with its offset such as 2026-03-01T00:00+01:00, or unix seconds")
        return 0
