"""Promises about sizes and batches of elastic jobs, counted from the state alone."""

from collections.abc import Iterable

from penstock.core.model.batching import REBALANCE, total_of
from penstock.core.state.state import State

HOUR_MS = 3_600_000


def batches_are_within_range(state: State) -> Iterable[str]:
    """An attempt has a batch only where its job declares a range, and one of that range."""
    for job in state.jobs.values():
        attempt, batch = job.attempt, job.spec.batch
        chosen = attempt.batch if attempt is not None else None
        if attempt is None or chosen is None:
            continue
        if batch is None:
            yield f"job {job.id} declares no batch range and runs with a batch"
        elif not 1 <= chosen.local <= batch.per_device_max or total_of(chosen, len(attempt.replicas)) > batch.largest:
            yield f"job {job.id} runs with {chosen} on {len(attempt.replicas)} replicas, outside of {batch}"


def rounds_restart_seldom(state: State) -> Iterable[str]:
    """What a round restarts was not restarted too often lately, and comes back at a size that it accepts."""
    for job in state.jobs.values():
        stop = job.attempt.stop if job.attempt is not None else None
        if stop is None or stop.rule != REBALANCE or state.config_seq > stop.seq or job.edited_seq > stop.seq:
            continue
        pool = state.config.pool_by_name.get(job.spec.ask.pool)
        lately = sum(changed_ms > stop.requested_ms - HOUR_MS for changed_ms in job.changes_ms)
        if pool is not None and lately > pool.elastic.restarts_per_hour:
            yield f"job {job.id} was restarted {lately} times in an hour, {pool.elastic.restarts_per_hour} are allowed"
        size = len(job.room)
        if stop.reason == "resized" and not job.spec.ask.replicas <= size <= job.spec.ask.replicas_max:
            yield f"job {job.id} is to come back with {size} replicas"
