"""The product's `least_attained` on Pollux workloads, beside the published figures of Tiresias with tuned jobs.

It is not the same rule, so the figures cannot be the same. How far each difference leads is shown by the rounds of
bench/pollux_rounds.py, which gives the published figures, with one difference after the other made in it: levels that
double instead of two queues; only a lower level takes the place of a higher one, instead of whoever comes first;
programs as fast everywhere as on whole nodes; and decisions every few seconds instead of every minute.
"""

import os
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace

from bench import pollux_rounds as pollux
from bench.harness import result
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.replay import replay
from penstock.sim.replay.variants import variant
from penstock.traces import Trace, load
from penstock.traces.asking import asking

WORKLOADS, WORKLOADS_QUICK = (1, 2, 3, 4), (4,)
QUICK_ROUND_S = 5
NEVER_MS = 10**13
DEFAULT_WORDS = f"least_attained+none+starvation_after_ms={NEVER_MS}"
WORDS = f"{DEFAULT_WORDS}+admission_milli=0+least_attained_turn_milli=0"
"""The published rule knows no admission limit, and nobody keeps a place for as long as it waited."""
STEPS = (
    ("as published", pollux.Tiresias(), False, pollux.ROUND_S),
    ("levels double", pollux.Tiresias(levels_double=True), False, pollux.ROUND_S),
    ("lower level only", pollux.Tiresias(levels_double=True, lower_level_only=True), False, pollux.ROUND_S),
    ("same speed everywhere", pollux.Tiresias(levels_double=True, lower_level_only=True), True, pollux.ROUND_S),
    ("rounds of 5 s", pollux.Tiresias(levels_double=True, lower_level_only=True), True, QUICK_ROUND_S),
)
"""Each with all that is said before it."""


def ours_s(trace: Trace, words: str) -> float:
    """Return the mean completion with the real core; each start takes what a change of placement takes there."""
    chosen = variant(words, trace.config)
    ran = replay(trace, Physics(start_ms=1000 * pollux.PAUSE_S), config=chosen.config)
    return fmean(life.completion_ms for life in ran.lives) / 1000


def alike_everywhere(trace: Trace) -> Trace:
    """Return the trace with every job at the size its user tuned, as fast everywhere as on whole nodes."""
    jobs = asking(trace, "off").jobs
    return replace(trace, jobs=tuple(replace(job, work=replace(job.work, trains=None)) for job in jobs))


def tiresias_part(*, quick: bool) -> None:
    """Print a line for each workload."""
    folder = Path(os.environ["PENSTOCK_TRACES"]) / "pollux"
    theirs = pollux.published(folder)
    for number in WORKLOADS_QUICK if quick else WORKLOADS:
        measured = load(folder / "workloads" / f"workload-{number}.csv.gz")
        model = {
            name: pollux.mean_s(measured, rule, whole_nodes=alike, round_s=round_s)
            for name, rule, alike, round_s in STEPS
        }
        trace = alike_everywhere(measured)
        ours = ours_s(trace, WORDS)
        reference = {
            "name": "Tiresias+Tuned, published",
            "value": theirs["tiresias-1.0", number],
            "off_pct": round(100 * (ours / theirs["tiresias-1.0", number] - 1), 2),
            "model_s": {name: round(mean_s, 1) for name, mean_s in model.items()},
            "off_model_pct": round(100 * (ours / model[STEPS[-1][0]] - 1), 2),
            "with_turns_s": round(ours_s(trace, DEFAULT_WORDS), 1),
        }
        result(f"tiresias_workload_{number}_mean_jct_s", ours, "s", "lower", None, reference)


if __name__ == "__main__":
    tiresias_part(quick=False)
