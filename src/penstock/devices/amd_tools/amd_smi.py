"""What `amd-smi` says of each GPU in blocks: list, static, metric, process and bad-pages, as JSON or as text.

Text indents by four blanks for each level, wraps long lists, and leaves an empty line between GPUs. A line that stands
under no heading belongs to nobody: its heading was lost. JSON has the same names in small letters; from ROCm 7 the
list of GPUs stands in `gpu_data`.
"""

import collections
import re
from collections.abc import Iterator
from typing import Any

from penstock.devices.amd_tools import values
from penstock.devices.amd_tools.outputs import (
    DEPTH_MAX,
    LINE_MAX_CHARACTERS,
    NotRead,
    errors_said,
    index_of,
    is_json,
    read_json,
    reading,
    whole_lines,
)
from penstock.devices.amd_tools.parts import Row, compute_mode, fold
from penstock.devices.reading import DeviceFacts, Finding, ProcessFacts, Reading, said, short

BLOCKS_MAX = 1024

_HEADING = re.compile(r"(GPU|CPU|CORE): ?(\d+)")
_LINE = re.compile(r"( +)([A-Z][A-Z0-9_ -]*):(?: +(.*))?")
_PROCESS = ("process_info", "process_list.process_info")
_IDENTITY = ("bdf", "bus.bdf", "uuid", "asic.asic_serial", "asic.market_name", "vram.size", "mem_usage.total_vram")
_THERMAL = ("prochot", "socket_thermal", "vr_thermal", "hbm_thermal")


class Block:
    """What stands under one GPU: values by their dotted names, and the processes on it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.values: dict[str, str] = {}
        self.conflicts: set[str] = set()
        self.processes: list[dict[str, str]] = []
        self._within = False

    def add(self, name: str, value: str) -> None:
        """Keep a value; one that differs from another of the same name makes both void."""
        process = next((name.removeprefix(head) for head in _PROCESS if f"{name}.".startswith(f"{head}.")), None)
        if process is not None:
            self._add_process(process.removeprefix("."), value)
            return
        if self.values.setdefault(name, value) != value:
            self.conflicts.add(name)

    def _add_process(self, name: str, value: str) -> None:
        if not name:
            if not said(value):
                self.processes.append({})
            return
        if not self.processes:
            self.processes.append({})
        process = self.processes[-1]
        if process.setdefault(name, value) != value:
            process["conflict"] = name

    def get(self, *names: str) -> str:
        """Return the first value given under one of `names`, '' for none."""
        return next((self.values[n] for n in names if n not in self.conflicts and said(self.values.get(n))), "")


def read(text: str, *, as_counted: bool = False) -> Reading:
    """Return what `amd-smi list`, `static`, `metric`, `process` or `bad-pages` tells, with or without `--json`.

    Never raises. Devices of `list` and `static` have addresses; the others are known by the index alone, which counts
    parts: see `fold` for `as_counted`.
    """
    try:
        blocks, findings = _json_blocks(text) if is_json(text) else _text_blocks(text)
    except NotRead as error:
        return reading(findings=[error.finding])
    if len(blocks) > BLOCKS_MAX:
        told = f"{len(blocks)} GPUs, more than {BLOCKS_MAX}"
        return reading(findings=[Finding(code="unreadable", text=told)])
    rows, driver = [], set()
    processes: list[ProcessFacts] = []
    counts = collections.Counter(block.index for block in blocks)
    for index in (index for index, number in counts.items() if number > 1):
        findings.append(Finding(code="duplicate", text=f"GPU {index} stands twice", index=index))
    for block in (block for block in blocks if counts[block.index] == 1):
        lost = [name for name in _IDENTITY if name in block.conflicts]
        for name in sorted(block.conflicts):
            text_said = f"{name} stands twice with different values"
            findings.append(Finding(code="duplicate", text=short(text_said), index=block.index))
        if lost:
            continue
        rows.append(_row(block))
        driver.add(block.get("driver.version", "driver.driver_version"))
        processes += _processes(block, findings)
        findings += _ills(block)
    devices, contradictions = fold(rows, as_counted=as_counted)
    sole = driver - {""}
    return reading(
        devices=devices,
        processes=processes,
        findings=[*findings, *contradictions],
        driver=sole.pop() if len(sole) == 1 else "",
    )


def _text_blocks(text: str) -> tuple[list[Block], list[Finding]]:
    lines, findings = whole_lines(text)
    blocks: list[Block] = []
    loose: list[str] = []
    block: Block | None = None
    path: list[tuple[int, str]] = []
    last = ""
    others = orphans = 0
    for line in lines:
        heading, inner = _HEADING.fullmatch(line), _LINE.fullmatch(line)
        if heading:
            index, path, last = index_of(heading[2]), [], ""
            others += heading[1] != "GPU"
            block = None if index is None else Block(index)
            if block is not None and heading[1] == "GPU":
                blocks.append(block)
        elif not line:
            block = None
        elif not line.startswith(" "):
            block = None if line.startswith(("GPU", "CPU", "CORE")) else block
            loose.append(line)
        elif block is None:
            orphans += 1
        elif inner:
            path, last = _below(path, inner), ""
            last = ".".join(name for _, name in path)
            block.add(last, inner[3] or "")
        elif last in block.values and len(block.values[last]) < LINE_MAX_CHARACTERS:
            block.values[last] += f" {line.strip()}"  # a list continued on this line
    if orphans:  # a heading was lost or stands elsewhere: no line is known to be under its own
        blocks = []
        findings.append(Finding(code="cut", text=f"lines without the GPU that they belong to: {orphans}"))
    findings += errors_said(loose)
    if others and not blocks:
        findings.append(Finding(code="no_devices", text="only processors are described, no GPU"))
    if not blocks and loose and not findings:
        findings.append(Finding(code="unknown_format", text=short(loose[0])))
    return blocks, findings


def _below(path: list[tuple[int, str]], line: re.Match[str]) -> list[tuple[int, str]]:
    """Return the headings above a line and the line's own name."""
    indent = len(line[1])
    kept = [each for each in path if each[0] < indent]
    return [*kept[:DEPTH_MAX], (indent, line[2].strip().lower().replace(" ", "_"))]


def _json_blocks(text: str) -> tuple[list[Block], list[Finding]]:
    listed = read_json(text)
    if isinstance(listed, dict):
        listed = listed.get("gpu_data", [listed])
    blocks, findings = [], []
    processors = False
    for each in listed if isinstance(listed, list) else []:
        if not isinstance(each, dict):
            continue
        index = each.get("gpu")
        if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < 10**5:
            block = Block(index)
            for name, value in _flat(each):
                block.add(name, value)
            blocks.append(block)
        elif "cpu" in each or "cpu_data" in each:
            processors = True
        elif {"error", "error_code", "code", "message"} & set(each):
            told = f"{each.get('error', '')} {each.get('message', '')}"
            findings += errors_said([told]) or [Finding(code="tool_failed", text=short(told))]
        else:
            findings.append(Finding(code="unknown_format", text="an entry names no GPU"))
    if processors and not blocks:
        findings.append(Finding(code="no_devices", text="only processors are described, no GPU"))
    return blocks, findings


def _flat(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield values by their dotted names; `{"value": 10, "unit": "W"}` is `10 W`."""
    if depth > DEPTH_MAX:
        return
    if isinstance(value, dict):
        if set(value) == {"value", "unit"}:
            yield name, f"{value['value']} {value['unit']}"
            return
        if name in _PROCESS:
            yield name, ""
        for key, inner in value.items():
            own = str(key).lower().replace(" ", "_")
            yield from _flat(inner, f"{name}.{own}" if name else own, depth + 1)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            own = name if name == "process_list" else f"{name}.{at}"
            yield from _flat(inner, own, depth + 1)
    elif value is not None:
        yield name, str(value)


def _row(block: Block) -> Row:
    get = block.get
    degrees = values.degrees(get("temperature.hotspot"))
    facts = DeviceFacts(
        index=block.index,
        uuid=values.uuid(get("uuid")),
        pci=values.address(get("bdf", "bus.bdf")),
        model=values.model(get("asic.market_name")),
        serial=values.unique_id(get("asic.asic_serial")),
        numa_node=values.count(get("numa.node"), limit=1024),
        memory_bytes=values.memory_bytes(get("vram.size", "mem_usage.total_vram")),
        memory_used_bytes=values.memory_bytes(get("mem_usage.used_vram"), used=True),
        use_milli=values.percent_milli(get("usage.gfx_activity")),
        temperature_c=values.degrees(get("temperature.edge")) if degrees is None else degrees,
        power_mw=values.watts_mw(get("power.socket_power", "power.current_socket_power")),
        power_limit_mw=_power_limit(block),
        clock_mhz=values.clock_mhz(get("clock.gfx_0.clk")),
        ecc_corrected=values.count(get("ecc.total_correctable_count")),
        ecc_uncorrected=values.count(get("ecc.total_uncorrectable_count")),
    )
    return Row(
        facts=facts,
        mode=compute_mode(get("partition.compute_partition", "partition.accelerator_partition")),
        part=values.count(get("partition_id", "partition.partition_id"), limit=63),
        node=values.count(get("node_id"), limit=10**5),
    )


def _power_limit(block: Block) -> int | None:
    """Return the limit that is set, else (some APUs say 0 W) the highest that can be."""
    for name in ("limit.socket_power", "limit.ppt0.socket_power_limit", "limit.ppt0.max_power_limit"):
        limit = values.watts_mw(block.get(name), least=1)
        if limit is not None:
            return limit
    return None


def _processes(block: Block, findings: list[Finding]) -> Iterator[ProcessFacts]:
    for process in block.processes:
        pid = values.count(process.get("pid"), limit=2**31)
        if not pid or "conflict" in process:
            if said(process.get("name")) or "conflict" in process or pid == 0:
                text = "a process without one number of its own"
                findings.append(Finding(code="cut", text=text, index=block.index))
            continue
        memory = process.get("memory_usage.vram_mem")
        name = said(process.get("name"))
        yield ProcessFacts(
            pid=pid, index=block.index, name=short(name), memory_bytes=values.memory_bytes(memory, used=True)
        )


def _ills(block: Block) -> Iterator[Finding]:
    """Yield what is wrong with a device. Reaching the power limit is normal work and no finding."""

    def ill(code: str, text: str) -> Finding:
        return Finding(code=code, text=short(text), index=block.index)

    for name in ("uuid", "asic.asic_serial", "bdf", "bus.bdf"):
        if values.masked(block.values.get(name)):
            yield ill("masked", f"{name}: {block.values[name]}")
    errors = values.count(block.get("ecc.total_uncorrectable_count"))
    if errors:
        yield ill("ecc_uncorrected", f"uncorrectable memory errors: {errors}")
    if block.get("power.throttle_status").upper() == "THROTTLED":
        yield ill("throttled", "throttle status: THROTTLED")
    for name in _THERMAL:
        if block.get(f"throttle.{name}_violation_status").upper() == "ACTIVE":
            yield ill("throttled", f"{name.replace('_', ' ')} violation is active")
    for name, code in (
        ("retired", "pages_retired"),
        ("pending", "page_retirement_pending"),
        ("un_res", "pages_retired"),
    ):
        pages = " ".join(value for key, value in block.values.items() if key.partition(".")[0] == name)
        if said(pages) and "no bad pages" not in pages.lower():
            yield ill(code, f"bad pages, {name}: {pages}")
