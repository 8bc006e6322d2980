"""A shadow beside a real Slurm with thousands of ended jobs: the time to the first explanation, and what it costs.

The Slurm is one of its own, with accounts, on loopback; its nodes do nothing while the cost is measured. What the same
questions cost slurmctld's own client (`squeue`) stands beside the shadow's part of a core.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import result
from penstock.client import Client
from penstock.core.model.errors import PenstockError
from tests.engines.slurm.cluster import SlurmCluster, own

JOBS, WAITING = 6_000, 2_000
FIRST_LIMIT_S, CORE_LIMIT_PCT = 60, 5
"""2026-11, two cores."""
REFRESH_S = 30
FILL_S = 600.0


def fill(slurm: SlurmCluster, ended: int, waiting: int) -> int:
    """Let jobs end, in arrays, and others wait for ever; return the number of one that waits."""
    at_most = 5_000
    for first in range(0, ended, at_most):
        members = min(at_most, ended - first)
        slurm.run("sbatch", f"--array=0-{members - 1}", "-o", "/dev/null", "--wrap", "true")
    deadline = time.monotonic() + FILL_S
    while slurm.run("squeue", "-h", "-o", "%i").strip():
        if time.monotonic() > deadline:
            raise SystemExit(f"Slurm did not end {ended} jobs within {FILL_S:.0f} s")
        print(slurm.run("squeue", "-h", "-o", "%F %K").split("\n")[0], "is next", file=sys.stderr)
        time.sleep(5)
    held = slurm.run("sbatch", "--parsable", "--hold", f"--array=0-{waiting - 1}", "-o", "/dev/null", "--wrap", "true")
    return int(held.strip().partition(";")[0])


@contextmanager
def shadow(slurm: SlurmCluster, data: Path, port: int) -> Iterator[tuple[int, float]]:
    """Run a shadow as `penstock up` starts it; give its process number and when it was called."""
    environment = {**os.environ, **slurm.variables, "PENSTOCK_HOME": str(data), "PENSTOCK_DATA": str(data)}
    penstock = [sys.executable, "-P", "-m", "penstock.cli.main"]
    begun = time.perf_counter()
    up = [*penstock, "up", "--engine", "slurm", "--shadow", "--refresh", str(REFRESH_S), "--port", str(port)]
    subprocess.run(up, env=environment, check=True, stdout=sys.stderr)
    try:
        yield int(json.loads((data / "server.json").read_bytes())["pid"]), begun
    finally:
        subprocess.run([*penstock, "down"], env=environment, check=True, stdout=sys.stderr)


def explained(client: Client) -> str:
    """Return the explanation of a job that waits; nothing while there is none."""
    try:
        waiting = [job for job in client.jobs().jobs if job.state == "waiting"]
        return client.explain(waiting[0].id).text if waiting else ""
    except PenstockError:
        return ""


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def squeue_s(slurm: SlurmCluster) -> float:
    """Return the CPU time of one `squeue` of all jobs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    slurm.run("squeue", "-h", "-a", "-r", "-o", "%i %T %r")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs and of the time")
    part = 10 if parser.parse_args().quick else 1
    with own() as slurm, tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        fill(slurm, JOBS // part, WAITING // part)
        known = len(slurm.run("sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", "-o", "JobID").split())
        with shadow(slurm, Path(folder) / "data", 0) as (pid, begun):
            client = Client.of(Path(folder) / "data")
            while not explained(client):
                time.sleep(0.1)
            took = time.perf_counter() - begun
            reference = {"name": "jobs in sacct", "value": known}
            result("shadow_first_explanation_s", took, "s", "lower", FIRST_LIMIT_S, reference)
            time.sleep(2 * REFRESH_S / part)  # the history is read, estimates are made
            before, since = cpu_s(pid), time.monotonic()
            time.sleep(240 / part)
            share = 100 * (cpu_s(pid) - before) / (time.monotonic() - since)
            reference = {"name": "one squeue of all jobs, each refresh", "value": 100 * squeue_s(slurm) / REFRESH_S}
            result("shadow_core_pct", share, "%", "lower", CORE_LIMIT_PCT, reference)


if __name__ == "__main__":
    main()
