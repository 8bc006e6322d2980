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
from tests.engines.slurm.cluster import SlurmCluster
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


def of_cluster(slurm: SlurmCluster, pids: list[int]) -> list[int]:
    """Return those that belong to a cluster: there may be others on this machine."""
    mark, found = f"SLURM_CONF={slurm.folder}/slurm.conf".encode(), []
    for pid in pids:
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def agents_of(slurm: SlurmCluster) -> list[int]:
    """Return the processes of agents on nodes that Slurm has lent: guardians and workers."""
    mark = f"/penstock-{os.geteuid()}-".encode()
    named = processes(lambda words: b"penstock.engines.agent.guardian" in words and mark in words)
    return sorted(of_cluster(slurm, named))


def parent_of(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def guardians(slurm: SlurmCluster) -> list[int]:
    found = agents_of(slurm)
    return [pid for pid in found if parent_of(pid) not in found]


def workers(slurm: SlurmCluster) -> list[int]:
    found = agents_of(slurm)
    return [pid for pid in found if parent_of(pid) in found]


def stepds(slurm: SlurmCluster) -> list[int]:
    return of_cluster(slurm, processes(lambda words: words.startswith(b"slurmstepd: [")))


def kill(pids: list[int]) -> int:
    """Kill processes, and return how many there were."""
    killed = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


def hit(server: Flying, kind: str, draw: random.Random) -> bool:
    """Kill one part, and start again what does not come back by itself; return whether there was one to kill."""

    def one(pids: list[int]) -> list[int]:
        return [draw.choice(pids)] if pids else []

    if kind == "worker":
        return bool(kill(one(workers(server.slurm))))
    if kind == "guardian":
        return bool(kill(one(guardians(server.slurm))))
    if kind == "agent":
        first = one(guardians(server.slurm))
        return bool(kill([*first, *(pid for pid in workers(server.slurm) if parent_of(pid) in first)]))
    if kind == "stepd":
        return bool(kill(one(stepds(server.slurm))))
    if kind == "server":
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
    return True


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
        server.slurm.resume()
        view = server.wait_state(job, "succeeded", "failed", "cancelled")
        if view.state != "succeeded":
            yield f"job {job} {view.state}: {view.reason}, exit {view.exit_code}, attempt {view.attempt}"
    until(lambda: not left(server.root), "no program is left", 60)
