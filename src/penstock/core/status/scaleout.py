"""Capacity that new nodes would have to bring: waiting jobs without room, by shape.

Jobs that wait for a quota, for their turn or for victims to leave do not count: nodes would not help.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.core.model.ids import JobId, PoolName
from penstock.core.model.jobs import GangAsk, Job
from penstock.core.model.plan import Plan
from penstock.core.model.resources import ReplicaAsk

JOBS_NAMED_MAX = 20


class Missing(msgspec.Struct, frozen=True):
    """Jobs of one shape that wait for capacity."""

    pool: PoolName
    ask: GangAsk
    """One of them; all of its replicas have to start together."""
    count: int
    """How many such jobs wait."""
    job_ids: tuple[JobId, ...]
    """The first of them."""
    waited_ms: int
    """The longest wait among them."""


def missing(jobs: Mapping[JobId, Job], plan: Plan | None, now_ms: int, after_ms: int) -> tuple[Missing, ...]:
    """Return the capacity missing for jobs that have waited at least `after_ms`, the longest wait first.

    Args:
        plan: the last cycle's; its verdicts say why each class of jobs waits.
    """
    if plan is None:
        return ()
    found: dict[GangAsk, list[Job]] = {}
    for job in jobs.values():
        verdict = plan.verdicts.get(job.class_id)
        short = verdict is not None and verdict.code in ("no_fit", "kept_back")
        if short and job.state == "waiting" and now_ms - job.waiting_since_ms >= after_ms:
            found.setdefault(job.spec.ask, []).append(job)
    each = [_missing(ask, alike, now_ms) for ask, alike in found.items()]
    return tuple(sorted(each, key=lambda one: (-one.waited_ms, one.job_ids)))


def _missing(ask: GangAsk, jobs: list[Job], now_ms: int) -> Missing:
    jobs.sort(key=lambda job: (job.waiting_since_ms, job.id))
    listed = tuple(job.id for job in jobs[:JOBS_NAMED_MAX])
    return Missing(ask.pool, ask, len(jobs), listed, now_ms - jobs[0].waiting_since_ms)


def request_of(found: tuple[Missing, ...]) -> dict[str, Any]:
    """Return the request to a provider of nodes: plain data, one entry a shape (bytes, thousandths of CPUs)."""
    return {
        "missing": [
            {
                "pool": one.pool,
                "jobs": one.count,
                "job_ids": list(one.job_ids),
                "waited_s": one.waited_ms // 1000,
                "replicas": one.ask.replica_total,
                "groups": [{"replicas": count, **_shape(each)} for count, each in _groups(one.ask)],
                "node_labels": dict(one.ask.labels_wanted),
            }
            for one in found
        ]
    }


def _groups(ask: GangAsk) -> list[tuple[int, ReplicaAsk]]:
    return [(ask.replicas, ask.each), *((group.replicas, group.each) for group in ask.others)]


def _shape(each: ReplicaAsk) -> dict[str, Any]:
    devices = each.devices
    return {
        "devices": each.device_count,
        "device_milli": each.device_milli,
        "models": list(devices.models) if devices is not None else [],
        "device_memory_bytes": devices.memory_min_bytes if devices is not None else 0,
        "cpu_milli": each.host.cpu_milli,
        "memory_bytes": each.host.memory_bytes,
    }
