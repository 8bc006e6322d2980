"""Which level of isolation a node reaches for fractions of a device: the strongest that it can hold them to."""

from penstock import starts
from penstock.core.model.resources import Device, Isolation
from penstock.devices.mps import CONTROL, is_for

LIMITED_BY_FRAMEWORKS = frozenset({"nvidia", "amd", "huawei"})
"""Vendors for whose devices frameworks keep a limit of memory that they get."""
MEASURED_BY_PROCESS = frozenset({"nvidia", "amd", "huawei", "cambricon", "mthreads"})
"""Vendors whose tools say how much memory of a device each process has."""


def isolation_of(device: Device) -> Isolation:
    """Return the level for a real device; `driver` where the programs of MPS are installed."""
    if is_for(device) and starts.tool(CONTROL) is not None:
        return "driver"
    if device.vendor in LIMITED_BY_FRAMEWORKS:
        return "cooperative"
    return "watched" if device.vendor in MEASURED_BY_PROCESS else "none"
