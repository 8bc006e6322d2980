"""The numbers of a comparison shown in the terminal and on the page, and their formats."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.report.text import duration
from penstock.sim.replay.compare import Interval, VariantResult, interval
from penstock.sim.replay.measures import Measures


class Measure(NamedTuple):
    """One row of the comparison."""

    name: str
    of: Callable[[Measures], float]
    written: Callable[[float], str]
    less_is_better: bool = True

    def over(self, results: Sequence[VariantResult]) -> Interval:
        """Return the mean over seeds."""
        return interval([self.of(result.measures) for result in results])

    def difference(self, results: Sequence[VariantResult], against: Sequence[VariantResult]) -> Interval:
        """Return how much more it is than under another policy, seed by seed on the same workloads."""
        pairs = zip(results, against, strict=True)
        return interval([self.of(one.measures) - self.of(other.measures) for one, other in pairs])

    def signed(self, found: Interval) -> str:
        """Return a difference in words; one within its confidence interval counts as no difference."""
        sign = "−" if found.mean < 0 else "+"
        shown = f"{sign}{self.written(abs(found.mean))} ± {self.written(found.half)}"
        return shown if abs(found.mean) > found.half else f"({shown})"


def _time(value: float) -> str:
    return duration(round(value))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


MEASURES: tuple[Measure, ...] = (
    Measure("wait, mean", lambda m: m.whole.wait_ms.mean, _time),
    Measure("wait, median", lambda m: m.whole.wait_ms.p50, _time),
    Measure("wait, p99", lambda m: m.whole.wait_ms.p99, _time),
    Measure("completion, mean", lambda m: m.whole.completion_ms.mean, _time),
    Measure("completion, p99", lambda m: m.whole.completion_ms.p99, _time),
    Measure("slow-down, mean", lambda m: m.whole.slowdown, lambda v: f"{v:,.2f}"),
    Measure("makespan", lambda m: m.makespan_ms, _time),
    Measure("utilisation", lambda m: m.utilisation, _percent, less_is_better=False),
    Measure("finish-time ratio, worst", lambda m: m.whole.fairness_worst, lambda v: f"{v:,.2f}"),
    Measure("jobs with ratio above 1", lambda m: m.whole.unfair_share, _percent),
    Measure("preemptions", lambda m: m.whole.preemptions, lambda v: f"{v:,.0f}"),
    Measure("attempts lost with a node", lambda m: m.whole.losses, lambda v: f"{v:,.0f}"),
    Measure("device hours done again", lambda m: m.whole.redone_device_hours, lambda v: f"{v:,.1f}"),
    Measure("cost", lambda m: m.whole.cost, lambda v: f"{v:,.2f}"),
    Measure("jobs that never ended", lambda m: m.whole.unfinished, lambda v: f"{v:,.0f}"),
)


class CostRows(NamedTuple):
    """Costs of each variant: in all, and by tenant where there are several; amounts formatted for people."""

    currency: str
    cells: list[tuple[str, list[str]]]


def cost_rows(by_name: dict[str, list[VariantResult]]) -> CostRows | None:
    """Return the rows of costs; None where no prices are declared."""
    known = [costs for of_one in by_name.values() if (costs := of_one[0].costs) is not None]
    if len(known) < len(by_name) or not known:
        return None
    sums: dict[str, int] = {}
    for costs in known:
        for tenant, amount in costs.by_tenant.items():
            sums[tenant] = sums.get(tenant, 0) + amount
    tenants = sorted(sums, key=lambda name: (-sums[name], name)) if len(sums) > 1 else []
    cells = [("all", [costs.of(None) for costs in known])]
    return CostRows(known[0].currency, cells + [(name, [costs.of(name) for costs in known]) for name in tenants])


STRATEGY_COLUMNS = (
    "policy",
    "strategy",
    "cycles",
    "starts",
    "preemptions",
    "held back",
    "device hours kept",
    "gathered",
)


def strategy_rows(by_name: dict[str, list[VariantResult]]) -> list[tuple[str, ...]]:
    """Return how often each strategy was picked under the first seed, and what it decided, a row for each."""
    rows = []
    for name, results in by_name.items():
        for strategy, use in results[0].measures.strategies.items():
            counts = (use.cycles, use.starts, use.preemptions, use.jobs_held_back)
            kept = f"{use.kept_device_ms / 3_600_000:,.1f}"
            rows.append((name, strategy, *(f"{count:,}" for count in counts), kept, _time(use.gathered_ms)))
    return rows


def by_variant(results: Sequence[VariantResult]) -> dict[str, list[VariantResult]]:
    """Return the results of each variant by seed, in the order of the variants."""
    found: dict[str, list[VariantResult]] = {}
    for result in results:
        found.setdefault(result.variant, []).append(result)
    return found
