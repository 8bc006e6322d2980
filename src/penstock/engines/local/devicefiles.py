"""The files of NVIDIA devices, so that control groups can keep a program from those that it was not given.

Variables (`CUDA_VISIBLE_DEVICES`) keep only programs that wish it from the devices of others. What all devices share
(`/dev/nvidiactl`, `/dev/nvidia-uvm`) stays open, and so do the partitions (MIG) of a device that was given.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.core.model.resources import Device

VENDOR = "nvidia"
MAJOR = 195
"""Of `/dev/nvidia0` and so on. Source: the kernel's devices.txt."""
ROOT = Path("/")


def closed_to(given: Iterable[Device], here: Iterable[Device], root: Path | None = None) -> tuple[str, ...]:
    """Return the files, as `c MAJOR:MINOR`, that a program may not open which was given some of the devices here.

    None where the node has no real NVIDIA device, or where it is not known which files are those of what was given:
    nobody is shut out of what is theirs.
    """
    if not any(_real(device) for device in here):
        return ()
    root = root or ROOT
    files = dict(_by_uuid(root))
    wanted = [device.uuid for device in given if _real(device)]
    if not files or not set(wanted) <= set(files):
        return ()
    own = {number for uuid in wanted for number in files[uuid]}
    all_files = {number for numbers in files.values() for number in numbers} | set(_present(root))
    return tuple(f"c {major}:{minor}" for major, minor in sorted(all_files - own))


def _real(device: Device) -> bool:
    return device.vendor == VENDOR and not device.simulated


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
    """Yield the numbers of what lies there as a device's file, whether or not the driver told of it."""
    for path in root.glob("dev/nvidia[0-9]*"):
        try:
            about = path.stat()
        except OSError:
            continue
        if path.name.removeprefix("nvidia").isdigit() and stat.S_ISCHR(about.st_mode):
            yield os.major(about.st_rdev), os.minor(about.st_rdev)
