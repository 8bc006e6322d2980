"""NVIDIA devices: listed by NVML, shown to programs by variables, closed to other programs by their files.

Variables (`CUDA_VISIBLE_DEVICES`) keep only cooperating programs from the devices of others; control groups deny the
rest the files of devices that they were not given. Files shared by all devices (`/dev/nvidiactl`, `/dev/nvidia-uvm`)
stay open, and so do the partitions (MIG) of a device that was given.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.core.model.resources import Device, DeviceLink, Discovery, LinkKind
from penstock.core.model.words import counted

MAJOR = 195
"""Of `/dev/nvidia0` and so on. Source: the kernel's devices.txt."""
ROOT = Path("/")


class Nvidia:
    """The devices that NVML lists, where nvidia-ml-py is installed (extra: nvidia)."""

    vendor = "nvidia"
    variables = ("CUDA_VISIBLE_DEVICES",)

    def discover(self) -> Discovery:
        try:
            import pynvml
        except ImportError:
            return Discovery((), "nvidia-ml-py is not installed (extra: nvidia)")
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return Discovery((), f"NVML did not start: {error}")
        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            devices = tuple(_device(pynvml, i, handles) for i in range(len(handles)))
        except pynvml.NVMLError as error:
            return Discovery((), f"NVML could not list devices: {error}")
        finally:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
        return Discovery(devices, f"{counted(len(devices), 'device')}")

    def closed_files(self, given: Iterable[Device], here: Iterable[Device]) -> tuple[str, ...]:
        """Return the files of the other devices; none where the files of the given ones are unknown.

        A program is never denied its own devices.
        """
        if not any(_real(device) for device in here):
            return ()
        files = dict(_by_uuid(ROOT))
        wanted = [device.uuid for device in given if _real(device)]
        if not files or not set(wanted) <= set(files):
            return ()
        own = {number for uuid in wanted for number in files[uuid]}
        all_files = {number for numbers in files.values() for number in numbers} | set(_present(ROOT))
        return tuple(f"c {major}:{minor}" for major, minor in sorted(all_files - own))


def _device(nvml: Any, index: int, handles: list[Any]) -> Device:
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
        links=tuple(_links(nvml, index, handles)),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
    )


def _links(nvml: Any, index: int, handles: list[Any]) -> Iterator[DeviceLink]:
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


def _real(device: Device) -> bool:
    return device.vendor == Nvidia.vendor and not device.simulated


def _by_uuid(root: Path) -> Iterator[tuple[str, set[tuple[int, int]]]]:
    """Yield each device that the driver knows, with the numbers of its files, those for graphics among them."""
    for folder in sorted(root.glob("proc/driver/nvidia/gpus/*")):
        try:
            lines = (folder / "information").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        uuid, minor = said.get("GPU UUID", ""), said.get("Device Minor", "")
        if uuid and minor.isdigit():
            yield uuid, {(MAJOR, int(minor)), *_graphics(root, folder.name)}


def _graphics(root: Path, address: str) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the files by which a device draws, and computes: `/dev/dri/renderD128` and so on."""
    for path in root.glob(f"sys/bus/pci/devices/{address}/drm/*/dev"):
        try:
            major, minor = path.read_text(encoding="ascii").split(":")
            yield int(major), int(minor)
        except (OSError, ValueError):
            continue


def _present(root: Path) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the device files there, whether or not the driver lists them."""
    for path in root.glob("dev/nvidia[0-9]*"):
        try:
            about = path.stat()
        except OSError:
            continue
        if path.name.removeprefix("nvidia").isdigit() and stat.S_ISCHR(about.st_mode):
            yield os.major(about.st_rdev), os.minor(about.st_rdev)
