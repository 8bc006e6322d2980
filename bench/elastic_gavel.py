"""A simulated cluster of 16 V100, 16 P100 and 16 K80 with single-device jobs that run at measured speeds on each.

Jobs are drawn as in Gavel's simulator (OSDI 2020): models uniformly from the measured table, durations on a V100 of
60 x 10^u s with u in 1.5..3 for four of five jobs and in 3..4 for the others, Poisson arrivals, rounds of 360 s.
The type-blind policies are Gavel's: first come first served on any free device until done, and equal time for all
on all types in turn.
"""

import gzip
import json
import math
import random
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.core.elastic.types import Order, TypedJob, assign_types, in_order, service_of

TYPES = ("k80", "p100", "v100")
EACH = 16
GAP_S, ROUND_S, RESTART_S = 1_800, 360, 30
WINDOW = (100, 200)
"""Jobs whose completion times count: the cluster is busy before them and stays busy behind them."""
ROUNDS_MAX = 40_000


def speed_table(path: Path) -> list[dict[str, float]]:
    """Return steps a second by type, one entry for each single-device model."""
    with gzip.open(path, "rt") as file:
        raw = json.load(file)
    models = sorted(key for key in raw["v100"] if key.endswith(", 1)"))
    return [{t: float(raw[t][model]["null"]) for t in TYPES} for model in models]


class Work(msgspec.Struct):
    """One job: what is left of it, and where it is."""

    number: int
    arrived_s: float
    speeds: dict[str, float]
    steps: float
    left: float
    type: str = ""
    ran_s: dict[str, float] = msgspec.field(default_factory=lambda: dict.fromkeys(TYPES, 0.0))
    pause_s: float = 0.0
    done_s: float = 0.0
    restarts: int = 0


def arrivals(table: list[dict[str, float]], seed: int, count: int) -> list[Work]:
    rng = random.Random(seed)
    now, found = 0.0, []
    for number in range(count):
        now += -math.log(1.0 - rng.random()) * GAP_S
        speeds = rng.choice(table)
        exponent = rng.uniform(3, 4) if rng.random() >= 0.8 else rng.uniform(1.5, 3)
        steps = 60 * 10**exponent * speeds["v100"]
        found.append(Work(number, now, speeds, steps, steps))
    return found


class TypePolicy(Protocol):
    def types(self, live: list[Work], now_s: float) -> dict[int, str]:
        """Return the type of each job that runs in the coming round."""
        ...


class Blind:
    """The same order of jobs without looking at types: on any type that is free, and there for as long as it runs."""

    def __init__(self, order: Order, seed: int) -> None:
        self._order, self._rng = order, random.Random(seed)

    def types(self, live: list[Work], now_s: float) -> dict[int, str]:
        by_number = {job.number: job for job in live}
        first = in_order((seen(job, blind=True) for job in live), self._order)[: EACH * len(TYPES)]
        free = dict.fromkeys(TYPES, EACH)
        found = {}
        for job in first:
            if job.held:
                found[job.id] = job.held
                free[job.held] -= 1
        for job in first:
            if not by_number[job.id].type:
                found[job.id] = self._rng.choice([t for t in TYPES if free[t]])
                free[found[job.id]] -= 1
        return found


class Greedy:
    """Gavel's type-aware first come first served: each job in turn takes the fastest type that is left."""

    def types(self, live: list[Work], now_s: float) -> dict[int, str]:
        free = dict.fromkeys(TYPES, EACH)
        found: dict[int, str] = {}
        for job in live[: EACH * len(TYPES)]:
            found[job.number] = max((t for t in TYPES if free[t]), key=lambda t: job.speeds[t])
            free[found[job.number]] -= 1
        return found


class BlindShares:
    """Equal time on every type for every job: who has had least of its share of a type goes there next."""

    def types(self, live: list[Work], now_s: float) -> dict[int, str]:
        free = dict.fromkeys(TYPES, EACH)
        asks = sorted((job.ran_s[t], sum(job.ran_s.values()), job.number, t) for job in live for t in TYPES)
        found: dict[int, str] = {}
        for _, _, number, device_type in asks:
            if number not in found and free[device_type]:
                found[number] = device_type
                free[device_type] -= 1
        return found


class Aware:
    """The product's choice of types, in the same order of jobs as the blind policy that it is compared with."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def types(self, live: list[Work], now_s: float) -> dict[int, str]:
        return assign_types((seen(job) for job in live), dict.fromkeys(TYPES, EACH), self._order)


def seen(job: Work, *, blind: bool = False) -> TypedJob:
    """Return what the scheduler knows of a job; when blind, an hour of any type is an hour of service."""
    speeds = {t: 1 if blind else max(1, round(1000 * job.speeds[t])) for t in TYPES}
    return TypedJob(
        id=job.number,
        speeds=speeds,
        held=job.type,
        submitted_ms=round(1000 * job.arrived_s),
        service_ms=sum(service_of(round(1000 * job.ran_s[t]), speeds[t], speeds) for t in TYPES),
        rest_ms=round(1000 * sum(job.ran_s.values())),
        restart_cost_ms=RESTART_S * 1000,
    )


def simulate(work: list[Work], policy: TypePolicy, window: tuple[int, int] = WINDOW) -> tuple[float, float]:
    """Return the mean completion time of the window's jobs and restarts per job of it."""
    now, rounds, arrived = 0.0, 0, 0
    live: list[Work] = []
    watched = work[window[0] : window[1]]
    while any(not job.done_s for job in watched):
        while arrived < len(work) and work[arrived].arrived_s <= now:
            arrived += 1
            live.append(work[arrived - 1])
        chosen = policy.types(live, now)
        for job in live:
            _run(job, chosen.get(job.number, ""), now)
        live = [job for job in live if not job.done_s]
        now, rounds = now + ROUND_S, rounds + 1
        if rounds > ROUNDS_MAX:
            raise RuntimeError("the window does not end")
    mean = sum(job.done_s - job.arrived_s for job in watched) / len(watched)
    return mean, sum(job.restarts for job in watched) / len(watched)


def _run(job: Work, device_type: str, now: float) -> None:
    if device_type != job.type:
        job.restarts += bool(sum(job.ran_s.values()))
        job.pause_s = RESTART_S if sum(job.ran_s.values()) else 0.0
        job.type = device_type
    if not device_type:
        return
    paused = min(job.pause_s, ROUND_S)
    job.pause_s -= paused
    needed = job.left / job.speeds[device_type]
    spent = min(needed, ROUND_S - paused)
    job.ran_s[device_type] += spent
    job.left -= spent * job.speeds[device_type]
    if needed <= ROUND_S - paused:
        job.done_s = now + paused + spent
        job.type = ""
