"""A light event simulator of one pool of equal nodes, for queueing policies alone: no gangs of replicas, no faults.

Time is in whole seconds. At each moment ends come first, then submits, then the policy is asked once who starts.
A job of up to a node's devices goes on one node (the tightest); a bigger one takes whole nodes and one remainder.
"""

import csv
import gzip
import heapq
import os
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

HELIOS = "helios/venus_2020-09_gpu_jobs.csv.gz"
Places = tuple[tuple[int, int], ...]
"""Node and devices there, for each node of a job."""


@dataclass(slots=True, eq=False)
class Job:
    """A job of a trace; `service_s` may be read by the simulator and by oracles only."""

    id: int
    arrival_s: int
    service_s: int
    devices: int
    start_s: int = -1
    places: Places = ()

    @property
    def queue_s(self) -> int:
        return self.start_s - self.arrival_s

    @property
    def jct_s(self) -> int:
        return self.queue_s + self.service_s


@dataclass(slots=True)
class Pool:
    """Free devices of each node, and who holds the others."""

    nodes: int
    width: int = 8
    free: list[int] = field(init=False)
    held: list[list[Job]] = field(init=False)
    _with_free: list[int] = field(init=False)
    """For each number of free devices, the nodes that have it, as a mask."""

    def __post_init__(self) -> None:
        self.free = [self.width] * self.nodes
        self.held = [[] for _ in range(self.nodes)]
        self._with_free = [0] * self.width + [(1 << self.nodes) - 1]

    def fit(self, devices: int, barred: int = 0) -> Places | None:
        """Return where a job of `devices` would go without the nodes of the mask `barred`; None if it does not fit."""
        whole, rest = divmod(devices, self.width)
        empty = self._with_free[self.width] & ~barred
        places = []
        if whole > empty.bit_count():
            return None
        for _ in range(whole):
            lowest = empty & -empty
            empty ^= lowest
            barred |= lowest
            places.append((lowest.bit_length() - 1, self.width))
        if rest:
            for free in range(rest, self.width + 1):
                mask = self._with_free[free] & ~barred
                if mask:
                    places.append((self.choose(mask), rest))
                    break
            else:
                return None
        return tuple(places)

    def choose(self, among: int) -> int:
        """Return which of the nodes of this mask, all equally tight, a job takes: the lowest."""
        return (among & -among).bit_length() - 1

    def take(self, job: Job, places: Places) -> None:
        job.places = places
        for node, devices in places:
            self._change(node, -devices)
            self.held[node].append(job)

    def give(self, job: Job) -> None:
        for node, devices in job.places:
            self._change(node, devices)
            self.held[node].remove(job)

    def _change(self, node: int, devices: int) -> None:
        bit = 1 << node
        self._with_free[self.free[node]] ^= bit
        self.free[node] += devices
        self._with_free[self.free[node]] ^= bit


StartNow = Callable[[Pool, int], Iterator[tuple[Job, Places]]]
"""Who starts now and where. Each is started before the next is asked for, so the pool is always up to date."""


class Policy(Protocol):
    """Is told what happens, and says who starts."""

    @property
    def start_now(self) -> StartNow: ...
    def submitted(self, job: Job, now_s: int) -> None: ...
    def started(self, job: Job, now_s: int) -> None: ...
    def ended(self, job: Job, now_s: int) -> None: ...


def replay(jobs: Sequence[Job], pool: Pool, policy: Policy) -> None:
    """Run all `jobs` (by arrival) to their ends: each has its start afterwards. Raises: ValueError if one has none."""
    ends: list[tuple[int, int, Job]] = []
    at = 0
    while at < len(jobs) or ends:
        now_s = min(ends[0][0] if ends else jobs[at].arrival_s, jobs[at].arrival_s if at < len(jobs) else ends[0][0])
        while ends and ends[0][0] == now_s:
            job = heapq.heappop(ends)[2]
            pool.give(job)
            policy.ended(job, now_s)
        while at < len(jobs) and jobs[at].arrival_s == now_s:
            policy.submitted(jobs[at], now_s)
            at += 1
        for job, places in policy.start_now(pool, now_s):
            job.start_s = now_s
            pool.take(job, places)
            heapq.heappush(ends, (now_s + job.service_s, job.id, job))
            policy.started(job, now_s)
    if any(job.start_s < 0 for job in jobs):
        raise ValueError("a job never started: it does not fit the empty pool")


class Ordered:
    """Starts jobs by a key fixed at submit; the first that does not fit stops the rest (`blocks`) or is passed by."""

    def __init__(self, key: Callable[[Job], int], *, blocks: bool) -> None:
        self._key, self._blocks = key, blocks
        self._waiting: list[tuple[int, int, Job]] = []

    def submitted(self, job: Job, now_s: int) -> None:
        insort(self._waiting, (self._key(job), job.id, job))

    def started(self, job: Job, now_s: int) -> None:
        self._waiting.remove((self._key(job), job.id, job))

    def ended(self, job: Job, now_s: int) -> None:
        pass

    def start_now(self, pool: Pool, now_s: int) -> Iterator[tuple[Job, Places]]:
        too_big = pool.nodes * pool.width + 1
        for _, _, job in tuple(self._waiting):
            if job.devices >= too_big:
                continue
            places = pool.fit(job.devices)
            if places is not None:
                yield job, places
            elif self._blocks:
                return
            else:
                too_big = job.devices  # more devices never fit where fewer do not


def load_helios(name: str = HELIOS) -> list[Job]:
    """Return the GPU jobs of a month of Helios Venus, by arrival; by default the 24,172 of 2020-09."""
    root = os.environ.get("PENSTOCK_TRACES")
    if not root:
        raise SystemExit("PENSTOCK_TRACES is not set: it names the folder that holds helios/")
    with gzip.open(Path(root) / name, "rt", encoding="utf-8", newline="") as file:
        return [
            Job(int(row["job_id"]), int(row["arrival_s"]), int(row["service_sec"]), int(row["gpu_count"]))
            for row in csv.DictReader(file)
        ]


def fresh(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs as if nothing had happened to them yet."""
    return [Job(job.id, job.arrival_s, job.service_s, job.devices) for job in jobs]
