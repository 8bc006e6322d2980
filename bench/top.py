"""What `penstock top` costs: CPU time of the program at a terminal of 200x50, and of the server for it, in 30 seconds.

10,000 jobs are live and separate (no array folds them), eight of them run and end every 20 seconds, so that answers are
made anew. The server's part is its CPU time with the screen open less that of as long a time without.
"""

import argparse
import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from bench.harness import Server, result, server

COLUMNS, LINES = 200, 50
BATCH = 1_000
SETTLE_S = 8.0
"""From the start of the screen to the measurement: imports and the first looks are not part of it."""
OWN_LIMIT_PCT = 3.0
VIEWS = ("queue", "running", "nodes")


def filled(running: Server, jobs: int) -> None:
    """Submit the jobs."""
    for begin in range(0, jobs, BATCH):
        named = [{"name": f"train-{begin + at:05}", "command": "sleep 20"} for at in range(min(BATCH, jobs - begin))]
        running.client.submit_request({"jobs": named})


@contextmanager
def screen(running: Server, view: str) -> Iterator[tuple[int, int]]:
    """Run the program at a terminal of its own; yields its process and the terminal."""
    terminal, own_end = os.openpty()
    fcntl.ioctl(own_end, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PENSTOCK_HOME": str(running.data)}
    command = [sys.executable, "-P", "-m", "penstock.cli.main", "top", view]
    process = subprocess.Popen(
        command, stdin=own_end, stdout=own_end, stderr=own_end, env=variables, start_new_session=True
    )
    os.close(own_end)
    try:
        seen = read(terminal, SETTLE_S)
        if b"penstock" not in seen:
            raise SystemExit(f"no screen was drawn: {seen[-2000:]!r}")
        yield process.pid, terminal
    finally:
        os.write(terminal, b"q")
        read(terminal, 1.0)
        process.kill()
        process.wait()
        os.close(terminal)


def read(terminal: int, seconds: float) -> bytes:
    """Read what is drawn, as a terminal does."""
    seen, until = b"", time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                seen += os.read(terminal, 65_536)
            except OSError:
                break
    return seen


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of those that it has waited for."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--quick", action="store_true", help="1,000 jobs, 6 seconds, one view")
    given = parser.parse_args()
    jobs, seconds = (1_000, 6.0) if given.quick else (given.jobs, given.seconds)
    settings = {"estimate_starts_every": 0}
    node = {"name": "bench", "cpus": 8, "memory": "16GiB"}
    with server(declared={"nodes": [node], "settings": settings}) as running:
        filled(running, jobs)
        time.sleep(SETTLE_S)
        begun_s = cpu_s(running.pid)
        time.sleep(seconds)
        alone_s = cpu_s(running.pid) - begun_s
        for view in VIEWS[:1] if given.quick else VIEWS:
            measure(running, view, jobs, seconds, alone_s)


def measure(running: Server, view: str, jobs: int, seconds: float, alone_s: float) -> None:
    """Print what one view costs."""
    with screen(running, view) as (pid, terminal):
        own_s, server_s = cpu_s(pid), cpu_s(running.pid)
        drawn = len(read(terminal, seconds))
        own_pct = 100 * (cpu_s(pid) - own_s) / seconds
        served_s = cpu_s(running.pid) - server_s
    live = running.client.cluster()
    name = f"{live.jobs_waiting + live.jobs_active:,} live jobs of {jobs:,}, {drawn:,} bytes drawn"
    result(f"top_{view}_core_pct", own_pct, "%", "lower", OWN_LIMIT_PCT, {"name": name, "value": jobs})
    alone = {"name": "the server without a screen", "value": round(100 * alone_s / seconds, 2)}
    result(f"top_{view}_server_core_pct", 100 * (served_s - alone_s) / seconds, "%", "lower", None, alone)


if __name__ == "__main__":
    main()
