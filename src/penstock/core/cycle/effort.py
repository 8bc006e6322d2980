"""How hard one cycle looks, from what it finds: who waits, and how much of the cluster is in use."""

from collections.abc import Mapping

from penstock.core.cycle.strategy import Effort, Strategy, StrategySettings, choose_strategy
from penstock.core.model.cluster import Settings
from penstock.core.model.ids import PoolName
from penstock.core.order.shares import Charge
from penstock.core.state.snapshot import Snapshot


def strategy_settings(settings: Settings) -> StrategySettings:
    """Return the thresholds that the scheduler's settings name."""
    return StrategySettings(
        preemptive_above_milli=settings.preemptive_utilisation_milli,
        immediate_below_milli=settings.immediate_utilisation_milli,
        predictive_above_waiting=settings.predictive_waiting_min,
        delayed=Effort(batching_window_ms=settings.batching_window_ms),
    )


def strategy_of(
    snapshot: Snapshot,
    totals: Mapping[PoolName, Charge],
    free_milli: Mapping[PoolName, int],
    thresholds: StrategySettings,
) -> Strategy:
    """Return the strategy of the cycle.

    Args:
        totals: what the open nodes of each pool have in all.
        free_milli: devices that nobody holds, by pool (thousandths).
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
