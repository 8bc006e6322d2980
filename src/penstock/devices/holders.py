"""Which processes have the files of devices open, for devices of which the vendor's tools do not tell it.

Only where an open file means that this very device is used: CUDA and ROCm open the files of all devices that they see.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock.devices.reading import DeviceFacts, ProcessFacts

PROCESSES_MAX = 50_000


def holders(devices: Sequence[DeviceFacts], proc: Path = Path("/proc")) -> tuple[ProcessFacts, ...]:
    """Return the processes that have a file of these devices open, by pid; those of other users need privileges."""
    wanted: dict[str, DeviceFacts] = {}
    for device in devices:
        for file in device.files:
            wanted[file] = device
            wanted[os.path.realpath(file)] = device
    if not wanted:
        return ()
    own = os.getpid()
    found: dict[tuple[int, int | None, str, str], ProcessFacts] = {}
    for pid in _pids(proc):
        if pid == own:
            continue
        for device in _held(proc / str(pid) / "fd", wanted):
            facts = ProcessFacts(
                pid=pid, index=device.index, uuid=device.uuid, pci=device.pci, name=_name(proc / str(pid))
            )
            found.setdefault((pid, device.index, device.uuid, device.pci), facts)
    return tuple(found.values())


def _pids(proc: Path) -> Iterator[int]:
    try:
        names = [name for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return
    yield from sorted(map(int, names))[:PROCESSES_MAX]


def _held(folder: Path, wanted: Mapping[str, DeviceFacts]) -> Iterator[DeviceFacts]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            device = wanted.get(os.readlink(f"{folder}/{name}"))
        except OSError:
            continue
        if device is not None:
            yield device


def _name(folder: Path) -> str:
    try:
        return (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
