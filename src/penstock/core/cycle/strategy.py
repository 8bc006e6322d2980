"""The strategy of one cycle: how hard it looks, picked from the state of the cluster, and why.

What each changes: `preemptive` tries more sets of victims, `predictive` keeps room for demand that is expected
(`kept_room.py`), `delayed` lets jobs gather before the next cycle, `immediate` does none of this.

Rules, the first that holds: critical jobs wait and utilisation is high: `preemptive`; utilisation is low:
`immediate`; many wait: `predictive`; else `delayed`. Comparisons are strict, so a value on a threshold does not
count as beyond it.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from penstock.core.model.cluster import Settings
from penstock.core.model.ids import PoolName
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.state.snapshot import Snapshot

FULL_MILLI = 1000

StrategyName = Literal["preemptive", "immediate", "predictive", "delayed"]


class Effort(msgspec.Struct, frozen=True, omit_defaults=True):
    """The behavior that a strategy switches on in the cycle."""

    keeps_room: bool = False
    """Whether jobs are held back for demand that is expected, where many wait."""
    batching_window_ms: int = 0
    """How long requests are gathered before the next cycle looks at them together."""
    victim_sets_factor: int = 1
    """The cycle tries this many times the usual number of sets of victims."""

    def __post_init__(self) -> None:
        for name in ("batching_window_ms", "victim_sets_factor"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")


class StrategySettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Thresholds, and the effort of each strategy. Raises ValueError for a value out of range."""

    preemptive_above_milli: int = 800
    immediate_below_milli: int = 300
    predictive_above_waiting: int = 10
    preemptive: Effort = Effort(victim_sets_factor=4, keeps_room=True)
    immediate: Effort = Effort()
    predictive: Effort = Effort(keeps_room=True)
    delayed: Effort = Effort(batching_window_ms=500)

    def __post_init__(self) -> None:
        for name in ("preemptive_above_milli", "immediate_below_milli"):
            if not 0 <= getattr(self, name) <= FULL_MILLI:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 to {FULL_MILLI}")
        if self.predictive_above_waiting < 0:
            raise ValueError(f"predictive_above_waiting is {self.predictive_above_waiting}; expected 0 or more")


class Strategy(msgspec.Struct, frozen=True):
    """The strategy of a cycle, why in one sentence with the numbers, and the effort it switches on."""

    name: StrategyName
    why: str
    keeps_room: bool
    batching_window_ms: int
    victim_sets_factor: int

    def victim_sets_tried_max(self, usual: int) -> int:
        """Return how many sets of victims the cycle may try, given the usual number of the scheduler's settings."""
        return usual * self.victim_sets_factor


def strategy_settings(settings: Settings) -> StrategySettings:
    """Return the thresholds of the scheduler's settings."""
    return StrategySettings(
        preemptive_above_milli=settings.preemptive_utilisation_milli,
        immediate_below_milli=settings.immediate_utilisation_milli,
        predictive_above_waiting=settings.predictive_waiting_min,
        delayed=Effort(batching_window_ms=settings.batching_window_ms),
    )


def strategy_of(
    snapshot: Snapshot,
    totals: Mapping[PoolName, UsedAmounts],
    free_milli: Mapping[PoolName, int],
    thresholds: StrategySettings,
) -> Strategy:
    """Return the strategy of the cycle.

    Args:
        totals: capacity of the open nodes of each pool.
        free_milli: free devices by pool (thousandths).
    """
    critical_from = snapshot.config.settings.critical_priority
    waiting = critical = held = total = 0
    for _, key, jobs in snapshot.classes:
        waiting += len(jobs)
        if key.priority >= critical_from:
            critical += len(jobs)
    for name, charge in totals.items():
        total += charge.device_milli
        held += charge.device_milli - free_milli.get(name, 0)
    used_milli = min(1000, max(0, 1000 * held // total)) if total else 0
    return choose_strategy(thresholds, critical_waiting=critical, waiting=waiting, utilisation_milli=used_milli)


def choose_strategy(
    settings: StrategySettings, *, critical_waiting: int, waiting: int, utilisation_milli: int
) -> Strategy:
    """Return the strategy of this cycle.

    Where as many wait as `predictive` needs, `preemptive` keeps room as well: else the cycle that starts a critical
    job would give the rest of the room away. None of them forbids preemption: on a cluster that is nearly idle the one
    kind of device that a job needs may still be taken.

    Args:
        critical_waiting: jobs of critical priority among those that wait.
        waiting: all jobs that wait.
        utilisation_milli: devices in use in thousandths of all, 0 to 1000.
    Raises: ValueError for counts that contradict each other or are out of range: they are derived, so it is a bug.
    """
    if not 0 <= critical_waiting <= waiting or not 0 <= utilisation_milli <= FULL_MILLI:
        raise ValueError(f"{critical_waiting} critical of {waiting} waiting at utilisation {utilisation_milli} milli")
    used = _share(utilisation_milli)
    name: StrategyName
    if critical_waiting > 0 and utilisation_milli > settings.preemptive_above_milli:
        name, effort = "preemptive", settings.preemptive
        why = (
            f"{_jobs(critical_waiting, 'critical job')} and utilisation {used} "
            f"is above {_share(settings.preemptive_above_milli)}"
        )
    elif utilisation_milli < settings.immediate_below_milli:
        name, effort = "immediate", settings.immediate
        why = f"utilisation {used} is below {_share(settings.immediate_below_milli)}"
    elif waiting > settings.predictive_above_waiting:
        name, effort = "predictive", settings.predictive
        why = f"{_jobs(waiting, 'job')}, more than {settings.predictive_above_waiting}, at utilisation {used}"
    else:
        name, effort = "delayed", settings.delayed
        why = (
            f"{_jobs(waiting, 'job')}, no more than {settings.predictive_above_waiting}, "
            f"and utilisation {used} calls for no haste"
        )
    return Strategy(
        name=name,
        why=why,
        keeps_room=effort.keeps_room and waiting > settings.predictive_above_waiting,
        batching_window_ms=effort.batching_window_ms,
        victim_sets_factor=effort.victim_sets_factor,
    )


def _jobs(count: int, noun: str) -> str:
    return f"1 {noun} waits" if count == 1 else f"{count} {noun}s wait"


def _share(milli: int) -> str:
    return f"{milli // FULL_MILLI}.{milli % FULL_MILLI:03d}"
