"""Cost of a scheduling cycle in the pure core: 10,000 nodes x 8 devices, 100,000 jobs of 200 requests, 3-level quotas.

One process, no disk, no network: a state is built by folding events, then `take_snapshot` and `Planner.plan` are
timed together, in CPU time of this process. What peers are measured with includes writes to their API server; the
references say so.
"""

import argparse
import gc
import json
import random
import resource
import sys
import time
from collections.abc import Iterator
from math import log10
from pathlib import Path
from typing import Any

from bench.harness import machine
from penstock.control import gc as collector
from penstock.core.cycle.planner import Planner
from penstock.core.lifecycle.ending import after_replica_gone
from penstock.core.lifecycle.orders import apply_plan
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, NodeSpec, Queue, Settings
from penstock.core.model.jobs import ExitInfo, GangAsk, JobSpec, Topology
from penstock.core.model.resources import Device, DeviceAsk, ReplicaAsk, Resources
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.state import State

GIB = 2**30
NODES, JOBS, REQUESTS, DEVICES = 10_000, 100_000, 200, 8
NOW_MS = 1_800_000_000_000


def config(nodes: int) -> ClusterConfig:
    """Return a tree of 4 departments x 5 groups x 5 teams with guarantees and maxima that add up."""
    total = nodes * DEVICES * 1000
    queues = []
    for d in range(4):
        queues.append(
            Queue(f"d{d}", policy="fair_share", guaranteed=(("devices", total // 4),), max=(("devices", total // 2),))
        )
        for g in range(5):
            name = f"d{d}g{g}"
            quota = {"guaranteed": (("devices", total // 20),), "max": (("devices", total // 4),)}
            queues.append(Queue(name, parent=f"d{d}", policy="capacity", **quota))
            queues += [
                Queue(f"{name}t{t}", parent=name, policy="priority", weight=1 + t, max=(("devices", total // 8),))
                for t in range(5)
            ]
    return ClusterConfig(
        queues=tuple(queues), settings=Settings(starts_per_cycle_max=1_000_000), root_policy="fair_share"
    )


def requests(count: int, rng: random.Random, *, gang: bool) -> list[JobSpec]:
    """Return `count` different requests: CPU, memory and minimum device memory vary, queues are the 100 leaves."""
    specs = []
    for number in range(count):
        host = Resources(rng.randrange(1, 13) * 1000, rng.randrange(4, 129) * GIB)
        devices = DeviceAsk(1, memory_min_bytes=(number % 3) * 16 * GIB)
        ask = GangAsk(8 if gang else 1, ReplicaAsk(host, devices), topology=Topology("node") if gang else None)
        leaf = number % 100
        queue = f"d{leaf % 4}g{leaf // 4 % 5}t{leaf // 20}"
        specs.append(JobSpec(("true",), ask, name=f"r{number}", queue=queue))
    return specs


def build(nodes: int, jobs: int, *, gang: bool = False, seed: int = 1) -> State:
    """Return a state with empty nodes and waiting jobs, in random order."""
    rng = random.Random(seed)
    state = State()
    tx = Transaction(state, NOW_MS)
    tx.emit(ev.ConfigChanged(config(nodes), "bench"))
    devices = tuple(Device(i, "nvidia", "A100", 80 * GIB, (8, 0), numa_node=i // 4) for i in range(DEVICES))
    for number in range(nodes):
        spec = NodeSpec(f"n{number:05}", Resources(128_000, 2048 * GIB), devices, rack=f"r{number // 16}")
        tx.emit(ev.NodeRegistered(spec, "i1"))
        tx.emit(ev.NodeReady(spec.name))
    specs = requests(REQUESTS, rng, gang=gang)
    for number in range(jobs):
        tx.emit(ev.JobSubmitted(number + 1, rng.choice(specs), "ann"))
    return state


def cycle(planner: Planner, state: State, now_ms: int) -> tuple[Any, float]:
    """Return the plan of one cycle and its CPU seconds, the snapshot included."""
    gc.collect()
    gc.disable()
    begun = time.process_time()
    found = planner.plan(take_snapshot(state), now_ms)
    took = time.process_time() - begun
    gc.enable()
    return found, took


def end_job(state: State, job_id: int, now_ms: int) -> None:
    tx = Transaction(state, now_ms)
    attempt = state.jobs[job_id].attempt
    for replica in attempt.replicas:
        tx.emit(ev.ReplicaExited(job_id, attempt.number, replica.rank, ExitInfo(0)))
    after_replica_gone(tx, job_id)


def incremental(planner: Planner, state: State, rounds: int) -> list[float]:
    """End one running job, plan, commit; return the CPU milliseconds of each cycle."""
    rng = random.Random(2)
    took = []
    usual = gc.get_threshold()
    collector.settle()  # as the server does
    for step in range(rounds):
        now_ms = NOW_MS + 60_000 + step * 1_000
        end_job(state, rng.choice(list(state.indexes.active)), now_ms)
        begun = time.process_time()
        found = planner.plan(take_snapshot(state), now_ms)
        took.append(1000 * (time.process_time() - begun))
        apply_plan(Transaction(state, now_ms), found)
    gc.unfreeze()
    gc.set_threshold(*usual)
    return sorted(took)


def measure(nodes: int, jobs: int, rounds: int) -> Iterator[tuple[str, float, str, str, float | None]]:
    for gang in (True, False):
        state = build(nodes, jobs if not gang else max(1, jobs // 4), gang=gang)
        planner = Planner()
        found, took = cycle(planner, state, NOW_MS)
        name = "gangs_per_s" if gang else "placements_per_s"
        yield name, len(found.starts) / took, "1/s", "higher", 20_000 if gang else 50_000
        yield f"{name[:-6]}_placed", len(found.starts), "1", "higher", None
    apply_plan(Transaction(state, NOW_MS), found)
    planner.plan(take_snapshot(state), NOW_MS + 30_000)
    found, took = cycle(planner, state, NOW_MS + 60_000)
    assert not found.starts
    yield "nothing_fits_cycle_ms", 1000 * took, "ms", "lower", 100
    times = incremental(planner, state, rounds)
    yield "incremental_cycle_p50_ms", times[len(times) // 2], "ms", "lower", None
    yield "incremental_cycle_p99_ms", times[int(len(times) * 0.99)], "ms", "lower", 5
    yield "incremental_cycle_worst_ms", times[-1], "ms", "lower", None
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield "peak_rss_mb", rss, "MB", "lower", 600


CURVE_NODES = (100, 300, 1_000, 3_000, 10_000)
CURVE_JOBS = (1_000, 3_000, 10_000, 30_000, 100_000)
SERIES = (("cold cycle, each start", "#4477aa"), ("nothing fits", "#ee6677"), ("after one job ended", "#228833"))


def curve_point(nodes: int, jobs: int) -> tuple[float, float, float]:
    """Return CPU microseconds for each start of a cold cycle, and of the two other cycles as a whole."""
    state, planner = build(nodes, jobs), Planner()
    found, took = cycle(planner, state, NOW_MS)
    apply_plan(Transaction(state, NOW_MS), found)
    planner.plan(take_snapshot(state), NOW_MS + 30_000)
    _, nothing = cycle(planner, state, NOW_MS + 60_000)
    times = incremental(planner, state, 40)
    return 1e6 * took / max(1, len(found.starts)), 1e6 * nothing, 1e3 * times[len(times) // 2]


def curves() -> dict[str, list[tuple[int, tuple[float, float, float]]]]:
    found: dict[str, list[tuple[int, tuple[float, float, float]]]] = {"nodes": [], "jobs": []}
    for nodes in CURVE_NODES:
        print(f"curve: {nodes} nodes", file=sys.stderr)
        found["nodes"].append((nodes, curve_point(nodes, 10 * nodes)))
    for jobs in CURVE_JOBS:
        print(f"curve: {jobs} jobs", file=sys.stderr)
        found["jobs"].append((jobs, curve_point(1_000, jobs)))
    return found


def picture(found: dict[str, list[tuple[int, tuple[float, float, float]]]]) -> str:
    """Return two log-log charts side by side: CPU time against nodes and against waiting jobs."""
    parts = ['<rect width="1160" height="420" fill="#fff"/>']
    titles = {"nodes": "nodes x 8 devices, 10 jobs each", "jobs": "waiting jobs on 1,000 nodes"}
    for number, (name, points) in enumerate(found.items()):
        left = 90 + 570 * number
        low, high = log10(points[0][0]), log10(points[-1][0])

        def x(value: float, left: int = left, low: float = low, high: float = high) -> float:
            return left + 440 * (log10(value) - low) / (high - low)

        def y(micros: float) -> float:
            return 360 - 300 * (log10(max(micros, 1)) - 0) / 6

        for exponent, label in enumerate(("1 \u00b5s", "10 \u00b5s", "0.1 ms", "1 ms", "10 ms", "0.1 s", "1 s")):
            at = y(10**exponent)
            parts.append(f'<path d="M{left} {at:.0f}h440" stroke="#e6e6e6"/>')
            parts.append(f'<text x="{left - 8}" y="{at + 4:.0f}" text-anchor="end">{label}</text>')
        for value, _ in points:
            parts.append(f'<text x="{x(value):.0f}" y="380" text-anchor="middle">{value:,}</text>')
        for at, (words, colour) in enumerate(SERIES):
            line = " ".join(f"{x(value):.1f},{y(times[at]):.1f}" for value, times in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
            if number == 0:
                parts.append(f'<path d="M{left + 10} {40 + 18 * at}h24" stroke="{colour}" stroke-width="2"/>')
                parts.append(f'<text x="{left + 40}" y="{44 + 18 * at}">{words}</text>')
        parts.append(f'<text x="{left + 220}" y="404" text-anchor="middle">{titles[name]}</text>')
    parts.append('<text x="90" y="20" font-weight="bold">CPU time of a scheduling cycle, 200 requests, 3 levels</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1160 420" role="img" font-family="sans-serif"'
    return head + ' font-size="12" fill="#222">' + "\n".join(parts) + "</svg>\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--picture", type=Path, metavar="PATH", help="write the curves as an SVG")
    given = parser.parse_args()
    if given.quick:
        given.nodes, given.jobs, given.rounds = 1_000, 10_000, 200
    peers = {
        "placements_per_s": {"name": "kube-scheduler on such a machine, with API writes", "value": 476},
        "gangs_per_s": {"name": "Volcano, pods in gangs of 8, with API writes", "value": 188},
    }
    for name, value, unit, better, limit in measure(given.nodes, given.jobs, given.rounds):
        row = {"metric": name, "value": round(value, 3), "unit": unit, "better": better, "limit": limit}
        more = {"reference": peers[name]} if name in peers else {}
        print(json.dumps(row | more | {"machine": machine()}), flush=True)
    if given.picture:
        given.picture.write_text(picture(curves()), encoding="utf-8")


if __name__ == "__main__":
    main()
