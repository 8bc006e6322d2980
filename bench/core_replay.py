"""Replays a trace with `penstock.sim.replay`, but plans only when something happens, never because time has passed.

What `bench.queueing_quality` measures was chosen with such a loop. The control loop, and a replay as it is, plan also
when a job has waited for its bound, or when a run goes on for longer than was expected. With true run times that
changes nothing; with learned ones the month gives 11,306 s and a 99th percentile of 63,692 s instead of 11,434 and
55,152.
"""

import sys
import time
from typing import Any, NamedTuple

from msgspec.structs import replace as changed

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import Incarnation, UserName
from penstock.core.state.state import State
from penstock.sim.replay import life as on
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.measures import spread
from penstock.sim.replay.simulation import Knows, Simulation
from penstock.traces import Trace

START_MS = 1_600_000_000_000
"""When the trace begins. Forecasts look at the clock in steps: 7,777 s later it is 11,956 and 68,686."""
SHOWN_EVERY_S = 2


class Outcome(NamedTuple):
    mean_jct_s: float
    mean_queue_s: float
    p99_queue_s: float
    events: int
    cpu_s: float


class OnEvents(Simulation):
    """An engine whose agenda holds nothing that is due to time alone."""

    def push(self, at_ms: int, kind: on.Happening, *about: Any) -> None:
        if kind != on.TIME:
            super().push(at_ms, kind, *about)


def replay(trace: Trace, config: ClusterConfig, knows: Knows, shown: str = "") -> Outcome:
    """Return what became of the jobs of `trace`; its times are offsets."""
    state = State()
    tx = Transaction(state, START_MS)
    tx.emit(ev.ConfigChanged(config, UserName("bench")))
    for spec in trace.nodes:
        tx.emit(ev.NodeRegistered(spec, Incarnation("i")))
        tx.emit(ev.NodeReady(spec.name))
    engine = OnEvents(state, Physics(), knows=knows)
    begun, told = time.process_time(), 0.0
    for _ in engine.run(changed(job, submit_ms=START_MS + job.submit_ms) for job in trace.jobs):
        if shown and time.monotonic() - told > SHOWN_EVERY_S:
            told = time.monotonic()
            print(f"\r{shown}: {state.finished_ok} of {len(trace.jobs)} ended", end="", file=sys.stderr)
    if shown:
        print(file=sys.stderr)
    cpu_s = time.process_time() - begun
    waits = spread([life.wait_ms for life in engine.lives.values()])
    completions = spread([life.completion_ms for life in engine.lives.values()])
    return Outcome(completions.mean / 1000, waits.mean / 1000, waits.p99 / 1000, state.seq, cpu_s)
