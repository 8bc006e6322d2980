"""Runs a trace under several policies and seeds, over several processes, and says how they differ."""

import contextlib
import math
import multiprocessing
import os
import queue as queues
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import msgspec

from penstock.core.order.extension import Policies
from penstock.core.predict.forecast import PastRun
from penstock.sim.replay.costs import Costs
from penstock.sim.replay.counters import Sample
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.measures import Measures, finish_ratios, measure
from penstock.sim.replay.replay import Ran, replay
from penstock.sim.replay.variants import Variant
from penstock.traces.model import Trace

WorkloadOf = Callable[[int], Trace]
"""The workload of a seed: the trace itself for seed 0, others drawn like it."""
OnShare = Callable[[float], None]
"""Called now and then with the part of all the work that is done."""


class VariantResult(msgspec.Struct, frozen=True):
    """One variant under one seed: its measures, and the distributions for charts (ascending)."""

    variant: str
    seed: int
    measures: Measures
    samples: tuple[Sample, ...]
    begun_ms: int
    waits_ms: list[int]
    completions_ms: list[int]
    ratios: list[float]
    costs: Costs | None = None
    """Where prices are declared and the caller wants costs."""


class Interval(msgspec.Struct, frozen=True):
    """A mean over seeds, and how far the true mean may be from it with 95 % confidence (Student's t); 0 for one."""

    mean: float
    half: float


def result_of(variant: str, seed: int, ran: Ran) -> VariantResult:
    ended = [life for life in ran.lives if life.ended_ms]
    return VariantResult(
        variant=variant,
        seed=seed,
        measures=measure(ran),
        samples=ran.samples,
        begun_ms=ran.begun_ms,
        waits_ms=sorted(life.wait_ms for life in ended),
        completions_ms=sorted(life.completion_ms for life in ended if life.started_ms),
        ratios=sorted(ratio for ratio in finish_ratios(ran) if ratio),
    )


class _Trial(NamedTuple):
    """What all runs of a comparison have in common."""

    workload: WorkloadOf
    physics: Physics
    policies: Policies | None
    history: Sequence[PastRun]

    def run(self, variant: Variant, seed: int, told: Callable[[int, int], None]) -> VariantResult:
        ran = replay(
            self.workload(seed),
            self.physics,
            config=variant.config,
            knows=variant.knows,
            seed=seed,
            policies=self.policies,
            on_progress=told,
            history=self.history,
        )
        return result_of(variant.name, seed, ran)


def compare(
    workload: WorkloadOf,
    variants: Sequence[Variant],
    physics: Physics,
    *,
    seeds: int = 1,
    processes: int | None = None,
    policies: Policies | None = None,
    history: Sequence[PastRun] = (),
    on_share: OnShare | None = None,
) -> list[VariantResult]:
    """Return the results in the order of the variants, each under seeds 0, 1, ...

    Variants run the same workloads: under one seed, two of them differ by policy alone. All of them know `history`.
    """
    tasks = [(variant, seed) for variant in variants for seed in range(seeds)]
    trial, share = _Trial(workload, physics, policies, history), on_share or (lambda _: None)
    workers = min(len(tasks), processes or os.cpu_count() or 1)
    return list(_here(trial, tasks, share)) if workers <= 1 else _beside(trial, tasks, share, workers)


def _here(trial: _Trial, tasks: Sequence[tuple[Variant, int]], share: OnShare) -> Iterator[VariantResult]:
    for number, (variant, seed) in enumerate(tasks):

        def told(done: int, total: int, number: int = number) -> None:
            share((number + done / max(1, total)) / len(tasks))

        yield trial.run(variant, seed, told)


_shared: dict[str, Any] = {}
"""Inherited by forked workers: the trace is not sent to them."""


def _beside(trial: _Trial, tasks: Sequence[tuple[Variant, int]], share: OnShare, workers: int) -> list[VariantResult]:
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    _shared.update(trial=trial, tasks=tasks, told=told)
    done = [0.0] * len(tasks)
    try:
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            futures = [pool.submit(_task, number) for number in range(len(tasks))]
            while not all(future.done() for future in futures):
                with contextlib.suppress(queues.Empty):
                    _wait_for(told, done)
                share(sum(done) / len(tasks))
            return [future.result() for future in futures]
    finally:
        _shared.clear()


def _wait_for(told: Any, done: list[float]) -> None:
    number, part = told.get(timeout=0.2)
    done[number] = part


def _task(number: int) -> VariantResult:
    variant, seed = _shared["tasks"][number]

    def told(done: int, total: int) -> None:
        _shared["told"].put((number, done / max(1, total)))

    trial: _Trial = _shared["trial"]
    return trial.run(variant, seed, told)


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of independent values and half the width of its 95 % confidence interval."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return Interval(mean, 0.0)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Interval(mean, student_t(len(values) - 1) * math.sqrt(variance / len(values)))


def student_t(freedom: int) -> float:
    """Return the 0.975 quantile of Student's t.

    Source: expansion of Cornish and Fisher about the normal quantile (Abramowitz and Stegun 26.7.5); the first three
    degrees of freedom, where it is poor, are exact.
    """
    exact = {1: 12.706204736, 2: 4.302652730, 3: 3.182446305}
    if freedom in exact:
        return exact[freedom]
    x = 1.959963985
    terms: tuple[float, ...] = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + math.fsum(term / freedom**power for power, term in enumerate(terms, start=1))
