"""Replays jobs with known run times through the real core: the fold, the planner, the commit check; no clock, no disk.

Time jumps from event to event. All events of one moment are folded, then one cycle is planned and committed, as the
control loop does it. Jobs start the moment they are allocated and end after their run time.
"""

import heapq
import sys
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from penstock.core.lifecycle.ending import after_replica_gone
from penstock.core.lifecycle.orders import apply_plan
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.ids import UserName
from penstock.core.model.jobs import ExitInfo, GangAsk, GroupAsk, JobSpec
from penstock.core.model.resources import Device, DeviceAsk, ReplicaAsk, Resources
from penstock.core.planner import Planner
from penstock.core.predict.forecast import Forecaster
from penstock.core.snapshot import take_snapshot
from penstock.core.state import State

GIB = 2**30
DEVICES = 8
START_MS = 1_600_000_000_000
NOBODY = UserName("")
"""The traces name neither jobs nor owners: only size and burst tell jobs apart."""


class Work(NamedTuple):
    """One job of a trace: when it comes (s), how many devices it takes, how long it really runs (s)."""

    arrival_s: int
    devices: int
    service_s: int


class Outcome(NamedTuple):
    mean_jct_s: float
    mean_queue_s: float
    p99_queue_s: float
    events: int
    cpu_s: float


Knows = Literal["run times", "like jobs", "nothing"]
"""What the scheduler knows of run times: the true ones, those of jobs like it that ran before, or nothing."""


def gang(devices: int) -> GangAsk:
    """Return whole nodes and a remainder: the consolidated shape that the published simulators use."""
    host = Resources()
    if devices <= DEVICES:
        return GangAsk(1, ReplicaAsk(host, DeviceAsk(devices)))
    rest = devices % DEVICES
    others = (GroupAsk(1, ReplicaAsk(host, DeviceAsk(rest))),) if rest else ()
    return GangAsk(devices // DEVICES, ReplicaAsk(host, DeviceAsk(DEVICES)), others=others)


def replay(work: Sequence[Work], nodes: int, config: ClusterConfig, knows: Knows, shown: str = "") -> Outcome:
    """Return what became of `work` on `nodes` nodes of eight devices."""
    state, planner = _cluster(nodes, config), Planner()
    forecaster = Forecaster(state)
    asks = {w.devices: JobSpec(("true",), gang(w.devices)) for w in work}
    ends: list[tuple[int, int]] = []
    queued, jct = [], []
    at, begun, told = 0, time.process_time(), 0.0
    while at < len(work) or ends:
        now_s = min(work[at].arrival_s if at < len(work) else 1 << 60, ends[0][0] if ends else 1 << 60)
        now_ms = START_MS + 1000 * now_s
        tx = Transaction(state, now_ms)
        while ends and ends[0][0] == now_s:
            _end(tx, heapq.heappop(ends)[1])
        first = at
        while at < len(work) and work[at].arrival_s == now_s:
            tx.emit(ev.JobSubmitted(at + 1, asks[work[at].devices], NOBODY))
            at += 1
        if knows == "like jobs":
            forecaster.observe(tx.records)
            times = forecaster.told(state, now_ms)
        else:
            lengths = [(i + 1, 1000 * work[i].service_s) for i in range(first, at) if knows == "run times"]
            times = tuple((job_id, length_ms, length_ms) for job_id, length_ms in lengths)
        if times:
            tx.emit(ev.RunTimesPredicted(times))
        planned = Transaction(state, now_ms)
        for start in apply_plan(planned, planner.plan(take_snapshot(state), now_ms)).starts:
            one = work[start.job_id - 1]
            for rank in range(len(start.places)):
                planned.emit(ev.ReplicaStarted(start.job_id, start.attempt, rank))
            heapq.heappush(ends, (now_s + one.service_s, start.job_id))
            queued.append(now_s - one.arrival_s)
            jct.append(now_s - one.arrival_s + one.service_s)
        forecaster.observe(planned.records)
        if shown and time.monotonic() - told > 2:
            told = time.monotonic()
            print(f"\r{shown}: {len(jct)} of {len(work)} started", end="", file=sys.stderr)
    if shown:
        print(file=sys.stderr)
    queued.sort()
    cpu = time.process_time() - begun
    p99 = queued[min(len(queued) - 1, int(0.99 * len(queued)))]
    return Outcome(sum(jct) / len(jct), sum(queued) / len(queued), p99, state.seq, cpu)


def _cluster(nodes: int, config: ClusterConfig) -> State:
    state = State()
    tx = Transaction(state, START_MS)
    tx.emit(ev.ConfigChanged(config, "bench"))
    devices = tuple(Device(i, "nvidia", "V100", 32 * GIB, (7, 0), numa_node=i // 4) for i in range(DEVICES))
    for number in range(nodes):
        tx.emit(ev.NodeRegistered(NodeSpec(f"n{number:04}", Resources(64_000), devices, port_count=0), "i"))
        tx.emit(ev.NodeReady(f"n{number:04}"))
    return state


def _end(tx: Transaction, job_id: int) -> None:
    attempt = tx.state.jobs[job_id].attempt
    assert attempt is not None
    for replica in attempt.replicas:
        tx.emit(ev.ReplicaExited(job_id, attempt.number, replica.rank, ExitInfo(0)))
    after_replica_gone(tx, job_id)
