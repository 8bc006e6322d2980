"""Shanghai AI Lab Acme: `trace_seren.csv` and `trace_kalos.csv`, and the converted Kalos jobs of a fork.

Sources of the formats: https://github.com/InternLM/AcmeTrace (README), and for the converted file
https://github.com/hyunnnchoi/AcmeTrace transform_trace.py. Hu et al., NSDI 2024.
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import JobSpec
from penstock.core.model.resources import Resources
from penstock.formats.devices import GIB
from penstock.formats.numbers import RUN_MAX_MS
from penstock.traces.loaders.build import Builder
from penstock.traces.loaders.clusterlog import WIDTH, Asked, devices_only, read_rows, with_cpus
from penstock.traces.loaders.shapes import DEVICES_MAX, Width, equal_nodes, processors, widest
from penstock.traces.loaders.table import TextTable, words_of
from penstock.traces.model import Trace
from penstock.traces.nodes import NodeGroup

NODE_CPUS = 128
CLUSTERS = {"kalos": (302, 2048), "seren": (286, 1024)}
"""Nodes, and host memory of each in GiB, by the name of the cluster in the path."""
ITERATIONS_MAX = 10**12
CONVERTED = ("job_id", "arrival_time", "num_iteration", "iteration_computing_time", "gpu_workers", "gpu_per_worker")
ORIGINAL = (
    "job_id", "user", "gpu_num", "cpu_num", "type", "state", "submit_time", "start_time", "end_time", "duration"
)  # fmt: skip


def read(path: Path, given: Sequence[NodeGroup] = ()) -> Trace:
    """Return the jobs on as many nodes of 8 A100 as the cluster has, or on those given: whole nodes and a remainder.

    Raises: TraceError.
    """
    table, builder = TextTable(path), Builder(path, given)
    cluster = next((name for name in CLUSTERS if name in words_of(path)), "kalos")
    nodes, memory_gib = CLUSTERS[cluster]

    def own() -> tuple[NodeSpec, ...]:
        builder.note(f"cluster: {nodes} nodes x {WIDTH} A100 ({cluster}, Hu et al. 2024); the file names none")
        capacity = Resources(1000 * NODE_CPUS, memory_gib * GIB)
        return equal_nodes(nodes, devices=WIDTH, model="A100", capacity=capacity)

    present = builder.cluster(own)
    if "num_iteration" in table.names or "gpu_workers" in table.names:
        _converted(table, builder, widest(present))
    else:
        _original(table, builder, widest(present))
    return builder.trace(present)


def _converted(table: TextTable, builder: Builder, width: Width) -> None:
    """Read the fork's columns: a worker is a node, and iterations x their time is the run time."""
    job, arrival, count, each, workers, per_worker = table.columns(*CONVERTED)
    request = devices_only(width)
    for row in table.rows():
        submit_ms = table.offset_ms(row, arrival)
        run_ms = table.whole(row, count, high=ITERATIONS_MAX) * table.length_ms(row, each)
        if run_ms > RUN_MAX_MS:
            raise table.wrong(row, count, "iterations of at most a hundred years in all")
        devices = table.whole(row, workers, low=1, high=DEVICES_MAX) * table.milli(row, per_worker) // 1000
        if not 1 <= devices <= DEVICES_MAX:
            raise table.wrong(row, per_worker, f"1 to {DEVICES_MAX} devices in all workers together")
        builder.ran(row[job], submit_ms, run_ms, devices, request)
    builder.note("run time is iterations x computing time; networking time is synthetic in this file and not used")


def _original(table: TextTable, builder: Builder, width: Width) -> None:
    def request(builder: Builder, asked: Asked) -> JobSpec:
        devices, cpus, kind = asked
        ask = with_cpus(builder, devices, cpus, width) if devices else processors(max(1, cpus), width.cpus)
        return builder.request(ask, label=("type", kind))

    read_rows(table, builder, ORIGINAL, request)
