"""How good rounds of elastic jobs are on workloads drawn anew, so that no constant is right for four files alone.

Each draws jobs and arrivals, each by itself and with replacement, from the published workloads 1 to 4 of Pollux, at
another load, on another number of nodes, or with starts that take another time. It runs as in `bench.elastic_quality`.
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from bench.harness import result
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.measures import finish_ratios
from penstock.sim.replay.replay import Ran, replay
from penstock.sim.replay.variants import variant
from penstock.traces import Trace, load
from penstock.traces.asking import asking
from penstock.traces.loaders.shapes import equal_nodes
from penstock.traces.profiles import NODE_DEVICES

WORDS = "as_is+rebalance"
DRAWN_FROM = (1, 2, 3, 4)
BY_SIA = "Pollux, by Sia's authors, on other workloads"
JITTER_MS = 300_000
"""Arrivals are drawn within this of a published one: the hours keep their rates."""


class Draw(NamedTuple):
    """What a variant draws, and where it runs."""

    seed: int
    jobs: int = 160
    nodes: int = 16
    start_s: int = 30

    @property
    def name(self) -> str:
        return f"{self.jobs} jobs, {self.nodes} nodes, start {self.start_s} s, draw {self.seed}"


DRAWS = (
    Draw(11),
    Draw(12),
    Draw(13),
    Draw(14, jobs=128),
    Draw(15, jobs=192),
    Draw(16, jobs=80, nodes=8),
    Draw(17, jobs=320, nodes=32),
    Draw(18, start_s=10),
    Draw(19, start_s=90),
)
DRAWS_QUICK = DRAWS[:1]


def drawn(traces: Sequence[Trace], draw: Draw) -> Trace:
    """Return a workload with jobs and arrivals of these traces; equal draws give equal workloads."""
    chance, pool = random.Random(draw.seed), [job for trace in traces for job in trace.jobs]
    arrivals = sorted(
        max(0, chance.choice(pool).submit_ms + chance.randint(-JITTER_MS, JITTER_MS)) for _ in range(draw.jobs)
    )
    jobs = tuple(replace(chance.choice(pool), submit_ms=submit_ms) for submit_ms in arrivals)
    nodes = equal_nodes(draw.nodes, devices=NODE_DEVICES, model="T4")
    return replace(traces[0], name=draw.name, jobs=jobs, nodes=nodes)


def played(trace: Trace, draw: Draw, words: str, how: str = "goodput") -> Ran:
    """Return the replay of a drawn workload by the planner of the live server."""
    chosen = variant(words, trace.config)
    return replay(asking(trace, how), Physics(start_ms=1000 * draw.start_s), config=chosen.config, knows=chosen.knows)


def mean_s(ran: Ran) -> float:
    return fmean(life.completion_ms for life in ran.lives) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one draw")
    parser.add_argument("--policy", default=WORDS, help=f"words of `penstock sim -P`, by default {WORDS}")
    chosen = parser.parse_args()
    if "PENSTOCK_TRACES" not in os.environ:
        raise SystemExit("PENSTOCK_TRACES is not set: the folder that holds the traces")
    folder = Path(os.environ["PENSTOCK_TRACES"]) / "pollux" / "workloads"
    traces = [load(folder / f"workload-{number}.csv.gz") for number in DRAWN_FROM]
    means, gains, restarts, worst, unfair = [], [], [], [], []
    for draw in DRAWS_QUICK if chosen.quick else DRAWS:
        trace = drawn(traces, draw)
        found, tuned = played(trace, draw, chosen.policy), mean_s(played(trace, draw, chosen.policy, "off"))
        ratios = finish_ratios(found)
        means.append(mean_s(found))
        gains.append(tuned / means[-1])
        restarts.append(fmean(max(0, life.attempts - 1) for life in found.lives))
        worst.append(max(ratios))
        unfair.append(100 * sum(ratio > 1 for ratio in ratios) / len(ratios))
        print(
            f"{draw.name}: mean {means[-1]:.0f} s, {gains[-1]:.2f} times as short as at tuned sizes; "
            f"{restarts[-1]:.2f} restarts a job; finish-time ratio up to {worst[-1]:.2f}, above 1: {unfair[-1]:.0f} %",
            file=sys.stderr,
            flush=True,
        )
    result("drawn_mean_jct_s", fmean(means), "s", "lower", None)
    result("drawn_gain_worst", min(gains), "ratio", "higher", 1.2, {"name": "tuned sizes, same planner", "value": 1.0})
    result("drawn_restarts_per_job", fmean(restarts), "restarts", "lower", None)
    result("drawn_finish_time_fairness_worst", max(worst), "ratio", "lower", 4.6, {"name": BY_SIA, "value": 4.6})
    result("drawn_unfair_jobs_pct", fmean(unfair), "%", "lower", None)


if __name__ == "__main__":
    main()
