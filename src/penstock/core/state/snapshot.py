"""The input of one planning cycle: an immutable cut of the state, cheap to take while the state moves on."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from penstock.core.model.accounts import Hold
from penstock.core.model.cluster import ClusterConfig, Node
from penstock.core.model.expected import ExpectedDemand
from penstock.core.model.ids import JobId, NodeName, PoolName, QueueName, TenantName
from penstock.core.model.jobs import Job
from penstock.core.model.matching import KnownSpeeds, KnownSteps
from penstock.core.order.expected_power import PoolPowers
from penstock.core.order.usage_over_time import UsageOverTime
from penstock.core.order.walk import PendingJobs
from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.workload_mix import Typical
from penstock.core.state.copy_on_write import Moment
from penstock.core.state.state import State


class Snapshot(msgspec.Struct, frozen=True):
    """The plan's whole input but the time. Nothing in it changes while the state moves on."""

    seq: int
    config: ClusterConfig
    nodes: Mapping[NodeName, Node]
    """In the order of names."""
    free: Mapping[NodeName, NodeCapacity]
    """The free capacity of each of them, in the same order."""
    classes: tuple[PendingJobs, ...]
    """Jobs that wait and have no unmet dependency, by request class, each in submit order."""
    waiting: tuple[PendingJobs, ...]
    """The same, whichever `classes` a trial leaves out: the backlog counts them all."""
    running: Mapping[JobId, Job]
    """Jobs that hold places."""
    stopping: Mapping[JobId, JobId | None]
    """Jobs being stopped, and their beneficiaries."""
    beneficiaries: tuple[Job, ...]
    """Waiting jobs for which victims were asked to leave."""
    usage: Mapping[tuple[QueueName, TenantName], UsageOverTime]
    ends: Iterable[Moment]
    """When running attempts are expected to end, where that is known (unix ms), ascending."""
    unending: Iterable[Moment]
    """When attempts of unknown length were allocated (unix ms), ascending; without the suspended ones."""
    evictable: Mapping[tuple[PoolName, int], int]
    """How many attempts of preemptible jobs run, by pool and priority."""
    elastic: tuple[JobId, ...] = ()
    """Jobs among the running ones that are elastic or have a batch range, by id."""
    suspended: tuple[JobId, ...] = ()
    """Attempts that have given their CPUs back, by id."""
    idle: tuple[JobId, ...] = ()
    """Attempts whose last note says that they are idle, by id."""
    typical: Typical = ()
    """Recent asks of replicas, and how often each came."""
    powers: Mapping[str, int] = MappingProxyType({})
    """Mean power of one held device (mW), by model, as far as measured."""
    pool_powers: PoolPowers = MappingProxyType({})
    """What one device in use is expected to draw (mW), by pool and model; of pools with a limit of power."""
    expected: tuple[ExpectedDemand, ...] = ()
    """Demand for which room may be kept, in the order of pools and priorities."""
    leaving: tuple[NodeName, ...] = ()
    """Nodes of which it is known when they go, by name."""
    model_speeds: KnownSpeeds = KnownSpeeds()
    """How fast jobs of each kind were on device models, where a pool goes by that."""
    steps: KnownSteps = KnownSteps()
    """What jobs of each kind measured with their batches, where a pool has rounds."""
    changes: Sequence[NodeName] = ()
    """Nodes in the order in which their free capacity changed; the first `changes_count` count here."""
    changes_count: int = 0
    held: Mapping[TenantName, Hold] = MappingProxyType({})
    """Held tenants: none of their jobs start, and their waiting jobs are left out of all the rest here."""


def take_snapshot(state: State) -> Snapshot:
    """Return the cut of `state` that a cycle plans on.

    For the thread that folds; `snapshot_beside` is for all others.
    """
    indexes, jobs = state.indexes, state.jobs
    held = state.money.holds()
    classes = indexes.give_out_classes()
    beneficiaries = tuple(job for i in sorted(indexes.beneficiaries) if (job := jobs.get(i)) is not None)
    elastic = tuple(sorted(indexes.elastic))
    if held:
        classes = tuple(entry for entry in classes if entry[1].tenant not in held)
        beneficiaries = tuple(job for job in beneficiaries if job.spec.tenant not in held)
        running = ((i, indexes.active.get(i)) for i in elastic)
        elastic = tuple(i for i, job in running if job is not None and job.spec.tenant not in held)
    return Snapshot(
        seq=state.seq,
        config=state.config,
        nodes=indexes.nodes,
        free=indexes.free.cut(),
        classes=classes,
        waiting=classes,
        running=indexes.active.cut(),
        stopping=dict(indexes.stopping),
        beneficiaries=beneficiaries,
        usage=dict(indexes.usage),
        ends=indexes.ends.cut(),
        unending=indexes.unending.cut(),
        evictable=dict(indexes.evictable),
        elastic=elastic,
        suspended=tuple(sorted(indexes.suspended)),
        idle=tuple(sorted(indexes.idle)),
        typical=indexes.requests.typical,
        powers=indexes.powers.means(),
        pool_powers=indexes.powers.expected(state.config, indexes.nodes),
        expected=state.demand.expected,
        leaving=tuple(sorted(indexes.leaving)),
        model_speeds=indexes.model_speeds.cut() if state.config.matching else KnownSpeeds(),
        steps=indexes.steps.cut() if any(pool.elastic.rebalance for pool in state.config.pools) else KnownSteps(),
        changes=indexes.changes,
        changes_count=len(indexes.changes),
        held=held,
    )


def snapshot_beside(state: State) -> Snapshot:
    """Return a snapshot for another thread than the one that folds: without lists that this one may be changing."""
    found = take_snapshot(state)
    classes = tuple((class_id, key, own) for class_id, key, jobs in found.classes if (own := tuple(jobs)))
    return replace(found, classes=classes, waiting=classes)
