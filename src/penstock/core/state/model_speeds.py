"""How fast jobs that are one thing run again were on each device model, as their programs reported: a fold over notes.

Kept beyond the jobs' ends, for the next of their kind. Memory is bounded for any input: see the limits.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from penstock.core.model.jobs import Job
from penstock.core.model.matching import KindSpeeds, KnownSpeeds, ModelSpeed, RunSpeed, Unit, Usual, kinds_of

KINDS_MAX = 2_048
"""The kind whose last note is oldest is forgotten first."""
MODELS_MAX = 8
"""Of one kind: the one that was noted last stays."""
RUNS_MAX = 5
"""Of one kind on one model: the latest."""
COMPUTES_MILLI = 50
"""Replicas of an elastic job compute at least this part of the time, in what is known of others like it."""
USUAL_KINDS = 256
"""From which the usual speeds of models are worked out: the latest noted."""


class ModelSpeeds:
    """Speeds by kind of job. One thread adds; others read `cut`."""

    def __init__(self, known: Iterable[KindSpeeds] = ()) -> None:
        self._known = {one.kind: one for one in known}
        self._usual: Usual | None = None
        """None: to be worked out anew."""

    def add(self, job: Job) -> None:
        """Take over what the program of a job's attempt has just reported; nothing while models differ under it."""
        attempt = job.attempt
        if attempt is None or not attempt.model or attempt.choice or attempt.pairing is not None:
            return
        unit, rate = reported_rate(job)
        if not rate:
            return
        for kind in kinds_of(job.spec, job.user):
            before = self._known.pop(kind, None)
            if before is None or before.unit != unit:
                before = KindSpeeds(kind, unit, ())
            self._known[kind] = _with(before, attempt.model, RunSpeed(job.id, rate))
        self._usual = None
        while len(self._known) > KINDS_MAX:
            del self._known[next(iter(self._known))]

    def cut(self) -> KnownSpeeds:
        """Return all that is known; it does not change any more."""
        if self._usual is None:
            self._usual = usual_speeds(list(self._known.values())[-USUAL_KINDS:])
        return KnownSpeeds(dict(self._known), self._usual)

    def image(self) -> tuple[KindSpeeds, ...]:
        """Return what a snapshot keeps, in the order in which it is forgotten."""
        return tuple(self._known.values())


def reported_rate(job: Job) -> tuple[Unit, int]:
    """Return how fast the job's attempt is by its latest note, and in which unit; a rate of 0: it does not say."""
    told, attempt = job.progress, job.attempt
    if attempt is None or told.noted_attempt != attempt.number:
        return "steps", 0
    if told.gauges.samples_per_s_milli:
        rate = told.gauges.samples_per_s_milli // max(1, len(attempt.replicas))
        if job.spec.ask.elastic:  # how long replicas wait for each other is a matter of their number
            rate = rate * 1000 // max(COMPUTES_MILLI, 1000 - told.gauges.communication_milli)
        return "samples", rate
    return "steps", 10**9 // told.step_us if told.step_us else 0


def usual_speeds(kinds: Iterable[KindSpeeds]) -> Usual:
    """Return the usual speed of each model against the one that most kinds know: the median over those that know both.

    For a job of which nothing better is known: programs differ, but most are faster on the faster model.
    """
    rates = [{one.model: one.rate for one in kind.models} for kind in kinds]
    counts: dict[str, int] = {}
    for known in rates:
        for model in known:
            counts[model] = counts.get(model, 0) + (len(known) > 1)
    if not counts or not max(counts.values()):
        return ()
    first = max(sorted(counts), key=lambda model: counts[model])
    found = [(first, 1000)]
    for model in sorted(set(counts) - {first}):
        ratios = sorted(1000 * known[model] // known[first] for known in rates if model in known and first in known)
        if ratios:
            found.append((model, max(1, ratios[(len(ratios) - 1) // 2])))
    return tuple(sorted(found)) if len(found) > 1 else ()


def _with(before: KindSpeeds, model: str, run: RunSpeed) -> KindSpeeds:
    known = before.on(model)
    runs = tuple(one for one in known.runs if one.job_id != run.job_id) if known is not None else ()
    others = tuple(one for one in before.models if one.model != model)
    return replace(before, models=(*others, ModelSpeed(model, (*runs, run)[-RUNS_MAX:]))[-MODELS_MAX:])
