"""Available and held capacity, as totals and over time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from penstock.core.ledger.sessions import UsageInterval
from penstock.report.run.facts import Facts
from penstock.report.run.model import NodeRow, UsageStep


def capacity_totals(held: Iterable[UsageInterval], nodes: Sequence[NodeRow], until_ms: int) -> dict[str, int]:
    """Return the held and available sums of `Totals`, by field name: of whole devices and cores, rounded down."""
    ready = {n.name: [(s.start_ms, s.end_ms) for s in n.spans if s.kind == "ready"] for n in nodes}
    milli: Counter[str] = Counter()
    for one in held:
        end_ms, length_ms = one.end_ms or until_ms, one.length_ms(until_ms)
        inside_ms = sum(max(0, min(e, end_ms) - max(s, one.start_ms)) for s, e in ready.get(one.node, ()))
        milli["device_held_ms"] += length_ms * one.amounts.device_milli
        milli["device_held_ready_ms"] += inside_ms * one.amounts.device_milli
        milli["cpu_held_ms"] += length_ms * one.amounts.cpu_milli
        milli["cpu_held_ready_ms"] += inside_ms * one.amounts.cpu_milli
    sums = Counter({name: amount // 1000 for name, amount in milli.items()})
    for span in (s for n in nodes for s in n.spans if s.kind == "ready"):
        length_ms = span.end_ms - span.start_ms
        sums["device_available_ms"] += length_ms * span.devices
        sums["cpu_available_ms"] += length_ms * span.cpu_milli // 1000
    names = ("device_held_ms", "device_held_ready_ms", "device_available_ms")
    return {name: sums[name] for name in (*names, "cpu_held_ms", "cpu_held_ready_ms", "cpu_available_ms")}


def steps(
    held: Iterable[UsageInterval],
    nodes: Sequence[NodeRow],
    facts: Facts,
    until_ms: int,
    unit: Literal["devices", "cpus"],
) -> tuple[UsageStep, ...]:
    """Return held, available and waiting as a step function: one entry for each moment at which one changed."""
    changes: dict[int, list[int]] = {}

    def change(which: int, start_ms: int, end_ms: int, amount: int) -> None:
        if amount and end_ms > start_ms:
            changes.setdefault(start_ms, [0, 0, 0])[which] += amount
            changes.setdefault(end_ms, [0, 0, 0])[which] -= amount

    for one in held:
        amount = one.amounts.device_milli if unit == "devices" else one.amounts.cpu_milli
        change(0, one.start_ms, one.end_ms or until_ms, amount)
    for span in (s for n in nodes for s in n.spans if s.kind == "ready"):
        change(1, span.start_ms, span.end_ms, 1000 * span.devices if unit == "devices" else span.cpu_milli)
    for job in facts.jobs.values():
        for start_ms, end_ms in job.intervals(until_ms):
            change(2, start_ms, end_ms, 1)
    now, found = [0, 0, 0], []
    for time_ms in sorted(t for t in changes if t < until_ms):
        now = [a + b for a, b in zip(now, changes[time_ms], strict=True)]
        found.append(UsageStep(time_ms, *now))
    return tuple(found)
