"""How programs and machines behave in a replay: the only part of it that is a model."""

from collections.abc import Mapping

import msgspec

from penstock.core.elastic.speedup import AmdahlCurve, PointsCurve
from penstock.core.model.cluster import Node
from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import Job
from penstock.traces.model import Work

FULL_SPEED_MILLI = 1000


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


def speed_milli(work: Work, job: Job, nodes: Mapping[NodeName, Node]) -> int:
    """Return how fast the job's attempt works, in thousandths of its work's reference; never 0."""
    attempt = job.attempt
    assert attempt is not None
    speed = FULL_SPEED_MILLI
    if work.speeds:
        known = dict(work.speeds)
        models = {nodes[r.place.node].spec.devices[i].model for r in attempt.replicas for i in r.place.devices}
        speed = min((known.get(model, FULL_SPEED_MILLI) for model in models), default=FULL_SPEED_MILLI)
    asked = job.spec.ask
    if asked.elastic and attempt.choice == 0:
        curve = PointsCurve(work.scaling) if work.scaling else AmdahlCurve()
        spread = len({r.place.node for r in attempt.replicas})
        reached, promised = curve.speed_milli(len(attempt.replicas), spread), curve.speed_milli(asked.replicas, 1)
        speed = speed * reached // max(1, promised)
    if attempt.pairing is not None:
        speed = speed * work.beside_milli // FULL_SPEED_MILLI
    return max(1, speed)
