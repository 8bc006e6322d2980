"""The processors of this machine, their cores and NUMA nodes, from the kernel's files.

Source: Documentation/ABI/stable/sysfs-devices-node and sysfs-devices-system-cpu of Linux.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from penstock.core.model.nodes import NodeSpec
from penstock.engines.processes.cgroup_files import read, unlisted
from penstock.engines.processes.cpu_sets import CPU_MILLI, CpuSets, Processor, Topology

SYSTEM = Path("/sys/devices/system")


def cpu_sets_of(spec: NodeSpec) -> CpuSets | None:
    """Return what gives processors to replicas; None where other nodes have the same ones, or not all are there."""
    allowed = os.sched_getaffinity(0)
    if spec.virtual or spec.capacity.cpu_milli > CPU_MILLI * len(allowed):
        return None
    return CpuSets(read_topology(allowed))


def read_topology(allowed: Iterable[int], root: Path = SYSTEM) -> Topology:
    """Return the processors among `allowed`; without files each is a core, and all are of NUMA node 0.

    Args:
        allowed: those that this process may run on.
        root: where the kernel's folders `cpu` and `node` are.
    """
    nodes: dict[int, int] = {}
    distances: dict[int, tuple[int, ...]] = {}
    for folder in sorted(root.glob("node/node[0-9]*")):
        node = int(folder.name.removeprefix("node"))
        nodes |= dict.fromkeys(unlisted(read(folder / "cpulist")), node)
        distances[node] = tuple(map(int, read(folder / "distance").split()))
    found = []
    for number in sorted(allowed):
        threads = unlisted(read(root / f"cpu/cpu{number}/topology/thread_siblings_list"))
        found.append(Processor(number, min(threads, default=number), nodes.get(number, 0)))
    return Topology(tuple(found), distances)
