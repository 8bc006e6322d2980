"""The `billing` section of a cluster file: prices with their begin, terms, currency, time zone, invoices."""

import re
from collections.abc import Mapping
from typing import Any, cast, get_args

from msgspec.structs import replace

from penstock.core.config.reader import Reader
from penstock.core.model.amounts import parse_milli, parse_time_ms
from penstock.core.model.jobs import PRIORITY_CLASSES
from penstock.core.model.prices import (
    AtZero,
    Billing,
    Factor,
    Party,
    Price,
    Resource,
    Tariff,
    Terms,
    TierReading,
    Window,
)
from penstock.core.model.units import parse_duration_ms

TERMS = ("minimum_period", "tiers", "tier_reading", "factors")
FIELDS = (
    "currency", "digits", "time_zone", "prices", *TERMS, "later", "refund_lost", "at_zero", "invoices", "tax", "issuer"
)  # fmt: skip
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
RESOURCES: tuple[str, ...] = get_args(Resource)
READINGS: tuple[str, ...] = get_args(TierReading)
AT_ZERO: tuple[str, ...] = get_args(AtZero)
PREFIXES = {"prefix": "INV-", "credit_note_prefix": "CN-"}
MICRO = 1_000_000
ENTRIES_MAX = 10_000
MINIMUM_MAX_MS = 86_400_000
AMOUNT = "an amount below 10,000,000,000 such as 2.50, with at most six decimals"
_AMOUNT = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,6}))?")
_CURRENCY = re.compile(r"[A-Z]{3}")
_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-(?:([01][0-9]|2[0-3]):([0-5][0-9])|24:00)")
_ZONE = re.compile(r"[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+)*")


def read_billing(reader: Reader, raw: object) -> Billing:
    """Return how the cluster is billed; problems are collected by the reader."""
    if not isinstance(raw, Mapping):
        reader.wrong("", raw, "a mapping with " + ", ".join(FIELDS))
        return Billing()
    reader.unknown(raw, FIELDS)
    currency = raw.get("currency", "EUR")
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        reader.wrong("currency", currency, "three capital letters such as EUR (ISO 4217)")
        currency = "EUR"
    zone = raw.get("time_zone", "UTC")
    if not isinstance(zone, str) or not _ZONE.fullmatch(zone):
        reader.wrong("time_zone", zone, "a name such as Europe/Berlin (IANA)")
        zone = "UTC"
    terms = _terms(reader, raw, Terms())
    later = _later(reader, raw, terms)
    tariff = Tariff(
        tuple(_price(inner, entry) for inner, entry in _entries(reader, raw, "prices")),
        terms.tiers,
        terms.tier_reading,
        terms.factors,
        terms.minimum_ms,
        tuple(later),
    )
    _no_price_twice(reader, tariff.prices)
    if len({one.from_ms for one in later}) < len(later):
        reader.wrong("later", "two from the same time", "terms with different begins")
    digits = reader.integer("digits", raw.get("digits", 2), low=0, high=6, default=2)
    return _invoicing(reader, raw, Billing(tariff, currency, digits, zone))


def _terms(reader: Reader, raw: Mapping[str, Any], before: Terms, from_ms: int = 0) -> Terms:
    """Read terms; what is not said stays as it was before."""
    minimum_ms = before.minimum_ms
    if raw.get("minimum_period") is not None:
        minimum_ms = reader.quantity("minimum_period", raw["minimum_period"], parse_duration_ms, "60s")
        if minimum_ms > MINIMUM_MAX_MS:
            reader.wrong("minimum_period", raw["minimum_period"], "a day at most")
    reading = reader.word("tier_reading", raw.get("tier_reading", before.tier_reading), READINGS, "marginal")
    tiers = before.tiers if raw.get("tiers") is None else _tiers(reader, raw["tiers"])
    factors = before.factors
    if raw.get("factors") is not None:
        factors = tuple(_factor(inner, entry) for inner, entry in _entries(reader, raw, "factors"))
    return Terms(from_ms, tiers, cast("TierReading", reading), factors, minimum_ms)


def _later(reader: Reader, raw: Mapping[str, Any], before: Terms) -> list[Terms]:
    """Read terms that begin later, in the order of their begins: each goes on from the one before it."""
    entries = [(_begin(inner, entry), inner, entry) for inner, entry in _entries(reader, raw, "later")]
    found = []
    for from_ms, inner, entry in sorted(entries, key=lambda one: one[0]):
        before = _terms(inner, entry, before, from_ms)
        found.append(before)
    return found


def _begin(reader: Reader, raw: Mapping[str, Any]) -> int:
    reader.unknown(raw, ("from", *TERMS))
    from_ms = _from(reader, raw.get("from"))
    if not from_ms:
        reader.wrong("from", raw.get("from"), "when these terms begin, such as 2027-01-01T00:00+01:00")
    return from_ms or 1


def _invoicing(reader: Reader, raw: Mapping[str, Any], billing: Billing) -> Billing:
    invoices = Reader(reader.path("invoices"), reader.problems)
    said = _mapping(reader, "invoices", raw.get("invoices"), ("issue", "prefix", "credit_note_prefix"))
    tax = Reader(reader.path("tax"), reader.problems)
    taxed = _mapping(reader, "tax", raw.get("tax"), ("name", "rate"))
    issue = invoices.word("issue", said.get("issue", "automatic"), ("automatic", "manual"), "automatic")
    at_zero = reader.word("at_zero", raw.get("at_zero", "nothing"), AT_ZERO, "nothing")
    prefixes = [_prefix(invoices, name, said.get(name, word)) for name, word in PREFIXES.items()]
    if prefixes[0] == prefixes[1]:
        invoices.wrong("credit_note_prefix", prefixes[1], "another prefix than that of invoices")
    return replace(
        billing,
        refund_lost=reader.flag("refund_lost", raw.get("refund_lost", True), default=True),
        at_zero=cast("AtZero", at_zero),
        issue=cast("Any", issue),
        invoice_prefix=prefixes[0],
        credit_note_prefix=prefixes[1],
        tax_name=tax.text("name", taxed.get("name", "Tax"), "Tax") if taxed else "",
        tax_milli=_rate(tax, "rate", taxed.get("rate")) if taxed else 0,
        issuer=read_party(reader, "issuer", raw.get("issuer")),
    )


def _prefix(reader: Reader, field: str, value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9/_.-]{1,20}", value):
        reader.wrong(field, value, "1 to 20 letters, digits, '/', '_', '.' or '-'")
        return PREFIXES[field]
    return value


def read_party(reader: Reader, field: str, raw: object) -> Party:
    """Return who issues invoices, or whom they are for."""
    said = _mapping(reader, field, raw, ("name", "address", "tax_id", "note"))
    inner = Reader(reader.path(field), reader.problems)
    address = said.get("address") or []
    lines = address.splitlines() if isinstance(address, str) else address
    if not isinstance(lines, list) or len(lines) > 12 or not all(isinstance(line, str) for line in lines):
        inner.wrong("address", address, "up to 12 lines of text")
        lines = []
    texts = {name: str(said[name])[:1000] for name in ("name", "tax_id", "note") if said.get(name)}
    return Party(address=tuple(line[:200] for line in lines), **texts)


def _mapping(reader: Reader, field: str, raw: object, known: tuple[str, ...]) -> Mapping[str, Any]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        reader.wrong(field, raw, "a mapping with " + ", ".join(known))
        return {}
    Reader(reader.path(field), reader.problems).unknown(raw, known)
    return raw


def _entries(reader: Reader, raw: Mapping[str, Any], field: str) -> list[tuple[Reader, Mapping[str, Any]]]:
    value = raw.get(field) or []
    if not isinstance(value, list) or len(value) > ENTRIES_MAX:
        given = f"a list of {len(value)}" if isinstance(value, list) else value
        reader.wrong(field, given, f"a list of at most {ENTRIES_MAX} mappings")
        return []
    found = []
    for index, entry in enumerate(value):
        where = f"{field}[{index}]"
        if isinstance(entry, Mapping):
            found.append((Reader(reader.path(where), reader.problems), entry))
        else:
            reader.wrong(where, entry, "a mapping")
    return found


def _price(reader: Reader, raw: Mapping[str, Any]) -> Price:
    reader.unknown(raw, ("resource", "model", "per_hour", "from"))
    resource = reader.word("resource", raw.get("resource", "device"), RESOURCES, "device")
    model = raw.get("model", "")
    if model != "":
        model = reader.text("model", model)
        if resource != "device":
            reader.wrong("model", model, "nothing: only devices have models")
    from_ms = _from(reader, raw.get("from"))
    return Price(cast("Resource", resource), read_micro(reader, "per_hour", raw.get("per_hour")), from_ms, model)


def _from(reader: Reader, value: object) -> int:
    if value is None:
        return 0
    try:
        return parse_time_ms(value)
    except ValueError:
        reader.wrong("from", value, "a time with its offset such as 2026-03-01T00:00+01:00, or unix seconds")
        return 0


def read_micro(reader: Reader, field: str, value: object) -> int:
    """Read an amount of money exactly: a number as it is written, in millionths of the currency."""
    written = repr(value) if isinstance(value, float) else str(value) if _small(value) else value
    match = _AMOUNT.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        reader.wrong(field, value if _small(value) or isinstance(value, float | str) else "a huge number", AMOUNT)
        return 0
    return int(match[1]) * MICRO + int((match[2] or "").ljust(6, "0"))


def read_amount(reader: Reader, field: str, value: object, digits: int) -> int:
    """Read an amount of money in the currency's smallest unit."""
    unit: int = 10 ** (6 - digits)
    amount, rest = divmod(read_micro(reader, field, value), unit)
    if rest:
        reader.wrong(field, value, f"an amount with at most {digits} decimals")
    return amount


def _small(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**10


def _tiers(reader: Reader, raw: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(raw, Mapping):
        reader.wrong("tiers", raw, "a mapping of hours to rates such as {100: 0.9, 500: 0.8}")
        return ()
    found = []
    for hours, rate in raw.items():
        hours = int(hours) if isinstance(hours, str) and hours.isascii() and hours.isdigit() else hours
        inner = Reader(reader.path("tiers"), reader.problems)
        from_hours = inner.integer(str(hours), hours, low=1, high=10**9, default=1)
        found.append((from_hours, _rate(inner, str(hours), rate)))
    return tuple(sorted(found))


def _factor(reader: Reader, raw: Mapping[str, Any]) -> Factor:
    reader.unknown(raw, ("priority", "preemptible", "hours", "days", "factor"))
    priority = raw.get("priority", 0)
    priority = PRIORITY_CLASSES.get(priority, priority) if isinstance(priority, str) else priority
    preemptible = raw.get("preemptible")
    if preemptible is not None:
        preemptible = reader.flag("preemptible", preemptible, default=True)
    return Factor(
        _rate(reader, "factor", raw.get("factor")),
        reader.integer("priority", priority, low=0, high=2**31, default=0),
        preemptible,
        _windows(reader, raw),
    )


def _windows(reader: Reader, raw: Mapping[str, Any]) -> tuple[Window, ...]:
    """Read at which hours of which days a factor holds, in the time zone of the bills."""
    hours, days = raw.get("hours"), raw.get("days")
    if hours is None and days is None:
        return ()
    listed = hours if isinstance(hours, list) else ["00:00-24:00" if hours is None else hours]
    named = DAYS if days is None else days
    if not isinstance(named, list | tuple) or not named or len(listed) > ENTRIES_MAX:
        reader.wrong("days", days, "a list of days such as [sat, sun]")
        return ()
    numbers = {DAYS.index(reader.word("days", str(day).lower()[:3], DAYS, "mon")) for day in named}
    found = []
    for text in listed:
        match = _HOURS.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            reader.wrong("hours", text, "hours of the day in quotes such as '22:00-06:00'")
            continue
        until = int(match[3]) * 60 + int(match[4]) if match[3] else 1440
        found.append(Window(int(match[1]) * 60 + int(match[2]), until, tuple(sorted(numbers))))
    return tuple(found)


def _rate(reader: Reader, field: str, value: object) -> int:
    try:
        milli = parse_milli(value)
    except ValueError:
        milli = -1
    if not 0 <= milli <= 1_000_000:
        reader.wrong(field, value, "a number from 0 in steps of 0.001, such as 0.9")
        return 1000
    return milli


def _no_price_twice(reader: Reader, prices: tuple[Price, ...]) -> None:
    seen: set[tuple[str, str, int]] = set()
    for index, price in enumerate(prices):
        key = (price.resource, price.model, price.from_ms)
        if key in seen:
            reader.wrong(f"prices[{index}]", price.model or price.resource, "one price for the same from the same time")
        seen.add(key)
