"""Cost of explaining one waiting job: 1,000 nodes x 8 devices, 10,000 waiting jobs of 200 requests, 3-level quotas.

`full`: no device is free, so there is little to try. `broken_up`: every node has a few devices free and the jobs ask
for more, so that edits of the request and of the cluster are searched and planned. CPU time of this process; the
snapshot is part of it. `alerts` looks at every waiting job.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator

from msgspec.structs import replace

from bench.core_cycle import NOW_MS, build
from bench.harness import machine
from penstock.core.cycle.planner import Planner
from penstock.core.explain import Explainer, question_of
from penstock.core.lifecycle.orders import apply_plan
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model import events as ev
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.state import State
from penstock.core.status.alerts import alerts

LIMIT_MS = 50


def full(nodes: int, waiting: int) -> State:
    """Return a state in which every device is held and the rest waits."""
    return _settled(_built(nodes, 8 * nodes + waiting))


def _built(nodes: int, jobs: int) -> State:
    """Return the state of `core_cycle` without guarantees, so that what a cycle weighs for reclaim is not measured."""
    state = build(nodes, jobs)
    queues = tuple(replace(queue, guaranteed=(), preemption="never") for queue in state.config.queues)
    Transaction(state, NOW_MS).emit(ev.ConfigChanged(replace(state.config, queues=queues), "bench"))
    return state


def broken_up(nodes: int, waiting: int) -> State:
    """Return a state in which every node has two devices free and jobs of five wait."""
    state = _settled(_built(nodes, 6 * nodes))
    tx = Transaction(state, NOW_MS + 10_000)
    specs = [job.spec for job in list(state.jobs.values())[:200]]
    for number in range(waiting):
        spec = specs[number % len(specs)]
        each = replace(spec.ask.each, devices=replace(spec.ask.each.devices, count=5 + number % 3))
        wanted = replace(spec, ask=replace(spec.ask, each=each, replicas=1 + number % 2), time_limit_ms=3_600_000)
        tx.emit(ev.JobSubmitted(state.next_job, wanted, "ann"))
    return _settled(state)


def _settled(state: State) -> State:
    for _ in range(3):
        found = Planner().plan(take_snapshot(state), NOW_MS + 20_000)
        apply_plan(Transaction(state, NOW_MS + 20_000), found)
    return state


def measure(nodes: int, waiting: int, rounds: int) -> Iterator[tuple[str, float, str, str, float | None]]:
    for name, made in (("full", full), ("broken_up", broken_up)):
        state = made(nodes, waiting)
        jobs = [job for job in state.jobs.values() if job.state == "waiting"]
        rng, explainer = random.Random(1), Explainer()
        took, edits = [], 0
        for step in range(rounds + 1):
            begun = time.process_time()
            found = explainer.explain(question_of(state, rng.choice(jobs), NOW_MS + 30_000 + step))
            took.append(1000 * (time.process_time() - begun))
            edits += len(found.edits)
        yield f"explain_{name}_first_ms", took[0], "ms", "lower", None
        rest = sorted(took[1:])
        yield f"explain_{name}_p50_ms", rest[len(rest) // 2], "ms", "lower", LIMIT_MS
        yield f"explain_{name}_p99_ms", rest[int(len(rest) * 0.99)], "ms", "lower", None
        yield f"explain_{name}_edits", edits / len(took), "1", "higher", None
        begun = time.process_time()
        alerts(state, NOW_MS + 30_000)
        yield f"alerts_{name}_ms", 1000 * (time.process_time() - begun), "ms", "lower", None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    nodes, waiting, rounds = (100, 1_000, 20) if given.quick else (1_000, 10_000, 100)
    for metric, value, unit, better, limit in measure(nodes, waiting, rounds):
        line = {"metric": metric, "value": round(value, 2), "unit": unit, "better": better, "limit": limit}
        print(json.dumps({**line, "machine": machine()}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
