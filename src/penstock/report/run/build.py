"""Builds the report: facts, holds and reasons become rows and totals. Pure; the log is the only input."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from penstock.core.ledger.sessions import UsageInterval, sessions
from penstock.core.model.events import Record
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.state.history import AttemptHistory, JobHistory
from penstock.report.run.capacity import capacity_totals, steps
from penstock.report.run.facts import Facts, NodeFacts, gather
from penstock.report.run.interruptions import interruptions
from penstock.report.run.model import Bar, Interruption, JobRow, NodeRow, RunReport, Totals, Usage, WaitPart, WaitStats
from penstock.report.run.waits import attribute


def build(records: Sequence[Record], until_ms: int) -> RunReport:
    """Return the report on a log as it stood at `until_ms` (unix).

    Args:
        records: the whole log from its first record on; records later than `until_ms` are left out.
    Raises: BrokenInvariant when the records do not follow each other from the first on.
    """
    seen = [r for r in records if r.time_ms <= until_ms]
    facts = gather(seen)
    all_sessions = list(sessions(seen))
    held = [session for session in all_sessions if not session.suspended]
    waits, sampling = attribute(seen, until_ms)
    nodes = tuple(_node_row(facts.nodes[name], until_ms) for name in sorted(facts.nodes))
    jobs = tuple(_job_row(i, facts.jobs[i], waits.get(i, ()), until_ms) for i in sorted(facts.jobs))
    breaks = interruptions(facts)
    unit: Literal["devices", "cpus"] = "devices" if any(n.lanes for n in nodes) else "cpus"
    return RunReport(
        start_ms=seen[0].time_ms if seen else until_ms,
        until_ms=until_ms,
        records=len(seen),
        nodes=nodes,
        jobs=jobs,
        bars=_bars(held, facts, until_ms),
        interruptions=breaks,
        tenants=usage_by_tenant(all_sessions, facts, until_ms),
        steps=steps(held, nodes, facts, until_ms, unit),
        unit=unit,
        totals=_totals(jobs, breaks, capacity_totals(held, nodes, until_ms)),
        sampling=sampling,
    )


def usage_by_tenant(found_sessions: Iterable[UsageInterval], facts: Facts, until_ms: int) -> tuple[Usage, ...]:
    """Return totals per tenant, by name, also of those whose jobs never ran.

    Suspended attempts hold nothing that is shown; what their devices used until then is energy all the same.
    """
    found: dict[str, Usage] = {}
    for job in facts.jobs.values():
        one = found.setdefault(job.submitted.spec.tenant, Usage(job.submitted.spec.tenant))
        one.jobs, one.attempts = one.jobs + 1, one.attempts + len(job.attempts)
    sums: Counter[tuple[str, str]] = Counter()
    for session in found_sessions:
        sums[session.tenant, "energy"] += session.energy_mj
        sums[session.tenant, "powered"] += session.powered_ms
        if session.suspended:
            continue
        sums[session.tenant, "device"] += session.length_ms(until_ms) * session.amounts.device_milli
        sums[session.tenant, "cpu"] += session.length_ms(until_ms) * session.amounts.cpu_milli
    for name, one in found.items():
        one.device_ms, one.cpu_ms = sums[name, "device"] // 1000, sums[name, "cpu"] // 1000
        one.energy_mj, one.powered_ms = sums[name, "energy"], sums[name, "powered"]
    return tuple(found[name] for name in sorted(found))


def tenant_totals(report: RunReport) -> Usage:
    """Return the sum over all tenants."""
    total = Usage("all")
    for usage in report.tenants:
        total.device_ms += usage.device_ms
        total.cpu_ms += usage.cpu_ms
        total.attempts += usage.attempts
        total.jobs += usage.jobs
        total.energy_mj += usage.energy_mj
        total.powered_ms += usage.powered_ms
    return total


def _node_row(node: NodeFacts, until_ms: int) -> NodeRow:
    models = dict.fromkeys(d.model for d in node.spec.devices)
    return NodeRow(
        name=node.spec.name,
        pool=node.spec.pool,
        model=", ".join(models),
        lanes=tuple(sorted(node.lanes)),
        cpu_milli=node.spec.capacity.cpu_milli,
        virtual=node.spec.virtual,
        simulated=any(d.simulated for d in node.spec.devices),
        state=node.kind,
        spans=node.all_spans(until_ms),
    )


def _job_row(job_id: JobId, job: JobHistory, waits: tuple[WaitPart, ...], until_ms: int) -> JobRow:
    spec = job.submitted.spec
    intervals = job.intervals(until_ms)
    ran = [(a.running_ms, until_ms if a.ended_ms is None else a.ended_ms) for a in job.attempts]
    return JobRow(
        id=job_id,
        name=spec.name,
        tenant=spec.tenant,
        user=job.submitted.user,
        queue=spec.queue,
        priority=spec.priority,
        replicas=spec.ask.replicas,
        devices_each=spec.ask.each.device_count,
        state=job.state,
        submitted_ms=job.submitted_ms,
        ended_ms=job.finished_ms,
        wait_ms=sum(end - start for start, end in intervals),
        run_ms=sum(end - start for start, end in ran if start is not None) - sum(a.idle_ms for a in job.attempts),
        attempts=len(job.attempts),
        preemptions=sum(any(s.reason == "preempted" for _, s in a.stops) for a in job.attempts),
        losses=sum(a.outcome == "lost" for a in job.attempts),
        nodes=tuple(dict.fromkeys(n for a in job.attempts for n in a.nodes)),
        exit=_exit_text(job),
        array_id=job.submitted.array_id,
        array_index=job.submitted.array_index,
        waits=waits,
    )


def _exit_text(job: JobHistory) -> str:
    if job.finished is None:
        return ""
    return job.finished.reason or job.exit


def _bars(held: Iterable[UsageInterval], facts: Facts, until_ms: int) -> tuple[Bar, ...]:
    attempts: dict[tuple[JobId, AttemptNumber], AttemptHistory] = {
        (a.job_id, a.number): a for job in facts.jobs.values() for a in job.attempts
    }
    bars = []
    for one in held:
        attempt, end_ms = attempts[one.job_id, one.attempt], one.end_ms or until_ms
        # A suspended attempt holds its place in parts: each shows the stop request at its own end.
        asked = ((at_ms, stop) for at_ms, stop in attempt.stops if one.start_ms <= at_ms <= end_ms)
        stop_ms, stop = next(asked, (None, None))
        bars.append(
            Bar(
                one.job_id,
                one.attempt,
                one.rank,
                one.node,
                one.devices,
                one.start_ms,
                end_ms,
                not one.end_ms,
                attempt.outcome,
                stop_ms,
                stop.reason if stop else None,
                stop.beneficiary if stop else None,
            )
        )
    return tuple(sorted(bars, key=lambda b: (b.start_ms, b.job_id, b.attempt, b.rank)))


def _totals(jobs: Sequence[JobRow], breaks: Sequence[Interruption], capacity: dict[str, int]) -> Totals:
    by_state: dict[str, int] = {}
    for job in jobs:
        by_state[job.state] = by_state.get(job.state, 0) + 1
    preempted = [b for b in breaks if b.kind == "preempted"]
    lost = [b for b in breaks if b.kind == "lost"]
    return Totals(
        jobs=len(jobs),
        by_state=dict(sorted(by_state.items())),
        wait=wait_stats([j.wait_ms for j in jobs]),
        preemptions=len(preempted),
        steps_lost_preempted=sum(b.lost_steps or 0 for b in preempted),
        losses=len(lost),
        recoveries=sum(b.restarted_after_ms is not None for b in lost),
        steps_lost_lost=sum(b.lost_steps or 0 for b in lost),
        **capacity,
    )


def wait_stats(waits_ms: Iterable[int]) -> WaitStats:
    """Return mean (rounded down), percentiles by nearest rank, and maximum; zeros without any."""
    ordered = sorted(waits_ms)
    if not ordered:
        return WaitStats()
    total = sum(ordered)

    def rank(percent: int) -> int:
        return ordered[-(-percent * len(ordered) // 100) - 1]

    return WaitStats(total // len(ordered), rank(50), rank(95), ordered[-1], total)
