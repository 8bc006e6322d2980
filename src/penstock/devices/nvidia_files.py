"""NVIDIA devices by what the kernel shows as files: the driver's folder in `/proc`, the bus in `/sys`, device files.

Variables (`CUDA_VISIBLE_DEVICES`) keep only cooperating programs from the devices of others; control groups deny the
rest the files of devices that they were not given. Files shared by all devices (`/dev/nvidiactl`, `/dev/nvidia-uvm`)
stay open, and so do the partitions (MIG) of a device that was given.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from penstock.core.model.resources import Device
from penstock.devices.nvidia_tools.texts import integer, uuid_of, version_of
from penstock.devices.provider import Sources
from penstock.devices.reading import DeviceFacts, pci_address, said

VENDOR = "nvidia"
PCI_VENDOR = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")
"""A display controller, and one without a display, as the kernel begins their class."""
MAJOR = 195
"""Of `/dev/nvidia0` and so on. Source: the kernel's devices.txt."""
MINOR_MAX = 1024
ROOT = Path("/")
INFORMATION = "/proc/driver/nvidia/gpus/*/information"
VERSION = "/proc/driver/nvidia/version"
SIGNS = (VERSION, "/dev/nvidiactl", "/dev/dxg")
"""Files of which one is there wherever the driver is loaded; the last in virtual machines of Windows."""
_MODULE = re.compile(r"Kernel Module(?: for \S+)?\s+(\d{3}\.[\d.]+)")


def is_present(sources: Sources) -> bool:
    """Return whether the driver is loaded, or a device is on the bus."""
    if any(sources.glob(path) for path in SIGNS):
        return True
    vendors = sources.glob("/sys/bus/pci/devices/*/vendor")
    ours = (path for path in vendors if sources.read(path).strip() == PCI_VENDOR)
    return any(sources.read(f"{path.removesuffix('vendor')}class").startswith(DISPLAY_CLASSES) for path in ours)


def driver_version(sources: Sources) -> str:
    match = _MODULE.search(sources.read(VERSION))
    return version_of(match[1]) if match else ""


def listed(sources: Sources) -> tuple[DeviceFacts, ...]:
    """Return the devices that the driver lists, by address: name, uuid, minor. In a container some may be missing."""
    return tuple(_information(sources, path) for path in sources.glob(INFORMATION) if pci_address(_folder(path)))


def _folder(path: str) -> str:
    return path.rsplit("/", 2)[-2]


def _information(sources: Sources, path: str) -> DeviceFacts:
    lines = sources.read(path).splitlines()
    values = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return DeviceFacts(
        uuid=uuid_of(values.get("GPU UUID")),
        pci=pci_address(_folder(path)),
        model=said(values.get("Model")),
        minor=integer(values.get("Device Minor"), MINOR_MAX),
    )


def placed(device: DeviceFacts, sources: Sources) -> DeviceFacts:
    """Return a device with its NUMA node and its files, as far as the kernel shows them."""
    folder = f"/sys/bus/pci/devices/{device.pci}"
    numa = integer(sources.read(f"{folder}/numa_node")) if device.pci else None
    drawing = [f"/dev/dri/{path.rsplit('/', 1)[-1]}" for path in sources.glob(f"{folder}/drm/[cr]*[0-9]")]
    own = [f"/dev/nvidia{device.minor}"] if device.minor is not None else []
    files = (*own, *drawing) if device.pci else tuple(own)
    return replace(device, numa_node=device.numa_node if numa is None else numa, files=files)


def is_real(device: Device) -> bool:
    return device.vendor == VENDOR and not device.simulated


def closed_files(given: Iterable[Device], here: Iterable[Device]) -> tuple[str, ...]:
    """Return the files of the other devices; none where the files of the given ones are unknown.

    A program is never denied its own devices.
    """
    if not any(is_real(device) for device in here):
        return ()
    files = dict(_by_uuid(ROOT))
    wanted = [device.uuid for device in given if is_real(device)]
    if not files or not set(wanted) <= set(files):
        return ()
    own = {number for uuid in wanted for number in files[uuid]}
    all_files = {number for numbers in files.values() for number in numbers} | set(_present(ROOT))
    return tuple(f"c {major}:{minor}" for major, minor in sorted(all_files - own))


def _by_uuid(root: Path) -> Iterator[tuple[str, set[tuple[int, int]]]]:
    """Yield each device that the driver knows, with the numbers of its files, those for graphics among them."""
    for folder in sorted(root.glob("proc/driver/nvidia/gpus/*")):
        try:
            lines = (folder / "information").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        values = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        uuid, minor = values.get("GPU UUID", ""), values.get("Device Minor", "")
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
