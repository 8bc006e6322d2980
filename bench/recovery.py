"""Trainings that are disturbed at random: nothing is lost, and how long it takes to go on.

Each schedule is one real DDP training (examples/elastic_ddp.py: PyTorch, gloo) under a real server, hit at random
moments by jobs of higher priority that take all devices (preemption) or half of them (an elastic job shrinks, and
grows again after), and by SIGKILL of a random rank. Half of the schedules train with four ranks throughout: the
weights at the end must equal, bit for bit, those of an undisturbed run. The others run with two to four: the loss must
agree within 1e-5. The log tells which steps were done twice.
"""

import argparse
import json
import os
import random
import shlex
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import Server, result, server
from penstock.core.model import events as ev
from penstock.engines.processes.paths import DataFolder

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "elastic_ddp.py"
STEPS, STEP_MS, INTERVAL_S = 150, 20, 2.0
LIMIT_S = 300.0
CLUSTER = {
    "settings": {"elastic_growth_period": "2s", "min_runtime_before_preemption": "0s", "heartbeat": "500ms"},
    "nodes": [
        {"name": name, "cpus": 16, "memory": "8GiB", "simulated_devices": {"count": 2}} for name in ("left", "right")
    ],
}


@dataclass
class Schedule:
    """What happened in one schedule, and what was found."""

    seed: int
    elastic: bool
    only: str = ""
    disturbances: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    repeated_after_kill: list[int] = field(default_factory=list)
    handover_ms: list[float] = field(default_factory=list)
    recovery_ms: list[float] = field(default_factory=list)
    other_runs_ms: list[float] = field(default_factory=list)
    """From the order to leave to the last replica of the job that the room was made for."""


def training(elastic: bool, seed: int, name: str) -> dict[str, Any]:
    """Return the job file of a training."""
    command = [sys.executable, str(EXAMPLE), "--steps", str(STEPS), "--step-ms", str(STEP_MS), "--seed", str(seed)]
    return {
        "name": name,
        "command": shlex.join(command),
        "replicas": "2..4" if elastic else 4,
        "devices": 1,
        "cpus": 1,
        "priority": "low",
        "retries": 20,
        "grace": "20s",
        "checkpoint": {"interval": f"{INTERVAL_S}s"},
        "env": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    }


def rival(devices: int, seconds: float) -> dict[str, Any]:
    """Return the job file of a job that takes devices away for a while."""
    return {
        "name": "rival",
        "command": f"sleep {seconds}",
        "replicas": devices,
        "devices": 1,
        "cpus": 1,
        "priority": "high",
    }


def until(found: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not found():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)


def output(running: Server, job: int) -> str:
    """Return all that the job's ranks printed, attempts in order."""
    paths = [path for _, _, path in DataFolder(running.data).outputs(job)]
    return "".join(path.read_text(errors="replace") for path in paths)


def final(text: str) -> tuple[float, str]:
    """Return loss and digest that a finished training printed."""
    loss = float(text.rpartition("final loss: ")[2].split()[0])
    return loss, text.rpartition("final digest: ")[2].split()[0]


def finished(running: Server, job: int) -> bool:
    return running.client.job(job).state in ("succeeded", "failed", "cancelled")


def undisturbed(running: Server, seed: int, elastic: bool) -> tuple[float, str]:
    job = running.client.submit(training(elastic, seed, "alone")).jobs[0].id
    until(lambda: finished(running, job), "the undisturbed training ends")
    return final(output(running, job))


def trains(running: Server, job: int) -> bool:
    """Whether the job runs and its program has come to a step in this attempt."""
    view = running.client.job(job)
    if view.state != "running":
        return view.state in ("succeeded", "failed")
    report = DataFolder(running.data).job(job) / f"attempt-{view.attempt}.rank-0.report"
    return report.exists() and '"progress"' in report.read_text(errors="replace")


def disturb(running: Server, job: int, rng: random.Random, schedule: Schedule) -> None:
    kind = schedule.only or rng.choice(["preempt", "kill"] + (["shrink"] if schedule.elastic else []))
    schedule.disturbances.append(kind)
    if kind == "kill":
        number = running.client.job(job).attempt
        started = [r.event for r in running.client.job_events(job) if isinstance(r.event, ev.ReplicaStarted)]
        pids = [event.pid for event in started if event.attempt == number and event.pid]
        if pids:
            try:
                os.kill(rng.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                schedule.disturbances[-1] = "kill (too late)"
            until(lambda: finished(running, job) or running.client.job(job).attempt > number, "the next attempt")
        return
    other = running.client.submit(rival(4 if kind == "preempt" else 2, rng.uniform(0.1, 1.0))).jobs[0].id
    until(lambda: finished(running, other), "the rival ends")
    asked = [r for r in running.client.job_events(job) if isinstance(r.event, ev.AttemptStopRequested)]
    mine = [r.time_ms for r in asked if isinstance(r.event, ev.AttemptStopRequested) and r.event.beneficiary == other]
    started = [r.time_ms for r in running.client.job_events(other) if isinstance(r.event, ev.ReplicaStarted)]
    if mine and started:
        schedule.other_runs_ms.append(max(started) - mine[-1])


def run(running: Server, schedule: Schedule, expected: tuple[float, str]) -> None:
    """Train once, disturbed; note what is wrong and how long things took."""
    rng = random.Random(schedule.seed)
    job = running.client.submit(training(schedule.elastic, 0, f"schedule-{schedule.seed}")).jobs[0].id
    for _ in range(rng.randint(2, 3)):
        until(lambda: trains(running, job), "the training trains")
        time.sleep(rng.uniform(0.0, 1.5))
        if finished(running, job):
            break
        disturb(running, job, rng, schedule)
    until(lambda: finished(running, job), "the training ends")
    view = running.client.job(job)
    if view.state != "succeeded":
        schedule.problems.append(f"job {job} {view.state}: {output(running, job)[-2000:]}")
        return
    loss, digest = final(output(running, job))
    if abs(loss - expected[0]) > 1e-5 * abs(expected[0]):
        schedule.problems.append(f"loss {loss!r}; expected {expected[0]!r}")
    if not schedule.elastic and digest != expected[1]:
        schedule.problems.append(f"weights {digest[:12]}; expected {expected[1][:12]}")
    judge(running, job, schedule)
    if schedule.problems:
        schedule.problems += story(running, job)


def story(running: Server, job: int) -> list[str]:
    """Return what the log tells of the job's attempts, briefly."""
    kinds = ev.AttemptStopRequested | ev.CheckpointSaved | ev.JobResumed | ev.AttemptEnded | ev.ReplicaExited
    return [f"{r.time_ms % 1_000_000} {r.event}" for r in running.client.job_events(job) if isinstance(r.event, kinds)]


def judge(running: Server, job: int, schedule: Schedule) -> None:
    """Read the log: what was done twice, and what it took to hand over and to go on."""
    records = running.client.job_events(job)
    outcome, failed_ms, stopped_ms = "", 0, 0
    for record in records:
        event = record.event
        if isinstance(event, ev.AttemptEnded):
            outcome = event.outcome
        elif isinstance(event, ev.ReplicaExited) and event.exit.signal == signal.SIGKILL and not event.exit.stop_sent:
            failed_ms = record.time_ms
        elif isinstance(event, ev.AttemptStopRequested) and event.reason in ("preempted", "resized"):
            stopped_ms = record.time_ms
        elif isinstance(event, ev.JobRequeued) and stopped_ms:
            schedule.handover_ms.append(record.time_ms - stopped_ms)
            stopped_ms = 0
        elif isinstance(event, ev.ReplicaStarted) and failed_ms and event.rank == 0:
            schedule.recovery_ms.append(record.time_ms - failed_ms)
            failed_ms = 0
        elif isinstance(event, ev.JobResumed):
            if outcome in ("preempted", "resized") and event.lost_steps:
                schedule.problems.append(f"{event.lost_steps} steps lost on a cooperative stop ({outcome})")
            elif outcome == "failed":
                schedule.repeated_after_kill.append(event.lost_steps)
                if event.lost_steps > INTERVAL_S * 1000 / STEP_MS + 1:
                    schedule.problems.append(f"{event.lost_steps} steps repeated: more than an interval")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", default="", choices=("", "kill", "preempt"), help="one kind of disturbance")
    parser.add_argument("--quick", action="store_true", help="four schedules")
    options = parser.parse_args()
    count = 4 if options.quick else options.schedules
    done: list[Schedule] = []
    with server(declared=CLUSTER) as running:
        print(f"data: {running.data}", file=sys.stderr)
        expected = {elastic: undisturbed(running, 0, elastic) for elastic in (False, True)}
        for seed in range(options.first, options.first + count):
            schedule = Schedule(seed, elastic=seed % 2 == 1, only=options.only)
            try:
                run(running, schedule, expected[schedule.elastic])
            except TimeoutError as error:
                schedule.problems.append(f"waited for ever: {error}")
            except KeyboardInterrupt:
                print("interrupted: what is told is of the schedules before", file=sys.stderr)
                break
            done.append(schedule)
            print(
                f"{seed}: {', '.join(schedule.disturbances)} {schedule.problems or 'ok'}", file=sys.stderr, flush=True
            )
    tell(done)
    sys.exit(any(schedule.problems for schedule in done))


def tell(done: list[Schedule]) -> None:
    repeated = [steps for schedule in done for steps in schedule.repeated_after_kill]
    handover = [ms for schedule in done for ms in schedule.handover_ms]
    recovery = [ms for schedule in done for ms in schedule.recovery_ms]
    other = [ms for schedule in done for ms in schedule.other_runs_ms]
    kinds = [kind for schedule in done for kind in schedule.disturbances]
    counted = {"name": "disturbances", "value": {kind: kinds.count(kind) for kind in sorted(set(kinds))}}
    result("schedules_wrong", sum(bool(s.problems) for s in done), f"of {len(done)}", "lower", 0, counted)
    within = {"name": "steps in an interval", "value": INTERVAL_S * 1000 / STEP_MS}
    result("steps_repeated_after_kill_max", max(repeated, default=0), "steps", "lower", within["value"], within)
    result("steps_repeated_after_kill_mean", statistics.fmean(repeated or [0]), "steps", "lower", None)
    timed = (
        ("stop_to_gone_ms", handover),
        ("stop_to_other_running_ms", other),
        ("kill_to_restarted_ms", recovery),
    )
    for metric, values in timed:
        spread = {"name": f"least and most of {len(values)}", "value": [min(values, default=0), max(values, default=0)]}
        result(metric, statistics.median(values or [0]), "ms", "lower", None, spread)
    for schedule in done:
        if schedule.problems:
            print(json.dumps({"seed": schedule.seed, "problems": schedule.problems}), flush=True)


if __name__ == "__main__":
    main()
