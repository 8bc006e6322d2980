"""`python -m penstock.sim`: run seeds of the fault simulator, or prove that it finds the planted bugs.

Prints a progress line, then a summary; the exit code is 1 when a promise was broken or a planted bug not found.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable

from penstock.core.model.words import counted
from penstock.sim.world.planted import PLANTED_BUGS, planted
from penstock.sim.world.world import World, WorldOutcome

PLANTED_SEEDS_MAX = 600
EXPECTED_PROBES = (
    "agent_crashed_with_processes",
    "node_crashed_with_processes",
    "guardian_ended_a_process",
    "server_crashed",
    "power_cut_in_commit",
    "server_paused_and_replaced",
    "stale_server_stopped",
    "node_partitioned",
    "machine_paused",
    "spawn_failed",
    "exit_reported_late",
    "disk_failed",
    "disk_full",
    "node_drained_with_eviction",
    "stopped_preempted",
    "stopped_cancelled",
    "stopped_time_limit",
    "stopped_replica_failed",
    "stopped_node_lost",
    "stopped_drained",
    "stopped_held",
    "idle_made_room",
    "node_shut_to_tenant",
    "claims_cleared",
    "claims_confirmed",
    "resumed_from_checkpoint",
    "suspended",
    "resumed_where_it_was",
    "freeze_refused",
    "tenant_held",
    "tenant_suspended",
    "credit_expired",
    "invoice_issued",
    "credit_note_issued",
    "use_given_back",
    "money_reversed",
    "array_awaited",
    "refused_too_large",
    "refused_shapes",
    "refused_cycle",
    "refused_share",
    "refused_key_reused",
    "key_repeated",
    "honest_key_repeated",
    "secret_kept_for_job",
    "asked_while_held",
    "hands_hold",
    "hands_release",
    "hands_requeue",
    "hands_edit",
    "stopped_requeued",
)
"""Rare situations that a big run should reach; those it did not are named."""


def run_seed(seed: int) -> WorldOutcome:
    try:
        return World(seed).run()
    except Exception as error:
        raise RuntimeError(f"seed {seed}: the simulator itself failed: {error!r}") from error


def _find(name: str) -> tuple[str, int | None, str]:
    """Return (bug, the first seed that finds it or None, what it found)."""
    with planted(name):
        for seed in range(PLANTED_SEEDS_MAX):
            outcome = run_seed(seed)
            if outcome.violations:
                return name, seed, outcome.violations[0]
    return name, None, ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m penstock.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one seed and print everything")
    parser.add_argument("--planted", action="store_true", help="prove that each planted bug is found")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.seed is not None:
        sys.exit(_one(given.seed))
    with multiprocessing.get_context("fork").Pool(given.processes) as pool:
        if given.planted:
            sys.exit(_prove(pool.imap_unordered(_find, sorted(PLANTED_BUGS))))
        seeds = range(given.first, given.first + given.seeds)
        sys.exit(_many(pool.imap_unordered(run_seed, seeds, chunksize=8), given.seeds))


def _one(seed: int) -> int:
    outcome = run_seed(seed)
    print(json.dumps({"seed": seed, "violations": outcome.violations, "probes": outcome.probes}, indent=2))
    return 1 if outcome.violations else 0


def _prove(found: Iterable[tuple[str, int | None, str]]) -> int:
    missed = 0
    for name, seed, what in found:
        print(f"  {name}: " + (f"found by seed {seed}: {what}" if seed is not None else "NOT FOUND"))
        missed += seed is None
    print(f"{len(PLANTED_BUGS) - missed} of {len(PLANTED_BUGS)} planted bugs found")
    return 1 if missed else 0


def _many(outcomes: Iterable[WorldOutcome], total: int) -> int:
    begun = time.monotonic()
    probes: Counter[str] = Counter()
    failed: list[WorldOutcome] = []
    records = steps = simulated_ms = done = 0
    for outcome in outcomes:
        done += 1
        probes.update(outcome.probes)
        records, steps = records + outcome.records, steps + outcome.steps
        simulated_ms += outcome.simulated_ms
        if outcome.violations:
            failed.append(outcome)
            print(f"\nseed {outcome.seed}: {outcome.violations[0]}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{done}/{total} seeds, {len(failed)} failed", end="", file=sys.stderr, flush=True)
    took_s = time.monotonic() - begun
    hours = simulated_ms / 3_600_000
    print(f"{done} seeds in {took_s:.1f} s: {steps} steps, {records} log records, {hours:.1f} simulated hours")
    print(f"violations: {counted(len(failed), 'seed')}" + (f" {sorted(o.seed for o in failed)[:20]}" if failed else ""))
    missing = [name for name in EXPECTED_PROBES if not probes[name]]
    print("reached: " + ", ".join(f"{name} {probes[name]}" for name in EXPECTED_PROBES if probes[name]))
    if missing:
        print("never reached: " + ", ".join(missing))
    return 1 if failed else 0


if __name__ == "__main__":
    main()
