"""SenseTime Helios: the published `cluster_log.csv` of one cluster, and a projection of it to four columns.

Source of the format: https://github.com/S-Lab-System-Group/HeliosData (README); clusters: Hu et al., SC 2021, table 1.
"""

from pathlib import Path

from penstock.core.model.jobs import JobSpec
from penstock.core.model.resources import Resources
from penstock.traces.loaders.build import Builder
from penstock.traces.loaders.clusterlog import WIDTH, Asked, devices_only, read_rows, with_cpus
from penstock.traces.loaders.shapes import DEVICES_MAX, equal_nodes, processors
from penstock.traces.loaders.table import TextTable, words_of
from penstock.traces.model import Trace

CLUSTERS = {"venus": (133, 48), "earth": (143, 48), "saturn": (262, 64), "uranus": (264, 64)}
"""Nodes, and CPUs of a node, by the name of the cluster in the path; Venus where there is none."""
PROJECTION = ("job_id", "arrival_s", "service_sec", "gpu_count")
ORIGINAL = (
    "job_id", "user", "gpu_num", "cpu_num", "vc", "state", "submit_time", "start_time", "end_time", "duration"
)  # fmt: skip


def read(path: Path) -> Trace:
    """Return the jobs on as many nodes of 8 V100 as the cluster has: whole nodes and a remainder.

    Raises: TraceError.
    """
    table, builder = TextTable(path), Builder(path)
    cluster = next((name for name in CLUSTERS if name in words_of(path)), "venus")
    nodes, cpus = CLUSTERS[cluster]
    if "service_sec" in table.names or "arrival_s" in table.names:
        _projection(table, builder)
        capacity_milli = 64_000
    else:
        _original(table, builder, cpus)
        capacity_milli = 1000 * cpus
        builder.note("times have no zone in the source: they count as UTC")
    builder.note(f"cluster: {nodes} nodes x {WIDTH} V100 ({cluster}, Hu et al. 2021); the file names none")
    return builder.trace(equal_nodes(nodes, devices=WIDTH, model="V100", capacity=Resources(capacity_milli)))


def _projection(table: TextTable, builder: Builder) -> None:
    job, arrival, service, count = table.columns(*PROJECTION)
    for row in table.rows():
        submit_ms = table.offset_ms(row, arrival)
        run_ms = table.length_ms(row, service)
        devices = table.whole(row, count, low=1, high=DEVICES_MAX)
        builder.ran(row[job], submit_ms, run_ms, devices, devices_only)


def _original(table: TextTable, builder: Builder, node_cpus: int) -> None:
    def request(builder: Builder, asked: Asked) -> JobSpec:
        devices, cpus, vc = asked
        if not devices:
            return builder.request(processors(max(1, cpus), node_cpus), vc, vc)
        return builder.request(with_cpus(builder, devices, cpus, Resources(1000 * node_cpus)), vc, vc)

    read_rows(table, builder, ORIGINAL, request)
