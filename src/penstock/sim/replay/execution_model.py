"""How programs and machines behave in a replay: the only part of it that is a model."""

from collections.abc import Mapping
from itertools import groupby

import msgspec

from penstock.core.elastic.speedup import AmdahlCurve, PointsCurve
from penstock.core.model.batching import BatchChoice, BatchSeen, total_of
from penstock.core.model.cluster import Node
from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import Attempt, Job
from penstock.core.model.progress import Gauges
from penstock.traces.model import Work
from penstock.traces.training import FULL_SPEED as FULL_SPEED
from penstock.traces.training import Pace, Training

THOUSANDTH = FULL_SPEED // 1000


class Physics(msgspec.Struct, frozen=True):
    """Durations in milliseconds; with the defaults everything is instant and nothing breaks."""

    decide_ms: int = 0
    """From the trigger of a cycle until its decisions are committed."""
    start_ms: int = 0
    """From the allocation until every replica runs."""
    save_ms: int = 0
    """Time that a program that can save takes to save and exit after a stop request; its grace bounds it."""
    stop_ms: int = 0
    """Time that a program that cannot save takes to exit."""
    restore_ms: int = 0
    """At the start of each attempt but the first: loading its checkpoint, or starting over."""
    noticed_ms: int = 0
    """From the loss of a node until the scheduler detects it: its lease."""
    node_mtbf_ms: int = 0
    """Mean time between failures of one node, exponentially distributed; 0: nodes fail only when the trace says so."""
    node_repair_ms: int = 3_600_000
    """Until a failed node is back."""


def speed_of(work: Work, job: Job, nodes: Mapping[NodeName, Node], done_ms: int) -> int:
    """Return how fast the job's attempt works, in millionths of its work's reference; never 0.

    Args:
        done_ms: work that is done already: what a program does may change with it.
    """
    attempt = job.attempt
    assert attempt is not None
    speed = model_milli(work, attempt, nodes)
    asked = job.spec.ask
    if work.trains is None and asked.elastic and attempt.choice == 0:
        curve = PointsCurve(work.scaling) if work.scaling else AmdahlCurve()
        spread = len({r.place.node for r in attempt.replicas})
        reached, promised = curve.speed_milli(len(attempt.replicas), spread), curve.speed_milli(asked.replicas, 1)
        speed = speed * reached // max(1, promised)
    if attempt.pairing is not None:
        speed = speed * work.beside_milli // 1000
    speed = max(1, speed)
    if work.trains is None:
        return speed * THOUSANDTH
    return max(1, speed * pace_of(work.trains, attempt, done_ms).speed // 1000)


def pace_of(trains: Training, attempt: Attempt, done_ms: int) -> Pace:
    """Return what a training program does in its present epoch, at the places and batch of its attempt."""
    ranks = groupby(replica.place.node for replica in attempt.replicas)
    placement = tuple(sum(1 for _ in alike) for _, alike in ranks)
    return trains.pace(placement, batch_of(trains, attempt), trains.epoch(done_ms))


def batch_of(trains: Training, attempt: Attempt) -> BatchChoice:
    """Return the batch that an attempt was given, or its program's own."""
    return attempt.batch if attempt.batch is not None else trains.own_batch(len(attempt.replicas))


def gauges_of(pace: Pace, batch: BatchChoice, replicas: int, *, milli: int = 1000) -> tuple[Gauges, int]:
    """Return what all ranks of a training program report together, and the time of an update (microseconds).

    Args:
        milli: how fast its devices are, in thousandths of those of the pace.
    """
    step_us, sync_us = pace.step_us * 1000 // milli, pace.sync_us * 1000 // milli
    update_us = max(1, pace.update_us * 1000 // milli)
    gauges = Gauges(
        step_ms=max(1, update_us // 1000),
        report_gap_ms=max(1, update_us // 1000),
        samples_per_s_milli=total_of(batch, replicas) * 10**9 // update_us,
        communication_milli=min(1000, 1000 * sync_us // update_us),
        batch=BatchSeen(batch.local, batch.accumulation, max(1, step_us), sync_us, pace.noise),
    )
    return gauges, update_us


def model_milli(work: Work, attempt: Attempt, nodes: Mapping[NodeName, Node]) -> int:
    """Return the speed that the models of its devices give a job, in thousandths of its reference."""
    if not work.speeds:
        return 1000
    known = dict(work.speeds)
    models = {nodes[r.place.node].spec.devices[i].model for r in attempt.replicas for i in r.place.devices}
    return min((known.get(model, 1000) for model in models), default=1000)
