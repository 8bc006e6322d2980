"""Eight kinds of process trees that try to outlive their replica, ended in every way at random moments.

Prints what is left of them (nothing may be), and how long after its grace a replica's place is free. The physical
limit, measured in the same run, is killing one bare process and waiting for it. What is left or late is named, with
its seed, on standard error; the exit status says whether there was any.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.harness import result
from tests.engines.agent.leaks import BOUND_S, KINDS, Leaks, Outcome, available, plan

BATCH = 100
"""Seeds at a time: what was found in one batch is told before the next one begins."""


def bare_kill_s(count: int = 50) -> float:
    """Return the median of killing a process that does nothing, and reaping it."""
    found = []
    for _ in range(count):
        pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {}, setsid=True)
        begun = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def attempts(leaks: Leaks, seeds: range, at_once: int) -> Iterator[Outcome]:
    """Yield what became of every kind with every seed."""
    for first in range(seeds.start, seeds.stop, BATCH):
        batch = range(first, min(first + BATCH, seeds.stop))
        outcomes = leaks.run([plan(kind, seed) for seed in batch for kind in KINDS], at_once)
        for problem in (text for outcome in outcomes for text in outcome.problems() + outcome.late()):
            print(problem, file=sys.stderr, flush=True)
        yield from outcomes


def tell(held: str, outcomes: Iterable[Outcome]) -> None:
    """Print the figures of each kind."""
    limit = {"name": "bare kill and wait of one process, s", "value": round(bare_kill_s(), 5)}
    for kind in KINDS:
        mine = [outcome for outcome in outcomes if outcome.plan.kind == kind]
        over = sorted(outcome.over_s for outcome in mine)
        left = sum(bool(outcome.left) for outcome in mine)
        result(f"leaks_{held}_{kind}_left", left, f"of {len(mine)} attempts", "lower", 0)
        result(f"leaks_{held}_{kind}_release_over_grace_p99_s", over[int(len(over) * 0.99)], "s", "lower", None, limit)
        result(f"leaks_{held}_{kind}_release_over_grace_worst_s", over[-1], "s", "lower", BOUND_S, limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=500, help="of each kind")
    parser.add_argument("--quick", action="store_true", help="20 attempts of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--held", choices=["groups", "unified", "sessions"], default="groups")
    given = parser.parse_args()
    if not available(given.held):
        raise SystemExit(f"this user cannot hold processes with {given.held} on this machine")
    seeds = range(given.first, given.first + (20 if given.quick else given.attempts))
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as root, Leaks(Path(root) / "node", given.held) as leaks:
        outcomes = list(attempts(leaks, seeds, given.at_once))
        after = leaks.end()
    for line in after:
        print(f"when the agent had left: {line}", file=sys.stderr)
    tell(given.held, outcomes)
    result(f"leaks_{given.held}_left_when_the_agent_had_left", len(after), "processes and groups", "lower", 0)
    complete = sum(outcome.complete for outcome in outcomes) / len(outcomes)
    result(f"leaks_{given.held}_trees_complete_when_ended", complete, "ratio", "higher", None)
    result(f"leaks_{given.held}_worker_kills", leaks.worker_kills, "kills", "higher", None)
    result(f"leaks_{given.held}_attempts_per_s", len(outcomes) / (time.perf_counter() - begun), "1/s", "higher", None)
    sys.exit(bool(after) or any(outcome.problems() + outcome.late() for outcome in outcomes))


if __name__ == "__main__":
    main()
