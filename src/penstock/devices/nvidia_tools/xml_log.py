"""`nvidia-smi -q -x`: the whole state of each device as XML, drivers 418 to 610.

Only elements that end are read: of a text that is cut or broken the devices before the fault count.
"""

from collections.abc import Iterator
from typing import cast
from xml.etree import ElementTree

from penstock.devices.nvidia_tools.texts import INDEX_MAX, integer, reading, refused, sentences, version_of
from penstock.devices.nvidia_tools.values import device_of, finder, usable
from penstock.devices.reading import DeviceFacts, Finding, PartFacts, ProcessFacts, Reading, pci_address, size_bytes

ROOT = "nvidia_smi_log"
DEPTH_MAX = 16
"""Elements within elements; the tool's logs have 8."""
CHUNK = 2**16
PID_MAX = 2**31

NAMES: dict[str, tuple[str, ...]] = {
    "model": ("product_name",),
    "uuid": ("uuid",),
    "pci": ("@id", "pci/pci_bus_id"),
    "serial": ("serial",),
    "minor": ("minor_number",),
    "memory_total": ("fb_memory_usage/total",),
    "memory_used": ("fb_memory_usage/used",),
    "memory_free": ("fb_memory_usage/free",),
    "memory_reserved": ("fb_memory_usage/reserved",),
    "use": ("utilization/gpu_util",),
    "temperature": ("temperature/gpu_temp",),
    "power": (
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
    ),
    "power_limit": (
        "gpu_power_readings/current_power_limit",
        "power_readings/enforced_power_limit",
        "power_readings/power_limit",
    ),
    "clock": ("clocks/sm_clock", "clocks/graphics_clock"),
    "ecc_mode": ("ecc_mode/current_ecc",),
    "ecc_corrected_total": ("ecc_errors/volatile/single_bit/total",),
    "ecc_corrected": ("ecc_errors/volatile/sram_correctable", "ecc_errors/volatile/dram_correctable"),
    "ecc_uncorrected_total": ("ecc_errors/volatile/double_bit/total",),
    "ecc_uncorrected": (
        "ecc_errors/volatile/sram_uncorrectable",
        "ecc_errors/volatile/sram_uncorrectable_parity",
        "ecc_errors/volatile/sram_uncorrectable_secded",
        "ecc_errors/volatile/dram_uncorrectable",
    ),
    "sram_threshold": ("ecc_errors/aggregate/sram_threshold_exceeded",),
    "repair_pending": ("ecc_errors/channel_repair_pending", "ecc_errors/tpc_repair_pending"),
    "unrepairable": ("ecc_errors/unrepairable_memory",),
    "pages": (
        "retired_pages/multiple_single_bit_retirement/retired_count",
        "retired_pages/double_bit_retirement/retired_count",
    ),
    "page_pending": ("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
    "row_pending": ("remapped_rows/remapped_row_pending",),
    "row_failure": ("remapped_rows/remapped_row_failure",),
    "reset_required": ("gpu_reset_status/reset_required",),
    "drain": ("gpu_reset_status/drain_and_reset_recommended",),
    "recovery": ("gpu_recovery_action",),
    "mig_current": ("mig_mode/current_mig",),
    "mig_pending": ("mig_mode/pending_mig",),
    "fabric_state": ("fabric/state",),
    "fabric_status": ("fabric/status",),
    "fabric_health": ("fabric/health/summary",),
    **{
        name: tuple(f"clocks_{word}_reasons/clocks_{word}_reason_{name}_slowdown" for word in ("event", "throttle"))
        for name in ("hw_thermal", "sw_thermal", "hw_power_brake")
    },
    "sw_power_cap": (
        "clocks_event_reasons/clocks_event_reason_sw_power_cap",
        "clocks_throttle_reasons/clocks_throttle_reason_sw_power_cap",
    ),
    "hw_slowdown": (
        "clocks_event_reasons/clocks_event_reason_hw_slowdown",
        "clocks_throttle_reasons/clocks_throttle_reason_hw_slowdown",
    ),
}
"""Our name of a value -> paths within the element of a device, the best first."""


def xml_log(text: str) -> Reading:
    """Return the devices, their parts and the processes on them, with what is wrong."""
    if too_large := refused(text):
        return reading(recognized=False, findings=[too_large])
    before, log_text, behind = _apart(text)
    findings = sentences([*before.splitlines(), *behind.splitlines()])
    log = _Log()
    if log_text:
        findings += log.feed(log_text)
    devices: list[DeviceFacts] = []
    processes: list[ProcessFacts] = []
    for element in log.devices:
        device, wrong = _device(element)
        findings += wrong
        if device is not None:
            devices.append(device)
            processes += _processes(element, device)
    attached = integer(log.head.get("attached_gpus"))
    if attached is not None and attached > len(log.devices):
        findings.append(Finding(code="cut", text=f"{attached} devices are attached, {len(log.devices)} are described"))
    driver = version_of(log.head.get("kmd_version")) or version_of(log.head.get("driver_version"))
    return reading(recognized=log.ours, devices=devices, processes=processes, findings=findings, driver=driver)


def _apart(text: str) -> tuple[str, str, str]:
    """Return what stands before the XML, the XML, and what stands behind it."""
    start = next((at for at in map(text.find, ("<?xml", f"<{ROOT}", "<")) if at >= 0), len(text))
    last = f"</{ROOT}>"
    end = text.rfind(last)
    end = end + len(last) if end >= 0 else len(text)
    return text[:start], text[start:end], text[end:]


class _Log:
    """Reads a log piece by piece and keeps the elements that came to their end."""

    def __init__(self) -> None:
        self.devices: list[ElementTree.Element] = []
        self.head: dict[str, str] = {}
        self.ours = False

    def feed(self, text: str) -> list[Finding]:
        """Read the text up to its end or its first fault, and return the finding of that fault."""
        if "<!ENTITY" in text or "<!ATTLIST" in text:
            return [Finding(code="unreadable", text="the XML declares entities, which the tool does not")]
        parser: ElementTree.XMLPullParser[ElementTree.Element] = ElementTree.XMLPullParser(("start", "end"))
        depth = 0
        try:
            for at in range(0, len(text), CHUNK):
                parser.feed(text[at : at + CHUNK])
                depth = self._read(parser, depth)
            parser.close()
            self._read(parser, depth)
        except ElementTree.ParseError as error:
            code = "cut" if "no element found" in str(error) or "unclosed" in str(error) else "unreadable"
            return [Finding(code=code, text=f"the XML is not whole: {error}")]
        except ValueError as error:
            return [Finding(code="unreadable", text=f"the XML cannot be read: {error}")]
        if not self.ours:
            return [Finding(code="unknown_format", text=f"the XML is no {ROOT}")]
        return []

    def _read(self, parser: "ElementTree.XMLPullParser[ElementTree.Element]", depth: int) -> int:
        for event in parser.read_events():
            kind, element = cast("tuple[str, object]", event)
            if not isinstance(element, ElementTree.Element):
                continue
            if kind == "start":
                depth += 1
                if depth > DEPTH_MAX:
                    raise ValueError(f"more than {DEPTH_MAX} elements within each other")
                self.ours = self.ours or (depth == 1 and element.tag == ROOT)
                continue
            if depth == 2 and self.ours:
                if element.tag == "gpu":
                    if len(self.devices) == INDEX_MAX:
                        raise ValueError(f"more than {INDEX_MAX} devices")
                    self.devices.append(element)
                elif element.text:
                    self.head.setdefault(element.tag, element.text)
            depth -= 1
        return depth


def _leaves(element: ElementTree.Element, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each leaf; the log is at most `DEPTH_MAX` deep."""
    for child in element:
        inner = f"{path}{child.tag}"
        if len(child):
            yield from _leaves(child, f"{inner}/")
        else:
            yield inner, (child.text or "").strip()


def _device(element: ElementTree.Element) -> tuple[DeviceFacts | None, list[Finding]]:
    leaves: dict[str, str] = {"@id": element.get("id", "")}
    twice: set[str] = set()
    for path, value in _leaves(element):
        if leaves.setdefault(path, value) != value:
            twice.add(path)
    values = {name: [leaves[p] for p in paths if p in leaves and p not in twice] for name, paths in NAMES.items()}
    parts, doubtful = _parts(element)
    device, findings = device_of(values, parts)
    found = finder(device)
    if len({pci_address(each) for each in values["pci"] if usable(each)}) > 1:
        return None, [found("unreadable", "it has two PCI addresses")]
    if not device.uuid and not device.pci:
        return None, [found("unreadable", "a device without a uuid and a PCI address")]
    known = {path for paths in NAMES.values() for path in paths}
    if twice & known:
        return None, [found("unreadable", f"told twice, differently: {', '.join(sorted(twice & known))}")]
    if doubtful:
        findings.append(found("unreadable", "its parts (MIG) are not whole"))
    return device, findings


def _parts(element: ElementTree.Element) -> tuple[tuple[PartFacts, ...], bool]:
    """Return the compute instances of a device, and whether some of them could not be read."""
    parts: dict[tuple[int, int], PartFacts] = {}
    listed = element.findall("mig_devices/mig_device")
    for each in listed:
        instance, compute = integer(each.findtext("gpu_instance_id")), integer(each.findtext("compute_instance_id"))
        if instance is None or compute is None:
            continue
        part = PartFacts(
            instance=instance,
            compute_instance=compute,
            memory_bytes=size_bytes(each.findtext("fb_memory_usage/total")) or None,
            memory_used_bytes=size_bytes(each.findtext("fb_memory_usage/used")),
        )
        parts.setdefault((instance, compute), part)
    return tuple(parts.values()), len(parts) < len(listed)


def _processes(element: ElementTree.Element, device: DeviceFacts) -> Iterator[ProcessFacts]:
    for each in element.findall("processes/process_info"):
        pid = integer(each.findtext("pid"), PID_MAX)
        if pid:
            yield ProcessFacts(
                pid=pid,
                uuid=device.uuid,
                pci=device.pci,
                instance=integer(each.findtext("gpu_instance_id")),
                name=usable(each.findtext("process_name") or ""),
                memory_bytes=size_bytes(each.findtext("used_memory")),
            )
