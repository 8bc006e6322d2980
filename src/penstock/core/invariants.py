"""Every promise about the state as a function `State -> violations`; tests, simulator and debug server use this list.

Each function states the good case. All of them recount from jobs and nodes, never from the caches they check.
"""

from collections.abc import Callable, Iterable

import msgspec

from penstock.core.errors import BrokenInvariant
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import FINAL_STATES, Job, Replica
from penstock.core.model.resources import RESOURCE_FIELDS, Resources
from penstock.core.state import State


class Violation(msgspec.Struct, frozen=True):
    promise: str
    detail: str


def _held(state: State) -> Iterable[tuple[Job, Replica]]:
    for job in state.jobs.values():
        if job.attempt is not None:
            for replica in job.attempt.replicas:
                if replica.holds:
                    yield job, replica


def no_device_beyond_capacity(state: State) -> Iterable[str]:
    """Each device is held by at most one replica, and exists."""
    holders: dict[tuple[NodeName, int], JobId] = {}
    for job, replica in _held(state):
        known = state.nodes.get(replica.place.node)
        count = len(known.spec.devices) if known else 0
        for index in replica.place.devices:
            place = (replica.place.node, index)
            if place in holders:
                yield f"device {place} is held by jobs {holders[place]} and {job.id}"
            if index >= count:
                yield f"job {job.id} holds device {place}, which does not exist"
            holders[place] = job.id


def no_host_beyond_capacity(state: State) -> Iterable[str]:
    """What replicas hold on a node adds up to no more than the node has."""
    held: dict[NodeName, Resources] = {}
    for job, replica in _held(state):
        node = replica.place.node
        held[node] = held.get(node, Resources()) + job.spec.ask.each.host
    for node, total in held.items():
        capacity = state.nodes[node].spec.capacity
        for field in RESOURCE_FIELDS:
            if getattr(total, field) > getattr(capacity, field):
                yield f"{node}: {field} {getattr(total, field)} held of {getattr(capacity, field)}"


def loads_match_jobs(state: State) -> Iterable[str]:
    """The cached load of each node is what its replicas hold."""
    replicas: dict[NodeName, set[tuple[JobId, int]]] = {}
    devices: dict[NodeName, dict[int, JobId]] = {}
    hosts: dict[NodeName, Resources] = {}
    for job, replica in _held(state):
        node = replica.place.node
        replicas.setdefault(node, set()).add((job.id, replica.rank))
        hosts[node] = hosts.get(node, Resources()) + job.spec.ask.each.host
        devices.setdefault(node, {}).update(dict.fromkeys(replica.place.devices, job.id))
    for node, load in state.derived.loads.items():
        if load.replicas != replicas.pop(node, set()) or load.host != hosts.get(node, Resources()):
            yield f"load of {node} differs from its replicas"
        if load.devices != devices.get(node, {}):
            yield f"devices held on {node} {load.devices} differ from {devices.get(node, {})}"
    for node in replicas:
        yield f"no load is kept for {node}"


def waiting_jobs_are_indexed(state: State) -> Iterable[str]:
    """Each waiting job is in exactly the index that its dependencies call for, once and in submit order."""
    expected: dict[int, list[JobId]] = {}
    for job in state.jobs.values():
        if job.state == "waiting" and not job.unmet:
            expected.setdefault(job.class_id, []).append(job.id)
    found = {class_id: pending.jobs for class_id, pending in state.derived.pending.items()}
    if {c: sorted(jobs) for c, jobs in expected.items()} != found:
        yield f"pending index {found} differs from waiting jobs {expected}"
    counts: dict[str, int] = {}
    for job in state.jobs.values():
        counts[job.spec.queue] = counts.get(job.spec.queue, 0) + (job.state == "waiting")
    kept = {queue: count for queue, count in state.derived.waiting_by_queue.items() if count}
    if kept != {queue: count for queue, count in counts.items() if count}:
        yield f"waiting jobs by queue {kept} differ from {counts}"
    limited = {j.id for j in state.jobs.values() if j.state == "waiting" and j.spec.max_wait_ms}
    if limited != state.derived.wait_limited:
        yield f"jobs with a maximum wait {sorted(state.derived.wait_limited)} differ from {sorted(limited)}"


def dependencies_are_alive(state: State) -> Iterable[str]:
    """Nobody waits for a job that has ended, or for itself, or for a later one."""
    for job in state.jobs.values():
        for dependency in job.unmet:
            if dependency not in state.jobs:
                yield f"job {job.id} waits for job {dependency}, which is gone"
            if dependency >= job.id:
                yield f"job {job.id} waits for the later job {dependency}"
            if job.id not in state.derived.dependants.get(dependency, []):
                yield f"job {dependency} does not know that job {job.id} waits for it"
    for dependency, dependants in state.derived.dependants.items():
        for job_id in dependants:
            dependant = state.jobs.get(job_id)
            if dependant is None or dependency not in dependant.unmet:
                yield f"job {dependency} believes that job {job_id} waits for it"


def attempts_fit_states(state: State) -> Iterable[str]:
    """A waiting job holds nothing; any other live job has exactly its newest attempt, whole."""
    for job in state.jobs.values():
        if job.state in FINAL_STATES:
            yield f"job {job.id} is {job.state} but still live"
        elif (job.attempt is None) != (job.state == "waiting"):
            yield f"job {job.id} is {job.state} with attempt {job.attempt}"
        elif job.attempt is not None:
            attempt = job.attempt
            if attempt.number != job.last_attempt:
                yield f"job {job.id} runs attempt {attempt.number}, newest is {job.last_attempt}"
            if len(attempt.replicas) != job.spec.ask.replicas:
                yield f"job {job.id} has {len(attempt.replicas)} of {job.spec.ask.replicas} replicas"
            if not any(r.holds for r in attempt.replicas):
                yield f"job {job.id}: attempt {attempt.number} holds nothing and has not ended"
            if (attempt.stop is not None) != (job.state == "stopping"):
                yield f"job {job.id} is {job.state} with stop order {attempt.stop}"


def holders_live_on_their_node(state: State) -> Iterable[str]:
    """No place is held on a lost node or on a former life of a node."""
    for job, replica in _held(state):
        node = state.nodes.get(replica.place.node)
        if node is None or node.state == "lost" or node.incarnation != replica.place.incarnation:
            yield f"job {job.id} holds a place on {replica.place.node}, which is lost or reborn"


def ports_are_unique(state: State) -> Iterable[str]:
    """No two live attempts have the same rendezvous port of one node."""
    seen: dict[tuple[NodeName, int], JobId] = {}
    for job in state.jobs.values():
        if job.attempt is not None and job.attempt.port:
            key = (job.attempt.replicas[0].place.node, job.attempt.port)
            if key in seen:
                yield f"port {key} given to jobs {seen[key]} and {job.id}"
            seen[key] = job.id
    if set(seen) != state.derived.ports:
        yield f"kept ports {sorted(state.derived.ports)} differ from {sorted(seen)}"


def preemptions_are_lawful(state: State) -> Iterable[str]:
    """A victim is preemptible and of lower priority than its beneficiary."""
    for job in state.jobs.values():
        stop = job.attempt.stop if job.attempt else None
        if stop is None or stop.reason != "preempted":
            continue
        if not job.spec.preemptible:
            yield f"job {job.id} is preempted but not preemptible"
        beneficiary = state.jobs.get(stop.beneficiary) if stop.beneficiary is not None else None
        if beneficiary is not None and beneficiary.spec.priority <= job.spec.priority:
            yield f"job {job.id} is preempted for job {beneficiary.id} of no higher priority"


def actives_match(state: State) -> Iterable[str]:
    """The caches of active and stopping jobs are what the jobs say."""
    active = {j.id for j in state.jobs.values() if j.attempt is not None}
    if active != state.derived.active:
        yield f"active {sorted(state.derived.active)} differs from {sorted(active)}"
    stopping = {j.id: j.attempt.stop.beneficiary for j in state.jobs.values() if j.attempt and j.attempt.stop}
    if stopping != state.derived.stopping:
        yield f"stopping {state.derived.stopping} differs from {stopping}"
    beneficiaries = {j.id for j in state.jobs.values() if j.room_made}
    if beneficiaries != state.derived.beneficiaries:
        yield f"beneficiaries {sorted(state.derived.beneficiaries)} differ from {sorted(beneficiaries)}"


INVARIANTS: tuple[Callable[[State], Iterable[str]], ...] = (
    no_device_beyond_capacity,
    no_host_beyond_capacity,
    loads_match_jobs,
    waiting_jobs_are_indexed,
    dependencies_are_alive,
    attempts_fit_states,
    holders_live_on_their_node,
    ports_are_unique,
    preemptions_are_lawful,
    actives_match,
)


def violations(state: State) -> list[Violation]:
    """Return every promise that does not hold in `state`."""
    return [Violation(check.__name__, detail) for check in INVARIANTS for detail in check(state)]


def require(state: State) -> None:
    """Raise BrokenInvariant, naming the promises, unless all of them hold."""
    found = violations(state)
    if found:
        raise BrokenInvariant("; ".join(f"{v.promise}: {v.detail}" for v in found[:5]))
