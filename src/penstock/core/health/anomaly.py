"""Anomalies of a running program, by its own gauges: each with its code and remedy.

A share or a time counts once it has stood for a minute: a change within it would have been noted. A loss is reported
as NaN or infinite after several such values in a row (`engines/processes/progress.py`), and counts at once.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.model.jobs import Attempt, Job
from penstock.core.model.progress import SizeNoted
from penstock.core.model.quantities import MILLI, format_duration, format_milli
from penstock.core.model.words import counted

STANDS_MS = 60_000
SLOW_FACTOR = 2
SLOW_LEAST_MS = 10
"""Shorter steps are reported too coarsely, and vary too much, to call one slow."""
STARVED_ABOVE_MILLI = 500
UNTOUCHED_AFTER_MS = 1_200_000
"""Programs may load data and models for long before they first use a device."""
FIRST_NOTE_REPORTS = 5
"""The first note of an attempt comes with its fourth report of a step (`engines/processes/progress.py`)."""


class Anomaly(NamedTuple):
    """`code` is stable (`explain/reasons.py`)."""

    code: str
    text: str
    resolve: str


def anomalies(job: Job, now_ms: int) -> Iterator[Anomaly]:
    """Yield anomalies of the job's attempt, most severe first; none while it stops, is suspended or hangs."""
    attempt, told = job.undisturbed, job.progress
    if attempt is None or told.hang:
        return
    if is_untouched(job, now_ms):
        yield _untouched(job)
    if told.noted_attempt != attempt.number:
        if first_report_overdue(job, now_ms):
            yield _no_report(job, attempt, now_ms)
        return
    if told.gauges.loss_not_finite:
        yield _no_number(job)
    if now_ms - told.noted.at_ms - attempt.idle_ms < STANDS_MS:
        return
    size = len(attempt.replicas)
    noted = (s for s in told.sizes if (s.replicas, s.model) == (size, attempt.model))
    known = next(noted, None) if not attempt.choice else None
    least_ms = known.step_ms_least if known is not None else 0
    if known is not None and told.gauges.step_ms >= max(SLOW_LEAST_MS, SLOW_FACTOR * least_ms) and least_ms:
        yield _slow(job, known)
    if job.ask.device_milli and told.gauges.data_wait_milli > STARVED_ABOVE_MILLI:
        yield _starved(job)


def is_untouched(job: Job, now_ms: int) -> bool:
    """Return whether a program that has run for long has never used some of its devices, as its nodes measured."""
    attempt = job.undisturbed
    ran = attempt is not None and job.use.attempt == attempt.number and attempt.worked_ms(now_ms) >= UNTOUCHED_AFTER_MS
    return ran and job.use.untouched > 0


def first_report_overdue(job: Job, now_ms: int) -> bool:
    """Return whether the job's attempt, of which nothing is noted yet, should have reported a step by now (unix ms).

    It should where an earlier attempt did, once its limit without a step is over.
    """
    attempt, told = job.undisturbed, job.progress
    if attempt is None or not attempt.running_ms or told.checkpoint_attempt == attempt.number:
        return False
    if not 0 < told.noted_attempt < attempt.number:
        return False
    each_ms = max(told.gauges.step_ms, told.gauges.report_gap_ms)
    return attempt.worked_ms(now_ms) >= job.spec.effective_hang_limit_ms + FIRST_NOTE_REPORTS * each_ms


def _no_report(job: Job, attempt: Attempt, now_ms: int) -> Anomaly:
    ran, before = format_duration(attempt.worked_ms(now_ms)), job.progress.noted_attempt
    text = f"attempt {attempt.number} has run for {ran} and reported no step; attempt {before} reported steps"
    resolve = f"see what it does: penstock logs {job.id}; or cancel it: penstock cancel {job.id}"
    return Anomaly("no_report", text, resolve)


def _untouched(job: Job) -> Anomaly:
    never, all_of = job.use.untouched, sum(len(r.place.devices) for r in (job.attempt.replicas if job.attempt else ()))
    text = f"its programs have never used {never} of its {counted(all_of, 'device')}"
    resolve = f"ask for fewer devices, or see why it does not use them: penstock logs {job.id}; "
    return Anomaly("untouched", text, resolve + "a program built without support for the devices runs on CPUs alone")


def _no_number(job: Job) -> Anomaly:
    saved = job.progress.checkpoint_step
    text = f"its loss is NaN or infinite, at step {job.progress.noted.step}"
    text += f"; it last saved at step {saved}" if saved else "; it has saved nothing yet"
    resolve = f"cancel it: penstock cancel {job.id}; then resume from a checkpoint before that "
    resolve += f"(penstock checkpoints {job.id}) with a lower learning rate, or clipped gradients"
    return Anomaly("loss_not_finite", text, resolve)


def _slow(job: Job, known: SizeNoted) -> Anomaly:
    gauges = job.progress.gauges
    tenths = 10 * gauges.step_ms // known.step_ms_least
    text = f"a step takes {gauges.step_ms} ms, {tenths // 10}.{tenths % 10} times its fastest with "
    text += f"{counted(known.replicas, 'replica')}, {known.step_ms_least} ms; {_waits(job)}"
    text += f"; it runs on {', '.join(_nodes(job))}"
    resolve = "check what else uses these nodes, their network and storage; a job that saves can be moved: "
    return Anomaly("slow_steps", text, resolve + f"penstock drain {_nodes(job)[0]} --evict")


def _starved(job: Job) -> Anomaly:
    noun = "device" if job.ask.device_milli == MILLI else "devices"
    text = f"{_waits(job)}, while it holds {format_milli(job.ask.device_milli)} {noun}"
    return Anomaly("starved", text, "more loader workers and `cpus`, data nearer to the node, or fewer devices")


def _waits(job: Job) -> str:
    return f"it waits for data {job.progress.gauges.data_wait_milli // 10} % of the time"


def _nodes(job: Job) -> list[str]:
    assert job.attempt is not None
    return list(dict.fromkeys(str(replica.place.node) for replica in job.attempt.replicas))
