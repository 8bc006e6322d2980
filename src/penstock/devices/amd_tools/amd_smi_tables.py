"""Tables of `amd-smi`: without a command (from 26, ROCm 7), `monitor`, and the line of `version`.

Columns are known by their headings and are divided by bars or by two blanks; a row with another number of cells than
its heading is not taken.
"""

import re
from collections.abc import Iterator, Sequence

from penstock.devices.amd_tools import values
from penstock.devices.amd_tools.outputs import NotRead, errors_said, index_of, reading, whole_lines
from penstock.devices.amd_tools.parts import Row, compute_mode, fold
from penstock.devices.reading import DeviceFacts, Finding, ProcessFacts, Reading, said, short

Cells = dict[str, str]

_GAP = re.compile(r" {2,}")
_BORDER = re.compile(r"[+|][-=+]{20,}[+|]")
_VERSIONS = re.compile(
    r"(AMDSMI Tool|AMD-SMI|AMDSMI Library version|ROCm [Vv]ersion|amdgpu [Vv]ersion|VBIOS version)[: ] *([0-9][\w.+-]*)"
)
VIOLATIONS = ("TVIOL", "PHOT_TVIOL", "VR_TVIOL", "HBM_TVIOL")
"""Thermal ones; reaching the power limit (`PVIOL`) is normal work."""


def read_table(text: str) -> Reading:
    """Return what the table of `amd-smi` without a command shows. Never raises."""
    try:
        lines, findings = whole_lines(text)
    except NotRead as error:
        return reading(findings=[error.finding])
    table = _Table(lines)
    rows = list(_device_rows(table, findings))
    processes = list(_process_rows(table.processes, findings))
    whole = [line for line in lines if line]
    if not table.border or whole[-1] != table.border:
        findings.append(Finding(code="cut", text="the table does not end with its border"))
    devices, contradictions = fold(rows)
    found = [*findings, *errors_said(table.outside), *contradictions]
    return reading(devices=devices, processes=processes, findings=found, driver=_driver("\n".join(lines)))


def _driver(text: str) -> str:
    known = versions(text)
    return next((version for name, version in known.items() if name.lower() == "amdgpu version"), "")


def versions(text: str) -> dict[str, str]:
    """Return the versions in the line of `amd-smi version` or in the head of the table, by their names there."""
    return dict(_VERSIONS.findall(text[:4096]))


def read_versions(text: str) -> Reading:
    """Return the version of the driver that `amd-smi version` shows; older ones show none. Never raises."""
    try:
        lines, findings = whole_lines(text)
    except NotRead as error:
        return reading(findings=[error.finding])
    known = versions("\n".join(lines))
    if known:
        return Reading(driver=_driver("\n".join(lines)), findings=tuple(findings))
    return reading(findings=[*findings, *errors_said(lines)])


class _Table:
    """The lines of the table of devices, those of processes, and those outside of both."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.border = ""
        self.headings: list[str] = []
        self.rows: list[str] = []
        self.processes: list[str] = []
        self.outside: list[str] = []
        kept: list[str] | None = None
        for line in lines:
            if line.startswith("| BDF ") and not self.headings:
                kept = self.headings
            elif re.match(r"\|\s+GPU\s+PID\b", line):
                kept = self.processes
            if _BORDER.fullmatch(line):
                self.border = self.border or line
                if line.startswith("+"):
                    kept = None
                elif "=" in line and kept is self.headings:
                    kept = self.rows
            elif not line.startswith("|") or not line.endswith("|"):
                self.outside.append(line)
            elif kept is not None:
                kept.append(line)


def _device_rows(table: _Table, findings: list[Finding]) -> Iterator[Row]:
    """Yield rows of two lines each, read by the two lines of headings."""
    headings = [_halves(line) for line in table.headings]
    if len(headings) != 2 or None in headings:
        findings.append(Finding(code="unknown_format", text="the table of devices has other headings"))
        return
    body = [_halves(line) for line in table.rows]
    left, right = zip(*[half for half in headings if half is not None], strict=True)
    at = 0
    while at < len(body):
        first, second = body[at], body[at + 1] if at + 1 < len(body) else None
        starts = first is not None and bool(values.address(first[0].split(" ")[0]))
        row = _device_row(left, right, first, second) if starts and first and second else None
        if row is None:
            findings.append(Finding(code="cut", text="a row of the table of devices is not whole"))
            at += 1
            continue
        yield row
        name = first[0].partition(" ")[2].strip() if first else ""
        if name and not row.facts.model:
            findings.append(Finding(code="cut", text=short(f"the name is cut: {name}"), index=row.facts.index))
        if row.facts.ecc_uncorrected:
            told = f"uncorrectable memory errors: {row.facts.ecc_uncorrected}"
            findings.append(Finding(code="ecc_uncorrected", text=told, index=row.facts.index, pci=row.facts.pci))
        at += 2


def _halves(line: str) -> tuple[str, str] | None:
    """Return the text on both sides of the bar in the middle."""
    parts = line[1:-1].split("|")
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None


def _device_row(
    left: Sequence[str], right: Sequence[str], first: tuple[str, str], second: tuple[str, str]
) -> Row | None:
    ids = _cells(left[1].split(), second[0].split())
    above = _cells(_GAP.split(right[0]), _GAP.split(first[1]))
    below = _cells(_GAP.split(right[1]), _GAP.split(second[1]))
    index = index_of((ids or {}).get("GPU", ""))
    if ids is None or above is None or below is None or index is None or left[0].split() != ["BDF", "GPU-Name"]:
        return None
    address, _, name = first[0].partition(" ")
    power, limit, power_unit = _used_of(above.get("Power-Usage", ""))
    used, total, memory_unit = _used_of(below.get("Mem-Usage", ""))
    facts = DeviceFacts(
        index=index,
        pci=values.address(address),
        model=values.model(name),
        memory_bytes=values.memory_bytes(f"{total} {memory_unit}"),
        memory_used_bytes=values.memory_bytes(f"{used} {memory_unit}", used=True),
        use_milli=values.percent_milli(below.get("GFX-Uti")),
        temperature_c=values.degrees(above.get("Temp")),
        power_mw=values.watts_mw(f"{power} {power_unit}"),
        power_limit_mw=values.watts_mw(f"{limit} {power_unit}", least=1),
        ecc_uncorrected=values.count(above.get("UEC")),
    )
    return Row(facts=facts, mode=compute_mode(ids.get("Partition-Mode", "")))


def _used_of(text: str) -> tuple[str, str, str]:
    """Return the parts of `285/196288 MB`; each may be `N/A`, and the right one may be missing."""
    read = re.fullmatch(r"(N/A|[\d.,]+)(?:/ *(N/A|[\d.,]+))? ([A-Za-z]+)", said(text))
    return (read[1], read[2] or "", read[3]) if read else ("", "", "")


def _cells(headings: Sequence[str], cells: Sequence[str]) -> Cells | None:
    """Return cells by their headings, None where the numbers differ or a heading stands twice."""
    if len(headings) != len(cells) or len(set(headings)) != len(headings):
        return None
    return dict(zip(headings, cells, strict=True))


def _process_rows(lines: Sequence[str], findings: list[Finding]) -> Iterator[ProcessFacts]:
    headings = _GAP.split(lines[0].strip("|").strip()) if lines else []
    for line in lines[1:]:
        if "No running processes" not in line:
            process = _process(_cells(headings, _GAP.split(line.strip("|").strip())))
            if process is None:
                findings.append(Finding(code="cut", text=short(f"a row of processes is not whole: {line.strip('| ')}")))
            else:
                yield process


def _process(cells: Cells | None) -> ProcessFacts | None:
    """Return the process of a row with GPU and PID, None if one of them is no number."""
    if cells is None:
        return None
    index, pid = index_of(cells.get("GPU", "")), values.count(cells.get("PID"), limit=2**31)
    if index is None or not pid:
        return None
    name = said(cells.get("Process Name", cells.get("NAME")))
    memory = values.memory_bytes(cells.get("VRAM_MEM"), used=True)
    return ProcessFacts(pid=pid, index=index, name=short(name), memory_bytes=memory)


def read_monitor(text: str, *, as_counted: bool = False) -> Reading:
    """Return what `amd-smi monitor` shows of each GPU, and its processes (`-q`). Never raises.

    Rows have an index alone, which counts parts; from ROCm 6.4 the column XCP numbers the parts of each device. See
    `fold` for `as_counted`.
    """
    rows, processes, findings = _monitor_rows(text)
    devices, contradictions = fold(rows, as_counted=as_counted)
    return reading(devices=devices, processes=processes, findings=[*findings, *contradictions])


def _monitor_rows(text: str) -> tuple[list[Row], list[ProcessFacts], list[Finding]]:
    try:
        lines, findings = whole_lines(text)
    except NotRead as error:
        return [], [], [error.finding]
    rows: list[Row] = []
    processes: list[ProcessFacts] = []
    headings: list[str] = []
    loose: list[str] = []
    tables = 0
    for line in lines:
        cells = _GAP.split(line.strip())
        if cells[0] == "GPU":
            headings, tables = cells, tables + 1
        elif not headings or not cells[0].isdigit():
            loose += [line] if line and line != "PROCESS INFO:" else []
            headings = []  # rows behind another line may be of another table
        else:
            named = _cells(headings, cells)
            row = _process(named) if "PID" in headings else _monitor_row(named)
            if isinstance(row, ProcessFacts):
                processes.append(row)
            elif row is not None:
                rows.append(row)
                findings += _violations(named or {}, row.facts.index)
            else:
                findings.append(Finding(code="cut", text=short(f"a row is not whole: {line.strip()}")))
    orphans = [line for line in loose if line.split()[0].isdigit()]
    if orphans:
        findings.append(Finding(code="cut", text=f"rows without headings: {len(orphans)}"))
    findings += errors_said(loose)
    if tables and not rows and not processes and not findings:
        findings.append(Finding(code="no_devices", text="no row stands under the headings"))
    return rows, processes, findings


def _monitor_row(cells: Cells | None) -> Row | None:
    """Return a row; the sum in `0.3/192.0 GB` is rounded, and no size of the memory."""
    if cells is None:
        return None
    index, part = index_of(cells.get("GPU", "")), values.count(cells.get("XCP"), limit=63)
    if index is None or ("XCP" in cells and (part is None or part > index)):
        return None
    used, _, unit = _used_of(cells.get("VRAM_USAGE", ""))
    in_use = cells.get("VRAM_USED", f"{used} {unit}")
    facts = DeviceFacts(
        index=index,
        memory_bytes=values.memory_bytes(cells.get("VRAM_TOTAL")),
        memory_used_bytes=values.memory_bytes(in_use, used=True),
        use_milli=values.percent_milli(cells.get("GFX_UTIL", cells.get("GFX%"))),
        temperature_c=values.degrees(cells.get("GPU_TEMP", cells.get("GPU_T"))),
        power_mw=values.watts_mw(cells.get("POWER", cells.get("POWER_USAGE"))),
        power_limit_mw=values.watts_mw(cells.get("PWR_CAP"), least=1),
        clock_mhz=values.clock_mhz(cells.get("GFX_CLOCK", cells.get("GFX_CLK"))),
        ecc_corrected=values.count(cells.get("SINGLE_ECC")),
        ecc_uncorrected=values.count(cells.get("DOUBLE_ECC")),
    )
    return Row(facts=facts, part=part, first=None if part is None else index - part)


def _violations(cells: Cells, index: int | None) -> Iterator[Finding]:
    for name in VIOLATIONS:
        share = values.percent_milli(cells.get(name))
        if share:
            yield Finding(code="throttled", text=f"{name}: {cells[name]}", index=index)
    errors = values.count(cells.get("DOUBLE_ECC"))
    if errors:
        yield Finding(code="ecc_uncorrected", text=f"uncorrectable memory errors: {errors}", index=index)
