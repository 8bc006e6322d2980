"""What things cost, as an operator declares it: money in millionths of the currency, rates in thousandths."""

from typing import Literal

import msgspec

Resource = Literal["device", "cpu", "memory"]
TierReading = Literal["marginal", "whole"]
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


class Factor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A surcharge or discount (1000: none) for jobs from a priority on, or that may be preempted; the first counts."""

    milli: int
    priority_min: int = 0
    preemptible: bool | None = None

    def matches(self, priority: int, *, preemptible: bool) -> bool:
        return self.preemptible in (None, preemptible) and priority >= self.priority_min


class Tariff(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a charge follows from. Nothing is charged for what has no price."""

    prices: tuple[Price, ...] = ()
    tiers: tuple[tuple[int, int], ...] = ()
    """From so many device-hours of a tenant's month on, so many thousandths of the price; ascending."""
    tier_reading: TierReading = "marginal"
    """Whether a tier's rate is for the hours inside it, or for all hours of a month that reaches it."""
    factors: tuple[Factor, ...] = ()
    minimum_ms: int = DEFAULT_MINIMUM_MS
    """A hold that has ended counts for at least this long."""


class Billing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the cluster is billed. Without prices it is not."""

    tariff: Tariff = Tariff()
    currency: str = "EUR"
    digits: int = 2
    """Of the currency's smallest unit: 2 where there are cents."""
    time_zone: str = "UTC"
    """Where months begin."""
