"""Intel Gaudi devices (vendor `habana`), by `hl-smi` and the files of their driver.

A device's index is its module id, by which HABANA_VISIBLE_MODULES names it: hl-smi's own numbers may change when the
driver starts again. Linux tells module ids from 6.8 on, `hl-smi -Q module_id` always. A run of hl-smi takes some tenths
of a second. Sources: Gaudi documentation, "Multiple Dockers Each with a Single Workload"; kernel,
Documentation/ABI/testing/sysfs-driver-habanalabs.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.core.model.resources import Device
from penstock.devices.by_tools import (
    ByTools,
    Question,
    ask,
    by_address,
    in_order,
    joined,
    named_as,
    with_findings,
    with_numa,
    with_words,
)
from penstock.devices.provider import Machine, Sources
from penstock.devices.reading import DeviceFacts, Finding, Reading, pci_address, short, whole

if TYPE_CHECKING:
    from penstock.devices.kernel_log import KernelLog
    from penstock.devices.kernel_records import KernelRecords

QUERY = ("hl-smi", "-Q", "index,module_id,bus_id,uuid,serial,name,memory.total,driver_version", "-f", "csv")
STATES = {"malfunction": "hardware_fault", "needs reset": "reset_required"}
"""Findings by the driver's states of a device; other states that are not well: `degraded`."""
WELL = ("operational", "")


class Gaudi(ByTools):
    """Gaudi devices of this machine."""

    vendor = "habana"
    variables = ("HABANA_VISIBLE_MODULES",)
    files = ("/dev/accel/accel[0-9]*", "/dev/hl[0-9]*")
    signs = ("/sys/module/habanalabs", "/dev/hl[0-9]*")
    open_means_use = True

    def __init__(self, root: Path = Path("/"), records: "KernelRecords | None" = None) -> None:
        """Take `records` for the kernel's log; by default that of a real machine is read."""
        super().__init__(root)
        self._records = records
        self._log: KernelLog | None = None

    def inventory(self, sources: Sources) -> Reading:
        """Return the devices that hl-smi shows, by module id; one whose module id is not known is left out."""
        from penstock.devices import gaudi_tools

        table = ask(sources, Question(("hl-smi",), gaudi_tools.parse_table))
        rows = ask(sources, Question(QUERY, gaudi_tools.parse_rows))
        kernel = Reading(devices=tuple(_kernel(sources)))
        first, second = (table, rows) if len(table.devices) >= len(rows.devices) else (rows, table)
        here = joined(joined(by_address(first), by_address(second)), kernel)
        known = [_by_module(device) for device in here.devices if device.chip is not None]
        left = len(here.devices) - len(known)
        text = f"{left} devices without a module id: HABANA_VISIBLE_MODULES cannot name them"
        unnamed = [Finding(code="masked", text=text)] if left else []
        here = with_findings(named_as(here, known), unnamed, _states(sources, here))
        return self.counted(with_words(in_order(with_numa(sources, here))))

    def sample(self, sources: Sources) -> Reading:
        from penstock.devices import gaudi_tools

        reading = self.counted(by_address(ask(sources, Question(("hl-smi",), gaudi_tools.parse_table))))
        return with_findings(reading, _states(sources, reading), self._from_kernel(sources))

    def _from_kernel(self, sources: Sources) -> Iterator[Finding]:
        """Yield what the driver has written into the kernel's log since the last sample, of devices by address."""
        from penstock.devices.kernel_log import KernelLog
        from penstock.devices.kernel_records import KernelRecords

        if self._records is None:
            if not isinstance(sources, Machine):
                return
            self._records = KernelRecords()
        begun, self._log = self._log is not None, self._log or KernelLog()
        new = [finding for line in self._records.new() if (finding := self._log.take(line)) is not None]
        addresses = {file: device.pci for device in _kernel(sources) for file in device.files}
        for finding in new if begun else ():
            pci = finding.pci or addresses.get(f"/dev/accel/accel{finding.index}", "")
            if finding.index is not None and pci:
                yield replace(finding, index=None, pci=pci)

    def own_files(self, sources: Sources) -> list[tuple[str, ...]]:
        modules = {device.chip: device.files for device in _kernel(sources)}
        return [modules[at] for at in range(len(modules))] if set(modules) == set(range(len(modules))) else []

    def container_flags(self, given: Sequence[Device]) -> tuple[str, ...]:
        """Return the vendor's container runtime, and the modules that it shows. Source: see above."""
        modules = self.words_of(given)
        return ("--runtime=habana", f"--env=HABANA_VISIBLE_MODULES={modules}") if modules else ()


def _by_module(device: DeviceFacts) -> DeviceFacts:
    """Return a device by its module id, without its uuid, which no variable takes."""
    return replace(device, index=device.chip, uuid="")


def _kernel(sources: Sources) -> list[DeviceFacts]:
    """Return what the driver's files say: address, module id, device file."""
    devices = []
    for folder in sources.glob("/sys/class/accel/accel[0-9]*"):
        pci = pci_address(sources.read(f"{folder}/device/pci_addr"))
        if pci:
            module = whole(sources.read(f"{folder}/device/module_id"))
            file = f"/dev/accel/{folder.rpartition('/')[2]}"
            devices.append(DeviceFacts(pci=pci, chip=module, files=(file,)))
    return devices


def _states(sources: Sources, here: Reading) -> list[Finding]:
    findings = []
    known = {device.pci: device for device in here.devices}
    for folder in sources.glob("/sys/class/accel/accel[0-9]*"):
        device = known.get(pci_address(sources.read(f"{folder}/device/pci_addr")))
        state = sources.read(f"{folder}/device/status").strip()
        if device is not None and state not in WELL:
            code = STATES.get(state, "degraded")
            text = short(f"the driver says: {state}")
            findings.append(Finding(code=code, text=text, index=device.chip, pci=device.pci))
    return findings
