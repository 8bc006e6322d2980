"""A whole trace, from an empty cluster to the end of its last job."""

import random
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from penstock.core.cycle.alternatives import PlanChooser
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import Incarnation
from penstock.core.order.extension import Policies
from penstock.core.predict.forecast import PastRun
from penstock.core.state.state import State
from penstock.sim.replay import life as on
from penstock.sim.replay.counters import Sample, StrategyUse
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.life import Life
from penstock.sim.replay.simulation import OPERATOR, Knows, OnPlan, OnRecords, Simulation
from penstock.traces.model import CapacityChange, Outage, Seen, Trace, TraceJob

Progress = Callable[[int, int], None]
"""Called with the number of finished jobs, and of all jobs."""
OnMoment = Callable[[Simulation, int], None]
PROGRESS_EVERY = 256
ORIGIN_MS = 946_684_800_000
"""Origin of a trace that has only offsets: 2000-01-01 UTC. In the core a time of 0 means "not yet"."""


class Ran(msgspec.Struct, frozen=True):
    """Result of a replay."""

    trace: str
    config: ClusterConfig
    lives: tuple[Life, ...]
    """In the order of submit."""
    samples: tuple[Sample, ...]
    begun_ms: int
    ended_ms: int
    busy_device_ms: int
    total_device_ms: int
    events: int
    cycles: int
    strategies: dict[str, StrategyUse] = {}
    start_ms: int = 0
    """From an allocation until every replica runs."""


def replay(
    trace: Trace,
    physics: Physics | None = None,
    *,
    config: ClusterConfig | None = None,
    knows: Knows = "declared",
    seed: int = 0,
    policies: Policies | None = None,
    on_progress: Progress | None = None,
    on_plan: OnPlan | None = None,
    on_records: OnRecords | None = None,
    on_moment: OnMoment | None = None,
    history: Sequence[PastRun] = (),
    chooser: PlanChooser | None = None,
) -> Ran:
    """Return the result of running the jobs of `trace` on its nodes.

    Args:
        config, seed: rules instead of the trace's own; of node failures, where `physics` has any.
        on_plan, on_records, on_moment: see every cycle, every event, and the engine after each complete moment.
        history: runs that the scheduler learns from before the first job.
        chooser: plans instead of one with these policies.
    """
    trace, state = from_origin(trace), State()
    begun_ms = first_ms(trace)
    engine = Simulation(
        state,
        physics or Physics(),
        knows=knows,
        policies=policies,
        on_plan=on_plan,
        on_records=on_records,
        history=history,
        chooser=chooser,
    )
    _open(trace, state, config or trace.config, begun_ms, on_records)
    engine.meter.begin(begun_ms, trace.jobs[-1].submit_ms if trace.jobs else begun_ms)
    _plan_ahead(engine, trace, seed, begun_ms)
    for count, now_ms in enumerate(engine.run(trace.jobs)):
        if on_moment is not None:
            on_moment(engine, now_ms)
        if on_progress is not None and count % PROGRESS_EVERY == 0:
            on_progress(state.finished_ok + state.finished_bad, len(trace.jobs))
    if on_progress is not None:
        on_progress(len(trace.jobs), len(trace.jobs))
    return Ran(
        trace=trace.name,
        config=config or trace.config,
        lives=tuple(engine.lives.values()),
        samples=tuple(engine.meter.samples),
        begun_ms=begun_ms,
        ended_ms=engine.meter.now_ms,
        busy_device_ms=engine.meter.busy_device_ms,
        total_device_ms=engine.meter.total_device_ms,
        events=state.seq,
        cycles=engine.cycles,
        strategies=engine.meter.strategies.done(engine.meter.now_ms),
        start_ms=engine.physics.start_ms,
    )


def from_origin(trace: Trace) -> Trace:
    """Return the trace in calendar times."""
    if first_ms(trace) >= ORIGIN_MS:
        return trace
    return replace(
        trace,
        jobs=tuple(_later(job) for job in trace.jobs),
        outages=tuple(
            Outage(o.node, o.from_ms + ORIGIN_MS, _shifted(o.until_ms), _shifted(o.known_ms)) for o in trace.outages
        ),
        changes=tuple(replace(change, at_ms=change.at_ms + ORIGIN_MS) for change in trace.changes),
    )


def _shifted(at_ms: int) -> int:
    return at_ms + ORIGIN_MS if at_ms else 0


def _later(job: TraceJob) -> TraceJob:
    seen = job.seen
    if seen is not None:
        started_ms = seen.started_ms + ORIGIN_MS if seen.started_ms else 0
        seen = Seen(started_ms, seen.ended_ms + ORIGIN_MS)
    return replace(job, submit_ms=job.submit_ms + ORIGIN_MS, seen=seen)


def first_ms(trace: Trace) -> int:
    """Return when the first thing happens; where nothing does, the origin."""
    times = [job.submit_ms for job in trace.jobs[:1]]
    times += [outage.from_ms for outage in trace.outages]
    times += [change.at_ms for change in trace.changes[:1]]
    return min(times, default=ORIGIN_MS)


def opened(trace: Trace) -> State:
    """Return the trace's cluster before its first job, with every node ready."""
    state = State()
    _open(trace, state, trace.config, first_ms(from_origin(trace)), None)
    return state


def _open(trace: Trace, state: State, config: ClusterConfig, begun_ms: int, on_records: OnRecords | None) -> None:
    tx = Transaction(state, begun_ms)
    tx.emit(ev.ConfigChanged(_told(config), OPERATOR))
    for spec in trace.nodes:
        tx.emit(ev.NodeRegistered(spec, Incarnation("i1")))
        tx.emit(ev.NodeReady(spec.name))
    if on_records is not None:
        on_records(tx.records)


def _told(config: ClusterConfig) -> ClusterConfig:
    """Return the configuration of a replay: the trace says which nodes are closed, and strikes close none."""
    return replace(config, settings=replace(config.settings, node_strikes_max=0))


def _plan_ahead(engine: Simulation, trace: Trace, seed: int, begun_ms: int) -> None:
    """Put external events on the agenda: outages, changes by operators, and random node failures."""
    for outage in trace.outages:
        engine.push(outage.from_ms, on.GONE, outage.node, outage.until_ms, outage.known_ms)
    for change in trace.changes:
        engine.push(change.at_ms, on.CHANGED, *_events_of(change))
    physics = engine.physics
    if physics.node_mtbf_ms and trace.jobs:
        last_ms = trace.jobs[-1].submit_ms + max(job.work.run_ms for job in trace.jobs)
        for number, spec in enumerate(trace.nodes):
            draw = random.Random(f"{seed}/{number}")
            at_ms = begun_ms
            while (at_ms := at_ms + round(draw.expovariate(1 / physics.node_mtbf_ms))) < last_ms:
                engine.push(at_ms, on.GONE, spec.name, at_ms + physics.node_repair_ms, 0)
                at_ms += physics.node_repair_ms


def _events_of(change: CapacityChange) -> list[ev.AnyEvent]:
    events: list[ev.AnyEvent] = []
    if change.config is not None:
        events.append(ev.ConfigChanged(_told(change.config), OPERATOR))
    if change.drained is not None:
        events.append(ev.NodeDrainChanged(change.drained, True, OPERATOR))
    if change.opened is not None:
        events.append(ev.NodeDrainChanged(change.opened, False, OPERATOR))
    return events
