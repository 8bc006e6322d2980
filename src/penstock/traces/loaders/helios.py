"""SenseTime Helios: the published `cluster_log.csv` of one cluster, and a projection of it to four columns.

Source of the format: https://github.com/S-Lab-System-Group/HeliosData (README); clusters: Hu et al., SC 2021, table 1.
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import JobSpec
from penstock.core.model.resources import Resources
from penstock.traces.loaders.build import Builder
from penstock.traces.loaders.clusterlog import WIDTH, Asked, devices_only, read_rows, with_cpus
from penstock.traces.loaders.shapes import DEVICES_MAX, Width, equal_nodes, processors, widest
from penstock.traces.loaders.table import TextTable, words_of
from penstock.traces.model import Trace
from penstock.traces.nodes import NodeGroup

CLUSTERS = {"venus": (133, 48), "earth": (143, 48), "saturn": (262, 64), "uranus": (264, 64)}
"""Nodes, and CPUs of a node, by the name of the cluster in the path; Venus where there is none."""
PROJECTION = ("job_id", "arrival_s", "service_sec", "gpu_count")
ORIGINAL = (
    "job_id", "user", "gpu_num", "cpu_num", "vc", "state", "submit_time", "start_time", "end_time", "duration"
)  # fmt: skip


def read(path: Path, given: Sequence[NodeGroup] = ()) -> Trace:
    """Return the jobs on as many nodes of 8 V100 as the cluster has, or on those given: whole nodes and a remainder.

    Raises: TraceError.
    """
    table, builder = TextTable(path), Builder(path, given)
    cluster = next((name for name in CLUSTERS if name in words_of(path)), "venus")
    nodes, cpus = CLUSTERS[cluster]
    projected = "service_sec" in table.names or "arrival_s" in table.names

    def own() -> tuple[NodeSpec, ...]:
        builder.note(f"cluster: {nodes} nodes x {WIDTH} V100 ({cluster}, Hu et al. 2021); the file names none")
        capacity = Resources(64_000 if projected else 1000 * cpus)
        return equal_nodes(nodes, devices=WIDTH, model="V100", capacity=capacity)

    present = builder.cluster(own)
    if projected:
        _projection(table, builder, widest(present))
    else:
        _original(table, builder, widest(present))
        builder.note("times have no zone in the source: they count as UTC")
    return builder.trace(present)


def _projection(table: TextTable, builder: Builder, width: Width) -> None:
    job, arrival, service, count = table.columns(*PROJECTION)
    request = devices_only(width)
    for row in table.rows():
        submit_ms = table.offset_ms(row, arrival)
        run_ms = table.length_ms(row, service)
        devices = table.whole(row, count, low=1, high=DEVICES_MAX)
        builder.ran(row[job], submit_ms, run_ms, devices, request)


def _original(table: TextTable, builder: Builder, width: Width) -> None:
    def request(builder: Builder, asked: Asked) -> JobSpec:
        devices, cpus, vc = asked
        if not devices:
            return builder.request(processors(max(1, cpus), width.cpus), vc, vc)
        return builder.request(with_cpus(builder, devices, cpus, width), vc, vc)

    read_rows(table, builder, ORIGINAL, request)
