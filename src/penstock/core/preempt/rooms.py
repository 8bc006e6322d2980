"""Places that were planned for jobs which start there once others, or they themselves, have left."""

from collections.abc import Collection, Iterable

from penstock.core.model.batching import REBALANCE
from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import Job, ReplicaPlace
from penstock.core.state.snapshot import Snapshot

Devices = Collection[tuple[NodeName, int]]


def devices_of(places: Iterable[ReplicaPlace]) -> set[tuple[NodeName, int]]:
    return {(place.node, index) for place in places for index in place.devices}


def overlaps(room: Iterable[ReplicaPlace], devices: Devices) -> bool:
    """Return whether some of these places are at one of these devices."""
    return any((place.node, index) in devices for place in room for index in place.devices)


def leaves_in_round(job: Job) -> bool:
    """Return whether a re-allocation of its pool asked the job to leave."""
    stop = job.attempt.stop if job.attempt is not None else None
    return stop is not None and stop.rule == REBALANCE


def may_enter(job: Job, snapshot: Snapshot) -> bool:
    """Return whether no other job has a newer promise of some of the places that were planned for a beneficiary.

    The plan may lie back: the job could not start there when its victims had left. A round since then has given these
    places to jobs that it restarted, and would have restarted them for nothing.
    """
    running = (snapshot.running[job_id] for job_id in snapshot.stopping)
    coming = [one for one in running if leaves_in_round(one)]
    if not job.goes_on:
        coming += [one for one in snapshot.beneficiaries if one.goes_on]
    return not any(overlaps(job.room, devices_of(one.room)) for one in coming if one.id != job.id)
