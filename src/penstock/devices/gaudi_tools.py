"""What Intel's `hl-smi` prints of Gaudi devices: the table, and rows of `-Q ... -f csv`.

The order of rows is not that of addresses or modules: a row without index, uuid or address names no device.
"""

from msgspec.structs import replace

from penstock.devices import printed, smi_table
from penstock.devices.reading import DeviceFacts, Finding, Reading, said, size_bytes, whole, without_duplicates

BARE = ("name", "memory.total")
"""Columns of an output of two without a heading (`-f csv,noheader,nounits`)."""
ECC = "Volatile Uncorr. ECC"
"""Until 1.18. From 1.21 on `Volatile Uncor-Events` has its place, which counts 2 of a healthy device at rest."""


def parse_table(text: str) -> Reading:
    """Return what `hl-smi` says: devices with use, memory and power, and the processes on them."""
    table = smi_table.read_table(text, "AIP")
    devices: list[DeviceFacts] = []
    findings: list[Finding] = []
    for read in table.records:
        facts = smi_table.common_facts(read, "AIP")
        if facts is None:
            table.refused.append(" ".join(read.values()))
            continue
        errors = whole(read.get(ECC))
        device = replace(facts, use_milli=smi_table.thousandths(read.get("AIP-Util")), ecc_uncorrected=errors)
        devices.append(device)
        if errors:
            text = f"uncorrected memory errors: {errors}"
            findings.append(Finding(code="ecc_uncorrected", text=text, index=device.index, pci=device.pci))
    processes = []
    for read in table.processes:
        process = smi_table.process(read, "AIP", "Process name", "Usage")
        processes += [] if process is None else [process]
        table.refused += [" ".join(read.values())] if process is None and said(read.get("PID")) else []
    return smi_table.whole_reading(
        table, devices, processes, table.driver(("| Driver Version:",)), findings, processes_last=True
    )


def parse_rows(text: str) -> Reading:
    """Return what `hl-smi -Q ... -f csv` says; units may stand in the heading, in the cells, or nowhere (MiB, W, C, %).

    The chip's number is the module id. Rows without a heading are read if they are of the two columns name and memory.
    """
    lines = printed.read_lines(text)
    rows = list(printed.comma_rows(lines.whole))
    heading = [cell.split("[")[0].strip() for cell in rows[0]] if rows else []
    if {"name", "uuid", "bus_id"} & set(heading):
        rows = rows[1:]
    elif rows and all(len(row) == len(BARE) and row[0].startswith("HL-") for row in rows[:1]):
        heading = list(BARE)
    else:
        return Reading(findings=(*lines.findings, *([printed.complaint(lines.lines)] if lines.lines else [])))
    devices: list[DeviceFacts] = []
    bad: list[str] = []
    driver = ""
    for row in rows:
        read = dict(zip(heading, row, strict=True)) if len(row) == len(heading) == len(set(heading)) else None
        device = _device(read) if read else None
        driver = driver or said((read or {}).get("driver_version"))
        devices += [] if device is None else [device]
        bad += [", ".join(row)] if device is None else []
    kept, twice = without_duplicates(devices)
    unnamed = [d for d in kept if d.index is None and not d.uuid and not d.pci]
    text = f"index, uuid and address of {len(unnamed)} devices"
    nameless = [printed.masked(text)] if unnamed else []
    sizeless = [printed.masked("memory", index=d.index, uuid=d.uuid, pci=d.pci) for d in kept if d.memory_bytes is None]
    none = [] if devices else [Finding(code="no_devices", text="no whole row")]
    parts = Reading(devices=kept, driver=driver)
    return printed.reading(parts, lines.findings, printed.refused(bad), twice, nameless, sizeless, none)


def _device(read: dict[str, str]) -> DeviceFacts | None:
    """Return a device; None where a cell is not what its column is for."""
    pci, model = printed.address(read.get("bus_id")), printed.label(read.get("name"))
    index = printed.integer(read.get("index"))
    if pci is None or (model and not model.startswith("HL-")) or (index is None and said(read.get("index"))):
        return None
    used, total = (size_bytes(read.get(f"memory.{kind}")) for kind in ("used", "total"))
    used, total = printed.memory(used, total)
    return DeviceFacts(
        index=index,
        uuid=printed.label(read.get("uuid")),
        pci=pci,
        serial=said(read.get("serial")),
        chip=printed.integer(read.get("module_id")),
        model=model,
        memory_bytes=total,
        memory_used_bytes=used,
        use_milli=smi_table.thousandths(read.get("utilization.aip")),
        temperature_c=smi_table.celsius(read.get("temperature.aip")),
        power_mw=smi_table.milliwatts(read.get("power.draw")),
    )
