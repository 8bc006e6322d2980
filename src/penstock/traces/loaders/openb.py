"""Alibaba openb (cluster-trace-gpu-v2023): pods that share GPUs, on the nodes of the list beside them.

Source of the format: https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023 (README).
Weng et al., ATC 2023.
"""

from pathlib import Path

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import PRIORITY_CLASSES, GangAsk, JobSpec
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, DeviceAsk, ReplicaAsk, Resources
from penstock.traces.loaders.build import NO_START, Builder
from penstock.traces.loaders.shapes import NODES_MAX, WIDTH_MAX, NodeNames, devices_of
from penstock.traces.loaders.table import Row, TextTable, needed_beside
from penstock.traces.model import Ending, Seen, Trace

CPU_MILLI_MAX = 10_000_000
MEMORY_MIB_MAX = 2**30
NODE_FILES = ("openb_node_list_all_node.csv", "openb_node_list_gpu_node.csv")
POD_COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
    "creation_time", "deletion_time", "scheduled_time",
)  # fmt: skip
PHASES: dict[str, Ending] = {
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Running": "cancelled",
    "Pending": "cancelled",
    "Unknown": "failed",
}
LOW_QOS = frozenset({"BE", "BestEffort"})
Shape = tuple[int, int, int, int, str, str]
"""CPU (thousandths), memory (MiB), GPUs, share of each (thousandths), models, quality of service."""


def read(path: Path) -> Trace:
    """Return one job a pod that ran, from its scheduling to its deletion. Best-effort pods get a low priority.

    A node list (`openb_node_list_all_node.csv`, or that of GPU nodes) must lie in the same folder.
    Raises: TraceError.
    """
    table, builder = TextTable(path), Builder(path)
    _check_pods(table)
    name, cpu, memory, gpus, share, models, qos, phase, created, deleted, scheduled = table.columns(*POD_COLUMNS)
    for row in table.rows():
        submit_ms = table.offset_ms(row, created)
        end_ms = table.offset_ms(row, deleted)
        ends = PHASES[table.word(row, phase, PHASES)]
        shape = (
            table.whole(row, cpu, high=CPU_MILLI_MAX),
            table.whole(row, memory, high=MEMORY_MIB_MAX),
            table.whole(row, gpus, high=WIDTH_MAX),
            table.whole(row, share, high=WHOLE_DEVICE_MILLI),
            row[models],
            row[qos],
        )
        _check_share(table, row, gpus, share, shape)
        if not row[scheduled]:
            builder.count(NO_START)
            continue
        start_ms = table.offset_ms(row, scheduled)
        seen = Seen(start_ms, end_ms)
        builder.ran(row[name], submit_ms, end_ms - start_ms, shape, _request, ends=ends, seen=seen)
    builder.note("pods that were Running at the end of the trace count as ended by their owner at their deletion")
    builder.note("pods of quality BE have priority low, all others medium; the source has no owners and queues")
    return builder.trace(_nodes(path, builder))


def _check_pods(table: TextTable) -> None:
    if "sn" in table.names and "num_gpu" not in table.names:
        found = ",".join(table.names)
        raise table.fault("", found, "a pod list", "this is a node list: name openb_pod_list_*.csv beside it")


def _check_share(table: TextTable, row: Row, gpus: int, share: int, shape: Shape) -> None:
    if shape[2] == 0 and shape[3] not in (0, WHOLE_DEVICE_MILLI):
        raise table.wrong(row, gpus, "at least 1 GPU with a share")
    if shape[2] == 1 and shape[3] == 0:
        raise table.wrong(row, share, f"a share from 1 to {WHOLE_DEVICE_MILLI}")
    if shape[2] > 1 and shape[3] != WHOLE_DEVICE_MILLI:
        raise table.wrong(row, share, f"{WHOLE_DEVICE_MILLI}: several GPUs are whole ones")


def _request(builder: Builder, shape: Shape) -> JobSpec:
    cpu_milli, memory_mib, gpus, share_milli, models, qos = shape
    accepted = tuple(model for model in models.split("|") if model)
    devices = DeviceAsk(gpus, models=accepted, share_milli=share_milli) if gpus else None
    ask = GangAsk(1, ReplicaAsk(Resources(cpu_milli, memory_mib << 20), devices))
    return builder.request(ask, priority=PRIORITY_CLASSES["low" if qos in LOW_QOS else "medium"], label=("qos", qos))


def _nodes(path: Path, builder: Builder) -> tuple[NodeSpec, ...]:
    listed = needed_beside(path, NODE_FILES, f"a node list beside it, {' or '.join(NODE_FILES)} (or .gz)")
    table = TextTable(listed)
    name, cpu, memory, gpu, model = table.columns("sn", "cpu_milli", "memory_mib", "gpu", "model")
    names = NodeNames()
    found: list[NodeSpec] = []
    for row in table.rows():
        if len(found) >= NODES_MAX:
            raise table.wrong(row, name, f"at most {NODES_MAX} nodes")
        cpu_milli = table.whole(row, cpu, high=CPU_MILLI_MAX)
        memory_mib = table.whole(row, memory, high=MEMORY_MIB_MAX)
        devices = devices_of(row[model], table.whole(row, gpu, high=WIDTH_MAX))
        node = names.of(row[name])
        if node is None:
            raise table.wrong(row, name, "each node once, with a name")
        found.append(NodeSpec(node, Resources(cpu_milli, memory_mib << 20), devices))
    total = sum(len(node.devices) for node in found)
    builder.note(f"cluster: {len(found)} nodes with {total} GPUs from {listed.name}")
    builder.note("memory of GPUs is from data sheets; of models that the source hides (G2, G3) it counts as 16 GiB")
    return tuple(found)
