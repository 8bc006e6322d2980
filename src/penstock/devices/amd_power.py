"""The limit of power of an AMD GPU: read from the kernel's files, set by `amd-smi`, which has to be run as root.

Source: the kernel's documentation of amdgpu, "hwmon interfaces": `power1_cap` and its bounds, in millionths of a watt.
"""

from collections.abc import Callable

from penstock.devices.power_limits import PowerLimits, set_by
from penstock.devices.provider import Output, Sources
from penstock.devices.reading import whole

TOOL = "amd-smi"
FILES = ("power1_cap", "power1_cap_default", "power1_cap_min", "power1_cap_max")


def limit_power(sources: Sources, pci: str, limit_mw: int) -> str:
    """Keep a GPU, by its address, to a limit (mW), 0: to its own; return '' or why it is not."""

    def change(*kind: str) -> Callable[[int], Output]:
        return lambda wanted_mw: sources.run(TOOL, "set", "-g", pci, "--power-cap", str(wanted_mw // 1000), *kind)

    return set_by(limit_mw, lambda: _limits(sources, pci), (change(), change("ppt0")))


def _limits(sources: Sources, pci: str) -> PowerLimits | None:
    folder = next(iter(sources.glob(f"/sys/bus/pci/devices/{pci}/hwmon/hwmon*")), "")
    numbers = [whole(sources.read(f"{folder}/{name}")) for name in FILES] if folder else []
    known = [number // 10**3 for number in numbers if number is not None]
    return PowerLimits(*known) if len(known) == len(FILES) else None
