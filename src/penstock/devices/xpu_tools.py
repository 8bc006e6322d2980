"""What Intel's `xpu-smi` prints of GPUs: the table (version 2), `discovery` (text, JSON), `dump`, versions."""

from collections.abc import Mapping, Sequence
from typing import Any

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
    whole,
    without_duplicates,
)

WELL = frozenset({"", "normal", "init"})
"""States of a device or of its firmware in which nothing is wrong, or nothing is told."""
ECC = "Volatile Uncorr. ECC"
DUMP_COLUMNS = {
    "use_milli": "GPU Utilization (%)",
    "power_mw": "GPU Power (W)",
    "clock_mhz": "GPU Frequency (MHz)",
    "temperature_c": "GPU Core Temperature (Celsius Degree)",
    "memory_used_bytes": "GPU Memory Used (MiB)",
}
CARD = "/dev/dri/card"
BREAK = "^C"
"""What a terminal shows when a person ends `dump`."""


def parse_table(text: str) -> Reading:
    """Return what `xpu-smi` says: devices with use, memory and power, and the processes on them."""
    table = smi_table.read_table(text, "GPU")
    devices: list[DeviceFacts] = []
    findings: list[Finding] = []
    for read in table.records:
        facts = smi_table.common_facts(read, "GPU")
        if facts is None:
            table.refused.append(" ".join(read.values()))
            continue
        errors = whole(read.get(ECC))
        use = smi_table.thousandths(read.get("GPU-Util"))
        device = replace(facts, use_milli=use, ecc_uncorrected=errors)
        devices.append(device)
        if errors:
            text = f"uncorrected memory errors: {errors}"
            findings.append(Finding(code="ecc_uncorrected", text=text, index=device.index, pci=device.pci))
    processes: list[ProcessFacts] = []
    for read in table.processes:
        process = smi_table.process(read, "GPU", "Process Name", "GPU Memory Usage")
        processes += [] if process is None else [process]
        table.refused += [" ".join(read.values())] if process is None and said(read.get("PID")) else []
    return smi_table.whole_reading(table, devices, processes, table.driver(("Driver:",)), findings, processes_last=True)


def parse_discovery(text: str) -> Reading:
    """Return what `xpu-smi discovery` says: devices with address and uuid; of one alone (`-d`) memory and states."""
    lines = printed.read_lines(text)
    headed = False
    texts: list[tuple[str, dict[str, str]]] = []
    bad: list[str] = []
    for block in printed.blocks(lines.lines):
        if not headed and any("Device ID" in row and "Device Information" in row for row in block.rows):
            headed = len(block.rows) == 1
        elif block.rows:
            read = None if block.broken or not block.closed else _told(block.rows)
            texts += [] if read is None else [read]
            bad += [block.rows[0]] if read is None else []
        else:
            bad += block.broken
    if not headed:
        return Reading(findings=(*lines.findings, *([printed.complaint(lines.lines)] if lines.lines else [])))
    return printed.reading(_discovered(texts, bad), lines.findings, printed.closing(lines))


def _told(rows: Sequence[str]) -> tuple[str, dict[str, str]] | None:
    """Return a device's number and its values by name; None where it has no number, or a name twice."""
    number = printed.cells(rows[0])[0]
    read: dict[str, str] = {}
    for at, row in enumerate(rows):
        cells = printed.cells(row)
        pair = printed.named(cells[1]) if len(cells) == 2 else None
        if len(cells) != 2 or bool(cells[0]) != (at == 0):
            return None
        if pair is None and not cells[1]:
            continue
        if pair is None or pair[0] in read:
            return None
        read[pair[0]] = pair[1]
    return number, read


def _discovered(texts: Sequence[tuple[str, Mapping[str, str]]], bad: list[str]) -> Reading:
    devices: list[DeviceFacts] = []
    findings: list[Finding] = []
    driver = ""
    for number, read in texts:
        index, pci = printed.integer(number), printed.address(read.get("PCI BDF Address"))
        if index is None or pci is None:
            bad.append(f"{number}: {', '.join(read.values())}")
            continue
        minor = printed.integer(read.get("DRM Device", "").removeprefix(CARD))
        device = DeviceFacts(
            index=index,
            uuid=printed.label(read.get("SOC UUID")),
            pci=pci,
            model=printed.label(read.get("Device Name")),
            serial=said(read.get("Serial Number")),
            minor=minor,
            memory_bytes=size_bytes(read.get("Memory Physical Size")) or None,
        )
        driver = driver or said(read.get("Driver Version"))
        devices.append(device)
        findings += _states(device, read.get("Device State"), read.get("GFX Firmware Status"))
    kept, twice = without_duplicates(devices)
    none = [] if devices else [Finding(code="cut", text="the output has no whole device")]
    parts = Reading(devices=kept, driver=driver)
    return printed.reading(parts, findings, _dark(kept), printed.refused(bad), twice, none)


def _states(device: DeviceFacts, state: str | None, firmware: str | None) -> list[Finding]:
    told = (("unhealthy", "state", said(state)), ("firmware_fault", "firmware", said(firmware)))
    return [
        Finding(code=code, text=short(f"{what}: {word}"), index=device.index, uuid=device.uuid, pci=device.pci)
        for code, what, word in told
        if word.lower() not in WELL
    ]


def _dark(devices: Sequence[DeviceFacts], facts: tuple[str, ...] = ("uuid", "pci", "model")) -> list[Finding]:
    unknown = ((device, [name for name in facts if not getattr(device, name)]) for device in devices)
    return [printed.masked(", ".join(names), index=device.index) for device, names in unknown if names]


def parse_json(text: str) -> Reading:
    """Return what `xpu-smi discovery -j` says, of all devices or of one (`-d`); sizes are texts, in bytes."""
    told, unclean = printed.decode(text)
    objects = told.get("device_list", [told]) if isinstance(told, dict) else told
    devices: list[DeviceFacts] = []
    findings: list[Finding] = []
    bad: list[str] = []
    driver = ""
    for read in objects if isinstance(objects, list) else [objects]:
        device = _from_object(read) if isinstance(read, dict) else None
        if device is None:
            bad.append(short(str(read)[:200]))
            continue
        devices.append(device)
        driver = driver or _word(read, "driver_version")
        findings += _states(device, _word(read, "device_state"), _word(read, "gfx_firmware_status"))
    kept, twice = without_duplicates(devices)
    none = [] if devices or unclean else [Finding(code="no_devices", text="the list of devices is empty")]
    parts = Reading(devices=kept, driver=driver)
    dark = _dark(kept, ("uuid", "model"))
    return printed.reading(parts, unclean, findings, dark, printed.refused(bad), twice, none)


def _word(read: Mapping[str, Any], name: str) -> str:
    """Return a text, or a number as text; '' for what is neither."""
    value = read.get(name)
    return said(value) if isinstance(value, str) else str(value) if type(value) is int else ""


def _from_object(read: Mapping[str, Any]) -> DeviceFacts | None:
    index, pci = printed.integer(_word(read, "device_id")), printed.address(_word(read, "pci_bdf_address"))
    if index is None or pci is None:
        return None
    total = size_bytes(_word(read, "memory_physical_size_byte"), "b")
    return DeviceFacts(
        index=index,
        uuid=printed.label(_word(read, "uuid")),
        pci=pci,
        model=printed.label(_word(read, "device_name")),
        serial=_word(read, "serial_number"),
        minor=printed.integer(_word(read, "drm_device").removeprefix(CARD)),
        memory_bytes=total or None,
    )


def parse_dump(text: str) -> Reading:
    """Return the latest sample of each device in `xpu-smi dump`."""
    lines = printed.read_lines(text)
    rows = [row for row in printed.comma_rows(lines.whole) if row != [BREAK]]
    heading = rows[0] if rows else []
    if not {"Timestamp", "DeviceId"} <= set(heading) or len(set(heading)) != len(heading):
        return Reading(findings=(*lines.findings, *([printed.complaint(lines.lines)] if lines.lines else [])))
    latest: dict[int, DeviceFacts] = {}
    bad: list[str] = []
    for row in rows[1:]:
        read = dict(zip(heading, row, strict=True)) if len(row) == len(heading) else {}
        index = printed.integer(read.get("DeviceId"))
        if index is None:
            bad.append(", ".join(row))
        else:
            latest[index] = _sample(index, read)
    none = [] if latest else [Finding(code="no_devices", text="no whole sample")]
    return printed.reading(Reading(devices=tuple(latest.values())), lines.findings, printed.refused(bad), none)


def _sample(index: int, read: Mapping[str, str]) -> DeviceFacts:
    told = {fact: read.get(column) for fact, column in DUMP_COLUMNS.items()}
    return DeviceFacts(
        index=index,
        use_milli=smi_table.thousandths(told["use_milli"]),
        power_mw=smi_table.milliwatts(told["power_mw"]),
        clock_mhz=whole(told["clock_mhz"]),
        temperature_c=smi_table.celsius(told["temperature_c"]),
        memory_used_bytes=size_bytes(told["memory_used_bytes"]),
    )


def parse_version(text: str) -> Reading:
    """Return a finding with the versions that `xpu-smi --version` names: it shows no devices."""
    lines = printed.read_lines(text)
    pairs = [pair for line in lines.whole if (pair := printed.named(line.strip())) and "Version" in pair[0]]
    if not pairs:
        return Reading(findings=(*lines.findings, *([printed.complaint(lines.lines)] if lines.lines else [])))
    names = ", ".join(f"{name} {value}" for name, value in dict.fromkeys(pairs))
    none = Finding(code="no_devices", text=short(f"versions only: {names}"))
    return printed.reading(Reading(), lines.findings, [none])
