"""How much slower a tenant's answers become while another one does its worst on every route at once.

One server with a long past: 60,000 waiting jobs of a third tenant, 30,000 records. A quiet tenant submits short jobs
and reads, first alone and then beside the noise, in the same run. The noise (`tests/server/costs/noise.py`) has the
tokens of a reader and of a member; its process is the nicest there is, so that what the quiet one feels is the server.
The reference of each figure is the same figure of the quiet run.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.harness import Server, result, server
from tests.server.costs import past
from tests.server.costs.quiet import Asked, Quiet
from tests.server.costs.world import last_seq, nodes_lost

ROOT = Path(__file__).resolve().parents[1]
NICENESS = 19
RATIO_MAX = 5.0
WARM_S = 10.0


def p99_ms(answers: Sequence[Asked], what: str) -> float:
    """Return the 99th percentile of how long answers took, by nearest rank."""
    times = sorted(one.seconds for one in answers if one.what == what)
    return times[min(len(times) - 1, -(-99 * len(times) // 100) - 1)] * 1000


def beside_noise(running: Server, quiet: Quiet, seconds: float) -> None:
    words = [
        sys.executable,
        "-P",
        "-m",
        "tests.server.costs.noise",
        str(running.address[1]),
        str(seconds),
        str(NICENESS),
    ]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    noise = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}
    )
    try:
        assert noise.stdout is not None
        if noise.stdout.readline() != b"ready\n":
            raise SystemExit("the noise did not begin")
        quiet.run(seconds)
    finally:
        noise.kill()
        noise.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter")
    seconds = 15.0 if parser.parse_args().quick else 60.0
    with server(declared=past.declared({}), before=lambda data: past.write(data, past.HALF_FULL, lost=True)) as running:
        log = running.data / "log"
        begun = last_seq(log)
        warm, alone, beside = (Quiet(running.address[1]) for _ in range(3))
        warm.run(WARM_S)  # the first bill is worked out of the whole log
        alone.run(seconds)
        beside_noise(running, beside, seconds)
        for what in ("submit", "read"):
            quiet_ms, noisy_ms = p99_ms(alone.answers, what), p99_ms(beside.answers, what)
            reference = {"name": "p99 without noise, ms", "value": round(quiet_ms, 2)}
            result(f"noisy_{what}_p99_ms", noisy_ms, "ms", "lower", None, reference)
            result(f"noisy_{what}_p99_over_quiet", noisy_ms / quiet_ms, "ratio", "lower", RATIO_MAX, reference)
        result("noisy_refused", len(beside.refused()), "answers", "lower", 0)
        result("noisy_leases_lost", len(nodes_lost(log, begun)), "nodes", "lower", 0)
        result("noisy_server_rss_mb", running.rss_mb(), "MiB", "lower", 1_500)


if __name__ == "__main__":
    main()
