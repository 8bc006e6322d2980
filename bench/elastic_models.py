"""What matching device models saves: Gavel's jobs on 16 V100, 16 P100 and 16 K80, through the replay of the real core.

Jobs are drawn as in Gavel's simulator (OSDI 2020): programs uniformly from the measured table, durations on a V100 of
60 x 10^u s with u in 1.5..3 for four of five jobs and in 3..4 for the others, Poisson arrivals. How fast a job is on a
model is the replay's secret: the scheduler learns it from the steps that jobs report, the first of each program blind.
The same queues blind to models, on the same draw, are what the gain is against. Nodes get their names by lot, so that
their order prefers no model.

Elastic jobs: the trainings of Pollux' workloads on the three models, each as much faster on one than on another as a
program like it in Gavel's table, in rounds that see models against rounds that do not.
"""

import argparse
import gzip
import json
import math
import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bench.harness import result
from penstock.core.model.cluster import ClusterConfig, NodeSpec, Pool, Queue
from penstock.core.model.ids import DEFAULT_POOL, DEFAULT_QUEUE, NodeName, UserName
from penstock.core.model.jobs import GangAsk, JobSpec
from penstock.core.model.matching import ModelRule
from penstock.core.model.resources import Device, DeviceAsk, ReplicaAsk, Resources
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.replay import replay
from penstock.sim.replay.variants import variant
from penstock.traces import load
from penstock.traces.asking import asking
from penstock.traces.model import Trace, TraceJob, Work

TYPES = ("k80", "p100", "v100")
EACH, WIDTH = 16, 4
GAP_S, RESTART_MS, ROUND_S = 1_800, 30_000, 360
WINDOW = (100, 200)
"""Jobs whose completion times count: the cluster is busy before them and stays busy behind them."""
JOBS = 600
SEEDS, SEEDS_QUICK = tuple(range(6)), (0,)
ORDERS = {"fifo": "fifo", "las": "least_attained"}
FIFO_LIMIT_PCT, LAS_LIMIT_PCT = 15, 30
ELASTIC_LIMIT_PCT = 15
TABLE = Path("gavel") / "simulation_throughputs.json.gz"
POLLUX = Path("pollux") / "workloads"
WORKLOADS, WORKLOADS_QUICK = (1, 2, 3, 4), (4,)
LIKE = {
    "bert": "('Transformer (batch size 32)', 1)",
    "cifar10": "('ResNet-18 (batch size 128)', 1)",
    "deepspeech2": "('LM (batch size 20)', 1)",
    "imagenet": "('ResNet-50 (batch size 64)', 1)",
    "ncf": "('Recommendation (batch size 2048)', 1)",
    "yolov3": "('CycleGAN', 1)",
}
"""The program of Gavel's table that each training of Pollux is most like."""
MIB = 2**20


class Program(NamedTuple):
    """Steps a second by type."""

    name: str
    speeds: dict[str, float]


def programs(path: Path) -> list[Program]:
    """Return the single-device programs of Gavel's table."""
    with gzip.open(path, "rt") as file:
        raw = json.load(file)
    names = sorted(key for key in raw["v100"] if key.endswith(", 1)"))
    return [Program(name, {kind: float(raw[kind][name]["null"]) for kind in TYPES}) for name in names]


def drawn(table: list[Program], seed: int, count: int = JOBS) -> Trace:
    """Return a draw of jobs and of the nodes' names."""
    rng = random.Random(seed)
    now_s, jobs = 0.0, []
    for number in range(count):
        now_s += -math.log(1.0 - rng.random()) * GAP_S
        program = rng.choice(table)
        exponent = rng.uniform(3, 4) if rng.random() >= 0.8 else rng.uniform(1.5, 3)
        steps = 60 * 10**exponent * program.speeds["v100"]
        jobs.append(_job(number, now_s, program, steps))
    return Trace(f"gavel-{seed}", tuple(jobs), _nodes(rng))


def _job(number: int, at_s: float, program: Program, steps: float) -> TraceJob:
    best = max(program.speeds.values())
    speeds = tuple((kind, max(1, round(1000 * program.speeds[kind] / best))) for kind in TYPES)
    spec = JobSpec(("true",), GangAsk(1, ReplicaAsk(Resources(), DeviceAsk(1))), name=program.name)
    work = Work(max(1, round(1000 * steps / best)), speeds=speeds, saves=True)
    return TraceJob(f"{number}", round(1000 * at_s), spec, UserName("u"), work)


def _nodes(rng: random.Random) -> tuple[NodeSpec, ...]:
    models = [kind for kind in TYPES for _ in range(EACH // WIDTH)]
    rng.shuffle(models)
    return tuple(
        NodeSpec(
            NodeName(f"n{i:02}"), Resources(64_000, MIB), tuple(Device(d, "nvidia", m, 16 * MIB) for d in range(WIDTH))
        )
        for i, m in enumerate(models)
    )


def rules(policy: str, *, match: bool, move: bool = True) -> ClusterConfig:
    """Return one pool and one queue, blind to models or not."""
    pool = Pool(DEFAULT_POOL, models=ModelRule(match=match, move=match and move))
    return ClusterConfig(pools=(pool,), queues=(Queue(DEFAULT_QUEUE, policy=policy),))


class Outcome(NamedTuple):
    mean_s: float
    restarts: float


def completed(trace: Trace, config: ClusterConfig, window: tuple[int, int] = WINDOW) -> Outcome:
    """Return what the window's jobs took, by the replay of the real core."""
    ran = replay(trace, Physics(restore_ms=RESTART_MS), config=config)
    watched = ran.lives[window[0] : window[1]]
    return Outcome(fmean(life.completion_ms for life in watched) / 1000, fmean(life.attempts - 1 for life in watched))


# Gavel's own rules, which know every speed: what the figures stand beside.


class Peer(msgspec.Struct):
    """A job under one of Gavel's rules: what is left of it, in steps, and where it is."""

    number: int
    arrived_s: float
    speeds: dict[str, float]
    left: float
    kind: str = ""
    ran_s: dict[str, float] = msgspec.field(default_factory=lambda: dict.fromkeys(TYPES, 0.0))
    pause_s: float = 0.0
    done_s: float = 0.0


Rule = Callable[[list[Peer]], dict[int, str]]
"""Returns the type of each live job that runs in the coming round."""


def fastest_left(live: list[Peer]) -> dict[int, str]:
    """Return the types of Gavel's first come first served: each job in turn takes the fastest type that is left."""
    free, found = dict.fromkeys(TYPES, EACH), dict[int, str]()
    for job in live[: EACH * len(TYPES)]:
        kind = found[job.number] = max((t for t in TYPES if free[t]), key=lambda t: job.speeds[t])
        free[kind] -= 1
    return found


def equal_time(live: list[Peer]) -> dict[int, str]:
    """Return the types of Gavel's fairness that is blind to them: who had least of its share of a type goes there."""
    free, found = dict.fromkeys(TYPES, EACH), dict[int, str]()
    asks = sorted((job.ran_s[t], sum(job.ran_s.values()), job.number, t) for job in live for t in TYPES)
    for _, _, number, kind in asks:
        if number not in found and free[kind]:
            found[number] = kind
            free[kind] -= 1
    return found


def in_rounds(trace: Trace, rule: Rule, window: tuple[int, int] = WINDOW) -> float:
    """Return the mean completion of the window's jobs under one of Gavel's rules, in rounds of 360 s."""
    work = [Peer(n, j.submit_ms / 1000, dict(j.work.speeds), j.work.run_ms) for n, j in enumerate(trace.jobs)]
    now_s, arrived, live = 0.0, 0, list[Peer]()
    watched = work[window[0] : window[1]]
    while any(not job.done_s for job in watched):
        while arrived < len(work) and work[arrived].arrived_s <= now_s:
            live.append(work[arrived])
            arrived += 1
        chosen = rule(live)
        for job in live:
            _a_round(job, chosen.get(job.number, ""), now_s)
        live = [job for job in live if not job.done_s]
        now_s += ROUND_S
    return fmean(job.done_s - job.arrived_s for job in watched)


def _a_round(job: Peer, kind: str, now_s: float) -> None:
    if kind != job.kind:
        job.pause_s = RESTART_MS / 1000 if any(job.ran_s.values()) else 0.0
        job.kind = kind
    if not kind:
        return
    paused = min(job.pause_s, ROUND_S)
    job.pause_s -= paused
    needed_s = job.left / job.speeds[kind]  # milliseconds at full speed over thousandths of it
    spent_s = min(needed_s, ROUND_S - paused)
    job.ran_s[kind] += spent_s
    job.left -= spent_s * job.speeds[kind]
    if needed_s <= ROUND_S - paused:
        job.done_s = now_s + paused + spent_s


# The figures.


def models_part(path: Path, seeds: Sequence[int], bars: dict[str, dict[str, float]]) -> None:
    """Measure what matching saves, under two orders of jobs, and print it."""
    table, means, restarts = programs(path), dict[str, list[float]](), list[float]()
    for seed in seeds:
        trace = drawn(table, seed)
        for order, policy in ORDERS.items():
            for name, match in (("blind", False), ("aware", True)):
                found = completed(trace, rules(policy, match=match))
                means.setdefault(f"{order} {name}", []).append(found.mean_s)
                if match:
                    restarts.append(found.restarts)
        means.setdefault("fifo greedy", []).append(in_rounds(trace, fastest_left))
        means.setdefault("las shares", []).append(in_rounds(trace, equal_time))
        told = ", ".join(f"{name} {values[-1]:.0f} s" for name, values in means.items())
        print(f"seed {seed}: {told}", file=sys.stderr, flush=True)
    for order, limit in (("fifo", FIFO_LIMIT_PCT), ("las", LAS_LIMIT_PCT)):
        _gain(f"het_gain_{order}_pct", means[f"{order} blind"], means[f"{order} aware"], limit)
        bars[f"models, {order}"] = {
            "model-blind": fmean(means[f"{order} blind"]),
            "model-aware": fmean(means[f"{order} aware"]),
        }
    _gain("het_gain_over_equal_time_pct", means["las shares"], means["las aware"], LAS_LIMIT_PCT)
    greedy = {"name": "Gavel's FIFO that knows every speed, mean JCT s", "value": round(fmean(means["fifo greedy"]))}
    result("het_fifo_jct_s", fmean(means["fifo aware"]), "s", "lower", greedy["value"], greedy)
    result("het_restarts_per_job", fmean(restarts), "restarts", "lower", None, None)


def _gain(metric: str, blind: list[float], aware: list[float], limit: int) -> None:
    gains = [100 * (1 - two / one) for one, two in zip(blind, aware, strict=True)]
    spread = {"name": f"least and most of {len(gains)} draws", "value": [round(min(gains), 1), round(max(gains), 1)]}
    result(metric, fmean(gains), "%", "higher", limit, spread)


# Elastic jobs on several models.


def on_models(trace: Trace, table: list[Program], seed: int) -> Trace:
    """Return a workload of Pollux with as many devices, of three models, on which its trainings differ."""
    speeds = {program.name: program.speeds for program in table}
    jobs = []
    for job in trace.jobs:
        assert job.work.trains is not None
        rates = speeds[LIKE[job.work.trains.profile.name]]
        best = max(rates.values())
        known = tuple((kind, max(1, round(1000 * rates[kind] / best))) for kind in TYPES)
        jobs.append(replace(job, work=replace(job.work, speeds=known)))
    kinds = [TYPES[at % len(TYPES)] for at in range(len(trace.nodes))]
    random.Random(seed).shuffle(kinds)
    nodes = (
        replace(node, devices=tuple(replace(device, model=kind) for device in node.devices))
        for node, kind in zip(trace.nodes, kinds, strict=True)
    )
    return replace(trace, jobs=tuple(jobs), nodes=tuple(nodes))


def elastic_part(traces: Path, numbers: Sequence[int], bars: dict[str, dict[str, float]]) -> None:
    """Measure what rounds gain that see models, and print it."""
    means, restarts, table = {False: list[float](), True: list[float]()}, list[float](), programs(traces / TABLE)
    for number in numbers:
        trace = asking(load(traces / POLLUX / f"workload-{number}.csv.gz"), "goodput")
        trace = on_models(trace, table, number)
        for match in means:
            chosen = variant("as_is+rebalance", trace.config)
            pools = tuple(replace(pool, models=ModelRule(match=match, move=match)) for pool in chosen.config.pools)
            config = replace(chosen.config, pools=pools)
            ran = replay(trace, Physics(start_ms=RESTART_MS), config=config, knows=chosen.knows)
            means[match].append(fmean(life.completion_ms for life in ran.lives) / 1000)
            if match:
                restarts.append(fmean(max(0, life.attempts - 1) for life in ran.lives))
        print(f"workload {number}: blind {means[False][-1]:.0f} s, aware {means[True][-1]:.0f} s, "
              f"{restarts[-1]:.1f} restarts a job", file=sys.stderr, flush=True)  # fmt: skip
    _gain("het_gain_elastic_pct", means[False], means[True], ELASTIC_LIMIT_PCT)
    result("het_elastic_restarts_per_job", fmean(restarts), "restarts", "lower", None, None)
    bars["models, elastic"] = {"model-blind": fmean(means[False]), "model-aware": fmean(means[True])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one draw and one workload")
    chosen = parser.parse_args()
    traces = os.environ.get("PENSTOCK_TRACES")
    if traces is None:
        raise SystemExit("PENSTOCK_TRACES is not set: the folder that holds the traces")
    models_part(Path(traces) / TABLE, SEEDS_QUICK if chosen.quick else SEEDS, {})
    elastic_part(Path(traces), WORKLOADS_QUICK if chosen.quick else WORKLOADS, {})


if __name__ == "__main__":
    main()
