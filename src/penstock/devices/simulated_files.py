"""Simulated devices that can fall ill: a file for each, which programs open to use the device.

The folder has a file `0`, `1` and so on for each device. A process that has the file open uses the device. What the
file says in JSON is what the device reports: fields of `DeviceFacts`, and `findings`. An empty file is a device that is
well; one that is missing is a device that is gone. `use_each_milli` and `memory_each_bytes` are what each process that
has it open adds to its use and its memory: so programs that share a device are simulated, too. `slowdown_milli` is for
programs that pace themselves by it: how long a step takes beside another program, in thousandths of its time alone.
`power-limits` has what a tool of a vendor would have set. Three further files are for tests: `every` holds the seconds
between two readings; as drivers do to those who call them, `hang` holds the seconds that each reading takes, and
`crash` ends the provider.
"""

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from penstock.core.model.resources import Device
from penstock.devices.holders import holders
from penstock.devices.provider import Sources
from penstock.devices.reading import FINDINGS, DeviceFacts, Finding, ProcessFacts, Reading, short
from penstock.privatefiles import write_whole

UUID = "SIM-"
PROC = Path("/proc")
LIMITS = "power-limits"
"""The file that plays the limits of power which a vendor's tool has set (mW), by device."""


class _Said(msgspec.Struct):
    """What the file of a device says."""

    use_milli: int | None = None
    memory_used_bytes: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    clock_mhz: int | None = None
    energy_mj: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    link_errors: int | None = None
    use_each_milli: int | None = None
    memory_each_bytes: int | None = None
    slowdown_milli: int | None = None
    throttled: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


_NOT_FACTS = ("findings", "use_each_milli", "memory_each_bytes", "slowdown_milli")


def _within(said: _Said, limit_mw: int) -> _Said:
    """Return what a device reports that keeps to a limit of power; 0: to its own."""
    if limit_mw:
        said.power_limit_mw = min(limit_mw, said.power_limit_mw or limit_mw)
        said.power_mw = None if said.power_mw is None else min(limit_mw, said.power_mw)
    return said


class SimulatedFiles:
    """The provider of the devices whose files are in a folder."""

    vendor = "simulated"
    variables = ()
    open_means_use = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def files(self) -> tuple[str, ...]:
        return (f"{self._folder}/[0-9]*",)

    def is_present(self, sources: Sources) -> bool:
        return bool(sources.glob(self.files[0]))

    def inventory(self, sources: Sources) -> Reading:
        return self.sample(sources)

    def sample(self, sources: Sources) -> Reading:
        if sources.glob(f"{self._folder}/crash"):
            os._exit(70)
        if hang := sources.read(f"{self._folder}/hang"):
            time.sleep(float(hang))
        devices, findings, processes, limits = [], [], list[ProcessFacts](), self._limits(sources)
        for path in sources.glob(self.files[0]):
            if not (name := path.rpartition("/")[2]).isdecimal():
                continue
            known = DeviceFacts(index=int(name), uuid=f"{UUID}{name}", files=(path,))
            try:
                said = _within(self._said(sources, name), limits.get(name, 0))
            except msgspec.DecodeError as error:
                findings.append(Finding(code="unreadable", text=short(f"{path}: {error}"), index=known.index))
                devices.append(known)
                continue
            figures = {field: getattr(said, field) for field in said.__struct_fields__ if field not in _NOT_FACTS}
            device = msgspec.structs.replace(known, **figures)
            if said.use_each_milli is not None or said.memory_each_bytes is not None:
                using = holders((device,), PROC)
                processes += [msgspec.structs.replace(one, memory_bytes=said.memory_each_bytes) for one in using]
                device = _used(device, said, len(using))
            devices.append(device)
            for one in said.findings:
                code = one.code if one.code in FINDINGS else "unhealthy"
                findings.append(msgspec.structs.replace(one, code=code, index=known.index, uuid=known.uuid))
        return Reading(devices=tuple(devices), processes=tuple(processes), findings=tuple(findings))

    def limit_power(self, sources: Sources, uuid: str, limit_mw: int) -> str:
        """Keep a device to a limit (mW), 0: to its own; return '' or why it is not."""
        index, limits = uuid.removeprefix(UUID), self._limits(sources)
        try:
            own_mw = self._said(sources, index).power_limit_mw
        except msgspec.DecodeError as error:
            return short(str(error))
        limits.pop(index, None)
        if limit_mw and not (own_mw and limit_mw >= own_mw):
            limits[index] = limit_mw
        try:
            write_whole(self._folder / LIMITS, msgspec.json.encode(limits), synced=False)
        except OSError as error:
            return str(error)
        return ""

    def _limits(self, sources: Sources) -> dict[str, int]:
        try:
            return msgspec.json.decode(sources.read(f"{self._folder}/{LIMITS}") or "{}", type=dict[str, int])
        except msgspec.DecodeError:
            return {}

    def _said(self, sources: Sources, name: str) -> _Said:
        """Raises: msgspec.DecodeError where the file of the device says nothing that can be read."""
        return msgspec.json.decode(sources.read(f"{self._folder}/{name}") or "{}", type=_Said)

    def closed_files(self, given: Iterable[Device], here: Iterable[Device]) -> tuple[str, ...]:
        """Return nothing: these files are closed to nobody."""
        return ()

    def container_flags(self, given: Sequence[Device]) -> tuple[str, ...]:
        return tuple(f"--volume={self._folder}/{device.index}" for device in given if device.simulated)


def _used(device: DeviceFacts, said: _Said, programs: int) -> DeviceFacts:
    """Return a device as so many programs use it."""
    if said.use_each_milli is not None:
        use_milli = min(1000, (said.use_milli or 0) + programs * said.use_each_milli)
        device = msgspec.structs.replace(device, use_milli=use_milli)
    if said.memory_each_bytes is not None:
        used_bytes = (said.memory_used_bytes or 0) + programs * said.memory_each_bytes
        device = msgspec.structs.replace(device, memory_used_bytes=used_bytes)
    return device
