"""What Kubernetes shows of NVIDIA devices: samples of dcgm-exporter, and what `kubectl describe node` counts.

DCGM writes a value that it does not have as a huge number; a node that lost a device counts one less, and says nothing.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from penstock.devices import printed, smi_table
from penstock.devices.reading import DeviceFacts, Finding, Reading, said, size_bytes, whole, without_duplicates

BLANKS = tuple(start + reason for start in (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 2**47) for reason in range(4))
"""Values for: none, not found, not supported, no permission. Source: DCGM API, dcgm_fields.h and dcgm_structs.h."""
PREFIX = "DCGM_FI_"
CLOCK, TEMPERATURE, POWER = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"
USE, MEMORY = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"
CORRECTED, UNCORRECTED = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
DEVICES_MAX = 1024

_SAMPLE = re.compile(r"(\w+)\{([^{}]*)\} (\S+)(?: \d{1,16})?")
_LABEL = re.compile(r'([A-Za-z_]\w*)\s*=\s*"([^"\\]*)"\s*(?:,\s*|$)')
_GPU = "nvidia.com/gpu"


def parse_samples(text: str) -> Reading:
    """Return the devices that the exporter samples, with the facts that it has; parts of devices (MIG) left out."""
    lines = printed.read_lines(text)
    devices: dict[str, DeviceFacts] = {}
    seen: set[tuple[str, str]] = set()
    bad: list[str] = []
    for line in lines.whole:
        if not line.strip() or line.startswith("#"):
            continue
        sample = _SAMPLE.fullmatch(line.strip())
        labels = _labels(sample[2]) if sample else None
        if sample is None or not labels or not sample[1].startswith(PREFIX):
            bad.append(line)
        elif "GPU_I_ID" in labels or (device := _identified(devices, labels)) is None:
            continue
        elif (device.uuid, sample[1]) in seen:
            bad.append(line)
        else:
            seen.add((device.uuid, sample[1]))
            devices[device.uuid] = replace(device, **_facts(sample[1], _value(sample[3])))
    kept, twice = without_duplicates(devices.values())
    none = [] if devices or not lines.lines else [printed.complaint(lines.lines)]
    faults = [_errors(device) for device in kept if device.ecc_uncorrected]
    return printed.reading(Reading(devices=kept), lines.findings, printed.refused(bad), faults, twice, none)


def _errors(device: DeviceFacts) -> Finding:
    text = f"uncorrected memory errors: {device.ecc_uncorrected}"
    return Finding(code="ecc_uncorrected", text=text, index=device.index, uuid=device.uuid)


def _labels(text: str) -> dict[str, str] | None:
    """Return labels by name; None where something else stands among them."""
    found = _LABEL.findall(text)
    rest = _LABEL.sub("", text)
    return dict(found) if not rest.strip() and len(dict(found)) == len(found) else None


def _identified(devices: dict[str, DeviceFacts], labels: dict[str, str]) -> DeviceFacts | None:
    uuid = printed.label(labels.get("UUID"))
    pci = printed.address(labels.get("pci_bus_id"))
    if not uuid.startswith("GPU-") or (uuid not in devices and len(devices) >= DEVICES_MAX):
        return None
    model = printed.label(labels.get("modelName"))
    return devices.get(uuid) or DeviceFacts(
        index=printed.integer(labels.get("gpu")), uuid=uuid, pci=pci or "", model=model
    )


def _value(text: str) -> str:
    """Return a value as printed, '' for one that DCGM does not have."""
    try:
        return "" if float(text) in (float(blank) for blank in BLANKS) else text
    except ValueError:
        return ""


def _facts(name: str, value: str) -> dict[str, int | None]:
    return {
        CLOCK: {"clock_mhz": whole(value)},
        TEMPERATURE: {"temperature_c": smi_table.celsius(value)},
        POWER: {"power_mw": smi_table.milliwatts(value)},
        USE: {"use_milli": smi_table.thousandths(value)},
        MEMORY: {"memory_used_bytes": size_bytes(value)},
        CORRECTED: {"ecc_corrected": whole(value)},
        UNCORRECTED: {"ecc_uncorrected": whole(value)},
    }.get(name, {})


def parse_node(text: str, *, expected: int | None = None) -> Reading:
    """Return the devices that a node counts, which it does not name.

    Args:
        expected: how many devices the node had before. A node counts what is left: without this, or the label
            `nvidia.com/gpu.count`, a device that went is not missed.
    """
    lines = printed.read_lines(text)
    counts, labels = _counts(lines.whole)
    given = {section: _devices(read, labels) for section, read in counts.items()}
    capacity, allocatable = given.get("Capacity"), given.get("Allocatable")
    if capacity is None or allocatable is None:
        none = [printed.complaint(lines.lines)] if lines.lines and not counts else []
        part = [Finding(code="cut", text="capacity or what can be allocated is not shown")] if counts else []
        return Reading(findings=(*lines.findings, *none, *part))
    model = labels.get(f"{_GPU}.product", "").removesuffix("-SHARED")
    wanted = max(expected or 0, printed.integer(labels.get(f"{_GPU}.count")) or 0)
    found = [printed.masked(f"index, uuid and address of {capacity} devices")] if capacity else []
    if capacity < wanted:
        found.append(Finding(code="lost", text=f"{capacity} of {wanted} devices are left"))
    if allocatable < capacity:
        found.append(Finding(code="unhealthy", text=f"{allocatable} of {capacity} devices can be allocated"))
    devices = tuple(DeviceFacts(model=said(model)) for _ in range(min(allocatable, DEVICES_MAX)))
    return printed.reading(Reading(devices=devices), lines.findings, found)


def _counts(lines: Sequence[str]) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """Return the counted resources of each section, and the labels."""
    section = ""
    counts: dict[str, dict[str, int]] = {}
    labels: dict[str, str] = {}
    for line in lines:
        name, value = printed.named(line) or ("", "")
        key, equals, word = line.strip().removeprefix("Labels:").strip().partition("=")
        if name in ("Capacity", "Allocatable") and not value:
            section = name
        elif section and name.startswith(_GPU) and (count := printed.integer(value)) is not None:
            counts.setdefault(section, {})[name] = count
        elif equals and key.startswith(_GPU):
            labels[key] = word
    return counts, labels


def _devices(read: dict[str, int], labels: dict[str, str]) -> int:
    """Return how many devices stand behind what is counted: each is given to several where they are shared."""
    replicas = max(printed.integer(labels.get(f"{_GPU}.replicas")) or 1, 1)
    return (read.get(_GPU, 0) + read.get(f"{_GPU}.shared", 0)) // replicas
