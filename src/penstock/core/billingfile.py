"""The `billing` section of a cluster file: prices with their begin, tiers, surcharges, currency and time zone."""

import re
from collections.abc import Mapping
from typing import Any, cast, get_args

from penstock.core.amounts import parse_milli, parse_time_ms
from penstock.core.model.jobs import PRIORITY_CLASSES
from penstock.core.model.prices import DEFAULT_MINIMUM_MS, Billing, Factor, Price, Resource, Tariff, TierReading
from penstock.core.reader import Reader
from penstock.core.units import parse_duration_ms

FIELDS = ("currency", "digits", "time_zone", "minimum_period", "tiers", "tier_reading", "prices", "factors")
RESOURCES: tuple[str, ...] = get_args(Resource)
MICRO = 1_000_000
ENTRIES_MAX = 10_000
MINIMUM_MAX_MS = 86_400_000
AMOUNT = "an amount below 10,000,000,000 such as 2.50, with at most six decimals"
_AMOUNT = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,6}))?")
_CURRENCY = re.compile(r"[A-Z]{3}")
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
    minimum_ms = reader.quantity(
        "minimum_period", raw.get("minimum_period", f"{DEFAULT_MINIMUM_MS}ms"), parse_duration_ms, "60s"
    )
    if minimum_ms > MINIMUM_MAX_MS:
        reader.wrong("minimum_period", raw["minimum_period"], "a day at most")
    reading = reader.word("tier_reading", raw.get("tier_reading", "marginal"), get_args(TierReading), "marginal")
    tariff = Tariff(
        prices=tuple(_price(inner, entry) for inner, entry in _entries(reader, raw, "prices")),
        tiers=_tiers(reader, raw.get("tiers") or {}),
        tier_reading=cast("TierReading", reading),
        factors=tuple(_factor(inner, entry) for inner, entry in _entries(reader, raw, "factors")),
        minimum_ms=minimum_ms,
    )
    _no_price_twice(reader, tariff.prices)
    digits = reader.integer("digits", raw.get("digits", 2), low=0, high=6, default=2)
    return Billing(tariff, currency, digits, zone)


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
    from_ms = 0
    if raw.get("from") is not None:
        try:
            from_ms = parse_time_ms(raw["from"])
        except ValueError:
            reader.wrong("from", raw["from"], "a time with its offset such as 2026-03-01T00:00+01:00, or unix seconds")
    return Price(cast("Resource", resource), _micro(reader, raw.get("per_hour")), from_ms, model)


def _micro(reader: Reader, value: object) -> int:
    """Read an amount of money exactly: a number as it is written, in millionths of the currency."""
    written = repr(value) if isinstance(value, float) else str(value) if _small(value) else value
    match = _AMOUNT.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        reader.wrong("per_hour", value if _small(value) or isinstance(value, float | str) else "a huge number", AMOUNT)
        return 0
    return int(match[1]) * MICRO + int((match[2] or "").ljust(6, "0"))


def _small(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**10


def _tiers(reader: Reader, raw: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(raw, Mapping):
        reader.wrong("tiers", raw, "a mapping of hours to rates such as {100: 0.9, 500: 0.8}")
        return ()
    found = []
    for hours, rate in raw.items():
        inner = Reader(reader.path("tiers"), reader.problems)
        from_hours = inner.integer(str(hours), hours, low=1, high=10**9, default=1)
        found.append((from_hours, _rate(inner, str(hours), rate)))
    return tuple(sorted(found))


def _factor(reader: Reader, raw: Mapping[str, Any]) -> Factor:
    reader.unknown(raw, ("priority", "preemptible", "factor"))
    priority = raw.get("priority", 0)
    priority = PRIORITY_CLASSES.get(priority, priority) if isinstance(priority, str) else priority
    preemptible = raw.get("preemptible")
    if preemptible is not None:
        preemptible = reader.flag("preemptible", preemptible, default=True)
    return Factor(
        _rate(reader, "factor", raw.get("factor")),
        reader.integer("priority", priority, low=0, high=2**31, default=0),
        preemptible,
    )


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
