"""How well the simulator is the twin of the live server: recorded runs of real servers, made again from their logs.

Each run is a server with real agents and processes, under a load drawn from its seed: gangs, priorities, a quota,
programs that fail, users who cancel, and in every second run a node that dies. Two things are measured. What each plan
of the log decided is decided again from what it knew (`penstock audit`): all of it, in order. And the workload alone is
replayed from its beginning to its end (`penstock whatif`), where the order of what happens within a few milliseconds
may come out otherwise: how far the makespan is off.
"""

import argparse
import random
import statistics
import sys
import time
from typing import Any

from bench.harness import Server, result, server
from penstock.core.audit import audit
from penstock.core.model import events as ev
from penstock.engines.local.launch import stop_agent
from penstock.engines.processes.paths import DataFolder
from penstock.sim.replay.agreement import Decisions, PlanAgreement, agreement, as_recorded
from penstock.sim.replay.replay import replay
from penstock.traces.ownlog import trace_of

MAKESPAN_LIMIT = 0.05
END_WAIT_S = 120.0
DEVICES = 4


def cluster(nodes: int) -> dict[str, Any]:
    each = {"cpus": 64, "memory": "8GiB", "simulated_devices": {"count": DEVICES}}
    return {
        "settings": {
            "heartbeat": "100ms",
            "lease_ttl": "2s",
            "lease_margin": "800ms",
            "min_runtime_before_preemption": "300ms",
        },
        "queues": [{"name": "research", "max": {"devices": DEVICES * nodes - 3}}, {"name": "product"}],
        "nodes": [{"name": f"n{i}", **each} for i in range(nodes)],
    }


def drawn_job(r: random.Random) -> dict[str, Any]:
    seconds = round(r.uniform(0.05, 2.5), 2)
    fails = r.random() < 0.08
    shown: dict[str, Any] = {
        "command": ["sh", "-c", f"sleep {seconds}; exit {int(fails)}"],
        "cpus": 1,
        "queue": r.choice(("research", "product")),
        "priority": r.choice(("low", "medium", "medium", "high")),
        "devices": r.choice((0, 1, 1, 1, 2, 4)),
    }
    if r.random() < 0.25:
        shown |= {"replicas": r.randint(2, 3), "devices": r.choice((0, 1))}
    if r.random() < 0.3:
        shown["time_limit"] = f"{seconds + 5:.0f}s"
    return shown


def recorded(seed: int, jobs: int) -> list[ev.Record]:
    """Return the log of one live run."""
    r = random.Random(seed)
    nodes = r.randint(2, 4)
    loses_node = seed % 2 == 1
    with server(declared=cluster(nodes)) as running:
        while running.client.cluster().nodes_ready < nodes:
            time.sleep(0.05)
        ids = []
        for number in range(jobs):
            answer = running.client.submit(drawn_job(r))
            ids += [job.id for job in answer.jobs]
            if r.random() < 0.05:
                running.client.cancel(r.choice(ids))
            if loses_node and number == jobs // 2:
                stop_agent(DataFolder(running.data), "n0")
            time.sleep(r.expovariate(20))
        _all_over(running)
        return list(running.client.all_events())


def _all_over(running: Server) -> None:
    deadline = time.monotonic() + END_WAIT_S
    while running.client.jobs().jobs:
        if time.monotonic() > deadline:
            raise SystemExit("the recorded run did not come to its end")
        time.sleep(0.1)


def compared(records: list[ev.Record]) -> tuple[int, int, int, PlanAgreement]:
    """Return planned decisions, those that come out again, those up to the first that does not, and the agreement."""
    again = [ruling.same for ruling in audit(records) if ruling.planned]
    in_order = next((at for at, same in enumerate(again) if not same), len(again))
    told, decisions = trace_of(records), Decisions()
    ran = replay(told.trace, as_recorded(told), on_plan=decisions)
    ended_ms = max(life.ended_ms for life in ran.lives)
    found = agreement(told.jobs, decisions, [life.started_ms for life in ran.lives], ended_ms)
    return len(again), sum(map(bool, again)), in_order, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    decided = same = in_order = starts = alike = 0
    makespans, offs = [], []
    for seed in range(given.seed, given.seed + given.runs):
        total, equal, before, found = compared(recorded(seed, given.jobs))
        decided, same, in_order = decided + total, same + equal, in_order + before
        starts, alike = starts + found.decisions, alike + found.same
        makespans.append(found.makespan_off)
        offs.append(found.start_off_ms)
        text = (
            f"run {seed}: {equal} of {total} decisions again; replayed: {found.same} of {found.decisions} starts alike"
        )
        print(f"{text}, makespan {100 * found.makespan_off:.1f} % off", file=sys.stderr, flush=True)
    result("twin_decisions_again", same / decided, "part", "higher", 1.0)
    result("twin_decisions_in_order", in_order / decided, "part", "higher", 1.0)
    result("twin_makespan_off_max", max(makespans), "part", "lower", MAKESPAN_LIMIT)
    result("twin_makespan_off_median", statistics.median(makespans), "part", "lower", None)
    result("twin_start_off_median_ms", statistics.median(offs), "ms", "lower", None)
    result("twin_starts_alike", alike / starts, "part", "higher", None)


if __name__ == "__main__":
    main()
