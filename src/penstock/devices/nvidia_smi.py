"""NVIDIA devices through `nvidia-smi`, where NVML cannot be used from here, and through the driver's files.

Outputs are joined by uuid and address, never by the order in which they count: one that is cut lacks devices.
"""

import re
import time
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from penstock.devices import nvidia_files
from penstock.devices.nvidia_tools.csv_tables import compute_apps, query_gpu
from penstock.devices.nvidia_tools.listing import listing
from penstock.devices.nvidia_tools.texts import sentences
from penstock.devices.nvidia_tools.topology import topology
from penstock.devices.nvidia_tools.xml_log import xml_log
from penstock.devices.provider import Output, Sources
from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, PartFacts, Reading, short

TOOL = "nvidia-smi"
LOG = ("nvidia-smi", "-q", "-x")
LIST = ("nvidia-smi", "-L")
TOPOLOGY = ("nvidia-smi", "topo", "-m")
APPS = (TOOL, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv")
COLUMNS: tuple[str, ...] = (
    "uuid", "pci.bus_id", "memory.total", "memory.used", "utilization.gpu", "temperature.gpu", "power.draw",
    "enforced.power.limit", "clocks.current.sm", "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total", "retired_pages.pending", "remapped_rows.pending", "remapped_rows.failure",
    "gpu_recovery_action", "mig.mode.current", "mig.mode.pending", "fabric.state", "fabric.status",
    "clocks_throttle_reasons.sw_power_cap",
    "clocks_throttle_reasons.hw_slowdown", "clocks_throttle_reasons.hw_thermal_slowdown",
    "clocks_throttle_reasons.hw_power_brake_slowdown", "clocks_throttle_reasons.sw_thermal_slowdown",
)  # fmt: skip
"""What a sample asks for; a driver that does not know one of them refuses all, and is asked again without it."""
CAPABILITY = ("uuid", "compute_cap")
REFUSALS_MAX = 8
"""Columns that one sample leaves out."""
SHARE = 20
"""A sample by the tool takes at most one part in so many of the time: it starts NVML each time, which may take long."""
LOG_LIMIT_S, LIST_LIMIT_S = 25.0, 8.0
"""For the commands of an inventory: together less than a provider may take."""
SAMPLE_LIMIT_S = 8.0
"""For those of a sample, together."""
_REFUSED = re.compile(r'Field "([\w.]{1,80})" is not a valid field to query')


def query(columns: Sequence[str]) -> tuple[str, ...]:
    return (TOOL, f"--query-gpu={','.join(columns)}", "--format=csv")


class NvidiaSmi:
    """What the tool says, seldom enough; None in place of a reading where there is no tool, or it names no device.

    Args:
        clock: seconds of a steady clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._columns = COLUMNS
        self._last = Reading()
        self._again_at = 0.0

    def inventory(self, sources: Sources) -> Reading:
        """Return devices in the order of their addresses, counted from 0; without the tool those of the driver."""
        log, missing = _read(sources, LOG, xml_log, LOG_LIMIT_S)
        names, _ = _read(sources, LIST, listing, LIST_LIMIT_S)
        paths, _ = _read(sources, TOPOLOGY, topology, LIST_LIMIT_S)
        capabilities, _ = _read(sources, query(CAPABILITY), query_gpu, LIST_LIMIT_S)
        devices = list(log.devices)
        for reading in (names, capabilities):
            devices = joined(devices, reading.devices)
        devices = joined(devices, nvidia_files.listed(sources))
        devices = [_with_numa(device, names, paths) for device in devices]
        ordered = in_order(devices)
        lost = (finding for finding in names.findings if finding.code == "lost")
        return Reading(
            devices=ordered,
            links=tuple(_links(paths.links, names.devices, ordered)),
            findings=without_indexes((*([missing] if missing else log.findings), *lost)),
            driver=log.driver,
        )

    def sample(self, sources: Sources) -> Reading:
        """Return what changes; the last reading again where the tool was run a short time ago."""
        begun = self._clock()
        if begun < self._again_at:
            return self._last
        self._last = self._sampled(sources, begun + SAMPLE_LIMIT_S)
        ended = self._clock()
        self._again_at = ended + (ended - begun) * (SHARE - 1)
        return self._last

    def _left_s(self, until_s: float) -> float:
        return max(1.0, until_s - self._clock())

    def _sampled(self, sources: Sources, until_s: float) -> Reading:
        for _ in range(REFUSALS_MAX):
            output = sources.run(*query(self._columns), limit_s=self._left_s(until_s))
            refused = _REFUSED.search(output.text) or _REFUSED.search(output.error_text)
            if refused is None or refused[1] not in self._columns[2:]:
                break
            self._columns = tuple(column for column in self._columns if column != refused[1])
        known = nvidia_files.listed(sources)
        if (found := _failure(output)) is not None:
            return Reading(devices=tuple(_named(device) for device in known), findings=(found,))
        reading = query_gpu(output.text)
        apps, missing = _read(sources, APPS, compute_apps, self._left_s(until_s))
        devices = [replace(device, index=None) for device in reading.devices if device.uuid or device.pci]
        return Reading(
            devices=tuple(devices),
            processes=tuple(process for process in apps.processes if process.uuid or process.pci),
            findings=without_indexes((*reading.findings, *([missing] if missing else apps.findings))),
        )


def _read(
    sources: Sources, command: tuple[str, ...], parse: Callable[[str], Reading], limit_s: float
) -> tuple[Reading, Finding | None]:
    """Return what an output says, and why there is none."""
    output = sources.run(*command, limit_s=limit_s)
    found = _failure(output)
    return (Reading(), found) if found is not None else (parse(output.text), None)


def _failure(output: Output) -> Finding | None:
    """Return why a tool gave no output; one that it ended with an error may still be whole up to there."""
    if output.missing:
        return Finding(code="not_supported", text=f"{TOOL} is not installed")
    if output.timed_out:
        return Finding(code="tool_timeout", text=f"{TOOL} did not end in time")
    if output.text.strip():
        return None
    said = sentences(output.error_text.splitlines())
    text = f"{TOOL} ended with {output.code}: {output.error_text or 'it wrote nothing'}"
    return replace(said[0], index=None) if said else Finding(code="tool_failed", text=short(text))


def joined(devices: Iterable[DeviceFacts], more: Iterable[DeviceFacts]) -> list[DeviceFacts]:
    """Return devices with what `more` tells of them, and the devices that only `more` has.

    A row of `more` whose uuid is of one device and whose address is of another, or that neither names, is left out.
    """
    listed = list(devices)
    for row in more:
        same = [
            at
            for at, device in enumerate(listed)
            if (row.uuid and row.uuid == device.uuid) or (row.pci and row.pci == device.pci)
        ]
        if not same and (row.uuid or row.pci):
            listed.append(row)
        elif len(same) == 1 and not _contradict(listed[same[0]], row):
            listed[same[0]] = _filled(listed[same[0]], row)
    return listed


def _contradict(device: DeviceFacts, row: DeviceFacts) -> bool:
    pairs = ((device.uuid, row.uuid), (device.pci, row.pci))
    return any(one and other and one != other for one, other in pairs)


def _filled(device: DeviceFacts, row: DeviceFacts) -> DeviceFacts:
    """Return a device with the facts that it lacks; what it has stays, but for parts, which the row may name."""
    news = {
        name: getattr(row, name)
        for name in DeviceFacts.__struct_fields__
        if getattr(device, name) in (None, "", ()) and getattr(row, name) not in (None, "", ())
    }
    if device.parts and len(device.parts) == len(row.parts):
        parts = zip(device.parts, row.parts, strict=True)
        news["parts"] = tuple(_named_part(part, other) for part, other in parts)
    return replace(device, **news)


def _named_part(part: PartFacts, other: PartFacts) -> PartFacts:
    """Return a part with the profile and uuid of a list that has as many, in the same order."""
    if other.instance is not None and other.instance != part.instance:
        return part
    return replace(part, profile=part.profile or other.profile, uuid=part.uuid or other.uuid)


def _with_numa(device: DeviceFacts, names: Reading, paths: Reading) -> DeviceFacts:
    """Return a device with its NUMA node as the matrix of links has it, by the index that the list gives its uuid."""
    index = next((each.index for each in names.devices if each.uuid and each.uuid == device.uuid), None)
    numa = next((each.numa_node for each in paths.devices if index is not None and each.index == index), None)
    return device if device.numa_node is not None else replace(device, numa_node=numa)


def _links(
    links: Iterable[LinkFacts], names: Iterable[DeviceFacts], ordered: Sequence[DeviceFacts]
) -> Iterable[LinkFacts]:
    """Yield links by the indexes of the inventory; the tool's own are translated by the uuids of its list."""
    own = {device.uuid: device.index for device in ordered if device.uuid and device.index is not None}
    places = {device.index: own[device.uuid] for device in names if device.uuid in own}
    for link in links:
        if link.device in places and link.peer in places:
            one, other = sorted((places[link.device], places[link.peer]))
            yield LinkFacts(one, other, link.kind)


def in_order(devices: Iterable[DeviceFacts]) -> tuple[DeviceFacts, ...]:
    """Return devices counted from 0 in the order of their addresses, as CUDA counts by PCI_BUS_ID."""
    listed = list(devices)
    ordered = sorted(listed, key=lambda device: device.pci) if all(device.pci for device in listed) else listed
    return tuple(replace(device, index=index) for index, device in enumerate(ordered))


def without_indexes(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings without the tool's own indexes: those of an inventory differ where a device is missing."""
    bare = (
        finding
        if finding.index is None
        else replace(finding, index=None)
        if finding.uuid or finding.pci
        else replace(finding, index=None, text=short(f"{finding.text} ({TOOL} counts it as {finding.index})"))
        for finding in findings
    )
    return tuple(dict.fromkeys(bare))


def _named(device: DeviceFacts) -> DeviceFacts:
    return DeviceFacts(uuid=device.uuid, pci=device.pci)
