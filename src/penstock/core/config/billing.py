"""The `billing` section of a cluster file: prices with their begin, terms, currency, time zone, invoices."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_args

import msgspec

from penstock.core.config.fields import (
    QUANTITY,
    STRING,
    Field,
    Plain,
    Section,
    Values,
    duration,
    flag,
    from_milli,
    group,
    integer,
    mappings,
    number,
    section,
    sections,
    text,
    time,
    word,
)
from penstock.core.config.reader import Reader
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

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
RESOURCES: tuple[str, ...] = get_args(Resource)
READINGS: tuple[str, ...] = get_args(TierReading)
AT_ZERO: tuple[str, ...] = get_args(AtZero)
MICRO = 1_000_000
ENTRIES_MAX = 10_000
ADDRESS_LINES_MAX = 12
MINIMUM_MAX_MS = 86_400_000
AMOUNT = "an amount below 10,000,000,000 such as 2.50, with at most six decimals"
_AMOUNT = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,6}))?")
_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-(?:([01][0-9]|2[0-3]):([0-5][0-9])|24:00)")
_ZONE = re.compile(r"[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+)*")
_PREFIX = re.compile(r"[A-Za-z0-9/_.-]{1,20}")
_PREFIXED = "1 to 20 letters, digits, '/', '_', '.' or '-'"


def money(about: str, digits: int, *, at: str = "", positive: bool = False) -> Field:
    """An amount of money in the currency's smallest unit, of which it has `digits` decimals."""

    def read(reader: Reader, field: str, value: Any) -> int:
        amount = read_amount(reader, field, value, digits)
        if value == 0 and positive:
            reader.wrong(field, value, "an amount above 0")
        return amount

    def write(value: int) -> str:
        whole, part = divmod(value, 10**digits)
        return f"{whole}.{part:0{digits}d}" if digits else str(whole)

    return Field(read, QUANTITY, about, at, write)


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


def _plain_micro(value: int) -> str:
    whole, part = divmod(value, MICRO)
    return f"{whole}." + f"{part:06d}".rstrip("0") if part else str(whole)


def _matching(about: str, pattern: re.Pattern[str], expected: str, *, at: str = "") -> Field:
    """A text that matches `pattern` as a whole."""

    def read(reader: Reader, field: str, value: Any) -> str:
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        reader.wrong(field, value, expected)
        return ""

    return Field(read, {**STRING, "pattern": f"^{pattern.pattern}$"}, about, at)


def _rate(about: str, *, at: str) -> Field:
    return number(about, "a number from 0 in steps of 0.001, such as 0.9", high=1_000_000, at=at)


def _read_address(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
    lines = value.splitlines() if isinstance(value, str) else value
    if (
        not isinstance(lines, list)
        or len(lines) > ADDRESS_LINES_MAX
        or not all(isinstance(line, str) for line in lines)
    ):
        reader.wrong(field, value, f"up to {ADDRESS_LINES_MAX} lines of text")
        return ()
    return tuple(line[:200] for line in lines)


def _short(about: str) -> Field:
    """A text that may be empty, or a number; cut at 1,000 characters."""
    return Field(lambda reader, field, value: str(value)[:1000], {"type": ["string", "number", "boolean"]}, about)


PARTY = Section(
    Party,
    {
        "name": _short("name"),
        "address": Field(
            _read_address, {"anyOf": [STRING, {"type": "array", "items": STRING}]}, "address: lines", write=list
        ),
        "tax_id": _short("tax number"),
        "note": _short("text below the invoice, such as how to pay"),
    },
)
"""The issuer of invoices, or the customer."""


def _read_tiers(reader: Reader, field: str, value: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, Mapping):
        reader.wrong(field, value, "a mapping of hours to rates such as {100: 0.9, 500: 0.8}")
        return ()
    inner, rate = Reader(reader.path(field), reader.problems), _rate("", at="")
    found = []
    for hours, part in value.items():
        hours = int(hours) if isinstance(hours, str) and hours.isascii() and hours.isdigit() else hours
        from_hours = inner.integer(str(hours), hours, low=1, high=10**9, default=1)
        found.append((from_hours, rate.read(inner, str(hours), part)))
    return tuple(sorted(found))


def _plain_tiers(tiers: tuple[tuple[int, int], ...]) -> Plain:
    return {hours: from_milli(milli) for hours, milli in tiers}  # type: ignore[misc]


def _read_priority(reader: Reader, field: str, value: Any) -> int:
    priority = PRIORITY_CLASSES.get(value, value) if isinstance(value, str) else value
    return reader.integer(field, priority, low=0, high=2**31, default=0)


def _read_hours(reader: Reader, field: str, value: Any) -> list[tuple[int, int]]:
    """Read hours of the local day as minutes."""
    listed = value if isinstance(value, list) else [value]
    if len(listed) > ENTRIES_MAX:
        reader.wrong(field, f"a list of {len(listed)}", f"at most {ENTRIES_MAX}")
        return []
    found = []
    for entry in listed:
        match = _HOURS.fullmatch(entry) if isinstance(entry, str) else None
        if match is None:
            reader.wrong(field, entry, "hours of the day in quotes such as '22:00-06:00'")
            continue
        until = int(match[3]) * 60 + int(match[4]) if match[3] else 1440
        found.append((int(match[1]) * 60 + int(match[2]), until))
    return found


def _read_days(reader: Reader, field: str, value: Any) -> tuple[int, ...]:
    """Read days of the week by their first three letters, as numbers from Monday."""
    if not isinstance(value, list) or not value:
        reader.wrong(field, value, "a list of days such as [sat, sun]")
        return ()
    return tuple(sorted({DAYS.index(reader.word(field, str(day).lower()[:3], DAYS, "mon")) for day in value}))


def _plain_hours(hours: list[tuple[int, int]]) -> list[str]:
    times = [[divmod(minute, 60) for minute in span] for span in hours]
    return ["-".join(f"{hour:02}:{minute:02}" for hour, minute in span) for span in times]


class _FactorSection(Section[Factor]):
    """A factor, whose windows are some hours of some days."""

    def build(self, reader: Reader, values: Values) -> Factor:
        hours, days = values.pop("hours", None), values.pop("days", None)
        if hours is not None or days is not None:
            spans = [(0, 1440)] if hours is None else hours
            named = tuple(range(len(DAYS))) if days is None else days
            values["windows"] = tuple(Window(begin, end, named) for begin, end in spans)
        return super().build(reader, values)

    def parts(self, value: Factor) -> Values:
        return {**super().parts(value), "hours": None, "days": None}

    def entries(self, value: Factor) -> list[Plain]:
        """Return a factor as one entry for each set of days: of several with one rate the first that fits counts."""
        by_days: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for window in value.windows:
            by_days.setdefault(window.days, []).append((window.from_minute, window.until_minute))
        whens = [{"hours": _plain_hours(hours), "days": [DAYS[day] for day in days]} for days, hours in by_days.items()]
        return [self.write(value) | when for when in whens or [{}]]


_FACTOR = _FactorSection(
    Factor,
    {
        "priority": Field(
            _read_priority, {"type": ["string", "integer"]}, "jobs of this priority or higher", "priority_min"
        ),
        "preemptible": flag("preemptible jobs, or those that are not", default=True),
        "hours": Field(
            _read_hours,
            {"anyOf": [STRING, {"type": "array", "items": STRING}]},
            "hours of the day, such as '22:00-06:00'",
        ),
        "days": Field(_read_days, {"type": "array", "items": STRING}, "days of the week, such as [sat, sun]"),
        "factor": _rate("multiplier of the price", at="milli"),
    },
    defaults={"hours": None, "days": None},
)


def _read_factors(reader: Reader, field: str, value: Any) -> tuple[Factor, ...]:
    return tuple(
        factor
        for inner, entry in mappings(reader, field, value, ENTRIES_MAX)
        if (factor := _FACTOR.read(inner, entry)) is not None
    )


def _plain_factors(factors: tuple[Factor, ...]) -> list[Plain]:
    return [entry for factor in factors for entry in _FACTOR.entries(factor)]


def _read_minimum(reader: Reader, field: str, value: Any) -> int:
    minimum_ms: int = _MINIMUM.read(reader, field, value)
    if minimum_ms > MINIMUM_MAX_MS:
        reader.wrong(field, value, "a day at most")
    return minimum_ms


_MINIMUM = duration("a hold that has ended counts for at least this long", at="minimum_ms", example="60s")
_TERMS: dict[str, Field] = {
    "minimum_period": msgspec.structs.replace(_MINIMUM, read=_read_minimum),
    "tiers": Field(
        _read_tiers,
        {"type": "object", "additionalProperties": QUANTITY},
        "rates by the device-hours of a tenant's month from which they hold, such as {100: 0.9}",
        write=_plain_tiers,
    ),
    "tier_reading": word(
        "hours that a tier's rate is for: those inside it, or all of a month that reaches it", READINGS
    ),
    "factors": Field(
        _read_factors,
        {"type": "array", "maxItems": ENTRIES_MAX, "items": _FACTOR.schema},
        "surcharges and discounts; of several that match the first counts",
        write=_plain_factors,
    ),
}


def _read_begin(reader: Reader, field: str, value: Any) -> int:
    if value in (None, 0):
        reader.wrong(field, value, "the begin of the terms, such as 2027-01-01T00:00+01:00")
    return (reader.time(field, value) if value else 0) or 1


_BEGIN = time("begin of the terms", at="from_ms")
_LATER = Section(Terms, {"from": msgspec.structs.replace(_BEGIN, read=_read_begin), **_TERMS}, defaults={"from_ms": 0})


def _read_later(reader: Reader, field: str, value: Any) -> list[Values]:
    """Read the changes by later terms, in the order of their begins."""
    found = [_LATER.values(inner, {"from": 0, **entry}) for inner, entry in mappings(reader, field, value, ENTRIES_MAX)]
    found.sort(key=lambda own: int(own["from_ms"]))
    begins = [own["from_ms"] for own in found]
    if len(set(begins)) < len(begins):
        reader.wrong(field, "two from the same time", "terms with different begins")
    return found


def _plain_later(terms: tuple[Terms, ...]) -> list[Plain]:
    return [_LATER.write(later, _LATER.parts(before) | {"from_ms": 0}) for before, later in pairwise(terms)]


def _only_devices_have_models(reader: Reader, price: Price) -> None:
    if price.model and price.resource != "device":
        reader.wrong("model", price.model, "nothing: only devices have models")


_PRICE = Section(
    Price,
    {
        "resource": word("resource", RESOURCES),
        "model": text("device model; without one the price is for all models"),
        "per_hour": Field(read_micro, QUANTITY, "price of one device, CPU or GiB", "micro_per_hour", _plain_micro),
        "from": time("begin of the price", at="from_ms"),
    },
    _only_devices_have_models,
    {"resource": "device"},
)


_INVOICES = {
    "issue": word("issue at the end of the month, or on request", ("automatic", "manual")),
    "prefix": _matching("prefix of the numbers of invoices", _PREFIX, _PREFIXED, at="invoice_prefix"),
    "credit_note_prefix": _matching("prefix of the numbers of credit notes", _PREFIX, _PREFIXED),
}
_TAX = Section(Billing, {"name": text("its name (Tax)", at="tax_name"), "rate": _rate("its rate", at="tax_milli")})


def _read_tax(reader: Reader, field: str, value: Any) -> Values:
    inner = Reader(reader.path(field), reader.problems)
    if not isinstance(value, Mapping):
        inner.wrong("", value, "a mapping with " + ", ".join(_TAX.fields))
        return {}
    if value.get("rate") is None:
        inner.wrong("rate", None, "the part of the sum that is added, such as 0.19")
    return {"tax_name": "Tax", **_TAX.values(inner, value)}


class _BillingSection(Section[Billing]):
    """Bills, whose prices and terms are one tariff."""

    def build(self, reader: Reader, values: Values) -> Billing:
        tax = values.pop("tax")
        tariff = {name: values.pop(name) for name in Tariff.__struct_fields__}
        terms = {field.at or name: tariff[field.at or name] for name, field in _TERMS.items()}
        later = []
        for changed in tariff["later"]:
            terms = {**terms, **changed}
            later.append(Terms(**terms))
        return Billing(**{**values, **tax, "tariff": Tariff(**{**tariff, "later": tuple(later)})})

    def parts(self, value: Billing) -> Values:
        tariff, tax = value.tariff, {"name": value.tax_name, "rate": from_milli(value.tax_milli)}
        return {
            **super().parts(value),
            **{name: getattr(tariff, name) for name in Tariff.__struct_fields__},
            "later": tariff.terms if tariff.later else (),
            "tax": tax if value.tax_name else {},
        }


def _check(reader: Reader, billing: Billing) -> None:
    if billing.invoice_prefix == billing.credit_note_prefix:
        reader.wrong("invoices.credit_note_prefix", billing.credit_note_prefix, "another prefix than that of invoices")
    seen: set[tuple[str, str, int]] = set()
    for index, price in enumerate(billing.tariff.prices):
        key = (price.resource, price.model, price.from_ms)
        if key in seen:
            reader.wrong(f"prices[{index}]", price.model or price.resource, "one price for the same from the same time")
        seen.add(key)


BILLING = _BillingSection(
    Billing,
    {
        "currency": _matching("currency", re.compile(r"[A-Z]{3}"), "three capital letters such as EUR (ISO 4217)"),
        "digits": integer("decimals of an amount of money", 0, 6, default=2),
        "time_zone": _matching("time zone in which months begin", _ZONE, "a name such as Europe/Berlin (IANA)"),
        "prices": sections("prices, each from a time on; a resource without a price is free", _PRICE, ENTRIES_MAX),
        **_TERMS,
        "later": Field(
            _read_later,
            {"type": "array", "maxItems": ENTRIES_MAX, "items": _LATER.schema},
            "terms that begin later; what one does not name stays as before",
            write=_plain_later,
        ),
        "refund_lost": flag("refund of work that a node's failure lost", default=True),
        "at_zero": word("consequence for a tenant whose credit is used up", AT_ZERO),
        "invoices": group("issue and numbers of invoices", _INVOICES),
        "tax": Field(_read_tax, _TAX.schema, "tax added to an invoice: `name` and `rate`"),
        "issuer": section("issuer of the invoices", PARTY),
    },
    _check,
    {**{f.name: f.default for f in msgspec.structs.fields(Tariff)}, "tax": {}},
)
