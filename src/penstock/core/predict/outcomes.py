"""What was estimated of single jobs' starts, and when they started: the first and the last estimate of each. A fold."""

import msgspec

from penstock.core.model import events as ev
from penstock.core.model.estimates import Times
from penstock.core.model.ids import JobId

STARTED_MAX = 20_000
"""Jobs that have started; the latest are kept: 3 MB."""


class ToldTimes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One estimate: of the time it was made, when a job starts (unix ms; 0 unknown)."""

    made_ms: int
    times: Times


class StartOutcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The estimates of one wait for a start, and the start (unix ms; 0: it waits)."""

    first: ToldTimes
    last: ToldTimes
    started_ms: int = 0


class OutcomeImage(msgspec.Struct, frozen=True):
    """The whole of `StartOutcomes`."""

    waiting: dict[JobId, StartOutcome]
    started: dict[JobId, StartOutcome]


class StartOutcomes:
    """Takes records in order. For one thread."""

    def __init__(self, image: OutcomeImage | None = None) -> None:
        self._waiting: dict[JobId, StartOutcome] = dict(image.waiting) if image else {}
        self._started: dict[JobId, StartOutcome] = dict(image.started) if image else {}

    def image(self) -> OutcomeImage:
        """Return everything, to be encoded before the next record is taken."""
        return OutcomeImage(self._waiting, self._started)

    def of(self, job_id: JobId) -> StartOutcome | None:
        """Return the estimates of a job's present wait, else of its last one that ended with a start."""
        return self._waiting.get(job_id) or self._started.get(job_id)

    def take(self, record: ev.Record) -> None:
        event = record.event
        match event:
            case ev.StartsEstimated():
                for one in event.estimates:
                    if one.given[1]:
                        told = ToldTimes(event.made_ms, one.given)
                        known = self._waiting.get(one.job_id)
                        self._waiting[one.job_id] = StartOutcome(known.first if known else told, told)
            case ev.AttemptAllocated():
                known = self._waiting.pop(event.job_id, None)
                self._started.pop(event.job_id, None)
                if known is not None:
                    self._started[event.job_id] = StartOutcome(known.first, known.last, record.time_ms)
                    if len(self._started) > STARTED_MAX:
                        del self._started[next(iter(self._started))]
            case ev.JobFinished():
                self._waiting.pop(event.job_id, None)
            case _:
                pass
