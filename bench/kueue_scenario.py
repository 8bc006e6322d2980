"""Kueue's public scheduler-performance scenario through the real control loop, in real time, on the in-memory store.

Cohorts of queues with quota 20 each, borrowing up to 100 more; three classes of workloads arrive at fixed intervals
and run for a fixed time. The control service (its commit loop and its planner thread), the fold, the log records and
the protocol with the node are the real ones; the node is simulated: a replica "runs" until its time is over. Kueue's
published times (baseline 351.1 s, large 1,179.4 s; mean use 55.9 % and 38.6 %) include writes to an API server and
etcd, these do not. The bound is what quota and run time alone allow.
"""

import argparse
import heapq
import json
import queue
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from bench.harness import machine
from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.service import ControlService
from penstock.core.lifecycle.requests import NewJob, Submit
from penstock.core.messages.orders import Addressed, StartReplica, StopReplica
from penstock.core.messages.reports import NodeReport, ReplicaKey, ReplicaSeen
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, NodeSpec, Queue, Settings
from penstock.core.model.jobs import ExitInfo, GangAsk, JobSpec
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.sim.world.disk import SimDisk

NOMINAL, REPORT_EVERY_S = 20, 0.002


class Kind(NamedTuple):
    name: str
    count: int
    every_ms: int
    run_ms: int
    priority: int
    cpus: int


class Scenario(NamedTuple):
    cohorts: int
    queues: int
    kinds: tuple[Kind, ...]
    published_s: float


SCENARIOS = {
    "baseline": Scenario(
        5,
        6,
        (
            Kind("small", 350, 100, 200, 50, 1),
            Kind("medium", 100, 500, 500, 100, 5),
            Kind("large", 50, 1200, 1000, 200, 20),
        ),
        351.1,
    ),
    "large": Scenario(
        10,
        100,
        (Kind("small", 35, 60, 150, 50, 1), Kind("medium", 11, 300, 350, 100, 5), Kind("large", 4, 700, 700, 200, 20)),
        1179.4,
    ),
}


class SystemClock:
    def unix_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SimulatedNode:
    """An engine with one node on which every replica runs as long as its command says (milliseconds)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inbox: queue.SimpleQueue[Sequence[Addressed]] = queue.SimpleQueue()
        self.service: ControlService | None = None
        self._running: list[tuple[float, ReplicaKey]] = []
        self._stopped: set[ReplicaKey] = set()
        self._sent = 0
        self.ending = False

    def send(self, orders: Sequence[Addressed]) -> None:
        self.inbox.put(orders)

    def run(self) -> None:
        while not self.ending:
            now = time.monotonic()
            seen: list[ReplicaSeen] = []
            while not self.inbox.empty():
                for _, order in self.inbox.get():
                    if isinstance(order, StartReplica):
                        heapq.heappush(self._running, (now + int(order.command[0]) / 1000, order.key))
                        seen.append(ReplicaSeen(order.key, "running", 1))
                    elif isinstance(order, StopReplica):
                        self._stopped.add(order.key)
                        seen.append(ReplicaSeen(order.key, "exited", exit=ExitInfo(signal=15, stop_sent=True)))
            while self._running and self._running[0][0] <= now:
                _, key = heapq.heappop(self._running)
                if key not in self._stopped:
                    seen.append(ReplicaSeen(key, "exited", exit=ExitInfo(0)))
            if seen:
                self.report(tuple(seen))
            time.sleep(REPORT_EVERY_S)

    def report(self, seen: tuple[ReplicaSeen, ...], *, inventory: bool = False) -> None:
        assert self.service is not None
        self._sent += 1
        self.service.ask(NodeReport(self.name, "i1", self._sent, inventory, seen))


def config(scenario: Scenario, min_runtime_ms: int = 0) -> ClusterConfig:
    quota, whole = NOMINAL * 1000, NOMINAL * scenario.queues * 1000
    queues = []
    for c in range(scenario.cohorts):
        queues.append(Queue(f"c{c}", policy="capacity", guaranteed=(("cpus", whole),), max=(("cpus", whole),)))
        limit = min(whole, quota + 100_000)
        queues += [
            Queue(f"c{c}q{q}", parent=f"c{c}", policy="capacity", guaranteed=(("cpus", quota),), max=(("cpus", limit),))
            for q in range(scenario.queues)
        ]
    settings = Settings(starts_per_cycle_max=10_000, min_runtime_before_preemption_ms=min_runtime_ms)
    return ClusterConfig(queues=tuple(queues), settings=settings, root_policy="capacity")


class Watch:
    """Follows the log: when each job came, when it was first allocated, how much was in use."""

    def __init__(self) -> None:
        self.submitted: dict[int, tuple[int, str]] = {}
        self.admission_ms: dict[str, list[int]] = defaultdict(list)
        self.finished, self.preempted = 0, 0
        self._started: set[int] = set()

    def records(self, records: Sequence[ev.Record]) -> None:
        for record in records:
            event = record.event
            if isinstance(event, ev.JobSubmitted):
                self.submitted[event.job_id] = (record.time_ms, event.spec.name)
            elif isinstance(event, ev.AttemptAllocated):
                came_ms, name = self.submitted[event.job_id]
                if event.job_id not in self._started:
                    self._started.add(event.job_id)
                    self.admission_ms[name].append(record.time_ms - came_ms)
            elif isinstance(event, ev.JobFinished):
                self.finished += 1
            elif isinstance(event, ev.AttemptStopRequested):
                self.preempted += 1


def arrivals(scenario: Scenario) -> list[tuple[int, str, Kind]]:
    found = []
    for c in range(scenario.cohorts):
        for q in range(scenario.queues):
            for kind in scenario.kinds:
                found += [((i + 1) * kind.every_ms, f"c{c}q{q}", kind) for i in range(kind.count)]
    return sorted(found, key=lambda one: (one[0], one[1], one[2].name))


def bound_s(scenario: Scenario) -> float:
    """Return the longest of arrivals and of quota: work of one cohort over its quota, and the last job's run."""
    work = sum(k.count * k.cpus * k.run_ms for k in scenario.kinds) / (NOMINAL * 1000)
    last = max(k.count * k.every_ms + k.run_ms for k in scenario.kinds) / 1000
    return max(work, last)


def play(scenario: Scenario, shown: str, min_runtime_ms: int) -> tuple[float, Watch, float]:
    """Return the time from the first arrival to the last end (s), what was seen, and the CPU time (s)."""
    controller = Controller(SimDisk(random.Random(0)), SystemClock(), name="bench")
    controller.open(config(scenario, min_runtime_ms))
    node, watch = SimulatedNode("n"), Watch()
    service = ControlService(
        controller, controller._store, node, SystemClock(), on_records=watch.records, on_fault=lambda e: print(repr(e))
    )
    node.service = service
    service.start()
    cpus = scenario.cohorts * scenario.queues * NOMINAL * 1000
    service.ask(msg.Hello(NodeSpec("n", Resources(cpus), port_count=0), "i1"))
    node.report((), inventory=True)
    runner = threading.Thread(target=node.run, daemon=True)
    runner.start()
    specs: dict[tuple[str, str], JobSpec] = {}
    coming = arrivals(scenario)
    cpu, begun = time.process_time(), time.monotonic()
    at, total, told = 0, len(coming), 0.0
    while watch.finished < total:
        now_ms = (time.monotonic() - begun) * 1000
        batch = []
        while at < total and coming[at][0] <= now_ms:
            _, name, kind = coming[at]
            spec = specs.get((name, kind.name))
            if spec is None:
                ask = GangAsk(1, ReplicaAsk(Resources(kind.cpus * 1000)))
                spec = JobSpec((str(kind.run_ms),), ask, name=kind.name, queue=name, priority=kind.priority, grace_ms=0)
                specs[name, kind.name] = spec
            batch.append(NewJob(spec))
            at += 1
        if batch:
            service.ask(Submit(tuple(batch), "bench"))
        if now_ms - told > 1_000:
            told = now_ms
            print(
                f"\r{shown}: {now_ms / 1000:.0f} s, {at} arrived, {watch.finished} done of {total}",
                end="",
                file=sys.stderr,
            )
        time.sleep(0.005)
    took, cpu = time.monotonic() - begun, time.process_time() - cpu
    print(file=sys.stderr)
    node.ending = True
    runner.join()
    service.stop()
    return took, watch, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the large scenario only, a tenth of its queues")
    parser.add_argument("--only", choices=sorted(SCENARIOS))
    parser.add_argument(
        "--min-runtime-ms", type=int, default=0, help="guaranteed run time of an attempt; Kueue has no such thing"
    )
    given = parser.parse_args()
    chosen = {n: s for n, s in SCENARIOS.items() if given.only in (None, n)}
    if given.quick:
        chosen = {"quick": SCENARIOS["large"]._replace(queues=10)}
    for name, scenario in chosen.items():
        took, watch, cpu = play(scenario, name, given.min_runtime_ms)
        least = bound_s(scenario)

        def row(metric: str, value: float, unit: str, limit: float | None = None, **more: object) -> None:
            print(json.dumps({"metric": metric, "value": round(value, 3), "unit": unit, "better": "lower",
                              "limit": limit, **more, "machine": machine()}), flush=True)  # fmt: skip

        reference = {"name": "Kueue, published, with API writes", "value": scenario.published_s}
        row(f"kueue_{name}_s", took, "s", round(1.2 * least, 1), reference=reference)
        row(
            f"kueue_{name}_over_bound", took / least, "1", 1.2, reference={"name": "quota and run time", "value": least}
        )
        row(f"kueue_{name}_cpu_s", cpu, "s")
        row(f"kueue_{name}_preemptions", watch.preempted, "1")
        for kind in scenario.kinds:
            waits = watch.admission_ms[kind.name]
            row(f"kueue_{name}_{kind.name}_admission_s", sum(waits) / len(waits) / 1000, "s")


if __name__ == "__main__":
    main()
