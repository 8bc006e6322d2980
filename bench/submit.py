"""Durable submits: single ones by 16 clients at once, and in bulk. Each is answered after its commit is on disk.

The physical limit, measured in the same run, is one SQLite commit with full sync at a time on the same disk.
"""

import argparse
import multiprocessing
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

from bench.harness import LeanClient, Server, result, server

CLIENTS, PROCESSES = 16, 2
BULK_JOBS, BULK_CALLS = 4_000, 5


def commits_per_s(seconds: float) -> float:
    """Return how many single-row transactions with full sync this disk takes a second."""
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(Path(folder) / "limit.sqlite", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, body BLOB)")
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO events (body) VALUES (?)", (b"x" * 300,))
            database.execute("COMMIT")
            count += 1
        database.close()
        return count / (time.perf_counter() - begun)


def _submit_for(address: tuple[str, int], token: str, trusted: str, process: int, seconds: float) -> int:
    counts = [0] * (CLIENTS // PROCESSES)

    def client(number: int) -> None:
        lean = LeanClient(address, token, trusted)
        ending = time.perf_counter() + seconds
        while time.perf_counter() < ending:
            lean.submit(b'{"command": ["true"], "name": "n"}', f"s-{process}-{number}-{counts[number]}")
            counts[number] += 1

    threads = [threading.Thread(target=client, args=(n,)) for n in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def single_per_s(running: Server, seconds: float) -> float:
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.map(abs, range(PROCESSES))
        begun = time.perf_counter()
        tasks = [(running.address, running.token, running.trusted, n, seconds) for n in range(PROCESSES)]
        return sum(pool.starmap(_submit_for, tasks)) / (time.perf_counter() - begun)


def bulk_per_s(running: Server) -> float:
    lean = LeanClient(running.address, running.token, running.trusted)
    bodies = [
        b"[" + b",".join(b'{"command": ["true"], "name": "b%d-%d"}' % (call, i) for i in range(BULK_JOBS)) + b"]"
        for call in range(BULK_CALLS)
    ]
    begun = time.perf_counter()
    for call, body in enumerate(bodies):
        lean.submit(body, f"bulk-{call}")
    return BULK_JOBS * BULK_CALLS / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter")
    parser.add_argument("--tls", action="store_true", help="over HTTPS, with limits as by default")
    arguments = parser.parse_args()
    seconds = 1.5 if arguments.quick else 6.0
    limit = {"name": "single SQLite commits with full sync, per s", "value": round(commits_per_s(1.0), 1)}
    over = "_over_tls" if arguments.tls else ""
    with server(tls=arguments.tls) as running:
        running.client.drain("bench")
        result(f"submits{over}_per_s", single_per_s(running, seconds), "submits/s", "higher", 1_000, limit)
        result(f"bulk_submits{over}_per_s", bulk_per_s(running), "jobs/s", "higher", 20_000, limit)


if __name__ == "__main__":
    main()
