"""Demand that is expected in a pool, and the room that may be kept for it: what one hour's forecast says."""

from typing import NamedTuple

import msgspec

from penstock.core.model.ids import PoolName
from penstock.core.model.quantities import format_time
from penstock.core.model.words import counted

HOUR_MS = 3_600_000


class ExpectedDemand(msgspec.Struct, frozen=True):
    """Devices that jobs of one priority are expected to ask for within one hour of the calendar."""

    pool: PoolName
    priority: int
    devices: int
    """At least as many are expected to come, as sure as the settings want; within the share that may be kept."""
    left: int
    """Of these, what has not come yet."""
    each: int
    """Devices of one replica, as asked for of late: that many have to be free on one node to be of use."""
    from_ms: int
    """When the hour begins (unix ms): from then on the room is needed."""
    right: int
    """In how many of the hours that were told before at least as much came as was expected, and of how many."""
    told: int

    @property
    def until_ms(self) -> int:
        """When the hour ends, and with it the room (unix ms)."""
        return self.from_ms + HOUR_MS

    @property
    def text(self) -> str:
        """What is expected, and how often such forecasts were right, in words."""
        coming = f"{counted(self.devices, 'device')} that jobs of priority {self.priority} are expected to ask for"
        return f"{coming} by {format_time(self.until_ms)} (forecast right {self.right} of {self.told} times)"


class Kept(NamedTuple):
    """Demand, and how many devices a cycle keeps for it."""

    demand: ExpectedDemand
    devices: int

    @property
    def text(self) -> str:
        return f"pool {self.demand.pool} keeps {counted(self.devices, 'device')} for {self.demand.text}"
