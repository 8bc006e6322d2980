"""How long it takes to find a hang, whether the right rank is named, and when training goes on.

A real server and a real DDP training of three ranks; one rank is stopped by SIGSTOP, gets nothing from its data loader
(in its own process, or from a worker), or does not come to a collective. Found within twice the time of a step and ten
seconds is asked for.
"""

import argparse
import random
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench.harness import Server, result, server
from penstock.core.model import events as ev
from penstock.engines.processes.paths import DataFolder

PROGRAM = Path(__file__).with_name("hang_program.py")
STEP_MS = 50
CLUSTER = {
    "settings": {"heartbeat": "500ms"},
    "nodes": [{"name": name, "cpus": 16, "memory": "8GiB"} for name in ("left", "right")],
}
LIMIT_S = 120.0


def job(how: str, rank: int, at: int) -> dict[str, Any]:
    words = [sys.executable, str(PROGRAM), how, "--rank", str(rank), "--at", str(at), "--step-ms", str(STEP_MS)]
    return {
        "name": how,
        "command": shlex.join(words),
        "replicas": 3,
        "cpus": 8,
        "grace": "15s",
        "hang_limit": "20s",
        "checkpoint": {"interval": "1s"},
    }


def run(running: Server, how: str, seed: int) -> tuple[bool, float, float]:
    """Return whether the right rank was named, and how long until it was and until training went on (s)."""
    rng = random.Random(seed)
    rank = rng.randrange(3)
    job_id = running.client.submit(job(how, rank, rng.randint(25, 60))).jobs[0].id
    found: ev.HangFound | None = None
    found_ms = resumed_ms = 0
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and not resumed_ms:
        time.sleep(0.1)
        for record in running.client.job_events(job_id):
            if isinstance(record.event, ev.HangFound) and found is None:
                found, found_ms = record.event, record.time_ms
            elif isinstance(record.event, ev.JobResumed) and found is not None:
                resumed_ms = record.time_ms
    running.client.cancel(job_id)
    hung_ms = began_ms(running, job_id)
    if found is None:
        print(f"{how} {seed}: not found", file=sys.stderr)
        return False, LIMIT_S, LIMIT_S
    right = found.ranks == (rank,)
    took_s, on_s = (found_ms - hung_ms) / 1000, (resumed_ms - found_ms) / 1000
    print(f"{how} {seed}: rank {rank}, {took_s:.1f} s, on after {on_s:.1f}: {found.text}", file=sys.stderr, flush=True)
    return right, took_s, on_s


def began_ms(running: Server, job_id: int) -> int:
    """Return when the program said that it would hang; else its last progress (a data loader says nothing)."""
    outputs = DataFolder(running.data).outputs(job_id)
    said = [path.read_text().partition("hangs at ")[2].split() for _, _, path in outputs]
    times = [round(float(words[0]) * 1000) for words in said if words]
    if times:
        return times[0]
    records = running.client.job_events(job_id)
    hang = next(r for r in records if isinstance(r.event, ev.HangFound))
    assert isinstance(hang.event, ev.HangFound)
    return hang.time_ms - hang.event.idle_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one of each")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with server(declared=CLUSTER) as running:
        for how in ("stop", "data", "data-worker", "missing"):
            runs = [run(running, how, seed) for seed in range(1 if options.quick else options.seeds)]
            result(f"hang_{how}_right", sum(right for right, _, _ in runs), f"of {len(runs)}", "higher", len(runs))
            worst = max(took for _, took, _ in runs)
            result(f"hang_{how}_found_s_max", worst, "s", "lower", 2 * STEP_MS / 1000 + 10)
            result(f"hang_{how}_goes_on_s_max", max(on for _, _, on in runs), "s", "lower", None)


if __name__ == "__main__":
    main()
