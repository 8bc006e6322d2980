"""The report's numbers as plain data, for `summary.json`: keys and units are stable, values are integers."""

from typing import Any

import msgspec

from penstock.report.run.build import tenant_totals
from penstock.report.run.model import Interruption, JobRow, RunReport


def summary(report: RunReport) -> dict[str, Any]:
    """Return totals, and the rows per job, tenant, preemption and recovery. JSON-serialisable as it is."""
    totals = report.totals
    usage = tenant_totals(report)
    return {
        "start_ms": report.start_ms,
        "until_ms": report.until_ms,
        "records": report.records,
        "totals": {
            **msgspec.to_builtins(totals),
            "nodes": len(report.nodes),
            "devices": sum(len(n.lanes) for n in report.nodes),
            "simulated": any(n.simulated or n.virtual for n in report.nodes),
            "device_ms": usage.device_ms,
            "cpu_ms": usage.cpu_ms,
            "attempts": usage.attempts,
            "energy_mj": usage.energy_mj,
            "powered_ms": usage.powered_ms,
            "utilisation_milli": per_mille(totals.device_held_ready_ms, totals.device_available_ms),
            "cpu_utilisation_milli": per_mille(totals.cpu_held_ready_ms, totals.cpu_available_ms),
        },
        "jobs": [_job(job) for job in report.jobs],
        "tenants": [msgspec.to_builtins(t) for t in report.tenants],
        "preemptions": [_interruption(i) for i in report.interruptions if i.kind == "preempted"],
        "recoveries": [_interruption(i) for i in report.interruptions if i.kind == "lost"],
        "other_interruptions": [_interruption(i) for i in report.interruptions if i.kind in ("drained", "failed")],
        "reasons_sampled": msgspec.to_builtins(report.sampling),
    }


def per_mille(part: int, whole: int) -> int | None:
    """Return thousandths, rounded down; None when there is no whole."""
    return 1000 * part // whole if whole else None


def _job(job: JobRow) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(job)
    row["waits"] = {part.cause: part.duration_ms for part in job.waits}
    return row


def _interruption(item: Interruption) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(item)
    return row
