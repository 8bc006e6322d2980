"""Decisions about nodes' reports and about time limits.

A report is never trusted to arrive once, in order or at all: a report about an attempt that is not current, or one
that repeats a known fact, changes nothing.
"""

from msgspec.structs import replace

from penstock.core.lifecycle.device_health import on_failed_device, on_faults, open_quiet
from penstock.core.lifecycle.draining import clear_overdue
from penstock.core.lifecycle.ending import after_replica_gone, finish
from penstock.core.lifecycle.health import checked, on_disk, strike
from penstock.core.lifecycle.idling import note_idle
from penstock.core.lifecycle.out_of_reach import abandon_out_of_reach
from penstock.core.lifecycle.registering import reshaped
from penstock.core.lifecycle.suspending import end_long_suspensions, on_frozen, stop_instead
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.reports import NodeReport, ProgressSeen, ReplicaKey, ReplicaSeen
from penstock.core.model.cluster import NodeSpec, OthersLoad
from penstock.core.model.events import (
    AttemptStopRequested,
    CheckpointSaved,
    InstancesChanged,
    JobResumed,
    NodeLost,
    NodeReady,
    NodeRegistered,
    OthersLoadChanged,
    ReplicaExited,
    ReplicaStarted,
    SaveSignalNoted,
)
from penstock.core.model.ids import Incarnation, NodeName
from penstock.core.model.jobs import Attempt, ExitInfo, Job, Replica
from penstock.core.model.node_faults import Fault, fault_of
from penstock.core.model.progress import SAVE_SIGNALS
from penstock.core.model.resources import Resources
from penstock.core.state.state import State

STOPPED_IN_ORDER = "its agent was stopped"


def on_hello(tx: Transaction, spec: NodeSpec, incarnation: Incarnation, heard_ms: int = 0) -> None:
    """Take a node in. A new incarnation means that all processes of the former one, last heard then, are gone."""
    known = tx.state.nodes.get(spec.name)
    if known is not None and known.incarnation != incarnation and known.state != "lost":
        lose_node(tx, spec.name, "its agent came back without its processes", heard_ms)
    known = tx.state.nodes.get(spec.name)
    if known is not None and known.incarnation == incarnation and tx.state.indexes.load(spec.name).replicas:
        spec = reshaped(known.spec_said, spec, *_held_on(tx.state, spec.name))
    same = known is not None and known.incarnation == incarnation and known.spec_said == spec
    if not same or (known is not None and known.state == "lost"):
        tx.emit(NodeRegistered(spec, incarnation))


def _held_on(state: State, node: NodeName) -> tuple[Resources, set[int]]:
    """Return what replicas hold of a node: amounts, and devices."""
    load, held = state.indexes.load(node), Resources()
    for job_id, rank in load.replicas:
        held += state.jobs[job_id].ask.each_of(rank).host
    return held, set(load.devices)


def on_report(tx: Transaction, report: NodeReport) -> None:
    """Apply a node's report of its replicas; make the node ready once nothing foreign runs there."""
    node = tx.state.nodes.get(report.node)
    if node is None or node.incarnation != report.incarnation or node.state == "lost":
        return
    on_disk(tx, report.node, report.disk_problem, inventory=report.inventory)  # before what fails for it
    if report.check is not None:
        checked(tx, report.node, report.check.text, passed=report.check.passed, ended=report.check.ended)
    if report.faults is not None:
        on_faults(tx, report.node, report.faults)  # before the exits that they explain
    for progress in report.progress:
        _on_progress(tx, progress)
    for seen in report.replicas:
        _on_seen(tx, report.node, seen)
    _on_others(tx, report)
    if report.instances is not None and report.instances != tx.state.nodes[report.node].instances:
        tx.emit(InstancesChanged(report.node, report.instances))
    if not report.inventory:
        return
    listed = {seen.key for seen in report.replicas}
    for key in _believed_started(tx.state, report.node):
        if key not in listed:
            info = ExitInfo(problem=f"node {report.node} no longer knows replica {key}")
            tx.emit(ReplicaExited(key.job_id, key.attempt, key.rank, info))
            after_replica_gone(tx, key.job_id)
    if report.leaving and all(seen.state == "exited" for seen in report.replicas):
        lose_node(tx, report.node, STOPPED_IN_ORDER)
    elif node.state == "joining" and not foreign(tx.state, report):
        tx.emit(NodeReady(report.node))


def _on_others(tx: Transaction, report: NodeReport) -> None:
    """Apply what others hold: after the ends of replicas, whose devices they may have."""
    node = tx.state.nodes[report.node]
    if report.others is None:
        return
    others = _apart(tx.state, report.node, report.others)
    if _who(others) == _who(node.others):
        others = replace(others, users=node.others.users)  # other processes of the same programs
    if others != node.others:
        tx.emit(OthersLoadChanged(report.node, others))


def _who(others: OthersLoad) -> set[tuple[int, str, str]]:
    return {(one.index, one.user, one.program) for one in others.users}


def _apart(state: State, node: NodeName, others: OthersLoad) -> OthersLoad:
    """Return the load without devices that jobs of ours hold: those count once, and as theirs."""
    ours = state.indexes.load(node).devices
    if not any(ours.get(index) for index in others.devices):
        return others
    return replace(others, devices=tuple(index for index in others.devices if not ours.get(index)))


def foreign(state: State, report: NodeReport) -> list[ReplicaSeen]:
    """Return replicas that live on the node though the state gives them no place there: to be killed."""
    return [
        seen for seen in report.replicas if seen.state != "exited" and current(state, report.node, seen.key) is None
    ]


def current(state: State, node: NodeName, key: ReplicaKey) -> tuple[Job, Replica] | None:
    """Return job and replica when `key` is of the current attempt and holds its place on `node`."""
    job = state.jobs.get(key.job_id)
    if job is None or job.attempt is None or key.rank >= len(job.attempt.replicas):
        return None
    if not _is_current(job.attempt, key):
        return None
    replica = job.attempt.replicas[key.rank]
    if not replica.holds or replica.place.node != node:
        return None
    return job, replica


def _is_current(attempt: Attempt, key: ReplicaKey) -> bool:
    return attempt.number == key.attempt


def _on_seen(tx: Transaction, node: NodeName, seen: ReplicaSeen) -> None:
    found = current(tx.state, node, seen.key)
    if found is None:
        return
    job, replica = found
    assert job.attempt is not None
    number = job.attempt.number
    if seen.state in ("running", "frozen", "stopping") and replica.state == "allocated":
        tx.emit(ReplicaStarted(job.id, number, seen.key.rank, seen.pid))
    if seen.state == "frozen":
        on_frozen(tx, job, seen.key.rank, seen.suspension)
    elif seen.refused and seen.state != "exited":
        stop_instead(tx, job)
    elif seen.state == "exited":
        info = seen.exit or ExitInfo(problem="the node reported an exit without a status")
        if replica.state == "allocated" and not info.problem:
            tx.emit(ReplicaStarted(job.id, number, seen.key.rank, seen.pid))
        tx.emit(ReplicaExited(job.id, number, seen.key.rank, info))
        fault = fault_of(info)
        if fault is not None and not on_failed_device(tx.state.nodes[node], job.attempt, seen.key.rank):
            strike(tx, node, fault, job)
        after_replica_gone(tx, job.id)


def _on_progress(tx: Transaction, seen: ProgressSeen) -> None:
    job = tx.state.jobs.get(seen.key.job_id)
    if job is None or job.attempt is None or job.attempt.number != seen.key.attempt:
        return
    if seen.kind == "checkpoint":
        known = job.progress
        if known.checkpoint_attempt == job.attempt.number and seen.step <= known.checkpoint_step:
            return
        tx.emit(CheckpointSaved(job.id, job.attempt.number, seen.step, seen.size_bytes, seen.why))
    elif seen.kind == "resumed" and job.progress.resumed_attempt != job.attempt.number:
        lost = max(0, job.progress.step - seen.step)
        tx.emit(JobResumed(job.id, job.attempt.number, seen.step, lost))
    elif seen.kind == "listens" and seen.key.rank == 0 and seen.why in ("", *SAVE_SIGNALS):
        told = job.progress
        if seen.why != (told.save_signal if told.save_attempt == job.attempt.number else ""):
            tx.emit(SaveSignalNoted(job.id, job.attempt.number, seen.why))


def _believed_started(state: State, node: NodeName) -> list[ReplicaKey]:
    keys = []
    for job_id, rank in sorted(state.indexes.load(node).replicas):
        attempt = state.jobs[job_id].attempt
        if attempt is not None and attempt.replicas[rank].state == "started":
            keys.append(ReplicaKey(job_id, attempt.number, rank))
    return keys


def lose_node(tx: Transaction, node: NodeName, reason: str, heard_ms: int = 0) -> None:
    """Count a node as lost, its replicas as gone, and settle what that means for their jobs.

    `heard_ms` is when the server last heard of it (unix ms), 0 where that is not known.

    Only for a node that has surely ended its own processes: its lease ran out, or its agent said so.
    """
    affected = sorted({job_id for job_id, _ in tx.state.indexes.load(node).replicas})
    tx.emit(NodeLost(node, reason, heard_ms))
    if reason != STOPPED_IN_ORDER:
        strike(tx, node, Fault(reason))
    for job_id in affected:
        after_replica_gone(tx, job_id)


def on_time(tx: Transaction) -> None:
    """End attempts over their time limit, suspensions and waits over their maximum; note idle attempts, and checkpoints
    out of reach.

    Nodes whose work is to leave by now are cleared, and devices that have stayed well are opened.
    """
    state, now_ms = tx.state, tx.now_ms
    end_long_suspensions(tx)
    clear_overdue(tx)
    open_quiet(tx)
    note_idle(tx)
    abandon_out_of_reach(tx)
    for job_id in sorted(state.indexes.time_limited):
        job = state.jobs[job_id]
        attempt, limit_ms = job.attempt, job.spec.time_limit_ms
        if attempt is None or not attempt.running_ms or attempt.stop is not None or attempt.scheduler:
            continue  # one of another scheduler is stopped by that
        if attempt.worked_ms(now_ms) >= limit_ms:
            tx.emit(AttemptStopRequested(job_id, attempt.number, "time_limit", job.spec.grace_ms))
    for job_id in sorted(state.indexes.wait_limited):
        waiting = state.jobs.get(job_id)  # gone when it depended on a job that has just been cancelled
        if waiting is not None and now_ms - waiting.waiting_since_ms >= waiting.spec.max_wait_ms:
            finish(tx, waiting, "cancelled", f"waited longer than max_wait ({waiting.spec.max_wait_ms // 1000} s)")
