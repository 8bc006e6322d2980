"""Measures of a replay: waiting, completion, use and fairness, overall and by groups. Pure functions of `Ran`."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from penstock.core.model.ids import PoolName
from penstock.sim.replay.counters import StrategyUse
from penstock.sim.replay.life import Life
from penstock.sim.replay.replay import Ran

HOUR_MS = 3_600_000
SIZE_CLASSES = ((0, "no device"), (1, "1"), (4, "2-4"), (8, "5-8"), (64, "9-64"), (1 << 60, "over 64"))
"""Jobs by the devices they ask for: the largest of each class, and its name."""
SHORT_MS = 10_000
"""Slow-down counts jobs as if they ran at least this long: else a second's wait of a tiny job outweighs all others.
Source: bounded slowdown, Feitelson and Rudolph 1998."""


Key = TypeVar("Key", str, int)


class Spread(msgspec.Struct, frozen=True):
    """A distribution in milliseconds. The p-th percentile is the value below which that part lies, floor(p n)."""

    mean: float
    p50: int
    p90: int
    p99: int
    most: int


class Summary(msgspec.Struct, frozen=True):
    """One group of jobs; device time in hours."""

    jobs: int
    succeeded: int
    failed: int
    cancelled: int
    unfinished: int
    """Jobs that never ended: nothing could let them start."""
    wait_ms: Spread
    completion_ms: Spread
    """Of ended jobs that had started, from submit to end."""
    slowdown: float
    """Mean of completion over the time it would take alone at the size it asked for, bounded from below."""
    preemptions: int
    losses: int
    """Attempts that ended with a node."""
    device_hours: float
    redone_device_hours: float
    """Of these, time in which attempts did work that an earlier attempt of their job had done and not saved; at size
    and speed of the attempt that does it again. Unsaved work that none does again is not in it."""
    fairness_worst: float
    """Worst finish-time ratio: completion time over that with an equal share of the devices throughout."""
    unfair_share: float
    """Part of the jobs whose finish-time ratio is above 1."""
    cost: float
    """In the unit of the pool's `speeds`, by device model; 0 where no price is known."""


class Measures(msgspec.Struct, frozen=True):
    """A whole replay."""

    whole: Summary
    makespan_ms: int
    """From the first submit to the last end."""
    utilisation: float
    """Held over available device time, from the first submit to the last: after that the cluster only drains."""
    utilisation_whole: float
    """The same until the last end."""
    by_tenant: dict[str, Summary]
    by_size: dict[str, Summary]
    events: int
    cycles: int
    by_priority: dict[str, Summary] = {}
    strategies: dict[str, StrategyUse] = {}
    """How often each strategy was picked, and what it decided."""


def measure(ran: Ran) -> Measures:
    """Return the measures of a replay."""
    begun_ms = min((life.submitted_ms for life in ran.lives), default=ran.begun_ms)
    ended_ms = max((life.ended_ms for life in ran.lives), default=begun_ms)
    ratios = finish_ratios(ran)
    prices = {pool.name: _price(pool.speeds) for pool in ran.config.pools}

    def of(chosen: Sequence[int]) -> Summary:
        return _summary([ran.lives[i] for i in chosen], [ratios[i] for i in chosen], prices)

    return Measures(
        whole=of(range(len(ran.lives))),
        makespan_ms=max(0, ended_ms - begun_ms),
        utilisation=_utilisation(ran),
        utilisation_whole=ran.busy_device_ms / ran.total_device_ms if ran.total_device_ms else 0.0,
        by_tenant={name: of(chosen) for name, chosen in _grouped(ran.lives, lambda j: j.spec.tenant).items()},
        by_size={name: of(chosen) for name, chosen in _grouped(ran.lives, size_class).items()},
        events=ran.events,
        cycles=ran.cycles,
        by_priority={str(level): of(chosen) for level, chosen in _grouped(ran.lives, _priority).items()},
        strategies=ran.strategies,
    )


def size_class(life: Life) -> str:
    devices = life.spec.ask.device_total
    return next(name for most, name in SIZE_CLASSES if devices <= most)


def _priority(life: Life) -> int:
    return life.spec.priority


def _grouped(lives: Sequence[Life], key: Callable[[Life], Key]) -> dict[Key, list[int]]:
    found: dict[Key, list[int]] = {}
    for i, life in enumerate(lives):
        found.setdefault(key(life), []).append(i)
    return dict(sorted(found.items()))


def finish_ratios(ran: Ran) -> list[float]:
    """Return for each job its completion time over that with an equal share of the cluster, 0 where it never ended.

    With n jobs active beside it on average, a job's share is 1/n of the devices; a job that asks for more
    would run longer in proportion, and each has to start. A training program that was measured runs as it does on that
    many devices of whole nodes. Source: finish-time fairness, Mahajan et al., Themis, NSDI 2020.
    """
    span_ms = ran.ended_ms - ran.begun_ms
    devices = ran.total_device_ms / span_ms if span_ms else 0.0
    found = []
    for life in ran.lives:
        lived_ms = life.completion_ms
        if not life.ended_ms or lived_ms <= 0 or not life.started_ms:
            found.append(0.0)
            continue
        beside = max(1.0, life.alone_ms / lived_ms)
        trains = life.work.trains
        if trains is not None and not trains.fixed and devices:
            share = max(1, round(devices / beside))
            found.append(lived_ms / max(1, ran.start_ms + trains.alone_ms(share)))
            continue
        slower = max(1.0, life.spec.ask.device_milli / 1000 * beside / devices) if devices else 1.0
        found.append(lived_ms / (ran.start_ms + max(1, life.work.run_ms) * slower))
    return found


def _summary(lives: Sequence[Life], ratios: Sequence[float], prices: dict[PoolName, float]) -> Summary:
    states = [life.state for life in lives]
    ended = [life for life in lives if life.ended_ms]
    started = [life for life in ended if life.started_ms]
    alone = np.array([max(life.work.run_ms, SHORT_MS) for life in started], dtype=np.int64)
    took = np.array([max(life.completion_ms, SHORT_MS) for life in started], dtype=np.int64)
    judged = [ratio for ratio in ratios if ratio]
    hours = [life.held_device_ms / HOUR_MS for life in lives]
    return Summary(
        jobs=len(lives),
        succeeded=states.count("succeeded"),
        failed=states.count("failed"),
        cancelled=states.count("cancelled"),
        unfinished=len(lives) - len(ended),
        wait_ms=spread([life.wait_ms for life in ended]),
        completion_ms=spread([life.completion_ms for life in started]),
        slowdown=float(np.maximum(1.0, took / alone).mean()) if started else 0.0,
        preemptions=sum(life.preemptions for life in lives),
        losses=sum(life.losses for life in lives),
        device_hours=sum(hours),
        redone_device_hours=sum(life.redone_device_ms for life in lives) / HOUR_MS,
        fairness_worst=max(judged, default=0.0),
        unfair_share=sum(ratio > 1.0 for ratio in judged) / len(judged) if judged else 0.0,
        cost=sum(h * prices.get(life.spec.ask.pool, 0.0) for h, life in zip(hours, lives, strict=True)),
    )


def spread(values: Sequence[int]) -> Spread:
    """Return the distribution of `values`, all 0 when there are none."""
    if not values:
        return Spread(0.0, 0, 0, 0, 0)
    found = np.sort(np.array(values, dtype=np.int64))
    at = [int(found[min(len(found) - 1, int(part * len(found)))]) for part in (0.5, 0.9, 0.99)]
    return Spread(float(found.mean()), at[0], at[1], at[2], int(found[-1]))


def _price(speeds: Sequence[tuple[str, int, int]]) -> float:
    return sum(cost for _, _, cost in speeds) / len(speeds) / 1000 if speeds else 0.0


def _utilisation(ran: Ran) -> float:
    """Return held over available devices up to the last submit."""
    last_ms = max((life.submitted_ms for life in ran.lives), default=0)
    upto = [sample for sample in ran.samples if sample.time_ms <= last_ms]
    return upto[-1].busy_device_ms / upto[-1].total_device_ms if upto and upto[-1].total_device_ms else 0.0
