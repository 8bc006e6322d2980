"""What a restart costs a running job, and how often it may be restarted for the scheduler's own ends.

Changes of size and moves count; what a user, a failure or a waiting job's rights ask for is never held back by them.
"""

from collections.abc import Iterable

from penstock.core.model.batching import KindSteps
from penstock.core.model.cluster import Settings
from penstock.core.model.jobs import Attempt, Job

HOUR_MS = 3_600_000
NEVER_MS = 1 << 62


def restart_cost_ms(job: Job, settings: Settings, alike: KindSteps | None = None) -> int:
    """Return what one restart costs the job: as measured, as of jobs like it, or as the settings assume before any."""
    theirs_ms = alike.restart_ms if alike is not None else 0
    return job.progress.restart_ms or theirs_ms or settings.checkpoint_cost_ms + settings.restart_cost_ms


def settle_ms(job: Job, attempt: Attempt, settings: Settings, alike: KindSteps | None = None) -> int:
    """Return how long a running job is left alone from its start on.

    Until it has reported from there for the growth period; then for as long as a restart costs it, if that is less: a
    size is known from its first report on, and no job spends more of its time on restarts than on work. Where no
    restart was measured its start counts, up to its first report.
    """
    period_ms, told = settings.elastic_growth_period_ms, job.progress
    if told.noted_attempt != attempt.number or not told.first.at_ms:
        return period_ms
    start_ms = told.first.at_ms + attempt.idle_ms - attempt.allocated_ms
    if told.restart_ms or (alike is not None and alike.restart_ms):
        return min(period_ms, restart_cost_ms(job, settings, alike))
    return min(period_ms, settings.checkpoint_cost_ms + max(settings.restart_cost_ms, start_ms))


def restarts_lately(changes_ms: Iterable[int], now_ms: int) -> int:
    """Return how many of these changes (unix ms) were in the last hour."""
    return sum(changed_ms > now_ms - HOUR_MS for changed_ms in changes_ms)


def next_restart_ms(job: Job, per_hour: int, now_ms: int) -> int:
    """Return when the job may be restarted again within `per_hour` (unix ms): 0 now, `NEVER_MS` never."""
    if restarts_lately(job.changes_ms, now_ms) < per_hour:
        return 0
    return job.changes_ms[-per_hour] + HOUR_MS if per_hour else NEVER_MS
