"""The CSV of nvidia-smi: `--query-gpu`, `--query-compute-apps`, `--query-accounted-apps`, `--query-retired-pages`.

Cells part at a comma and a blank, as the tool writes them without quotes. A row counts when it has as many cells as the
heading; columns that nobody here knows are passed over, so drivers may add some.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.devices.nvidia_tools.texts import Lines, address_of, integer, reading, sentence, uuid_of, version_of
from penstock.devices.nvidia_tools.values import MASKED, device_of, named, usable
from penstock.devices.reading import DeviceFacts, Finding, ProcessFacts, Reading, short, size_bytes, whole

LINE_MAX = 32768
PID_MAX = 2**31
SEPARATOR = ", "
_COLUMN = re.compile(r"([a-zA-Z][\w.]{0,80})(?: \[([^\]]{1,12})\])?")
_ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "gpu_serial": "serial"}

NAMES: dict[str, tuple[str, ...]] = {
    "index": ("index",),
    "model": ("name",),
    "uuid": ("uuid",),
    "pci": ("pci.bus_id",),
    "serial": ("serial",),
    "capability": ("compute_cap",),
    "memory_total": ("memory.total",),
    "memory_used": ("memory.used",),
    "memory_free": ("memory.free",),
    "memory_reserved": ("memory.reserved",),
    "use": ("utilization.gpu",),
    "temperature": ("temperature.gpu",),
    "power": ("power.draw.instant", "power.draw", "power.draw.average"),
    "power_limit": ("enforced.power.limit", "power.limit"),
    "clock": ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr"),
    "ecc_mode": ("ecc.mode.current",),
    "ecc_corrected_total": ("ecc.errors.corrected.volatile.total",),
    "ecc_corrected": ("ecc.errors.corrected.volatile.sram", "ecc.errors.corrected.volatile.dram"),
    "ecc_uncorrected_total": ("ecc.errors.uncorrected.volatile.total",),
    "ecc_uncorrected": ("ecc.errors.uncorrected.volatile.sram", "ecc.errors.uncorrected.volatile.dram"),
    "sram_threshold": ("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",),
    "pages": ("retired_pages.single_bit_ecc.count", "retired_pages.double_bit.count"),
    "page_pending": ("retired_pages.pending",),
    "row_pending": ("remapped_rows.pending",),
    "row_failure": ("remapped_rows.failure",),
    "reset_required": ("reset_status.reset_required",),
    "drain": ("reset_status.drain_and_reset_recommended",),
    "recovery": ("gpu_recovery_action",),
    "mig_current": ("mig.mode.current",),
    "mig_pending": ("mig.mode.pending",),
    "inforom": ("inforom.checksum_validation",),
    "fabric_state": ("fabric.state",),
    "fabric_status": ("fabric.status",),
    "fabric_health": ("fabric.health.summary",),
    **{
        name: tuple(f"clocks_{word}_reasons.{column}" for word in ("event", "throttle"))
        for name, column in (
            ("hw_slowdown", "hw_slowdown"),
            ("hw_thermal", "hw_thermal_slowdown"),
            ("hw_power_brake", "hw_power_brake_slowdown"),
            ("sw_thermal", "sw_thermal_slowdown"),
            ("sw_power_cap", "sw_power_cap"),
        )
    },
}
"""Our name of a value -> columns, the best first."""
_KNOWN = frozenset(column for columns in NAMES.values() for column in columns)
DEVICE_COLUMNS = ("index", "uuid", "pci.bus_id", "name")
"""A row of devices has one of these at least."""
MEMORY = ("memory.", "used_gpu_memory", "used_memory", "max_memory_usage")


class AccountedProcess(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the driver counted of a process; most of them have ended, so none of them holds a device."""

    pid: int
    uuid: str = ""
    pci: str = ""
    use_milli: int | None = None
    """Part of its time that the device computed, thousandths."""
    memory_max_bytes: int | None = None
    time_ms: int | None = None


class Table(msgspec.Struct, frozen=True):
    """The whole rows of a CSV, by column name without its unit."""

    recognized: bool
    rows: tuple[dict[str, str], ...]
    findings: tuple[Finding, ...]


def table(text: str, columns: Sequence[str] = (), *, needed: Iterable[str]) -> Table:
    """Return the rows of a CSV.

    Args:
        columns: the names that were asked for, where the tool wrote no heading (`noheader`).
        needed: the heading has at least one of these.
    """
    lines = Lines(text, longest=LINE_MAX)
    said_by_tool: list[Finding] = []
    heading = [(name, "") for name in map(_alias, columns)]
    wanted = set(needed)
    rows: list[dict[str, str]] = []
    for line in lines.whole:
        if not line.strip():
            continue
        if not heading:
            read = _heading(line)
            if read and wanted & {name for name, _ in read}:
                heading = read
            elif finding := sentence(line):
                said_by_tool.append(finding)
            else:
                lines.refuse(line)
            continue
        row = _row(line, heading)
        if row is not None:
            rows.append(row)
        elif finding := sentence(line):
            said_by_tool.append(finding)
        else:
            lines.refuse(line)
    return Table(bool(heading), tuple(rows), (*said_by_tool, *lines.unreadable()))


def _alias(name: str) -> str:
    return _ALIASES.get(name, name)


def _heading(line: str) -> list[tuple[str, str]]:
    """Return names and units of a heading, nothing for a line that is none or names a column twice."""
    matches = [_COLUMN.fullmatch(cell.strip()) for cell in line.split(SEPARATOR)]
    columns = [(_alias(match[1]), match[2] or "") for match in matches if match]
    return columns if len(columns) == len(matches) == len({name for name, _ in columns}) else []


def _row(line: str, heading: list[tuple[str, str]]) -> dict[str, str] | None:
    """Return the cells of a row, None for a line with more or fewer than the heading; names may hold the separator."""
    cells = line.split(SEPARATOR)
    surplus = len(cells) - len(heading)
    names = [name for name, _ in heading]
    if surplus > 0 and "process_name" in names:
        at = names.index("process_name")
        cells[at : at + surplus + 1] = [SEPARATOR.join(cells[at : at + surplus + 1])]
    if len(cells) != len(heading):
        return None
    return {name: _with_unit(name, cell.strip(), unit) for (name, unit), cell in zip(heading, cells, strict=True)}


def _with_unit(name: str, cell: str, unit: str) -> str:
    """Return a size with the unit of its heading where `nounits` left it out."""
    return f"{cell} {unit}" if unit and cell.isascii() and cell.isdecimal() and name.startswith(MEMORY) else cell


def query_gpu(text: str, columns: Sequence[str] = ()) -> Reading:
    """Return the devices of `--query-gpu`; `columns` as asked for, where it was called with `noheader`."""
    rows = table(text, columns, needed=DEVICE_COLUMNS)
    findings = list(rows.findings)
    devices: list[DeviceFacts] = []
    driver = ""
    for row in rows.rows:
        if not _plausible(row):
            findings.append(Finding(code="unreadable", text=short(f"cells not of their columns: {list(row.values())}")))
            continue
        device, wrong = device_of(_values(row))
        findings += wrong
        if named(device):
            devices.append(device)
        else:
            findings.append(Finding(code="masked", text="a row without the index, uuid, address or name of its device"))
        driver = driver or version_of(row.get("kmd_version")) or version_of(row.get("driver_version"))
    if rows.recognized and not devices and not findings:
        findings.append(Finding(code="no_devices", text="no row below the heading"))
    return reading(recognized=rows.recognized, devices=devices, findings=findings, driver=driver)


def _values(row: Mapping[str, str]) -> dict[str, list[str]]:
    values = {name: [row[c] for c in columns if c in row] for name, columns in NAMES.items()}
    values["other"] = [cell for column, cell in row.items() if column not in _KNOWN]
    return values


_SHAPES = {
    "index": re.compile(r"\d{1,4}"),
    "uuid": re.compile(r"(?:GPU|MIG)-.*"),
    "pci.bus_id": re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"),
    "pid": re.compile(r"\d{1,10}"),
    "memory.total": re.compile(r"\d+ \S+"),
    "memory.used": re.compile(r"\d+ \S+"),
    "memory.free": re.compile(r"\d+ \S+"),
    "utilization.gpu": re.compile(r"\d{1,3}(?: %)?"),
    "temperature.gpu": re.compile(r"\d{1,3}"),
    "power.draw": re.compile(r"\d+(?:[.,]\d+)?(?: W)?"),
    "mig.mode.current": re.compile(r"Enabled|Disabled"),
}


def _plausible(row: Mapping[str, str]) -> bool:
    """Return whether each cell looks like its column: a row of other columns is not read as facts."""
    return all(not usable(cell) or _SHAPES[name].fullmatch(cell) for name, cell in row.items() if name in _SHAPES)


def _device_named(row: Mapping[str, str]) -> tuple[tuple[str, str], list[Finding]]:
    """Return uuid and address of the device that a row of something on it names, and whether it is masked."""
    uuid, pci = uuid_of(usable(row.get("uuid", ""))), address_of(usable(row.get("pci.bus_id", "")))
    if uuid or not usable(row.get("uuid", "")):
        return (uuid, pci), []
    return (uuid, pci), [Finding(code="masked", text=MASKED, pci=pci)]


def compute_apps(text: str, columns: Sequence[str] = ()) -> Reading:
    """Return the processes of `--query-compute-apps`; their devices are named by uuid and address, never by part."""
    rows = table(text, columns, needed=("pid",))
    findings = list(rows.findings)
    processes: list[ProcessFacts] = []
    for row in rows.rows:
        pid = integer(row.get("pid"), PID_MAX)
        if not pid or not _plausible(row):
            findings.append(Finding(code="unreadable", text=short(f"no process: {list(row.values())}")))
            continue
        (uuid, pci), wrong = _device_named(row)
        findings += wrong
        memory = usable(row.get("used_gpu_memory", "") or row.get("used_memory", ""))
        processes.append(
            ProcessFacts(
                pid=pid,
                uuid=uuid,
                pci=pci,
                name=usable(row.get("process_name", "")),
                memory_bytes=size_bytes(memory),
            )
        )
    return reading(recognized=rows.recognized, processes=processes, findings=findings)


def accounted_apps(text: str, columns: Sequence[str] = ()) -> tuple[tuple[AccountedProcess, ...], Reading]:
    """Return what `--query-accounted-apps` counted, and a reading with its findings and no live process."""
    rows = table(text, columns, needed=("pid",))
    findings = list(rows.findings)
    counted: list[AccountedProcess] = []
    for row in rows.rows:
        pid = integer(row.get("pid"), PID_MAX)
        if not pid or not _plausible(row):
            findings.append(Finding(code="unreadable", text=short(f"no process: {list(row.values())}")))
            continue
        (uuid, pci), wrong = _device_named(row)
        findings += wrong
        counted.append(
            AccountedProcess(
                pid=pid,
                uuid=uuid,
                pci=pci,
                use_milli=whole(usable(row.get("gpu_utilization", "")), 10),
                memory_max_bytes=size_bytes(usable(row.get("max_memory_usage", ""))),
                time_ms=whole(usable(row.get("time", ""))),
            )
        )
    return tuple(counted), reading(recognized=rows.recognized, findings=findings)


def retired_pages(text: str, columns: Sequence[str] = ()) -> Reading:
    """Return a finding for each device with retired pages; a row without an address tells that there are none."""
    rows = table(text, columns, needed=("retired_pages.address",))
    findings = list(rows.findings)
    pages: dict[tuple[str, str], int] = {}
    for row in rows.rows:
        if not _plausible(row):
            findings.append(Finding(code="unreadable", text=short(f"cells not of their columns: {list(row.values())}")))
            continue
        (uuid, pci), wrong = _device_named(row)
        findings += wrong
        if usable(row.get("retired_pages.address", "")):
            pages[uuid, pci] = pages.get((uuid, pci), 0) + 1
    for (uuid, pci), count in pages.items():
        findings.append(Finding(code="pages_retired", text=f"pages of memory retired: {count}", uuid=uuid, pci=pci))
    return reading(recognized=rows.recognized, findings=findings)
