"""What a node measured of a replica: use of its devices, their energy, and its processor time."""

from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.core.model.ids import AttemptNumber, JobId

POWER_MAX_MW = 5_000_000
"""Of one device: a report above it is wrong. The strongest accelerators draw 1.4 kW."""

CPUS_MAX = 4_096
"""Of one node."""


class Measured(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sums over the life of a replica; None: not measured.

    Times are device-milliseconds: two devices for a second are 2,000, half a device is 500. What was not measured, in
    gaps between readings, is in none of them.
    """

    measured_ms: int = 0
    """Over which it is known how busy its devices were."""
    busy_ms: int | None = None
    """Of these, in which they computed."""
    powered_ms: int = 0
    """Over which the energy of its devices is known."""
    energy_mj: int | None = None
    """Used in that time."""
    device_memory_peak_bytes: int | None = None
    """The most that its processes held on all its devices at one time."""
    devices_touched: int | None = None
    """Of how many of its devices it has made use; None where that cannot be known."""
    cpu_ms: int | None = None
    """Processor time of all its processes."""

    @property
    def mean_power_mw(self) -> int | None:
        """Mean power of one device while its energy was measured."""
        return self.energy_mj * 1000 // self.powered_ms if self.energy_mj is not None and self.powered_ms else None


class UseMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the log last said of the measured use of a job's devices (`UseNoted`); times are unix ms."""

    attempt: AttemptNumber = AttemptNumber(0)
    noted_ms: int = 0
    busy_milli: int = 0
    untouched: int = 0
    idle_since_ms: int = 0
    """Since when they have been idle; 0: they are not."""
    covered_ms: int = 0
    """Of the time before the note, as much as was measured."""
    memory_peak_bytes: int = 0
    steps: int = 0
    step_us: int = 0
    """How long each of these steps took, on average; 0 where that is not known."""
    beside: JobId | None = None
    """The job that shared its device in that time."""


_SUMMED = ("measured_ms", "busy_ms", "powered_ms", "energy_mj", "cpu_ms")


def total(*parts: Measured | None) -> Measured | None:
    """Return the sums of replicas, or attempts; None where none was measured.

    Peaks and devices that were made use of are of one replica: they have no sum.
    """
    known = [one for one in parts if one is not None]
    sums: dict[str, Any] = {name: added(getattr(one, name) for one in known) for name in _SUMMED}
    return Measured(**sums) if known else None


def added(amounts: Iterable[int | None]) -> int | None:
    """Return the sum of what is known; None where nothing is."""
    known = [one for one in amounts if one is not None]
    return sum(known) if known else None


def is_possible(told: Measured, *, devices: int, device_memory_bytes: int, lived_ms: int) -> bool:
    """Return whether a replica can have used this: a node whose key was stolen can report anything.

    Args:
        devices: that it holds; a part of one counts as one.
        device_memory_bytes: of all of them.
        lived_ms: since its places were given out, with what clocks may differ by.
    """
    numbers = [value for name in Measured.__struct_fields__ if (value := getattr(told, name)) is not None]
    return (
        all(value >= 0 for value in numbers)
        and max(told.measured_ms, told.powered_ms) <= devices * lived_ms
        and (told.busy_ms or 0) <= told.measured_ms
        and (told.energy_mj or 0) * 1000 <= POWER_MAX_MW * told.powered_ms
        and (told.device_memory_peak_bytes or 0) <= device_memory_bytes
        and (told.devices_touched or 0) <= devices
        and (told.cpu_ms or 0) <= CPUS_MAX * lived_ms
    )
