"""Amounts, quantities and times as people of a language write them. Integers in, text out; no binary floats.

Numbers and dates follow the Unicode CLDR (by Babel), except that a currency has as many digits as the invoice says.
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo

from babel import Locale
from babel.dates import format_date, format_interval
from babel.numbers import format_decimal, get_currency_symbol

from penstock.core.ledger.pricing import GIB
from penstock.core.model.invoices import Invoice
from penstock.core.model.prices import HOUR_MS, Resource
from penstock.report.invoice.words import LOCALES, Language

QUANTITY_DIGITS = 4
NAME_MAX = 120
"""Longer names are cut on paper, so that no row is taller than a page; the table (CSV) has them whole."""
_NO_BREAK = "\xa0"


class Formats:
    """How amounts and times of one invoice are written in one language."""

    def __init__(self, invoice: Invoice, language: Language) -> None:
        self._invoice = invoice
        self._zone = ZoneInfo(invoice.time_zone)
        self._locale = Locale.parse(LOCALES[language])
        self._number = lru_cache(maxsize=None)(self._written)

    def plain(self, amount: int) -> str:
        """Return an amount of the smallest unit without its currency, such as `1,234.50`."""
        return self._number(amount, self._invoice.digits, self._invoice.digits)

    def money(self, amount: int) -> str:
        """Return an amount of the smallest unit with its currency, such as `€1,234.50` or `CHF 1,234.50`."""
        sign = self._minus if amount < 0 else ""
        return f"{sign}{self._symbol}{self.plain(abs(amount))}"

    def price(self, micro: int) -> str:
        """Return a price given in millionths of the currency, exact; at least with the currency's digits."""
        return self._number(micro, 6, min(self._invoice.digits, 6))

    def hours(self, resource: Resource, quantity_ms: int) -> str:
        """Return hours of devices, CPUs or GiB, rounded half away from zero."""
        unit = (GIB if resource == "memory" else 1000) * HOUR_MS
        scaled = (2 * abs(quantity_ms) * 10**QUANTITY_DIGITS + unit) // (2 * unit)
        return self._number(scaled if quantity_ms >= 0 else -scaled, QUANTITY_DIGITS, QUANTITY_DIGITS)

    def percent(self, milli: int) -> str:
        """Return thousandths as a percentage without sign, such as `19%` or `7.5%`."""
        return self._number(abs(milli), 1, 0) + "%"

    def change(self, milli: int) -> str:
        """Return how a tier or factor (1000: not at all) changes a price, such as `-20%`; empty for not at all."""
        sign = self._minus if milli < 1000 else "+"
        return f"{sign}{self.percent(milli - 1000)}" if milli != 1000 else ""

    def name(self, text: str) -> str:
        return text if len(text) <= NAME_MAX else text[: NAME_MAX - 1] + "…"

    @property
    def step(self) -> str:
        """The smallest amount of the currency, such as `€0.01`."""
        return self.money(1)

    def count(self, number: int) -> str:
        return self._number(number, 0, 0)

    def day(self, time_ms: int) -> str:
        """Return the day of a time in the invoice's zone, such as `30 November 2026`."""
        return format_date(self._at(time_ms).date(), "long", locale=self._locale)

    @cached_property
    def period(self) -> str:
        """The period's first and last day, both included, such as `1–30 Nov 2026`."""
        first, last = self._days
        return format_interval(first, last, "yMMMd", locale=self._locale)

    @property
    def begin(self) -> str:
        return self._moment(self._invoice.from_ms)

    @property
    def end(self) -> str:
        """The exact end, not included."""
        return self._moment(self._invoice.until_ms)

    @property
    def _days(self) -> tuple[date, date]:
        first_ms, until_ms = self._invoice.from_ms, self._invoice.until_ms
        return self._at(first_ms).date(), self._at(max(first_ms, until_ms - 1)).date()

    def _moment(self, time_ms: int) -> str:
        spec = "milliseconds" if time_ms % 1000 else "seconds" if time_ms % 60_000 else "minutes"
        return self._at(time_ms).isoformat(sep=" ", timespec=spec)

    def _at(self, time_ms: int) -> datetime:
        seconds, ms = divmod(time_ms, 1000)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1000).astimezone(self._zone)

    @cached_property
    def _minus(self) -> str:
        return str(self._locale.number_symbols["latn"]["minusSign"])

    @cached_property
    def _symbol(self) -> str:
        """The currency's sign before an amount; letters stand apart from it."""
        symbol = get_currency_symbol(self._invoice.currency, locale=self._locale)
        return symbol + _NO_BREAK if symbol[-1].isalpha() else symbol

    def _written(self, value: int, digits: int, least: int) -> str:
        """Return value / 10**digits with `least` decimals or more, none of them lost and no zero at the end of more."""
        sign, parts = int(value < 0), tuple(map(int, str(abs(value))))
        pattern = "#,##0." + "0" * least + "#" * (digits - least) if digits else "#,##0"
        return format_decimal(Decimal((sign, parts, -digits)), format=pattern, locale=self._locale)
