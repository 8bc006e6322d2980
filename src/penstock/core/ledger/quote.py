"""The cost of a job before it is submitted: at prices from now on, with factors by the hour, without tiers.

Where the device model is not known yet, both ends of the range are given. Tiers are left out: they depend on the
tenant's other use in the month, and only make it cheaper where rates fall.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from msgspec.structs import replace

from penstock.core.ledger.bill import half_up
from penstock.core.ledger.pricing import charges, micro_denominator
from penstock.core.ledger.schedule import Zone
from penstock.core.ledger.sessions import Amounts, UsageInterval
from penstock.core.model.answers import Quote
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank, UserName
from penstock.core.model.jobs import GangAsk, JobSpec
from penstock.core.model.prices import HOUR_MS, Billing, Tariff
from penstock.core.order.usage_over_time import models_with


def quote(spec: JobSpec, models: Sequence[str], billing: Billing, zone: Zone, start_ms: int, length_ms: int) -> Quote:
    """Return the cost of a job of this spec from `start_ms` on.

    Args:
        models: of devices that it may be given; if it names models itself, only those count.
        length_ms: 0 where it is not known.
    """
    tariff = _without_tiers(billing.tariff)
    named = spec.ask.each.devices.models if spec.ask.each.devices is not None else ()
    wanted = [model for model in models if model in named] or list(named or models) or [""]

    def costs(span_ms: int) -> list[int]:
        unit = 10 ** (6 - billing.digits)
        return sorted(half_up(_micro(spec, model, tariff, zone, start_ms, span_ms) / unit) for model in wanted)

    hour, total = costs(HOUR_MS), costs(length_ms) if length_ms else [0]
    return Quote(billing.currency, billing.digits, hour[0], hour[-1], length_ms, total[0], total[-1])


def _without_tiers(tariff: Tariff) -> Tariff:
    return replace(tariff, tiers=(), later=tuple(replace(terms, tiers=()) for terms in tariff.later))


def _micro(spec: JobSpec, model: str, tariff: Tariff, zone: Zone, start_ms: int, span_ms: int) -> Fraction:
    """Return the cost in millionths of the currency, exactly."""
    held = list(_sessions(spec, spec.ask, model, start_ms, start_ms + span_ms))
    until_ms = start_ms + max(span_ms, tariff.minimum_max_ms)
    found = charges(held, tariff, (0,), 0, until_ms, zone=zone)
    return sum((Fraction(one.parts, micro_denominator(one.resource)) for one in found), Fraction(0))


def _sessions(spec: JobSpec, ask: GangAsk, model: str, start_ms: int, end_ms: int) -> Iterable[UsageInterval]:
    for number in range(ask.replica_total):
        each = ask.each_of(number)
        own = ((model, each.devices.milli),) if each.devices is not None else ()
        yield UsageInterval(
            JobId(0),
            AttemptNumber(1),
            Rank(number),
            spec.tenant,
            UserName(""),
            spec.queue,
            ask.pool,
            NodeName(""),
            Amounts(models_with(each.claimed, own, 1), each.host.cpu_milli, each.host.memory_bytes),
            start_ms,
            end_ms,
            priority=spec.priority,
            preemptible=spec.preemptible,
        )
