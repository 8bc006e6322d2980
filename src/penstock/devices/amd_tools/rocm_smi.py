"""What `rocm-smi` says of each card by name and value: JSON, CSV, and the lines of `--showproduct` and its like.

Names changed with versions (`Card series`, `Card Series`; `GPU ID`, `Device ID`) and are read without regard to case.
Values of JSON and CSV have their unit in the name. `GFX Activity` counts, and is no percentage. A name of a model that
is an id (its table of names is missing on that machine) is looked up by the id.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.devices.amd_tools import topology, values
from penstock.devices.amd_tools.outputs import (
    LINE_MAX_CHARACTERS,
    NotRead,
    errors_said,
    index_of,
    read_json,
    reading,
    whole_lines,
)
from penstock.devices.amd_tools.parts import PARTS_MAX, Row, compute_mode, fold
from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, ProcessFacts, Reading, said, short

Card = dict[str, str]
"""Values of a card by their names in small letters."""

CARDS_MAX = 256
NAMES_MAX = 2000
COLUMNS_MAX = 500

_LINE = re.compile(r" *GPU\[(\d{1,5})\] *: *([A-Za-z(][^:]*?) *: *(.*)")
_END = re.compile(r"=+ End of ROCm SMI Log =+")
_USERS = re.compile(r"PID (\d+) is using (\d+) DRM device\(s\):?")
_PAIR = re.compile(r"\(topology\) (link type|hops) between drm devices (\d{1,5}) and (\d{1,5})")
_IDENTITY = ("pci bus", "unique id", "card series", "device name", "vram total memory (b)", "partition id")
_NONE = ("4294967295", "-1")
"""A NUMA node that is none."""


def read(text: str, *, as_counted: bool = False) -> Reading:
    """Return what `rocm-smi` tells as JSON (`-a`, `--showbus` and so on); `as_counted` as in `fold`. Never raises."""
    try:
        listed = read_json(text)
    except NotRead as error:
        return reading(findings=[error.finding, *errors_said(text[:LINE_MAX_CHARACTERS].splitlines())])
    if not isinstance(listed, dict):
        return reading(findings=[Finding(code="unknown_format", text="the JSON is no object with cards")])
    cards: dict[int, Card] = {}
    findings: list[Finding] = []
    for name, card in listed.items():
        index = index_of(name.removeprefix("card"))
        if index is not None and index < CARDS_MAX and isinstance(card, dict) and name.startswith("card"):
            cards[index] = _named(card)
        elif name != "system":
            findings.append(Finding(code="unknown_format", text=short(f"neither a card nor the system: {name}")))
    system = listed.get("system")
    about = _named(system) if isinstance(system, dict) else {}
    devices, contradictions = _devices(cards, as_counted=as_counted)
    links, differing = _links(about)
    return reading(
        devices=devices,
        links=topology.within(links, {d.index: d.index for d in devices if d.index is not None}),
        processes=tuple(_processes(about.items())),
        findings=[*findings, *contradictions, *differing],
        driver=said(about.get("driver version")),
    )


def read_csv(text: str) -> Reading:
    """Return what `rocm-smi --csv` tells of cards, or of processes (`--showpids`). Never raises."""
    try:
        lines, findings = whole_lines(text)
    except NotRead as error:
        return reading(findings=[error.finding])
    begin = next((at for at, line in enumerate(lines) if re.match(r"(device|name), ?", line)), len(lines))
    findings += errors_said(lines[:begin])
    table = [next(csv.reader([line], skipinitialspace=True)) for line in lines[begin:] if line]
    heading = [name.strip().lower() for name in table[0]] if table else []
    if not heading or len(heading) > COLUMNS_MAX or len(set(heading)) != len(heading):
        findings.append(Finding(code="unknown_format", text="no line of headings that is known"))
        return reading(findings=findings)
    whole = [row for row in table[1:] if len(row) == len(heading)]
    if len(whole) < len(table) - 1:
        findings.append(Finding(code="cut", text=f"rows that are not whole: {len(table) - 1 - len(whole)}"))
    if heading[0] == "name":
        return reading(processes=tuple(_processes((row[0].lower(), row[1]) for row in whole)), findings=findings)
    cards: dict[int, Card] = {}
    for row in whole:
        index = index_of(row[0].removeprefix("card"))
        card = dict(zip(heading[1:], row[1:], strict=True))
        if index is None or cards.setdefault(index, card) != card:
            told = f"no card of its own: {row[0]}"
            findings.append(Finding(code="duplicate", text=short(told), index=index))
            card.clear()
            cards.pop(index or 0, None)
    devices, contradictions = _devices(cards)
    if not devices and not findings:
        findings.append(Finding(code="no_devices", text="no row stands under the headings"))
    return reading(devices=devices, findings=[*findings, *contradictions])


def read_lines(text: str, *, as_counted: bool = False) -> Reading:
    """Return what `rocm-smi` tells in lines: product, bus, id, NUMA nodes, topology, processes. Never raises.

    `as_counted` as in `fold`.
    """
    try:
        lines, findings = whole_lines(text)
    except NotRead as error:
        return reading(findings=[error.finding])
    cards: dict[int, Card] = {}
    void: set[int] = set()
    loose: list[str] = []
    for line in lines:
        read_line = _LINE.fullmatch(line)
        if read_line is None or int(read_line[1]) >= CARDS_MAX:
            loose.append(line)
            continue
        index, name, value = int(read_line[1]), read_line[2].lower(), read_line[3].strip()
        card = cards.setdefault(index, {})
        if card.setdefault(name, value) != value:
            findings.append(Finding(code="duplicate", text=short(f"{name} stands twice"), index=index))
            card[name] = ""
            void |= {index} if name in _IDENTITY else set()
        if re.search(r"card \w+:", value, re.IGNORECASE):
            findings.append(Finding(code="unknown_format", text=short(f"two lines in one: {line}"), index=index))
    if not any(_END.fullmatch(line.strip()) for line in lines):
        findings.append(Finding(code="cut", text="the last line of the tool is missing"))
    missing = [index for index in range(min(max(cards, default=-1), CARDS_MAX)) if index not in cards]
    if missing:
        findings.append(Finding(code="cut", text=short(f"cards without a line: {missing[:8]}")))
    kept = {index: card for index, card in cards.items() if index not in void}
    devices, contradictions = _devices(kept, as_counted=as_counted)
    processes, shown = _users(loose, findings)
    tables = topology.from_lines([line for line in loose if line not in shown], [])
    if not cards:
        devices = list(tables.devices)
    known = {device.index: device.index for device in devices if device.index is not None}
    return reading(
        devices=devices,
        links=topology.within(tables.links, known),
        processes=processes,
        findings=[*findings, *contradictions, *(each for each in tables.findings if each.code != "unknown_format")],
    )


def _users(lines: Sequence[str], findings: list[Finding]) -> tuple[list[ProcessFacts], set[str]]:
    """Return processes of `--showpidgpus`: a line with the number of devices, and one with their indexes."""
    processes: list[ProcessFacts] = []
    shown: set[str] = set()
    for at, line in enumerate(lines):
        users = _USERS.fullmatch(line.strip())
        if users is None:
            continue
        listed = lines[at + 1].split() if at + 1 < len(lines) else []
        indexes = [index_of(word) for word in listed[:CARDS_MAX]]
        pid = values.count(users[1], limit=2**31)
        if not pid or None in indexes or str(len(indexes)) != users[2]:
            findings.append(Finding(code="cut", text=short(f"the devices of a process are not whole: {line}")))
            continue
        processes += [ProcessFacts(pid=pid, index=index) for index in indexes]
        shown |= {line, lines[at + 1]}
    return processes, shown


def read_versions(text: str) -> Reading:
    """Return a reading of `rocm-smi --version`, which tells nothing of the driver. Never raises."""
    try:
        lines, findings = whole_lines(text)
    except NotRead as error:
        return reading(findings=[error.finding])
    if versions(text):
        return Reading(findings=tuple(findings))
    return reading(findings=[*findings, *errors_said(lines)])


def versions(text: str) -> dict[str, str]:
    """Return the versions that `rocm-smi --version` tells, by their names there."""
    return dict(re.findall(r"^(ROCM-SMI(?:-LIB)?) version: *([0-9][\w.+-]*) *\r?$", text[:4096], re.MULTILINE))


def _named(card: Mapping[str, Any]) -> Card:
    named = {}
    for name, value in list(card.items())[:NAMES_MAX]:
        if isinstance(value, str | int | float):
            named[name.strip().lower().rstrip(":")] = str(value)
    return named


def _devices(cards: Mapping[int, Card], *, as_counted: bool = False) -> tuple[list[DeviceFacts], list[Finding]]:
    """Return devices of cards; where more share an address than a device has parts, no address can be trusted."""
    findings: list[Finding] = []
    rows = [_row(index, card) for index, card in cards.items()]
    addresses: dict[str, int] = {}
    for row in rows:
        base = values.base_address(row.facts.pci)
        addresses[base] = addresses.get(base, 0) + bool(base)
    crowded = {base: count for base, count in addresses.items() if count > PARTS_MAX}
    if crowded and not as_counted:
        base, count = next(iter(crowded.items()))
        told = f"{count} cards at {base}, more than the {PARTS_MAX} parts that a device can have: no address is right"
        return [], [Finding(code="duplicate", text=told)]
    for index, card in cards.items():
        for name in ("unique id", "serial number"):
            if values.masked(card.get(name)) and "-" not in card[name].strip("-"):
                findings.append(Finding(code="masked", text=short(f"{name}: {card[name]}"), index=index))
    devices, contradictions = fold(rows, as_counted=as_counted)
    return devices, [*findings, *contradictions]


def _row(index: int, card: Card) -> Row:
    def get(*names: str) -> str:
        return next((card[name] for name in names if said(card.get(name))), "")

    names = [card[name] for name in ("card series", "device name", "product name") if name in card]
    ids = [name for name in names if not values.model(name)]
    name = next(filter(None, map(values.model, names)), "")
    by_id = next(filter(None, map(values.model_by_id, ids)), "")
    memory = values.count(get("vram total memory (b)"))
    temperature = get("temperature (sensor junction) (c)", "temperature (sensor edge) (c)")
    power = get("average graphics package power (w)", "current socket graphics package power (w)")
    facts = DeviceFacts(
        index=index,
        uuid=values.unique_id(get("unique id")),
        pci=values.address(get("pci bus")),
        model=name or by_id,
        serial=values.serial(get("serial number")),
        numa_node=_numa_node(card),
        memory_bytes=memory or None,
        memory_used_bytes=values.count(get("vram total used memory (b)")),
        use_milli=values.percent_milli(get("gpu use (%)"), bare=True),
        temperature_c=values.degrees(temperature, bare=True),
        power_mw=values.watts_mw(power, bare=True),
        power_limit_mw=values.watts_mw(get("max graphics package power (w)"), bare=True, least=1),
        clock_mhz=values.clock_mhz(get("sclk clock speed")),
    )
    return Row(
        facts=facts,
        mode=compute_mode(get("compute partition")),
        part=values.count(get("partition id"), limit=63),
        node=values.count(get("node id"), limit=10**5),
    )


def _numa_node(card: Card) -> int | None:
    """Return the NUMA node, None where the two values that the tool shows contradict each other."""
    node, affinity = card.get("(topology) numa node"), card.get("(topology) numa affinity")
    if affinity is not None and affinity not in _NONE and affinity != node:
        return None
    return values.count(node, limit=1024)


def _processes(pairs: Iterable[tuple[str, str]]) -> Iterator[ProcessFacts]:
    """Yield processes of `PID3903703`: name, number of devices, bytes, and more; those without a device are left out.

    Which devices they use stands in `--showpidgpus` alone.
    """
    for name, value in pairs:
        pid = values.count(name.removeprefix("pid"), limit=2**31) if name.startswith("pid") else None
        cells = [cell.strip() for cell in value.rsplit(",", 4)]
        if pid and len(cells) == 5 and values.count(cells[1]):
            yield ProcessFacts(pid=pid, name=short(said(cells[0])), memory_bytes=values.count(cells[2]))


def _links(system: Card) -> tuple[list[LinkFacts], list[Finding]]:
    links = topology.Links()
    for name, value in system.items():
        pair = _PAIR.fullmatch(name)
        if pair:
            links.say(links.types if pair[1] == "link type" else links.hops, int(pair[2]), int(pair[3]), value)
    return links.facts()
