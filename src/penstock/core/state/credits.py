"""Credits of one account: spent in order of expiry, and given back to their sources.

Refunds go back in the opposite order: first to payments in money, the longest-lasting first; then to grants.
Logs are folded by these rules: their effect on an event that is written must not change.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from penstock.core.model.accounts import Account, CreditPart, Lot, Month, Settled
from penstock.core.model.invoices import Invoice

NEVER_MS = 2**62
Lots = tuple[Lot, ...]
Parts = tuple[CreditPart, ...]
_Name = tuple[str, str, int, int]


def spend(lots: Lots, amount: int, at_ms: int, *, money_only: bool = False) -> tuple[Lots, Parts]:
    """Return the credits after paying `amount` from those that are good at `at_ms`, and the amount that each paid.

    A credit that expires at that very moment is still good for earlier use; a credit added later is not.
    """
    kept, paid = [], []
    for lot in lots:
        good = lot.added_ms <= at_ms and (not lot.expires_ms or lot.expires_ms >= at_ms)
        take = min(lot.left, amount) if good and not (money_only and lot.kind == "grant") else 0
        amount -= take
        if take:
            paid.append(CreditPart(lot.reference, take, lot.kind, lot.expires_ms, lot.added_ms))
        if lot.left > take or lot.expires_ms:  # a credit with an expiry leaves at that time, by an event
            kept.append(replace(lot, left=lot.left - take) if take else lot)
    return tuple(kept), tuple(paid)


def added(account: Account, parts: Iterable[CreditPart]) -> Account:
    """Return the account with credits added or given back; payments fill a debt first."""
    debt, lots = account.debt, {_name(lot): lot for lot in account.lots}
    for part in parts:
        filled = min(debt, part.amount) if part.kind == "payment" else 0
        debt, left = debt - filled, part.amount - filled
        had = lots.get(_name(part))
        if had is not None:
            lots[_name(part)] = replace(had, left=had.left + left)
        elif left or part.expires_ms:  # a credit with an expiry leaves at that time, by an event
            lots[_name(part)] = Lot(part.reference, left, part.kind, part.expires_ms, part.added_ms)
    found = tuple(sorted(lots.values(), key=lambda lot: lot.expires_ms or NEVER_MS))
    return replace(account, lots=found, debt=debt)


def taken(account: Account, reversed_: CreditPart) -> Account:
    """Return the account without a credit: its spent part is taken from other payments, and the rest is a debt."""
    missing, lots = reversed_.amount, {_name(lot): lot for lot in account.lots}
    others = [lot for lot in account.lots if lot.kind == "payment" and reversed_.kind == "payment"]
    first = [lot for lot in account.lots if _name(lot) == _name(reversed_)]
    for lot in (*first, *reversed(others)):
        had = lots.pop(_name(lot), None)
        if had is not None:
            take = min(missing, had.left)
            missing -= take
            if had.left > take or (had.expires_ms and lot not in first):
                lots[_name(lot)] = replace(had, left=had.left - take)
    found = tuple(lots[_name(lot)] for lot in account.lots if _name(lot) in lots)
    return replace(account, lots=found, debt=account.debt + missing)


def _name(one: Lot | CreditPart) -> _Name:
    return one.reference, one.kind, one.expires_ms, one.added_ms


def summed(parts: Iterable[CreditPart]) -> Parts:
    """Return parts with one for each credit, in the order in which they came first."""
    found: dict[_Name, CreditPart] = {}
    for part in parts:
        had = found.get(_name(part))
        found[_name(part)] = replace(part, amount=part.amount + had.amount) if had is not None else part
    return tuple(found.values())


def undone(parts: Parts, amount: int) -> tuple[Parts, Parts]:
    """Return the parts that credits still pay when `amount` is given back, and the parts that each gets back."""
    left, back = {_name(part): part for part in parts}, []
    order = sorted(parts, key=lambda one: (one.kind == "grant", -(one.expires_ms or NEVER_MS)))
    for part in order:
        take = min(amount, part.amount)
        amount -= take
        if take:
            back.append(replace(part, amount=take))
            left[_name(part)] = replace(part, amount=part.amount - take)
    return tuple(part for part in left.values() if part.amount), tuple(back)


def total(parts: Iterable[CreditPart], kind: str = "") -> int:
    """Return the sum of parts, with `kind` only of that kind."""
    return sum(part.amount for part in parts if kind in ("", part.kind))


def at_close(account: Account, month: Month, amount: int, at_ms: int) -> tuple[Lots, Parts]:
    """Return the credits after paying `amount` of an invoice, and the parts that paid its month, the tax included.

    Any credit pays for use that is not paid yet; beyond it, for the tax, only payments in money do.
    """
    lots, parts = spend(account.lots, min(amount, max(0, month.posted - month.from_credit)), at_ms)
    lots, tax = spend(lots, amount - total(parts), at_ms, money_only=True)
    return lots, summed((*month.paid, *parts, *tax))


def settled_by(issued: Invoice, parts: Parts) -> Settled:
    """Return how an invoice was paid: of the parts only those that matter for a refund."""
    kept = tuple(part for part in parts if part.kind == "grant" or part.expires_ms)
    plain = max(0, issued.total - total(kept, "payment"))
    return Settled(issued.number, issued.net - issued.granted, plain, kept)


class GivenBack(NamedTuple):
    """A refund of invoices: the parts given back, and how the invoices stay paid."""

    settled: tuple[Settled, ...]
    grants: Parts
    payments: Parts
    """That expire."""


def granted_of(settled: Sequence[Settled], net: int) -> int:
    """Return how much of a net amount goes back to grants: of the last invoice first, and of each its taxed part."""
    found = 0
    for one in reversed(settled):
        net -= min(net, one.taxed)
        grants = min(net, total(one.parts, "grant"))
        found, net = found + grants, net - grants
    return found


def given_back(settled: Sequence[Settled], *, taxed: int, granted: int, money: int) -> GivenBack:
    """Return what giving back amounts of invoices changes, the last invoice first.

    Args:
        taxed: of the net amount, the part that grants did not pay.
        granted: of the net amount, to grants.
        money: of the total, with its tax.
    """
    found, grants, payments = [], list[CreditPart](), list[CreditPart]()
    for one in reversed(settled):
        plain = min(money, one.plain)
        of_grants = tuple(part for part in one.parts if part.kind == "grant")
        of_payments = tuple(part for part in one.parts if part.kind == "payment")
        left, back = undone(of_grants, granted)
        left_paid, back_paid = undone(of_payments, money - plain)
        grants += back
        payments += back_paid
        found.append(Settled(one.number, max(0, one.taxed - taxed), one.plain - plain, (*left, *left_paid)))
        taxed -= min(taxed, one.taxed)
        granted -= total(back)
        money -= plain + total(back_paid)
    return GivenBack(tuple(reversed(found)), summed(grants), summed(payments))
