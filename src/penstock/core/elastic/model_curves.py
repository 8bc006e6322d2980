"""How fast an elastic job is at each size on each device model of its pool, all on one scale.

A rate by model times a speed-up curve by model. What the job has reported on a model itself counts first, for both;
else its curve is taken to be the same there, and its rate what is known of jobs like it (`model_rates.py`).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from penstock.core.elastic.learned import LearnedSpeed
from penstock.core.elastic.model_rates import SCALE, Rates
from penstock.core.elastic.speedup import SpeedCurve

SLOWEST_MILLI = 100
"""No model counts as slower than this, against the mean of all: twice what a job counts that waits."""


class ScaledCurve(msgspec.Struct, frozen=True):
    """A speed-up curve on a model that is faster, or slower, than the mean of all."""

    curve: SpeedCurve
    rate_milli: int

    def speed_milli(self, replicas: int, nodes: int) -> int:
        return self.curve.speed_milli(replicas, nodes) * self.rate_milli // 1000


class DeviceKind(NamedTuple):
    """What nodes with the same device models have."""

    models: tuple[str, ...]
    """Usually one; a job on such nodes is as fast as on the slowest of them."""
    devices: int
    """Of all these nodes."""


Kinds = Mapping[str, DeviceKind]


class OnModels(NamedTuple):
    """What is known of one job's speed on the kinds of devices of its pool."""

    curve: SpeedCurve
    """At the mean of all these devices."""
    models: Mapping[str, SpeedCurve] = MappingProxyType({})
    """By kind: those that it may have."""
    largest_seen: int = 0
    """The most replicas that it has reported from, on any model."""
    may_move: bool = True
    """It is known how fast it is elsewhere."""


def curves_on_models(
    kinds: Kinds,
    rates: Rates,
    costs: Mapping[str, int],
    present: LearnedSpeed,
    learned: Callable[[str], LearnedSpeed],
    *,
    homes: tuple[str, ...],
    starts: bool,
) -> OnModels:
    """Return how fast a job is on each kind of devices that it accepts, per cost, against the mean over the devices.

    Args:
        kinds: those that it accepts.
        rates: of what is known of jobs like it, its own reports included.
        costs: of an hour of a device by model, thousandths; 1000 where none is given.
        present: what it has reported on the model that it is on, or was on last.
        learned: what it has reported on one model.
        homes: the kinds that it is on.
        starts: it does not run yet: a model of which nothing is known counts like its best one, so each is tried once.
    A running job counts a model of which nothing is known like its worst one, and stays where it is as long as nothing
    relates that to other models.
    """
    reported = {model: learned(model) for kind in kinds.values() for model in kind.models}
    largest = max((one.largest_seen for one in reported.values()), default=0)
    known = {model: 1000 * rate // max(1, costs.get(model, 1000)) for model, rate in _own(reported, rates).items()}
    worth = {name: min(known[m] for m in kind.models) for name, kind in kinds.items() if set(kind.models) <= set(known)}
    may_move = starts or set(homes) <= set(worth)
    if not may_move:
        worth = {}
    unknown = (max if starts else min)(worth.values(), default=SCALE)
    worth = {name: worth.get(name, unknown) for name in kinds}
    devices = sum(kinds[name].devices for name in worth)
    mean = max(1, sum(one * kinds[name].devices for name, one in worth.items()) // max(1, devices))
    curves = {}
    for name, one in sorted(worth.items()):
        there = reported[kinds[name].models[0]] if len(kinds[name].models) == 1 else present
        curve = there.curve if there.largest_seen else present.curve
        curves[name] = ScaledCurve(curve, max(SLOWEST_MILLI, 1000 * one // mean))
    return OnModels(present.curve, curves, max(largest, present.largest_seen), may_move)


def _own(reported: Mapping[str, LearnedSpeed], rates: Rates) -> dict[str, int]:
    """Return rates by model: of one replica by the job's own reports, at any size; else as they are known otherwise."""
    by_goodput = any(one.goodput is not None for one in reported.values())
    own = {
        model: one.alone_milli
        for model, one in reported.items()
        if one.alone_milli and (one.goodput is not None) == by_goodput
    }
    common = [model for model in own if model in rates]
    measured, said = sum(own[model] for model in common), sum(rates[model].rate for model in common)
    if not common:
        return dict(own) if own else {model: rate.rate for model, rate in rates.items()}
    others = {model: rate.rate * measured // max(1, said) for model, rate in rates.items() if model not in own}
    return {**others, **own}
