"""The device providers, and their answers put together: devices, variables, closed files.

A vendor is added by a module beside this one and a line in `PROVIDERS`.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.core.model.resources import Device, Discovery
from penstock.devices.nvidia import Nvidia

if TYPE_CHECKING:  # agents load this module
    from penstock.ports import DeviceProvider

PROVIDERS: "tuple[DeviceProvider, ...]" = (Nvidia(),)
UNDISCOVERED: dict[str, tuple[str, ...]] = {
    "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "huawei": ("ASCEND_RT_VISIBLE_DEVICES",),
    "intel": ("HABANA_VISIBLE_MODULES",),
    "google": ("TPU_VISIBLE_CHIPS",),
}
"""Variables of vendors without a provider yet: set all the same, or a program would see all devices of theirs."""


def discovered() -> Discovery:
    """Return all devices of this machine, numbered through, and a sentence on each vendor."""
    devices: list[Device] = []
    notes = []
    for provider in PROVIDERS:
        discovery = provider.discover()
        first = len(devices)
        devices += [_from(first, device) for device in discovery.devices]
        notes.append(f"{provider.vendor}: {discovery.note}")
    return Discovery(tuple(devices), "; ".join(notes))


def _from(first: int, device: Device) -> Device:
    """Return a device whose vendor's devices begin at `first`."""
    links = tuple(replace(link, peer=first + link.peer) for link in device.links)
    return replace(device, index=first + device.index, links=links)


def visibility(devices: Sequence[Device]) -> dict[str, str]:
    """Return the variables that show a replica `devices` (of one node) and no others.

    Every vendor's list is set, to nothing where the replica has none of that vendor: a program without devices must
    not see all of them. Simulated devices appear in `PENSTOCK_DEVICES` alone: no driver knows them.
    """
    listing = {provider.vendor: provider.variables for provider in PROVIDERS} | UNDISCOVERED
    variables: dict[str, str] = {}
    for vendor, names in listing.items():
        listed = ",".join(d.uuid or str(d.index) for d in devices if d.vendor == vendor and not d.simulated)
        variables |= dict.fromkeys(names, listed)
    variables["PENSTOCK_DEVICES"] = ",".join(str(d.index) for d in devices)
    variables["PENSTOCK_DEVICES_SIMULATED"] = "1" if any(d.simulated for d in devices) else "0"
    return variables


def closed_files(given: Sequence[Device], here: Iterable[Device]) -> tuple[str, ...]:
    """Return the files, as `c MAJOR:MINOR`, that a program may not open which was given some of the devices here."""
    known = tuple(here)
    return tuple(file for provider in PROVIDERS for file in provider.closed_files(given, known))
