"""What jobs that are one thing run again measured with their batches, kept beyond their ends: a fold over notes.

The next of their kind starts with it, instead of trying each size. Memory is bounded for any input: see the limits.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from penstock.core.model.batching import KindSteps, StepNoted
from penstock.core.model.jobs import Job
from penstock.core.model.matching import KnownSteps, kinds_of

KINDS_MAX = 1_024
"""The kind whose last note is oldest is forgotten first."""
STEPS_MAX = 48
"""Of one kind: the placement and batch that was noted first goes first."""
SAME_MILLI = 50
"""A time that differs from the known one by less says nothing new: 50 = 5 %."""


class StepsByKind:
    """Steps by kind of job. One thread adds; others read `cut`."""

    def __init__(self, known: Iterable[KindSteps] = ()) -> None:
        self._known = {one.kind: one for one in known}

    def add(self, job: Job) -> None:
        """Take over what the program of a job's attempt has just reported of its batch."""
        attempt, told = job.attempt, job.progress
        if attempt is None or attempt.choice or attempt.pairing is not None or told.noted_attempt != attempt.number:
            return
        if told.gauges.batch is None or not told.steps:
            return
        for kind in kinds_of(job.spec, job.user):
            before = self._known.pop(kind, None) or KindSteps(kind)
            first = attempt.number == 1 and told.first == told.noted
            self._known[kind] = _with(before, told.steps[-1], told.noise if first else 0, told.restart_ms)
        while len(self._known) > KINDS_MAX:
            del self._known[next(iter(self._known))]

    def cut(self) -> KnownSteps:
        """Return all that is known; it does not change any more."""
        return KnownSteps(dict(self._known))

    def image(self) -> tuple[KindSteps, ...]:
        """Return what a snapshot keeps, in the order in which it is forgotten."""
        return tuple(self._known.values())


def _with(before: KindSteps, step: StepNoted, noise: int, restart_ms: int) -> KindSteps:
    noise = _between(before.noise, noise)
    restart_ms = _between(before.restart_ms, restart_ms)
    known = next((one for one in before.steps if _place(one) == _place(step)), None)
    steps = before.steps
    if known is None:
        steps = (*steps, step)[-STEPS_MAX:]
    elif _apart(known.step_us, step.step_us) or _apart(known.sync_us, step.sync_us):
        mean = (known.step_us + step.step_us + 1) // 2, (known.sync_us + step.sync_us + 1) // 2
        fresh = replace(step, step_us=mean[0], sync_us=mean[1])
        steps = tuple(fresh if one is known else one for one in steps)
    return KindSteps(before.kind, steps, noise, restart_ms)


def _place(step: StepNoted) -> tuple[int, int, int, str]:
    bits = max(0, step.local.bit_length() - 3)
    return step.nodes, step.replicas, step.local >> bits << bits, step.model


def _apart(old: int, new: int) -> bool:
    return abs(new - old) * 1000 > SAME_MILLI * max(old, new)


def _between(old: int, new: int) -> int:
    """Return the mean of what is known and what is new; 0 is nothing."""
    if not old or not new:
        return old or new
    return (old + new) // 2 if _apart(old, new) else old
