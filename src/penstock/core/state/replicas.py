"""Replicas of an attempt as the events of the log change them: one, or several of one attempt at one time."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from penstock.core.model.batching import REBALANCE
from penstock.core.model.cluster import Node
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import (
    AttemptAllocated,
    AttemptEnded,
    AttemptStopRequested,
    DeviceShared,
    DeviceShareEnded,
)
from penstock.core.model.gang import PartedFrom
from penstock.core.model.ids import JobId, NodeName, Rank
from penstock.core.model.jobs import (
    Attempt,
    CheckpointSpec,
    ExitInfo,
    Job,
    JobSpec,
    Replica,
    ReplicaPlace,
    StopOrder,
)
from penstock.core.model.pairing import PARTED_MAX
from penstock.core.state import tables
from penstock.core.state.failures import next_failure
from penstock.core.state.speeds import CHANGE_REASONS, CHANGES_MAX, after_stop

SIGKILL = 9


def begun(event: AttemptAllocated, time_ms: int, nodes: Mapping[NodeName, Node]) -> Attempt:
    """Return an attempt as it begins: all its replicas hold their places."""
    first = nodes.get(event.places[0].node) if event.places and not event.scheduler else None
    allocated = tuple([Replica(Rank(rank), place) for rank, place in enumerate(event.places)])
    return Attempt(
        event.attempt,
        time_ms,
        allocated,
        event.port,
        choice=event.choice,
        scheduler=event.scheduler,
        names=event.names,
        pairing=replace(event.pairing, since_ms=time_ms) if event.pairing is not None else None,
        storage=first.spec.storage if first is not None else None,
        ports=event.ports,
        batch=event.batch,
        model=model_of(event.places, nodes),
    )


def model_of(places: Iterable[ReplicaPlace], nodes: Mapping[NodeName, Node]) -> str:
    """Return the model of all devices at these places; '' where they differ, or there are none."""
    found = ""
    for place in places:
        if not place.devices:
            continue
        node = nodes.get(place.node)
        devices = node.spec.devices if node is not None else ()
        for index in place.devices:
            at = devices[index] if index < len(devices) and devices[index].index == index else None
            device = at or next((one for one in devices if one.index == index), None)
            if device is None or device.model != (found or device.model):
                return ""
            found = device.model
    return found


def stop_asked(job: Job, attempt: Attempt, event: AttemptStopRequested, *, seq: int, time_ms: int) -> Job:
    """Return the job whose attempt is asked to leave, or to be frozen; `seq` is the record of the order."""
    order = StopOrder(event.reason, time_ms, event.grace_ms, event.beneficiary, event.rule, event.cost, seq)
    changes = event.reason in CHANGE_REASONS or event.rule == REBALANCE
    return replace(
        job,
        state=tables.job_step(job.state, "stop_requested"),
        preemptions=job.preemptions + (event.reason == "preempted"),
        attempt=replace(attempt, stop=order, suspensions=attempt.suspensions + (event.reason == "suspended")),
        changes_ms=(*job.changes_ms, time_ms)[-CHANGES_MAX:] if changes else job.changes_ms,
        room=_own_room(job, event),
    )


def ports_of(attempt: Attempt) -> list[tuple[NodeName, int]]:
    """Return the ports that an attempt holds on its nodes: of the rendezvous, and those that its job names."""
    found = [(attempt.replicas[0].place.node, attempt.port)] if attempt.port else []
    count = len(attempt.ports) // len(attempt.replicas)
    return found + [(attempt.replicas[at // count].place.node, port) for at, port in enumerate(attempt.ports) if port]


def named_ports(spec: JobSpec, attempt: Attempt, rank: Rank) -> list[tuple[str, int]]:
    """Return the names of a replica's ports and their numbers, 0 where its node had none left."""
    count = len(spec.ports)
    return list(zip(spec.ports, attempt.ports[rank * count : (rank + 1) * count], strict=False))


def shared(job: Job, attempt: Attempt, event: DeviceShared | DeviceShareEnded, time_ms: int) -> Job:
    """Return the job that holds half of its device from now on, or all of it again."""
    pairing = replace(event.pairing, since_ms=time_ms) if isinstance(event, DeviceShared) else None
    return replace(job, attempt=replace(attempt, pairing=pairing))


def parted(job: Job, other: JobId, time_ms: int) -> Job:
    """Return the job once it is parted from another one on its device."""
    before = tuple(one for one in job.parted if one.job != other)
    return replace(job, parted=(*before, PartedFrom(other, time_ms))[-PARTED_MAX:])


def _own_room(job: Job, event: AttemptStopRequested) -> tuple[ReplicaPlace, ...]:
    """Return where a job that is asked to leave comes to stand next, as far as that is planned."""
    if event.beneficiary == job.id and event.room:
        return event.room
    return next((room.places for room in event.rooms if room.job_id == job.id), job.room)


def rooms_made(
    event: AttemptStopRequested, jobs: Mapping[JobId, Job]
) -> Iterable[tuple[Job, tuple[ReplicaPlace, ...]]]:
    """Yield the waiting jobs for which this order makes room, and where."""
    beneficiary = jobs.get(event.beneficiary) if event.beneficiary is not None else None
    if beneficiary is not None and event.rule != REBALANCE and _may_come(beneficiary):
        yield beneficiary, event.room or beneficiary.room
    for room in event.rooms:
        other = jobs.get(room.job_id)
        if other is not None and room.job_id != event.job_id and _may_come(other):
            yield other, room.places


def _may_come(job: Job) -> bool:
    return job.state == "waiting" and job.hold is None


def started(job: Job, attempt: Attempt, ranks: Iterable[Rank], time_ms: int) -> Job:
    """Return the job after these replicas have started; it runs once all have. Raises: BrokenInvariant."""
    replicas = list(attempt.replicas)
    for rank in ranks:
        old = replicas[rank]
        replicas[rank] = replace(old, state=tables.replica_step(old.state, "started"), started_ms=time_ms)
    state, running_ms, first_ms = job.state, attempt.running_ms, job.first_started_ms
    if all(replica.state != "allocated" for replica in replicas):
        state, running_ms = tables.job_step(job.state, "all_started"), time_ms
        first_ms = first_ms or running_ms
    attempt = replace(attempt, replicas=tuple(replicas), running_ms=running_ms)
    return replace(job, state=state, first_started_ms=first_ms, attempt=attempt)


def ended(attempt: Attempt, exits: Iterable[tuple[Rank, ExitInfo]], how: str, time_ms: int) -> tuple[Replica, ...]:
    """Return all replicas after these have ended; `how` is the event of their table. Raises: BrokenInvariant."""
    replicas = list(attempt.replicas)
    for rank, info in exits:
        old = replicas[rank]
        replicas[rank] = replace(old, state=tables.replica_step(old.state, how), ended_ms=time_ms, exit=info)
    return tuple(replicas)


def _has_saved(job: Job, attempt: Attempt) -> bool:
    """Return whether an attempt is believed to have saved when it left: by ADR 4, or as its job says that it does.

    The shell around a program that saves dies of the signal itself.
    """
    if not attempt.running_ms or not attempt.leaving:
        return False
    exits = [replica.exit for replica in attempt.replicas]
    if all(one is not None and one.ok for one in exits):
        return True
    says = job.spec.checkpoint != CheckpointSpec()
    return says and all(one is not None and one.stop_sent and one.signal != SIGKILL for one in exits)


def _exit_of(attempt: Attempt) -> ExitInfo | None:
    """Return the job's exit: that of the first replica that failed without being stopped, where there is one."""
    failed = [one for one in sorted(attempt.replicas, key=lambda one: one.ended_ms) if one.exit and not one.exit.ok]
    by_itself = next((one.exit for one in failed if one.exit and not one.exit.stop_sent), None)
    return by_itself or (failed[0] if failed else attempt.replicas[0]).exit


def over(job: Job, attempt: Attempt, event: AttemptEnded, time_ms: int) -> Job:
    """Return the job after its attempt has ended. Raises: BrokenInvariant where a replica still holds its place."""
    if any(r.holds for r in attempt.replicas):
        raise BrokenInvariant(f"job {job.id}: attempt {attempt.number} ended while replicas hold places")
    step = max(job.progress.step, event.step)
    storage = attempt.storage if _has_saved(job, attempt) else job.progress.storage
    width = max(job.ask.device_total, len(attempt.replicas))
    return replace(
        job,
        attempt=None,
        last_exit=_exit_of(attempt),
        last_nodes=tuple(dict.fromkeys(r.place.node for r in attempt.replicas)),
        progress=replace(
            after_stop(job.progress, attempt, event, time_ms), step=step, hang="", hang_ranks=(), storage=storage
        ),
        failure=next_failure(job.failure, event, step),
        served_device_ms=job.served_device_ms + width * attempt.worked_ms(time_ms),
        idle_ms=event.idle_ms,
    )
