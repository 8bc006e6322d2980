"""How fast one job is on each device model, as far as is known, and where that comes from.

In this order: its own reports; reports of jobs like it; what its pool declares; how all jobs together usually do on the
models. A later source is brought to the scale of an earlier one by the models that both know: a job that runs with half
the batch of its siblings is expected to keep their ratios, not their rates.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from penstock.core.model.jobs import Job
from penstock.core.model.matching import KindSpeeds, Usual
from penstock.core.model.progress import SizeNoted

Source = Literal["own", "similar", "declared", "usual"]
Declared = Sequence[tuple[str, int, int]]
"""Model, relative speed and cost of an hour, thousandths each: `Pool.speeds`."""
SCALE = 1_000_000
"""Rates are brought to this scale: the fastest model has it."""


class Rate(NamedTuple):
    """How fast the job is on one model."""

    rate: int
    """Relative: `SCALE` on the fastest of the models that are known."""
    source: Source
    runs: int
    """Runs that it rests on; 0 where it is declared, or usual."""


Rates = Mapping[str, Rate]


Raw = dict[str, tuple[int, Source, int]]
"""By model: the rate in some unit, its source, and the runs that it rests on."""


def rates_of(
    job: Job, known: Sequence[KindSpeeds], declared: Declared, usual: Usual, models: Collection[str]
) -> dict[str, Rate]:
    """Return the job's rate on each of `models` of which anything is known, relative to the fastest.

    Args:
        known: what jobs like it reported, its own reports among them; the most alike first.
    """
    raw: Raw = {}
    for kind in known[:1]:
        own = {one.model: run.rate for one in kind.models for run in one.runs if run.job_id == job.id}
        noted = {size.model: _rate_noted(size, kind.unit) for size in job.progress.sizes if size.model}
        raw = {model: (rate * SCALE, "own", 1) for model, rate in {**noted, **own}.items() if rate}
    for kind in known:
        runs = {one.model: [run.rate for run in one.runs if run.job_id != job.id] for one in kind.models}
        found = {model: (_middle(rates), len(rates)) for model, rates in runs.items() if rates}
        _add(raw, "similar", found)
    _add(raw, "declared", {model: (speed, 0) for model, speed, _ in declared})
    _add(raw, "usual", {model: (speed, 0) for model, speed in usual})
    wanted = {model: entry for model, entry in raw.items() if model in models}
    best = max((rate for rate, _, _ in wanted.values()), default=0)
    return {model: Rate(max(1, SCALE * rate // best), source, runs) for model, (rate, source, runs) in wanted.items()}


def _rate_noted(size: SizeNoted, unit: str) -> int:
    if unit == "samples":
        return size.samples_per_s_milli // max(1, size.replicas)
    return 1_000_000 // size.step_ms_least if size.step_ms_least else 0


def _middle(values: Sequence[int]) -> int:
    return sorted(values)[(len(values) - 1) // 2]


def _add(raw: Raw, source: Source, speeds: Mapping[str, tuple[int, int]]) -> None:
    """Add speeds of models that are not known yet, brought to the scale of those that are."""
    common = [(raw[model][0], speed) for model, (speed, _) in speeds.items() if model in raw]
    if raw and not common:
        return
    measured, said = (sum(part) for part in zip(*common, strict=True)) if common else (SCALE, 1)
    for model, (speed, runs) in speeds.items():
        if model not in raw:
            raw[model] = (speed * measured // max(1, said), source, runs)
