"""The table that several vendors' tools print alike: a banner, devices of two rows each, then processes.

Used for `hl-smi`, `xpu-smi` and `cnmon`; what the columns mean is said in their modules.
"""

from dataclasses import dataclass, field

from penstock.devices import printed
from penstock.devices.reading import (
    DeviceFacts,
    Finding,
    ProcessFacts,
    Reading,
    number,
    said,
    size_bytes,
    whole,
    without_duplicates,
)

Record = dict[str, str]


@dataclass
class SmiTable:
    """A table taken apart; the records are by the words of the headings."""

    first: str
    """The first word of the devices' heading: `AIP`."""
    lines: printed.Lines
    banner: list[str] = field(default_factory=list)
    headings: tuple[str, ...] = ()
    records: list[Record] = field(default_factory=list)
    process_heading: str = ""
    processes: list[Record] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def take(self, block: printed.Block) -> None:
        heading = next((row for row in block.rows if "PID" in row), "")
        words = block.rows[0].strip("| ").split() if block.rows else []
        if heading:
            self.process_heading = heading
        elif not self.headings and words[:1] == [self.first] and "Name" in words:
            self.headings = block.rows if any("Memory-Usage" in row for row in block.rows) else ()
        elif not self.headings:
            self.banner += [*block.rows, *block.broken]
        elif self.process_heading:
            self._take_processes(block)
        elif block.rows and not (len(block.rows) == 1 and "Process" in block.rows[0]):
            read = None if block.broken or not block.closed else printed.record(self.headings, block.rows)
            self.records += [] if read is None else [read]
            self.refused += [block.rows[0]] if read is None else []
        else:
            self.refused += block.broken

    def _take_processes(self, block: printed.Block) -> None:
        self.refused += block.broken
        for row in block.rows:
            read = printed.listed(self.process_heading, row)
            if read is not None:
                self.processes.append(read)
            elif not any("no running" in cell.lower() for cell in printed.cells(row)):
                self.refused.append(row)

    def driver(self, words: tuple[str, ...]) -> str:
        """Return the version that follows one of `words` in the banner."""
        for row in self.banner:
            for word in words:
                _, there, after = row.partition(word)
                if there and (version := after.strip(" |").split()):
                    return version[0]
        return ""


def read_table(text: str, first: str) -> SmiTable:
    """Return a table whose devices' heading begins with `first`."""
    table = SmiTable(first, printed.read_lines(text))
    for block in printed.blocks(table.lines.lines):
        table.take(block)
    return table


def common_facts(read: Record, index: str) -> DeviceFacts | None:
    """Return the facts that stand in all these tables; None where index or address are none."""
    at, pci = printed.integer(read.get(index)), printed.address(read.get("Bus-Id"))
    if at is None or pci is None:
        return None
    used, total = (size_bytes(part) for part in _two(read.get("Memory-Usage")))
    power, limit = (milliwatts(part) for part in _two(read.get("Pwr:Usage/Cap")))
    used, total = printed.memory(used, total)
    return DeviceFacts(
        index=at,
        pci=pci,
        model=printed.label(read.get("Name")),
        memory_bytes=total,
        memory_used_bytes=used,
        temperature_c=celsius(read.get("Temp")),
        power_mw=power,
        power_limit_mw=limit,
    )


def _two(text: str | None) -> tuple[str, str]:
    """Return the parts of `95W / 600W`; none where it is not two."""
    one, slash, other = (text or "").partition("/")
    return (one.strip(), other.strip()) if slash and said(text) else ("", "")


def milliwatts(text: str | None) -> int | None:
    value = number(text)
    return round(value * 1000) if value is not None and 0 <= value <= printed.POWER_W_MAX else None


def celsius(text: str | None) -> int | None:
    return printed.within(whole(text), printed.TEMPERATURE_C_MAX)


def thousandths(percent: str | None) -> int | None:
    value = number(percent)
    return round(value * 10) if value is not None and 0 <= value <= printed.PERCENT_MAX else None


def process(read: Record, index: str, name: str, memory: str) -> ProcessFacts | None:
    """Return a process; None for a row that says that a device has none."""
    pid = printed.integer(read.get("PID"))
    if pid is None:
        return None
    at = printed.integer(read.get(index))
    return ProcessFacts(pid=pid, index=at, name=said(read.get(name)), memory_bytes=size_bytes(read.get(memory)))


def whole_reading(
    table: SmiTable,
    devices: list[DeviceFacts],
    processes: list[ProcessFacts],
    driver: str,
    more: list[Finding],
    *,
    processes_last: bool,
) -> Reading:
    """Return the reading of a table, with findings for what it lacks.

    Args:
        processes_last: whether the tool prints a table of processes in any case.
    """
    lines = table.lines
    if not table.headings:
        return Reading(findings=(*lines.findings, *([printed.complaint(lines.lines)] if lines.lines else [])))
    kept, twice = without_duplicates(devices)
    wanted = ("model", "memory_bytes", *(("pci",) if any("Bus-Id" in row for row in table.headings) else ()))
    dark = [
        printed.masked(", ".join(unknown), index=device.index, pci=device.pci)
        for device in kept
        if (unknown := [name for name in wanted if getattr(device, name) in ("", None)])
    ]
    known = {device.index for device in devices if device.index is not None}
    busy = {printed.integer(row.get(table.first)) for row in table.processes}
    lost = sorted(at for at in busy if at is not None and at not in known)
    text = f"the table of processes names {lost[:8]}, which the table of devices does not show"
    missing = [] if devices else [Finding(code="cut", text="the table has no whole device")]
    missing += [Finding(code="cut", text=text)] if lost else []
    if processes_last and not table.process_heading:
        missing.append(Finding(code="cut", text="no table of processes"))
    missing += [printed.masked(f"device of process {p.pid}") for p in processes if p.index is None][:1]
    found = printed.refused(table.refused)
    parts = Reading(devices=kept, processes=tuple(processes), driver=driver)
    return printed.reading(parts, lines.findings, found, more, dark, twice, missing, printed.closing(lines))
