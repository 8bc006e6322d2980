"""Elastic trainings, live: how much sooner a mix ends than with fixed sizes, and whether each model comes out right.

A real server, its own engine, simulated devices, and real programs: PyTorch DDP (examples/elastic_batch.py), whose
passes also sleep, as if the device computed. The same trainings are submitted twice at the same moments: with two
replicas and the batch that their learning rate is for; and with one to four replicas and a range of batches, under
goodput with rebalancing. Both times a job of higher priority comes by and takes all devices. A training ends when its
updates are worth as much as so many of the base batch (AdaScale), so a large batch has to earn its samples.

Checked: the loss on rows that were not seen, and the curve by worth, against the training of the same seed at a fixed
size; of trainings with one seed at one fixed size, one disturbed, all bits; and that the audit makes each decision of
the elastic log again. Throughput of pairs on one device: bench/sharing_live.py, which this runs unless `--quick`.
"""

import argparse
import json
import os
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness import Server, result, server
from bench.sharing_live import main as pairs
from penstock.core.audit import audit
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model import events as ev
from penstock.core.model.ids import JobId
from penstock.engines.processes.paths import DataFolder

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "elastic_batch.py"
BASE, LARGEST, LOCAL_MAX, RATE = 16, 256, 64, 0.02
PASS_MS, ROW_MS = 60, 2
DEVICES = 4
SEEDS_AND_WAITS_S = ((0, 0), (0, 2), (1, 15), (1, 30))
"""Of each training: its seed, and when it is submitted. Two of one seed and size end with the same bits."""
RIVAL_AT_STEP, RIVAL_S = 60, 2.0
"""It comes when the first training has made so many updates: there is something to save, however long starts take."""
FIXED = 2
LIMIT_S = 1_500.0
WINDOWS = 4
OFF_MAX = 0.15
CLUSTER: dict[str, Any] = {
    "settings": {"heartbeat": "200ms", "min_runtime_before_preemption": "0s", "elastic_growth_period": "10s"},
    "nodes": [
        {"name": name, "cpus": 16, "memory": "8GiB", "simulated_devices": {"count": DEVICES // 2}}
        for name in ("left", "right")
    ],
}
ELASTIC_POOL = {"name": "default", "elastic": {"mode": "goodput", "rebalance": True, "restarts_per_hour": 30}}


class Trained(NamedTuple):
    """What became of one training."""

    seconds: float
    loss: float
    digest: str
    curve: tuple[float, ...]
    """Mean loss of its updates in each of `WINDOWS` parts of its way, by worth."""
    attempts: int
    sizes: tuple[str, ...]
    """Of its attempts: ranks, and batches in their order."""


def training(seed: int, updates: int, *, elastic: bool) -> dict[str, Any]:
    """Return the job file of a training."""
    words = [sys.executable, str(EXAMPLE), "--updates", str(updates), "--seed", str(seed), "--rate", str(RATE)]
    words += ["--batch", str(BASE), "--pass-ms", str(PASS_MS), "--row-ms", str(ROW_MS)]
    shown: dict[str, Any] = {
        "name": f"seed-{seed}",
        "command": shlex.join(words),
        "replicas": FIXED,
        "devices": 1,
        "cpus": 1,
        "priority": "low",
        "retries": 5,
        "grace": "60s",
        "checkpoint": {"interval": "10m"},
        "env": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    }
    if elastic:
        shown |= {"replicas": f"1..{DEVICES}", "batch": {"min": BASE, "max": LARGEST, "per_device_max": LOCAL_MAX}}
    return shown


def rival() -> dict[str, Any]:
    command = f"sleep {RIVAL_S}"
    return {"name": "rival", "command": command, "replicas": DEVICES, "devices": 1, "cpus": 1, "priority": "high"}


def mix(running: Server, updates: int, *, elastic: bool) -> list[int]:
    """Submit the trainings at their moments and the rival at its; return the trainings once all have ended."""
    begun = time.monotonic()
    waiting = [(at_s, training(seed, updates, elastic=elastic)) for seed, at_s in SEEDS_AND_WAITS_S]
    jobs: list[int] = []
    came = False
    while waiting or not came or running.client.jobs().jobs:
        passed_s = time.monotonic() - begun
        if waiting and passed_s >= waiting[0][0]:
            jobs.append(running.client.submit(waiting.pop(0)[1]).jobs[0].id)
        elif not came and jobs and any(line["step"] >= RIVAL_AT_STEP for line in reported(running, jobs[0])):
            running.client.submit(rival())
            came = True
        elif passed_s > LIMIT_S:
            raise SystemExit(f"the mix did not end within {LIMIT_S:.0f} s")
        else:
            time.sleep(0.2)
    return jobs


def reported(running: Server, job: int) -> list[dict[str, Any]]:
    """Return the progress lines of rank 0, attempts in order."""
    folder = DataFolder(running.data)
    paths = [
        folder.report(ReplicaKey(JobId(job), attempt, rank))
        for attempt, rank, _ in folder.outputs(JobId(job))
        if rank == 0
    ]
    lines = [json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines()]
    return [line for line in lines if line["kind"] == "progress" and line.get("loss") is not None]


def trained(running: Server, job: int, updates: int) -> Trained:
    """Return what became of a training. Raises: SystemExit when it failed."""
    view = running.client.job(job)
    folder = DataFolder(running.data)
    text = "".join(path.read_text(errors="replace") for _, rank, path in folder.outputs(JobId(job)) if rank == 0)
    if view.state != "succeeded" or view.finished_ms is None:
        raise SystemExit(f"training {job} {view.state}: {text[-2000:]}")
    lines = reported(running, job)
    parts: list[list[float]] = [[] for _ in range(WINDOWS)]
    for line in lines:
        parts[min(WINDOWS - 1, int(line["worth"] * WINDOWS / updates))].append(line["loss"])
    sizes = [line.removeprefix("starting at ") for line in text.splitlines() if line.startswith("starting at ")]
    batches = list(dict.fromkeys(int(line["local_batch"]) for line in lines if "local_batch" in line))
    return Trained(
        (view.finished_ms - view.submitted_ms) / 1000,
        float(text.rpartition("final loss: ")[2].split()[0]),
        text.rpartition("final digest: ")[2].split()[0],
        tuple(statistics.fmean(part) if part else float("nan") for part in parts),
        len(sizes),
        (*sizes, f"local batches {batches}"),
    )


def run(updates: int, *, elastic: bool) -> tuple[list[Trained], list[ev.Record]]:
    """Return the trainings of one mix, and the log."""
    declared = {**CLUSTER, "pools": [ELASTIC_POOL]} if elastic else CLUSTER
    with server(declared=declared) as running:
        jobs = mix(running, updates, elastic=elastic)
        found = [trained(running, job, updates) for job in jobs]
        for job, one in zip(jobs, found, strict=True):
            told = (
                f"{'elastic' if elastic else 'fixed'} {job}: {one.seconds:.0f} s, loss {one.loss:.4f}, {one.attempts}"
            )
            print(f"{told} attempts: {'; '.join(one.sizes)}", file=sys.stderr, flush=True)
        return found, list(running.client.all_events())


def off(one: float, other: float) -> float:
    return abs(one - other) / max(abs(other), 1e-9)


def compare(fixed: list[Trained], elastic: list[Trained]) -> None:
    """Print how the models of the elastic mix differ from those of fixed size."""
    spread = statistics.pstdev([one.loss for one in fixed]) / statistics.fmean([one.loss for one in fixed])
    between = {"name": "spread between seeds", "value": round(spread, 3)}
    losses = [off(one.loss, other.loss) for one, other in zip(elastic, fixed, strict=True)]
    result("elastic_loss_off", max(losses), "part", "lower", OFF_MAX, between)
    curves = [
        abs(a - b)
        for one, other in zip(elastic, fixed, strict=True)
        for a, b in zip(one.curve, other.curve, strict=True)
        if a == a and b == b  # a window without a report has no mean
    ]
    result("elastic_curve_off", max(curves), "loss", "lower", 2 * OFF_MAX)
    seeds = [seed for seed, _ in SEEDS_AND_WAITS_S]
    of_seed = [
        {one.digest for one, own in zip(fixed, seeds, strict=True) if own == seed} for seed in sorted(set(seeds))
    ]
    same = sum(len(digests) == 1 for digests in of_seed)
    disturbed = {"name": "of which restarted", "value": sum(one.attempts > 1 for one in fixed)}
    result("elastic_bits_same", same / len(of_seed), "part", "higher", 1.0, disturbed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="trainings of half the length, without the pairs")
    parser.add_argument("--updates", type=int, help="of each training")
    given = parser.parse_args()
    updates = given.updates or (700 if given.quick else 1_500)
    fixed, _ = run(updates, elastic=False)
    elastic, records = run(updates, elastic=True)
    mean_s = [statistics.fmean([one.seconds for one in ended]) for ended in (fixed, elastic)]
    sized = {"name": "mean with fixed sizes (s)", "value": round(mean_s[0], 1)}
    result("elastic_speedup", mean_s[0] / mean_s[1], "times", "higher", 1.15, sized)
    compare(fixed, elastic)
    again = [ruling.same for ruling in audit(records) if ruling.planned]
    result("elastic_decisions_again", sum(map(bool, again)) / len(again), "part", "higher", 1.0)
    changed = ("resized", "moved")
    asked = sum(isinstance(r.event, ev.AttemptStopRequested) and r.event.reason in changed for r in records)
    changes = {"name": "batches changed without", "value": sum(isinstance(r.event, ev.BatchChosen) for r in records)}
    result("elastic_restarts", asked / len(elastic), "of a training", "lower", None, changes)
    if not given.quick:
        pairs(())


if __name__ == "__main__":
    main()
