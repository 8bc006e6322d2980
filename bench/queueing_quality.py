"""How long jobs wait when a cluster is full: Helios Venus by the shipped defaults, against greedy and oracles.

Each month is replayed by `penstock.sim.replay` as `penstock sim TRACE --nodes N [--history EARLIER]` does it, with the
run times that the scheduler itself learns: July on 76, 79 and 82 nodes of 8 after June, September on 90 with no history
(the trace names neither owners nor jobs; nothing is preempted). References in the same run: greedy (first come first
served, and whoever fits may start) by the scheduler itself, and by a light simulator of the rule alone; and of the
latter, shortest first by an oracle, where the first that does not fit stops the others or does not. The two greedy ones
differ by placement alone, by up to 6 %. `--policy` adds words, such as `fifo+easy+declared`. Needs the traces: the
environment variable PENSTOCK_TRACES names a folder with `helios/` (see its README.txt).
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.harness import result
from bench.queue_sim import Job, Ordered, Policy, Pool, fresh, load_helios, replay
from penstock.sim.replay.earlier import earlier_runs
from penstock.sim.replay.replay import replay as replay_whole
from penstock.sim.replay.variants import variant
from penstock.traces import Trace, load
from penstock.traces.edit import with_nodes

JUNE, JULY, SEPTEMBER = (f"helios/venus_2020-{month}_gpu_jobs.csv.gz" for month in ("06", "07", "09"))
DEFAULTS = "as_is"
GREEDY = "fifo+none+declared+starvation_after_ms=1000000000000000"
ORACLE_LIMIT, UNTAUGHT_LIMIT = 1.15, 1.02
DAY_MS = 86_400_000


class Case(NamedTuple):
    """A month on so many nodes, and the month that was learned from."""

    trace: str
    nodes: int
    history: str = ""


CASES = {
    "july_76": Case(JULY, 76, JUNE),
    "july_79": Case(JULY, 79, JUNE),
    "july_82": Case(JULY, 82, JUNE),
    "september_90": Case(SEPTEMBER, 90),
}


class Found(NamedTuple):
    mean_jct_s: float
    p99_queue_s: float
    longest_days: float
    cpu_s: float


def folder(name: str) -> Path:
    return Path(os.environ["PENSTOCK_TRACES"], name)


def by_rule(jobs: Sequence[Job], policy: Policy, nodes: int) -> Found:
    """Return what a rule alone makes of the jobs."""
    mine, begun = fresh(jobs), time.process_time()
    replay(mine, Pool(nodes), policy)
    queues = sorted(job.queue_s for job in mine)
    mean_s = sum(job.jct_s for job in mine) / len(mine)
    return Found(mean_s, queues[math.floor(0.99 * len(queues))], queues[-1] / 86_400, time.process_time() - begun)


def by_scheduler(case: Case, words: str) -> Found:
    """Return what the scheduler makes of a month."""
    trace: Trace = with_nodes(load(folder(case.trace)), str(case.nodes))
    history, _ = earlier_runs([load(folder(case.history))] if case.history else [], trace)
    one = variant(words, trace.config)
    begun = time.process_time()
    ran = replay_whole(trace, config=one.config, knows=one.knows, history=history)
    waits = sorted(life.wait_ms for life in ran.lives)
    mean_ms = sum(life.completion_ms for life in ran.lives) / len(ran.lives)
    p99_ms = waits[math.floor(0.99 * len(waits))]
    return Found(mean_ms / 1000, p99_ms / 1000, waits[-1] / DAY_MS, time.process_time() - begun)


class References(NamedTuple):
    greedy: Found
    greedy_by_rule: Found
    oracle: Found
    """The better of two."""


def references(case: Case) -> References:
    jobs = load_helios(case.trace)
    greedy = by_rule(jobs, Ordered(lambda job: job.arrival_s, blocks=False), case.nodes)
    oracles = [by_rule(jobs, Ordered(lambda job: job.service_s, blocks=blocks), case.nodes) for blocks in (True, False)]
    return References(by_scheduler(case, GREEDY), greedy, min(oracles))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append", default=[], help="words to measure in addition to the defaults")
    parser.add_argument("--case", action="append", choices=[*CASES], help="by default all of them")
    given = parser.parse_args()
    noted = {name: references(CASES[name]) for name in given.case or CASES}
    for words in (DEFAULTS, *given.policy):
        ratios = []
        for name, beside in noted.items():
            print(f"{name}: {words}", file=sys.stderr)
            found = by_scheduler(CASES[name], words)
            ratios.append(found.mean_jct_s / beside.oracle.mean_jct_s)
            _tell(f"{name}_{words}", found, beside)
        whole = len(noted) == len(CASES) and words == DEFAULTS
        result(f"oracle_ratio_{words}", sum(ratios) / len(ratios), "x", "lower", ORACLE_LIMIT if whole else None)


def _tell(name: str, found: Found, beside: References) -> None:
    """Print the measures of a month beside those of its references."""
    means = {which: round(one.mean_jct_s) for which, one in beside._asdict().items()}
    waits = {which: round(one.p99_queue_s) for which, one in beside._asdict().items()}
    untaught = "declared" in name
    limit_s = (UNTAUGHT_LIMIT if untaught else 1) * beside.greedy.mean_jct_s
    p99_limit_s = None if untaught else beside.greedy.p99_queue_s
    result(f"{name}_mean_jct_s", found.mean_jct_s, "s", "lower", limit_s, {"name": ", ".join(means), "value": means})
    result(
        f"{name}_p99_queue_s", found.p99_queue_s, "s", "lower", p99_limit_s, {"name": ", ".join(waits), "value": waits}
    )
    result(f"{name}_longest_wait_days", found.longest_days, "days", "lower", None)
    result(f"{name}_cpu_s", found.cpu_s, "s", "lower", None)


if __name__ == "__main__":
    main()
