"""Kills of parts at random points, and jobs that notice when they run twice at once."""

import contextlib
import os
import random
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.engines.conformance.jobsuite import left
from tests.engines.slurm.pilot.flying import Flying
from tests.server.harness import until

TWICE = 99
"""Exit code of a program that finds another one of its job running."""
KINDS = ("worker", "guardian", "agent", "server", "stepd", "slurmd", "slurmctld")


def words_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def processes(said: Callable[[bytes], bool]) -> list[int]:
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if said(words_of(pid))]


def agents_of() -> list[int]:
    """Return the processes of agents on nodes that Slurm has lent: guardians and workers."""
    mark = f"/penstock-{os.geteuid()}-".encode()
    return sorted(processes(lambda words: b"penstock.engines.agent.guardian" in words and mark in words))


def parent_of(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def guardians() -> list[int]:
    found = agents_of()
    return [pid for pid in found if parent_of(pid) not in found]


def workers() -> list[int]:
    found = agents_of()
    return [pid for pid in found if parent_of(pid) in found]


def stepds() -> list[int]:
    return processes(lambda words: words.startswith(b"slurmstepd: ["))


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def hit(server: Flying, kind: str, draw: random.Random) -> None:
    """Kill one part, and start again what does not come back by itself."""

    def one(pids: list[int]) -> list[int]:
        return [draw.choice(pids)] if pids else []

    if kind == "worker":
        kill(one(workers()))
    elif kind == "guardian":
        kill(one(guardians()))
    elif kind == "agent":
        first = one(guardians())
        kill([*first, *(pid for pid in workers() if parent_of(pid) in first)])
    elif kind == "stepd":
        kill(one(stepds()))
    elif kind == "server":
        server.hang_up()
        assert server.process is not None
        server.process.kill()
        server.process.wait()
        server.start()
    else:
        part = draw.choice(server.slurm.nodes) if kind == "slurmd" else "slurmctld"
        server.slurm.kill_part(part)
        time.sleep(draw.random())
        server.slurm.start_part(part)


def exclusive(server: Flying, count: int, seconds: float) -> list[int]:
    """Submit jobs that fail with `TWICE` where one of them runs twice at once."""
    made = []
    for number in range(count):
        lock = shlex.quote(str(server.root / f"lock-{time.monotonic_ns()}-{number}"))
        command = f"exec flock -n -E {TWICE} {lock} sleep {seconds}"
        made.append(server.run(command, cpus=2, env={"SHARED": str(server.root)}))
    return made


def all_end_well(server: Flying, jobs: list[int]) -> Iterator[str]:
    """Wait until the jobs have ended, and yield what went wrong."""
    for job in jobs:
        view = server.wait_state(job, "succeeded", "failed", "cancelled")
        if view.state != "succeeded":
            yield f"job {job} {view.state}: {view.reason}, exit {view.exit_code}, attempt {view.attempt}"
    until(lambda: not left(server.root), "no program is left", 60)
