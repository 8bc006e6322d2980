"""What Moore Threads' `mthreads-gmi` prints of GPUs: a table without bars at its sides, memory as `used(total)`."""

import re
from collections.abc import Sequence

from penstock.devices import printed, smi_table
from penstock.devices.reading import (
    DeviceFacts,
    Finding,
    ProcessFacts,
    Reading,
    size_bytes,
    whole,
    without_duplicates,
)

_DRIVER = re.compile(r"Driver Version:\s*(\S+)")
_SIZES = re.compile(r"(\d+%|N/A)\s+(\S+)\((\S+)\)")
_NAME = re.compile(r"(\d{1,5})\s+(\S.*)")
_USE = re.compile(r"(\d{1,5})\s+(\d{1,9})\s+(\S.*)")


def parse_table(text: str) -> Reading:
    """Return what `mthreads-gmi` says: devices with use and memory, and the processes on them.

    A device's rows are taken where a line closes them and both its first and its second row are whole.
    """
    lines = printed.read_lines(text)
    table = _Table()
    block: list[str] = []
    for line in lines.lines:
        if printed.is_border(line.strip()):
            table.take(block)
            block = []
        elif line.strip():
            block.append(line)
    table.refused += block[:1]
    if not table.columns:
        return Reading(findings=(*lines.findings, *([printed.complaint(lines.lines)] if lines.lines else [])))
    kept, twice = without_duplicates(table.devices)
    none = [] if table.devices else [Finding(code="cut", text="the table has no whole device")]
    dark = [printed.masked("memory", index=d.index, pci=d.pci) for d in kept if d.memory_bytes is None]
    parts = Reading(devices=kept, processes=tuple(table.processes), driver=table.driver)
    return printed.reading(
        parts, lines.findings, printed.refused(table.refused), twice, dark, none, printed.closing(lines)
    )


class _Table:
    def __init__(self) -> None:
        self.columns: list[str] = []
        self.in_processes = False
        self.driver = ""
        self.devices: list[DeviceFacts] = []
        self.processes: list[ProcessFacts] = []
        self.refused: list[str] = []

    def take(self, block: Sequence[str]) -> None:
        if not block:
            return
        if not self.columns and (version := _DRIVER.search(block[0])):
            self.driver = version[1]
        elif not self.columns and "PCIe" in block[0] and "Mem" in block[0]:
            self.columns = [cell.strip() for cell in block[0].split("|")]
        elif block[0].strip() == "Processes:":
            self.in_processes = True
        elif self.in_processes:
            self._take_processes(block)
        elif self.columns:
            device = _device(self.columns, block)
            self.devices += [] if device is None else [device]
            self.refused += [block[0]] if device is None else []

    def _take_processes(self, block: Sequence[str]) -> None:
        for line in block:
            row = _USE.fullmatch(line.strip())
            name, _, size = row[3].rpartition(" ") if row else ("", "", "")
            if row and name and (used := size_bytes(size)) is not None:
                self.processes.append(
                    ProcessFacts(pid=int(row[2]), index=int(row[1]), name=name.strip(), memory_bytes=used)
                )
            elif "No running" not in line:
                self.refused.append(line)


def _device(columns: Sequence[str], block: Sequence[str]) -> DeviceFacts | None:
    """Return a device; None for rows that are not whole."""
    first, second = ([cell.strip() for cell in row.split("|")] for row in (*block, "")[:2])
    if len(block) != 3 or len(first) != len(columns) or len(second) != len(columns):
        return None
    pcie = next(at for at, name in enumerate(columns) if "PCIe" in name)
    load = next(at for at, name in enumerate(columns) if "Mem" in name)
    name, pci, sizes = _NAME.fullmatch(first[0]), printed.address(first[pcie]), _SIZES.fullmatch(first[load])
    if name is None or not pci or sizes is None or _NAME.fullmatch(second[0]) or block[2].lstrip()[:1] != "|":
        return None
    used, total = printed.memory(size_bytes(sizes[2]), size_bytes(sizes[3]))
    temperature = second[load].split()
    return DeviceFacts(
        index=int(name[1]),
        pci=pci,
        model=printed.label(name[2]),
        memory_bytes=total,
        memory_used_bytes=used,
        use_milli=smi_table.thousandths(sizes[1]),
        temperature_c=printed.within(whole(temperature[0] if temperature else ""), printed.TEMPERATURE_C_MAX),
    )
