"""What Hygon's `hy-smi virtual -show-device-info` prints of virtual DCU devices: shares of real ones."""

import re

from penstock.devices import printed
from penstock.devices.reading import DeviceFacts, Finding, Reading, size_bytes, without_duplicates

_DEVICE = re.compile(r"Device (\d{1,5}):")
NEEDED = frozenset({"Actual Device", "Compute units", "Global memory"})


def parse_virtual(text: str) -> Reading:
    """Return the virtual devices, each with the memory of its share, and a finding that they are shares."""
    lines = printed.read_lines(text)
    devices: list[DeviceFacts] = []
    findings: list[Finding] = []
    bad: list[str] = []
    for index, rows in _devices(lines.whole, bad):
        pairs = [pair for row in rows if (pair := printed.named(row))]
        read = dict(pairs)
        if len(pairs) != len(rows) or len(read) != len(pairs) or not read.keys() >= NEEDED:
            bad.append(f"Device {index}")
            continue
        size = size_bytes(read["Global memory"].removesuffix("bytes"), "b") or None
        devices.append(DeviceFacts(index=index, memory_bytes=size))
        text = f"a share of device {read['Actual Device']}, with {read['Compute units']} compute units"
        findings.append(Finding(code="masked", text=text, index=index))
    kept, twice = without_duplicates(devices)
    if not devices and lines.lines and not bad:
        return printed.reading(Reading(), lines.findings, [printed.complaint(lines.lines)])
    return printed.reading(Reading(devices=kept), lines.findings, findings, printed.refused(bad), twice)


def _devices(lines: tuple[str, ...], bad: list[str]) -> list[tuple[int, list[str]]]:
    """Return the lines of each device; those before the first one are bad."""
    devices: list[tuple[int, list[str]]] = []
    for line in lines:
        if title := _DEVICE.fullmatch(line.strip()):
            devices.append((int(title[1]), []))
        elif line.strip() and devices:
            devices[-1][1].append(line.strip())
        elif line.strip():
            bad.append(line)
    return devices
