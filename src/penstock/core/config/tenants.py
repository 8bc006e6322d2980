"""The tenants of a cluster file: maxima, budgets, credit limit, customer on invoices."""

from typing import get_args

from penstock.core.config.billing import AT_ZERO, PARTY, money
from penstock.core.config.fields import NAME, Section, Values, flag, integer, note, section, sections, text, time, word
from penstock.core.config.queues import alerts, quota
from penstock.core.config.reader import Reader
from penstock.core.model.cluster import Tenant
from penstock.core.model.prices import Budget, BudgetPeriod
from penstock.core.model.quantities import format_time

PERIODS: tuple[str, ...] = get_args(BudgetPeriod)
BUDGETS_MAX = 20


class _BudgetSection(Section[Budget]):
    """A budget whose period and name follow from whether it has a begin and an end."""

    def build(self, reader: Reader, values: Values) -> Budget:
        once = bool(values["from_ms"] or values["until_ms"])
        period = values["period"] or ("once" if once else "month")
        return Budget(**{**values, "period": period, "name": values["name"] or period})


def _check_budget(reader: Reader, budget: Budget) -> None:
    once = bool(budget.from_ms or budget.until_ms)
    if once != (budget.period == "once"):
        reader.wrong("period", budget.period, "once, with from and until, or a period without them")
    if once and budget.until_ms <= budget.from_ms:
        reader.wrong("until", format_time(budget.until_ms), "a time later than from")


def tenant_section(digits: int) -> Section[Tenant]:
    """Return the fields of a tenant.

    Args:
        digits: of the currency's smallest unit.
    """
    budget = _BudgetSection(
        Budget,
        {
            "name": text("name (the period)"),
            "amount": money("amount of money for each period", digits, positive=True),
            "period": word("period after which it begins anew; `once`: from `from` until `until`", PERIODS, "month"),
            "from": time("begin", at="from_ms"),
            "until": time("end", at="until_ms"),
            "hard": flag("no starts of the tenant once it is spent, until the period ends; else alerts only"),
            "alerts": alerts("percentages that raise an alert"),
        },
        _check_budget,
        {"name": "", "period": ""},
    )
    fields = {
        "name": NAME,
        "description": note("description"),
        "max": quota("maximum for all its jobs together, in any queue"),
        "device_hours": integer("maximum of device-hours in a month; 0: none", 0, 10**9, at="device_hours_max"),
        "budgets": sections("budgets", budget, BUDGETS_MAX),
        "credit_limit": money("credit: how far below zero its balance may go before `at_zero` holds", digits),
        "at_zero": word("consequence of used up credit (`billing.at_zero`)", AT_ZERO),
        "bill_to": section("recipient of its invoices", PARTY),
        "alerts": alerts("percentages of its maxima and device-hours that raise an alert"),
    }
    return Section(Tenant, fields, _check_tenant)


def _check_tenant(reader: Reader, tenant: Tenant) -> None:
    names = [budget.name for budget in tenant.budgets]
    if len(set(names)) < len(names):
        reader.wrong("budgets", ", ".join(names), "budgets with different names")
