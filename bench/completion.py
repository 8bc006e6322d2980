"""Completion of a word, as a shell asks for it at each press of the tab key: median CPU seconds of the program.

The reference is an interpreter that starts and does nothing. `slow_server_s` is the time until the shell has its
answer where the server accepts connections and says nothing.
"""

import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from bench.harness import result, server

LIMIT_S = 0.15
"""CPU seconds of a word, 2026-11."""
SLOW_LIMIT_S = 0.5
"""A server has 0.3 s; the rest is the start of the program."""
PROGRAM = (sys.executable, "-P", "-m", "penstock.cli.entry")
JOBS = 200


def spent(words: Sequence[str], variables: Mapping[str, str]) -> tuple[float, float, bytes]:
    """Return the CPU and the wall seconds of a program, and what it printed."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, env={**os.environ, **variables}, stdout=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, time.perf_counter() - begun, done.stdout


def median_cpu_s(times: int, words: Sequence[str], variables: Mapping[str, str], expected: bytes) -> float:
    """Return the median of the runs with the answer: on a busy machine, the server may be given up in others."""
    found: list[float] = []
    for _ in range(10 * times):
        cpu_s, _, printed = spent(words, variables)
        found += [cpu_s] if expected in printed else []
        if len(found) == times:
            return statistics.median(found)
    raise RuntimeError(f"{' '.join(words)}: {len(found)} answers in {10 * times} runs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few runs each")
    times = 3 if parser.parse_args().quick else 25
    with server() as running:
        jobs = {"command": "sleep 600", "cpus": 64, "array": JOBS, "name": "sweep"}
        running.client.submit_request(jobs)
        asks = {"PENSTOCK_COMPLETE": "bash", "PENSTOCK_HOME": str(running.data)}
        bare = median_cpu_s(times, (sys.executable, "-P", "-c", "print()"), {}, b"\n")
        reference = {"name": "an interpreter that does nothing, CPU s", "value": round(bare, 3)}
        command = median_cpu_s(times, (*PROGRAM, "susp"), asks, b"suspend")
        number = median_cpu_s(times, (*PROGRAM, "show", ""), asks, b"1\n")
    result("completion_command_cpu_s", command, "CPU s", "lower", LIMIT_S, reference)
    result("completion_job_cpu_s", number, "CPU s", "lower", LIMIT_S, reference)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        away = {"PENSTOCK_COMPLETE": "bash", "PENSTOCK_URL": address, "PENSTOCK_TOKEN": "x"}
        waits = [spent((*PROGRAM, "show", ""), away)[1] for _ in range(min(times, 7))]
    result("completion_slow_server_s", statistics.median(waits), "s", "lower", SLOW_LIMIT_S, None)


if __name__ == "__main__":
    main()
