"""`nvidia-smi -q`: the state of each device as indented text, also of single sections (`-d ECC`).

A value is named by the headings above it, which the indentation tells.
"""

import re
from collections.abc import Iterator

from penstock.devices.nvidia_tools.texts import Lines, integer, reading, sentence, version_of
from penstock.devices.nvidia_tools.values import device_of, finder, usable
from penstock.devices.reading import DeviceFacts, Finding, PartFacts, ProcessFacts, Reading, pci_address, size_bytes

PID_MAX = 2**31
DEPTH_MAX = 16
MIXED_MAX = 2
"""Blocks with values of another one, from which on the lines are out of order and no block can be trusted."""
_GPU = re.compile(r"GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])")
_LINE = re.compile(r"([^:]{1,100}?)\s{0,80}:(?:\s(.*))?")
_HEAD = ("Driver Version", "KMD Version", "CUDA Version", "CUDA UMD Version", "Attached GPUs", "Timestamp")

NAMES: dict[str, tuple[str, ...]] = {
    "model": ("Product Name",),
    "uuid": ("GPU UUID",),
    "pci": ("@id", "PCI/Bus Id"),
    "serial": ("Serial Number",),
    "minor": ("Minor Number",),
    "memory_total": ("FB Memory Usage/Total",),
    "memory_used": ("FB Memory Usage/Used",),
    "memory_free": ("FB Memory Usage/Free",),
    "memory_reserved": ("FB Memory Usage/Reserved",),
    "use": ("Utilization/GPU", "Utilization/Gpu"),
    "temperature": ("Temperature/GPU Current Temp",),
    "power": (
        "GPU Power Readings/Instantaneous Power Draw",
        "GPU Power Readings/Average Power Draw",
        "GPU Power Readings/Power Draw",
        "Power Readings/Power Draw",
    ),
    "power_limit": (
        "GPU Power Readings/GPU Ceiling Power Limit/Current Power Limit",
        "GPU Power Readings/Current Power Limit",
        "Power Readings/Enforced Power Limit",
        "Power Readings/Power Limit",
    ),
    "clock": ("Clocks/SM", "Clocks/Graphics"),
    "ecc_mode": ("ECC Mode/Current", "Ecc Mode/Current"),
    "ecc_corrected_total": ("ECC Errors/Volatile/Single Bit/Total",),
    "ecc_corrected": ("ECC Errors/Volatile/SRAM Correctable", "ECC Errors/Volatile/DRAM Correctable"),
    "ecc_uncorrected_total": ("ECC Errors/Volatile/Double Bit/Total",),
    "ecc_uncorrected": tuple(
        f"ECC Errors/Volatile/{place}"
        for place in (
            "SRAM Uncorrectable",
            "SRAM Uncorrectable Parity",
            "SRAM Uncorrectable SEC-DED",
            "DRAM Uncorrectable",
        )
    ),
    "sram_threshold": ("ECC Errors/Aggregate/SRAM Threshold Exceeded",),
    "repair_pending": ("ECC Errors/Channel Repair Pending", "ECC Errors/TPC Repair Pending"),
    "unrepairable": ("ECC Errors/Unrepairable Memory",),
    "pages": ("Retired Pages/Single Bit ECC", "Retired Pages/Double Bit ECC"),
    "page_pending": ("Retired Pages/Pending Page Blacklist",),
    "row_pending": ("Remapped Rows/Pending",),
    "row_failure": ("Remapped Rows/Remapping Failure Occurred",),
    "reset_required": ("GPU Reset Status/Reset Required",),
    "drain": ("GPU Reset Status/Drain and Reset Recommended",),
    "recovery": ("GPU Recovery Action",),
    "mig_current": ("MIG Mode/Current",),
    "mig_pending": ("MIG Mode/Pending",),
    "fabric_state": ("Fabric/State",),
    "fabric_status": ("Fabric/Status",),
    "fabric_health": ("Fabric/Health/Summary",),
    **{
        name: tuple(f"Clocks {word} Reasons/HW Slowdown/{label}" for word in ("Event", "Throttle"))
        for name, label in (("hw_thermal", "HW Thermal Slowdown"), ("hw_power_brake", "HW Power Brake Slowdown"))
    },
    "hw_slowdown": ("Clocks Event Reasons/HW Slowdown", "Clocks Throttle Reasons/HW Slowdown"),
    "sw_thermal": ("Clocks Event Reasons/SW Thermal Slowdown", "Clocks Throttle Reasons/SW Thermal Slowdown"),
}
"""Our name of a value -> paths of headings within a device, the best first."""
_PATHS = frozenset(path for paths in NAMES.values() for path in paths)


class _Block:
    """The values of one device, as they are written below its address."""

    def __init__(self, address: str) -> None:
        self.values: dict[str, str] = {"@id": address}
        self.twice: set[str] = set()
        self.parts: list[dict[str, str]] = []
        self.processes: list[dict[str, str]] = []
        self._above: list[tuple[int, str]] = []
        self._instances: dict[str, str] = {}

    def take(self, indent: int, key: str, value: str) -> None:
        """Take one line: its place is below the last line that is indented less."""
        while self._above and self._above[-1][0] >= indent:
            self._above.pop()
        path = "/".join([*(name for _, name in self._above), key])
        section = self._above[0][1] if self._above else ""
        if len(self._above) < DEPTH_MAX:
            self._above.append((indent, key))
        if key == "MIG Device" and not section:
            self.parts.append({})
        elif section == "MIG Device":
            self._note(self.parts[-1], path, value)
        elif section == "Processes":
            self._take_process(key, value)
        else:
            self._note(self.values, path, value)

    def _note(self, values: dict[str, str], path: str, value: str) -> None:
        if value and values.setdefault(path, value) != value:
            self.twice.add(path)

    def _take_process(self, key: str, value: str) -> None:
        """The instances of a process stand above its number, the rest below it."""
        if key == "Process ID":
            self.processes.append({**self._instances, key: value})
            self._instances = {}
        elif key in ("GPU instance ID", "Compute instance ID"):
            self._instances[key] = value
        elif self.processes:
            self.processes[-1].setdefault(key, value)


def text_log(text: str) -> Reading:
    """Return the devices, their parts and the processes on them, with what is wrong."""
    lines = Lines(text)
    head: dict[str, str] = {}
    blocks: list[_Block] = []
    findings: list[Finding] = []
    for line in lines.whole:
        stripped = line.strip()
        if not stripped or stripped.startswith("==="):
            continue
        if address := _GPU.fullmatch(stripped):
            blocks.append(_Block(address[1]))
            continue
        indent = len(line) - len(line.lstrip(" "))
        match = _LINE.fullmatch(stripped)
        key, value = (match[1], (match[2] or "").strip()) if match else (stripped, "")
        if indent and blocks and not stripped.startswith("["):
            blocks[-1].take(indent, key, value)
        elif not indent and key in _HEAD and value:
            head.setdefault(key, value)
        elif said_by_tool := sentence(stripped):
            findings.append(said_by_tool)
        else:
            lines.refuse(line)
    driver = version_of(head.get("KMD Version")) or version_of(head.get("Driver Version"))
    return _reading(blocks, head, [*findings, *lines.unreadable()], driver)


def _reading(blocks: list[_Block], head: dict[str, str], findings: list[Finding], driver: str) -> Reading:
    devices: list[DeviceFacts] = []
    processes: list[ProcessFacts] = []
    mixed = sum(not block.twice.isdisjoint(_PATHS) for block in blocks)
    for block in blocks:
        device, wrong = _device(block)
        findings += wrong
        if device is not None and mixed < MIXED_MAX:
            devices.append(device)
            processes += _processes(block, device)
    attached = integer(head.get("Attached GPUs"))
    if attached is not None and attached > len(blocks):
        findings.append(Finding(code="cut", text=f"{attached} devices are attached, {len(blocks)} are described"))
    if attached == 0 and not blocks:
        findings.append(Finding(code="no_devices", text="no devices are attached"))
    return reading(recognized=bool(blocks), devices=devices, processes=processes, findings=findings, driver=driver)


def _clean(name: str, value: str) -> str:
    """Return a value without what stands behind a gap; names may hold gaps."""
    return value if name == "model" else re.split(r"\s{2,}", value, maxsplit=1)[0]


def _device(block: _Block) -> tuple[DeviceFacts | None, list[Finding]]:
    values = {
        name: [_clean(name, block.values[p]) for p in paths if p in block.values and p not in block.twice]
        for name, paths in NAMES.items()
    }
    if not _memory_whole(block):
        values = {name: each for name, each in values.items() if not name.startswith("memory_")}
    parts = tuple(_parts(block))
    device, findings = device_of(values, parts)
    found = finder(device)
    if len({pci_address(each) for each in values["pci"] if usable(each)}) > 1:
        return None, [found("unreadable", "it has two PCI addresses")]
    if twice := sorted(block.twice & _PATHS):
        return None, [found("unreadable", f"told twice, differently: {', '.join(twice)}")]
    if len(parts) < len(block.parts) or any(path.startswith("MIG Device/") for path in block.twice):
        findings.append(found("unreadable", "its parts (MIG) are not whole"))
    return device, findings


def _memory_whole(block: _Block) -> bool:
    """Return whether the memory of a device is told whole and before that of its window (BAR1), as the tool does."""
    sections = [path.partition("/")[0] for path in block.values]
    after = "BAR1 Memory Usage" in sections and sections.index("BAR1 Memory Usage")
    whole = all(f"FB Memory Usage/{name}" in block.values for name in ("Total", "Used", "Free"))
    return whole and (after is False or sections.index("FB Memory Usage") < after)


def _parts(block: _Block) -> Iterator[PartFacts]:
    """Yield the compute instances that are told once and whole."""
    seen: set[tuple[int, int]] = set()
    for values in block.parts:
        instance = integer(values.get("MIG Device/GPU Instance ID"))
        compute = integer(values.get("MIG Device/Compute Instance ID"))
        if instance is None or compute is None or (instance, compute) in seen:
            continue
        seen.add((instance, compute))
        memory = {
            name: next((values[p] for p in _memory_paths(name) if p in values and p not in block.twice), None)
            for name in ("Total", "Used")
        }
        yield PartFacts(
            instance=instance,
            compute_instance=compute,
            memory_bytes=size_bytes(memory["Total"]) or None,
            memory_used_bytes=size_bytes(memory["Used"]),
        )


def _memory_paths(name: str) -> tuple[str, ...]:
    return f"MIG Device/Shared FB Memory Usage/{name}", f"MIG Device/FB Memory Usage/{name}"


def _processes(block: _Block, device: DeviceFacts) -> Iterator[ProcessFacts]:
    for values in block.processes:
        pid = integer(values.get("Process ID"), PID_MAX)
        if pid:
            yield ProcessFacts(
                pid=pid,
                uuid=device.uuid,
                pci=device.pci,
                instance=integer(values.get("GPU instance ID")),
                name=usable(values.get("Name", "")),
                memory_bytes=size_bytes(usable(values.get("Used GPU Memory", ""))),
            )
