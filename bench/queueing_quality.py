"""How long jobs wait on a real month when nobody knows how long they run: Helios Venus, 2020-09, 90 nodes of 8.

The month is replayed through the real core: shortest predicted device time first, by run times that the forecaster
learns in the same replay from size and time of submit alone (the trace names neither owners nor jobs). Nothing is
preempted. References of the same run,
by a light simulator: first come first served, and shortest first by an oracle. `--oracle` gives the core the true run
times. Needs the trace: the environment variable PENSTOCK_TRACES names a folder with `helios/` (see its README.txt).
"""

import argparse
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

from bench.core_replay import replay as replay_core
from bench.harness import result
from bench.queue_sim import HELIOS, Job, Ordered, Policy, Pool, fresh, load_helios, replay
from penstock.core.model import cluster
from penstock.core.model.ids import PoolName, QueueName
from penstock.traces import load
from penstock.traces.edit import with_nodes

NODES = 90
JCT_LIMIT_S, QUEUE_P99_LIMIT_S = 11_500, 60_000


def config(*, oracle: bool) -> cluster.ClusterConfig:
    """Return the policy that is measured."""
    return cluster.ClusterConfig(
        pools=(cluster.Pool(PoolName("default")),),
        queues=(cluster.Queue(QueueName("default"), policy="shortest_predicted"),),
        settings=cluster.Settings(
            starts_per_cycle_max=100_000,
            predict_run_times=not oracle,
        ),
    )


def measures(jobs: Sequence[Job]) -> tuple[float, int]:
    """Return the mean job completion time and the 99th percentile of the time in the queue, in seconds."""
    queues = sorted(job.queue_s for job in jobs)
    return sum(job.jct_s for job in jobs) / len(jobs), queues[math.floor(0.99 * len(queues))]


def run(jobs: Sequence[Job], policy: Policy, nodes: int = NODES) -> tuple[float, int, float]:
    """Return the two measures, and the CPU seconds of the replay."""
    mine, begun = fresh(jobs), time.process_time()
    replay(mine, Pool(nodes), policy)
    return *measures(mine), time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the references that take long are left out")
    parser.add_argument("--oracle", action="store_true", help="also with true run times")
    parser.add_argument("--nodes", type=int, default=NODES)
    given = parser.parse_args()
    jobs = load_helios()
    references: dict[str, Policy] = {
        "SJF oracle, the head blocks": Ordered(lambda job: job.service_s, blocks=True),
        "SJF oracle, later may start": Ordered(lambda job: job.service_s, blocks=False),
    }
    if not given.quick:
        references["FIFO, later may start"] = Ordered(lambda job: job.arrival_s, blocks=False)
        references["FIFO, the head blocks"] = Ordered(lambda job: job.arrival_s, blocks=True)
    noted = {name: run(jobs, policy, given.nodes) for name, policy in references.items()}
    best = next(iter(noted))
    trace = with_nodes(load(Path(os.environ["PENSTOCK_TRACES"], HELIOS)), str(given.nodes))
    if given.oracle:
        known = replay_core(trace, config(oracle=True), "true", "true run times")
        result("helios_oracle_mean_jct_s", known.mean_jct_s, "s", "lower", None, _reference(best, noted, 0))
        result("helios_oracle_p99_queue_s", known.p99_queue_s, "s", "lower", None, _reference(best, noted, 1))
    found = replay_core(trace, config(oracle=False), "learned", "predicted run times")
    result("helios_mean_jct_s", found.mean_jct_s, "s", "lower", JCT_LIMIT_S, _reference(best, noted, 0))
    result("helios_p99_queue_s", found.p99_queue_s, "s", "lower", QUEUE_P99_LIMIT_S, _reference(best, noted, 1))
    result("helios_events_per_cpu_s", found.events / found.cpu_s, "events/s", "higher", None)


def _reference(best: str, noted: dict[str, tuple[float, int, float]], which: int) -> dict[str, object]:
    values = {name: round(found[which]) for name, found in noted.items()}
    return {"name": best, "value": values.pop(best), "others": values}


if __name__ == "__main__":
    main()
