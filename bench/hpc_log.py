"""How fast a log of an HPC site is replayed: jobs of many one-CPU replicas, hundreds of them waiting at a time.

The log is made by the model of Lublin and Feitelson, "The workload on parallel supercomputers: modeling the
characteristics of rigid jobs" (JPDC 63, 2003), with its parameters for jobs of all kinds together, and written in the
Standard Workload Format. `penstock sim` replays it under each policy that it compares by default, a process each. The
reference is the light event simulator of bench/queue_sim.py in the same run: first come first served, what does not
fit is passed by; no fold, no gangs, no reservations, no explanations.

    python -m bench.hpc_log [--quick] [--jobs 10000] [--processors 256] [--load 1.06] [--estimates] [--check]

`--check` compares the means of a long log with those that the model's parameters imply. The load is what jobs need of
the processors until the last submit; 0 leaves the model's own. 1.06 is that of `lublin_256`, the log of this model on
which schedulers that learn are compared; the model itself yields 0.8 to 0.9 on 256 processors.
"""

import argparse
import math
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from bench.harness import result
from bench.queue_sim import Job, Ordered, Pool
from bench.queue_sim import replay as replay_light
from bench.replay import run

LIMIT_CPU_S = 30.0
"""For each policy, with the sizes by default."""
JOBS, QUICK_JOBS, CHECKED_JOBS, PROCESSORS, LOAD = 10_000, 1_000, 100_000, 256, 1.06
POLICIES = ("fifo+easy", "fair_share+easy", "shortest_predicted+easy+learned")
"""What `penstock sim` compares where no policy is named."""

SERIAL, POWER_OF_TWO = 0.244, 0.576
"""Shares of jobs with one processor, and of those whose number of processors is drawn as a power of two."""
LOW, MEDIUM_BELOW_HIGH, LOWER_SHARE = 0.8, 2.5, 0.86
"""Sizes: log2 is uniform in two stages, from `LOW` to a medium below the highest, and from there to the highest."""
SHORT, LONG = (4.2, 0.94), (312.0, 0.03)
"""Run times: the natural logarithm of seconds is gamma distributed (shape, scale), in one of two ways."""
SHORT_SLOPE, SHORT_BASE = -0.0054, 0.78
"""The share of the short ones falls with the number of processors."""
GAP, ALL_DAY = (10.2303, 0.4871), 1.0225
"""Time between submits: its logarithm is gamma distributed in the rush hours; the shape for the whole day is higher."""
CYCLE, CYCLE_BEGINS = (8.1737, 3.9631), 11
"""Submits over the day: gamma distributed over half hours, from the eleventh on."""
RUN_LOG_MAX, GAP_LOG_MAX = 12.0, 13.0
HALF_HOURS, HALF_HOUR_S = 48, 1800


class LogJob(NamedTuple):
    """One job of the log; times in seconds."""

    submit_s: int
    run_s: int
    processors: int


def jobs_of(seed: int, count: int, processors: int) -> list[LogJob]:
    """Return `count` jobs, by submit, for a machine with so many processors."""
    draw = random.Random(seed)
    found = []
    for submit_s in islice(_submits(draw), count):
        size = _processors(draw, math.log2(processors))
        found.append(LogJob(round(submit_s), _run_s(draw, size), size))
    return found


def offered_load(jobs: Sequence[LogJob], processors: int) -> float:
    """Return the processor time that the jobs need, as a share of what there is until the last submit."""
    return sum(job.run_s * job.processors for job in jobs) / (processors * max(1, jobs[-1].submit_s))


def with_load(jobs: Sequence[LogJob], processors: int, load: float) -> list[LogJob]:
    """Return the jobs submitted so much faster, or slower, that they offer this load."""
    times = load / offered_load(jobs, processors)
    return [job._replace(submit_s=round(job.submit_s / times)) for job in jobs]


def _processors(draw: random.Random, high: float) -> int:
    kind = draw.random()
    if kind <= SERIAL:
        return 1
    medium = high - MEDIUM_BELOW_HIGH
    size = draw.uniform(LOW, medium) if draw.random() <= LOWER_SHARE else draw.uniform(medium, high)
    return round(2 ** (round(size) if kind <= SERIAL + POWER_OF_TWO else size))


def _run_s(draw: random.Random, processors: int) -> int:
    short = min(1.0, max(0.0, SHORT_SLOPE * processors + SHORT_BASE))
    while True:
        log_s = draw.gammavariate(*(SHORT if draw.random() <= short else LONG))
        if log_s <= RUN_LOG_MAX:
            return max(1, int(math.exp(log_s)))


def _submits(draw: random.Random) -> Iterator[float]:
    """Yield seconds from midnight on. A gap is an amount of rush-hour time; other half hours take less of it away."""
    weights = _weights()
    shape, scale = GAP[0] * ALL_DAY, GAP[1]
    bucket, spent, days_s = 0, 0.0, 0.0
    while True:
        log_s = draw.gammavariate(shape, scale)
        if log_s > GAP_LOG_MAX:
            continue
        spent += math.exp(log_s) / HALF_HOUR_S
        while spent > weights[bucket]:
            spent -= weights[bucket]
            bucket, days_s = (bucket + 1) % HALF_HOURS, days_s + HALF_HOUR_S
        yield days_s + HALF_HOUR_S * spent / weights[bucket]


def _weights() -> list[float]:
    """Return how many submits each half hour of the day has, 1 on average."""
    weights = [0.0] * HALF_HOURS
    for i in range(CYCLE_BEGINS, CYCLE_BEGINS + HALF_HOURS):
        weights[(i - 1) % HALF_HOURS] = gamma_cdf(i + 0.5, *CYCLE) - gamma_cdf(i - 0.5, *CYCLE)
    mean = sum(weights) / HALF_HOURS
    return [weight / mean for weight in weights]


def gamma_cdf(x: float, shape: float, scale: float) -> float:
    """Return the share of a gamma distribution up to `x`. Source: the series of Abramowitz and Stegun, 6.5.29."""
    x /= scale
    term = total = 1 / shape
    at = shape  # all terms are positive: nothing cancels out
    while term > total * 1e-12:
        at += 1
        term *= x / at
        total += term
    return total * math.exp(shape * math.log(x) - x - math.lgamma(shape))


def write(path: Path, jobs: Sequence[LogJob], processors: int, *, estimates: bool) -> None:
    """Write a log in the Standard Workload Format; with `estimates` each job asks for the time it runs."""
    lines = [f"; Version: 2\n; MaxNodes: {processors}\n; MaxProcs: {processors}\n"]
    for number, job in enumerate(jobs, 1):
        asked = f"{job.processors} {job.run_s}" if estimates else f"{job.processors} -1"
        lines.append(f"{number} {job.submit_s} -1 {job.run_s} {job.processors} -1 -1 {asked} -1 1 1 1 1 1 1 -1 -1\n")
    path.write_text("".join(lines), encoding="ascii")


def light_s(jobs: Sequence[LogJob], processors: int) -> float:
    """Return the CPU seconds of the light simulator."""
    light = [Job(number, job.submit_s, job.run_s, job.processors) for number, job in enumerate(jobs)]
    begun = time.process_time()
    replay_light(light, Pool(processors, 1), Ordered(lambda job: job.arrival_s, blocks=False))
    return time.process_time() - begun


def check(seed: int) -> None:
    """Print means of a long log of the model, each with the one that its parameters imply."""
    jobs = jobs_of(seed, CHECKED_JOBS, PROCESSORS)
    gaps = [max(1, later.submit_s - job.submit_s) for job, later in pairwise(jobs)]
    serial = [job for job in jobs if job.processors == 1]
    log2 = math.log2(PROCESSORS)
    medium = log2 - MEDIUM_BELOW_HIGH
    size = LOWER_SHARE * (LOW + medium) / 2 + (1 - LOWER_SHARE) * (medium + log2) / 2
    short = SHORT_BASE + SHORT_SLOPE
    implied = short * math.prod(SHORT) + (1 - short) * math.prod(LONG)
    denser = sum(weight * math.log(weight) for weight in _weights()) / HALF_HOURS  # most are submitted in rush hours
    parallel = [math.log2(job.processors) for job in jobs if job.processors > 1]
    for metric, value, known in (
        ("serial_share", len(serial) / len(jobs), SERIAL),
        ("parallel_log2_size", sum(parallel) / len(parallel), size),
        ("serial_log_run_s", sum(math.log(job.run_s) for job in serial) / len(serial), implied),
        ("log_gap_s", sum(map(math.log, gaps)) / len(gaps), GAP[0] * ALL_DAY * GAP[1] - denser),
    ):
        result(metric, value, "", "same", None, {"name": "implied by the parameters", "value": round(known, 3)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_JOBS:,} jobs under the first policy alone")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--processors", type=int, default=PROCESSORS, help="nodes of one processor each")
    parser.add_argument("--load", type=float, default=LOAD, help="offered load; 0: the model's own")
    parser.add_argument("--estimates", action="store_true", help="each job asks for the time it runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare means of the model, and replay nothing")
    given = parser.parse_args()
    if given.check:
        check(given.seed)
        return
    jobs = jobs_of(given.seed, QUICK_JOBS if given.quick else given.jobs, given.processors)
    if given.load:
        jobs = with_load(jobs, given.processors, given.load)
    light = {"name": "light simulator, CPU s", "value": round(light_s(jobs, given.processors), 2)}
    usual = (given.jobs, given.processors, given.quick) == (JOBS, PROCESSORS, False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lublin.swf")
        write(path, jobs, given.processors, estimates=given.estimates)
        for policy in POLICIES[:1] if given.quick else POLICIES:
            _, cpu_s, peak_mb, events = run(str(path), policy)
            name = policy.partition("+")[0]
            result(f"hpc_log_{name}_cpu_s", cpu_s, "s", "lower", LIMIT_CPU_S if usual else None, light)
            result(f"hpc_log_{name}_events_per_cpu_s", events / cpu_s, "events/s", "higher", None)
            result(f"hpc_log_{name}_rss_mb", peak_mb, "MB", "lower", None)


if __name__ == "__main__":
    main()
