"""What Huawei's tools print about one Ascend device: `npu-smi info -t ...`, `hccn_tool`, and samples in a file."""

import re
from collections.abc import Mapping, Sequence

from penstock.devices import printed
from penstock.devices.huawei_tools import error, model_name
from penstock.devices.reading import (
    DeviceFacts,
    Finding,
    ProcessFacts,
    Reading,
    number,
    said,
    short,
    size_bytes,
    whole,
    without_duplicates,
)

NETWORK_WELL = frozenset({"success", "init"})
"""States of `hccn_tool -net_health` in which nothing is wrong; `Init`: no address to probe was set."""
SAMPLE_HEADING = ["time", "dev_id", "power", "freq", "temp"]

_PROCESS = re.compile(r"Process id:(\d{1,9})\s+Process name:(\S.*)\s+Process memory\(MB\):(\d{1,12})")
_DEVID = re.compile(r"\[devid (\d{1,5})\](.*)")
_LANE = re.compile(r"([TR]x) Power(\d+)")


def _pairs(lines: Sequence[str]) -> tuple[dict[str, str], list[str], bool]:
    """Return the values by name, the lines that are none, and whether a name stands twice."""
    read: dict[str, str] = {}
    bad: list[str] = []
    twice = False
    for line in lines:
        pair = printed.named(line)
        if pair is None:
            bad += [line] if line.strip() else []
        else:
            twice = twice or pair[0] in read
            read[pair[0]] = pair[1]
    return read, bad, twice


def _single(text: str, needed: str) -> tuple[dict[str, str], list[Finding]]:
    """Return the values of an output about one device; none, and why, where it has not each name once."""
    lines = printed.read_lines(text)
    read, bad, twice = _pairs(lines.whole)
    if needed not in read:
        return {}, [*lines.findings, *([error(lines.lines)] if lines.lines else [])]
    if twice:
        return {}, [*lines.findings, Finding(code="unknown_format", text="a name stands twice in the output")]
    return read, [*lines.findings, *printed.refused(bad)]


def parse_board(text: str) -> Reading:
    """Return what `-t board` says of a card, or (with `-c`) of a chip: address, model, version of the driver."""
    read, found = _single(text, "PCIe Bus Info")
    if not read:
        return Reading(findings=tuple(found))
    pci, chip = printed.address(read["PCIe Bus Info"]), printed.integer(read.get("Chip ID"))
    if not pci:
        return Reading(findings=(*found, printed.masked("address")))
    match = read.get("Compatibility", "OK")
    if match != "OK":
        text = short(f"driver and firmware: {match}; firmware {said(read.get('Firmware Version'))}")
        found.append(Finding(code="driver_mismatch", text=text, pci=pci))
    card = printed.integer(read.get("NPU ID"))
    device = DeviceFacts(card=card, chip=chip, pci=pci, model=model_name(read.get("Chip Name")))
    return printed.reading(Reading(devices=(device,), driver=said(read.get("Software Version"))), found)


def parse_memory(text: str) -> Reading:
    """Return what `-t memory` says: the memory of one device, which it does not name."""
    read, found = _single(text, "HBM Capacity(MB)" if "HBM Capacity" in text else "DDR Capacity(MB)")
    if not read:
        return Reading(findings=tuple(found))
    device = DeviceFacts(memory_bytes=_capacity(read))
    return printed.reading(Reading(devices=(device,)), found, [] if device.memory_bytes else [printed.masked("memory")])


def _capacity(read: Mapping[str, str]) -> int | None:
    """Return the bytes of the HBM, of the DDR where the device has no HBM; None where it has some of unknown size."""
    if not any(name.startswith("HBM") for name in read):
        return size_bytes(read.get("DDR Capacity(MB)")) or None
    size = size_bytes(read.get("HBM Capacity(MB)"))
    return size_bytes(read.get("DDR Capacity(MB)")) or None if size == 0 else size


def parse_usages(text: str) -> Reading:
    """Return what `-t usages` says: memory and use of each chip of one card."""
    lines = printed.read_lines(text)
    general: dict[str, str] = {}
    chips: list[dict[str, str]] = []
    now: list[str] = []
    bad: list[str] = []
    for line in lines.whole:
        name = (printed.named(line) or ("", ""))[0]
        if name in ("NPU ID", "Chip Count"):
            bad += [line] if name in general or chips else []
            general[name] = (printed.named(line) or ("", ""))[1]
            continue
        now.append(line)
        if name == "Chip ID":
            read, ill, twice = _pairs(now)
            bad += [*ill, *(now[:1] if twice else [])]
            chips += [] if twice else [read]
            now = []
    card = printed.integer(general.get("NPU ID"))
    if card is None or bad:
        found = printed.refused(bad) or ([error(lines.lines)] if lines.lines else [])
        return Reading(findings=(*lines.findings, *found))
    several = len(chips) > 1 or general.get("Chip Count") != "1"
    left = any(line.strip() for line in now)
    known = [] if left else [_chip(read, None if several else card, card) for read in chips]
    devices, twice_told = without_duplicates(known)
    short_of = left or printed.integer(general.get("Chip Count")) != len(chips)
    cut = [Finding(code="cut", text=f"{len(chips)} of {general.get('Chip Count')} chips")] if short_of else []
    dark = [printed.masked("memory", index=d.index) for d in devices if d.memory_bytes is None]
    return printed.reading(Reading(devices=devices), lines.findings, twice_told, cut, dark)


def _chip(read: Mapping[str, str], index: int | None, card: int) -> DeviceFacts:
    use = number(read.get("Aicore Usage Rate(%)"))
    return DeviceFacts(
        index=index,
        card=card,
        chip=printed.integer(read.get("Chip ID")),
        memory_bytes=_capacity(read),
        use_milli=round(use * 10) if use is not None and 0 <= use <= printed.PERCENT_MAX else None,
    )


def parse_processes(text: str) -> Reading:
    """Return what `-t proc-mem` says: processes on one device, which it does not name."""
    lines = printed.read_lines(text)
    processes: list[ProcessFacts] = []
    bad: list[str] = []
    for line in lines.whole:
        read = _PROCESS.fullmatch(line.strip())
        if read:
            processes.append(ProcessFacts(pid=int(read[1]), name=read[2].strip(), memory_bytes=size_bytes(read[3])))
        elif line.strip() and (printed.named(line) or ("",))[0] not in ("NPU ID", "Chip ID"):
            bad.append(line)
    if not processes and bad:
        return Reading(findings=(*lines.findings, error(lines.lines)))
    return printed.reading(Reading(processes=tuple(processes)), lines.findings, printed.refused(bad))


def parse_link(text: str) -> Reading:
    """Return what `hccn_tool -link_stat` says: a finding where a device's link is down, or was since it came up."""
    lines = printed.read_lines(text)
    ups: dict[int, int] = {}
    last: dict[int, str] = {}
    bad: list[str] = []
    for line in lines.whole:
        read = _DEVID.fullmatch(line.strip())
        if read is None:
            bad += [line] if line.strip() else []
            continue
        device, (name, value) = int(read[1]), printed.named(read[2]) or ("", "")
        if name == "link up count" and (count := printed.integer(value)) is not None:
            ups[device] = count
        elif read[2].rstrip().endswith(("LINK UP", "LINK DOWN")):
            last.setdefault(device, read[2].split()[-1].lower())
    if not ups and not last:
        return Reading(findings=(*lines.findings, *([error(lines.lines)] if lines.lines else [])))
    texts = {
        device: f"the link is {last.get(device, 'in an unknown state')}; it came up {ups.get(device, 0)} times"
        for device in sorted({*ups, *last})
        if ups.get(device, 0) > 1 or last.get(device) == "down"
    }
    found = [Finding(code="link_fault", text=text, index=device) for device, text in texts.items()]
    return printed.reading(Reading(), lines.findings, found, printed.refused(bad))


def parse_network(text: str) -> Reading:
    """Return what `hccn_tool -net_health` says of one device, which it does not name."""
    read, found = _single(text, "net health status")
    state = read.get("net health status", "")
    if not read or state.lower() in NETWORK_WELL:
        return Reading(findings=tuple(found))
    return printed.reading(Reading(), found, [Finding(code="link_fault", text=short(f"network: {state}"))])


def parse_optical(text: str) -> Reading:
    """Return what `hccn_tool -optical` says: findings of a module that is absent, dark, or beyond its thresholds."""
    read, found = _single(text, "present")
    if not read:
        return Reading(findings=tuple(found))
    texts = [f"optical module: {read['present']}"] if read["present"] != "present" else []
    for name, value in read.items():
        if lane := _LANE.fullmatch(name):
            texts += _beyond(name, value, *(read.get(f"{lane[1]}Power {end} Thres") for end in ("Low", "High")))
        elif name.endswith(("Los Flag", "LoL Flag")) and value not in ("0x0", "0x00", "0"):
            texts.append(f"{name} {value}")
    texts += _beyond("temperature", read.get("temperature", ""), None, read.get("Temp High Thres"))
    return printed.reading(Reading(), found, [Finding(code="link_fault", text=short(text)) for text in texts])


def _beyond(name: str, text: str, low: str | None, high: str | None) -> list[str]:
    value, least, most = number(text), number(low), number(high)
    if value is not None and least is not None and value < least:
        return [f"{name} {text} is below {low}"]
    if value is not None and most is not None and value > most:
        return [f"{name} {text} is above {high}"]
    return []


def parse_samples(text: str) -> Reading:
    """Return the latest sample of each device in a file of `time,dev_id,power,freq,temp`."""
    lines = printed.read_lines(text)
    rows = list(printed.comma_rows(lines.whole))
    if rows[:1] != [SAMPLE_HEADING]:
        return Reading(findings=(*lines.findings, *([error(lines.lines)] if lines.lines else [])))
    latest: dict[int, tuple[int, DeviceFacts]] = {}
    bad: list[str] = []
    for row in rows[1:]:
        time, index = (printed.integer(cell) for cell in (*row, "")[:2])
        if len(row) != len(SAMPLE_HEADING) or time is None or index is None:
            bad.append(",".join(row))
        elif index not in latest or latest[index][0] <= time:
            latest[index] = (time, _sample(index, row))
    devices = tuple(device for _, device in latest.values())
    none = [] if devices else [Finding(code="no_devices", text="the file has no whole sample")]
    return printed.reading(Reading(devices=devices), lines.findings, printed.refused(bad), none)


def _sample(index: int, row: list[str]) -> DeviceFacts:
    power = number(row[2])
    return DeviceFacts(
        index=index,
        power_mw=round(power * 1000) if power is not None and 0 <= power <= printed.POWER_W_MAX else None,
        clock_mhz=whole(row[3]),
        temperature_c=printed.within(whole(row[4]), printed.TEMPERATURE_C_MAX),
    )
