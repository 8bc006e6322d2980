"""Two jobs on one device: when a pool puts them together and parts them, and the events of it.

What each of the two holds is in `gang.py`: agents load that.
"""

import msgspec

from penstock.core.model.event import Event
from penstock.core.model.gang import Pairing
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.model.resources import WHOLE_DEVICE_MILLI

PAIR, PART = "pair", "part"
"""Rules by which a job leaves its device: to join another one on its device, and to leave the other one."""
PARTED_MAX = 16
"""Jobs from which a job was parted that are remembered, the last ones."""


class DeviceShared(Event, tag=True, frozen=True, omit_defaults=True):
    """A running attempt holds only half of its device from now on: another job joins it there."""

    job_id: JobId
    attempt: AttemptNumber
    pairing: Pairing


class DeviceShareEnded(Event, tag=True, frozen=True, omit_defaults=True):
    """A running attempt has its device for itself again: the job that shared it has left."""

    job_id: JobId
    attempt: AttemptNumber


class SharingSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """When jobs share a device and when no longer. Raises ValueError for a value out of range."""

    use_below_milli: int = 500
    """Each of the two must have been measured below this (1 to 1000)."""
    window_ms: int = 600_000
    """Utilisation counts only when it was measured for at least this long."""
    memory_margin_milli: int = 100
    """Share of the device's memory that stays free beside the two (0 to 999)."""
    across_tenants: bool = False
    """Whether jobs of two tenants may share one device."""
    slowdown_milli: int = 1_200
    """A job whose step takes more than this, in thousandths of its step alone, is parted from the other (> 1000)."""
    steps: int = 20
    """Steps measured together before a pair is judged."""
    cool_down_ms: int = 3_600_000
    """How long two jobs that were parted are not proposed again."""
    jobs_max: int = 256
    """Candidates of one call, the least utilised first; the others get their turn once these are paired."""
    exact_jobs_max: int = 12
    """Groups of candidates are matched exactly up to this size, larger ones greedily (0 to 14)."""
    use_above_milli: int = 950
    """Where neither job reports steps, they are parted when their device is busy for more than this (1 to 1000)."""
    enabled: bool = True
    """Whether jobs that say `shareable` are put together at all."""

    def __post_init__(self) -> None:
        _within("use_below_milli", self.use_below_milli, 1, WHOLE_DEVICE_MILLI)
        _within("memory_margin_milli", self.memory_margin_milli, 0, WHOLE_DEVICE_MILLI - 1)
        _within("slowdown_milli", self.slowdown_milli, WHOLE_DEVICE_MILLI + 1, 100 * WHOLE_DEVICE_MILLI)
        _within("use_above_milli", self.use_above_milli, 1, WHOLE_DEVICE_MILLI)
        _within("steps", self.steps, 1, 1_000_000)
        _within("jobs_max", self.jobs_max, 2, 10_000)
        _within("exact_jobs_max", self.exact_jobs_max, 0, 14)
        for name in ("window_ms", "cool_down_ms"):
            _within(name, getattr(self, name), 0, 10**12)


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; expected {least} to {most}")
