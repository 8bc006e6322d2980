"""How good the elastic allocator and the choice of device types are, on published traces, in simulated time.

Elastic: workloads 1 to 4 of Pollux on 64 devices against the completion times that its authors published. The
simulator is checked first: with the published baseline's rules it has to give the published figures.
Device models: `bench.elastic_models`, through the replay of the real core. PENSTOCK_TRACES names the folder of the
traces.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import fmean

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from bench import elastic_pollux as pollux
from bench.elastic_models import SEEDS, SEEDS_QUICK, TABLE, models_part
from bench.harness import result
from penstock.core.elastic.allocate import allocate
from penstock.core.elastic.goodput import GradientNoise
from penstock.core.elastic.speedup import AmdahlCurve, SpeedCurve, goodput_curve
from penstock.core.elastic.worth import ElasticJob, explored_maximum, served_weight_milli
from penstock.report.svg import num, rect, text

WORKLOADS, WORKLOADS_QUICK = (1, 2, 3, 4), (4,)
OWN_NOISE = 1.05
"""Runs of the published policy differ by this much, its authors say: one workload alone is held to no less."""
MEAN_LIMIT_S, ROUND_LIMIT_MS = 2_580, 50


class Elastic:
    """The product's allocator, fed with what jobs have reported; measures its own CPU time, fits included."""

    def __init__(self) -> None:
        self._curves: dict[int, tuple[tuple[int, GradientNoise], SpeedCurve]] = {}
        self.cpu_ms: list[float] = []

    def decide(self, jobs: list[pollux.Seen], now_s: int) -> dict[int, tuple[int, ...]]:
        begun = time.process_time()
        free = dict.fromkeys(range(pollux.NODES), pollux.DEVICES)
        for job in jobs:
            for node in job.nodes:
                free[node] -= 1
        found = allocate([self._job(job) for job in jobs], {f"n{node:02}": count for node, count in free.items()})
        self.cpu_ms.append(1000 * (time.process_time() - begun))
        return {
            number: tuple(int(node[1:]) for node, count in places for _ in range(count))
            for number, places in found.places.items()
        }

    def _job(self, job: pollux.Seen) -> ElasticJob:
        held: dict[str, int] = {}
        for node in job.nodes:
            held[f"n{node:02}"] = held.get(f"n{node:02}", 0) + 1
        # The published runs hold the application with a fixed batch to one device; sizes end where batches end.
        most = (
            1 if job.batches.fixed else min(pollux.NODES * pollux.DEVICES, job.batches.largest // job.batches.local_min)
        )
        seen = max((report.replicas for report in job.reports), default=0)
        return ElasticJob(
            id=job.number,
            minimum=1,
            maximum=explored_maximum(most, seen),
            curve=self._curve(job),
            held=tuple(sorted(held.items())),
            weight_milli=served_weight_milli(round(1000 * job.service_s)),
            rest_ms=1000 * max(1, job.age_s - pollux.RESCALE_S * job.restarts),
            restart_cost_ms=1000 * pollux.RESCALE_S,
            may_pause=True,
        )

    def _curve(self, job: pollux.Seen) -> SpeedCurve:
        if job.noise is None:
            return AmdahlCurve()
        key = (len(job.reports), job.noise)
        if job.number not in self._curves or self._curves[job.number][0] != key:
            self._curves[job.number] = (key, goodput_curve(job.reports, job.noise, job.batches) or AmdahlCurve())
        return self._curves[job.number][1]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


Bars = dict[str, dict[str, float]]


def elastic_part(folder: Path, numbers: tuple[int, ...], bars: Bars) -> None:
    """Check the simulator against the published baseline, then measure the allocator."""
    profiles = {name: pollux.Profile(folder / "profiles" / name) for name in pollux.EPOCHS}
    theirs = pollux.published(folder)
    cpu_ms: list[float] = []
    means: list[float] = []
    fairness: list[float] = []
    restarts, off = [], 0.0
    for number in numbers:
        asked = pollux.workload(folder, number)
        check = pollux.simulate(asked, profiles, pollux.Attained(), tuned=True).mean_s
        off = max(off, 100 * abs(check / theirs["tiresias-1.0", number] - 1))
        policy = Elastic()
        found = pollux.simulate(asked, profiles, policy, tuned=False, fairness=True)
        cpu_ms += policy.cpu_ms
        means.append(found.mean_s)
        restarts.append(found.restarts)
        fairness += found.fairness.values()
        reference = {"name": "Pollux, published", "value": theirs["avoid", number]}
        result(
            f"pollux_workload_{number}_jct_s",
            found.mean_s,
            "s",
            "lower",
            round(theirs["avoid", number] * OWN_NOISE),
            reference,
        )
        say(
            f"workload {number}: mean {found.mean_s:.0f} s; baseline {check:.1f} s in our simulator, "
            f"{theirs['tiresias-1.0', number]:.1f} s published; {found.rounds} rounds"
        )
        bars[f"workload {number}"] = {
            "Optimus, published": theirs["optimus-1.0", number],
            "Tiresias, published": theirs["tiresias-1.0", number],
            "Pollux, published": theirs["avoid", number],
            "Penstock": found.mean_s,
        }
    mean_s = round(fmean(theirs["avoid", n] for n in numbers), 1)
    reference = {"name": "Pollux, published", "value": mean_s}
    limit = MEAN_LIMIT_S if numbers == WORKLOADS else mean_s
    result("pollux_mean_jct_s", fmean(means), "s", "lower", limit, reference)
    ga = {"name": "Pollux' genetic algorithm, CPU ms a round", "value": 2_100}
    result("round_p95_ms", percentile(cpu_ms, 0.95), "ms", "lower", ROUND_LIMIT_MS, ga)
    result(
        "restarts_per_job",
        fmean(restarts),
        "restarts",
        "lower",
        5.1,
        {"name": "Pollux, by Sia's authors", "value": 5.1},
    )
    worst = {"name": "Pollux, by Sia's authors", "value": 4.6}
    result("finish_time_fairness_worst", max(fairness), "ratio", "lower", 4.6, worst)
    unfair = {"name": "Pollux, by Sia's authors", "value": 28}
    result("unfair_jobs_pct", 100 * sum(r > 1 for r in fairness) / len(fairness), "%", "lower", 28, unfair)
    result("simulator_off_pct", off, "%", "lower", 0.1, {"name": "Tiresias+Tuned, published", "value": 0})


COLOURS = {
    "Optimus, published": "#b8bcc4",
    "Tiresias, published": "#8f96a3",
    "Pollux, published": "#5d6675",
    "Penstock": "#0b7a75",
    "model-blind": "#8f96a3",
    "model-aware": "#0b7a75",
}


def picture(bars: Bars) -> str:
    """Return a standalone SVG: mean completion times as bars, each group on a scale of its own."""
    parts, y, width = [], 34.0, 560.0
    parts.append(text(16, 22, "Mean job completion time (shorter is better)", "head"))
    for group, values in bars.items():
        longest = max(values.values())
        parts.append(text(16, y + 15, group, "group"))
        for name, value in values.items():
            length = width * value / longest
            parts.append(rect(290, y + 4, length, 14, "bar", f' fill="{COLOURS[name]}"'))
            parts.append(text(284, y + 15, name, "", "end"))
            parts.append(text(296 + length, y + 15, f"{value:,.0f} s"))
            y += 20
        y += 10
    style = "<style>text{font:12px sans-serif}.head{font:bold 14px sans-serif}.group{font-weight:bold}</style>"
    box = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {num(y + 6)}" role="img"'
    return f'<svg {box}>{style}<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one workload and one seed")
    parser.add_argument("--picture", type=Path, help="write the comparison as an SVG")
    chosen = parser.parse_args()
    if "PENSTOCK_TRACES" not in os.environ:
        raise SystemExit("PENSTOCK_TRACES is not set: the folder that holds the traces")
    traces = Path(os.environ["PENSTOCK_TRACES"])
    bars: Bars = {}
    # Many tiny systems are solved for the interpolation: threads only wait for each other (100 times slower).
    with threadpool_limits(1):
        elastic_part(traces / "pollux", WORKLOADS_QUICK if chosen.quick else WORKLOADS, bars)
    seeds = SEEDS_QUICK if chosen.quick else SEEDS
    models_part(traces / TABLE, seeds, bars)
    if chosen.picture:
        chosen.picture.write_text(picture(bars))


if __name__ == "__main__":
    main()
