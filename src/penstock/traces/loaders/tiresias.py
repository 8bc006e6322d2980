"""Tiresias simulator inputs: a job list, and the cluster description beside it.

Source of the format: https://github.com/SymbioticLab/Tiresias simulator/. Gu et al., NSDI 2019.
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import JobSpec
from penstock.core.model.resources import Resources
from penstock.formats.devices import GIB
from penstock.traces.loaders.build import Builder
from penstock.traces.loaders.shapes import DEVICES_MAX, NODES_MAX, WIDTH_MAX, equal_nodes, gang, widest
from penstock.traces.loaders.table import TextTable, nodes_beside
from penstock.traces.model import Trace
from penstock.traces.nodes import NodeGroup

COLUMNS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")
CLUSTER_COLUMNS = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")
CLUSTER_FILES = ("n32g4.csv", "n160g8.csv", "n256g8.csv")
"""In this order: the first is the one that the simulator's own examples use."""
CPUS_MAX = 10_000
MEMORY_GB_MAX = 1_000_000


def read(path: Path, given: Sequence[NodeGroup] = ()) -> Trace:
    """Return the jobs, named after the model that they train, on the cluster of the description beside them.

    Raises: TraceError.
    """
    table, builder = TextTable(path), Builder(path, given)
    if "num_switch" in table.names:
        found = ",".join(table.names)
        raise table.fault("", found, "a job list", "this describes a cluster: name a job list such as 60_job.csv")
    columns = table.columns(*COLUMNS)
    nodes = builder.cluster(lambda: _nodes(path, builder))
    width = widest(nodes).devices
    job, gpus, submit, model, duration = columns
    for row in table.rows():
        submit_ms, run_ms = table.offset_ms(row, submit), table.length_ms(row, duration)
        asked = (table.whole(row, gpus, low=1, high=DEVICES_MAX), width, row[model])
        builder.ran(row[job], submit_ms, run_ms, asked, _request)
    return builder.trace(nodes)


def _request(builder: Builder, asked: tuple[int, int, str]) -> JobSpec:
    devices, width, model = asked
    return builder.request(gang(devices, width), name=model)


def _nodes(path: Path, builder: Builder) -> tuple[NodeSpec, ...]:
    described = nodes_beside(path, CLUSTER_FILES, "a cluster description beside it, " + " or ".join(CLUSTER_FILES))
    table = TextTable(described)
    switches, per_switch, gpus, cpus, memory = table.columns(*CLUSTER_COLUMNS)
    row = next(table.rows(), None)
    if row is None:
        raise table.fault("", "no row", "one row that describes the cluster")
    each = table.whole(row, per_switch, low=1, high=NODES_MAX)
    count = table.whole(row, switches, low=1, high=NODES_MAX) * each
    if count > NODES_MAX:
        raise table.wrong(row, switches, f"at most {NODES_MAX} nodes in all")
    capacity = Resources(
        1000 * table.whole(row, cpus, low=1, high=CPUS_MAX), table.whole(row, memory, low=1, high=MEMORY_GB_MAX) * GIB
    )
    devices = table.whole(row, gpus, low=1, high=WIDTH_MAX)
    builder.note(f"cluster: {count} nodes x {devices} GPUs on {count // each} switches from {described.name}")
    return equal_nodes(count, devices=devices, capacity=capacity, switch_nodes=each)
