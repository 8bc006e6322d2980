"""The provider of NVIDIA devices: NVML where it can be used, `nvidia-smi` where it cannot, else the driver's files."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from penstock.core.model.resources import Device
from penstock.devices import nvidia_files
from penstock.devices.kernel_log import KernelLog
from penstock.devices.kernel_records import KernelRecords
from penstock.devices.nvidia_nvml import Nvml
from penstock.devices.nvidia_nvml_facts import Name
from penstock.devices.nvidia_parts import as_devices, parts_alone
from penstock.devices.nvidia_smi import TOOL, NvidiaSmi, joined
from penstock.devices.provider import Machine, Sources
from penstock.devices.reading import DeviceFacts, Finding, ProcessFacts, Reading, without_duplicates

Named = TypeVar("Named", DeviceFacts, ProcessFacts, Finding)
NO_DEVICES = "void"
"""Tells NVIDIA's container runtime that a container gets no device, whatever its image asks for."""
NO_DRIVER = Finding(code="no_driver", text="an NVIDIA device is there, its driver is not loaded")


class Nvidia:
    """NVIDIA devices, known by their uuids; indexes are the order of their addresses, as with `PCI_BUS_ID`.

    Errors of memory and links that the driver has counted before are no news: a finding says that a count has grown.
    An inventory lists no device that cannot be used; a finding names it. Where a container was given instances of MIG,
    these are its devices.

    Args:
        clock: seconds of a steady clock.
        records: the kernel's log, read where NVML tells no Xids; by default that of a real machine.
    """

    vendor = nvidia_files.VENDOR
    variables = ("CUDA_VISIBLE_DEVICES",)
    files = ("/dev/nvidia[0-9]*",)

    def __init__(self, clock: Callable[[], float] = time.monotonic, records: KernelRecords | None = None) -> None:
        self._nvml = Nvml(clock)
        self._smi = NvidiaSmi(clock)
        self._records = records
        self._log = KernelLog()
        self._log_begun = False
        self._errors: dict[tuple[Name, str], int] = {}
        self._listed: tuple[DeviceFacts, ...] = ()
        self._parts_alone: tuple[DeviceFacts, ...] = ()

    def is_present(self, sources: Sources) -> bool:
        return nvidia_files.is_present(sources)

    def inventory(self, sources: Sources) -> Reading:
        reading = self._by_nvml(sources, self._nvml.inventory)
        if reading is None:
            reading = _explained(self._smi.inventory(sources), self._nvml.trouble)
        files = {device.pci: device for device in nvidia_files.listed(sources)}
        own = [files[device.pci] for device in reading.devices if device.pci in files]
        devices = (nvidia_files.placed(device, sources) for device in joined(reading.devices, own))
        kept, twice = without_duplicates(devices)
        links = reading.links if len(kept) == len(reading.devices) else ()
        driver = reading.driver or nvidia_files.driver_version(sources)
        findings = [*_no_counts(reading.findings), *(replace(finding, index=None) for finding in twice)]
        if not kept and not driver and self.is_present(sources):
            findings.append(NO_DRIVER)
        self._listed, self._parts_alone = kept, parts_alone(kept)
        whole = replace(
            reading,
            devices=tuple(replace(device, index=index) for index, device in enumerate(kept)),
            links=links,
            findings=_said_once(findings),
            driver=driver,
        )
        return as_devices(whole, self._parts_alone)

    def sample(self, sources: Sources) -> Reading:
        reading = self._by_nvml(sources, self._nvml.sample)
        if reading is None:
            reading = _explained(self._smi.sample(sources), self._nvml.trouble)
        devices = tuple(self._called(device) for device in reading.devices)
        findings = [self._called(finding) for finding in _no_counts(reading.findings)]
        findings += self._grown(devices)
        if not self._nvml.hears_xids:
            findings += self._from_kernel(sources, devices)
        processes = tuple(_titled(self._called(process), sources) for process in reading.processes)
        whole = replace(reading, devices=devices, processes=processes, findings=_said_once(findings))
        return as_devices(whole, self._parts_alone)

    def limit_power(self, sources: Sources, uuid: str, limit_mw: int) -> str:
        """Keep a device to a limit (mW), 0: to its own; return '' or why it is not."""
        from penstock.devices import nvidia_power

        return nvidia_power.limit_power(sources, uuid, limit_mw)

    def closed_files(self, given: Iterable[Device], here: Iterable[Device]) -> tuple[str, ...]:
        """Return the files of the other devices; none where the files of the given ones are unknown.

        A program is never denied its own devices.
        """
        return nvidia_files.closed_files(given, here)

    def container_flags(self, given: Sequence[Device]) -> tuple[str, ...]:
        """Return `--gpus` with the devices by uuid; without any, a variable that keeps images from all devices.

        `--gpus` is known to docker since 19.03 with NVIDIA's container toolkit, and to podman since 5; the inner quotes
        keep the commas within one value. CDI (`--device nvidia.com/gpu=UUID`) is not used: docker has it on by default
        only since 28.3, and both need a specification under `/etc/cdi` that is written anew after each change of
        devices or driver.
        """
        names = [device.uuid or str(device.index) for device in given if nvidia_files.is_real(device)]
        if not names:
            return "--env", f"NVIDIA_VISIBLE_DEVICES={NO_DEVICES}"
        return "--gpus", f'"device={",".join(names)}"'

    def _by_nvml(self, sources: Sources, read: Callable[[], Reading | None]) -> Reading | None:
        self._nvml.names = lambda: [Name(each.uuid, each.pci) for each in nvidia_files.listed(sources)]
        return read()

    def _called(self, named: Named) -> Named:
        """Return something with the names that the inventory has for its device: it may have been read elsewhere."""
        same = [
            device
            for device in self._listed
            if (named.uuid and named.uuid == device.uuid) or (named.pci and named.pci == device.pci)
        ]
        if len(same) != 1 or (same[0].uuid, same[0].pci) == (named.uuid, named.pci):
            return named
        return replace(named, uuid=same[0].uuid or named.uuid, pci=same[0].pci or named.pci)

    def _grown(self, devices: Iterable[DeviceFacts]) -> Iterator[Finding]:
        """Yield the counts of errors that have grown since the last sample, and those that stood before the first."""
        for device in devices:
            name = Name(device.uuid, device.pci)
            for code, what, count in (
                ("ecc_uncorrected", "uncorrected memory errors", device.ecc_uncorrected),
                ("link_fault", "errors of links", device.link_errors),
            ):
                if count is None:
                    continue
                before = self._errors.get((name, code))
                self._errors[name, code] = count
                if before is not None and count > before:
                    text = f"{what}: {count}, {count - before} more than before"
                    yield Finding(code=code, text=text, uuid=device.uuid, pci=device.pci, time_s=time.time())
                elif count and code == "ecc_uncorrected":
                    text = f"{what} since the driver was loaded: {count}"
                    yield Finding(code="degraded", text=text, uuid=device.uuid, pci=device.pci)

    def _from_kernel(self, sources: Sources, devices: Sequence[DeviceFacts]) -> Iterator[Finding]:
        """Yield what the kernel has written since the last sample; of before the first, devices that are lost still."""
        if self._records is None:
            if not isinstance(sources, Machine):
                return
            self._records = KernelRecords()
        new = [finding for line in self._records.new() if (finding := self._log.take(line)) is not None]
        here = {device.pci for device in devices} | {device.uuid for device in devices}
        for finding in filter(_ours, new):
            lost = finding.code == "lost" and not {finding.pci, finding.uuid} - {""} & here
            if self._log_begun or lost:
                yield finding
        self._log_begun = True


def _explained(reading: Reading, trouble: Finding) -> Reading:
    """Return a reading of the tool with why NVML is not used; where the tool read devices that is no warning."""
    read = any(device.memory_bytes for device in reading.devices)
    why = replace(trouble, code="not_supported") if read else trouble
    return replace(reading, findings=(why, *reading.findings))


def _no_counts(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings but those of a tool that memory errors were counted at some time: that they grow is news."""
    return (finding for finding in findings if finding.code != "ecc_uncorrected" or finding.number is not None)


def _titled(process: ProcessFacts, sources: Sources) -> ProcessFacts:
    """Return a process with the name that the kernel has for its program."""
    return process if process.name else replace(process, name=sources.read(f"/proc/{process.pid}/comm").strip())


def _ours(finding: Finding) -> bool:
    """Return whether a finding of the kernel's log is of NVIDIA's driver; others count devices or name their tool."""
    return finding.index is None and (finding.code != "tool_timeout" or finding.text.startswith(TOOL))


def _said_once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(findings))
