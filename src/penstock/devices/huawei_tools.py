"""What Huawei's `npu-smi info` prints of Ascend devices: the table, `-l`, `-m` and `-t topo`; also `lspci`.

A card (NPU) holds chips; a device is a chip. Its index is the number by which programs choose it, where the table has
one (`Phy-ID`, `Device`, `Chip Logic ID`), else the card's. What `MB` means: 65536 of them are the 64 GiB of a 910B.
`huawei_details` reads the outputs about one device.
"""

import re
from collections.abc import Sequence

from penstock.core.model.resources import LinkKind
from penstock.devices import printed
from penstock.devices.reading import (
    DeviceFacts,
    Finding,
    LinkFacts,
    ProcessFacts,
    Reading,
    number,
    pci_address,
    said,
    short,
    size_bytes,
    whole,
    without_duplicates,
)

HEALTH = {"ok": "", "warning": "degraded", "alarm": "hardware_fault", "critical": "hardware_fault"}
"""Findings by health. Source: npu-smi command reference, `npu-smi info -t health`."""
DCMI_CODES = {-8002: "no_permission", -8005: "no_driver", -8006: "tool_timeout", -8013: "not_supported"}
DCMI_CODES |= {-8255: "not_supported"}
"""Findings by number of an error; others: `tool_failed`. Source: DCMI API reference, return codes.

-8005 (internal error) is what a process gets that sees no usable device file: no rights, no driver, or no reboot since.
"""
INTERCEPTED = ("limiter::", "/hami-shared-region/")
"""Of a library that rewrites ids and memory in a container."""
LINKS: dict[str, LinkKind | None] = {
    "HCCS": "nvlink",
    "HCCS_SW": "nvlink",
    "SIO": "nvlink",
    "PIX": "pcie",
    "PXB": "pcie",
    "PHB": "pcie",
    "SYS": "node",
    "NA": None,
}
"""By the words of `-t topo`. HCCS is Huawei's link between devices; SIO joins the two dies of a chip."""
LSPCI_MODELS = {"d801": "910A", "d500": "310P", "d100": "310"}
"""By PCI device id of vendor 19e5, where an id stands for one model. Source: MindCluster device plugin."""

_DCMI = re.compile(r"(?<!\d)-8\d{3}\b")
_VERSION = re.compile(r"Version\s*:\s*([0-9A-Za-z][\w.\-]*)")
_LSPCI = re.compile(r"(\S+) [^:]+: Huawei Technologies Co\., Ltd\..*? (?:Device )?\[?(?:19e5:)?(d[0-9a-f]{3})\b")
_NPU = re.compile(r"NPU(\d{1,5})")


def model_name(text: str | None) -> str:
    """Return a model as the table of devices names it: `910B3`, where other outputs have `Ascend 910B3`."""
    return printed.label(text).removeprefix("Ascend ").strip()


def parse_info(text: str) -> Reading:
    """Return what `npu-smi info` says: devices with health, use and memory, and the processes on them."""
    lines = printed.read_lines(text)
    if not lines.lines:
        return Reading(findings=lines.findings)
    table = _Table()
    for block in printed.blocks(lines.lines):
        table.take(block)
    devices, twice = without_duplicates(table.devices)
    whole_table = Reading(devices=devices, processes=tuple(table.processes), driver=table.driver)
    if not table.headings:
        return printed.reading(whole_table, lines.findings, [error(lines.lines)])
    missing = [] if table.devices else [Finding(code="cut", text="the table has no whole device")]
    return printed.reading(
        whole_table,
        lines.findings,
        _intercepted(lines.lines),
        table.findings,
        printed.refused(table.refused),
        table.unlisted(),
        twice,
        missing,
        printed.closing(lines),
    )


def error(lines: Sequence[str]) -> Finding:
    """Return a finding for an output without the table, by the number of the error where there is one."""
    for line in lines:
        if code := _DCMI.search(line):
            value = int(code[0])
            return Finding(code=DCMI_CODES.get(value, "tool_failed"), text=short(" ".join(lines)), number=value)
    return printed.complaint(lines)


def _intercepted(lines: Sequence[str]) -> list[Finding]:
    if not any(word in line for word in INTERCEPTED for line in lines):
        return []
    text = "a library in the container rewrites ids and memory: its limits are shown, not the devices"
    return [Finding(code="masked", text=text)]


class _Table:
    """The table of `npu-smi info`, block by block: banner, heading, devices, heading of processes, processes."""

    def __init__(self) -> None:
        self.headings: tuple[str, ...] = ()
        self.index_column = ""
        self.process_heading = ""
        self.driver = ""
        self.devices: list[DeviceFacts] = []
        self.processes: list[ProcessFacts] = []
        self.findings: list[Finding] = []
        self.refused: list[str] = []
        self._index: dict[tuple[int, int], int | None] = {}
        self._cards: set[int] = set()
        self._idle: set[int] = set()

    def take(self, block: printed.Block) -> None:
        first = (block.rows or ("",))[0]
        if self.headings:
            self.refused += block.broken
        if not self.headings and (version := _VERSION.search(first)) and "npu-smi" in first:
            self.driver = version[1]
        elif not self.headings and first and "Health" in first and "NPU" in first:
            self.headings = block.rows if any("Bus-Id" in row for row in block.rows) else ()
            self.index_column = _index_column(block.rows)
        elif self.headings and first and "Process id" in first:
            self.process_heading = first
        elif self.process_heading:
            self._take_processes(block.rows)
        elif self.headings and block.rows:
            self._take_device(block)

    def _take_device(self, block: printed.Block) -> None:
        read = None if block.broken or not block.closed else printed.record(self.headings, block.rows)
        device = None if read is None else _device(read, self.index_column)
        if read is None or device is None:
            self.refused += block.rows[:1]
            return
        card, chip = device.card or 0, device.chip or 0
        self._index[card, chip] = device.index
        self._cards.add(card)
        self.devices.append(device)
        self.findings += _of_device(read, device)

    def _take_processes(self, rows: Sequence[str]) -> None:
        for row in rows:
            if len(only := printed.cells(row)) == 1:
                card = printed.integer(only[0].split()[-1] if only[0] else "")
                self._idle |= set() if card is None else {card}
                continue
            read = printed.listed(self.process_heading, row)
            pid = printed.integer((read or {}).get("Process id"))
            card, chip = (printed.integer((read or {}).get(name)) for name in ("NPU", "Chip"))
            if read is None or pid is None or card is None or chip is None:
                self.refused.append(row)
                continue
            self._idle.add(card)
            self.processes.append(
                ProcessFacts(
                    pid=pid,
                    index=self._index.get((card, chip)),
                    name=said(read.get("Process name")),
                    memory_bytes=size_bytes(read.get("Process memory(MB)")),
                )
            )

    def unlisted(self) -> list[Finding]:
        """Return a finding where the table of processes names cards that the table of devices does not show."""
        cards = sorted(self._idle - self._cards)
        text = f"the table of processes names NPU {cards[:8]}, which the table of devices does not show"
        return [Finding(code="cut", text=short(text))] if cards else []


def _index_column(headings: Sequence[str]) -> str:
    """Return the column by which programs choose a device: the one beside the chip's, else the card's; '' unknown."""
    cells = [printed.values(printed.cells(heading)[0]) for heading in headings]
    beside = next((cell[1:] for cell in cells if cell[:1] == ["Chip"]), [""])
    return "NPU" if not beside else beside[0] if len(beside) == 1 and beside[0] in ("Phy-ID", "Device") else ""


def _device(read: dict[str, str], index_column: str) -> DeviceFacts | None:
    """Return a device, None for a row whose values are not what its heading says."""
    card, chip = printed.integer(read.get("NPU")), printed.integer(read.get("Chip"))
    pci, health = printed.address(read.get("Bus-Id")), read.get("Health", "")
    if card is None or chip is None or pci is None or any(c.isdigit() for c in health):
        return None
    index = printed.integer(read.get(index_column)) if index_column != "NPU" or chip == 0 else None
    used, total = _memory(read)
    power, use = number(read.get("Power(W)")), number(read.get("AICore(%)"))
    return DeviceFacts(
        index=index,
        card=card,
        chip=chip,
        pci=pci,
        model=model_name(read.get("Name")),
        memory_bytes=total,
        memory_used_bytes=used,
        use_milli=round(use * 10) if use is not None and 0 <= use <= printed.PERCENT_MAX else None,
        temperature_c=printed.within(whole(read.get("Temp(C)")), printed.TEMPERATURE_C_MAX),
        power_mw=round(power * 1000) if power is not None and 0 <= power <= printed.POWER_W_MAX else None,
    )


def _memory(read: dict[str, str]) -> tuple[int | None, int | None]:
    """Return used and total bytes: of the HBM where the table has it, else of the only memory."""
    for name in ("HBM-Usage(MB)", "Memory-Usage(MB)"):
        used, slash, total = read.get(name, "").partition("/")
        if slash and (size := size_bytes(total)):
            return printed.memory(size_bytes(used), size)
    return None, None


def _of_device(read: dict[str, str], device: DeviceFacts) -> list[Finding]:
    health = read.get("Health", "")
    code = HEALTH.get(health.lower(), "degraded")
    found = [Finding(code=code, text=short(f"health: {health}"), index=device.index, pci=device.pci)] if code else []
    facts = (("index", device.index), ("address", device.pci), ("model", device.model), ("memory", device.memory_bytes))
    unknown = [name for name, value in facts if value in (None, "")]
    return [*found, *([printed.masked(", ".join(unknown), index=device.index, pci=device.pci)] if unknown else [])]


def parse_list(text: str) -> Reading:
    """Return what `npu-smi info -l` says: the cards of one chip each, by number; chips of others have no index."""
    lines = printed.read_lines(text)
    total: int | None = None
    card: int | None = None
    devices: list[DeviceFacts] = []
    bad: list[str] = []
    cards = 0
    for line in lines.whole:
        name, value = printed.named(line) or ("", "")
        count = printed.integer(value)
        if name == "Total Count" and count is not None:
            total = count
        elif name == "NPU ID" and count is not None and card is None:
            card = count
        elif name == "Chip Count" and count is not None and card is not None:
            several = count > 1
            devices += [DeviceFacts(index=None if several else card, card=card, chip=n) for n in range(min(count, 16))]
            card, cards = None, cards + 1
        elif line.strip():
            bad.append(line)
            card = None
    short_of = cards != total or card is not None
    text = f"{cards} of {'an unknown number of' if total is None else total} NPUs are listed"
    kept, twice = without_duplicates(devices)
    if not cards and total is None:
        return Reading(findings=(*lines.findings, *([error(lines.lines)] if lines.lines else [])))
    found = [Finding(code="cut", text=text)] if short_of else []
    return printed.reading(Reading(devices=kept), lines.findings, found, printed.refused(bad), twice)


def parse_mapping(text: str) -> Reading:
    """Return what `npu-smi info -m` says: chips with their logic ids, without controllers (`Mcu`), which have none."""
    lines = printed.read_lines(text)
    heading: list[str] = []
    devices: list[DeviceFacts] = []
    bad: list[str] = []
    for line in lines.whole:
        row = printed.values(line)
        if row[:1] == ["NPU ID"] and not heading:
            heading = row
        elif row and (not heading or len(row) != len(heading)):
            bad.append(line)
        elif row:
            read = dict(zip(heading, row, strict=True))
            index, card = printed.integer(read.get("Chip Logic ID")), printed.integer(read.get("NPU ID"))
            chip, name = printed.integer(read.get("Chip ID")), model_name(read.get("Chip Name"))
            if card is None or chip is None or (index is None and read.get("Chip Logic ID") != "-"):
                bad.append(line)
            elif index is not None:
                devices.append(DeviceFacts(index=index, card=card, chip=chip, model=name))
    if not heading:
        return Reading(findings=(*lines.findings, *([error(lines.lines)] if lines.lines else [])))
    kept, twice = without_duplicates(devices)
    none = [] if devices else [Finding(code="no_devices", text="no chip has a logic id")]
    gap = {device.index for device in devices} != set(range(len(devices)))
    cut = [Finding(code="cut", text="the logic ids do not count from 0 without a gap")] if gap else []
    return printed.reading(Reading(devices=kept), lines.findings, printed.refused(bad), twice, none, cut)


def parse_topology(text: str) -> Reading:
    """Return what `npu-smi info -t topo` says: devices by index, and each pair's link once.

    A link is taken where both rows name it alike.
    """
    lines = printed.read_lines(text)
    heading: list[str] = []
    rows: dict[str, list[str]] = {}
    devices: list[DeviceFacts] = []
    bad: list[str] = []
    for line in lines.whole:
        words = line.split()
        if words[:1] == ["Legend:"]:
            break
        if words and not heading and all(_NPU.fullmatch(word) for word in words[:-2]) and words[-1] == "Affinity":
            heading = words[:-2]
        elif words and len(words) == len(heading) + 2 and words[0] in heading and _self(heading, words):
            devices.append(DeviceFacts(index=int(words[0][3:])))
            rows[words[0]] = words[1:-1]
        elif words:
            bad.append(line)
    if not heading:
        return Reading(findings=(*lines.findings, *([error(lines.lines)] if lines.lines else [])))
    kept, twice = without_duplicates(devices)
    missing = [name for name in heading if name not in rows]
    cut = [Finding(code="cut", text=short(f"no row of {', '.join(missing)}"))] if missing else []
    links, strange = _links(heading, rows, {device.index for device in kept})
    found = printed.refused(bad + strange)
    return printed.reading(Reading(devices=kept, links=tuple(links)), lines.findings, found, twice, cut)


def _self(heading: list[str], words: list[str]) -> bool:
    return words[1 + heading.index(words[0])] == "X"


def _links(heading: list[str], rows: dict[str, list[str]], known: set[int | None]) -> tuple[list[LinkFacts], list[str]]:
    links: list[LinkFacts] = []
    strange: list[str] = []
    for at, one in enumerate(heading):
        for to, other in enumerate(heading[at + 1 :], at + 1):
            if one not in rows or other not in rows:
                continue
            word, back = rows[one][to], rows[other][at]
            device, peer = int(one[3:]), int(other[3:])
            if word != back or word not in LINKS:
                strange.append(f"{one} {other}: {word}, {back}")
            elif (kind := LINKS[word]) is not None and {device, peer} <= known:
                links.append(LinkFacts(device, peer, kind))
    return links, strange


def parse_lspci(text: str) -> Reading:
    """Return the Ascend devices that `lspci` lists, driver or not: addresses and models."""
    lines = printed.read_lines(text)
    devices: list[DeviceFacts] = []
    bad: list[str] = []
    for line in lines.whole:
        read = _LSPCI.match(line)
        pci = pci_address(read[1]) if read else ""
        if read and pci:
            devices.append(DeviceFacts(pci=pci, model=LSPCI_MODELS.get(read[2], "")))
        elif "accelerator" in line.lower() and "Huawei" in line:
            bad.append(line)
    kept, twice = without_duplicates(devices)
    none = [] if devices or bad or lines.findings else [Finding(code="no_devices", text="lspci lists no Ascend device")]
    return printed.reading(Reading(devices=kept), lines.findings, printed.refused(bad), twice, none)
