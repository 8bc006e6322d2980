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
import tempfile
import time
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from bench.harness import result
from bench.queue_sim import HELIOS, Ordered, Pool, fresh, load_helios
from bench.queue_sim import replay as replay_light
from penstock.core.model.events import Record
from penstock.sim.replay.agreement import as_recorded
from penstock.sim.replay.replay import replay
from penstock.traces import load
from penstock.traces.ownlog import trace_of

ROOT = Path(__file__).resolve().parents[1]
PHILLY = "philly/philly_jobs.csv.gz"
HELIOS_LIMIT_S, PHILLY_LIMIT_S, RSS_LIMIT_MB = 3.0, 10.0, 1024
CONGESTED_NODES = 90
OWN_LOG_JOBS, OWN_LOG_LIMIT_S = 100_000, 60.0
DAY_MS = 86_400_000


def run(trace: str, policy: str, *more: str) -> tuple[float, float, float, int]:
    """Return wall and CPU seconds of one run, its peak memory (MB), and how many events it folded."""
    command = (
        sys.executable,
        "-P",
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


def write_log(path: Path, jobs: int) -> int:
    """Write the log of a cluster that ran so many jobs, the Helios month again and again; return its events."""
    month = load(Path(os.environ["PENSTOCK_TRACES"], HELIOS), None)
    span_ms = month.jobs[-1].submit_ms + DAY_MS
    more = (
        replace(job, submit_ms=job.submit_ms + turn * span_ms)
        for turn in range(-(-jobs // len(month.jobs)))
        for job in month.jobs
    )
    records: list[Record] = []
    replay(replace(month, jobs=tuple(islice(more, jobs))), on_records=records.extend)
    path.write_bytes(msgspec.msgpack.encode(records))
    return len(records)


def replay_log(path: Path) -> None:
    """Replay a log under its own rules, and print what that took: the work of a process of its own."""
    begun, cpu = time.monotonic(), time.process_time()
    told = trace_of(msgspec.msgpack.decode(path.read_bytes(), type=list[Record]))
    ran = replay(told.trace, as_recorded(told))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([time.monotonic() - begun, time.process_time() - cpu, peak_mb, len(ran.lives)]))


def own_log() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        events = write_log(path, OWN_LOG_JOBS)
        command = (sys.executable, "-P", "-m", "bench.replay", "--replay-log", str(path))
        found = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part)
        environment = os.environ | {"PYTHONPATH": found}
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
        wall, cpu, peak_mb, jobs = json.loads(done.stdout)
        assert jobs == OWN_LOG_JOBS
    about = {"name": "events in the log", "value": events}
    result("own_log_100k_s", wall, "s", "lower", OWN_LOG_LIMIT_S, about)
    result("own_log_100k_cpu_s", cpu, "s", "lower", None)
    result("own_log_100k_rss_mb", peak_mb, "MB", "lower", RSS_LIMIT_MB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the congested run and the own log")
    parser.add_argument("--own-log", action="store_true", help="the own log alone")
    parser.add_argument("--replay-log", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.replay_log:
        replay_log(given.replay_log)
        return
    if not os.environ.get("PENSTOCK_TRACES") or not Path(os.environ["PENSTOCK_TRACES"], HELIOS).exists():
        raise SystemExit("PENSTOCK_TRACES is not set to a folder that holds helios/ and philly/")
    if given.own_log:
        own_log()
        return
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
        own_log()


if __name__ == "__main__":
    main()
