"""Compute partitions: AMD's tools count each as a device of its own; here they are parts of one device.

Parts share the address of their device but for the function, and each shows the memory of the whole device. Two rows
at one address are parts only if the tool says so (different numbers of parts, or a mode that divides); otherwise they
contradict each other, and neither is taken.
"""

from collections.abc import Iterable, Sequence

import msgspec

from penstock.devices.amd_tools.values import base_address
from penstock.devices.reading import DeviceFacts, Finding, PartFacts, Reading, without_duplicates

DIVIDING = frozenset({"DPX", "TPX", "QPX", "CPX"})
WHOLE = frozenset({"SPX"})
PARTS_MAX = 8
"""Of one device: an MI300X has 8 dies that compute."""
NAMELESS_MAX = 8
"""Rows with an index alone that are taken for devices: one that counts further may count parts without saying so."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool counts as a device: a device, or a part of one."""

    facts: DeviceFacts
    mode: str = ""
    """How the device is divided: `SPX` (not at all), `CPX` and so on."""
    part: int | None = None
    """Number of the part on its device, from 0."""
    first: int | None = None
    """Index of the first part of the device, where it is known."""
    node: int | None = None
    """Number in the kernel's topology: each part has its own."""


def compute_mode(text: str) -> str:
    """Return the compute mode of `SPX/NPS1`, `NPS1, SPX, 0` or `CPX`; '' for none."""
    words = text.upper().replace("/", " ").replace(",", " ").split()
    return next((word for word in words if word in DIVIDING | WHOLE), "")


def fold(rows: Iterable[Row], *, as_counted: bool = False) -> tuple[list[DeviceFacts], list[Finding]]:
    """Return the devices of rows, with their parts, and findings for rows that contradict each other.

    `as_counted` leaves each row a device of its own, for `joining.join`, which knows whose parts they are.
    """
    devices: list[DeviceFacts] = []
    findings: list[Finding] = []
    distinct = _distinct(rows, findings)
    if as_counted:
        return [row.facts for row in distinct], findings
    nameless = [row for row in distinct if not (row.facts.pci or row.facts.uuid) and row.first is None]
    if any((row.facts.index or 0) >= NAMELESS_MAX for row in nameless):
        told = f"{len(nameless)} rows with an index alone may be parts of devices: it is not said of which"
        return [], [*findings, Finding(code="parts_unknown", text=told)]
    for group in _groups(distinct):
        device = _device(group)
        if isinstance(device, Finding):
            findings.append(device)
        else:
            devices.append(device)
    kept, twice = without_duplicates(devices)
    return list(kept), [*findings, *twice]


def _distinct(rows: Iterable[Row], findings: list[Finding]) -> list[Row]:
    """Return rows whose index no other row has; one that stands twice the same is one."""
    by_index: dict[int | None, list[Row]] = {}
    for row in rows:
        same = by_index.setdefault(row.facts.index, [])
        if row not in same:
            same.append(row)
    kept = []
    for index, same in by_index.items():
        if index is None or len(same) == 1:
            kept += same
        else:
            text = f"{len(same)} different devices have the index {index}"
            findings.append(Finding(code="duplicate", text=text, index=index))
    return kept


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Return rows of the same device together: by address, else by id."""
    groups: dict[object, list[Row]] = {}
    for at, row in enumerate(rows):
        nameless: object = at if row.first is None else ("first", row.first)
        identity = base_address(row.facts.pci) or row.facts.uuid or nameless
        groups.setdefault(identity, []).append(row)
    return list(groups.values())


def _device(group: list[Row]) -> DeviceFacts | Finding:
    group = sorted(group, key=lambda row: (row.part or 0, row.facts.index or 0))
    first = group[0]
    facts = first.facts
    if len(group) == 1:
        return _single(first)
    if not _are_parts(group):
        where = facts.pci or facts.uuid
        text = f"{len(group)} rows at {where} that are not parts of one device"
        return Finding(code="duplicate", text=text, index=facts.index, pci=facts.pci, uuid=facts.uuid)
    if first.part not in (None, 0):
        return _without_first(first)
    return msgspec.structs.replace(
        facts,
        partitioned=True,
        use_milli=use_of([row.facts for row in group]),
        parts=tuple(_part(row, facts) for row in group),
    )


def use_of(parts: Sequence[DeviceFacts]) -> int | None:
    """Return the use of a device by that of its parts: the mean, or the first's where the others tell none."""
    uses = [part.use_milli for part in parts if part.use_milli is not None]
    if len(uses) == len(parts):
        return round(sum(uses) / len(uses))
    return uses[0] if len(uses) == 1 and parts[0].use_milli is not None else None


def _single(row: Row) -> DeviceFacts | Finding:
    if row.part:
        return _without_first(row)
    if row.mode in DIVIDING:
        return msgspec.structs.replace(row.facts, partitioned=True, parts=(_part(row, row.facts),))
    return msgspec.structs.replace(row.facts, partitioned=False) if row.mode in WHOLE else row.facts


def _without_first(row: Row) -> Finding:
    facts = row.facts
    text = f"part {row.part} of a device whose first part is missing"
    return Finding(code="cut", text=text, index=facts.index, pci=facts.pci, uuid=facts.uuid)


def _part(row: Row, device: DeviceFacts) -> PartFacts:
    own = row.facts.uuid if row.facts.uuid != device.uuid else ""
    return PartFacts(
        profile=row.mode if row.mode in DIVIDING else "", index=row.facts.index, instance=row.part, uuid=own
    )


def _are_parts(group: Sequence[Row]) -> bool:
    if len(group) > PARTS_MAX or any(row.mode in WHOLE for row in group):
        return False
    if any(len({getattr(row.facts, name) for row in group}) > 1 for name in ("model", "memory_bytes", "serial")):
        return False
    if len({row.mode for row in group}) > 1:
        return False
    numbers = {row.part for row in group}
    if None not in numbers:
        return len(numbers) == len(group)
    nodes = {row.node for row in group}
    if None not in nodes:
        return numbers == {None} and len(nodes) == len(group)
    return numbers == {None} and group[0].mode in DIVIDING


def device_of(inventory: Reading) -> dict[int, int]:
    """Return the index of the device by what the tool counts: each device's own, and those of its parts."""
    owners = {device.index: device.index for device in inventory.devices if device.index is not None}
    for device in inventory.devices:
        for part in device.parts:
            if part.index is not None and device.index is not None:
                owners[part.index] = device.index
    return owners
