"""Counters of a running replay: use and waiting over time, as integrals and as samples for charts; strategies."""

from typing import NamedTuple

import msgspec

from penstock.core.model.ids import JobId
from penstock.core.model.plan import Plan
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


class StrategyUse(msgspec.Struct):
    """How often a strategy was picked, and what it decided."""

    cycles: int = 0
    starts: int = 0
    preemptions: int = 0
    jobs_held_back: int = 0
    """Jobs that did not start in some cycle, for room was kept for demand that was expected."""
    kept_device_ms: int = 0
    """For how long devices were kept for such demand, used by others until it came or not."""
    gathered_ms: int = 0
    """For how long jobs gathered after its cycles."""


class Strategies:
    """Counts the strategies of committed plans, in their order."""

    def __init__(self) -> None:
        self.uses: dict[str, StrategyUse] = {}
        self._held_back: set[tuple[str, JobId]] = set()
        self._last: tuple[Plan, int] | None = None

    def planned(self, plan: Plan, now_ms: int) -> None:
        self.until(now_ms)
        name = plan.strategy.partition(":")[0]
        use = self.uses.setdefault(name, StrategyUse())
        use.cycles += 1
        use.starts += len(plan.starts)
        use.preemptions += len(plan.preemptions)
        use.gathered_ms += plan.pause_ms
        for verdict in plan.verdicts.values():
            if verdict.expected is not None and (name, verdict.first) not in self._held_back:
                self._held_back.add((name, verdict.first))
                use.jobs_held_back += 1
        self._last = (plan, now_ms)

    def done(self, now_ms: int) -> dict[str, StrategyUse]:
        """Return the uses by name, with the time for which the last plan held."""
        self.until(now_ms)
        return dict(sorted(self.uses.items()))

    def until(self, now_ms: int) -> None:
        """Count the time for which the last plan held."""
        if self._last is not None:
            plan, since_ms = self._last
            use = self.uses[plan.strategy.partition(":")[0]]
            for kept in plan.kept:
                use.kept_device_ms += kept.devices * max(0, min(now_ms, kept.demand.until_ms) - since_ms)
            self._last = (plan, now_ms)


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
        self.strategies = Strategies()
        self.sample_every_ms = 1
        self._next_sample_ms = 0

    def begin(self, now_ms: int, last_ms: int) -> None:
        """Begin at a time, and sample so that the time until `last_ms` has `SAMPLES`."""
        self.now_ms = now_ms
        self.sample_every_ms = max(1, (last_ms - now_ms) // SAMPLES)

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
