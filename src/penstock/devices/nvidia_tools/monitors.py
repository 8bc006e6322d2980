"""`nvidia-smi dmon` and `pmon`: samples of devices and of processes, one row each, a heading now and then.

The heading names the columns; a row counts when it has a cell for each. The last sample of a device is the one told.
"""

from collections.abc import Iterator

from penstock.devices.nvidia_tools.texts import Lines, integer, reading, sentence
from penstock.devices.reading import DeviceFacts, Finding, ProcessFacts, Reading, said, whole

PID_MAX = 2**31
MIB = 2**20
UNITS = {
    "gpu": "Idx",
    "pwr": "W",
    "gtemp": "C",
    "sm": "%",
    "pclk": "MHz",
    "fb": "MB",
    "pid": "#",
    "command": "name",
}
"""Columns that are read, and the unit that the second line of the heading has to name."""


def dmon(text: str) -> Reading:
    """Return the last sample of each device; `-` (as in MIG mode) is not told."""
    lines = Lines(text)
    findings: list[Finding] = []
    devices: dict[int, DeviceFacts] = {}
    rows = _Rows(lines, findings)
    for line, cells in rows.read(needed=("gpu",), free=False):
        index = integer(cells["gpu"])
        if index is None or not all(_number(value) for value in cells.values()):
            lines.refuse(line)
            continue
        devices[index] = DeviceFacts(
            index=index,
            memory_used_bytes=whole(cells.get("fb"), MIB),
            use_milli=_bounded(cells.get("sm"), 10, 1000),
            temperature_c=_bounded(cells.get("gtemp"), 1, 200),
            power_mw=whole(cells.get("pwr"), 1000),
            clock_mhz=whole(cells.get("pclk")),
        )
    found = [*findings, *lines.unreadable()]
    return reading(recognized=rows.recognized, devices=devices.values(), findings=found)


def pmon(text: str) -> Reading:
    """Return the processes of all samples, each once; a device without one has a row of dashes."""
    lines = Lines(text)
    findings: list[Finding] = []
    processes: dict[tuple[int, int], ProcessFacts] = {}
    rows = _Rows(lines, findings)
    for line, cells in rows.read(needed=("gpu", "pid", "command"), free=True):
        index, pid = integer(cells["gpu"]), integer(cells["pid"], PID_MAX)
        if index is not None and not said(cells["pid"]):
            continue
        values = [value for name, value in cells.items() if name not in ("type", "command")]
        if index is None or not pid or not all(_number(value) for value in values):
            lines.refuse(line)
            continue
        memory = whole(cells.get("fb"), MIB)
        processes[index, pid] = ProcessFacts(pid=pid, index=index, name=said(cells["command"]), memory_bytes=memory)
    found = [*findings, *lines.unreadable()]
    return reading(recognized=rows.recognized, processes=processes.values(), findings=found)


def _number(value: str) -> bool:
    return not said(value) or whole(value) is not None


def _bounded(value: str | None, scale: int, most: int) -> int | None:
    number = whole(value, scale)
    return number if number is not None and number <= most else None


class _Rows:
    """The rows below the headings; a heading has two lines, names and units."""

    def __init__(self, lines: Lines, findings: list[Finding]) -> None:
        self.recognized = False
        self._lines = lines
        self._findings = findings

    def read(self, *, needed: tuple[str, ...], free: bool) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield each whole row with its cells by column; where the last cell is `free` it may hold blanks."""
        names: list[str] = []
        units = False
        for line in self._lines.whole:
            if line.lstrip().startswith("#"):
                words = line.replace("#", "", 1).split()
                if words[:1] == ["gpu"]:
                    names, units = words if set(needed) <= set(words) else [], False
                else:
                    units = _units_fit(names, words)
                    self.recognized = self.recognized or units
                    if not units:
                        self._lines.refuse(line)
                continue
            cells = line.split(None, len(names) - 1) if free and names else line.split()
            if not cells:
                continue
            if units and len(cells) == len(names) and cells[0].isdecimal():
                yield line, dict(zip(names, map(str.strip, cells), strict=True))
            elif finding := sentence(line):
                self._findings.append(finding)
            else:
                self._lines.refuse(line)


def _units_fit(names: list[str], units: list[str]) -> bool:
    """Return whether the second line of a heading has the units that the columns of the first one are read in."""
    if not names or len(names) != len(units) or len(set(names)) != len(names):
        return False
    return all(UNITS.get(name, unit) == unit for name, unit in zip(names, units, strict=True))
