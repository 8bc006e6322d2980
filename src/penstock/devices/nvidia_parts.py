"""Instances of MIG as devices, where the device that they are of is not ours to use.

A container that was given an instance, and a user without rights, see a device that is divided, but are refused its
memory and the places of its instances: they can use the instances, by their own uuids, and nothing else of it.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, PartFacts, ProcessFacts, Reading

Named = TypeVar("Named", ProcessFacts, Finding)


def parts_alone(devices: Iterable[DeviceFacts]) -> tuple[DeviceFacts, ...]:
    """Return the devices of which only instances can be used."""
    return tuple(device for device in devices if _refused(device))


def _refused(device: DeviceFacts) -> bool:
    usable = [part for part in device.parts if part.uuid and part.memory_bytes and part.start is None]
    return bool(device.partitioned and device.memory_bytes is None and usable and len(usable) == len(device.parts))


def as_devices(reading: Reading, alone: Collection[DeviceFacts]) -> Reading:
    """Return a reading in which the instances of some devices are devices, counted from 0 where they were.

    What is said of the whole device is said of each of its instances; processes and findings of an instance are of that
    one. Its links are left out: instances have none.

    Args:
        alone: these devices, as an inventory had them.
    """
    if not alone:
        return reading
    devices = [each for device in reading.devices for each in _split(device, alone)]
    counted = any(device.index is not None for device in reading.devices)
    places = {device.uuid or device.pci: at for at, device in enumerate(devices)}
    moved = {
        device.index: places[device.uuid or device.pci]
        for device in reading.devices
        if device.index is not None and (device.uuid or device.pci) in places
    }
    return replace(
        reading,
        devices=tuple(replace(device, index=at if counted else None) for at, device in enumerate(devices)),
        links=tuple(
            LinkFacts(moved[link.device], moved[link.peer], link.kind)
            for link in reading.links
            if {link.device, link.peer} <= moved.keys()
        ),
        processes=tuple(each for process in reading.processes for each in _named(process, alone)),
        findings=tuple(each for finding in reading.findings for each in _named(finding, alone)),
    )


def _whole(named: DeviceFacts | ProcessFacts | Finding, alone: Iterable[DeviceFacts]) -> DeviceFacts | None:
    return next(
        (
            device
            for device in alone
            if (named.uuid and named.uuid == device.uuid) or (named.pci and named.pci == device.pci)
        ),
        None,
    )


def _split(device: DeviceFacts, alone: Iterable[DeviceFacts]) -> Iterator[DeviceFacts]:
    whole = _whole(device, alone)
    if whole is None:
        yield device
        return
    profiles = {part.uuid: part.profile for part in whole.parts}
    for part in device.parts:
        if part.uuid in profiles:
            model = f"{device.model} MIG {profiles[part.uuid]}".strip() if device.model else ""
            yield replace(
                device,
                uuid=part.uuid,
                pci="",
                model=model,
                serial="",
                memory_bytes=part.memory_bytes,
                memory_used_bytes=part.memory_used_bytes,
                partitioned=None,
                parts=(),
            )


def _named(one: Named, alone: Iterable[DeviceFacts]) -> Iterator[Named]:
    """Yield something once for each instance that it is of."""
    whole = _whole(one, alone)
    if whole is None:
        yield one
        return
    parts: list[PartFacts] = [part for part in whole.parts if one.instance in (None, part.instance)]
    for part in parts:
        yield replace(one, uuid=part.uuid, pci="", instance=None)
