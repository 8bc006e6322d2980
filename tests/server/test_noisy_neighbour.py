"""One tenant does its worst on every route at once; another one's jobs, answers and machines do not suffer from it.

How much slower its answers become is measured by `bench/noisy_neighbour.py`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.server.http.budgets import SERVER_MEMORY_MIB
from tests.properties import LONG
from tests.server.costs import past
from tests.server.costs.quiet import Quiet
from tests.server.costs.world import Watch, Watched, calm, last_seq, nodes_lost
from tests.server.harness import FINAL, ROOT, environment, until

SECONDS = 120 if LONG else 10
END_S = 120.0
"""For the jobs of the quiet one to end, and for the server to be done with what it was asked, after the noise."""
LEASES = {"heartbeat": "500ms", "lease_ttl": "15s", "lease_margin": "3s"}
"""A node that is not heard while there is noise is lost."""


@contextmanager
def noise(server: Watched, seconds: float) -> Iterator[None]:
    """Let there be noise inside; it has ended after."""
    words = [sys.executable, "-m", "tests.server.costs.noise", str(server.port), str(seconds)]
    path = os.pathsep.join([environment(server.root)["PYTHONPATH"], str(ROOT)])
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment(server.root, PYTHONPATH=path),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        told, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        print("answers to the noise, by status:", told.decode())
    finally:
        process.kill()
        process.communicate()


def test_a_tenant_that_does_its_worst_costs_another_neither_jobs_nor_answers(tmp_path: Path) -> None:
    past.write(tmp_path / "data", past.HALF_FULL, lost=True)
    with Watched(tmp_path / "data", past.declared(LEASES), check_invariants=False) as server:
        begun, quiet = last_seq(server.data.log), Quiet(server.port)
        quiet.submit(f"sleep {SECONDS + 2}; echo done")
        with Watch(server, 4 * SECONDS + 2 * END_S) as watch:
            with noise(server, SECONDS):
                quiet.run(SECONDS)
            assert (watch.ended, server.alive) == ("", True), server.log()
            until(lambda: all(quiet.job(one)["state"] in FINAL for one in quiet.jobs), "its jobs end", END_S)
            assert calm(server, END_S), f"the server is still at work; {watch.ended}"
        assert quiet.refused() == []
        jobs = [quiet.job(one) for one in quiet.jobs]
        assert {(job["state"], job["attempt"]) for job in jobs} == {("succeeded", 1)}
        assert nodes_lost(server.data.log, begun) == []
        assert watch.peak_mib <= SERVER_MEMORY_MIB
