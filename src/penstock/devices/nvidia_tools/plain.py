"""The table that `nvidia-smi` prints without options: devices, parts (MIG), processes; all widths since driver 418.

Cells are found by the bars of each row, which must stand where the border above has its corners: a row that lost or
gained characters is not read. A device takes two or three rows (the heading shows whether there is a third, for MIG).
"""

import re
from collections.abc import Callable

import msgspec

from penstock.devices.nvidia_tools.texts import Lines, address_of, integer, reading, sentence, version_of
from penstock.devices.reading import (
    DeviceFacts,
    Finding,
    PartFacts,
    ProcessFacts,
    Reading,
    said,
    short,
    whole,
)

PID_MAX = 2**31
MIB = 2**20
ERROR = "ERR!"
_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}")
_BORDER = re.compile(r"[+|][-=+]{10,}[+|]")
_BANNER = re.compile(r"\b(?:Driver|KMD) Version: {0,20}(\S{1,24})")
_NAME = re.compile(r"\s*(\d{1,4})\s+(\S.*?)\s+(\S+)\s*")
_BUS = re.compile(r"\s*(\S+)\s+(?:On|Off|N/A)\s*")
_SENSORS = re.compile(r"\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*/\s*(\S+)\s*")
_MEMORY = re.compile(r"\s*(\d{1,9})MiB\s*/\s*(\d{1,9})MiB\s*")
_NO_MEMORY = re.compile(r"\s*(?:N/A|Not Supported|ERR!|N/A\s*/\s*N/A)\s*")
_USE = re.compile(r"\s*(\d{1,3}%|N/A|ERR!)\s+(\S.*?)\s*")
_MIG_ROW = re.compile(r"\s*(\d{1,4})\s+(\d{1,3})\s+(\d{1,3})\s+(\d{1,3})\s*")
_MIG_UNITS = re.compile(r"\s*(\d{1,4})\s+(\d{1,9}|N/A)\s*")
_PROCESS = re.compile(
    r"\s*(\d{1,4})\s+(?:(\d{1,3}|N/A)\s+(\d{1,3}|N/A)\s+)?(\d{1,10})\s+([A-Z+]{1,5})\s+(\S.*?)\s+(\d{1,9}MiB|N/A)\s*"
)
_NO_PROCESSES = ("No running processes found", "Not Supported")
_MIG_WORDS = {"Enabled": True, "Disabled": False}


class _Row:
    """The rows of one device or part, between two borders."""

    def __init__(self, cells: list[str]) -> None:
        self.cells = [cells]


class _Table:
    """Goes through the lines, knows in which section it is and where its bars stand."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.driver = ""
        self.devices: list[DeviceFacts] = []
        self.parts: list[tuple[int, PartFacts]] = []
        self.processes: list[ProcessFacts] = []
        self.findings: list[Finding] = []
        self.seen: set[str] = set()
        self.closed = False
        self._section = "devices"
        self._bars: list[int] = []
        self._heading = 0
        self._in_heading = False
        self._open: _Row | None = None

    def take(self, line: str) -> None:
        """Take the next line, whatever it is."""
        if _BORDER.fullmatch(line):
            self._border(line)
        elif line.startswith("|") and line.endswith("|"):
            self._table_line(line)
        elif finding := sentence(line):
            self.findings.append(finding)
        elif line and not _DATE.fullmatch(line):
            if line.startswith(("|", "+")) or line.endswith(("|", "+")):
                self._open = None
            self.flush(complete=False)
            self._lines.refuse(line)

    def _border(self, line: str) -> None:
        self.flush(complete=True)
        if "=" in line:
            self._in_heading = False
        self._bars = [at for at, mark in enumerate(line) if mark in "+|"]
        self.closed = "=" not in line

    def _table_line(self, line: str) -> None:
        cells = line[1:-1].split("|")
        self.closed = False
        if self._heading_line(line, cells):
            return
        bars = [at for at, mark in enumerate(line) if mark == "|"]
        if self._bars and bars != self._bars:
            self._lines.refuse(line)
            self._open = None
            return
        {"devices": self._device_line, "parts": self._part_line, "processes": self._process_line}[self._section](
            line, cells
        )

    def _heading_line(self, line: str, cells: list[str]) -> bool:
        """Return whether a line is of a heading, and change the section where it begins one."""
        words = cells[0].split()
        if banner := _BANNER.search(line):
            self.driver = self.driver or version_of(banner[1])
            self.seen.add("banner")
            return True
        if words[:2] == ["GPU", "Name"]:
            self._begin("devices")
        elif words[:2] == ["MIG", "devices:"]:
            self._begin("parts")
        elif words[:1] == ["Processes:"]:
            self._begin("processes")
        elif not self._in_heading:
            return False
        self._heading += 1
        return True

    def _begin(self, section: str) -> None:
        self.flush(complete=True)
        self.seen.add(section)
        self._section, self._in_heading, self._heading = section, True, 0

    def _device_line(self, line: str, cells: list[str]) -> None:
        if len(cells) != 3:
            self._lines.refuse(line)
        elif _NAME.fullmatch(cells[0]) and _BUS.fullmatch(cells[1]):
            self.flush(complete=False)
            self._open = _Row(cells)
        elif self._open is not None and len(self._open.cells) < 3:
            self._open.cells.append(cells)
        else:
            self._lines.refuse(line)

    def _part_line(self, line: str, cells: list[str]) -> None:
        if len(cells) == 4 and _MIG_ROW.fullmatch(cells[0]):
            self.flush(complete=False)
            self._open = _Row(cells)
        elif len(cells) == 4 and self._open is not None and not cells[0].strip():
            self._open.cells.append(cells)
        elif len(cells) != 1 or not cells[0].strip().startswith("No MIG devices"):
            self._lines.refuse(line)

    def _process_line(self, line: str, cells: list[str]) -> None:
        body = "|".join(cells)
        if body.strip() in _NO_PROCESSES:
            return
        match = _PROCESS.fullmatch(body)
        index, pid = (integer(match[1]), integer(match[4], PID_MAX)) if match else (None, None)
        if not match or index is None or not pid:
            self._lines.refuse(line)
            return
        self.processes.append(
            ProcessFacts(
                pid=pid,
                index=index,
                instance=integer(match[2]),
                name=said(match[6]),
                memory_bytes=whole(match[7].removesuffix("MiB"), MIB),
            )
        )

    def flush(self, *, complete: bool) -> None:
        """Read the rows that are open; `complete` where a border follows them."""
        rows, self._open = self._open, None
        if rows is None:
            return
        first = "|".join(rows.cells[0])
        if self._section == "parts":
            part = _part(rows.cells) if complete or len(rows.cells) > 1 else None
            if part is None:
                self._lines.refuse(first)
            else:
                self.parts.append(part[:2])
                self.findings += part[2]
            return
        unknown = (2, 3) if complete else (3,)
        wanted = (self._heading,) if self._heading in (2, 3) else unknown
        device = _device(rows.cells) if len(rows.cells) in wanted else None
        if device is None:
            self._lines.refuse(first)
        else:
            self.devices.append(device[0])
            self.findings += device[1]


def _device(rows: list[list[str]]) -> tuple[DeviceFacts, list[Finding]] | None:
    """Return a device and what is wrong with it, None for rows that do not look like one."""
    name, bus = _NAME.fullmatch(rows[0][0]), _BUS.fullmatch(rows[0][1])
    sensors, use = _SENSORS.fullmatch(rows[1][0]), _USE.fullmatch(rows[1][2])
    memory = _MEMORY.fullmatch(rows[1][1])
    if not name or not bus or not sensors or not use or not (memory or _NO_MEMORY.fullmatch(rows[1][1])):
        return None
    if len(rows) == 3 and (rows[2][0].strip() or rows[2][1].strip() or len(rows[2][2].split()) > 2):
        return None
    index, pci, mig = integer(name[1]), address_of(bus[1]), rows[2][2].strip() if len(rows) == 3 else ""
    used, total = (int(memory[1]) * MIB, int(memory[2]) * MIB) if memory else (None, None)
    if index is None or (not pci and said(bus[1])) or (used or 0) > (total or used or 0):
        return None
    errors = whole(rows[0][2])
    device = DeviceFacts(
        index=index,
        pci=pci,
        model=said(name[2]),
        memory_bytes=total or None,
        memory_used_bytes=used,
        use_milli=whole(use[1], 10),
        temperature_c=whole(sensors[2].removesuffix("C")),
        power_mw=whole(sensors[4].removesuffix("W"), 1000),
        power_limit_mw=whole(sensors[5].removesuffix("W"), 1000) or None,
        ecc_uncorrected=errors,
        partitioned=_MIG_WORDS.get(mig.rstrip("*")),
    )
    return device, _wrong(device, rows, ecc=rows[0][2], use=use[1], mig=mig)


def _wrong(device: DeviceFacts, rows: list[list[str]], *, ecc: str, use: str, mig: str) -> list[Finding]:
    def found(code: str, text: str) -> Finding:
        return Finding(code=code, text=short(text), index=device.index, pci=device.pci)

    findings: list[Finding] = []
    ill = [what for what, cell in (("name", rows[0][0]), ("ECC", ecc), ("use", use), ("MIG", mig)) if ERROR in cell]
    if ill or ERROR in rows[1][1]:
        findings.append(found("unhealthy", f"{ERROR} in place of {', '.join(ill) or 'memory'}"))
    elif ERROR in rows[1][0]:
        findings.append(found("tool_failed", f"{ERROR} in place of temperature, fan or power"))
    if device.ecc_uncorrected:
        findings.append(found("ecc_uncorrected", f"uncorrected memory errors: {device.ecc_uncorrected}"))
    if mig.endswith("*"):
        findings.append(found("mig_pending", f"MIG is {mig.rstrip('*')}, which changes at the next reset"))
    return findings


def _part(rows: list[list[str]]) -> tuple[int, PartFacts, list[Finding]] | None:
    """Return the device's index, the part and what is wrong, None for rows that do not look like one."""
    ids, memory, units = (
        _MIG_ROW.fullmatch(rows[0][0]),
        _MEMORY.fullmatch(rows[0][1]),
        _MIG_UNITS.fullmatch(rows[0][2]),
    )
    if not ids or not memory or not units or len(rows) > 3:
        return None
    used, total = int(memory[1]) * MIB, int(memory[2]) * MIB
    if used > total:
        return None
    index, errors = int(ids[1]), whole(units[2])
    part = PartFacts(
        instance=int(ids[2]), compute_instance=int(ids[3]), memory_bytes=total or None, memory_used_bytes=used
    )
    text = f"uncorrected memory errors in instance {part.instance}: {errors}"
    return index, part, [Finding(code="ecc_uncorrected", text=text, index=index)] if errors else []


def plain(text: str) -> Reading:
    """Return the devices with their parts, the processes, and what the sentences around the table say.

    Names that do not fit the table end in `...`, as the tool cut them.
    """
    lines = Lines(text)
    table = _Table(lines)
    for line in lines.whole:
        table.take(line.rstrip())
    table.flush(complete=False)
    findings = list(table.findings)
    devices = _with_parts(table.devices, table.parts, findings.append)
    if table.devices or table.seen:
        if "devices" not in table.seen:
            findings.append(Finding(code="cut", text="the heading of the devices is missing"))
        if "processes" not in table.seen:
            findings.append(Finding(code="cut", text="the table of processes is missing"))
        elif not table.closed:
            findings.append(Finding(code="cut", text="the last table has no lower border"))
        if not devices and not lines.unreadable() and not findings:
            findings.append(Finding(code="no_devices", text="the table has no devices"))
    return reading(
        recognized=bool(table.seen or table.devices),
        devices=devices,
        processes=table.processes,
        findings=[*findings, *lines.unreadable()],
        driver=table.driver,
    )


def _with_parts(
    devices: list[DeviceFacts], parts: list[tuple[int, PartFacts]], found: Callable[[Finding], None]
) -> list[DeviceFacts]:
    """Return devices with their parts; a part that is told twice or of no device is a finding."""
    of_device: dict[int, dict[tuple[int | None, int | None], PartFacts]] = {}
    known = {device.index for device in devices}
    for index, part in parts:
        of = of_device.setdefault(index, {})
        key = (part.instance, part.compute_instance)
        if key in of:
            found(Finding(code="duplicate", text=f"instance {key[0]} is told twice", index=index))
        elif index not in known:
            found(Finding(code="unreadable", text=f"instance {key[0]} of a device that is not told", index=index))
        of.setdefault(key, part)
    return [
        msgspec.structs.replace(device, parts=tuple(of_device.get(device.index or 0, {}).values()))
        for device in devices
    ]
