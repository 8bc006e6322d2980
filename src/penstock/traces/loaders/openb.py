"""Alibaba openb (cluster-trace-gpu-v2023): pods that share GPUs, on the nodes of the list beside them.

Source of the format: https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023 (README).
Weng et al., ATC 2023.
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import PRIORITY_CLASSES, GangAsk, JobSpec
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, DeviceAsk, ReplicaAsk, Resources
from penstock.traces.loaders.build import NO_END, NO_START, Builder
from penstock.traces.loaders.shapes import NODES_MAX, WIDTH_MAX, NodeNames, devices_of
from penstock.traces.loaders.table import Row, TextTable, nodes_beside
from penstock.traces.model import Ending, Seen, Trace
from penstock.traces.nodes import NodeGroup

CPU_MILLI_MAX = 10_000_000
MEMORY_MIB_MAX = 2**30
NODE_FILES = ("openb_node_list_all_node.csv", "openb_node_list_gpu_node.csv")
ASKED_COLUMNS = ("name", "cpu_milli", "num_gpu", "gpu_milli")
TIME_COLUMNS = ("creation_time", "deletion_time", "scheduled_time")
"""None of them is in `openb_pod_list_multigpu*.csv`, nor are models, quality of service and phase."""
OTHER_COLUMNS = ("memory_mib", "gpu_spec", "qos", "pod_phase")
UNTIMED_STEP_MS = 1_000
"""Between two pods of a list without times."""
NO_TIMES = "jobs left out: the source has no times of them, as it has of others"
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


def read(path: Path, given: Sequence[NodeGroup] = ()) -> Trace:
    """Return one job a pod that ran, from its scheduling to its deletion. Best-effort pods get a low priority.

    Pods of a list without times come one after the other, and none ends before the last has come.
    A node list (`openb_node_list_all_node.csv`, or that of GPU nodes) must lie in the same folder where `given` leaves
    something open.
    Raises: TraceError.
    """
    table, builder = TextTable(path), Builder(path, given)
    pods = _Pods(table)
    untimed: list[tuple[str, Shape]] = []
    timed = 0
    for row in table.rows():
        name, shape, ends = pods.asked(row)
        if not pods.has_times(row):
            untimed.append((name, shape))
            continue
        timed += 1
        times = pods.times(row, builder)
        if times is not None:
            submit_ms, seen = times
            run_ms = seen.ended_ms - seen.started_ms
            builder.ran(name, submit_ms, run_ms, shape, _request, ends=ends, seen=seen)
    if timed:
        for _ in untimed:
            builder.count(NO_TIMES)
    elif untimed:
        _one_after_the_other(builder, untimed)
    pods.say(builder, timed=bool(timed))
    return builder.trace(builder.cluster(lambda: _nodes(path, builder)))


class _Pods:
    """The columns of a pod list. A list without times has neither models nor quality of service nor phases."""

    def __init__(self, table: TextTable) -> None:
        if "sn" in table.names and "num_gpu" not in table.names:
            hint = "this is a node list: name openb_pod_list_*.csv beside it"
            raise table.fault("", ",".join(table.names), "a pod list", hint)
        self._table = table
        self._name, self._cpu, self._gpus, self._share = table.columns(*ASKED_COLUMNS)
        self._memory, self._models, self._qos, self._phase = (table.optional(name) for name in OTHER_COLUMNS)
        self._times = [at for at in (table.optional(name) for name in TIME_COLUMNS) if at >= 0]
        if self._times:
            self._created, self._deleted = table.columns(*TIME_COLUMNS[:2])
        self._scheduled = table.optional(TIME_COLUMNS[2])

    def asked(self, row: Row) -> tuple[str, Shape, Ending]:
        """Return the name of a pod, what it asks for, and how it ended. Raises: TraceError."""
        table = self._table
        gpus = table.whole(row, self._gpus, high=WIDTH_MAX)
        share_milli = table.whole(row, self._share, high=WHOLE_DEVICE_MILLI)
        if gpus == 0 and share_milli not in (0, WHOLE_DEVICE_MILLI):
            raise table.wrong(row, self._gpus, "at least 1 GPU with a share")
        if gpus == 1 and share_milli == 0:
            raise table.wrong(row, self._share, f"a share from 1 to {WHOLE_DEVICE_MILLI}")
        if gpus > 1 and share_milli != WHOLE_DEVICE_MILLI:
            raise table.wrong(row, self._share, f"{WHOLE_DEVICE_MILLI}: several GPUs are whole ones")
        cpu_milli = table.whole(row, self._cpu, high=CPU_MILLI_MAX)
        memory_mib = table.whole(row, self._memory, high=MEMORY_MIB_MAX) if self._memory >= 0 else 0
        models, qos = (row[at] if at >= 0 else "" for at in (self._models, self._qos))
        ends = PHASES[table.word(row, self._phase, PHASES)] if self._phase >= 0 else "succeeded"
        return row[self._name], (cpu_milli, memory_mib, gpus, share_milli, models, qos), ends

    def has_times(self, row: Row) -> bool:
        return any(row[at] for at in self._times)

    def times(self, row: Row, builder: Builder) -> tuple[int, Seen] | None:
        """Return when a pod came, and its start and end (ms); None, counted, when it never started or had not ended."""
        table = self._table
        submit_ms = table.offset_ms(row, self._created)
        if not row[self._deleted]:
            builder.count(NO_END)
            return None
        end_ms = table.offset_ms(row, self._deleted)
        if self._scheduled < 0:
            return submit_ms, Seen(submit_ms, end_ms)
        if not row[self._scheduled]:
            builder.count(NO_START)
            return None
        return submit_ms, Seen(table.offset_ms(row, self._scheduled), end_ms)

    def say(self, builder: Builder, *, timed: bool) -> None:
        """Note what is assumed of pods whose list does not say it."""
        if timed and self._phase >= 0:
            builder.note(
                "pods that were Running at the end of the trace count as ended by their owner at their deletion"
            )
        if timed and self._scheduled < 0:
            builder.note("the list does not say when pods were scheduled: they count as started when they were created")
        if self._qos >= 0:
            builder.note("pods of quality BE have priority low, all others medium; the source has no owners and queues")
        else:
            builder.note("the list has no quality of service: every pod has priority medium")
        if self._memory < 0:
            builder.note("the list has no memory_mib: pods ask for no host memory")


def _one_after_the_other(builder: Builder, pods: list[tuple[str, Shape]]) -> None:
    """Add pods without times as the published simulations do: in the order of the list, and none leaves meanwhile."""
    run_ms = UNTIMED_STEP_MS * len(pods)
    for number, (name, shape) in enumerate(pods):
        builder.ran(name, UNTIMED_STEP_MS * number, run_ms, shape, _request)
    builder.note(
        f"the list has no times: its {len(pods)} pods come {UNTIMED_STEP_MS // 1000} s apart in the order of the list "
        f"and run for {run_ms // 1000} s each, so none ends before the last has come; devices held and stranded until "
        "then say how full the cluster gets, waits and makespan say nothing"
    )


def _request(builder: Builder, shape: Shape) -> JobSpec:
    cpu_milli, memory_mib, gpus, share_milli, models, qos = shape
    accepted = tuple(model for model in models.split("|") if model)
    devices = DeviceAsk(gpus, models=accepted, share_milli=share_milli) if gpus else None
    ask = GangAsk(1, ReplicaAsk(Resources(cpu_milli, memory_mib << 20), devices))
    return builder.request(ask, priority=PRIORITY_CLASSES["low" if qos in LOW_QOS else "medium"], label=("qos", qos))


def _nodes(path: Path, builder: Builder) -> tuple[NodeSpec, ...]:
    listed = nodes_beside(path, NODE_FILES, f"a node list beside it, {' or '.join(NODE_FILES)} (or .gz)")
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
