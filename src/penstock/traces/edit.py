"""Traces made from traces: other nodes, more or less load, and workloads resampled from a real one."""

import random
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.errors import nearest
from penstock.core.model.ids import NodeName
from penstock.core.model.words import counted
from penstock.traces.model import Trace, TraceJob
from penstock.traces.nodes import NodeChange, cluster_of, node_change, nodes_text

NODES_MAX = 1_000_000
DAY_MS = 86_400_000
BLOCKS_MIN = 10
"""A trace of fewer days is drawn from in shorter blocks."""
JITTER_MS = 300_000
"""Largest distance in time between a job and its copies, where load is added."""


def with_nodes(trace: Trace, change: str) -> Trace:
    """Return the trace on other nodes.

    Jobs keep their shape; where the source leaves it open, `load` with the nodes of `given_cluster` is better.

    Args:
        change: `90` for a total, `+4` or `-2` for more or fewer, `+4xH100` for more like the first with such devices.
            Fewer removes the last ones; more adds copies of the present ones, in turn. `16x8xH100:cpus=96,4x0` for
            other nodes, with a `+` before it in addition (see `traces.nodes`).
    Raises: InvalidInput for any other `change`, or when it leaves no node.
    """
    asked = node_change(change)
    if asked.groups:
        return _with_groups(trace, asked)
    present = len(trace.nodes)
    wanted = {"": asked.number, "+": present + asked.number, "-": present - asked.number}[asked.sign]
    if not 0 < wanted <= NODES_MAX:
        raise asked.bad(f"that would be {wanted} nodes, expected 1 to {NODES_MAX}")
    model = asked.model
    like = [spec for spec in trace.nodes if not model or any(d.model == model for d in spec.devices)]
    if not like:
        models = {device.model for spec in trace.nodes for device in spec.devices}
        hint = nearest(model, models) or f"for nodes with other devices say how many: +{asked.number}x8x{model}"
        raise asked.bad(f"no node has devices of model {model}", hint)
    if model:
        like = like[:1]
    return _noted(_on_nodes(trace, trace.nodes[:wanted] + _copies(trace.nodes, like, wanted - present)), asked)


def _with_groups(trace: Trace, asked: NodeChange) -> Trace:
    made = cluster_of(asked.groups, lambda: trace.nodes, {spec.pool for spec in trace.nodes})
    if asked.sign:
        return _noted(_on_nodes(trace, trace.nodes + _copies(trace.nodes, made, len(made))), asked)
    changes = tuple(change for change in trace.changes if change.config is not None)
    notes = tuple(note for note in trace.notes if not note.startswith("cluster: "))
    notes += (f"cluster: {nodes_text(made)}, as given",)
    return replace(trace, nodes=made, outages=(), changes=changes, notes=notes)


def _noted(trace: Trace, asked: NodeChange) -> Trace:
    """Return the trace with a note of its nodes, beside that of the source's."""
    return replace(trace, notes=(*trace.notes, f"nodes {asked.text} instead: {nodes_text(trace.nodes)}"))


def _on_nodes(trace: Trace, nodes: tuple[NodeSpec, ...]) -> Trace:
    """Return the trace on these nodes, without events of other nodes."""
    names = {spec.name for spec in nodes}
    return replace(
        trace,
        nodes=nodes,
        outages=tuple(outage for outage in trace.outages if outage.node in names),
        changes=tuple(c for c in trace.changes if {c.drained, c.opened} <= {None, *names}),
    )


def without_nodes(trace: Trace, gone: Collection[NodeName]) -> Trace:
    """Return the trace without these nodes."""
    return _on_nodes(trace, tuple(spec for spec in trace.nodes if spec.name not in gone))


def _copies(nodes: Sequence[NodeSpec], like: Sequence[NodeSpec], count: int) -> tuple[NodeSpec, ...]:
    taken = {spec.name for spec in nodes}
    made: list[NodeSpec] = []
    number = 0
    while len(made) < count:
        number += 1
        name = NodeName(f"added-{number:04}")
        if name not in taken:
            made.append(replace(like[len(made) % len(like)], name=name))
    return tuple(made)


def with_names_of(config: ClusterConfig, trace: Trace) -> tuple[ClusterConfig, str]:
    """Return the configuration with the queues and tenants of the trace that it lacks, and a note of them ("" of none).

    Without them their jobs could never start.
    """
    names, tenants = {queue.name for queue in config.queues}, {tenant.name for tenant in config.tenants}
    queues = tuple(queue for queue in trace.config.queues if queue.name not in names)
    more = tuple(tenant for tenant in trace.config.tenants if tenant.name not in tenants)
    if not queues and not more:
        return config, ""
    whole = replace(config, queues=(*config.queues, *queues), tenants=(*config.tenants, *more))
    lacking = [counted(len(found), noun) for found, noun in ((queues, "queue"), (more, "tenant")) if found]
    return whole, f"{' and '.join(lacking)} of the trace that it does not declare: they are as in the trace"


def drawn_like(trace: Trace, seed: int, load: float = 1.0) -> Trace:
    """Return a resampled workload: blocks of a day drawn from those of the trace, with replacement.

    Within a block everything stays as it was, so that hours of the day, bursts and sweeps, and joint submits of a
    user, are kept. A trace of less than ten days is cut into ten blocks. Dependencies are dropped: a block may come
    twice, or not at all.

    Args:
        load: number of jobs relative to the trace; a copy comes up to five minutes from its original.
    Source: block bootstrap, Künsch 1989.
    """
    if not trace.jobs:
        return trace
    draw = random.Random(f"{seed}")
    begun_ms = trace.jobs[0].submit_ms
    span_ms = trace.jobs[-1].submit_ms - begun_ms + 1
    block_ms = max(1, min(DAY_MS, span_ms // BLOCKS_MIN))
    blocks: list[list[TraceJob]] = [[] for _ in range(-(-span_ms // block_ms))]
    for job in trace.jobs:
        blocks[(job.submit_ms - begun_ms) // block_ms].append(job)
    jobs: list[TraceJob] = []
    order = [draw.randrange(len(blocks)) for _ in blocks]
    for place, chosen in enumerate(order):
        shift_ms = (place - chosen) * block_ms
        for job in blocks[chosen]:
            jobs += _times(job, shift_ms, load, draw)
    jobs.sort(key=lambda job: job.submit_ms)
    note = f"drawn like {trace.name}, seed {seed}, load {load:g}: {len(jobs)} of {len(trace.jobs)} jobs"
    return replace(trace, jobs=tuple(jobs), outages=(), changes=(), notes=(*trace.notes, note))


def _times(job: TraceJob, shift_ms: int, load: float, draw: random.Random) -> list[TraceJob]:
    whole = int(load)
    count = whole + (draw.random() < load - whole)
    spec = replace(job.spec, after=()) if job.spec.after else job.spec
    made = []
    for number in range(count):
        jitter_ms = draw.randint(-JITTER_MS, JITTER_MS) if number else 0
        submit_ms = max(0, job.submit_ms + shift_ms + jitter_ms)
        made.append(replace(job, submit_ms=submit_ms, spec=spec, seen=None))
    return made
