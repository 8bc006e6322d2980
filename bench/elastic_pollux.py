"""A simulated cluster of 16 nodes x 4 devices that trains the jobs of the Pollux workloads from measured profiles.

The rules are those of the published simulator (adaptdl, branch osdi21-artifact), written anew: time in rounds of 60 s,
a pause of 30 s at every change of placement, step times interpolated over measured placements and batch sizes,
progress by statistical efficiency, an epoch ends at the progress of the slowest validation run, batch sizes are chosen
anew at every epoch. Jobs show a policy what a live job would report and nothing else.
"""

import csv
import gzip
import math
from functools import cache
from pathlib import Path
from typing import Protocol

import msgspec
import numpy
from scipy.interpolate import LinearNDInterpolator  # type: ignore[import-untyped]

from penstock.core.elastic.goodput import BatchRange, GoodputModel, GradientNoise, StepModel, StepReport, fit_step_model

NODES, DEVICES, ROUND_S, RESCALE_S = 16, 4, 60, 30
EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
LOCAL_MAX = {"yolov3": 8}
FIXED_BATCH = {"ncf": 32_768}
"""The published runs of Pollux pin this application to one device and its largest batch."""
TIME_MAX_S = 1_200_000
LEVEL_DEVICE_S = 16 * 3600
"""Attained service at which a job comes into the second queue of Tiresias."""
Placement = tuple[int, ...]


def rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(file))


class Run(msgspec.Struct):
    """A measured training at one global batch size, by epoch."""

    progress: list[float]
    sqr: list[float]
    var: list[float]


class Profile:
    """Measured behaviour of one application: the ground truth that no policy sees."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._runs = {
            int(path.name.split("-")[1].split(".")[0]): _run(path)
            for path in sorted(folder.glob("validation-*.csv.gz"))
        }
        self._sizes = sorted(self._runs)
        self._measured: dict[Placement, list[tuple[int, float, float]]] = {}
        for row in rows(folder / "placements.csv.gz"):
            placed = tuple(int(digit) for digit in row["placement"])
            times = (int(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"]))
            self._measured.setdefault(placed, []).append(times)
        self._scalability = rows(folder / "scalability.csv.gz")
        self.epochs = EPOCHS[self.name]
        local = [batch for times in self._measured.values() for batch, _, _ in times]
        self.batches = BatchRange(
            initial=self._sizes[0],
            largest=self._sizes[-1],
            local_min=min(local),
            local_max=LOCAL_MAX.get(self.name, max(local)),
        )
        self.step_times = cache(self._step_times)
        self._elsewhere = cache(self._interpolator)

    def goal(self, epoch: int) -> float:
        """Return the progress at which `epoch` epochs are over."""
        return 0.0 if epoch == 0 else min(run.progress[epoch - 1] for run in self._runs.values())

    def noise(self, batch: int, epoch: int) -> GradientNoise:
        """Return the gradient statistics during an epoch, interpolated between measured batch sizes."""
        low = max(size for size in self._sizes if size <= batch)
        high = min(size for size in self._sizes if size >= batch)
        share = 0.0 if low == high else (batch - low) / (high - low)
        one, two = self._runs[low], self._runs[high]
        return GradientNoise(
            (1 - share) * one.sqr[epoch] + share * two.sqr[epoch], (1 - share) * one.var[epoch] + share * two.var[epoch]
        )

    def _step_times(self, placed: Placement, local_batch: int) -> tuple[float, float]:
        """Return (step, sync) in seconds; the order of nodes around the ring does not matter, their sequence does."""
        least = min(placed[i:] + placed[:i] for i in range(len(placed)))
        if least in self._measured:
            times = self._measured[least]
            sizes = [t[0] for t in times]
            if not sizes[0] <= local_batch <= sizes[-1]:
                raise ValueError(f"{self.name} {placed}: batch {local_batch} was not measured")
            step, sync = (float(numpy.interp(local_batch, sizes, [t[i] for t in times])) for i in (1, 2))
        else:
            found = self._elsewhere()([min(len(placed), NODES), sum(placed), local_batch])[0]
            step, sync = float(found[0]), float(found[1])
        if math.isnan(step):
            raise ValueError(f"{self.name} {placed}: batch {local_batch} is outside what was measured")
        return step, sync

    def _interpolator(self) -> LinearNDInterpolator:
        means: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
        for placed, times in self._measured.items():
            for batch, step, sync in times:
                means.setdefault((len(placed), sum(placed), batch), []).append((step, sync))
        points = {key: numpy.mean(values, axis=0) for key, values in sorted(means.items())}
        at = [*points] + [(int(r["num_nodes"]), int(r["num_replicas"]), int(r["local_bsz"])) for r in self._scalability]
        values = [*points.values()] + [(float(r["step_time"]), float(r["sync_time"])) for r in self._scalability]
        return LinearNDInterpolator(numpy.array(at, float), numpy.array(values, float))


def _run(path: Path) -> Run:
    table = rows(path)
    return Run(
        [float(r["progress"]) for r in table],
        [float(r["grad_sqr"]) for r in table],
        [float(r["grad_var"]) for r in table],
    )


class Asked(msgspec.Struct, frozen=True):
    """One line of a workload file."""

    name: str
    time_s: int
    application: str
    replicas: int
    batch: int


def workload(folder: Path, number: int) -> list[Asked]:
    return [
        Asked(r["name"], int(r["time"]), r["application"], int(r["num_replicas"]), int(r["batch_size"]))
        for r in rows(folder / "workloads" / f"workload-{number}.csv.gz")
    ]


def published(folder: Path) -> dict[tuple[str, int], float]:
    """Return the authors' mean completion times (s) by (setting, workload)."""
    table = rows(folder / "published_avg_jct.csv.gz")
    return {(row["setting"], int(row["workload"].split("-")[1])): float(row["avg_jct_s"]) for row in table}


class Seen(msgspec.Struct, frozen=True):
    """All that a policy gets to know of a job: what it was submitted with, what it holds, what it has reported."""

    number: int
    asked_replicas: int
    batches: BatchRange
    nodes: tuple[int, ...]
    reports: tuple[StepReport, ...]
    noise: GradientNoise | None
    age_s: int
    service_s: float
    restarts: int


class Training:
    """A job in the simulated cluster: its true progress, and what it has reported so far."""

    def __init__(self, number: int, asked: Asked, profile: Profile, *, tuned: bool, consolidated: bool = False) -> None:
        self.number, self.asked, self.profile = number, asked, profile
        self._consolidated = consolidated
        fixed = asked.batch if tuned else FIXED_BATCH.get(asked.application, 0)
        self.batches = msgspec.structs.replace(profile.batches, fixed=fixed)
        self.nodes: tuple[int, ...] = ()
        """One entry a replica: the node that it is on."""
        self.placed: Placement = ()
        self.local, self.extra = 0, 0
        self.reports: dict[tuple[int, int, int], StepReport] = {}
        self.noise: GradientNoise | None = None
        self.epoch, self.progress = 0, 0.0
        self.pause_s = 0.0
        self.clock_s = 0.0
        self.service_s = 0.0
        self.done_s: float | None = None
        self.starts = 0
        self._fitted: tuple[int, StepModel] | None = None

    def seen(self, now_s: int) -> Seen:
        """Return what the job shows: of the gradient noise, only the newest reading."""
        reports, restarts = tuple(self.reports.values()), max(0, self.starts - 1)
        age_s = now_s - self.asked.time_s
        return Seen(
            self.number,
            self.asked.replicas,
            self.batches,
            self.nodes,
            reports,
            self.noise,
            age_s,
            self.service_s,
            restarts,
        )

    def reallocate(self, nodes: tuple[int, ...]) -> None:
        self.nodes = nodes
        if self._consolidated:
            nodes = tuple(i // DEVICES for i in range(len(nodes)))
        counts: list[int] = []
        for i, node in enumerate(nodes):
            if i and node == nodes[i - 1]:
                counts[-1] += 1
            else:
                counts.append(1)
        self.placed = tuple(counts)
        if nodes:
            self._choose_batch()
            self.pause_s = RESCALE_S
            self.starts += 1
        else:
            self.local = 0

    def _choose_batch(self) -> None:
        """As the job's own agent does, from its own reports only."""
        limits, replicas = self.batches, sum(self.placed)
        if limits.fixed or self.noise is None:
            batch = limits.fixed or max(limits.initial, limits.local_min * replicas)
            each = math.ceil(batch / replicas - 1e-8)
            self.extra = math.ceil(each / limits.local_max - 1e-8) - 1
            if replicas == 1 and batch > limits.initial:
                self.extra = max(1, self.extra)
            self.local = math.ceil(each / (self.extra + 1) - 1e-8)
        else:
            if self._fitted is None or self._fitted[0] != len(self.reports):
                self._fitted = (len(self.reports), fit_step_model(self.reports.values()))
            choice, _ = GoodputModel(self._fitted[1], self.noise, limits).best(replicas, len(self.placed))
            self.local, self.extra = choice.local_batch, choice.accumulation_steps
        self.local = min(self.local, limits.largest // (replicas * (self.extra + 1)))

    def step(self, seconds: float) -> None:
        if not self.placed or self.done_s is not None:
            self.clock_s += seconds
            return
        paused = min(self.pause_s, seconds)
        self._spend(paused)
        self.pause_s -= paused
        seconds -= paused
        while seconds > 0 and self.done_s is None:
            rate = self._measure()
            goal = self.profile.goal(self.epoch + 1)
            if self.progress + rate * seconds < goal:
                self.progress += rate * seconds
                self._spend(seconds)
                seconds = 0
            else:
                self.epoch += 1
                spent = round((goal - self.progress) / rate)
                self.progress = goal
                self._spend(spent)
                seconds -= spent
                if self.epoch > self.profile.epochs - 1:
                    self.done_s = self.clock_s
            self._choose_batch()
        self.clock_s += seconds

    def _spend(self, seconds: float) -> None:
        self.clock_s += seconds
        self.service_s += seconds * sum(self.placed)

    def _measure(self) -> float:
        """Report the present configuration and return true progress a second."""
        replicas = sum(self.placed)
        batch = replicas * self.local * (self.extra + 1)
        step, sync = self.profile.step_times(self.placed, self.local)
        self.noise = self.profile.noise(batch, self.epoch)
        key = (len(self.placed), replicas, self.local)
        if key not in self.reports:
            self.reports[key] = StepReport(*key, round(step * 1e6), round(sync * 1e6))
        scale = batch / self.batches.initial
        gain = (self.noise.var + self.noise.sqr) / (self.noise.var / scale + self.noise.sqr)
        return gain / (step + (step - sync) * self.extra)


class Policy(Protocol):
    def decide(self, jobs: list[Seen], now_s: int) -> dict[int, tuple[int, ...]]:
        """Return the node of each replica of each job, by job number; a job that is left out waits."""
        ...


class Outcome(msgspec.Struct):
    jct_s: dict[str, float]
    restarts: float
    """Mean over jobs."""
    rounds: int
    fairness: dict[str, float] = msgspec.field(default_factory=dict)
    """Finish-time-fairness ratio by job: its completion time over that on an equal share of its own."""

    @property
    def mean_s(self) -> float:
        return sum(self.jct_s.values()) / len(self.jct_s)


def simulate(
    asked: list[Asked],
    profiles: dict[str, Profile],
    policy: Policy,
    *,
    tuned: bool,
    fairness: bool = False,
    round_s: int = ROUND_S,
    consolidated: bool = False,
) -> Outcome:
    """Run all jobs to their end, one decision a round.

    Args:
        consolidated: jobs are as fast as on whole nodes, wherever they are.
    """
    jobs = [
        Training(i, a, profiles[a.application], tuned=tuned, consolidated=consolidated) for i, a in enumerate(asked)
    ]
    crowd: dict[int, list[int]] = {job.number: [] for job in jobs}
    now = rounds = 0
    while any(job.done_s is None for job in jobs):
        for job in jobs:
            job.step(round_s)
        now += round_s
        rounds += 1
        if now > TIME_MAX_S:
            raise RuntimeError(f"{sum(job.done_s is None for job in jobs)} jobs do not end")
        live = [job for job in jobs if job.done_s is None and job.asked.time_s <= now]
        if live:
            _apply(live, policy.decide([job.seen(now) for job in live], now))
        for job in live:
            crowd[job.number].append(len(live))
    times = {job.asked.name: job.done_s - job.asked.time_s for job in jobs if job.done_s is not None}
    outcome = Outcome(times, sum(max(0, job.starts - 1) for job in jobs) / len(jobs), rounds)
    if fairness:
        for job in jobs:
            seen = crowd[job.number] or [1]
            alone_s = _alone(job, max(1, round(NODES * DEVICES * len(seen) / sum(seen))))
            outcome.fairness[job.asked.name] = times[job.asked.name] / alone_s
    return outcome


def _apply(live: list[Training], decided: dict[int, tuple[int, ...]]) -> None:
    used = [0] * NODES
    for job in live:
        nodes = decided.get(job.number, ())
        for node in nodes:
            used[node] += 1
        if nodes != job.nodes:
            job.reallocate(nodes)
    if max(used) > DEVICES:
        raise RuntimeError("a node was given more replicas than it has devices")


def _alone(job: Training, share: int) -> float:
    """Return how long the job takes on `share` devices of its own from the first round after its submission on."""
    limits = job.batches
    share = 1 if limits.fixed else min(share, limits.largest // limits.local_min)
    alone = Training(job.number, job.asked, job.profile, tuned=False)
    alone.reallocate(tuple(i // DEVICES for i in range(share)))
    while alone.done_s is None:
        alone.step(ROUND_S)
    waited = -job.asked.time_s % ROUND_S
    return waited + alone.done_s


class Attained:
    """Least attained service first, with the user's size and batch, on spread places.

    As it is, Tiresias with the rules of the published runs (NSDI 2019): two queues, and whoever comes first in order
    takes the place of whoever comes later. The options make these the rules of the product's queue policy.
    """

    def __init__(self, *, levels_double: bool = False, lower_level_only: bool = False) -> None:
        self._level_max = 64 if levels_double else 1
        self._lower_level_only = lower_level_only

    def decide(self, jobs: list[Seen], now_s: int) -> dict[int, tuple[int, ...]]:
        left, kept = NODES * DEVICES, {}
        for job in sorted(jobs, key=self._order):
            if job.asked_replicas <= left:
                left -= job.asked_replicas
                kept[job.number] = job.nodes
        free = [DEVICES] * NODES
        for nodes in kept.values():
            for node in nodes:
                free[node] -= 1
        asked = {job.number: job.asked_replicas for job in jobs}
        return {number: nodes or _spread(asked[number], free) for number, nodes in kept.items()}

    def _order(self, job: Seen) -> tuple[int, bool, int]:
        level = (int(job.service_s) // LEVEL_DEVICE_S).bit_length()
        return min(level, self._level_max), self._lower_level_only and not job.nodes, job.number


def _spread(replicas: int, free: list[int]) -> tuple[int, ...]:
    """Return nodes for `replicas`, from the emptiest one on, and take them."""
    placed: list[int] = []
    while len(placed) < replicas:
        node = max(range(NODES), key=lambda n: (free[n], -n))
        count = min(free[node], replicas - len(placed))
        placed += [node] * count
        free[node] -= count
    return tuple(placed)
