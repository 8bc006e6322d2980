"""The choice among candidate plans by several objectives.

Each candidate has a score of 0 to 1000 for every objective, 1000 the best. One candidate dominates another when it
is nowhere worse and somewhere better. Dominated ones are dropped; of the rest, the Pareto front, the one with the
greatest weighted sum is taken. Dropping first matters when a weight is 0: a plan that another one beats at no cost
is never taken. The front is returned as plain data, ready for JSON and for a plot.
"""

from collections.abc import Iterable

import msgspec

from penstock.core.model.objectives import FULL_MILLI, Candidate, Front, Point, Scores, Weights


def choose_plan(candidates: Iterable[Candidate], weights: Weights) -> Front:
    """Return the Pareto front of `candidates` and the best weighted one of it; equal sums fall to the lower index.

    Raises: ValueError when there is no candidate or two have the same index: it is a bug of the caller.
    Source: weighted sum over the non-dominated set, Miettinen 1998, chapter 3.1.
    """
    ordered = sorted(candidates, key=lambda c: c.index)
    if not ordered:
        raise ValueError("no candidate plan; expected at least one")
    if len({c.index for c in ordered}) < len(ordered):
        raise ValueError(f"two candidate plans have one index: {[c.index for c in ordered]}")
    best_first = sorted(ordered, key=lambda c: (-c.scores.weighted(weights), c.index))
    front = [c for c in best_first if not any(other.scores.dominates(c.scores) for other in ordered)]
    points = tuple(
        Point(
            c.index,
            c.scores,
            c.scores.weighted(weights),
            next((kept.index for kept in front if kept.scores.dominates(c.scores)), None),
        )
        for c in ordered
    )
    return Front(points, front[0].index, weights)


class PlanFacts(msgspec.Struct, frozen=True):
    """Expected result of a candidate plan, in plain sums; unknown values may stay 0."""

    devices_used: int
    """Devices in use once the plan is carried out."""
    devices_total: int
    started_wait_ms: int
    """Waiting time so far, summed over the jobs that the plan starts."""
    left_wait_ms: int
    """Waiting time so far, summed over the jobs that it leaves waiting."""
    share_min_milli: int
    """Lowest weighted share of any tenant with work to do, after the plan."""
    share_max_milli: int
    power_mw: int
    """Expected draw of the devices in use whose power is known."""
    powered_milli: int
    """How many these are, in thousandths; 0 where plans are not to be told apart by it."""
    device_power_max_mw: int
    """What the one of them draws that draws most."""
    price_per_hour: int
    """Of the devices in use, in the smallest unit of money of the rates."""
    device_price_max_per_hour: int
    """Of the dearest device of the pool."""


def score_plan(facts: PlanFacts) -> Scores:
    """Return the scores of a plan; each is floored to a whole thousandth, by the formula of its function."""
    return Scores(
        utilisation=utilisation_score(facts.devices_used, devices_total=facts.devices_total),
        response_time=response_time_score(facts.started_wait_ms, left_wait_ms=facts.left_wait_ms),
        fairness=fairness_score(facts.share_min_milli, share_max_milli=facts.share_max_milli),
        energy=energy_score(
            facts.power_mw, powered_milli=facts.powered_milli, device_power_max_mw=facts.device_power_max_mw
        ),
        cost=cost_score(
            facts.price_per_hour,
            devices_used=facts.devices_used,
            device_price_max_per_hour=facts.device_price_max_per_hour,
        ),
    )


def utilisation_score(devices_used: int, *, devices_total: int) -> int:
    """Return 1000 x used / total; 1000 when there is no device, so that nothing is idle."""
    return _ratio(devices_used, devices_total)


def response_time_score(started_wait_ms: int, *, left_wait_ms: int) -> int:
    """Return 1000 x started / (started + left): the part of all waiting time so far that the plan ends.

    1000 when no job has waited.
    """
    return _ratio(started_wait_ms, started_wait_ms + left_wait_ms)


def fairness_score(share_min_milli: int, *, share_max_milli: int) -> int:
    """Return 1000 x lowest / highest share: 1000 when all tenants have the same, 0 when one has nothing.

    1000 when no tenant has anything.
    """
    return _ratio(share_min_milli, share_max_milli)


def energy_score(power_mw: int, *, powered_milli: int, device_power_max_mw: int) -> int:
    """Return 1000 - 1000 x power / (devices x highest power), at least 0; 1000 when nothing is used or known.

    Power is taken for each device in use, or a plan that starts nothing would look best.
    """
    return FULL_MILLI - _ratio(power_mw, powered_milli * device_power_max_mw // FULL_MILLI, unknown=0)


def cost_score(price_per_hour: int, *, devices_used: int, device_price_max_per_hour: int) -> int:
    """Return 1000 - 1000 x price / (used x dearest price), at least 0; 1000 when nothing is used or known.

    The price is taken for each device in use, for the same reason as power.
    """
    return FULL_MILLI - _ratio(price_per_hour, devices_used * device_price_max_per_hour, unknown=0)


def _ratio(part: int, whole: int, *, unknown: int = FULL_MILLI) -> int:
    """Return 1000 x part / whole, floored, within 0 to 1000; `unknown` when the whole is 0."""
    if part < 0 or whole < 0:
        raise ValueError(f"{part} of {whole}; expected 0 or more")
    return min(FULL_MILLI, FULL_MILLI * part // whole) if whole else unknown
