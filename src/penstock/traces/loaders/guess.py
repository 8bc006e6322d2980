"""A cluster for sources without one: as large as the peak of concurrent use."""

import msgspec

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, ReplicaAsk, Resources
from penstock.traces.loaders.build import Builder
from penstock.traces.loaders.shapes import NODES_MAX, equal_nodes
from penstock.traces.model import TraceJob


class _Group(msgspec.Struct):
    """Jobs that ask for one model of device (or for none), and what a node for them must have."""

    model: str
    changes: list[tuple[int, int, int, int]] = []
    """Time (ms), and how devices (thousandths), CPUs (thousandths) and memory (bytes) in use change then."""
    width: int = 0
    host: Resources = Resources()
    nodes: int = 1


def nodes_at_peak(builder: Builder) -> tuple[NodeSpec, ...]:
    """Return equal nodes for each model of device, and nodes without, that hold all that ran at once at the peak.

    Where the source does not tell when jobs started they count as started when they were submitted.
    Raises: TraceError above `NODES_MAX` nodes.
    """
    groups: dict[str, _Group] = {}
    for job in builder.jobs:
        model = _model(job.spec.ask)
        _count(groups.setdefault(model or "", _Group(model or "")), job)
    found: tuple[NodeSpec, ...] = ()
    for number, key in enumerate(sorted(groups)):
        found += _nodes(groups[key], f"n{number}-" if number else "n")
    if len(found) > NODES_MAX:
        raise builder.fault(f"jobs that {NODES_MAX} nodes can hold at once", f"{len(found)} nodes at the peak")
    return found


def _model(ask: GangAsk) -> str:
    """Return the model that a gang asks for, `GPU` when any will do, empty when it has no devices."""
    asked = [each.devices for each in (ask.each, *(group.each for group in ask.others)) if each.devices]
    return next((model for devices in asked for model in devices.models[:1]), "GPU" if asked else "")


def _count(group: _Group, job: TraceJob) -> None:
    ask = job.spec.ask
    start_ms = job.seen.started_ms if job.seen else job.submit_ms
    end_ms = start_ms + job.work.run_ms
    host = ask.host_total
    group.changes.append((start_ms, ask.device_milli, host.cpu_milli, host.memory_bytes))
    group.changes.append((end_ms, -ask.device_milli, -host.cpu_milli, -host.memory_bytes))
    for each in (ask.each, *(other.each for other in ask.others)):
        group.width = max(group.width, each.device_count)
        group.host = _larger(group.host, each)
    group.nodes = max(group.nodes, ask.replica_total)


def _larger(host: Resources, each: ReplicaAsk) -> Resources:
    return Resources(max(host.cpu_milli, each.host.cpu_milli), max(host.memory_bytes, each.host.memory_bytes))


def _nodes(group: _Group, prefix: str) -> tuple[NodeSpec, ...]:
    devices, cpu, memory = _peaks(group.changes)
    if group.width:
        count = max(group.nodes, -(-devices // (WHOLE_DEVICE_MILLI * group.width)))
    else:
        count = max(group.nodes, -(-cpu // max(1, group.host.cpu_milli)))
    host = Resources(
        max(group.host.cpu_milli, -(-cpu // count), 1000), max(group.host.memory_bytes, -(-memory // count))
    )
    return equal_nodes(count, devices=group.width, model=group.model, capacity=host, prefix=prefix)


def _peaks(changes: list[tuple[int, int, int, int]]) -> tuple[int, int, int]:
    """Return the peak use of each resource; resources released at a moment are free for jobs that start then."""
    used, peak = [0, 0, 0], [0, 0, 0]
    for change in sorted(changes):  # releases come first: their changes are negative
        for at in range(3):
            used[at] += change[at + 1]
            peak[at] = max(peak[at], used[at])
    return peak[0], peak[1], peak[2]
