"""What was submitted lately: a fold over the records of the log, from which further submits are drawn.

Who estimates when a job starts has to know what comes meanwhile: under a policy that lets short jobs pass, later ones
do more to a long job than those that wait beside it.
"""

from collections.abc import Iterable
from itertools import takewhile

import msgspec
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import JobSpec

KEPT_MAX = 10_000
"""Submits that are remembered: the latest."""
DAY_MS = 86_400_000
KEPT_DAYS = 7
"""A week has all its days in it, and is recent."""


class Arrival(msgspec.Struct):
    """One submit. Times and lengths in ms; 0 is not known (yet)."""

    job_id: JobId
    submitted_ms: int
    spec: JobSpec
    """What order and placement go by; no command, no environment."""
    user: UserName
    expected_ms: int = 0
    most_ms: int = 0
    """The first prediction of its length, and of a length that it hardly exceeds."""
    length_ms: int = 0
    """How long it has held its places in all, not counting suspensions and the present attempt."""


class Arrivals:
    """Folds records into the latest arrivals. The same records give the same arrivals."""

    def __init__(self) -> None:
        self._past: dict[JobId, Arrival] = {}
        """In the order of submit."""
        self._held_since: dict[JobId, int] = {}
        """Since when live attempts hold their places."""
        self._latest: JobSpec | None = None
        self._complete_since_ms = 0
        """From here on nothing is missing."""

    def observe(self, records: Iterable[ev.Record]) -> None:
        """Take in records of the log."""
        for record in records:
            event, at_ms = record.event, record.time_ms
            self._complete_since_ms = self._complete_since_ms or at_ms
            match event:
                case ev.JobSubmitted():
                    self._submitted(event, at_ms)
                case ev.RunTimesPredicted():
                    for job_id, expected_ms, most_ms in event.times:
                        known = self._past.get(job_id)
                        if known is not None and not known.expected_ms:
                            known.expected_ms, known.most_ms = expected_ms, most_ms
                case ev.AttemptAllocated():
                    if event.job_id in self._past:
                        self._held_since[event.job_id] = at_ms
                case ev.AttemptEnded():
                    since_ms, known = self._held_since.pop(event.job_id, at_ms), self._past.get(event.job_id)
                    if known is not None:
                        known.length_ms += max(0, at_ms - since_ms - event.idle_ms)
                case _:
                    pass

    def _submitted(self, event: ev.JobSubmitted, at_ms: int) -> None:
        spec = _slim(event.spec)
        if spec == self._latest:  # the members of an array share it
            spec = self._latest
        self._latest = spec
        self._past[event.job_id] = Arrival(event.job_id, at_ms, spec, event.user)
        while len(self._past) > KEPT_MAX:
            oldest = next(iter(self._past.values()))
            self._complete_since_ms = oldest.submitted_ms + 1
            self._forget(oldest.job_id)
        for oldest in tuple(takewhile(lambda one: at_ms - one.submitted_ms > KEPT_DAYS * DAY_MS, self._past.values())):
            self._forget(oldest.job_id)

    def _forget(self, job_id: JobId) -> None:
        del self._past[job_id]
        self._held_since.pop(job_id, None)

    def days(self, now_ms: int) -> tuple[tuple[Arrival, ...], ...]:
        """Return the arrivals of each whole day until now that nothing is missing of, the latest day first."""
        count = min(KEPT_DAYS, (now_ms - self._complete_since_ms) // DAY_MS) if self._complete_since_ms else 0
        found: list[list[Arrival]] = [[] for _ in range(count)]
        for one in self._past.values():
            back = max(0, now_ms - one.submitted_ms - 1) // DAY_MS
            if back < count:
                found[back].append(one)
        return tuple(map(tuple, found))


def _slim(spec: JobSpec) -> JobSpec:
    unused = JobSpec((), spec.ask)
    return replace(
        spec,
        command=unused.command,
        after=unused.after,
        env=unused.env,
        workdir=unused.workdir,
        snapshot=unused.snapshot,
        runtime=unused.runtime,
        object_store_bytes=unused.object_store_bytes,
        inputs=unused.inputs,
        image=unused.image,
        ports=unused.ports,
        checkpoint=unused.checkpoint,
        labels=unused.labels,
        secrets=unused.secrets,
        max_wait_ms=unused.max_wait_ms,
    )
