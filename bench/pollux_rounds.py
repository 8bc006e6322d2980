"""The published rounds of Tiresias on Pollux workloads, with the programs of `penstock sim`: a check of these alone.

The product decides at events, not in rounds of 60 s, and knows no rule that is Tiresias as published (NSDI 2019: two
queues; whoever comes first in order takes the place of whoever comes later). So the rule and the rounds are here, and
nothing of them runs live; speeds and progress are those that replays use (`traces/training.py`). Two things are done as
in the published simulator (adaptdl, branch osdi21-artifact), which replays do otherwise: each epoch takes whole
seconds, and placements that were not measured lie on a Delaunay triangulation of those that were.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import fmean

import msgspec
import numpy
from scipy.interpolate import LinearNDInterpolator  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from penstock.traces import Trace, TraceJob
from penstock.traces.profiles import Placement, TraceProfile, consolidated
from penstock.traces.training import FULL_SPEED, Training

NODES, DEVICES, ROUND_S, PAUSE_S = 16, 4, 60, 30
LEVEL_DEVICE_S = 16 * 3600
"""Attained service at which a job comes into the second queue of Tiresias."""
Nodes = tuple[int, ...]
"""The node of each replica."""


def published(folder: Path) -> dict[tuple[str, int], float]:
    """Return the authors' mean completion times (s) by (setting, workload)."""
    with gzip.open(folder / "published_avg_jct.csv.gz", "rt") as file:
        table = list(csv.DictReader(file))
    return {(row["setting"], int(row["workload"].split("-")[1])): float(row["avg_jct_s"]) for row in table}


class Rigid:
    """A job at its tuned size and batch, moved in rounds; times in seconds."""

    def __init__(self, number: int, job: TraceJob, trains: Training, *, whole_nodes: bool) -> None:
        self.number, self.submitted_s, self.replicas = number, job.submit_ms // 1000, job.spec.ask.replicas
        self._trains, self._whole_nodes = trains, whole_nodes
        self._batch = trains.own_batch(self.replicas)
        self.nodes: Nodes = ()
        self._placement: Placement = ()
        self._done, self._pause_s, self._clock_s = 0.0, 0.0, 0.0
        self.service_s = 0.0
        self.ended_s: float | None = None

    def place(self, nodes: Nodes) -> None:
        """Go on on these nodes, () for none, after a pause."""
        self.nodes = nodes
        alike = [sum(1 for _ in ranks) for _, ranks in groupby(nodes)]
        self._placement = consolidated(len(nodes)) if self._whole_nodes else tuple(alike)
        self._pause_s = PAUSE_S if nodes else 0

    def advance(self, seconds: float) -> None:
        if not self.nodes or self.ended_s is not None:
            self._clock_s += seconds
            return
        paused = min(self._pause_s, seconds)
        self._pause_s -= paused
        self._spend(paused)
        seconds -= paused
        while seconds > 0 and self.ended_s is None:
            seconds -= self._train(seconds)
        self._clock_s += max(0.0, seconds) if self.ended_s is not None else 0.0

    def _train(self, seconds: float) -> float:
        """Train for at most so long, within one epoch; return how long that took."""
        ends_ms = self._trains.ends_ms
        epoch = self._trains.epoch(int(self._done))
        speed = self._trains.pace(self._placement, self._batch, epoch).speed / FULL_SPEED
        left_s = (ends_ms[epoch] - self._done) / 1000 / speed
        if left_s > seconds:
            self._done += 1000 * seconds * speed
            self._spend(seconds)
            return seconds
        spent = round(left_s)
        self._done = ends_ms[epoch]
        self._spend(spent)
        if epoch == len(ends_ms) - 1:
            self.ended_s = self._clock_s
        return spent

    def _spend(self, seconds: float) -> None:
        self._clock_s += seconds
        self.service_s += seconds * len(self.nodes)


class Tiresias(msgspec.Struct, frozen=True):
    """Least attained service first, at the user's size, on spread places.

    As it is with the rules of the published runs. The options make these the rules of the product's queue policy.
    """

    levels_double: bool = False
    lower_level_only: bool = False

    def decide(self, jobs: Sequence[Rigid]) -> dict[int, Nodes]:
        """Return the nodes of each job by its number; a job that is left out waits."""
        left, kept = NODES * DEVICES, dict[int, Rigid]()
        for job in sorted(jobs, key=self._order):
            if job.replicas <= left:
                left -= job.replicas
                kept[job.number] = job
        free = [DEVICES] * NODES
        for node, count in Counter(node for job in kept.values() for node in job.nodes).items():
            free[node] -= count
        return {number: job.nodes or _spread(job.replicas, free) for number, job in kept.items()}

    def _order(self, job: Rigid) -> tuple[int, bool, int]:
        level = (int(job.service_s) // LEVEL_DEVICE_S).bit_length()
        return min(level, 64 if self.levels_double else 1), self.lower_level_only and not job.nodes, job.number


def _spread(replicas: int, free: list[int]) -> Nodes:
    """Return nodes for `replicas`, from the emptiest one on, and take them."""
    placed: list[int] = []
    while len(placed) < replicas:
        node = max(range(NODES), key=lambda n: (free[n], -n))
        count = min(free[node], replicas - len(placed))
        placed += [node] * count
        free[node] -= count
    return tuple(placed)


def mean_s(trace: Trace, rule: Tiresias, *, round_s: int = ROUND_S, whole_nodes: bool = False) -> float:
    """Return the mean completion of the jobs of a trace at their tuned sizes.

    Args:
        whole_nodes: jobs are as fast as on whole nodes, wherever they are.
    """
    with threadpool_limits(1):  # many tiny systems: threads only wait for each other
        programs = {id(job.work.trains): _triangulated(job.work.trains) for job in trace.jobs if job.work.trains}
        jobs = [
            Rigid(number, job, programs[id(job.work.trains)], whole_nodes=whole_nodes)
            for number, job in enumerate(trace.jobs)
        ]
        now_s = 0
        while any(job.ended_s is None for job in jobs):
            for job in jobs:
                job.advance(round_s)
            now_s += round_s
            live = [job for job in jobs if job.ended_s is None and job.submitted_s <= now_s]
            decided = rule.decide(live)
            for job in live:
                nodes = decided.get(job.number, ())
                if nodes != job.nodes:
                    job.place(nodes)
    return fmean(job.ended_s - job.submitted_s for job in jobs if job.ended_s is not None)


def _triangulated(trains: Training) -> Training:
    """Return the program with times between measured placements as the published simulator has them."""
    return Training(_Triangulated(trains.profile), trains.replicas, trains.batch, fixed=True)


class _Triangulated(TraceProfile):
    """A profile whose times elsewhere lie on a Delaunay triangulation of nodes, replicas and batch of a device."""

    def __init__(self, profile: TraceProfile) -> None:
        self.__dict__.update(profile.__dict__)
        self.step_times = cache(self._step_times)
        points = {
            (*shape, batch): (step, sync) for shape, times in profile.shapes.items() for batch, step, sync in times
        }
        self._between = LinearNDInterpolator(
            numpy.array(list(points), float), numpy.array(list(points.values()), float)
        )

    def _of_shape(self, nodes: int, replicas: int, local_batch: int) -> tuple[float, float]:
        step, sync = self._between([min(nodes, NODES), replicas, local_batch])[0]
        return float(step), float(sync)
