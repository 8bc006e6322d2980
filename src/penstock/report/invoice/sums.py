"""Sums of an invoice's lines: by queue and user, by resource, and the steps from list prices to the net amount."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.core.model.invoices import Invoice, InvoiceLine
from penstock.core.model.prices import Resource

USERS_MAX = 8
"""Users in the summary, those with the largest amounts; the others are summed up in one row."""
_UNCHANGED = 1000 * 1000
_ORDER: tuple[Resource, ...] = ("device", "cpu", "memory")


class Group(NamedTuple):
    """Lines of one user in one queue."""

    user: str
    lines: tuple[InvoiceLine, ...]
    amount: int


class QueueGroup(NamedTuple):
    queue: str
    users: tuple[Group, ...]
    amount: int


class TaxShare(NamedTuple):
    """Sum of a group of lines."""

    resource: Resource
    model: str
    user: str
    quantity_ms: int
    amount: int
    permille: int
    """Of the largest share beside it, from 0 to 1000; 0 for an amount of the other sign. For a bar."""


class SumSteps(NamedTuple):
    """The steps to the net amount: list - saved + surcharges + rounding + refunds."""

    list: int
    """Usage at list prices."""
    saved: int
    """By lines whose tier and factor lower the price."""
    surcharges: int
    """By lines whose tier and factor raise it."""
    rounding: int
    """Difference from distributing the rounded sum over lines at list price."""
    refunds: int
    """For time that failed nodes took; negative."""


def by_queue(lines: Iterable[InvoiceLine]) -> tuple[QueueGroup, ...]:
    """Return all lines by queue and user, each in the order of its name; the lines of a user stay in theirs."""
    found: dict[str, dict[str, list[InvoiceLine]]] = {}
    for line in lines:
        found.setdefault(line.queue, {}).setdefault(line.user, []).append(line)
    queues = []
    for queue, users in sorted(found.items()):
        groups = tuple(Group(user, tuple(held), _amount(held)) for user, held in sorted(users.items()))
        queues.append(QueueGroup(queue, groups, sum(group.amount for group in groups)))
    return tuple(queues)


def by_resource(lines: Iterable[InvoiceLine]) -> tuple[TaxShare, ...]:
    """Return the sum of each resource and model: devices first, then by amount, largest first."""
    shares = _shares(lines, lambda line: (line.resource, line.model, ""))
    return tuple(sorted(shares, key=lambda s: (_ORDER.index(s.resource), -s.amount, s.model)))


def by_user(lines: Iterable[InvoiceLine]) -> tuple[tuple[TaxShare, ...], tuple[int, int]]:
    """Return the sum of each user, largest first, and of those beyond USERS_MAX their number and sum."""
    shares = sorted(_shares(lines, lambda line: ("device", "", line.user)), key=lambda s: (-s.amount, s.user))
    shown = len(shares) if len(shares) <= USERS_MAX + 1 else USERS_MAX
    return tuple(shares[:shown]), (len(shares) - shown, sum(share.amount for share in shares[shown:]))


def steps(invoice: Invoice) -> SumSteps:
    """Return the steps from list prices to the net amount."""
    used = [line for line in invoice.lines if line.kind == "use"]
    gaps = [(line.tier_milli * line.factor_milli, line.full - line.amount) for line in used]
    return SumSteps(
        list=sum(line.full for line in used),
        saved=sum(gap for rate, gap in gaps if rate < _UNCHANGED),
        surcharges=-sum(gap for rate, gap in gaps if rate > _UNCHANGED),
        rounding=-sum(gap for rate, gap in gaps if rate == _UNCHANGED),
        refunds=_amount(line for line in invoice.lines if line.kind == "refund"),
    )


def _shares(
    lines: Iterable[InvoiceLine], key: Callable[[InvoiceLine], tuple[Resource, str, str]]
) -> Sequence[TaxShare]:
    found: dict[tuple[Resource, str, str], list[InvoiceLine]] = {}
    for line in lines:
        found.setdefault(key(line), []).append(line)
    most = max((_amount(held) for held in found.values()), key=abs, default=0) or 1
    shares = []
    for (resource, model, user), held in found.items():
        amount = _amount(held)
        quantity_ms = sum(line.quantity_ms for line in held)
        shares.append(TaxShare(resource, model, user, quantity_ms, amount, max(0, amount * 1000 // most)))
    return shares


def _amount(lines: Iterable[InvoiceLine]) -> int:
    return sum(line.amount for line in lines)
