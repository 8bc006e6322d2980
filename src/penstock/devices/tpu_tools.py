"""What Google's `tpu-info` prints of TPU chips: tables of chips, of their use and of processes, and versions.

Chips are listed by the path of their device file, use by the number that the running program gives a chip: in a slice
over several hosts that is another one. Use is taken only where both tables have the same numbers.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from penstock.devices import printed, smi_table
from penstock.devices.reading import (
    DeviceFacts,
    Finding,
    ProcessFacts,
    Reading,
    said,
    short,
    size_bytes,
    without_duplicates,
)

CHIPS = "TPU Chips"
USE = "TPU Runtime Utilization"
OLD_USE = ("TPU Utilization", "TPU Chip Utilization")
CHIP_COLUMNS = ("Chip", "Device", "Core ID")
"""Older versions count cores, of which a chip may have two: then the numbers are not those of chips."""
PROCESSES = "TPU Process Info"
OTHERS = ("TensorCore", "Latency", "RTT", "Delivery Rate", "Utilization", "Statistics", "Metrics")
"""Words of titles of tables that are about other things."""
ABSENT = ("no tpu", "no chips")

_PATH = re.compile(r"/dev/(?:vfio/|accel)(\d{1,5})")
Row = dict[str, str]


def parse(text: str) -> Reading:
    """Return what `tpu-info` says, one view or all: chips, processes, and use where it is clear whose."""
    lines = printed.read_lines(text, drawn=True)
    tables, driver, bad = _tables(lines.lines)
    if not {CHIPS, PROCESSES} & tables.keys():
        return printed.reading(Reading(driver=driver), lines.findings, _without_table(lines))
    chips = tables.get(CHIPS, tables.get(PROCESSES, []))
    processes: list[ProcessFacts] = []
    devices: list[DeviceFacts] = []
    for row in chips:
        path = _PATH.fullmatch(_chip(row))
        if path is None:
            bad.append(" ".join(row.values()))
            continue
        devices.append(DeviceFacts(index=int(path[1]), model=printed.label(row.get("Type")).removesuffix(" chip")))
    for row in tables.get(PROCESSES, chips):
        path, pid = _PATH.fullmatch(_chip(row)), printed.integer(row.get("PID"))
        if path is not None and pid is not None:
            processes.append(ProcessFacts(pid=pid, index=int(path[1]), name=said(row.get("Process Name"))))
        elif path is not None and said(row.get("PID")):
            bad.append(" ".join(row.values()))
    kept, twice = without_duplicates(devices)
    used, elsewhere = _used(kept, tables.get(USE))
    none = [] if devices else [Finding(code="cut", text="the table has no whole chip")]
    parts = Reading(devices=used, processes=tuple(processes), driver=driver)
    return printed.reading(parts, lines.findings, printed.refused(bad), twice, elsewhere, none)


def _chip(row: Row) -> str:
    """Return the path or the number of the chip that a row is about."""
    return next((row[column] for column in CHIP_COLUMNS if column in row), "")


def _tables(lines: Sequence[str]) -> tuple[dict[str, list[Row]], str, list[str]]:
    """Return the rows of each table that is wanted, by its title, the version of libtpu, and what could not be read."""
    tables: dict[str, list[Row]] = {}
    driver, title, heading = "", "", ""
    bad: list[str] = []
    for line in lines:
        stripped = line.strip()
        if not stripped or printed.is_border(stripped):
            continue
        if stripped.startswith("|") or stripped.endswith("|"):
            whole = printed.is_row(stripped)
            if title in tables and not heading and whole:
                heading = stripped
            elif title in tables or not title:
                read = printed.fields(heading, stripped) if heading and whole else None
                tables.get(title, []).extend([] if read is None else [read])
                bad += [stripped] if read is None else []
            continue
        pair = printed.named(stripped)
        if pair and pair[0].lower() == "libtpu version":
            driver = pair[1].split()[0] if pair[1] else ""
        elif stripped in (CHIPS, USE, PROCESSES, *OLD_USE):
            title, heading = USE if stripped in OLD_USE else stripped, ""
            bad += [stripped] if title in tables else []
            tables.setdefault(title, [])
        elif any(word in stripped for word in OTHERS):
            title = "other"
        elif pair is None:
            bad.append(stripped)
    return tables, driver, bad


def _without_table(lines: printed.Lines) -> list[Finding]:
    if not lines.lines:
        return []
    lower = " ".join(lines.lines).lower()
    if any(word in lower for word in ABSENT):
        return [Finding(code="no_devices", text=short(" ".join(lines.lines)))]
    return [printed.complaint(lines.lines)]


def _used(devices: Sequence[DeviceFacts], rows: list[Row] | None) -> tuple[tuple[DeviceFacts, ...], list[Finding]]:
    """Return the devices with memory and use, and a finding where it cannot be told whose they are."""
    told = {number: row for row in rows or () if (number := printed.integer(_chip(row))) is not None}
    if rows is None or not told:
        return tuple(devices), []
    if len(told) != len(rows) or told.keys() != {device.index for device in devices}:
        text = f"memory and use are listed of chips {sorted(told)[:16]}, not of these: they were left out"
        return tuple(devices), [Finding(code="not_supported", text=text)]
    return tuple(_with_use(device, told[device.index or 0]) for device in devices), []


def _with_use(device: DeviceFacts, row: Row) -> DeviceFacts:
    used, _, total = row.get("HBM Usage (GiB)", row.get("Memory usage", "")).partition("/")
    used_bytes, total_bytes = printed.memory(size_bytes(used, "gib"), size_bytes(total, "gib"))
    return replace(
        device,
        memory_bytes=total_bytes,
        memory_used_bytes=used_bytes,
        use_milli=smi_table.thousandths(row.get("Duty cycle")),
    )


def parse_version(text: str) -> Reading:
    """Return the version of libtpu that `tpu-info --version` names; it shows no devices."""
    lines = printed.read_lines(text)
    pairs = [pair for line in lines.whole if (pair := printed.named(line.strip().removeprefix("- ")))]
    read = dict(pairs)
    if "tpu-info version" not in read:
        return Reading(findings=(*lines.findings, *([printed.complaint(lines.lines)] if lines.lines else [])))
    version = read.get("libtpu version", "")
    if "incompatible" in version:
        unknown = Finding(code="not_supported", text=short(f"libtpu: {version}"))
        return printed.reading(Reading(), lines.findings, [unknown])
    text = short(f"versions only: {', '.join(f'{name} {value}' for name, value in pairs)}")
    driver = said(version)
    return printed.reading(Reading(driver=driver), lines.findings, [Finding(code="no_devices", text=text)])
