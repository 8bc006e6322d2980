"""How GPUs reach each other: `amd-smi topology` (text, both forms of JSON), `amd-smi xgmi`, and tables of rocm-smi.

A table is taken only if it has the same labels, in the same order, above and at the left, and all of its cells: its
order says the index of each device. Source of the kinds: XGMI is AMD's link between devices; of paths over PCIe the
hops tell whether they stay under one processor (2) or cross to another (3 and more).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from penstock.core.model.resources import LinkKind
from penstock.devices.amd_tools.outputs import NotRead, errors_said, index_of, is_json, read_json, reading, whole_lines
from penstock.devices.amd_tools.parts import Row, fold
from penstock.devices.amd_tools.values import address
from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, Reading

LABELS_MAX = 256
"""Rows and columns of a table."""

_TITLE = re.compile(r"=*\s*([A-Za-z][A-Za-z /-]*?)( TABLE:|\s*=+)")
_BDF = r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_LABEL = re.compile(rf"{_BDF}|GPU\d{{1,5}}")
_XGMI = re.compile(rf"GPU(\d{{1,5}})\s+({_BDF})\s+(.*)")
_TRAFFIC = re.compile(r"N/A|\d+(?:\.\d+)? [KMGT]?B")
_TYPES = frozenset({"XGMI", "PCIE", "SELF", "0", "XXXX", "N/A", "UNKNOWN"})

Pairs = dict[tuple[int, int], str]
"""A word for each two devices, by their indexes."""


class Links:
    """What was said of the way between each two devices."""

    def __init__(self) -> None:
        self.types: Pairs = {}
        self.hops: Pairs = {}
        self.contradicted: set[tuple[int, int]] = set()

    def say(self, kept: Pairs, one: int, other: int, word: str) -> None:
        pair = (min(one, other), max(one, other))
        if one != other and kept.setdefault(pair, word) != word:
            self.contradicted.add(pair)

    def facts(self) -> tuple[list[LinkFacts], list[Finding]]:
        """Return a link for each two devices whose kind is known, and a finding for those said to be of two kinds."""
        links = []
        for pair, word in sorted(self.types.items()):
            kind = link_kind(word, self.hops.get(pair, ""))
            if kind is not None and pair not in self.contradicted:
                links.append(LinkFacts(*pair, kind))
        text = f"links that the two ends describe differently: {len(self.contradicted)}"
        return links, [Finding(code="duplicate", text=text)] if self.contradicted else []


def link_kind(word: str, hops: str = "") -> LinkKind | None:
    """Return the kind of a link by its type and hops, None for one that is not known."""
    match word.upper():
        case "XGMI":
            return "nvlink"
        case "PCIE":
            return "node" if hops.isdigit() and int(hops[:4]) > 2 else "pcie"
    return None


def read(text: str, *, as_counted: bool = False) -> Reading:
    """Return the links of `amd-smi topology` or `rocm-smi --showtopo`, and the devices that they name. Never raises.

    `as_counted` as in `fold`: links are then between parts too.
    """
    try:
        if is_json(text):
            return _from_json(read_json(text), as_counted)
        lines, findings = whole_lines(text)
    except NotRead as error:
        return reading(findings=[error.finding])
    return from_lines(lines, findings, as_counted=as_counted)


def from_lines(lines: Sequence[str], findings: list[Finding], *, as_counted: bool = False) -> Reading:
    """Return what stands in tables among lines; `findings` are those that were made before."""
    links = Links()
    names: tuple[str, ...] = ()
    tables = 0
    loose: list[str] = []
    for title, labels, table in _tables(lines, findings, loose):
        tables += 1
        if names and names != labels:
            findings.append(Finding(code="duplicate", text="tables with different devices"))
            return reading(findings=findings)
        names = labels
        cells = {cell.upper() for row in table for cell in row}
        if title.upper() == "HOPS" or "hops" in title.lower():
            kept = links.hops
        elif cells <= _TYPES and cells & {"XGMI", "PCIE"}:
            kept = links.types
        else:
            continue
        for at, row in enumerate(table):
            for peer, word in enumerate(row):
                links.say(kept, at, peer, word)
    listed, contradicted = links.facts()
    counted = (Row(facts=DeviceFacts(index=at, pci=address(name))) for at, name in enumerate(names))
    devices, twice = fold(counted, as_counted=as_counted)
    if twice:
        listed = []
    found = [*findings, *errors_said(loose), *contradicted, *twice]
    return reading(devices=devices, links=listed, findings=found)


def _tables(
    lines: Sequence[str], findings: list[Finding], loose: list[str]
) -> Iterator[tuple[str, tuple[str, ...], list[list[str]]]]:
    """Yield tables with the same labels above and at the left: title, labels, rows of cells."""
    title = ""
    at = 0
    while at < len(lines):
        words = lines[at].split()
        named = _TITLE.match(lines[at])
        if named:
            title = named[1]
        if len(words) > LABELS_MAX or not words or not all(_LABEL.fullmatch(word) for word in words):
            loose += [lines[at]] if words and not named else []
            at += 1
            continue
        rows, end = [], at + 1
        while end < len(lines) and lines[end].strip() and _LABEL.match(lines[end]):
            rows.append(lines[end].split())
            end += 1
        at = end
        whole = all(len(row) == len(words) + 1 for row in rows) and [row[0] for row in rows] == words
        numbered = any(word.startswith("GPU") for word in words)
        if whole and (not numbered or words == [f"GPU{n}" for n in range(len(words))]):
            yield title, tuple(words), [row[1:] for row in rows]
        else:
            findings.append(Finding(code="cut", text=f"the table {title or 'without a title'} is not whole"))


def _from_json(listed: Any, as_counted: bool) -> Reading:
    """Read both forms: a list of links of each GPU, and (to ROCm 6.0) dictionaries by `gpu_0`."""
    if isinstance(listed, dict):
        listed = listed.get("gpu_data", [])
    links = Links()
    rows: list[Row] = []
    named: dict[int, str] = {}
    findings: list[Finding] = []
    for each in listed if isinstance(listed, list) else []:
        index = each.get("gpu") if isinstance(each, dict) else None
        if not _is_index(index):
            findings.append(Finding(code="unknown_format", text="an entry names no GPU"))
            continue
        pci = address(str(each.get("bdf", "")))
        rows.append(Row(facts=DeviceFacts(index=index, pci=pci)))
        for peer, peer_pci, word, hops in (*_new_form(each), *_old_form(each)):
            links.say(links.types, index, peer, word)
            links.say(links.hops, index, peer, hops)
            if peer_pci and named.setdefault(peer, peer_pci) != peer_pci:
                links.contradicted.add((min(index, peer), max(index, peer)))
    for row in rows:
        index = row.facts.index
        if index is not None and named.get(index, row.facts.pci) != row.facts.pci:
            findings.append(Finding(code="duplicate", text="a GPU with two addresses", index=index))
            rows = [other for other in rows if other is not row]
    devices, twice = fold(rows, as_counted=as_counted)
    known, contradicted = links.facts()
    here = {device.index for device in devices}
    kept = [link for link in known if link.device in here and link.peer in here]
    return reading(devices=devices, links=kept, findings=[*findings, *contradicted, *twice])


def _is_index(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LABELS_MAX


def _new_form(entry: Mapping[str, Any]) -> Iterator[tuple[int, str, str, str]]:
    links = entry.get("links")
    for link in links if isinstance(links, list) else []:
        if isinstance(link, dict) and _is_index(link.get("gpu")):
            pci, word = address(str(link.get("bdf", ""))), str(link.get("link_type", ""))
            yield link["gpu"], pci, word, str(link.get("num_hops", ""))


def _old_form(entry: Mapping[str, Any]) -> Iterator[tuple[int, str, str, str]]:
    types, hops = entry.get("link_type"), entry.get("hops")
    for name, word in types.items() if isinstance(types, dict) else ():
        peer = index_of(name.removeprefix("gpu_"))
        if peer is not None and peer < LABELS_MAX:
            yield peer, "", str(word), str(hops.get(name, "")) if isinstance(hops, dict) else ""


def read_xgmi(text: str) -> Reading:
    """Return the devices and the XGMI links between them of `amd-smi xgmi`. Never raises."""
    try:
        lines, findings = whole_lines(text)
    except NotRead as error:
        return reading(findings=[error.finding])
    columns = next((line.split() for line in lines if line.split()[:2] == ["bdf", "bit_rate"]), [])
    peers = [name for name in columns if _LABEL.fullmatch(name)]
    rows: list[Row] = []
    links = Links()
    linked: dict[int, list[str]] = {}
    loose: list[str] = []
    current: int | None = None
    for line in lines:
        head, words = _XGMI.fullmatch(line), line.split()
        if head:
            index = index_of(head[1])
            current = index if head[3].split()[-1:] == ["XGMI"] else None
            rows.append(Row(facts=DeviceFacts(index=index, pci=address(head[2]))))
        elif words[:1] == ["Read"] and current is not None:
            linked[current] = _TRAFFIC.findall(line)
            current = None
        elif words and words[0] not in ("Read", "Write", "LINK", "bdf"):
            loose.append(line)
    here = [row.facts.pci for row in rows]
    if here != [address(name) for name in peers] or [row.facts.index for row in rows] != list(range(len(rows))):
        findings.append(Finding(code="cut", text="the table names other devices above than at the left"))
        rows, linked = [], {}
    for index, cells in linked.items():
        if len(cells) != len(peers):
            findings.append(Finding(code="cut", text="a row of traffic is not whole", index=index))
            continue
        for peer, cell in enumerate(cells):
            if cell != "N/A":
                links.say(links.types, index, peer, "XGMI")
    devices, twice = fold(rows)
    kept, _ = links.facts()
    found = [*findings, *errors_said(loose), *twice]
    return reading(devices=devices, links=[] if twice else kept, findings=found)


def within(links: Iterable[LinkFacts], owners: Mapping[int, int]) -> list[LinkFacts]:
    """Return links between devices for those between what a tool counts, parts among it."""
    found: dict[tuple[int, int], LinkKind] = {}
    for link in links:
        one, other = owners.get(link.device), owners.get(link.peer)
        if one is not None and other is not None and one != other:
            found.setdefault((min(one, other), max(one, other)), link.kind)
    return [LinkFacts(*pair, kind) for pair, kind in sorted(found.items())]
