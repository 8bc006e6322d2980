"""The devices of this machine for a node's specification: each vendor's inventory, taken by a process of its own."""

import subprocess
from collections.abc import Iterable, Sequence

import msgspec

from penstock import starts
from penstock.core.model.resources import Device, DeviceLink, Discovery, LinkKind
from penstock.core.model.words import counted
from penstock.devices.isolation import isolation_of
from penstock.devices.provider import DeviceProvider, Machine, Sources
from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, Reading
from penstock.devices.samples import decode

LIMIT_S = 60.0
"""For the inventory of one vendor."""


def discovered(providers: Sequence[DeviceProvider], sources: Sources | None = None) -> Discovery:
    """Return all devices of this machine, numbered through, and a sentence on each vendor that is here."""
    here = [one for one in providers if one.is_present(sources or Machine())]
    found = joined([(one.vendor, reading) for one, reading in zip(here, _inventories(here), strict=True)])
    devices = tuple(msgspec.structs.replace(device, isolation=isolation_of(device)) for device in found.devices)
    return Discovery(devices, found.note)


def joined(inventories: Iterable[tuple[str, Reading]]) -> Discovery:
    """Return the devices of several vendors' inventories, numbered through."""
    devices: list[Device] = []
    notes = []
    for vendor, reading in inventories:
        discovery = from_reading(vendor, reading)
        first = len(devices)
        devices += [_from(first, device) for device in discovery.devices]
        notes.append(f"{vendor}: {discovery.note}")
    return Discovery(tuple(devices), "; ".join(notes) or "no accelerator, and no driver of one")


def in_order(known: Sequence[Device], found: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices of an inventory in the order in which a node has offered them, new ones last.

    Programs hold devices by their numbers, so none may change its number while a node's agent lives. A known device
    that was not found stays as it is. Devices without a uuid are compared by their place among those of their vendor.
    """
    names = [_names(known), _names(found)]
    places = {name: at for at, name in enumerate(names[0])}
    for name in names[1]:
        places.setdefault(name, len(places))
    devices = dict(enumerate(known))
    for one, name in zip(found, names[1], strict=True):
        links = [msgspec.structs.replace(link, peer=places[names[1][link.peer]]) for link in one.links]
        links.sort(key=lambda link: link.peer)
        devices[places[name]] = msgspec.structs.replace(one, index=places[name], links=tuple(links))
    return tuple(devices[at] for at in sorted(devices))


def _names(devices: Sequence[Device]) -> list[tuple[str, str | int]]:
    """Return what distinguishes each device on its machine."""
    counts: dict[str, int] = {}
    found: list[tuple[str, str | int]] = []
    for one in devices:
        place = counts[one.vendor] = counts.get(one.vendor, -1) + 1
        found.append((one.vendor, one.uuid or place))
    return found


def _inventories(providers: Sequence[DeviceProvider]) -> list[Reading]:
    """Return the inventory of each provider; those that hang or crash cost a finding. All at once."""
    begun = [
        subprocess.Popen(  # noqa: S603 - this program itself
            starts.python("penstock.devices.process", "--once", "--vendor", one.vendor),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=starts.HOME,
            env=starts.environment(),
        )
        for one in providers
    ]
    return [_answer(one) for one in begun]


def _answer(process: "subprocess.Popen[bytes]") -> Reading:
    try:
        printed, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return Reading(findings=(Finding(code="tool_timeout", text="the driver does not answer"),))
    try:
        return decode(printed).reading
    except msgspec.DecodeError:
        return Reading(findings=(Finding(code="tool_failed", text=f"the provider ended ({process.returncode})"),))


def from_reading(vendor: str, reading: Reading) -> Discovery:
    """Return the devices of one vendor's inventory as a node offers them; those without a known memory are left out."""
    kept = [one for one in reading.devices if one.memory_bytes and one.model]
    place = {one.index if one.index is not None else at: at for at, one in enumerate(kept)}
    links = _links(reading.links, place)
    ill = {name for one in reading.findings if one.effect == "close" for name in (one.uuid, one.pci) if name}
    devices = tuple(_device(vendor, at, one, links.get(at, ()), ill) for at, one in enumerate(kept))
    return Discovery(devices, _note(reading, len(devices)))


def _device(vendor: str, at: int, one: DeviceFacts, links: tuple[DeviceLink, ...], ill: Iterable[str]) -> Device:
    return Device(
        index=at,
        vendor=vendor,
        model=one.model,
        memory_bytes=one.memory_bytes or 0,
        capability=one.capability or (0, 0),
        numa_node=one.numa_node or 0,
        links=links,
        uuid=one.uuid,
        healthy=not {one.uuid, one.pci} & set(ill),
        mig=bool(one.partitioned),
        mig_mode=bool(one.partitioned) and vendor == "nvidia",
        power_limit_mw=one.power_limit_mw or 0,
    )


def _links(links: Sequence[LinkFacts], place: dict[int, int]) -> dict[int, tuple[DeviceLink, ...]]:
    """Return the links of each device; a reading names a pair once or from both ends."""
    found: dict[int, dict[int, LinkKind]] = {}
    for link in links:
        for one, other in ((link.device, link.peer), (link.peer, link.device)):
            if one in place and other in place:
                found.setdefault(place[one], {})[place[other]] = link.kind
    return {at: tuple(DeviceLink(peer, kind) for peer, kind in sorted(known.items())) for at, known in found.items()}


def _note(reading: Reading, count: int) -> str:
    texts = [one.text or one.code for one in reading.findings if one.effect != "none"]
    driver = f", driver {reading.driver}" if reading.driver else ""
    return "; ".join([f"{counted(count, 'device')}{driver}", *texts[:4]])


def _from(first: int, device: Device) -> Device:
    """Return a device whose vendor's devices begin at `first`."""
    links = tuple(msgspec.structs.replace(link, peer=first + link.peer) for link in device.links)
    return msgspec.structs.replace(device, index=first + device.index, links=links)
