"""Tables of `rocm-smi`: without an option (one or two lines a device), and `--showhw`.

Columns are divided by two blanks. No size of memory stands in them, and names of models are cut at 20 characters.
"""

import re
from collections.abc import Sequence

import msgspec

from penstock.devices.amd_tools import values
from penstock.devices.amd_tools.outputs import NotRead, errors_said, index_of, reading, whole_lines
from penstock.devices.amd_tools.parts import Row, compute_mode, fold
from penstock.devices.reading import DeviceFacts, Finding, Reading, short

NAME_CUT_CHARACTERS = 20

_GAP = re.compile(r" {2,}")
_RULE = re.compile(r"=.*=")
_END = re.compile(r"=+ End of ROCm SMI Log =+")


def read(text: str, *, as_counted: bool = False) -> Reading:
    """Return what the table of `rocm-smi` or `rocm-smi --showhw` shows; `as_counted` as in `fold`. Never raises."""
    try:
        lines, findings = whole_lines(text)
    except NotRead as error:
        return reading(findings=[error.finding])
    rows: list[Row] = []
    loose: list[str] = []
    headings: list[str] = []
    named: set[int] = set()
    for line in lines:
        cells = _cells(line)
        if cells[0] in ("Device", "GPU") and len(cells) > 2:
            headings = cells
        elif not line or _RULE.fullmatch(line.strip()):
            continue
        elif not headings:
            loose.append(line)
        elif not line.startswith(" ") and cells[0].isdigit():
            row = _row(headings, cells)
            if row is None:
                findings.append(Finding(code="cut", text=short(f"a row is not whole: {line}")))
                rows.append(Row(facts=DeviceFacts()))  # a name that follows is no other's
            else:
                rows.append(row)
        elif line.startswith(" ") and len(cells) == 1 and rows and len(rows) not in named:
            named.add(len(rows))
            rows[-1] = _with_name(rows[-1], cells[0], findings)
        elif not line.startswith(" "):
            loose.append(line)
    if not any(_END.fullmatch(line.strip()) for line in lines):
        findings.append(Finding(code="cut", text="the last line of the tool is missing"))
    known = [row for row in rows if row.facts.index is not None]
    devices, contradictions = fold(known, as_counted=as_counted)
    return reading(devices=devices, findings=[*findings, *errors_said(loose), *contradictions])


def _cells(line: str) -> list[str]:
    """Return cells; one that ends in a comma continues in the next."""
    cells: list[str] = []
    for cell in _GAP.split(line.strip()):
        if cells and cells[-1].endswith(","):
            cells[-1] += f" {cell}"
        else:
            cells.append(cell)
    return cells


def _row(headings: Sequence[str], cells: Sequence[str]) -> Row | None:
    if len(headings) != len(cells) or len(set(headings)) != len(headings):
        return None
    named = dict(zip(headings, cells, strict=True))
    index = index_of(cells[0])
    if index is None:
        return None
    partitions = [word.strip() for word in named.get("Partitions", "").split(",")]
    facts = DeviceFacts(
        index=index,
        pci=values.address(named.get("BUS")),
        use_milli=values.percent_milli(named.get("GPU%")),
        temperature_c=values.degrees(named.get("Temp", named.get("Temp (DieEdge)"))),
        power_mw=values.watts_mw(named.get("Power", named.get("AvgPwr"))),
        power_limit_mw=values.watts_mw(named.get("PwrCap"), least=1),
        clock_mhz=values.clock_mhz(named.get("SCLK")),
    )
    part = named.get("PARTITION ID", partitions[2] if len(partitions) == 3 else "")
    node = named.get("NODE", named.get("Node"))
    return Row(
        facts=facts,
        mode=compute_mode(named.get("Partitions", "")),
        part=values.count(part, limit=63),
        node=values.count(node, limit=10**5),
    )


def _with_name(row: Row, name: str, findings: list[Finding]) -> Row:
    index = row.facts.index
    if len(name) >= NAME_CUT_CHARACTERS:
        findings.append(Finding(code="cut", text=short(f"the name is cut: {name}"), index=index))
        return row
    named = msgspec.structs.replace(row.facts, model=values.model(name))
    return msgspec.structs.replace(row, facts=named)
