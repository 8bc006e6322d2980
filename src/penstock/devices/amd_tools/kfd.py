"""The kernel's own topology of compute devices: `/sys/class/kfd/kfd/topology/nodes/N/`.

Each processor and each GPU, or part of a GPU, is a node with a file of numbers. A part has the `unique_id` of its
device and lies next to it in `location_id`, whose low three bits differ. `local_mem_size` is 0 even
where there is memory: its size stands in `mem_banks/0/properties`. Source: the kernel's amdkfd, kfd_topology.c.
"""

import collections
import itertools
import re
from collections.abc import Iterable, Mapping

import msgspec

from penstock.devices.amd_tools.outputs import NotRead, reading, whole_lines
from penstock.devices.amd_tools.parts import Row, device_of, fold
from penstock.devices.amd_tools.topology import within
from penstock.devices.amd_tools.values import MODELS, address, unique_id
from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, Reading

NODES_MAX = 1024
LINKS_MAX = 65_536
RENDER_MINOR_LEAST = 128
"""Of device files by which a GPU computes: `/dev/dri/renderD128`."""
VENDOR = 0x1002
XGMI, PCIE = 11, 2
"""Types of links. Source: the kernel's CRAT tables, kfd_crat.h."""
NEEDED = ("simd_count", "vendor_id", "device_id", "location_id", "domain", "drm_render_minor")
_LINE = re.compile(r"([a-z_0-9]+) (\d{1,20})")

Properties = dict[str, int]


def properties(text: str) -> tuple[Properties, list[Finding]]:
    """Return the numbers of a file of properties by their names; those that stand twice and differ are left out."""
    try:
        lines, findings = whole_lines(text)
    except NotRead as error:
        return {}, [error.finding]
    found: Properties = {}
    void = set()
    strange = 0
    for line in lines:
        named = _LINE.fullmatch(line.strip())
        if named is None:
            strange += bool(line)
        elif found.setdefault(named[1], int(named[2])) != int(named[2]):
            void.add(named[1])
    if strange:
        findings.append(Finding(code="unknown_format", text=f"lines that are no name and number: {strange}"))
    if void:
        told = f"stand twice with different values: {', '.join(sorted(void)[:8])}"
        findings.append(Finding(code="duplicate", text=told))
    return {name: value for name, value in found.items() if name not in void}, findings


def read(nodes: Mapping[int, str], links: Iterable[str] = (), memory: Mapping[int, str] | None = None) -> Reading:
    """Return the devices of the kernel's topology, in the order of its nodes, which is the order of ROCm.

    Args:
        nodes: texts of `nodes/N/properties` by N; those of processors tell where NUMA nodes are.
        links: texts of `nodes/N/io_links/M/properties` and of `p2p_links`, any order.
        memory: texts of `nodes/N/mem_banks/0/properties` by N; of devices that are not divided.
    Never raises. Names of models come from a table and are empty for ids that it does not have.
    """
    findings: list[Finding] = []
    gpus, processors = _nodes(nodes, findings)
    ways = []
    for text in itertools.islice(links, LINKS_MAX):
        link, ills = properties(text)
        findings += ills
        if {"type", "node_from", "node_to"} <= set(link):
            ways.append((link["node_from"], link["node_to"], link["type"]))
        elif not ills:
            findings.append(Finding(code="cut", text="a link is not whole"))
    numa = {node: at for at, node in enumerate(processors)}
    near = {one: numa[other] for one, other, _ in sorted(ways, reverse=True) if other in numa}
    shared = collections.Counter(values["unique_id"] for _, values in gpus.values() if values.get("unique_id"))
    rows = []
    for node, (index, numbers) in gpus.items():
        size = _bank((memory or {}).get(node), findings)
        divided = shared[numbers.get("unique_id", 0)] > 1
        rows.append(_row(index, node, numbers, numa_node=near.get(node), memory=None if divided else size))
    devices, contradictions = fold(rows)
    if not rows and not findings and (processors or ways):
        findings.append(Finding(code="no_devices", text="no node is a GPU"))
    between = [
        LinkFacts(gpus[one][0], gpus[other][0], "nvlink" if kind == XGMI else "pcie")
        for one, other, kind in ways
        if one in gpus and other in gpus and kind in (XGMI, PCIE)
    ]
    listed = reading(devices=devices, findings=[*findings, *contradictions])
    return msgspec.structs.replace(listed, links=tuple(within(between, device_of(listed))))


def _nodes(nodes: Mapping[int, str], findings: list[Finding]) -> tuple[dict[int, tuple[int, Properties]], list[int]]:
    """Return GPUs by their node, with the index, and nodes of processors. A node that is not whole keeps its index."""
    gpus: dict[int, tuple[int, Properties]] = {}
    processors: list[int] = []
    index = 0
    for node, text in sorted(nodes.items())[:NODES_MAX]:
        numbers, ills = properties(text)
        findings += ills
        if numbers.get("simd_count") == 0 and numbers.get("cpu_cores_count"):
            processors.append(node)
            continue
        missing = [name for name in NEEDED if name not in numbers]
        if missing or not numbers["simd_count"] or not numbers["location_id"]:
            told = f"node {node} is not whole: no {', '.join(missing) or 'computing units or place'}"
            findings.append(Finding(code="cut", text=told))
        elif numbers["vendor_id"] != VENDOR:
            findings.append(Finding(code="unknown_format", text=f"node {node} is of another vendor"))
        else:
            gpus[node] = (index, numbers)
        index += 1
    return gpus, processors


def _bank(text: str | None, findings: list[Finding]) -> int | None:
    """Return the bytes of a bank of memory."""
    if text is None:
        return None
    numbers, ills = properties(text)
    findings += ills
    return numbers.get("size_in_bytes") or None


def _row(index: int, node: int, numbers: Properties, *, numa_node: int | None, memory: int | None) -> Row:
    place, domain, minor = numbers["location_id"], numbers["domain"], numbers["drm_render_minor"]
    pci = f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
    facts = DeviceFacts(
        index=index,
        uuid=unique_id(str(numbers.get("unique_id", 0))),
        pci=address(pci),
        model=MODELS.get(numbers["device_id"], ""),
        numa_node=numa_node,
        minor=minor if RENDER_MINOR_LEAST <= minor < 256 else None,
        memory_bytes=memory,
    )
    return Row(facts=facts, node=node)
