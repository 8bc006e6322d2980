"""What things cost, as an operator declares it: money in millionths of the currency, rates in thousandths."""

from typing import Literal

import msgspec

Resource = Literal["device", "cpu", "memory"]
TierReading = Literal["marginal", "whole"]
BudgetPeriod = Literal["day", "week", "month", "year", "once"]
AtZero = Literal["nothing", "warn", "stop_starts", "suspend"]
"""`stop_starts`: nothing of the tenant starts; `suspend`: what runs saves and leaves, too, and waits."""
HOUR_MS = 3_600_000
DEFAULT_MINIMUM_MS = 60_000


class Price(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one device, one CPU or one GiB costs for an hour (millionths of the currency), from a time on (unix ms).

    A price for a model comes before one for any; of several for the same the latest that has begun counts.
    """

    resource: Resource
    micro_per_hour: int
    from_ms: int = 0
    model: str = ""


class Window(msgspec.Struct, frozen=True):
    """Hours of the local day, [from_minute, until_minute), on some days of the week (0: Monday).

    An end no later than the begin is on the next day: 22:00 to 06:00 of a Friday ends on Saturday.
    """

    from_minute: int
    until_minute: int
    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)


class Factor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A surcharge or discount (1000: none) for jobs from a priority on, or that may be preempted, at some hours.

    Of several that fit at a moment the first counts.
    """

    milli: int
    priority_min: int = 0
    preemptible: bool | None = None
    windows: tuple[Window, ...] = ()
    """When it holds, in the time zone of the bills; none: always."""

    def matches(self, priority: int, *, preemptible: bool) -> bool:
        return self.preemptible in (None, preemptible) and priority >= self.priority_min


class Terms(msgspec.Struct, frozen=True, omit_defaults=True):
    """What prices are multiplied with, from a time on (unix ms).

    Factors hold from that moment, tiers from the first month that begins after it, the minimum for what begins then.
    """

    from_ms: int = 0
    tiers: tuple[tuple[int, int], ...] = ()
    """(device-hours of a tenant's month, thousandths of the price from there on), ascending."""
    tier_reading: TierReading = "marginal"
    """Whether a tier's rate is for the hours inside it, or for all hours of a month that reaches it."""
    factors: tuple[Factor, ...] = ()
    minimum_ms: int = DEFAULT_MINIMUM_MS
    """A hold that has ended counts for at least this long."""


class Tariff(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a charge follows from. A resource without a price is free of charge."""

    prices: tuple[Price, ...] = ()
    tiers: tuple[tuple[int, int], ...] = ()
    tier_reading: TierReading = "marginal"
    factors: tuple[Factor, ...] = ()
    minimum_ms: int = DEFAULT_MINIMUM_MS
    later: tuple[Terms, ...] = ()
    """Terms that replace those above from a time on, ascending."""

    @property
    def terms(self) -> tuple[Terms, ...]:
        """The terms with their begin, ascending; the first hold from the beginning."""
        return (Terms(0, self.tiers, self.tier_reading, self.factors, self.minimum_ms), *self.later)

    @property
    def minimum_max_ms(self) -> int:
        """The longest that a hold may count beyond its end."""
        return max(terms.minimum_ms for terms in self.terms)

    def terms_at(self, time_ms: int) -> Terms:
        return next((terms for terms in reversed(self.later) if terms.from_ms <= time_ms), self.terms[0])


class Party(msgspec.Struct, frozen=True, omit_defaults=True):
    """The issuer of an invoice, or the customer."""

    name: str = ""
    address: tuple[str, ...] = ()
    """Line by line."""
    tax_id: str = ""
    note: str = ""
    """Such as how to pay; below the invoice."""


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tenant's planned spending, in the currency's smallest unit: per period, or from one day to another."""

    name: str
    amount: int
    period: BudgetPeriod = "month"
    from_ms: int = 0
    until_ms: int = 0
    """Where `period` is `once`: [from_ms, until_ms)."""
    hard: bool = False
    """Once it is spent nothing of the tenant starts until the period ends; else alerts only."""
    alerts: tuple[int, ...] = (80, 95, 100)
    """Percentages at which an alert is raised."""


class Billing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the cluster is billed. Without prices it is not."""

    tariff: Tariff = Tariff()
    currency: str = "EUR"
    digits: int = 2
    """Of the currency's smallest unit: 2 where there are cents."""
    time_zone: str = "UTC"
    """Where months begin."""
    refund_lost: bool = True
    """Work lost to a node's failure, since the job's last checkpoint, is refunded."""
    at_zero: AtZero = "nothing"
    """What happens to tenants whose credit is used up."""
    issue: Literal["automatic", "manual"] = "automatic"
    """Whether invoices are issued when their month is over, or on request."""
    invoice_prefix: str = "INV-"
    credit_note_prefix: str = "CN-"
    tax_name: str = ""
    tax_milli: int = 0
    """Added to the sum of an invoice, in thousandths."""
    issuer: Party = Party()
