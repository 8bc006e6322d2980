"""What keeping room for expected demand does on real workloads: waits of urgent jobs, of the others, and utilisation.

Each workload is replayed by `penstock.sim.replay` as `penstock sim TRACE --nodes N -P "as_is+..."` does it, once as
shipped and once with `predictive_share_milli=0`, which keeps no room; nothing else differs, and no job is preempted.
The traces name no priorities. So jobs of as many devices as a node has, or more, count as urgent (900, the others
medium), which makes the wide jobs the ones that room may be kept for; in `_daily` none of them do, but a job of 16
devices for an hour is added each day at 14:10, which is not in the trace. No number of the scheduler was chosen by
these workloads. Needs the traces: the environment variable PENSTOCK_TRACES names a folder with `helios/` and `philly/`
(see the README.txt there).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from bench.harness import result
from penstock.sim.replay.life import Life
from penstock.sim.replay.measures import measure
from penstock.sim.replay.replay import Ran, from_origin
from penstock.sim.replay.replay import replay as replay_whole
from penstock.sim.replay.variants import variant
from penstock.traces import Trace, load
from penstock.traces.edit import with_nodes
from penstock.traces.model import TraceJob

URGENT, WIDE, HOUR_MS = 900, 8, 3_600_000
DAILY, DAY_MS, AT_MS = 16, 24 * HOUR_MS, 14 * HOUR_MS + 600_000
WITHOUT = "predictive_share_milli=0"


class Case(NamedTuple):
    trace: str
    nodes: str
    words: str = "no_preempt"
    thin: int = 1
    """One of so many jobs is taken: a smaller cluster is as full with them, and replayed sooner."""
    daily: bool = False
    """Not its own wide jobs are urgent, but one of `DAILY` devices that is added every day at one time."""


JULY, SEPTEMBER = (f"helios/venus_2020-{month}_gpu_jobs.csv.gz" for month in ("07", "09"))
CASES = {
    "july_20": Case(JULY, "20", thin=4),
    "july_20_daily": Case(JULY, "20", thin=4, daily=True),
    "september_23": Case(SEPTEMBER, "23", thin=4),
    "july_79": Case(JULY, "79"),
    "philly_24": Case("philly/philly_jobs.csv.gz", "24", thin=2),
}
QUICK = ("july_20", "july_20_daily")


def workload(case: Case) -> Trace:
    """Return the trace with its wide jobs urgent, or with an urgent job a day beside them."""
    trace = from_origin(with_nodes(load(Path(os.environ["PENSTOCK_TRACES"], case.trace)), case.nodes))
    chosen = trace.jobs[:: case.thin]
    if not case.daily:
        wide = [job.spec.ask.device_total >= WIDE for job in chosen]
        return replace(trace, jobs=tuple(_urgent(job) if one else job for job, one in zip(chosen, wide, strict=True)))
    like = next(job for job in chosen if job.spec.ask.device_total == DAILY)
    first, last = (chosen[at].submit_ms // DAY_MS for at in (0, -1))
    daily = [
        replace(_urgent(like), submit_ms=day * DAY_MS + AT_MS, work=replace(like.work, run_ms=HOUR_MS), name="daily")
        for day in range(first + 1, last)
    ]
    return replace(trace, jobs=tuple(sorted((*chosen, *daily), key=lambda job: job.submit_ms)))


def _urgent(job: TraceJob) -> TraceJob:
    return replace(job, spec=replace(job.spec, priority=URGENT))


def waits(lives: Sequence[Life]) -> tuple[float, float]:
    """Return the mean and the 95th percentile of the waits of jobs that started (s)."""
    found = sorted(life.started_ms - life.submitted_ms for life in lives if life.started_ms)
    return sum(found) / len(found) / 1000, found[min(len(found) - 1, len(found) * 95 // 100)] / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Two workloads on a small cluster.")
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    given = parser.parse_args()
    if "PENSTOCK_TRACES" not in os.environ:
        sys.exit("PENSTOCK_TRACES names no folder with traces")
    for name in given.case or (QUICK if given.quick else CASES):
        case = CASES[name]
        trace = workload(case)
        for words, told in ((case.words, "with"), (f"{case.words}+{WITHOUT}", "without")):
            ran = replay_whole(trace, config=variant(words, trace.config).config)
            figures(f"{name}_{told}", ran)


def figures(name: str, ran: Ran) -> None:
    """Print the figures of one replay."""
    urgent = [life for life in ran.lives if life.spec.priority == URGENT]
    others = [life for life in ran.lives if life.spec.priority != URGENT]
    mean_s, p95_s = waits(urgent)
    others_mean_s, others_p95_s = waits(others)
    kept = sum(use.kept_device_ms for use in ran.strategies.values()) / HOUR_MS
    held_back = sum(use.jobs_held_back for use in ran.strategies.values())
    rows = (
        (f"{name}_urgent_wait_mean", mean_s, "s", "lower"),
        (f"{name}_urgent_wait_p95", p95_s, "s", "lower"),
        (f"{name}_others_wait_mean", others_mean_s, "s", "lower"),
        (f"{name}_others_wait_p95", others_p95_s, "s", "lower"),
        (f"{name}_utilisation", measure(ran).utilisation, "share", "higher"),
        (f"{name}_device_hours_kept", kept, "h", "lower"),
        (f"{name}_held_back", held_back, "jobs", "lower"),
    )
    for metric, value, unit, better in rows:
        result(metric, value, unit, better, None)


if __name__ == "__main__":
    main()
