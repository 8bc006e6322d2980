"""How long jobs wait on a real month when nobody knows how long they run: Helios Venus, 2020-09, 90 nodes of 8.

The run times are predicted from the runs seen so far in the same replay; nothing is preempted. References of the same
run: first come first served, the same with later jobs allowed to start, and shortest first by an oracle.
Needs the trace: the environment variable PENSTOCK_TRACES names a folder with `helios/` (see its README.txt).
"""

import argparse
import math
import time
from collections import deque
from collections.abc import Iterator, Sequence

from bench.harness import result
from bench.queue_sim import Job, Ordered, Places, Policy, Pool, fresh, load_helios, replay
from penstock.core.model.ids import JobId
from penstock.core.predict.lengths import Lengths
from penstock.core.predict.runtime import JobFeatures, RuntimePredictor

NODES = 90
JCT_LIMIT_S, QUEUE_P99_LIMIT_S = 11_500, 60_000
EVENTS_LIMIT_PER_CPU_S = 1_000

CROWD_GAP_S = 1_800
"""Submits of one width that follow each other this closely are one crowd: one owner's retries or sweep, most likely."""
CROWD_WAIT_S = 1_000_000
"""A crowd of multi-node jobs that has waited this long in sum gets nodes drained for it."""
CROWD_PAUSE_S = 3_600
"""When a job that was let through runs longer than this, its crowd's waiting counts from that job's end only."""
STARVED_S = 7 * 86_400
"""A job that has waited this long gets a reservation whatever it is."""
KEEP_PERCENT = 50
"""A node that is being drained stays chosen unless another is ready in less than this share of its time."""
END_PERMILLE, SURE_PERMILLE = 100, 900
"""Running jobs are expected to end by the first; a job may use draining nodes if it has ended by the second."""
END_STALE_S = 300
"""For how long an expected end is used before it is asked for anew."""


class Crowd:
    """Jobs of one width, submitted shortly one after the other, that wait together."""

    def __init__(self) -> None:
        self.waiting: dict[int, int] = {}
        """Job to the moment from which its waiting counts."""
        self.sum_s = 0
        """Of those moments."""
        self.hot = False
        self.let_through: Job | None = None

    def add(self, job: Job) -> None:
        self.waiting[job.id] = job.arrival_s
        self.sum_s += job.arrival_s

    def remove(self, job: Job) -> None:
        self.sum_s -= self.waiting.pop(job.id)

    def waited_s(self, now_s: int) -> int:
        return len(self.waiting) * now_s - self.sum_s

    def begin_anew(self, now_s: int) -> None:
        self.hot = False
        self.waiting = dict.fromkeys(self.waiting, now_s)
        self.sum_s = len(self.waiting) * now_s


class WaitingClass:
    """Waiting jobs that no one can tell apart but by age, and what is predicted of them."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.curve: Lengths | None = None
        self.mean_ms = self.sure_ms = 0


class ShortestPredicted:
    """Smallest predicted device time first; whole nodes are drained for one crowd, or one starved job, at a time."""

    def __init__(self, width: int = 8) -> None:
        self._width = width
        self._predictor = RuntimePredictor()
        self._classes: dict[tuple[int, int], WaitingClass] = {}
        self._class_of: dict[int, tuple[int, int]] = {}
        self._bursts: dict[int, tuple[int, int]] = {}
        self._crowds: dict[tuple[int, int], Crowd] = {}
        self._crowd_of: dict[int, tuple[int, int]] = {}
        self._let_through: dict[int, tuple[int, int]] = {}
        self._last: dict[int, tuple[int, int]] = {}
        self._oldest: deque[Job] = deque()
        self._ends: dict[int, tuple[int, int]] = {}
        """Running job: the expected end, and when it was asked for."""
        self._draining: frozenset[int] = frozenset()

    # What happens.

    def submitted(self, job: Job, now_s: int) -> None:
        features = JobFeatures(job.devices)
        self._predictor.observe_submit(JobId(job.id), features, now_s * 1000)
        last_s, burst = self._bursts.get(job.devices, (now_s, now_s))
        burst = burst if now_s - last_s <= 120 else now_s
        self._bursts[job.devices] = (now_s, burst)
        self._class_of[job.id] = key = (job.devices, burst)
        self._classes.setdefault(key, WaitingClass()).jobs.append(job)
        self._crowd_of[job.id] = crowd = self._crowd_key(job, now_s)
        self._crowds.setdefault(crowd, Crowd()).add(job)
        self._oldest.append(job)

    def _crowd_key(self, job: Job, now_s: int) -> tuple[int, int]:
        width = job.devices if job.devices <= self._width else 1 << (job.devices - 1).bit_length()
        last_s, since_s = self._last.get(width, (now_s, now_s))
        since_s = since_s if now_s - last_s <= CROWD_GAP_S else now_s
        self._last[width] = (now_s, since_s)
        return width, since_s

    def started(self, job: Job, now_s: int) -> None:
        self._predictor.observe_start(JobId(job.id), now_s * 1000)
        key = self._class_of.pop(job.id)
        self._classes[key].jobs.remove(job)
        if not self._classes[key].jobs:
            del self._classes[key]
        crowd_key = self._crowd_of.pop(job.id)
        crowd = self._crowds[crowd_key]
        crowd.remove(job)
        if crowd.let_through is job:
            self._let_through[job.id] = crowd_key
        elif not crowd.waiting and crowd.let_through is None:
            del self._crowds[crowd_key]

    def ended(self, job: Job, now_s: int) -> None:
        self._predictor.observe_end(JobId(job.id), now_s * 1000)
        self._ends.pop(job.id, None)
        crowd_key = self._let_through.pop(job.id, None)
        crowd = self._crowds.get(crowd_key) if crowd_key is not None else None
        if crowd_key is None or crowd is None or crowd.let_through is not job:
            return  # the crowd has let another through since
        crowd.let_through = None
        if now_s - job.start_s > CROWD_PAUSE_S:
            crowd.begin_anew(now_s)
        if not crowd.waiting:
            del self._crowds[crowd_key]

    # Who starts.

    def start_now(self, pool: Pool, now_s: int) -> Iterator[tuple[Job, Places]]:
        first = self._first(now_s)
        barred, until_s = 0, 0
        draining: frozenset[int] = frozenset()
        if first is not None:
            places = pool.fit(first.devices)
            if places is not None:
                self._crowds[self._crowd_of[first.id]].let_through = first
                yield first, places
            else:
                until_s, draining = self._reserve(first, pool, now_s)
                barred = sum(1 << node for node in draining)
        self._draining = draining
        too_big = too_big_beside = pool.nodes * pool.width + 1
        for waiting in self._ordered(now_s):
            sure = not barred or now_s * 1000 + waiting.sure_ms <= until_s * 1000
            for job in tuple(waiting.jobs):
                if job.devices >= (too_big if sure else min(too_big, too_big_beside)):
                    break
                places = pool.fit(job.devices, 0 if sure else barred)
                if places is None:
                    if sure:
                        too_big = job.devices
                    else:
                        too_big_beside = job.devices
                    break
                yield job, places

    def _ordered(self, now_s: int) -> list[WaitingClass]:
        keyed = []
        read: dict[int, tuple[int, int]] = {}
        for (devices, _), waiting in self._classes.items():
            head = waiting.jobs[0]
            curve, _ = self._predictor.lengths(JobId(head.id), JobFeatures(devices), now_ms=now_s * 1000)
            if curve is not waiting.curve:
                if id(curve) not in read:
                    read[id(curve)] = curve.mean_ms(), curve.quantile_ms(SURE_PERMILLE)
                waiting.curve, (waiting.mean_ms, waiting.sure_ms) = curve, read[id(curve)]
            keyed.append((waiting.mean_ms * devices, head.id, waiting))
        keyed.sort(key=lambda entry: entry[:2])
        return [waiting for _, _, waiting in keyed]

    # For whom nodes are drained, and which.

    def _first(self, now_s: int) -> Job | None:
        """Return the job that goes before the order: the oldest of the crowd that has waited longest in sum."""
        best: tuple[int, int] | None = None
        chosen: Job | None = None
        while self._oldest and self._oldest[0].start_s >= 0:
            self._oldest.popleft()
        starved: dict[tuple[int, int], Job] = {}
        for job in self._oldest:
            if now_s - job.arrival_s < STARVED_S:
                break
            if job.start_s < 0:
                starved.setdefault(self._crowd_of[job.id], job)
        for key, crowd in self._crowds.items():
            let_through = crowd.let_through
            paused = let_through is not None and now_s - let_through.start_s > CROWD_PAUSE_S
            if not crowd.waiting:
                crowd.hot = False
                continue
            waited_s = 0 if paused else crowd.waited_s(now_s)
            crowd.hot = (crowd.hot or waited_s >= CROWD_WAIT_S) and key[0] > self._width and not paused
            if not crowd.hot and key not in starved:
                continue
            oldest = starved[key] if key in starved else self._oldest_of(crowd)
            if best is None or (-waited_s, oldest.id) < best:
                best, chosen = (-waited_s, oldest.id), oldest
        return chosen

    def _oldest_of(self, crowd: Crowd) -> Job:
        job_id = next(iter(crowd.waiting))
        return next(job for job in self._classes[self._class_of[job_id]].jobs if job.id == job_id)

    def _reserve(self, job: Job, pool: Pool, now_s: int) -> tuple[int, frozenset[int]]:
        """Return by when which nodes can be drained for `job`: those ready first; those being drained already stay."""
        whole, rest = divmod(job.devices, pool.width)
        ready = [self._ready_s(node, pool.width, pool, now_s) for node in range(pool.nodes)]
        by_time = sorted(range(pool.nodes), key=lambda node: (self._score(node, ready[node], now_s), node))
        chosen, until_s = by_time[:whole], max((ready[node] for node in by_time[:whole]), default=now_s)
        if rest:
            others = {n: self._ready_s(n, rest, pool, now_s) for n in by_time[whole:]}
            node = min(others, key=lambda n: (self._score(n, others[n], now_s), pool.free[n], n))
            chosen, until_s = [*chosen, node], max(until_s, others[node])
        return until_s, frozenset(chosen)

    def _score(self, node: int, ready_s: int, now_s: int) -> int:
        return (ready_s - now_s) * (KEEP_PERCENT if node in self._draining else 100)

    def _ready_s(self, node: int, devices: int, pool: Pool, now_s: int) -> int:
        """Return when the node is expected to have `devices` free."""
        free = pool.free[node]
        if free >= devices:
            return now_s
        for end_s, given in sorted((self._end_s(job, now_s), dict(job.places)[node]) for job in pool.held[node]):
            free += given
            if free >= devices:
                return end_s
        raise ValueError(f"node {node} never has {devices} devices")

    def _end_s(self, job: Job, now_s: int) -> int:
        end_s, asked_s = self._ends.get(job.id, (0, 0))
        if end_s <= now_s or now_s - asked_s >= END_STALE_S:
            age_s = now_s - job.start_s
            curve, _ = self._predictor.lengths(JobId(job.id), JobFeatures(job.devices), now_ms=now_s * 1000)
            left_s = curve.quantile_ms(END_PERMILLE, age_s * 1000) // 1000 - age_s
            end_s = now_s + max(1, age_s // 20, left_s)
            self._ends[job.id] = (end_s, now_s)
        return end_s


def measures(jobs: Sequence[Job]) -> tuple[float, int]:
    """Return the mean job completion time and the 99th percentile of the time in the queue, in seconds."""
    queues = sorted(job.queue_s for job in jobs)
    return sum(job.jct_s for job in jobs) / len(jobs), queues[math.floor(0.99 * len(queues))]


def run(jobs: Sequence[Job], policy: Policy, nodes: int = NODES) -> tuple[float, int, float]:
    """Return the two measures, and the CPU seconds of the replay."""
    mine, begun = fresh(jobs), time.process_time()
    replay(mine, Pool(nodes), policy)
    return *measures(mine), time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the references that take long are left out")
    parser.add_argument("--nodes", type=int, default=NODES)
    given = parser.parse_args()
    jobs = load_helios()
    references: dict[str, Policy] = {
        "SJF oracle, the head blocks": Ordered(lambda job: job.service_s, blocks=True),
        "SJF oracle, later may start": Ordered(lambda job: job.service_s, blocks=False),
    }
    if not given.quick:
        references["FIFO, later may start"] = Ordered(lambda job: job.arrival_s, blocks=False)
        references["FIFO, the head blocks"] = Ordered(lambda job: job.arrival_s, blocks=True)
    noted = {name: run(jobs, policy, given.nodes) for name, policy in references.items()}
    jct_s, queue_s, cpu_s = run(jobs, ShortestPredicted(), given.nodes)
    best = next(iter(noted))
    result("helios_mean_jct_s", jct_s, "s", "lower", JCT_LIMIT_S, _reference(best, noted, 0))
    result("helios_p99_queue_s", queue_s, "s", "lower", QUEUE_P99_LIMIT_S, _reference(best, noted, 1))
    rate = {"name": best, "value": round(2 * len(jobs) / noted[best][2])}
    result("events_per_cpu_s", 2 * len(jobs) / cpu_s, "events/s", "higher", EVENTS_LIMIT_PER_CPU_S, rate)


def _reference(best: str, noted: dict[str, tuple[float, int, float]], which: int) -> dict[str, object]:
    values = {name: round(found[which]) for name, found in noted.items()}
    return {"name": best, "value": values.pop(best), "others": values}


if __name__ == "__main__":
    main()
