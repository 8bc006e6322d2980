"""The providers of all vendors but NVIDIA, and those of installed packages.

Not in the list: Hygon. Its runtime reads HIP_VISIBLE_DEVICES, which AMD's reads too and takes for something else.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

from penstock.devices.amd import Amd
from penstock.devices.cambricon import Cambricon
from penstock.devices.gaudi import Gaudi
from penstock.devices.huawei import Huawei
from penstock.devices.installed import ENTRY_POINTS
from penstock.devices.intel import Intel
from penstock.devices.mthreads import MooreThreads
from penstock.devices.neuron import Neuron
from penstock.devices.provider import DeviceProvider
from penstock.devices.reading import Finding, short
from penstock.devices.tpu import Tpu

PROVIDERS: tuple[DeviceProvider, ...] = (
    Amd(),
    Huawei(),
    Gaudi(),
    Intel(),
    Tpu(),
    Neuron(),
    Cambricon(),
    MooreThreads(),
)
OWN = frozenset({"nvidia", "simulated", *(provider.vendor for provider in PROVIDERS)})
"""Vendors that no package may offer a provider for."""
MEMBERS = ("variables", "files", "is_present", "inventory", "sample", "closed_files", "container_flags")


class Installed(NamedTuple):
    """The providers of installed packages by vendor, and why others are left out."""

    providers: tuple[DeviceProvider, ...]
    findings: tuple[Finding, ...]


def installed_providers() -> Installed:
    """Return the providers that packages offer as entry points of the group `penstock.devices`, loaded.

    An entry point refers to a provider, or to a class that makes one without arguments; its name is the vendor's. One
    that cannot be taken is a finding with its name: an error in a package must not cost the devices of others.
    """
    providers: list[DeviceProvider] = []
    findings: list[Finding] = []
    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=ENTRY_POINTS):
        if point not in points.setdefault(point.name, []):
            points[point.name].append(point)
    for name, offered in sorted(points.items()):
        provider, fault = _load(name, offered)
        if provider is not None:
            providers.append(provider)
        if fault:
            findings.append(Finding(code="tool_failed", text=short(f"the device provider '{name}' {fault}")))
    return Installed(tuple(providers), tuple(findings))


def _load(name: str, offered: list[EntryPoint]) -> tuple[DeviceProvider | None, str]:
    """Return a provider, or None and what is wrong with it."""
    places = ", ".join(sorted({point.value for point in offered}))
    if name in OWN:
        return None, f"({places}) is for a vendor that Penstock has a provider for"
    if len({point.value for point in offered}) > 1:
        return None, f"is offered by more than one package: {places}"
    try:
        loaded = offered[0].load()
        provider = loaded() if isinstance(loaded, type) else loaded
        vendor = getattr(provider, "vendor", None)
        missing = [member for member in MEMBERS if not hasattr(provider, member)]
    except Exception as error:  # noqa: BLE001 - whatever a package's code raises, the other providers work
        return None, f"({places}) cannot be loaded: {type(error).__name__}: {error}"
    if missing:
        return None, f"({places}) has no {', '.join(missing)}"
    if vendor != name:
        return None, f"({places}) calls its vendor {vendor!r}"
    return provider, ""
