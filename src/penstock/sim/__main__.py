"""`python -m penstock.sim`: run seeds of the fault simulator, or prove that it finds the planted bugs.

Prints a progress line, then a summary; the exit code is 1 when a promise was broken or a planted bug not found.
"""

import argparse
import json
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from penstock.core.model.words import counted
from penstock.sim.pods import planted as pods_planted
from penstock.sim.pods.world import PodOutcome, play
from penstock.sim.world.planted import PLANTED_BUGS, Bug, planted
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
    "node_disk_full",
    "start_not_noted",
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
    "node_removed",
    "stopped_requeued",
    "stopped_device_failed",
    "device_ended_a_program",
    "device_taken_by_stranger",
    "device_opened",
    "host_load_noted",
    "batch_chosen",
    "batch_changed",
    "restarted_by_round",
    "paused_by_round",
    "moved_to_model",
    "room_kept",
    "model_chosen_by_round",
)
"""Rare situations that a big run should reach; those it did not are named."""


EXPECTED_OF_PODS = (
    "server_crashed",
    "leader_replaced",
    "write_held",
    "rough_network",
    "compacted",
    "cordoned",
    "node_gone",
    "node_added",
    "disks",
)

Outcome = WorldOutcome | PodOutcome


class Simulated(NamedTuple):
    """What is simulated: machines with agents, or a Kubernetes cluster."""

    play: Callable[[int], Outcome]
    bugs: Mapping[str, Bug]
    planted: Callable[[str], AbstractContextManager[None]]
    expected: tuple[str, ...]


MACHINES = Simulated(lambda seed: World(seed).run(), PLANTED_BUGS, planted, EXPECTED_PROBES)
PODS = Simulated(play, pods_planted.PLANTED_BUGS, pods_planted.planted, EXPECTED_OF_PODS)


def _run_seed(of: Simulated, seed: int) -> Outcome:
    try:
        return of.play(seed)
    except Exception as error:
        raise RuntimeError(f"seed {seed}: the simulator itself failed: {error!r}") from error


def run_seed(seed: int) -> Outcome:
    return _run_seed(MACHINES, seed)


def run_pods(seed: int) -> Outcome:
    return _run_seed(PODS, seed)


def _find(of: Simulated, name: str) -> tuple[str, int | None, str]:
    """Return (bug, the first seed that finds it or None, what it found)."""
    with of.planted(name):
        for seed in range(PLANTED_SEEDS_MAX):
            outcome = _run_seed(of, seed)
            if outcome.violations:
                return name, seed, outcome.violations[0]
    return name, None, ""


def find_bug(name: str) -> tuple[str, int | None, str]:
    return _find(MACHINES, name)


def find_bug_of_pods(name: str) -> tuple[str, int | None, str]:
    return _find(PODS, name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m penstock.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one seed and print everything")
    parser.add_argument("--planted", action="store_true", help="prove that each planted bug is found")
    parser.add_argument("--kubernetes", action="store_true", help="simulate a Kubernetes cluster, not machines")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    of = PODS if given.kubernetes else MACHINES
    logging.disable(logging.WARNING)  # faults are what is played here
    if given.seed is not None:
        sys.exit(_one(of, given.seed))
    with multiprocessing.get_context("fork").Pool(given.processes) as pool:
        if given.planted:
            found = pool.imap_unordered(find_bug_of_pods if given.kubernetes else find_bug, sorted(of.bugs))
            sys.exit(_prove(found, len(of.bugs)))
        seeds = range(given.first, given.first + given.seeds)
        outcomes = pool.imap_unordered(run_pods if given.kubernetes else run_seed, seeds, chunksize=8)
        sys.exit(_many(outcomes, given.seeds, of.expected))


def _one(of: Simulated, seed: int) -> int:
    outcome = _run_seed(of, seed)
    print(json.dumps({"seed": seed, "violations": outcome.violations, "probes": outcome.probes}, indent=2))
    return 1 if outcome.violations else 0


def _prove(found: Iterable[tuple[str, int | None, str]], total: int) -> int:
    missed = 0
    for name, seed, what in found:
        print(f"  {name}: " + (f"found by seed {seed}: {what}" if seed is not None else "NOT FOUND"))
        missed += seed is None
    print(f"{total - missed} of {total} planted bugs found")
    return 1 if missed else 0


def _many(outcomes: Iterable[Outcome], total: int, expected: tuple[str, ...]) -> int:
    begun = time.monotonic()
    probes: Counter[str] = Counter()
    failed: list[Outcome] = []
    records = steps = simulated_ms = done = 0
    for outcome in outcomes:
        done += 1
        probes.update(outcome.probes)
        records += outcome.records
        steps += outcome.steps if isinstance(outcome, WorldOutcome) else outcome.bound
        simulated_ms += outcome.simulated_ms
        if outcome.violations:
            failed.append(outcome)
            print(f"\nseed {outcome.seed}: {outcome.violations[0]}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{done}/{total} seeds, {len(failed)} failed", end="", file=sys.stderr, flush=True)
    took_s = time.monotonic() - begun
    what = "steps" if expected is EXPECTED_PROBES else "pods bound"
    hours = simulated_ms / 3_600_000
    print(f"{done} seeds in {took_s:.1f} s: {steps} {what}, {records} log records, {hours:.1f} simulated hours")
    print(f"violations: {counted(len(failed), 'seed')}" + (f" {sorted(o.seed for o in failed)[:20]}" if failed else ""))
    missing = [name for name in expected if not probes[name]]
    print("reached: " + ", ".join(f"{name} {probes[name]}" for name in expected if probes[name]))
    if missing:
        print("never reached: " + ", ".join(missing))
    return 1 if failed else 0


if __name__ == "__main__":
    main()
