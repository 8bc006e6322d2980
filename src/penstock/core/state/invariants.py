"""Every promise about the state as a function `State -> violations`; tests, simulator and debug server use this list.

Each function states the good case. All of them recount from jobs and nodes, never from the caches they check.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from penstock.core.model.dependencies import DependencyKind, JobRun
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import FINAL_STATES, Attempt, Job, Replica
from penstock.core.model.resources import OVERSUBSCRIPTION_MAX, RESOURCE_FIELDS, WHOLE_DEVICE_MILLI, Resources
from penstock.core.order.queues import holder_text
from penstock.core.order.ranks import request_class
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.place import mig
from penstock.core.place.capacity import NodeCapacity, shape_of, unheld
from penstock.core.state.arrays import ArrayTurns
from penstock.core.state.charges import HeldAlike, alike_of
from penstock.core.state.closed_devices import closed_devices_are_kept_back
from penstock.core.state.dependants import EXACT_MAX
from penstock.core.state.idleness import is_marked
from penstock.core.state.live_jobs import LiveJobs
from penstock.core.state.live_runs import runs_match_jobs
from penstock.core.state.replicas import ports_of
from penstock.core.state.sizes_held import batches_are_within_range, rounds_restart_seldom
from penstock.core.state.state import State
from penstock.core.state.suspension import TOO_LONG
from penstock.core.state.usage import charge_of, expected_end_ms


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
    whole: dict[tuple[NodeName, int], JobId] = {}
    parts: dict[tuple[NodeName, int], tuple[int, int]] = {}
    strict: set[tuple[NodeName, int]] = set()
    """Held by fractions that do not allow more to be promised than there is."""
    for job, replica in _held(state):
        known = state.nodes.get(replica.place.node)
        devices = known.spec.devices if known else ()
        wanted = job.ask.each_of(replica.rank).devices
        for index in replica.place.devices:
            place = (replica.place.node, index)
            if index >= len(devices):
                yield f"job {job.id} holds device {place}, which does not exist"
                continue
            if place in whole or (place in parts and wanted is not None and wanted.whole):
                yield f"device {place} is held by jobs {whole.get(place, 'with parts of it')} and {job.id}"
            if wanted is None or wanted.whole:
                whole[place] = job.id
                continue
            milli, memory = parts.get(place, (0, 0))
            parts[place] = (milli + wanted.milli, memory + wanted.memory_of(devices[index]))
            if not wanted.oversubscribe:
                strict.add(place)
            most = devices[index].memory_bytes * (1 if place in strict else OVERSUBSCRIPTION_MAX)
            if not wanted.profile and (parts[place][0] > WHOLE_DEVICE_MILLI or parts[place][1] > most):
                yield f"device {place} is given out beyond its capacity: {parts[place]}"


def mig_instances_are_legal(state: State) -> Iterable[str]:
    """The MIG instances on each device are at legal positions."""
    for name, free in state.indexes.free.items():
        for index, instances in free.mig:
            device = free.shape.devices[index]
            geometry = mig.geometry_of(device.model, device.memory_bytes)
            wrong = "it offers none" if geometry is None else mig.illegal(geometry, instances)
            if wrong:
                yield f"device {index} of {name} with instances {instances}: {wrong}"


def no_host_beyond_capacity(state: State) -> Iterable[str]:
    """The host resources that replicas hold on a node add up to no more than its capacity."""
    held: dict[NodeName, Resources] = {}
    for job, replica in _held(state):
        node = replica.place.node
        held[node] = held.get(node, Resources()) + job.ask.each_of(replica.rank).host
    for node, total in held.items():
        capacity = state.nodes[node].spec.capacity
        for field in RESOURCE_FIELDS:
            if getattr(total, field) > getattr(capacity, field):
                yield f"{node}: {field} {getattr(total, field)} held of {getattr(capacity, field)}"
        for name, number in total.extended:
            if number > capacity.of(name):
                yield f"{node}: {name} {number} held of {capacity.of(name)}"


def loads_match_jobs(state: State) -> Iterable[str]:
    """The load and the free capacity of each node match its replicas."""
    replicas: dict[NodeName, set[tuple[JobId, int]]] = {}
    devices: dict[NodeName, dict[int, list[JobId]]] = {}
    pools = state.config.sharing
    free: dict[NodeName, NodeCapacity] = {
        name: unheld(node, shape_of(node, pools)) for name, node in sorted(state.nodes.items())
    }
    for job, replica in _held(state):
        place = replica.place
        replicas.setdefault(place.node, set()).add((job.id, replica.rank))
        known = state.nodes.get(place.node)
        if known is None or any(index >= len(known.spec.devices) for index in place.devices):
            continue  # that is another promise
        free[place.node] = free[place.node].take(job.ask.each_of(replica.rank), place.devices, place.slots)
        for index in place.devices:
            devices.setdefault(place.node, {}).setdefault(index, []).append(job.id)
    for name, load in state.indexes.loads.items():
        if load.replicas != replicas.pop(name, set()):
            yield f"load of {name} differs from its replicas"
        held = {index: sorted(jobs) for index, jobs in load.devices.items()}
        if held != {index: sorted(jobs) for index, jobs in devices.get(name, {}).items()}:
            yield f"devices held on {name} {held} differ from {devices.get(name, {})}"
    for name in replicas:
        yield f"no load is kept for {name}"
    if state.indexes.free != free or list(state.indexes.free) != list(free):
        yield f"what is free {state.indexes.free} differs from {free}"
    if dict(state.indexes.nodes) != state.nodes or list(state.indexes.nodes) != sorted(state.nodes):
        yield "the ordered nodes differ from the nodes"


def use_matches_jobs(state: State) -> Iterable[str]:
    """The use of each queue by each tenant is the sum of its attempts' charges."""
    found: dict[tuple[str, str], UsedAmounts] = {}
    ends: list[tuple[int, JobId]] = []
    unending: list[tuple[int, JobId]] = []
    evictable: dict[tuple[str, int], int] = {}
    held: Counter[HeldAlike] = Counter()
    for job in state.jobs.values():
        if job.attempt is None:
            continue
        key = (job.spec.queue, job.spec.tenant)
        charge = charge_of(job, state.nodes)
        held[alike_of(job, charge)] += 1
        charge = charge.of_pool(job.placed.pool, state.config.counted_pools)
        found[key] = found.get(key, UsedAmounts()).plus(charge)
        if job.spec.preemptible:
            kind = (job.spec.ask.pool, job.spec.priority)
            evictable[kind] = evictable.get(kind, 0) + 1
        if expected_end_ms(job):
            ends.append((expected_end_ms(job), job.id))
        elif not job.attempt.suspended_ms:
            unending.append((job.attempt.allocated_ms, job.id))
    kept = {key: share.now for key, share in state.indexes.usage.items() if share.now != UsedAmounts()}
    if kept != found:
        yield f"use by queue {kept} differs from {found}"
    elif dict(state.indexes.charges.alike) != held:
        yield f"numbers of what attempts hold {state.indexes.charges.alike} differ from {held}"
    if list(state.indexes.ends) != sorted(ends):
        yield f"expected ends {list(state.indexes.ends)} differ from {sorted(ends)}"
    if list(state.indexes.unending) != sorted(unending):
        yield f"attempts of unknown length {list(state.indexes.unending)} differ from {sorted(unending)}"
    elastic = {j.id for j in state.jobs.values() if j.attempt is not None and j.spec.adapts}
    if state.indexes.elastic != elastic:
        yield f"elastic attempts {sorted(state.indexes.elastic)} differ from {sorted(elastic)}"
    shareable = {j.id for j in state.jobs.values() if j.attempt is not None and j.spec.shareable}
    if state.indexes.shareable != shareable:
        yield f"attempts that may share {sorted(state.indexes.shareable)} differ from {sorted(shareable)}"
    suspended = {j.id for j in state.jobs.values() if j.attempt is not None and j.attempt.suspended_ms}
    if state.indexes.suspended != suspended:
        yield f"suspended attempts {sorted(state.indexes.suspended)} differ from {sorted(suspended)}"
    idle = {j.id for j in state.jobs.values() if is_marked(j)}
    if state.indexes.idle != idle:
        yield f"idle attempts {sorted(state.indexes.idle)} differ from {sorted(idle)}"
    if state.indexes.evictable != evictable:
        yield f"counts of preemptible attempts {state.indexes.evictable} differ from {evictable}"


def no_queue_beyond_its_maximum(state: State) -> Iterable[str]:
    """No queue uses more than its maximum, unless that was lowered, or the jobs were there before it."""
    if not state.config_since_empty:
        return
    tree = state.queue_tree()
    moving = tree.power_columns if state.indexes.powers.means() else frozenset()  # what is expected changes with these
    for name, branch in (*tree.branches.items(), *((cap.name, cap) for cap in tree.tenant_limits.values())):
        for column, limit in branch.limits:
            if column not in moving and branch.used[column] > limit:
                yield f"{holder_text(name)} uses {branch.used[column]} of {tree.resources[column]}, maximum {limit}"


def live_jobs_are_indexed(state: State) -> Iterable[str]:
    """The indexes of live jobs by tenant and state, and the counts of each queue, match the jobs."""
    recounted = LiveJobs()
    for job in state.jobs.values():
        recounted[job.id] = job
    if state.jobs.indexes() != recounted.indexes():
        yield f"indexes of live jobs {state.jobs.indexes()} differ from {recounted.indexes()}"


def waiting_jobs_are_indexed(state: State) -> Iterable[str]:
    """Each waiting job is in exactly the index that its dependencies call for, once and in submit order."""
    expected: dict[int, list[Job]] = {}
    for job in sorted(state.jobs.values(), key=lambda j: j.id):
        if job.state == "waiting" and job.ready:
            expected.setdefault(job.class_id, []).append(job)
            if state.indexes.class_ids.get(request_class(job, state.config)) != job.class_id:
                yield f"job {job.id} is in class {job.class_id}, which is not its own"
    found = {class_id: pending.jobs for class_id, pending in state.indexes.pending.items()}
    if expected != found:
        yield f"pending index {found} differs from waiting jobs {expected}"
    of_tenants: dict[str, set[int]] = {}
    for class_id, jobs in expected.items():
        of_tenants.setdefault(jobs[0].spec.tenant, set()).add(class_id)
    if of_tenants != state.indexes.pending.by_tenant():
        yield f"pending classes by tenant {state.indexes.pending.by_tenant()} differ from {of_tenants}"
    counts: dict[str, int] = {}
    for job in state.jobs.values():
        counts[job.spec.queue] = counts.get(job.spec.queue, 0) + (job.state == "waiting")
    kept = {queue: count for queue, count in state.indexes.waiting_by_queue.items() if count}
    if kept != {queue: count for queue, count in counts.items() if count}:
        yield f"waiting jobs by queue {kept} differ from {counts}"
    limited = {j.id for j in state.jobs.values() if j.state == "waiting" and j.spec.max_wait_ms}
    if limited != state.indexes.wait_limited:
        yield f"jobs with a maximum wait {sorted(state.indexes.wait_limited)} differ from {sorted(limited)}"
    timed = {j.id for j in state.jobs.values() if j.attempt is not None and j.spec.time_limit_ms}
    if timed != state.indexes.time_limited:
        yield f"attempts with a time limit {sorted(state.indexes.time_limited)} differ from {sorted(timed)}"
    evicted = {name for name, node in state.nodes.items() if node.draining and node.evict_at_ms > 0}
    if evicted != state.indexes.evicted_later:
        yield f"nodes with an evict time {sorted(state.indexes.evicted_later)} differ from {sorted(evicted)}"
    leaving = {name for name, node in state.nodes.items() if node.leaves_ms > 0 and node.state != "lost"}
    if leaving != state.indexes.leaving:
        yield f"nodes that will go {sorted(state.indexes.leaving)} differ from {sorted(leaving)}"


def arrays_keep_their_width(state: State) -> Iterable[str]:
    """No more members of an array have their turn than it allows, and none waits for a turn that is free."""
    expected = ArrayTurns()
    expected.rebuild(state.jobs[job_id] for job_id in sorted(state.jobs))
    known = state.indexes.arrays
    if (known.in_turn, known.waiting) != (expected.in_turn, expected.waiting):
        yield f"turns of arrays {known.in_turn}, {known.waiting} differ from {expected.in_turn}, {expected.waiting}"
    for job in state.jobs.values():
        if job.spec.array_parallel and job.array_id is not None:
            having = expected.in_turn.get(job.array_id, 0)
            if having > job.spec.array_parallel:
                yield f"{having} members of array {job.array_id} have their turn, it allows {job.spec.array_parallel}"
            if job.waits_turn and (having < job.spec.array_parallel or job.state != "waiting"):
                yield f"job {job.id} waits for its turn in array {job.array_id}, where {having} have theirs"


def dependencies_are_alive(state: State) -> Iterable[str]:
    """No job waits for an ended job, for itself, or for a later one; and the index of dependants matches the jobs."""
    left: dict[JobRun, int] = {}
    waiting: dict[tuple[JobRun, DependencyKind], list[JobId]] = {}
    for job in sorted(state.jobs.values(), key=lambda j: j.id):
        for one in job.spec.after:
            if one.run not in left:
                left[one.run] = sum(job_id in state.jobs for job_id in one.jobs)
            if left[one.run] and one.jobs.stop > job.id:
                yield f"job {job.id} waits for the later job {one.jobs.stop - 1}"
        found = dict.fromkeys((one.run, one.kind) for one in job.spec.after if left[one.run])
        firsts = tuple(sorted({run[0] for run, _ in found}))
        ended = set(job.unmet).difference(firsts)
        named = {one.job_id for one in job.spec.after}.issuperset(ended) and len(job.unmet) > EXACT_MAX and firsts
        if not set(firsts) <= set(job.unmet) or (ended and not named):
            yield f"job {job.id} waits for {job.unmet}, and of what it depends on {firsts} have not ended"
        if state.indexes.dependants.open.get(job.id, 0) != len({run for run, _ in found}):
            yield f"job {job.id} waits for {len(found)} runs of jobs, counted are others"
        for key in found:
            waiting.setdefault(key, []).append(job.id)
    dependants = state.indexes.dependants
    if dependants.each(state.jobs) != waiting:
        yield f"dependants {dependants.each(state.jobs)} differ from {waiting}"
    awaited = {run: left[run] for run, _ in waiting}
    if {run: one.left for run, one in dependants.awaited.items()} != awaited:
        yield f"awaited jobs {dependants.awaited} differ from {awaited}"
    runs: dict[JobId, set[JobRun]] = {}
    for first, count in awaited:
        for job_id in map(JobId, range(first, first + count)):
            if job_id in state.jobs:
                runs.setdefault(job_id, set()).add((first, count))
    if dependants.runs != runs:
        yield f"the runs that jobs belong to {dependants.runs} differ from {runs}"


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
            if len(attempt.replicas) != job.ask.replica_total:
                yield f"job {job.id} has {len(attempt.replicas)} of {job.ask.replica_total} replicas"
            if not any(r.holds for r in attempt.replicas):
                yield f"job {job.id}: attempt {attempt.number} holds nothing and has not ended"
            if (attempt.stop is not None) != (job.state == "stopping"):
                yield f"job {job.id} is {job.state} with stop order {attempt.stop}"
            if job.state == "suspended" and not (attempt.suspended_ms and all_thawed_are_gone(attempt)):
                yield f"job {job.id} is suspended, but not all of it is frozen"
            if job.state == "running" and attempt.suspended_ms:
                yield f"job {job.id} is running though it was suspended"


def all_thawed_are_gone(attempt: Attempt) -> bool:
    return all(replica.frozen or not replica.holds for replica in attempt.replicas)


def holders_live_on_their_node(state: State) -> Iterable[str]:
    """No place is held on a lost node or on a former incarnation of a node."""
    for job, replica in _held(state):
        node = state.nodes.get(replica.place.node)
        if node is None or node.state == "lost" or node.incarnation != replica.place.incarnation:
            yield f"job {job.id} holds a place on {replica.place.node}, which is lost or reborn"


def ports_are_unique(state: State) -> Iterable[str]:
    """No two live attempts have the same port of one node, and none has one twice."""
    seen: dict[tuple[NodeName, int], JobId] = {}
    for job in state.jobs.values():
        for key in ports_of(job.attempt) if job.attempt is not None else ():
            if key in seen:
                yield f"port {key} given to jobs {seen[key]} and {job.id}"
            seen[key] = job.id
    if set(seen) != state.indexes.ports:
        yield f"kept ports {sorted(state.indexes.ports)} differ from {sorted(seen)}"


def preemptions_are_lawful(state: State) -> Iterable[str]:
    """A victim is preemptible, and a rule gives its beneficiary the right to preempt it."""
    for job in state.jobs.values():
        stop = job.attempt.stop if job.attempt else None
        if stop is None or stop.reason not in ("preempted", "suspended") or stop.rule == TOO_LONG:
            continue
        if not job.spec.preemptible:
            yield f"job {job.id} is preempted but not preemptible"
        beneficiary = state.jobs.get(stop.beneficiary) if stop.beneficiary is not None else None
        if beneficiary is None or beneficiary.edited_seq > stop.seq:
            continue
        own, other = job.spec.priority, beneficiary.spec.priority
        if stop.rule in ("", "lower_priority") and other <= own:
            yield f"job {job.id} is preempted for job {stop.beneficiary} of no higher priority"
        if stop.rule == "held_idle" and other < own:
            yield f"job {job.id} is idle and makes room for job {stop.beneficiary} of lower priority"


def actives_match(state: State) -> Iterable[str]:
    """The caches of active and stopping jobs match the jobs."""
    active = {j.id: j for j in state.jobs.values() if j.attempt is not None}
    if active != state.indexes.active:
        yield f"active {sorted(state.indexes.active)} differs from {sorted(active)}"
    stopping = {j.id: j.attempt.stop.beneficiary for j in state.jobs.values() if j.attempt and j.attempt.stop}
    if stopping != state.indexes.stopping:
        yield f"stopping {state.indexes.stopping} differs from {stopping}"
    beneficiaries = {j.id for j in state.jobs.values() if j.room_made}
    if beneficiaries != state.indexes.beneficiaries:
        yield f"beneficiaries {sorted(state.indexes.beneficiaries)} differ from {sorted(beneficiaries)}"


def held_jobs_wait(state: State) -> Iterable[str]:
    """A held job waits, no room is made for it, and no cycle sees it."""
    for job in state.jobs.values():
        pending = state.indexes.pending.get(job.class_id) if job.hold is not None else None
        if job.hold is not None and (job.state != "waiting" or job.room_made):
            yield f"job {job.id} is held by {job.hold.by}, and it is {job.state}, room made: {job.room_made}"
        if pending is not None and any(one.id == job.id for one in pending.jobs):
            yield f"job {job.id} is held by {job.hold.by if job.hold else ''} and would be planned"


def ledger_adds_up(state: State) -> Iterable[str]:
    """All balances together are zero, and those of each tenant match its account."""
    ledger = state.money.ledger
    if sum(ledger.values()):
        yield f"balances add up to {sum(ledger.values())}"
    for tenant, account in state.money.of.items():
        said = {"credit": -account.credit, "unbilled": account.unbilled, "owed": account.owed}
        found = {name: ledger.get(f"{name}:{tenant}", 0) for name in said}
        if found != said:
            yield f"the ledger has {found} for {tenant}, its account {said}"
        if any(lot.left < 0 for lot in account.lots) or any(left <= 0 for _, left in account.open):
            yield f"{tenant}: less than nothing is left of {account.lots} or owed on {account.open}"


def numbers_have_no_gaps(state: State) -> Iterable[str]:
    """Invoices and credit notes are numbered from 1, each kind separately."""
    counts: dict[str, int] = {}
    for head in state.money.invoices.values():
        counts[head.kind] = counts.get(head.kind, 0) + 1
        if not head.number.endswith(f"{counts[head.kind]:06d}"):
            yield f"{head.number} is number {counts[head.kind]} of its kind"
        if head.corrects and head.corrects not in state.money.invoices:
            yield f"{head.number} corrects {head.corrects}, which was never issued"


def suspended_tenants_leave(state: State) -> Iterable[str]:
    """Every attempt of a tenant that is held with its running jobs was asked to leave for good."""
    leaving = {tenant for tenant, hold in state.money.holds().items() if hold.suspend}
    for job in state.jobs.values() if leaving else ():
        stop = job.attempt.stop if job.attempt is not None else None
        if job.attempt is not None and job.spec.tenant in leaving and (stop is None or stop.reason == "suspended"):
            yield f"job {job.id} goes on though {job.spec.tenant} is held with all that it runs"


INVARIANTS: tuple[Callable[[State], Iterable[str]], ...] = (
    no_device_beyond_capacity,
    mig_instances_are_legal,
    no_host_beyond_capacity,
    loads_match_jobs,
    use_matches_jobs,
    no_queue_beyond_its_maximum,
    live_jobs_are_indexed,
    waiting_jobs_are_indexed,
    arrays_keep_their_width,
    dependencies_are_alive,
    attempts_fit_states,
    holders_live_on_their_node,
    ports_are_unique,
    preemptions_are_lawful,
    actives_match,
    held_jobs_wait,
    ledger_adds_up,
    numbers_have_no_gaps,
    suspended_tenants_leave,
    closed_devices_are_kept_back,
    runs_match_jobs,
    batches_are_within_range,
    rounds_restart_seldom,
)


def violations(state: State) -> list[Violation]:
    """Return every promise that does not hold in `state`."""
    return [Violation(check.__name__, detail) for check in INVARIANTS for detail in check(state)]


def require(state: State) -> None:
    """Raise BrokenInvariant, naming the promises, unless all of them hold."""
    found = violations(state)
    if found:
        raise BrokenInvariant("; ".join(f"{v.promise}: {v.detail}" for v in found[:5]))
