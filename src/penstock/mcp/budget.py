"""What the changes of one token may come to while this process lives: numbers of writes and jobs, and device time."""

import threading
from typing import NamedTuple

import msgspec

from penstock.core.model.words import counted
from penstock.mcp.errors import Refused

MILLI_MS_PER_HOUR = 1000 * 3_600_000


class Limits(NamedTuple):
    """What one token may spend."""

    writes: int = 20
    """Confirmed changes of any kind."""
    jobs: int = 20
    """Jobs submitted."""
    device_hours: float = 24.0
    """Of the jobs submitted, by their time limits."""


class Cost(NamedTuple):
    """What one change takes of a budget."""

    jobs: int = 0
    device_milli_ms: int = 0


class Left(msgspec.Struct, frozen=True):
    """What is left of the budget of this token, until the MCP server is started again."""

    writes: int
    jobs: int
    device_hours: float


class Budget:
    """Counts down; safe to use from several threads."""

    def __init__(self, limits: Limits) -> None:
        self._lock = threading.Lock()
        self._limits = limits
        self._writes, self._jobs = limits.writes, limits.jobs
        self._device_milli_ms = round(limits.device_hours * MILLI_MS_PER_HOUR)

    @property
    def left(self) -> Left:
        return Left(self._writes, self._jobs, round(self._device_milli_ms / MILLI_MS_PER_HOUR, 3))

    @property
    def untouched(self) -> bool:
        return self.left == Budget(self._limits).left

    def check(self, cost: Cost) -> None:
        """Raise Refused when a change would exceed what is left."""
        hint = "the budget is set by the options of penstock mcp, and begins anew when it is started again"
        if self._writes < 1:
            raise Refused("over_budget", f"all {self._limits.writes} changes are made", field="writes", hint=hint)
        if cost.jobs > self._jobs:
            text = f"it submits {counted(cost.jobs, 'job')}, and {self._jobs} of {self._limits.jobs} are left"
            raise Refused("over_budget", text, field="jobs", hint=hint)
        if cost.device_milli_ms > self._device_milli_ms:
            wanted, left = cost.device_milli_ms / MILLI_MS_PER_HOUR, self._device_milli_ms / MILLI_MS_PER_HOUR
            text = f"it may take {wanted:.2f} device-hours, and {left:.2f} of {self._limits.device_hours:g} are left"
            raise Refused("over_budget", text, field="device_hours", hint=f"lower time_limit or devices; {hint}")

    def take(self, cost: Cost) -> None:
        """Take a change from the budget. Raises: Refused."""
        with self._lock:
            self.check(cost)
            self._writes -= 1
            self._jobs -= cost.jobs
            self._device_milli_ms -= cost.device_milli_ms

    def give_back(self, cost: Cost) -> None:
        """Give back what was taken for a change that the server refused."""
        with self._lock:
            self._writes += 1
            self._jobs += cost.jobs
            self._device_milli_ms += cost.device_milli_ms
