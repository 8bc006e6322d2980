"""How fast traces are replayed through the real core: whole processes of `penstock sim`, as their user starts them.

Each trace runs on the cluster of its source with `fifo+easy` (declared run times: these traces declare none), and the
Helios month on 90 nodes, where jobs queue, with run times known, so that backfill has something to do. Needs the
traces: the environment variable PENSTOCK_TRACES names their folder. The reference of the Helios runs is the light
event simulator of bench/queue_sim.py in the same run: no fold, no gangs, no quotas, no explanations.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from bench.harness import result
from bench.queue_sim import HELIOS, Ordered, Pool, fresh, load_helios
from bench.queue_sim import replay as replay_light

PHILLY = "philly/philly_jobs.csv.gz"
HELIOS_LIMIT_S, PHILLY_LIMIT_S, RSS_LIMIT_MB = 3.0, 10.0, 1024
CONGESTED_NODES = 90


def run(trace: str, policy: str, *more: str) -> tuple[float, float, float, int]:
    """Return wall and CPU seconds of one run, its peak memory (MB), and how many events it folded."""
    command = (
        sys.executable,
        "-m",
        "penstock.cli.main",
        "sim",
        trace,
        "-P",
        policy,
        "--processes",
        "1",
        "--json",
        *more,
    )
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    wall_s = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    events = json.loads(out)["results"][0]["measures"]["events"]
    return wall_s, cpu_s, usage.ru_maxrss / 1024, events


def light_s(nodes: int) -> float:
    """Return the CPU seconds of the light simulator for first come first served."""
    jobs, begun = fresh(load_helios()), time.process_time()
    replay_light(jobs, Pool(nodes), Ordered(lambda job: job.arrival_s, blocks=False))
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the congested run")
    given = parser.parse_args()
    if not os.environ.get("PENSTOCK_TRACES") or not Path(os.environ["PENSTOCK_TRACES"], HELIOS).exists():
        raise SystemExit("PENSTOCK_TRACES is not set to a folder that holds helios/ and philly/")
    helios_wall, helios_cpu, helios_mb, helios_events = run(HELIOS, "fifo+easy")
    philly_wall, philly_cpu, philly_mb, philly_events = run(PHILLY, "fifo+easy")
    light = {"name": "light simulator, CPU s", "value": round(light_s(133), 2)}
    result("helios_month_s", helios_wall, "s", "lower", HELIOS_LIMIT_S, light)
    result("helios_month_cpu_s", helios_cpu, "s", "lower", None)
    result("philly_s", philly_wall, "s", "lower", PHILLY_LIMIT_S)
    result("philly_cpu_s", philly_cpu, "s", "lower", None)
    result("events_per_cpu_s", (helios_events + philly_events) / (helios_cpu + philly_cpu), "events/s", "higher", None)
    result("peak_rss_mb", max(helios_mb, philly_mb), "MB", "lower", RSS_LIMIT_MB)
    if not given.quick:
        wall, cpu, _, _ = run(HELIOS, "fifo+easy+true", "--nodes", str(CONGESTED_NODES))
        result("helios_congested_s", wall, "s", "lower", None)
        result("helios_congested_cpu_s", cpu, "s", "lower", None)


if __name__ == "__main__":
    main()
