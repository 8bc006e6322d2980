"""Jobs passed on to a real Slurm beside bare `sbatch` on the same Slurm: how many no-op jobs end in a second.

Both submit as many at a time, in turns; the medians are compared. Slurm's nodes have room for all jobs at once. They
are so many that a rate is measured, not how soon the first begins: Slurm looks at elements of an array once a second.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.harness import result
from penstock.client import Client
from penstock.engines.slurm.writing import AT_ONCE
from tests.engines.slurm.cluster import SEARCHED, SlurmCluster, own
from tests.server.harness import Server

PROGRAM = "/bin/true"
JOBS, ROUNDS, CPUS = 1000, 3, 256
SHARE_LEAST_PCT = 90
"""2026-11, two cores."""
END_S = 300.0
ASKED_S = 0.5


def bare(slurm: SlurmCluster, jobs: int, folder: Path) -> float:
    """Return the rate of bare `sbatch` (jobs/s), from the first submit to the last end.

    Each job runs the same program, and leaves a file: to ask Slurm how far it is would slow it down.
    """
    folder.mkdir()
    environment = {"PATH": SEARCHED, **slurm.variables}
    words = ["sbatch", "--parsable", "--mem=10", "--output=/dev/null"]

    def submit(_: int) -> str:
        given = f"#!/bin/sh\n{PROGRAM}\n: > {folder}/$SLURM_JOB_ID\n"
        done = subprocess.run(words, input=given, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    begun = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(submit, range(jobs)))
    while len(os.listdir(folder)) < jobs:
        if time.perf_counter() - begun > END_S:
            raise SystemExit(f"{jobs} jobs of sbatch did not end within {END_S:.0f} s")
        time.sleep(0.05)
    return jobs / (time.perf_counter() - begun)


def passed(client: Client, jobs: int) -> float:
    """Return the rate of the same jobs through Penstock (jobs/s), until the log has the last end.

    It is asked seldom how far they are: each answer takes CPU time from Slurm and from the server, on this one machine.
    """
    begun_ms, begun = time.time() * 1000, time.perf_counter()
    job: dict[str, Any] = {"command": [PROGRAM], "cpus": 1, "memory": "10MiB"}
    made = {ref.id for ref in client.submit({"jobs": [job] * jobs}).jobs}
    while client.jobs(limit=1).jobs:
        if time.perf_counter() - begun > END_S:
            raise SystemExit(f"{jobs} jobs did not end within {END_S:.0f} s")
        time.sleep(ASKED_S)
    ended = [one for one in client.jobs(state="succeeded", sort="newest", limit=jobs).jobs if one.id in made]
    if len(ended) < jobs:
        raise SystemExit(f"{len(ended)} of {jobs} jobs succeeded")
    return 1000 * jobs / (max(one.finished_ms for one in ended) - begun_ms)


def measure(*, quick: bool = False) -> None:
    """Print `slurm_jobs_per_s` and `passthrough_share_of_sbatch`."""
    jobs, rounds = (100, 1) if quick else (JOBS, ROUNDS)
    with own(accounting=False, cpus=CPUS) as slurm, tempfile.TemporaryDirectory() as name:
        os.environ.update(slurm.variables)
        os.environ["PATH"] = SEARCHED
        folder = Path(name)
        (folder / "shared").mkdir()
        options: dict[str, Any] = {
            "slurm": True,
            "passing": True,
            "shared": str(folder / "shared"),
            "check_invariants": False,
        }
        declared: dict[str, Any] = {"nodes": [{"name": node} for node in slurm.nodes]}
        with Server(folder / "data", declared, **options) as server:
            rates = [(bare(slurm, jobs, folder / f"bare{turn}"), passed(server.client, jobs)) for turn in range(rounds)]
            print(json.dumps([[round(one, 1) for one in pair] for pair in rates]), file=sys.stderr)
    theirs, ours = (statistics.median(column) for column in zip(*rates, strict=True))
    reference = {"name": "bare sbatch on the same Slurm, in turns", "value": round(theirs, 1)}
    result("slurm_jobs_per_s", round(ours, 1), "jobs/s", "higher", None, reference=reference)
    share = round(100 * ours / theirs, 1)
    result("passthrough_share_of_sbatch", share, "%", "higher", SHARE_LEAST_PCT, reference=reference)


if __name__ == "__main__":
    measure(quick="--quick" in sys.argv)
