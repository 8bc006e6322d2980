"""What is known of a job's speed: goodput from its reports where it declares a batch range, else a speed-up curve.

The models are kept from one cycle to the next; a fresh cache gives the same ones.
"""

from collections.abc import Iterable

import msgspec

from penstock.core.elastic.goodput import BatchRange, GoodputModel, GradientNoise, StepModel, StepReport, fit_step_model
from penstock.core.elastic.reported import curve_told, sizes_on
from penstock.core.elastic.speedup import GoodputCurve, SpeedCurve
from penstock.core.model.batching import BatchAsk, BatchChoice, ElasticMode, KindSteps, StepNoted
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.model.progress import SizeNoted

KEPT_MAX = 4_096
"""Jobs whose models are kept, each on each device model that it has run on."""
BATCH_GAIN_MILLI = 50
"""Another batch must be this much better for a running job to change to it: 50 = 5 %."""


KINDS_MAX = 256
"""Kinds of jobs whose fits are kept."""
ALIKE_MILLI = 700, 1_400
"""Jobs like it say how fast a job is at other sizes while each of its own steps takes these thousandths of theirs."""


class _Inputs(msgspec.Struct, frozen=True):
    """All that a job's speed is known from."""

    steps: tuple[StepNoted, ...]
    noise: int
    sizes: tuple[SizeNoted, ...]
    batch: BatchAsk | None
    mode: ElasticMode
    model: str
    alike: KindSteps | None


class LearnedSpeed:
    """The speed of one job at each size, and its best batch there."""

    def __init__(
        self, curve: SpeedCurve, goodput: GoodputModel | None, largest_seen: int, alone_milli: int = 0
    ) -> None:
        self.curve = curve
        self.goodput = goodput
        """None where its batch is not chosen by goodput: its mode, no range, or no reports yet."""
        self.largest_seen = largest_seen
        """The most replicas that it, or a job like it, has reported from."""
        self.alone_milli = alone_milli
        """Samples a second (thousandths) of one replica, useful ones where `goodput` is known; 0: not known."""
        self._best: dict[tuple[int, int], tuple[BatchChoice, float]] = {}

    def best_batch(self, replicas: int, nodes: int) -> tuple[BatchChoice, float] | None:
        """Return the best batch at a placement, and its goodput (useful samples a second); None where not known."""
        if self.goodput is None:
            return None
        found = self._best.get((replicas, nodes))
        if found is None:
            best, _ = self.goodput.best(replicas, nodes)
            choice = BatchChoice(best.local_batch, best.accumulation_steps)
            found = self._best[replicas, nodes] = choice, best.goodput
        return found if found[1] > 0.0 else None

    def better_batch(self, present: BatchChoice, replicas: int, nodes: int) -> BatchChoice | None:
        """Return a batch that is notably better than the present one at a placement; None where there is none."""
        best = self.best_batch(replicas, nodes)
        if best is None or self.goodput is None or best[0] == present:
            return None
        now = self.goodput.goodput(replicas, nodes, present.local, present.accumulation)
        return best[0] if round(best[1] * 1000) >= round(now * (1000 + BATCH_GAIN_MILLI)) else None


class LearnedSpeeds:
    """The speeds of jobs, each learned anew when its reports change."""

    def __init__(self) -> None:
        self._known: dict[tuple[JobId, str], tuple[_Inputs, LearnedSpeed]] = {}
        self._fits: dict[tuple[JobId, str], tuple[tuple[StepNoted, ...], StepModel]] = {}
        self._fits_of_kinds: dict[tuple[StepNoted, ...], StepModel] = {}

    def of(
        self, job: Job, mode: ElasticMode, model: str | None = None, *, alike: KindSteps | None = None
    ) -> LearnedSpeed:
        """Return what is known of a job's speed on one device model; by default its present or last one.

        Args:
            alike: what jobs like it measured.
        """
        told = job.progress
        if model is None:
            model = _model_of(job, alike)
        inputs = _Inputs(told.steps, told.noise, told.sizes, job.spec.batch, mode, model, alike)
        known = self._known.get((job.id, model))
        if known is None or known[0] != inputs:
            if len(self._known) >= KEPT_MAX:
                self._known.clear()
                self._fits.clear()
            known = self._known[job.id, model] = inputs, self._learn(job, inputs)
        return known[1]

    def _learn(self, job: Job, inputs: _Inputs) -> LearnedSpeed:
        steps = _of_model(inputs.steps, inputs.model)
        batch, noise_scale = inputs.batch, inputs.noise
        if inputs.alike is not None and inputs.mode == "goodput" and batch is not None:
            steps = self._completed(steps, inputs)
            noise_scale = noise_scale or inputs.alike.noise
        if inputs.mode != "goodput" or batch is None or not steps or not noise_scale:
            sizes, curve = sizes_on(job, inputs.model), curve_told(job, inputs.model)
            largest = max((s.replicas for s in sizes), default=0)
            last = next((s for s in reversed(sizes) if s.model and s.samples_per_s_milli), None)
            alone_milli = last.samples_per_s_milli * 1000 // curve.speed_milli(last.replicas, 1) if last else 0
            return LearnedSpeed(curve, None, largest, alone_milli)
        fit = self._fits.get((job.id, inputs.model))
        if fit is None or fit[0] != steps:
            fit = self._fits[job.id, inputs.model] = steps, fit_step_model(map(_report, steps))
        noise = GradientNoise(float(batch.smallest), float(noise_scale))
        goodput = GoodputModel(fit[1], noise, range_of(batch))
        curve = GoodputCurve(goodput)
        return LearnedSpeed(curve, goodput, max(s.replicas for s in steps), round(1000 * curve.alone))

    def _completed(self, own: tuple[StepNoted, ...], inputs: _Inputs) -> tuple[StepNoted, ...]:
        """Return a job's own steps and those of jobs like it at other placements, unless its own speak against them."""
        alike = inputs.alike
        theirs = _of_model(alike.steps, inputs.model) if alike is not None else ()
        if alike is None or not theirs or not self._agree(inputs.steps, alike):
            return own
        known = {(step.nodes, step.replicas) for step in own}
        return tuple(sorted((*own, *(s for s in theirs if (s.nodes, s.replicas) not in known)), key=_placement))

    def _agree(self, own: tuple[StepNoted, ...], alike: KindSteps) -> bool:
        least, most = ALIKE_MILLI
        for step in own:
            theirs = _of_model(alike.steps, step.model)
            if not theirs:
                continue
            fit = self._fit_of(theirs)
            expected_us = fit.step_us(fit.pass_us(step.local), fit.network_us(step.replicas, step.nodes))
            if not least <= round(1000 * step.step_us / max(expected_us, 1.0)) <= most:
                return False
        return True

    def _fit_of(self, steps: tuple[StepNoted, ...]) -> StepModel:
        found = self._fits_of_kinds.get(steps)
        if found is None:
            if len(self._fits_of_kinds) >= KINDS_MAX:
                self._fits_of_kinds.clear()
            found = self._fits_of_kinds[steps] = fit_step_model(map(_report, steps))
        return found


def _model_of(job: Job, alike: KindSteps | None) -> str:
    told = job.progress
    if job.attempt is not None:
        return job.attempt.model
    if told.sizes:
        return told.sizes[-1].model
    return alike.steps[-1].model if alike is not None and alike.steps else ""


def range_of(batch: BatchAsk) -> BatchRange:
    return BatchRange(batch.smallest, batch.largest, batch.per_device_min, batch.per_device_max)


def first_batch(batch: BatchAsk, replicas: int) -> BatchChoice:
    """Return the batch that a job runs with before anything is known: the smallest, divided over its replicas.

    Passes are as few as fit into memory.
    """
    total = max(batch.smallest, batch.per_device_min * replicas)
    each = -(-total // replicas)
    passes = -(-each // batch.per_device_max)
    local = min(-(-each // passes), batch.largest // (replicas * passes))
    return BatchChoice(max(1, local), passes - 1)


def largest_size(batch: BatchAsk) -> int:
    """Return the most replicas that a batch range allows: each has at least its smallest part of the largest batch."""
    return max(1, batch.largest // batch.per_device_min)


def _of_model(steps: Iterable[StepNoted], model: str) -> tuple[StepNoted, ...]:
    return tuple(sorted((step for step in steps if step.model == model), key=_placement))


def _placement(step: StepNoted) -> tuple[int, int, int]:
    return step.nodes, step.replicas, step.local


def _report(step: StepNoted) -> StepReport:
    return StepReport(step.nodes, step.replicas, step.local, step.step_us, step.sync_us)
