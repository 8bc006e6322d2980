"""Requests that came before under the same key: kept for a while, so that asking again does nothing twice."""

import msgspec

from penstock.core.model.events import JobSubmitted
from penstock.core.model.ids import JobId

IDEMPOTENCY_KEPT_MS = 24 * 3_600_000
IDEMPOTENCY_KEPT_MAX = 100_000


class IdempotencyEntry(msgspec.Struct, frozen=True):
    """The jobs that a request made: `count` from `first_job` on."""

    first_job: JobId
    count: int
    digest: str
    time_ms: int


def remember(entries: dict[str, IdempotencyEntry], event: JobSubmitted, time_ms: int) -> None:
    """Keep what a request made, and forget the oldest beyond the time or the number that are kept."""
    entries[event.idempotency_key] = IdempotencyEntry(event.job_id, event.batch, event.digest, time_ms)
    while entries:
        oldest = next(iter(entries))
        fresh = time_ms - entries[oldest].time_ms < IDEMPOTENCY_KEPT_MS
        if fresh and len(entries) <= IDEMPOTENCY_KEPT_MAX:
            break
        del entries[oldest]
