"""The device providers, and what is asked of all of them: devices, variables, closed files.

A vendor is added by a module beside this one and a line in `vendors.py`, or by a package (`provider.py`). Agents load
this module: a provider is loaded only where a node has devices of its vendor.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from penstock.core.model.resources import Device, Discovery

if TYPE_CHECKING:
    from penstock.devices.provider import DeviceProvider

ENTRY_POINTS = "penstock.devices"
"""The group under which packages name their providers."""
VARIABLES: dict[str, tuple[str, ...]] = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("ROCR_VISIBLE_DEVICES",),
    "huawei": ("ASCEND_RT_VISIBLE_DEVICES",),
    "habana": ("HABANA_VISIBLE_MODULES",),
    "intel": ("ZE_AFFINITY_MASK",),
    "google": ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"),
    "aws": ("NEURON_RT_VISIBLE_CORES",),
    "cambricon": ("MLU_VISIBLE_DEVICES",),
    "mthreads": ("MUSA_VISIBLE_DEVICES",),
}
"""Variables by vendor that list the devices which a program sees: set for all of them, or a program without devices
would see all of that vendor. As the providers have them, which are not loaded for it."""


def installed_providers() -> "tuple[DeviceProvider, ...]":
    """Return the providers of Penstock, and those of installed packages."""
    from penstock.devices import vendors
    from penstock.devices.nvidia import Nvidia

    return (Nvidia(), *vendors.PROVIDERS, *vendors.installed_providers().providers)


def discovered() -> Discovery:
    """Return all devices of this machine, numbered through, and a sentence on each vendor that is here.

    The providers of packages that cannot be loaded are named, too.
    """
    from penstock.devices import vendors
    from penstock.devices.inventory import discovered as found

    here = found(installed_providers())
    faults = [one.text for one in vendors.installed_providers().findings]
    return Discovery(here.devices, "; ".join([here.note, *faults]))


def present() -> frozenset[str]:
    """Return the vendors whose devices, or driver, may be on this machine. Cheap: looks at files only."""
    from penstock.devices.provider import Machine

    return frozenset(one.vendor for one in installed_providers() if one.is_present(Machine()))


def visibility(devices: Sequence[Device]) -> dict[str, str]:
    """Return the variables that show a replica `devices` (of one node) and no others.

    Every vendor's list is set, to nothing where the replica has none of that vendor: a program without devices must
    not see all of them. HIP counts within what ROCR has left, and so do frameworks on it: without HIP_VISIBLE_DEVICES
    PyTorch 2.5 takes CUDA_VISIBLE_DEVICES, which is empty, for the list of AMD devices. Simulated devices appear in
    Penstock's own variables alone: no driver knows them.
    """
    variables: dict[str, str] = {}
    for vendor, names in (VARIABLES | of_packages()).items():
        listed = ",".join(d.uuid or str(d.index) for d in devices if d.vendor == vendor and not d.simulated)
        variables |= dict.fromkeys(names, listed)
    if listed := variables["ROCR_VISIBLE_DEVICES"]:
        variables["HIP_VISIBLE_DEVICES"] = ",".join(map(str, range(listed.count(",") + 1)))
    variables["PENSTOCK_DEVICE_UUIDS"] = ",".join(d.uuid for d in devices if d.uuid)
    variables["PENSTOCK_DEVICES"] = ",".join(str(d.index) for d in devices)
    variables["PENSTOCK_DEVICES_SIMULATED"] = "1" if any(d.simulated for d in devices) else "0"
    return variables


@cache
def of_packages() -> dict[str, tuple[str, ...]]:
    """Return the variables of vendors that only installed packages know; no provider is loaded where there is none."""
    if not entry_points(group=ENTRY_POINTS):
        return {}
    return {one.vendor: one.variables for one in installed_providers()}


def closed_files(given: Sequence[Device], here: Iterable[Device]) -> tuple[str, ...]:
    """Return the files, as `c MAJOR:MINOR`, that a program may not open which was given some of the devices here."""
    known = tuple(here)
    vendors = {device.vendor for device in known if not device.simulated}
    if not vendors:
        return ()
    return tuple(
        file for one in installed_providers() if one.vendor in vendors for file in one.closed_files(given, known)
    )
