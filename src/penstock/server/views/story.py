"""One job over time: attempts, ranks and series, folded from its records."""

from collections.abc import Callable, Iterable, Sequence

from penstock.api.jobs import AttemptList, AttemptView, JobSeries, JobSeriesList, Point, RankView, Wait
from penstock.core.model import events as ev
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.state.history import AttemptHistory, History, JobHistory

ATTEMPTS_MAX = 500
WAITS_MAX = 500
RANKS_MAX = 1_000
POINTS_MAX = 500
UNITS = {
    "step": "steps",
    "checkpoint": "steps",
    "step_ms": "ms",
    "samples_per_s": "1/s",
    "data_wait": "share",
    "communication": "share",
    "memory_bytes": "bytes",
    "data_queue": "items",
    "replicas": "replicas",
    "devices": "devices",
}
"""Series of a job, in their order, each with its unit."""


def attempt_list(records: Sequence[ev.Record], attempt: int, sees_job: Callable[[JobId], bool]) -> AttemptList:
    """Return the timeline of a job.

    Args:
        records: all records of the job, in order; not empty.
        attempt: whose ranks to list; 0: those of the last.
        sees_job: whether the caller may know of another job.
    """
    job = _history(records)
    allocated = _allocated(records)
    shown = [_attempt(one, allocated[one.number], sees_job) for one in job.attempts[-ATTEMPTS_MAX:]]
    waits = [Wait(*span) for span in job.intervals(0)]
    of = attempt or (job.attempts[-1].number if job.attempts else 0)
    ranks = _ranks(records, AttemptNumber(of))
    return AttemptList(
        job.submitted.job_id,
        job.state,
        job.submitted_ms,
        job.finished_ms or 0,
        shown,
        waits[-WAITS_MAX:],
        ranks[:RANKS_MAX],
        of,
        len(job.attempts) - len(shown),
        max(0, len(waits) - WAITS_MAX),
        max(0, len(ranks) - RANKS_MAX),
    )


def _history(records: Sequence[ev.Record]) -> JobHistory:
    history = History()
    for record in records:
        history.take(record)
    (job,) = history.jobs.values()
    return job


def _allocated(records: Iterable[ev.Record]) -> dict[int, ev.AttemptAllocated]:
    """Return by number how each attempt was allocated."""
    events = (record.event for record in records)
    return {event.attempt: event for event in events if isinstance(event, ev.AttemptAllocated)}


def _device_count(event: ev.AttemptAllocated) -> int:
    return len({(place.node, index) for place in event.places for index in place.devices})


def _attempt(one: AttemptHistory, event: ev.AttemptAllocated, sees_job: Callable[[JobId], bool]) -> AttemptView:
    asked = [(at_ms, stop) for at_ms, stop in one.stops if stop.reason != "suspended"]
    asked_ms, stop = asked[-1] if asked else (0, None)
    beneficiary = stop.beneficiary if stop is not None else None
    return AttemptView(
        number=one.number,
        allocated_ms=one.allocated_ms,
        running_ms=one.running_ms or 0,
        ended_ms=one.ended_ms or 0,
        nodes=[str(node) for node in one.nodes],
        replicas=len(event.places),
        devices=_device_count(event),
        outcome=one.outcome or "",
        detail=one.detail,
        asked_ms=asked_ms,
        asked_reason=str(stop.reason) if stop is not None else "",
        beneficiary=beneficiary if beneficiary is not None and sees_job(beneficiary) else None,
        idle_ms=one.idle_ms,
        suspended_ms=one.suspended_ms or 0,
        resumed_step=one.resumed.step if one.resumed is not None else None,
        lost_steps=one.resumed.lost_steps if one.resumed is not None else 0,
        saved_step=one.saved_step,
        requeued=one.requeued,
        scheduler=event.scheduler,
    )


def _ranks(records: Iterable[ev.Record], attempt: AttemptNumber) -> list[RankView]:
    """Return the ranks of an attempt, in order."""
    places: list[tuple[str, list[int]]] = []
    started: dict[int, int] = {}
    ended: dict[int, tuple[int, str]] = {}
    for record in records:
        match record.event:
            case ev.AttemptAllocated() as event if event.attempt == attempt:
                places = [(place.node, list(place.devices)) for place in event.places]
            case ev.ReplicaStarted() as event if event.attempt == attempt:
                started[event.rank] = record.time_ms
            case ev.ReplicaExited() as event if event.attempt == attempt:
                ended[event.rank] = record.time_ms, event.exit.text()
            case _:
                pass
    return [
        RankView(rank, node, devices, started.get(rank, 0), *ended.get(rank, (0, "")))
        for rank, (node, devices) in enumerate(places)
    ]


def series_list(records: Sequence[ev.Record], until_ms: int) -> JobSeriesList:
    """Return what the log says of a job over time, at most `POINTS_MAX` points for each quantity.

    Args:
        records: all records of the job, in order; not empty.
        until_ms: now.
    """
    found: dict[str, list[Point]] = {name: [] for name in UNITS}
    total_steps = 0
    for record in records:
        at_ms = record.time_ms
        match record.event:
            case ev.ProgressNoted() as event:
                total_steps = event.gauges.total_steps or total_steps
                for name, value in _values(event):
                    found[name].append(Point(at_ms, value))
            case ev.CheckpointSaved() as event:
                found["checkpoint"].append(Point(at_ms, event.step))
            case ev.JobResumed() as event:
                found["step"].append(Point(at_ms, event.step))
            case ev.AttemptAllocated() as event:
                found["replicas"].append(Point(at_ms, len(event.places)))
                found["devices"].append(Point(at_ms, _device_count(event)))
            case ev.AttemptEnded():
                found["replicas"].append(Point(at_ms, 0))
                found["devices"].append(Point(at_ms, 0))
            case ev.JobFinished():
                until_ms = at_ms
            case _:
                pass
    shown = [
        JobSeries(name, UNITS[name], thinned(points), len(points) > POINTS_MAX)
        for name, points in found.items()
        if any(point.value for point in points)
    ]
    submitted = records[0]
    assert isinstance(submitted.event, ev.JobSubmitted)
    return JobSeriesList(submitted.event.job_id, submitted.time_ms, until_ms, total_steps, shown)


def _values(event: ev.ProgressNoted) -> Iterable[tuple[str, float]]:
    gauges = event.gauges
    yield "step", event.step
    yield "step_ms", gauges.step_ms
    yield "samples_per_s", gauges.samples_per_s_milli / 1000
    yield "data_wait", gauges.data_wait_milli / 1000
    yield "communication", gauges.communication_milli / 1000
    yield "memory_bytes", gauges.memory_bytes
    yield "data_queue", gauges.data_queue


def thinned(points: Sequence[Point], most: int = POINTS_MAX) -> list[Point]:
    """Return at most `most` points: of each of `most / 2` stretches of equal length the lowest and the highest.

    Peaks stay, which means of a stretch would hide.
    """
    if len(points) <= most:
        return list(points)
    stretches, kept = most // 2, []
    for i in range(stretches):
        begin, end = i * len(points) // stretches, (i + 1) * len(points) // stretches
        numbers = range(begin, end)
        low = min(numbers, key=lambda at: points[at].value)
        high = max(numbers, key=lambda at: points[at].value)
        kept += [points[at] for at in sorted({low, high})]
    return kept
