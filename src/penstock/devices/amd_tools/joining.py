"""One inventory of several outputs: addresses and ids of one, live figures and links of others, parts folded."""

from collections.abc import Iterable, Iterator

import msgspec

from penstock.devices.amd_tools.parts import device_of, use_of
from penstock.devices.amd_tools.topology import within
from penstock.devices.reading import DeviceFacts, Finding, ProcessFacts, Reading

SUMMED = ("use_milli",)
"""Each part of a device has its own; all other figures that parts show are those of the whole device."""


def join(inventory: Reading, *others: Reading) -> Reading:
    """Return the devices of `inventory` with what `others`, of the same tool, know more of them.

    `others` were read `as_counted`, so that figures of parts come to their device. What stands in `inventory` stays. A
    device that another reading knows by another address or id is a finding, and keeps what it had. Devices that
    `inventory` does not have are left out. Processes name the device; those on a part have its number as instance.
    """
    owners = device_of(inventory)
    instances = {
        part.index: part.instance for device in inventory.devices for part in device.parts if part.index is not None
    }
    devices = {device.index: device for device in inventory.devices if device.index is not None}
    findings = list(inventory.findings)
    processes = list(_on_devices(inventory.processes, owners, instances))
    links = {(link.device, link.peer): link for link in inventory.links}
    for other in others:
        rows: dict[int, list[DeviceFacts]] = {}
        for row in other.devices:
            if row.index in owners:
                rows.setdefault(owners[row.index], []).append(row)
        for index, group in rows.items():
            joined = _joined(devices[index], group)
            if isinstance(joined, Finding):
                findings.append(joined)
            else:
                devices[index] = joined
        processes += _on_devices(other.processes, owners, instances)
        for link in within(other.links, owners):
            links.setdefault((link.device, link.peer), link)
        findings += [_on_device(finding, owners) for finding in other.findings]
    return Reading(
        devices=tuple(devices.get(d.index, d) if d.index is not None else d for d in inventory.devices),
        links=tuple(links[pair] for pair in sorted(links)),
        processes=tuple(dict.fromkeys(processes)),
        findings=tuple(dict.fromkeys(findings)),
        driver=next(filter(None, (inventory.driver, *(other.driver for other in others))), ""),
    )


def _joined(device: DeviceFacts, rows: list[DeviceFacts]) -> DeviceFacts | Finding:
    """Return a device with what rows of it, or of its parts, tell more; a finding if they are of another device."""
    rows = sorted(rows, key=lambda row: row.index or 0)
    first = rows[0]
    if first.index == device.index and any(
        getattr(device, name) and getattr(first, name) and getattr(device, name) != getattr(first, name)
        for name in ("uuid", "pci", "serial", "memory_bytes")
    ):
        text = "two outputs describe different devices with this index"
        return Finding(code="duplicate", text=text, index=device.index, uuid=device.uuid, pci=device.pci)
    news = {
        name: getattr(first, name)
        for name in DeviceFacts.__struct_fields__
        if name not in ("index", *SUMMED) and getattr(device, name) in (None, "", ()) and getattr(first, name)
    }
    if device.use_milli is None and len(rows) == max(1, len(device.parts)):
        news["use_milli"] = use_of(rows)
    return msgspec.structs.replace(device, **news)


def _on_devices(
    processes: Iterable[ProcessFacts], owners: dict[int, int], instances: dict[int, int | None]
) -> Iterator[ProcessFacts]:
    for process in processes:
        if process.index in owners:
            instance = instances.get(process.index, process.instance)
            yield msgspec.structs.replace(process, index=owners[process.index], instance=instance)
        else:
            yield process


def _on_device(finding: Finding, owners: dict[int, int]) -> Finding:
    index = finding.index if finding.index is None else owners.get(finding.index, finding.index)
    return finding if index == finding.index else msgspec.structs.replace(finding, index=index)
