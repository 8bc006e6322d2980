"""No-op jobs end to end: from the first submit to the last exit known, and how soon one job runs on an idle server.

The physical limit, measured in the same run, is a bare posix_spawn loop of the same no-op.
"""

import argparse
import os
import shutil
import statistics
import threading
import time

from bench.harness import LeanClient, Server, result, server
from penstock.core.model.events import JobSubmitted, ReplicaExited, ReplicaStarted

NOOP = b'{"command": ["true"], "cpus": 1}'
CLIENTS = 4


def bare_spawn_per_s(count: int) -> float:
    program = shutil.which("true") or "/bin/true"
    begun = time.perf_counter()
    for _ in range(count):
        os.waitpid(os.posix_spawn(program, ["true"], {}, setsid=True), 0)
    return count / (time.perf_counter() - begun)


def drained(running: Server, expected: int) -> None:
    while running.client.cluster().jobs_succeeded < expected:
        time.sleep(0.02)


def jobs_per_s(running: Server, after: int) -> float:
    """Return jobs over the time from the first submit to the last exit in the log."""
    records = [r for r in running.client.all_events() if r.seq > after]
    submits = [r.time_ms for r in records if isinstance(r.event, JobSubmitted)]
    exits = [r.time_ms for r in records if isinstance(r.event, ReplicaExited)]
    return 1000 * len(exits) / (max(exits) - min(submits))


def one_by_one(running: Server, count: int) -> float:
    after, done = running.client.cluster().seq, running.client.cluster().jobs_succeeded

    def client(number: int) -> None:
        lean = LeanClient(running.address, running.token)
        for index in range(count // CLIENTS):
            lean.submit(NOOP, f"one-{after}-{number}-{index}")

    threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drained(running, done + count // CLIENTS * CLIENTS)
    return jobs_per_s(running, after)


def in_bulk(running: Server, count: int) -> float:
    after, done = running.client.cluster().seq, running.client.cluster().jobs_succeeded
    body = b"[" + b",".join([NOOP] * count) + b"]"
    LeanClient(running.address, running.token).submit(body, f"bulk-{after}")
    drained(running, done + count)
    return jobs_per_s(running, after)


def latencies_ms(running: Server, count: int) -> list[float]:
    """Return, for single jobs on an idle server, submit call to 'running' in the log."""
    found = []
    lean = LeanClient(running.address, running.token)
    for index in range(count):
        after, done = running.client.cluster().seq, running.client.cluster().jobs_succeeded
        begun_ms = time.time() * 1000
        lean.submit(NOOP, f"latency-{after}-{index}")
        drained(running, done + 1)
        records = [r for r in running.client.events(after) if isinstance(r.event, ReplicaStarted)]
        found.append(records[0].time_ms - begun_ms)
        time.sleep(0.05)
    return found


def rss_with_queue_mb(running: Server, jobs: int) -> float:
    running.client.drain("bench")
    body = b"[" + b",".join(b'{"command": ["true"], "name": "q%d"}' % i for i in range(jobs)) + b"]"
    LeanClient(running.address, running.token).submit(body, "queued")
    time.sleep(1)
    return running.rss_mb()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    quick = parser.parse_args().quick
    count = 200 if quick else 2_000
    bare = bare_spawn_per_s(count)
    limit = {"name": "bare posix_spawn loop, jobs/s", "value": round(bare, 1)}
    with server() as running:
        waits = sorted(latencies_ms(running, 20 if quick else 60))
        single = one_by_one(running, count)
        bulk = in_bulk(running, count)
        result("jobs_per_s_single", single, "jobs/s", "higher", 300, limit)
        result("jobs_per_s_bulk", bulk, "jobs/s", "higher", 300, limit)
        result("share_of_bare_spawn", single / bare, "ratio", "higher", 0.1, limit)
        result("latency_p50_ms", statistics.median(waits), "ms", "lower", 50)
        result("latency_p95_ms", waits[int(len(waits) * 0.95)], "ms", "lower", 200)
        result("server_rss_mb_10k_queued", rss_with_queue_mb(running, 10_000), "MB", "lower", 250)


if __name__ == "__main__":
    main()
