"""Limits on price changes in a new configuration: prices and terms that have begun stay as they are."""

from collections.abc import Iterator

from penstock.core.model.errors import Problem
from penstock.core.model.prices import Billing, Price, Terms
from penstock.core.model.quantities import format_time

DAY_MS = 86_400_000


def past_problems(before: Billing, after: Billing, now_ms: int) -> list[Problem]:
    """Return changes that would alter the cost of past use. The first prices and their terms may begin at any time."""
    begun = {price for price in before.tariff.prices if price.from_ms <= now_ms}
    if not begun:
        return []
    return [*_prices(begun, after, now_ms), *_terms(before, after, now_ms), *_units(before, after)]


def _prices(begun: set[Price], after: Billing, now_ms: int) -> Iterator[Problem]:
    changed = begun.symmetric_difference(price for price in after.tariff.prices if price.from_ms <= now_ms)
    for price in sorted(changed, key=lambda p: (p.resource, p.model, p.from_ms, p.micro_per_hour)):
        name = price.model or price.resource
        what = f"the price for {name} from {format_time(price.from_ms)} on has begun"
        hint = f"declare another price from a later time on, such as {_tomorrow(now_ms)}"
        yield _problem("past_price", "billing.prices", what, name, hint)


def _terms(before: Billing, after: Billing, now_ms: int) -> Iterator[Problem]:
    had = [terms for terms in before.tariff.terms if terms.from_ms <= now_ms]
    has = [terms for terms in after.tariff.terms if terms.from_ms <= now_ms]
    if had == has:
        return
    old, new = next(((a, b) for a, b in zip(had, has, strict=False) if a != b), (had[-1], has[-1]))
    names = [name for name in Terms.__struct_fields__ if getattr(old, name) != getattr(new, name)]
    named = ", ".join(name.removesuffix("_ms") for name in names) or "what holds by now"
    hint = f"put other terms under billing.later, from a later time on, such as {_tomorrow(now_ms)}"
    yield _problem("past_terms", "billing.later" if old.from_ms else "billing", f"{named} has begun", named, hint)


def _units(before: Billing, after: Billing) -> Iterator[Problem]:
    for field in ("currency", "digits", "time_zone", "refund_lost"):
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            what = f"{field} is {old} since the first price began"
            yield _problem("past_unit", f"billing.{field}", what, str(new), f"leave it at {old}")


def _tomorrow(now_ms: int) -> str:
    return format_time(now_ms // DAY_MS * DAY_MS + DAY_MS)


def _problem(code: str, field: str, what: str, value: str, hint: str) -> Problem:
    return Problem(code, field, f"{field}: {what}: what it was cannot change", value, hint)
