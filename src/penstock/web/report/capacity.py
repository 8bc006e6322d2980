"""How much there was and how much of it was held, as totals and over time."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from penstock.core.ledger.usage import Holding
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import JobSpec
from penstock.web.report.facts import Facts
from penstock.web.report.model import NodeRow, Step

Specs = Mapping[JobId, JobSpec]


def capacity_totals(held: Iterable[Holding], specs: Specs, nodes: Sequence[NodeRow]) -> dict[str, int]:
    """Return the held and available sums of `Totals`, by field name. CPU is counted in whole cores, rounded down."""
    ready = {n.name: [(s.start_ms, s.end_ms) for s in n.spans if s.kind == "ready"] for n in nodes}
    sums: Counter[str] = Counter()
    for hold in held:
        cpu_milli = specs[hold.job_id].ask.each.host.cpu_milli
        length_ms = max(0, hold.end_ms - hold.start_ms)
        inside_ms = sum(max(0, min(e, hold.end_ms) - max(s, hold.start_ms)) for s, e in ready.get(hold.node, ()))
        sums["device_held_ms"] += length_ms * len(hold.devices)
        sums["device_held_ready_ms"] += inside_ms * len(hold.devices)
        sums["cpu_held_ms"] += length_ms * cpu_milli // 1000
        sums["cpu_held_ready_ms"] += inside_ms * cpu_milli // 1000
    for span in (s for n in nodes for s in n.spans if s.kind == "ready"):
        length_ms = span.end_ms - span.start_ms
        sums["device_available_ms"] += length_ms * span.devices
        sums["cpu_available_ms"] += length_ms * span.cpu_milli // 1000
    names = ("device_held_ms", "device_held_ready_ms", "device_available_ms")
    return {name: sums[name] for name in (*names, "cpu_held_ms", "cpu_held_ready_ms", "cpu_available_ms")}


def steps(
    held: Iterable[Holding],
    specs: Specs,
    nodes: Sequence[NodeRow],
    facts: Facts,
    until_ms: int,
    unit: Literal["devices", "milli_cpu"],
) -> tuple[Step, ...]:
    """Return held, available and waiting as a step function: one entry for each moment at which one changed."""
    changes: dict[int, list[int]] = {}

    def change(which: int, start_ms: int, end_ms: int, amount: int) -> None:
        if amount and end_ms > start_ms:
            changes.setdefault(start_ms, [0, 0, 0])[which] += amount
            changes.setdefault(end_ms, [0, 0, 0])[which] -= amount

    for hold in held:
        amount = len(hold.devices) if unit == "devices" else specs[hold.job_id].ask.each.host.cpu_milli
        change(0, hold.start_ms, hold.end_ms, amount)
    for span in (s for n in nodes for s in n.spans if s.kind == "ready"):
        change(1, span.start_ms, span.end_ms, span.devices if unit == "devices" else span.cpu_milli)
    for job in facts.jobs.values():
        for start_ms, end_ms in job.intervals(until_ms):
            change(2, start_ms, end_ms, 1)
    now, found = [0, 0, 0], []
    for time_ms in sorted(t for t in changes if t < until_ms):
        now = [a + b for a, b in zip(now, changes[time_ms], strict=True)]
        found.append(Step(time_ms, *now))
    return tuple(found)
