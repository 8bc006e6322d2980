"""Bills: charges summed into lines, and rounded so that the lines add up to the total.

The total is the exact sum, rounded once (half up). Lines are cut to whole units, and the difference to the total goes
to the lines with the largest remainders (Hamilton): lines always add up to the total, and ten thousand jobs of a third
of a cent do not cost nothing.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from penstock.core.ledger.pricing import MoneyCharge, micro_denominator
from penstock.core.model.answers import Bill
from penstock.core.model.ids import JobId, QueueName, TenantName, UserName
from penstock.core.model.invoices import Invoice, InvoiceLine, LineKind
from penstock.core.model.prices import Billing, Resource

LineKey = tuple[QueueName, UserName, JobId, str, LineKind, Resource, str, int, int, int]


def bill(tenant: TenantName, billing: Billing, charges: Iterable[MoneyCharge], from_ms: int, until_ms: int) -> Bill:
    """Return the bill of one tenant; lines by queue, user, job, resource, price."""
    unit = 10 ** (6 - billing.digits)  # millionths in the smallest unit
    sums: dict[LineKey, list[int]] = {}
    for one in charges:
        session = one.session
        kind: LineKind = "refund" if one.refund else "use"
        job = (session.queue, session.user, session.job_id, session.job_name)
        key = (*job, kind, one.resource, one.model, one.micro_per_hour, one.tier_milli, one.factor_milli)
        found = sums.setdefault(key, [0, 0, 0])
        found[0] += one.quantity * (one.end_ms - one.start_ms)
        found[1] += one.full * 1000 * 1000
        found[2] += one.parts
    keys = sorted(sums)
    parts = {key: micro_denominator(key[5]) * unit for key in keys}
    amounts = apportioned([Fraction(sums[key][2], parts[key]) for key in keys])
    lines = []
    for key, amount in zip(keys, amounts, strict=True):
        queue, user, job_id, name, kind, resource, model, micro, tier, factor = key
        quantity_ms, full, _ = sums[key]
        rounded = half_up(Fraction(full, parts[key]))
        lines.append(
            InvoiceLine(
                queue, user, job_id, name, resource, model, quantity_ms, micro, tier, factor, rounded, amount, kind
            )
        )
    return Bill(tenant, billing.currency, billing.digits, from_ms, until_ms, tuple(lines), sum(amounts))


def apportioned(exact: Sequence[Fraction]) -> list[int]:
    """Return whole numbers near `exact`, none of them off by one or more, that add up to its rounded sum."""
    whole = [value.numerator // value.denominator for value in exact]
    missing = half_up(sum(exact, Fraction(0))) - sum(whole)
    for index in sorted(range(len(exact)), key=lambda i: (whole[i] - exact[i], i))[:missing]:
        whole[index] += 1
    return whole


def wrong_sum(invoice: Invoice) -> str:
    """Return which sum of an invoice is wrong; empty: none. An invoice with a wrong sum is neither issued nor printed.

    The net amount of a credit note without lines (its reason explains it) is not checked against lines.
    """
    taxed = invoice.net - invoice.granted
    pairs = [
        ("total", invoice.total, "net less grants, and tax,", taxed + invoice.tax),
        ("due", invoice.due, "total less credit", invoice.total - invoice.from_credit),
    ]
    if invoice.lines or invoice.kind == "invoice":
        pairs.insert(0, ("net", invoice.net, "its lines", sum(line.amount for line in invoice.lines)))
    return next((f"{field} is {is_:,}, and {what} come to {be:,}" for field, is_, what, be in pairs if is_ != be), "")


def half_up(value: Fraction) -> int:
    """Return the nearest whole number; of two that are equally near the higher."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)
