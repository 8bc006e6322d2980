"""How good the elastic allocator and the choice of device types are, on published traces, in simulated time.

Elastic: workloads 1 to 4 of Pollux on 64 devices through `penstock sim` (`--elastic goodput`, rounds of re-allocation),
against the completion times that its authors published. The programs are checked first: with the published baseline's
rules, which do not run live, they have to give the published figures.
Device models: `bench.elastic_models`, through the replay of the real core. PENSTOCK_TRACES names the folder of the
traces.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import fmean

from bench import pollux_rounds as pollux
from bench.elastic_models import SEEDS, SEEDS_QUICK, TABLE, models_part
from bench.harness import result
from penstock.core.cycle.alternatives import PlanChooser
from penstock.core.model.plan import Plan
from penstock.core.state.snapshot import Snapshot
from penstock.report.svg import num, rect, text
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.measures import finish_ratios
from penstock.sim.replay.replay import replay
from penstock.sim.replay.variants import variant
from penstock.traces import load
from penstock.traces.asking import asking

WORKLOADS, WORKLOADS_QUICK = (1, 2, 3, 4), (4,)
OWN_NOISE = 1.05
"""Runs of the published policy differ by this much, its authors say: one workload alone is held to no less."""
WORDS = "as_is+rebalance"
PHYSICS = Physics(start_ms=1000 * pollux.PAUSE_S)
"""A start takes what a change of placement takes in the published simulator; to save and leave takes nothing there."""
MEAN_LIMIT_S, ROUND_LIMIT_MS = 2_580, 50


class Timed(PlanChooser):
    """The planner of the live server; measures the CPU time of each cycle, fits of models included."""

    def __init__(self) -> None:
        super().__init__()
        self.cpu_ms: list[float] = []

    def plan(self, snapshot: Snapshot, now_ms: int) -> Plan:
        begun = time.process_time()
        found = super().plan(snapshot, now_ms)
        self.cpu_ms.append(1000 * (time.process_time() - begun))
        return found


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


Bars = dict[str, dict[str, float]]


def elastic_part(folder: Path, numbers: tuple[int, ...], bars: Bars) -> None:
    """Check the programs against the published baseline, then measure what the planner makes of them."""
    theirs = pollux.published(folder)
    cpu_ms: list[float] = []
    means: list[float] = []
    fairness: list[float] = []
    restarts, off = [], 0.0
    for number in numbers:
        trace = load(folder / "workloads" / f"workload-{number}.csv.gz")
        check = pollux.mean_s(trace, pollux.Tiresias())
        off = max(off, 100 * abs(check / theirs["tiresias-1.0", number] - 1))
        planner, chosen = Timed(), variant(WORDS, trace.config)
        found = replay(asking(trace, "goodput"), PHYSICS, config=chosen.config, knows=chosen.knows, chooser=planner)
        cpu_ms += planner.cpu_ms
        means.append(fmean(life.completion_ms for life in found.lives) / 1000)
        restarts.append(fmean(max(0, life.attempts - 1) for life in found.lives))
        fairness += finish_ratios(found)
        reference = {"name": "Pollux, published", "value": theirs["avoid", number]}
        limit = round(theirs["avoid", number] * OWN_NOISE)
        result(f"pollux_workload_{number}_jct_s", means[-1], "s", "lower", limit, reference)
        say(
            f"workload {number}: mean {means[-1]:.0f} s; baseline {check:.1f} s with our programs, "
            f"{theirs['tiresias-1.0', number]:.1f} s published; {found.cycles} cycles"
        )
        bars[f"workload {number}"] = {
            "Optimus, published": theirs["optimus-1.0", number],
            "Tiresias, published": theirs["tiresias-1.0", number],
            "Pollux, published": theirs["avoid", number],
            "Penstock": means[-1],
        }
    mean_s = round(fmean(theirs["avoid", n] for n in numbers), 1)
    reference = {"name": "Pollux, published", "value": mean_s}
    limit = MEAN_LIMIT_S if numbers == WORKLOADS else mean_s
    result("pollux_mean_jct_s", fmean(means), "s", "lower", limit, reference)
    ga = {"name": "Pollux' genetic algorithm, CPU ms a round", "value": 2_100}
    result("round_p95_ms", percentile(cpu_ms, 0.95), "ms", "lower", ROUND_LIMIT_MS, ga)
    by_sia = "Pollux, by Sia's authors"
    result("restarts_per_job", fmean(restarts), "restarts", "lower", 5.1, {"name": by_sia, "value": 5.1})
    worst = {"name": by_sia, "value": 4.6}
    result("finish_time_fairness_worst", max(fairness), "ratio", "lower", 4.6, worst)
    unfair = {"name": by_sia, "value": 28}
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
    elastic_part(traces / "pollux", WORKLOADS_QUICK if chosen.quick else WORKLOADS, bars)
    seeds = SEEDS_QUICK if chosen.quick else SEEDS
    models_part(traces / TABLE, seeds, bars)
    if chosen.picture:
        chosen.picture.write_text(picture(bars))


if __name__ == "__main__":
    main()
