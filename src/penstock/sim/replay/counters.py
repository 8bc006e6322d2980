"""Counters of a running replay: use and waiting over time, as integrals and as samples for charts."""

from typing import NamedTuple

from penstock.core.place.stranded import stranded_milli
from penstock.core.state.state import State

SAMPLES = 400
"""Approximate number of samples of a replay."""


class Sample(NamedTuple):
    time_ms: int
    busy_milli: int
    total_milli: int
    jobs_waiting: int
    jobs_running: int
    busy_device_ms: int
    """Held up to this moment."""
    total_device_ms: int
    """Available up to this moment."""
    stranded_milli: int
    """Free devices that no typical request could use."""


class Meter:
    """Counters that the engine moves; `advance` is called for each moment before anything happens in it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.now_ms = state.time_ms
        self.busy_milli = self.jobs_waiting = self.jobs_active = 0
        self.busy_device_ms = self.total_device_ms = self.active_ms = 0
        self.total_milli = 0
        """Devices of open nodes."""
        self._nodes: object = None
        self.samples: list[Sample] = []
        self.sample_every_ms = 1
        self._next_sample_ms = 0

    def advance(self, now_ms: int) -> None:
        """Count the time since the last moment."""
        passed_ms = now_ms - self.now_ms
        self.now_ms = now_ms
        if self._state.indexes.nodes is not self._nodes:
            self._count_devices()
        self.busy_device_ms += self.busy_milli * passed_ms // 1000
        self.total_device_ms += self.total_milli * passed_ms // 1000
        self.active_ms += self.jobs_active * passed_ms
        if now_ms >= self._next_sample_ms:
            running = self.jobs_active - self.jobs_waiting
            indexes = self._state.indexes
            stranded = stranded_milli(indexes.free.values(), indexes.requests.typical)
            held = (self.busy_device_ms, self.total_device_ms, stranded)
            self.samples.append(Sample(now_ms, self.busy_milli, self.total_milli, self.jobs_waiting, running, *held))
            self._next_sample_ms = now_ms + self.sample_every_ms

    def _count_devices(self) -> None:
        self._nodes = self._state.indexes.nodes
        open_nodes = (node for node in self._state.indexes.nodes.values() if node.state == "ready")
        self.total_milli = sum(1000 * device.healthy for node in open_nodes for device in node.spec.devices)
