"""Small traces, and what became of them."""

from typing import Any

from msgspec.structs import replace

from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.jobs import CheckpointSpec, JobSpec
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.replay import ORIGIN_MS, Ran, replay
from penstock.testing.builders import config, job_spec, node
from penstock.traces.model import Outage, Seen, Trace, TraceJob, Work

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


def job(
    at_s: int = 0,
    run_s: int = 60,
    devices: int = 1,
    replicas: int = 1,
    *,
    saves: bool = False,
    every_s: int = 600,
    seen: Seen | None = None,
    **fields: Any,
) -> TraceJob:
    """Return a job; what `Work` knows goes to its work, the rest to its spec."""
    work = {name: fields.pop(name) for name in list(fields) if name in Work.__struct_fields__}
    spec = fields.pop("spec", None) or job_spec(
        devices, replicas, checkpoint=CheckpointSpec(interval_ms=every_s * SECOND), **fields
    )
    assert isinstance(spec, JobSpec)
    return TraceJob(f"j{at_s}", at_s * SECOND, spec, "ann", Work(run_s * SECOND, saves=saves, **work), seen)


def trace(
    *jobs: TraceJob,
    nodes: tuple[NodeSpec, ...] = (node("a", 4),),
    rules: ClusterConfig | None = None,
    outages: tuple[Outage, ...] = (),
    **fields: Any,
) -> Trace:
    return Trace("t", jobs, nodes, rules or config(), outages, **fields)


def unmeasured(given: Trace) -> Trace:
    """Return the trace without what its programs were measured to do."""
    return replace(given, jobs=tuple(replace(job, work=replace(job.work, trains=None)) for job in given.jobs))


def ran(given: Trace, **options: Any) -> Ran:
    physics = Physics(**{name: options.pop(name) for name in list(options) if name in Physics.__struct_fields__})
    return replay(given, physics, **options)


def times(given: Ran) -> list[tuple[int, int]]:
    """Return when each job started and ended, in seconds."""
    return [(seconds(life.started_ms), seconds(life.ended_ms)) for life in given.lives]


def seconds(time_ms: int) -> int:
    return (time_ms - ORIGIN_MS) // SECOND if time_ms else 0
