"""How right estimates of starts are: a replay in which, at random moments, waiting jobs are told when they start.

The estimates are those of `penstock eta`: the state is played on with lengths drawn from what had ended by then and
submits drawn from the days before, and what came true so far corrects what is said next. Nothing of the trace's future
is known, and nothing was fitted to this trace beforehand (`--trace helios/...` is the one that the method was developed
on).

The traces declare no limits. Each job is given one as people choose them: the part of it that it uses is uniform
(Mu'alem and Feitelson 2001), rounded up to a usual value; the scheduler backfills by them. The reference is what such
limits alone tell, as `squeue --start` does: one play in which every job takes its whole limit.
"""

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from bench.harness import result
from penstock.core.model import events as ev
from penstock.core.model.estimates import StartEstimate
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.predict.arrivals import Arrivals
from penstock.core.predict.calibration import Calibration
from penstock.core.predict.forecast import Forecaster, PastRun
from penstock.core.state.state import State
from penstock.sim.forecast.outlook import LengthOf, learned_lengths, outlook
from penstock.sim.forecast.worker import times_of
from penstock.sim.replay.earlier import earlier_runs
from penstock.sim.replay.replay import replay
from penstock.sim.replay.simulation import Simulation
from penstock.sim.replay.variants import variant
from penstock.traces import Trace, TraceJob, load
from penstock.traces.edit import with_nodes

PHILLY = "philly/philly_jobs.csv.gz"
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
USUAL_HOURS = (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 72, 168, 336, 720, 1440, 2880)
COVERAGE = (0.75, 0.85)
BUDGET_S = 10.0


def with_limits(trace: Trace, seed: int) -> Trace:
    r = random.Random(seed)
    usual = [round(hours * HOUR_MS) for hours in USUAL_HOURS]

    def limited(job: TraceJob) -> TraceJob:
        wanted_ms = job.work.run_ms / (1 - r.random())
        limit_ms = next((u for u in usual if u >= wanted_ms), usual[-1])
        limit_ms = max(limit_ms, job.work.run_ms + MINUTE_MS)
        return replace(job, spec=replace(job.spec, time_limit_ms=limit_ms))

    return replace(trace, jobs=tuple(limited(job) for job in trace.jobs))


def whole_limits(_: random.Random) -> LengthOf:
    def length(job: Job, age_ms: int) -> int:
        return max(age_ms + 1, job.spec.time_limit_ms)

    return length


class Teller:
    """Tells waiting jobs when they start, at random moments, and keeps what was told."""

    def __init__(self, every_h: float, samples: int, most: int, seed: int, history: Sequence[PastRun] = ()) -> None:
        self._every_h, self._samples, self._most = every_h, samples, most
        self._r = random.Random(seed)
        self._next_ms = 0
        self.forecaster, self.calibration, self.arrivals = Forecaster((), history), Calibration(), Arrivals()
        self.told: list[tuple[int, StartEstimate, int]] = []
        """When, what, and the start by limits alone."""
        self.looks = self.skipped = 0
        self.cpu_s = 0.0

    def observe(self, records: Sequence[ev.Record]) -> None:
        self.forecaster.observe(records)
        self.calibration.observe(records)
        self.arrivals.observe(records)

    def __call__(self, engine: Simulation, now_ms: int) -> None:
        if now_ms < self._next_ms:
            return
        waiting = sorted(i for i, job in engine.state.jobs.items() if job.state == "waiting")
        if not waiting:
            return
        self._next_ms = now_ms + round(self._r.expovariate(1 / self._every_h) * HOUR_MS)
        self._tell(engine.state, sorted(self._r.sample(waiting, min(len(waiting), self._most))), now_ms)

    def _tell(self, state: State, wanted: Sequence[JobId], now_ms: int) -> None:
        begun = time.process_time()
        image = state.image()

        def spent() -> float:
            return (time.process_time() - begun) / BUDGET_S

        lengths, days = learned_lengths(self.forecaster.predictor), self.arrivals.days(now_ms)
        found = outlook(image, wanted, now_ms, lengths, seed=self.looks, samples=self._samples, days=days, spent=spent)
        self.looks += 1
        if not all(one.samples for one in found.values()):
            self.skipped += 1
            return
        by_limits = outlook(image, wanted, now_ms, whole_limits, samples=1)
        self.cpu_s += time.process_time() - begun
        estimates = []
        for job_id, one in found.items():
            sampled = times_of(one)
            estimate = StartEstimate(job_id, self.calibration.corrected(sampled, now_ms), sampled)
            estimates.append(estimate)
            self.told.append((now_ms, estimate, by_limits[job_id].quantile_ms(1.0)))
        event = ev.StartsEstimated(now_ms, tuple(estimates))
        self.calibration.observe([ev.Record(0, now_ms, event)])
        if self.looks % 10 == 0:
            print(f"{self.looks} looks, {len(self.told):,} estimates", file=sys.stderr)


def parts_of(times: tuple[int, int, int], start_ms: int) -> int:
    return sum(bool(time_ms) and start_ms > time_ms for time_ms in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", default=PHILLY)
    parser.add_argument("--nodes", default="80")
    parser.add_argument("--history", help="an earlier trace to learn from before the first job")
    parser.add_argument("--policy", default="as_is", help="by default as the shipped defaults are")
    parser.add_argument("--every-h", type=float, default=4.0, help="mean time between looks")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--most", type=int, default=20, help="jobs told at one moment")
    parser.add_argument("--jobs", type=int, default=28_000, help="only the first so many of the trace; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = os.environ.get("PENSTOCK_TRACES")
    if not folder:
        raise SystemExit("PENSTOCK_TRACES is not set to a folder that holds the traces")
    trace = with_nodes(with_limits(load(Path(folder, given.trace), None), given.seed), given.nodes)
    trace = replace(trace, jobs=trace.jobs[: given.jobs or None])
    past, _ = earlier_runs([load(Path(folder, given.history), None)] if given.history else [], trace)
    rules = variant(given.policy, trace.config)
    teller = Teller(given.every_h, given.samples, given.most, given.seed, past)
    ran = replay(
        trace, config=rules.config, knows=rules.knows, on_records=teller.observe, on_moment=teller, history=past
    )
    starts = {life.job_id: life.started_ms for life in ran.lives if life.started_ms}
    told = [(now_ms, e, limits_ms, starts[e.job_id]) for now_ms, e, limits_ms in teller.told if e.job_id in starts]
    held = [parts_of(e.given, start_ms) in (1, 2) for _, e, _, start_ms in told]
    raw = [parts_of(e.sampled, start_ms) in (1, 2) for _, e, _, start_ms in told]
    ours = statistics.median(abs(e.given[1] - start_ms) for _, e, _, start_ms in told) / MINUTE_MS
    limits = statistics.median(abs(by_ms - start_ms) for _, _, by_ms, start_ms in told) / MINUTE_MS
    waits = statistics.median(start_ms - now_ms for now_ms, _, _, start_ms in told) / MINUTE_MS
    about = {"name": f"{len({e.job_id for _, e, _, _ in told}):,} jobs, {teller.looks} looks", "value": len(told)}
    result("eta_held_80", sum(held) / len(held), "part", f"{COVERAGE[0]} to {COVERAGE[1]}", None, about)
    result("eta_held_80_samples_alone", sum(raw) / len(raw), "part", "0.8", None)
    by_limit = {"name": "declared limits alone", "value": round(limits, 1)}
    result("eta_error_median_min", ours, "min", "lower", limits / 2, by_limit)
    result("eta_wait_median_min", waits, "min", "", None)
    result("eta_look_cpu_s", teller.cpu_s / max(1, teller.looks - teller.skipped), "s", "lower", None)
    result("eta_looks_skipped", teller.skipped, "looks", "lower", None)


if __name__ == "__main__":
    main()
