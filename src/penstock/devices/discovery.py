"""What this machine has: host resources, and accelerators through the vendors' own libraries where installed.

A missing library or driver is no error: the finding says what was not found.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

from penstock.core.model.resources import Device, DeviceLink, LinkKind, Resources

MEMORY_SHARE_USABLE = 0.9
"""Share of the host's memory that jobs may be given; the rest is the system's."""


class Finding(msgspec.Struct, frozen=True):
    """What one provider found, and a sentence on it for people."""

    provider: str
    devices: tuple[Device, ...]
    note: str


def host_resources(scratch: Path) -> Resources:
    """Return the CPUs, memory and free scratch space that this process may use."""
    cpus = len(os.sched_getaffinity(0))
    return Resources(
        cpu_milli=cpus * 1000,
        memory_bytes=int(psutil.virtual_memory().total * MEMORY_SHARE_USABLE),
        storage_bytes=shutil.disk_usage(scratch).free,
    )


def simulated(
    count: int,
    model: str,
    memory_bytes: int,
    *,
    mig: bool = False,
    links: tuple[tuple[int, ...], ...] | None = None,
) -> tuple[Device, ...]:
    """Return `count` devices that do not exist, four to a NUMA node.

    Args:
        mig: whether they may be cut into hardware partitions.
        links: groups of indexes that NVLink joins, each with each; None joins them in pairs.
    """
    groups = links if links is not None else tuple((i, i + 1) for i in range(0, count - 1, 2))
    peers = {index: [peer for peer in group if peer != index] for group in groups for index in group}
    return tuple(
        Device(
            index=index,
            vendor="simulated",
            model=model,
            memory_bytes=memory_bytes,
            capability=(9, 0),
            numa_node=index // 4,
            links=tuple(DeviceLink(peer, "nvlink") for peer in peers.get(index, ())),
            uuid=f"SIM-{index}",
            simulated=True,
            mig=mig,
        )
        for index in range(count)
    )


def nvidia() -> Finding:
    """Return the NVIDIA devices that NVML lists, with their links."""
    try:
        import pynvml
    except ImportError:
        return Finding("nvidia", (), "nvidia-ml-py is not installed (extra: nvidia)")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Finding("nvidia", (), f"NVML did not start: {error}")
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        devices = tuple(_nvidia_device(pynvml, i, handles) for i in range(len(handles)))
    except pynvml.NVMLError as error:
        return Finding("nvidia", (), f"NVML could not list devices: {error}")
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return Finding("nvidia", devices, f"{len(devices)} device(s)")


def _nvidia_device(nvml: Any, index: int, handles: list[Any]) -> Device:
    handle = handles[index]
    numa = 0
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        numa = max(0, int(nvml.nvmlDeviceGetNumaNodeId(handle)))
    return Device(
        index=index,
        vendor="nvidia",
        model=str(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        numa_node=numa,
        links=tuple(_nvidia_links(nvml, index, handles)),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
    )


def _nvidia_links(nvml: Any, index: int, handles: list[Any]) -> Iterator[DeviceLink]:
    """Yield the closest link to each other device, by NVLink peer status and PCIe common ancestor."""
    for peer, other in enumerate(handles):
        if peer == index:
            continue
        kind: LinkKind = "node"
        with contextlib.suppress(nvml.NVMLError):
            level = nvml.nvmlDeviceGetTopologyCommonAncestor(handles[index], other)
            if level <= nvml.NVML_TOPOLOGY_HOSTBRIDGE:
                kind = "pcie"
            elif level <= nvml.NVML_TOPOLOGY_NODE:
                kind = "numa"
        with contextlib.suppress(nvml.NVMLError):
            status = nvml.nvmlDeviceGetP2PStatus(handles[index], other, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
            if status == nvml.NVML_P2P_STATUS_OK:
                kind = "nvlink"
        yield DeviceLink(peer, kind)
