"""Two real programs on one simulated device, live: what the pair does against one, and how soon two are parted.

A program's step computes on its device and reads data; the device runs one step at a time, so programs wait for each
other. Two with short steps hardly do. One with long steps makes the other wait: they are parted. Both use less than
half of a device, so the server puts either pair together by what their nodes measured.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness import Server, result, server
from penstock.core.model import events as ev
from penstock.engines.processes.paths import DataFolder

PROGRAM = Path(__file__).with_name("sharing_program.py")
CLUSTER = {
    "settings": {"heartbeat": "200ms"},
    "pools": [{"name": "default", "sharing": {"window": "10s", "slowdown": 1.3}}],
    "nodes": [{"name": "n1", "cpus": 4, "memory": "4GiB", "simulated_devices": {"count": 2}}],
}
SHORT, LONG = (12, 28), (240, 360)
"""Milliseconds of computing and of reading of a step."""
USE_MILLI, MEMORY_BYTES = 350, 2**30
LIMIT_S = 180.0
NO_WAIT = {"name": "neither waits for the other", "value": 2}


def job(folder: Path, step: tuple[int, int]) -> dict[str, Any]:
    return {
        "command": [sys.executable, str(PROGRAM), str(folder), *map(str, step)],
        "devices": 1,
        "cpus": 1,
        "shareable": True,
        "checkpoint": {"request_signal": "SIGUSR1"},
    }


def records(running: Server, job_ids: list[int], *kinds: type) -> list[ev.Record]:
    found = [r for job_id in job_ids for r in running.client.job_events(job_id) if isinstance(r.event, kinds)]
    return sorted(found, key=lambda record: record.seq)


def waited(running: Server, job_ids: list[int], *kinds: type, after: int = 0, count: int = 1) -> list[ev.Record]:
    """Return the events of these kinds after a record, once there are so many."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        found = [record for record in records(running, job_ids, *kinds) if record.seq > after]
        if len(found) >= count:
            return found
        time.sleep(0.2)
    raise SystemExit(f"waited {LIMIT_S:.0f} s for {count} of {', '.join(kind.__name__ for kind in kinds)}")


def paired(running: Server, folder: Path, *steps: tuple[int, int]) -> tuple[list[int], ev.Record]:
    """Submit two programs; return their jobs and when both run on one device."""
    job_ids = [running.client.submit(job(folder, step)).jobs[0].id for step in steps]
    (met, *_) = waited(running, job_ids, ev.DeviceShared)
    started = waited(running, job_ids, ev.ReplicaStarted, after=met.seq)
    return job_ids, started[0]


def throughput(running: Server, job_ids: list[int], since: ev.Record) -> float:
    """Return how many steps the two make together against one alone: the sum of what each keeps of its speed."""
    noted = waited(running, job_ids, ev.UseNoted, after=since.seq, count=2)
    alone = {
        r.event.job_id: r.event.pairing.step_us
        for r in records(running, job_ids, ev.DeviceShared, ev.AttemptAllocated)
        if isinstance(r.event, ev.DeviceShared | ev.AttemptAllocated) and r.event.pairing is not None
    }
    together = {r.event.job_id: r.event.step_us for r in noted if isinstance(r.event, ev.UseNoted) and r.event.step_us}
    for job_id, step_us in together.items():
        print(f"job {job_id}: {alone[job_id]} us alone, {step_us} us together", file=sys.stderr, flush=True)
    return sum(alone[job_id] / step_us for job_id, step_us in together.items())


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the same: it takes two minutes")
    parser.parse_args(words)
    with server(declared=CLUSTER) as running:
        folder = DataFolder(running.data).node("n1") / "devices"
        folder.mkdir()
        for index in (0, 1):
            facts = {"use_each_milli": USE_MILLI, "memory_each_bytes": MEMORY_BYTES}
            (folder / str(index)).write_text(json.dumps(facts))
        job_ids, since = paired(running, folder, SHORT, SHORT)
        result("pair_throughput", throughput(running, job_ids, since), "of one", "higher", 1.4, NO_WAIT)
        stayed = not records(running, job_ids, ev.DeviceShareEnded)
        result("pair_stays", stayed, "of 1", "higher", 1)
        for job_id in job_ids:
            running.client.cancel(job_id)
        job_ids, since = paired(running, folder, SHORT, LONG)
        stops = waited(running, job_ids, ev.AttemptStopRequested, after=since.seq)
        result("pair_parted_s", (stops[0].time_ms - since.time_ms) / 1000, "s", "lower", 30)
        for job_id in job_ids:
            running.client.cancel(job_id)


if __name__ == "__main__":
    main()
