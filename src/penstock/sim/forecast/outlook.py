"""Estimates when waiting jobs start: the state is simulated forward many times, drawing run times from what is known.

Every decision on the way is the scheduler's own; run times are drawn, and the jobs that are submitted meanwhile
(`further_jobs.py`; none where less than a day of submits is known).
"""

import math
import random
from collections.abc import Callable, Collection, Mapping
from statistics import fmean
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.order.extension import Policies
from penstock.core.order.ranks import own_rest_ms
from penstock.core.place.holds import FOREVER_MS
from penstock.core.predict.forecast import features_of
from penstock.core.predict.runtime import RuntimePredictor
from penstock.core.state.expected_end import told_end_ms
from penstock.core.state.state import Image, State
from penstock.sim.forecast.further_jobs import ArrivalDays, further_jobs
from penstock.sim.forecast.sampling import Urns
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.simulation import Simulation
from penstock.traces.model import Work

SAMPLES = 50
HORIZON_MS = 30 * 86_400_000
"""Later starts are not forecast."""
UNKNOWN_MS = 1 << 50
"""A run of unknown length: for jobs that wait for it, it never ends."""
SURE_DEVIATIONS = 0.78
"""`predicted_most_ms` is the 0.9 quantile: 1 / 0.78 standard deviations above the median of a log-normal."""
BELIEVED = 0.9
"""Part of the samples that use the end reported by a running program. The others ignore the report: the program may
fail, stop early, or have something else to do after its last step."""
TOLD_SPREAD = 0.2
"""Standard deviation of the logarithm of real over reported remaining run time."""
TOLD_LEAST_MS = 1_000
MOMENTS_MAX = 200_000
"""Moments that are simulated in all samples together; where there are more, there are fewer samples."""
EXACT_MOMENTS = 500
"""After this many moments a sample decides less often."""
BUNDLE_PART, BUNDLE_MAX_MS = 1 / 64, 600_000
"""What happens within this part of the time ahead, and of a mean run, is decided on together then: a start in two days
is not known to the minute, and a cycle for each event is most of the work."""
FURTHER_PART = 0.5
"""When this part of the budget is spent on the first sample, no further jobs come in it, so that it ends in time."""


LengthOf = Callable[[Job, int], int]
"""Total run time (ms) of the present (or the next) attempt of a job, given how long it has run (ms)."""
Lengths = Callable[[random.Random], LengthOf]
"""Begins a sample: the lengths that are drawn in it may depend on each other."""


class Outlook(msgspec.Struct, frozen=True):
    """When one job starts (unix ms). `starts_ms` holds a time for each sample in which it did, ascending."""

    samples: int
    starts_ms: tuple[int, ...]

    def quantile_ms(self, part: float) -> int:
        """Return the time by which the job has started in this part of the samples; 0 where it starts in fewer."""
        at = max(0, -int(-part * self.samples // 1) - 1)
        return self.starts_ms[at] if at < len(self.starts_ms) else 0


def outlook(
    image: Image,
    wanted: Collection[JobId],
    now_ms: int,
    lengths: Lengths,
    *,
    seed: int = 0,
    samples: int = SAMPLES,
    horizon_ms: int = HORIZON_MS,
    policies: Policies | None = None,
    days: ArrivalDays = (),
    spent: Callable[[], float] = lambda: 0.0,
) -> Mapping[JobId, Outlook]:
    """Return the outlook of waiting jobs.

    Args:
        days: what was submitted on past days, and is drawn from; without any, no further jobs come.
        spent: part of the budget that is spent, polled at every moment; once 1, no further sample is drawn: there may
            be none.
    """
    started: dict[JobId, list[int]] = {job_id: [] for job_id in wanted}
    setting = _Setting(image, now_ms, horizon_ms, lengths, policies, days, spent)
    played = moments = 0
    while played < samples and (not played or moments < MOMENTS_MAX) and spent() < 1:
        draw = random.Random(f"{seed}/{played}")
        found, count = _play(setting, set(wanted), draw, 1.0 if played else FURTHER_PART)
        moments += count
        if found is None:
            break
        for job_id, at_ms in found.items():
            started[job_id].append(at_ms)
        played += 1
    return {job_id: Outlook(played, tuple(sorted(times))) for job_id, times in started.items()}


class _Setting(NamedTuple):
    """What all samples have in common."""

    image: Image
    now_ms: int
    horizon_ms: int
    lengths: Lengths
    policies: Policies | None
    days: ArrivalDays
    spent: Callable[[], float]


def _play(
    setting: _Setting, left: set[JobId], draw: random.Random, further_part: float
) -> tuple[dict[JobId, int] | None, int]:
    """Simulate one sample until all jobs in `left` have started; return their start times and the number of moments.

    A sample that the budget cuts short is discarded: jobs that start early would count too much. Further jobs come
    until `further_part` of the budget is spent.
    """
    image, now_ms, horizon_ms, lengths, policies, days, spent = setting
    state = State.from_image(image)
    engine = Simulation(state, Physics(), knows=None, policies=policies)
    engine.meter.sample_every_ms = FOREVER_MS
    length, ages = lengths(draw), {i: _age_ms(job, now_ms) for i, job in state.jobs.items()}
    drawn = {i: length(state.jobs[i], ages[i]) for i in sorted(state.jobs, key=lambda i: (-ages[i], i))}
    for job_id in sorted(state.jobs):
        engine.adopt(state.jobs[job_id], Work(max(1, drawn[job_id]), saves=True))
    engine.wake(now_ms)
    found: dict[JobId, int] = {}
    count = 0
    ending = [ms for ms in drawn.values() if ms < horizon_ms]
    bundle_max_ms = min(BUNDLE_MAX_MS, BUNDLE_PART * fmean(ending)) if ending else 0.0
    further = further_jobs(days, state, now_ms, draw, lambda i: drawn.get(i, 0), lambda: spent() >= further_part)
    for moment_ms in engine.run(further, now_ms + horizon_ms):
        count += 1
        decided_on_ms = moment_ms - engine.physics.decide_ms
        for job_id in [i for i in left if engine.lives[i].attempts]:
            left.discard(job_id)
            found[job_id] = max(now_ms, decided_on_ms)
        if not left or count > MOMENTS_MAX:
            break
        bundle_ms = round(min(bundle_max_ms, BUNDLE_PART * (moment_ms - now_ms)))
        if count > EXACT_MOMENTS and bundle_ms > 2 * engine.physics.decide_ms:
            engine.physics = replace(engine.physics, decide_ms=bundle_ms)
        if spent() >= 1:
            return None, count
    return found, count


def _age_ms(job: Job, now_ms: int) -> int:
    """Return for how long its attempt has held its places, not counting suspensions; 0 when it waits."""
    return job.attempt.held_ms(now_ms) if job.attempt is not None else 0


def _told_ms(job: Job, age_ms: int, draw: random.Random) -> int | None:
    """Draw a run's length around the end that its program reports; None without a report, or where it is ignored."""
    end_ms, length_ms = told_end_ms(job), own_rest_ms(job)
    if end_ms and job.attempt is not None:
        length_ms = end_ms - job.attempt.idle_ms - job.attempt.allocated_ms
    if not (end_ms or length_ms) or draw.random() >= BELIEVED:
        return None
    left_ms = max(TOLD_LEAST_MS, length_ms - age_ms)
    found = age_ms + max(1, round(left_ms * math.exp(draw.gauss(0.0, TOLD_SPREAD))))
    limit_ms = job.spec.time_limit_ms
    return max(min(found, limit_ms), age_ms + 1) if limit_ms else found


def declared_lengths(draw: random.Random) -> LengthOf:
    """Draw each job's length from its own report, prediction, estimate or limit alone."""

    def length(job: Job, age_ms: int) -> int:
        told = _told_ms(job, age_ms, draw)
        return _declared_ms(job, age_ms, draw) if told is None else told

    return length


def _declared_ms(job: Job, age_ms: int, draw: random.Random) -> int:
    """Draw from the prediction, else the owner's estimate, else uniformly up to the limit.

    Predictions are log-normal with their 0.9 quantile at `predicted_most_ms`; an estimate is taken as it is.
    Source for limits: Mu'alem and Feitelson 2001 find run times spread over all of them.
    """
    limit_ms = job.spec.time_limit_ms
    if job.predicted_ms:
        spread = max(1.0, (job.predicted_most_ms or job.predicted_ms) / job.predicted_ms)
        found = round(job.predicted_ms * math.pow(spread, draw.gauss(0.0, SURE_DEVIATIONS)))
    elif job.spec.estimated_duration_ms:
        found = job.spec.estimated_duration_ms
    elif limit_ms:
        found = age_ms + round(draw.random() * max(0, limit_ms - age_ms))
    else:
        return UNKNOWN_MS
    bounded = min(found, limit_ms) if limit_ms else found
    return max(bounded, age_ms + 1)


def learned_lengths(predictor: RuntimePredictor) -> Lengths:
    """Draw from how long similar jobs held their places, siblings together; where none did, as `declared_lengths`."""

    def begin(draw: random.Random) -> LengthOf:
        urns = Urns(predictor, draw)

        def length(job: Job, age_ms: int) -> int:
            told, features = _told_ms(job, age_ms, draw), features_of(job.spec, job.user)
            if told is not None:
                urns.count(job.id, features, told)
                return told
            found = urns.length_ms(job.id, features, age_ms)
            return _declared_ms(job, age_ms, draw) if found is None else found

        return length

    return begin
