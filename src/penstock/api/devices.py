"""Devices of all nodes as the API shows them, with what they report at present."""

import msgspec

from penstock.api.types import PagedList


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One device. Figures are null where the device, or its driver, does not report them; use is in thousandths."""

    id: str
    """`NODE/INDEX`."""
    node: str
    index: int
    vendor: str
    model: str
    pool: str
    state: str
    """`free`, `held` (by jobs), `taken` (by programs outside Penstock), `closed` (it has failed, or was closed), or
    `unavailable` (its node takes no work)."""
    simulated: bool = False
    job: int | None = None
    """The holder, where the caller may see that job."""
    reason: str = ""
    """Why it is not free, as far as the caller may know it."""
    memory_bytes: int
    memory_used_bytes: int | None = None
    use_milli: int | None = None
    """Part of the time that it computed."""
    temperature_c: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    energy_mj: int | None = None
    """Since its driver was loaded."""
    clock_mhz: int | None = None
    throttled: list[str] = []
    """Why its clocks are held down: `power`, `heat`, `hardware`."""
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    link_errors: int | None = None
    measured_ms: int | None = None
    """When the figures were reported; null: its node does not watch it, or is silent."""


class DeviceList(PagedList, frozen=True):
    """Devices by node and index, unless another order was asked for."""

    devices: list[DeviceRow]
    totals: dict[str, int] = msgspec.field(default_factory=dict)
    """Devices that match, by state."""
    notes: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """By node: what its drivers do not say at present, and why."""


class DeviceCurve(msgspec.Struct, frozen=True):
    """The means of a device over the last hour's minutes; null where nothing was reported."""

    device: DeviceRow
    from_ms: list[int]
    """When each minute began."""
    use_milli: list[int | None]
    memory_used_bytes: list[int | None]
    power_mw: list[int | None]
    temperature_c: list[int | None]
