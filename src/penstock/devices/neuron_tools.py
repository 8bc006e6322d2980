"""What AWS's `neuron-ls` prints of Neuron devices: its tables of four generations, and JSON; also `neuron-monitor`.

The table is taken, not the type of the machine above it. Its GB are 2**30 bytes: JSON has the same sizes in bytes.
Programs name devices by the numbers of their cores: a device's uuid is here the range of them, `4-7`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.devices import printed
from penstock.devices.reading import (
    DeviceFacts,
    Finding,
    LinkFacts,
    ProcessFacts,
    Reading,
    said,
    short,
    size_bytes,
    without_duplicates,
)

DRAWING = "Neuron Device Topology"
DEVICE = "NEURON DEVICE"
PROCESSES_MAX = 4096
CORES_MAX = 64
"""Of one device."""

_CORES = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


def parse_table(text: str) -> Reading:
    """Return what `neuron-ls` says: devices with memory and neighbours, and the processes on them."""
    lines = printed.read_lines(text)
    body = lines.lines
    drawn = next((at for at, line in enumerate(body) if line.strip() == DRAWING), None)
    table = printed.Lines(body[:drawn], lines.ended, lines.findings)
    words: list[str] = []
    heading = False
    reader = _Rows()
    for block in printed.blocks(table.lines):
        if not heading and block.rows and printed.cells(block.rows[0])[0] == "NEURON":
            heading, words = True, _headings(block.rows)
        elif DEVICE in words:
            reader.take(words, block)
        else:
            reader.refused += block.rows
    reader.refused += [] if drawn is None else [line for line in body[drawn:] if printed.is_row(line)]
    if DEVICE not in words:
        return Reading(findings=(*lines.findings, *([printed.complaint(lines.lines)] if lines.lines else [])))
    return printed.reading(reader.reading(), lines.findings, printed.closing(table))


def _headings(rows: Sequence[str]) -> list[str]:
    """Return the columns' names, which stand in several rows; none where the rows do not fit each other."""
    parts = [printed.cells(row) for row in rows]
    if any(len(part) != len(parts[0]) for part in parts):
        return []
    names = [" ".join(filter(None, column)) for column in zip(*parts, strict=True)]
    return names if len(set(names)) == len(names) else []


class _Rows:
    """Rows of devices, and of more processes of the device above them."""

    def __init__(self) -> None:
        self.devices: list[DeviceFacts] = []
        self.neighbours: dict[int, list[int]] = {}
        self.processes: list[ProcessFacts] = []
        self.refused: list[str] = []

    def take(self, words: Sequence[str], block: printed.Block) -> None:
        self.refused += block.broken
        device: DeviceFacts | None = None
        for row in block.rows:
            cells = printed.cells(row)
            read = dict(zip(words, cells, strict=True)) if len(cells) == len(words) else None
            if read is None:
                self.refused.append(row)
                device = None
                continue
            if read[DEVICE]:
                device = self._device(read)
            if device is None or not self._process(read, device):
                self.refused.append(row)

    def _device(self, read: Mapping[str, str]) -> DeviceFacts | None:
        index, pci = printed.integer(read[DEVICE]), printed.address(read.get("PCI BDF"))
        peers = [printed.integer(peer) for peer in read.get("CONNECTED DEVICES", "").split(",") if said(peer)]
        if index is None or pci is None or None in peers:
            return None
        size = read.get("NEURON MEMORY", "")
        ids, cores = read.get("NEURON CORE IDS"), printed.integer(read.get("NEURON CORES"))
        device = DeviceFacts(
            index=index,
            uuid=_core_ids(said(ids)) if ids is not None else _counted(index, cores),
            pci=pci,
            numa_node=printed.integer(read.get("NUMA NODE")),
            memory_bytes=size_bytes(size.removesuffix("GB"), "gib") or None if size.endswith("GB") else None,
        )
        self.devices.append(device)
        self.neighbours[index] = [peer for peer in peers if peer is not None]
        return device

    def _process(self, read: Mapping[str, str], device: DeviceFacts) -> bool:
        """Take the process of a row; tell whether there is one, or none is named."""
        pid = printed.integer(read.get("PID"))
        if pid is not None:
            self.processes.append(ProcessFacts(pid=pid, index=device.index, name=said(read.get("COMMAND"))))
        return pid is not None or (not said(read.get("PID")) and bool(read[DEVICE]))

    def reading(self) -> Reading:
        kept, twice = without_duplicates(self.devices)
        none = [] if self.devices else [Finding(code="cut", text="the table has no whole device")]
        parts = Reading(
            devices=kept, links=_links(self.neighbours, {d.index for d in kept}), processes=tuple(self.processes)
        )
        return printed.reading(parts, printed.refused(self.refused), twice, _dark(kept), none)


def _range(ids: object) -> str:
    """Return the first and last of numbers that follow each other."""
    if not isinstance(ids, list) or not ids or not all(type(core) is int for core in ids):
        return ""
    first, last = ids[0], ids[-1]
    return (f"{first}-{last}" if len(ids) > 1 else f"{first}") if ids == list(range(first, last + 1)) else ""


def _core_ids(text: str) -> str:
    """Return a number of a core, or a range of them; '' for what is none."""
    read = _CORES.fullmatch(text)
    return text if read and 0 <= int(read[2] or read[1]) - int(read[1]) < CORES_MAX else ""


def _counted(index: int, cores: int | None) -> str:
    """Return the cores of a device where each has as many."""
    if cores is None or not 0 < cores <= CORES_MAX:
        return ""
    return f"{index * cores}-{(index + 1) * cores - 1}" if cores > 1 else str(index)


def _dark(devices: Sequence[DeviceFacts]) -> list[Finding]:
    facts = ("pci", "memory_bytes")
    unknown = ((device, [name for name in facts if not getattr(device, name)]) for device in devices)
    return [printed.masked(", ".join(names), index=device.index) for device, names in unknown if names]


def _links(neighbours: Mapping[int, Sequence[int]], known: set[int | None]) -> tuple[LinkFacts, ...]:
    """Return each pair once, where both devices are listed and each names the other."""
    return tuple(
        LinkFacts(device, peer, "nvlink")
        for device, peers in neighbours.items()
        for peer in sorted(set(peers))
        if device < peer and {device, peer} <= known and device in neighbours.get(peer, ())
    )


def parse_json(text: str) -> Reading:
    """Return what `neuron-ls --json-output` says, or a finding for a report of `neuron-monitor`: it lists none."""
    told, unclean = printed.decode(text)
    rows = _Rows()
    if not isinstance(told, list):
        return Reading(findings=(*unclean, Finding(code="unknown_format", text="not a list of devices")))
    for read in told:
        if not isinstance(read, dict) or not _take_object(rows, read):
            rows.refused.append(short(str(read)[:200]))
    return printed.reading(Reading(), unclean) if unclean and not rows.devices else _with(rows, unclean)


def _with(rows: _Rows, unclean: Sequence[Finding]) -> Reading:
    return printed.reading(rows.reading(), unclean)


def _take_object(rows: _Rows, read: Mapping[str, Any]) -> bool:
    index, size = read.get("neuron_device"), read.get("memory_size")
    bdf, numa = read.get("bdf"), read.get("numa_node")
    pci = printed.address(bdf if isinstance(bdf, str) else "")
    if type(index) is not int or not 0 <= index < 10**6 or pci is None:
        return False
    peers = read.get("connected_to")
    listed = [peer for peer in peers if type(peer) is int] if isinstance(peers, list) else []
    ids, cores = read.get("neuroncore_ids"), read.get("nc_count")
    counted = _counted(index, cores if type(cores) is int else None)
    rows.devices.append(
        DeviceFacts(
            index=index,
            uuid=counted if ids is None else _core_ids(_range(ids)),
            pci=pci,
            numa_node=printed.integer(str(numa)),
            memory_bytes=size if type(size) is int and 0 < size < 2**53 else None,
        )
    )
    rows.neighbours[index] = listed
    processes = read.get("neuron_processes")
    for process in processes[:PROCESSES_MAX] if isinstance(processes, list) else []:
        pid = process.get("pid") if isinstance(process, dict) else None
        if type(pid) is not int or not 0 < pid < 2**31:
            rows.refused.append(short(str(process)[:200]))
            continue
        name = process.get("command")
        rows.processes.append(ProcessFacts(pid=pid, index=index, name=name if isinstance(name, str) else ""))
    return True
