"""The pilot's part of `bench/engines.py`: no-op jobs on nodes that a real Slurm lends, beside that Slurm itself.

Four nodes (`slurmd -N`) on this machine, each lent in an allocation of its own, there before the first job is.
Slurm's own figure is for jobs that do nothing either: one `sbatch` each, from several clients, and one array.
"""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.end_to_end import in_bulk, latencies_ms, one_by_one
from bench.harness import Server, result
from tests.engines.slurm.cluster import SlurmCluster, own
from tests.engines.slurm.pilot.flying import find, flying

JOBS_LIMIT, LATENCY_LIMIT_MS = 150, 100
"""2026-11, two cores."""
CLIENTS = 4
NODES = 4
WAIT_S = 300.0


def slurm_single_per_s(slurm: SlurmCluster, count: int) -> float:
    """Return no-op jobs per second, one `sbatch` each, from the first to the last that has ended."""
    command = ["sbatch", "--parsable", "-o", "/dev/null", "--mem=10", "--wrap", "true"]
    begun = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(lambda _: slurm.run(*command), range(count)))
    _drained(slurm)
    return count / (time.perf_counter() - begun)


def slurm_array_per_s(slurm: SlurmCluster, count: int) -> float:
    begun = time.perf_counter()
    slurm.run("sbatch", f"--array=0-{count - 1}", "-o", "/dev/null", "--mem=10", "--wrap", "true")
    _drained(slurm)
    return count / (time.perf_counter() - begun)


def _drained(slurm: SlurmCluster) -> None:
    deadline = time.monotonic() + WAIT_S
    while slurm.run("squeue", "-h", "-r", "-o", "%i").strip():
        if time.monotonic() > deadline:
            raise SystemExit(f"Slurm did not end its jobs within {WAIT_S:.0f} s")
        time.sleep(0.2)


def measure(*, quick: bool) -> None:
    """Print the results, one JSON object a line."""
    count = 200 if quick else 2_000
    with own(accounting=False) as slurm, find(slurm):
        single = slurm_single_per_s(slurm, count // 4)
        array = slurm_array_per_s(slurm, count // 4)
        reference = {"name": "the same Slurm itself, no-op jobs/s, one sbatch each", "value": round(single, 1)}
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            begun = time.perf_counter()
            with flying(slurm, Path(folder), nodes_min=NODES, nodes_max=NODES) as flown:
                flown.wait_ready(NODES)
                ready_s = time.perf_counter() - begun
                assert flown.process is not None
                running = Server(flown.data.root, flown.process.pid)
                waits = sorted(latencies_ms(running, 10 if quick else 40))
                alone = one_by_one(running, count)
                bulk = in_bulk(running, count)
        result("slurm_jobs_per_s", single, "jobs/s", "higher", 0)
        result("slurm_array_jobs_per_s", array, "jobs/s", "higher", 0)
        result("pilot_jobs_per_s", alone, "jobs/s", "higher", JOBS_LIMIT, reference)
        result("pilot_bulk_jobs_per_s", bulk, "jobs/s", "higher", JOBS_LIMIT, reference)
        result("pilot_latency_p50_ms", waits[len(waits) // 2], "ms", "lower", LATENCY_LIMIT_MS)
        result("pilot_nodes_ready_s", ready_s, "s", "lower", 60)


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    measure(quick=parser.parse_args().quick)


if __name__ == "__main__":
    main()
