"""`nvidia-smi topo -m`: how devices reach each other, and the NUMA node of each.

The heading names the columns; a row counts when the mark of the device itself stands where the heading has it. Tabs
part the columns, on pages and in older drivers blanks.
"""

import re

from penstock.core.model.resources import LinkKind
from penstock.devices.nvidia_tools.texts import INDEX_MAX, Lines, integer, reading, sentence
from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, Reading

_LABEL = re.compile(r"GPU(\d{1,4})")
_NVLINK = re.compile(r"NV\d{1,3}")
_COLUMNS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_NUMA = "NUMA Affinity"
_OTHER_ROW = re.compile(r"(?:NIC\d+|[a-z]\w{1,30})\s.*")
_LEGEND = re.compile(r"\s*(?:Legend:|NIC Legend:|\S{1,6}\s{0,4}= .*|NIC\d+: \S+)\s*")
SELF = "X"
KINDS: dict[str, LinkKind] = {"PIX": "pcie", "PXB": "pcie", "PHB": "pcie", "PSB": "pcie", "NODE": "numa", "SYS": "node"}
"""PCIe switches and the host bridge; between bridges of a NUMA node; between NUMA nodes."""


def topology(text: str) -> Reading:
    """Return devices with their NUMA nodes, and each pair's link once, the lower index first."""
    lines = Lines(text, longest=16384)
    heading: list[str] = []
    rows: dict[int, tuple[dict[int, LinkKind], int | None]] = {}
    findings: list[Finding] = []
    for line in lines.whole:
        if not heading:
            heading = _heading(line)
            if heading:
                continue
        label = _LABEL.fullmatch(line.split()[0]) if line.split() else None
        if heading and label:
            row = _row(line, heading)
            if row is None or not _unlike(rows, int(label[1]), row, findings):
                lines.refuse(line)
                continue
            rows[int(label[1])] = row
        elif finding := sentence(line):
            findings.append(finding)
        elif line.strip() and not line.startswith("#") and not _LEGEND.fullmatch(line) and not _OTHER_ROW.match(line):
            lines.refuse(line)
    named = [int(match[1]) for name in heading if (match := _LABEL.fullmatch(name))]
    if missing := [index for index in named if index not in rows]:
        findings.append(Finding(code="cut", text=f"no whole row of {len(missing)} devices that the heading names"))
    devices = [DeviceFacts(index=index, numa_node=numa) for index, (_, numa) in sorted(rows.items())]
    links = _links(rows, findings)
    return reading(recognized=bool(rows), devices=devices, links=links, findings=[*findings, *lines.unreadable()])


def _unlike(
    rows: dict[int, tuple[dict[int, LinkKind], int | None]],
    index: int,
    row: tuple[dict[int, LinkKind], int | None],
    findings: list[Finding],
) -> bool:
    """Return whether a row may be taken: it is new, or the same as before."""
    if rows.get(index, row) == row:
        return True
    rows.pop(index)
    findings.append(Finding(code="duplicate", text=f"two rows of GPU{index}", index=index))
    return False


def _heading(line: str) -> list[str]:
    """Return the names of the columns, '' the first; nothing for a line that is no heading."""
    if "\t" in line:
        names = [name.strip() for name in line.split("\t")]
    else:
        marked = line
        for name in _COLUMNS:
            marked = marked.replace(name, name.replace(" ", "_"))
        names = [
            "",
            *(name.replace("_", " ") if name.replace("_", " ") in _COLUMNS else name for name in marked.split()),
        ]
    labels = [name for name in names if _LABEL.fullmatch(name)]
    whole = names[:1] == [""] and labels and len(set(labels)) == len(labels) and "CPU Affinity" in names
    return names if whole else []


def _row(line: str, heading: list[str]) -> tuple[dict[int, LinkKind], int | None] | None:
    """Return links by peer and the NUMA node, None for a row that is not whole."""
    tabs = "\t" in line
    cells = [cell.strip() for cell in line.split("\t")] if tabs else line.split()
    own = cells[0]
    if own not in heading:
        return None
    links: dict[int, LinkKind] = {}
    for at, name in enumerate(heading):
        match = _LABEL.fullmatch(name)
        if not match:
            continue
        cell = cells[at] if at < len(cells) else ""
        if (name == own) != (cell == SELF):
            return None
        if name == own:
            continue
        kind: LinkKind | None = "nvlink" if _NVLINK.fullmatch(cell) else KINDS.get(cell)
        if kind is None or int(match[1]) > INDEX_MAX:
            return None
        links[int(match[1])] = kind
    aligned = tabs or len(cells) == len(heading)
    at = heading.index(_NUMA) if _NUMA in heading else len(cells)
    return links, integer(cells[at]) if aligned and at < len(cells) else None


def _links(rows: dict[int, tuple[dict[int, LinkKind], int | None]], findings: list[Finding]) -> list[LinkFacts]:
    """Return each pair's link; what two rows tell differently is a finding."""
    links: list[LinkFacts] = []
    for index, (peers, _) in sorted(rows.items()):
        for peer, kind in sorted(peers.items()):
            back = rows[peer][0].get(index) if peer in rows else kind
            if back != kind:
                if index < peer:
                    text = f"GPU{index} and GPU{peer}: {kind} one way, {back} the other"
                    findings.append(Finding(code="unreadable", text=text, index=index))
            elif index < peer or peer not in rows:
                links.append(LinkFacts(min(index, peer), max(index, peer), kind))
    return sorted(set(links), key=lambda link: (link.device, link.peer))
