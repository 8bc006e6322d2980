"""What each cache of the planning path is worth: CPU time of planning without it, over that with it.

    python -m bench.caches

A cache that is worth nothing on any of these scenarios has no place in the code. Each is switched off by itself, the
decisions are compared with those of the code as it is, and the two ways run in turn, so that a noisy machine slows
both. The figures stand in docs/benchmarks.md.
"""

import argparse
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import core_cycle, hpc_log
from bench.harness import machine
from bench.plan_digests import of_replay, parts
from penstock.core.cycle import cycle, planner, resume, workspace
from penstock.core.lifecycle.orders import apply_plan
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, NodeSpec, Settings
from penstock.core.model.jobs import JobSpec
from penstock.core.order import queues
from penstock.core.place import capacity, holds, mig, openings
from penstock.core.place.gang import GangPlacer
from penstock.core.preempt import preemptor
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.state import State
from penstock.core.state.usage import pool_totals, whole_total
from penstock.testing.builders import device, job_spec, node
from penstock.traces import Trace, load

NODES, JOBS, ROUNDS = 1_000, 10_000, 100
DEVICES, GIB = 8, 2**30
HPC_JOBS = 1_000
PAIRS = 2
REPLAYS = ("helios, fair_share", "helios, least_attained")


class Cache(NamedTuple):
    """A cache, and how it is switched off: attributes of `owner` replaced while a scenario runs."""

    owner: Any
    patches: dict[str, Callable[..., Any]]


class Never(dict[Any, Any]):
    """A dictionary that keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def setdefault(self, key: Any, default: Any = None) -> Any:
        return default


def forgetting(owner: type, *attributes: str) -> Cache:
    """Switch off a cache that is a dictionary made by the class's `__init__`."""
    real = owner.__init__  # type: ignore[misc]

    def init(self: Any, *args: Any, **fields: Any) -> None:
        real(self, *args, **fields)
        for name in attributes:
            setattr(self, name, Never())

    return Cache(owner, {"__init__": init})


def _shape(self: Any, ask: Any, tenant: Any) -> Any:
    return GangPlacer(ask, self.cluster, tenant)


def _shapes(self: Any, key: Any) -> Any:
    return [self._shape(ask, key.tenant) for ask in (key.ask, *key.alternatives)]


def _totals(self: Any, snapshot: Any) -> Any:
    return pool_totals(snapshot.free), whole_total(snapshot.free)


CACHES = {
    "shapes ready to be placed": Cache(planner.Planner, {"_shape": _shape, "_shapes": _shapes}),
    "shapes of classes": Cache(planner.Planner, {"_shapes": _shapes}),
    "totals of the cluster": Cache(planner.Planner, {"totals": _totals}),
    "shapes that did not fit beside holds": forgetting(workspace.Workspace, "_lifted"),
    "jobs alike that wait": forgetting(cycle.Cycle, "_failed"),
    "gangs alike but for their size": Cache(cycle.Cycle, {"_waits_too": lambda self, cursor: False}),
    "views of held nodes": forgetting(holds.Holds, "_views"),
    "states beside holds": forgetting(holds.Holds, "_more"),
    "openings": Cache(openings.KnownOpenings, {"get": lambda self, asked, version: None}),
    "demand of a class": forgetting(queues.QueueTree, "_demands"),
    "links of devices": forgetting(capacity.NodeShape, "_near", "_groups", "_meshed"),
    "suspended attempts that did not fit": forgetting(resume.Resumer, "_tried"),
    "MIG futures": Cache(mig, {"_futures": mig._futures.__wrapped__}),
    "lowest priority of a pool": Cache(preemptor.Preemptor, {"may_ask": lambda self, cursor: True}),
}


@contextmanager
def without(cache: Cache) -> Iterator[None]:
    kept = {name: getattr(cache.owner, name) for name in cache.patches}
    for name, patched in cache.patches.items():
        setattr(cache.owner, name, patched)
    try:
        yield
    finally:
        for name, real in kept.items():
            setattr(cache.owner, name, real)


class Scenario(NamedTuple):
    """Something that plans: `prepare` is not timed, `run` returns what has to be the same with and without a cache."""

    prepare: Callable[[], Any]
    run: Callable[[Any], Any]


def _cold(*, gang: bool) -> Scenario:
    def run(state: Any) -> Any:
        return planner.Planner().plan(take_snapshot(state), core_cycle.NOW_MS).starts

    return Scenario(lambda: core_cycle.build(NODES, JOBS // 4 if gang else JOBS, gang=gang), run)


def _full() -> Any:
    state, now_ms = core_cycle.build(NODES, JOBS), core_cycle.NOW_MS
    found = planner.Planner().plan(take_snapshot(state), now_ms)
    apply_plan(Transaction(state, now_ms), found)
    return state


def _one_after_the_other(state: Any) -> Any:
    core_cycle.incremental(planner.Planner(), state, ROUNDS)
    return state.seq


def _state(nodes: list[NodeSpec], specs: list[JobSpec]) -> State:
    """Return a state of empty nodes and of jobs that wait."""
    state = State()
    tx = Transaction(state, core_cycle.NOW_MS)
    tx.emit(ev.ConfigChanged(ClusterConfig(settings=Settings(starts_per_cycle_max=1_000_000)), "bench"))
    for spec in nodes:
        tx.emit(ev.NodeRegistered(spec, "i1"))
        tx.emit(ev.NodeReady(spec.name))
    for number, job in enumerate(specs, 1):
        tx.emit(ev.JobSubmitted(number, job, "ann"))
    return state


def _many_kinds() -> Any:
    """Return a full cluster, and jobs of 2,000 lengths and 20 asks that wait."""
    draw = random.Random(3)
    nodes = [node(f"n{i}", DEVICES, cpus=128) for i in range(NODES // 10)]
    full = [job_spec(1, cpus=4, time_limit_ms=draw.randrange(1, 100) * 60_000) for _ in range(len(nodes) * DEVICES)]
    wait = [
        job_spec(draw.choice((1, 2, 4, 8)), cpus=draw.randrange(1, 6), time_limit_ms=draw.randrange(60_000, 9_000_000))
        for _ in range(2_000)
    ]
    state = _state(nodes, full + wait)
    apply_plan(Transaction(state, core_cycle.NOW_MS), planner.Planner().plan(take_snapshot(state), core_cycle.NOW_MS))
    return state


def _instances() -> Any:
    """Return a cluster of devices that may be cut up, and jobs for each profile."""
    draw = random.Random(4)
    devices = tuple(device(i, memory_bytes=40 * GIB, mig=True) for i in range(DEVICES))
    profiles = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
    nodes = [node(f"n{i}", devices, cpus=128) for i in range(NODES // 20)]
    return _state(nodes, [job_spec(1, profile=draw.choice(profiles)) for _ in range(1_000)])


def _hpc_log() -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        path, jobs = Path(folder, "log.swf"), hpc_log.jobs_of(0, HPC_JOBS, hpc_log.PROCESSORS)
        hpc_log.write(path, hpc_log.with_load(jobs, hpc_log.PROCESSORS, 2.0), hpc_log.PROCESSORS, estimates=True)
        return load(path)


def _plan(state: Any) -> Any:
    return planner.Planner().plan(take_snapshot(state), core_cycle.NOW_MS).starts


def scenarios() -> dict[str, Scenario]:
    found = {
        "gangs": _cold(gang=True),
        "single jobs": _cold(gang=False),
        "a job ends": Scenario(_full, _one_after_the_other),
        "a job ends, many kinds wait": Scenario(_many_kinds, _one_after_the_other),
        "instances": Scenario(_instances, _plan),
        "HPC log": Scenario(_hpc_log, lambda trace: of_replay(trace, "fifo")),
    }
    for name, work in parts(os.environ.get("PENSTOCK_TRACES")):
        if name in REPLAYS or name.endswith("crowded worlds"):
            found[name] = Scenario(lambda: None, lambda _, work=work: work())  # type: ignore[misc]
    return found


def timed(scenario: Scenario) -> tuple[float, Any]:
    """Return the CPU seconds of one run, and what came of it."""
    prepared = scenario.prepare()
    gc.collect()
    begun = time.process_time()
    found = scenario.run(prepared)
    return time.process_time() - begun, found


def worth(scenario: Scenario, cache: Cache) -> float:
    """Return the CPU time without the cache over that with it: the least of several runs of each, in turn."""
    with_it, without_it = [], []
    for _ in range(PAIRS):
        took, expected = timed(scenario)
        with_it.append(took)
        with without(cache):
            took, found = timed(scenario)
        without_it.append(took)
        if found != expected:
            raise SystemExit("a decision hangs on a cache")
    return min(without_it) / min(with_it)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the name of a cache")
    parser.add_argument("--scenario", default="", help="part of the name of a scenario")
    chosen = parser.parse_args()
    print(json.dumps({"machine": machine()}))
    known = {name: scenario for name, scenario in scenarios().items() if chosen.scenario in name}
    for name, cache in CACHES.items():
        if chosen.only in name:
            print(f"{name} ...", file=sys.stderr)
            ratios = {scenario: round(worth(known[scenario], cache), 2) for scenario in known}
            print(json.dumps({"cache": name, "without_over_with": ratios, "most": max(ratios.values())}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
