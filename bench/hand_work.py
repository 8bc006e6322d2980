"""What people wait for by hand, with 200 simulated nodes and 10,000 jobs: real commands against a real server.

Each time includes the start of the interpreter, whose share is measured in the same run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness import Server, result, server

NODES, DEVICES, JOBS = 200, 8, 10_000
QUICK_NODES, QUICK_JOBS = 20, 1_000
ENDED_WAIT_S = 900.0
ROUNDS = 3
RIGHT = (0, 10, 11)
"""Exit codes of commands that answered: `plan` says by them when the job would start."""


def declared(nodes: int) -> dict[str, Any]:
    """Return a cluster of simulated nodes; their agents report seldom, for all run on this machine."""
    each = {"cpus": 64, "memory": "512GiB", "simulated_devices": {"count": DEVICES}}
    often = {"heartbeat": "5s", "lease_ttl": "120s", "lease_margin": "30s"}
    return {"nodes": [{"name": f"n{i:03}", **each} for i in range(nodes)], "settings": often}


def bare_s() -> float:
    """Return the median time of an interpreter that does nothing (s)."""
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-P", "-c", "pass"], check=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def command_s(running: Server, *words: str, rounds: int = ROUNDS) -> float:
    """Return the median time of a command (s), which must succeed."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "penstock.cli.main", *words],
            env=os.environ | {"PENSTOCK_HOME": str(running.data)},
            capture_output=True,
            text=True,
            check=False,
        )
        times.append(time.perf_counter() - begun)
        assert done.returncode in RIGHT, f"{words}: {done.stdout[-500:]} {done.stderr[-500:]}"
    return statistics.median(times)


def fill(running: Server, jobs: int, nodes: int) -> int:
    """Fill the cluster, and let the rest of the jobs wait; return a waiting one."""
    running.client.submit({"command": "sleep 3600", "devices": DEVICES, "array": nodes - 1, "name": "busy"})
    made = running.client.submit({"command": "true", "devices": DEVICES, "replicas": nodes, "array": jobs, "name": "w"})
    return made.jobs[0].id


def end_many(running: Server, jobs: int) -> None:
    """Run short jobs to their end."""
    running.client.submit({"command": ["true"], "cpus": 1, "array": jobs, "name": "short"})
    deadline = time.monotonic() + ENDED_WAIT_S
    while running.client.cluster().jobs_succeeded < jobs:
        assert time.monotonic() < deadline, "the jobs did not end in time"
        time.sleep(0.5)


def measure(nodes: int, jobs: int) -> None:
    with server(declared=declared(nodes)) as running, tempfile.TemporaryDirectory() as folder:
        reference = {"name": "start of a bare interpreter, s", "value": round(bare_s(), 3)}
        job = Path(folder) / "job.json"
        job.write_text(json.dumps({"command": "true", "devices": DEVICES}))
        waiting = fill(running, jobs, nodes)
        for name, words in (
            ("ps_s", ("ps",)),
            ("queue_s", ("queue",)),
            ("explain_s", ("explain", str(waiting))),
            ("eta_s", ("eta", str(waiting))),
            ("plan_s", ("plan", str(job))),
        ):
            result(name, command_s(running, *words), "s", "lower", 1.0, reference)
        took = command_s(running, "cancel", "--all", "--yes", rounds=1)
        result("cancel_10k_s", took, "s", "lower", 10.0, reference)
        waiting = running.client.cluster().jobs_waiting
        assert waiting == 0, f"{waiting} jobs still wait"


def measure_report(jobs: int) -> None:
    """Time the report on its own server: one node, so that 10,000 processes are all that it is about."""
    with server(cpus=64) as running, tempfile.TemporaryDirectory() as folder:
        reference = {"name": "start of a bare interpreter, s", "value": round(bare_s(), 3)}
        end_many(running, jobs)
        took = command_s(running, "report", "--out", folder, rounds=1)
        result("report_10k_s", took, "s", "lower", 15.0, reference)
        size = (Path(folder) / "report.html").stat().st_size / 2**20
        result("report_10k_mib", size, "MiB", "lower", 16.0, reference)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer nodes and jobs")
    quick = parser.parse_args().quick
    measure(QUICK_NODES if quick else NODES, QUICK_JOBS if quick else JOBS)
    measure_report(QUICK_JOBS if quick else JOBS)


if __name__ == "__main__":
    main()
