"""Orders to nodes: derived from the state, so that a lost order is simply derived again."""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.cycle.verify import verify
from penstock.core.lifecycle.health import nodes_to_check
from penstock.core.lifecycle.images import allowed_folders, allowed_runtimes
from penstock.core.lifecycle.ports import free_port, free_ports
from penstock.core.lifecycle.reports import current, foreign
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.orders import (
    Acknowledge,
    Addressed,
    ChangeBatch,
    CheckNode,
    FreezeReplica,
    Inputs,
    LimitPower,
    Order,
    SaveReplica,
    StartReplica,
    StopReplica,
    ThawReplica,
)
from penstock.core.messages.reports import NodeReport, ReplicaKey, ReplicaSeen
from penstock.core.model.batching import REBALANCE
from penstock.core.model.cluster import Settings
from penstock.core.model.containers import ImageAsk
from penstock.core.model.events import (
    AttemptAllocated,
    AttemptResumed,
    AttemptStopRequested,
    BatchChosen,
    Record,
)
from penstock.core.model.ids import JobId, Rank, UserName
from penstock.core.model.inputs import words_of
from penstock.core.model.jobs import Attempt, Job, JobSpec, Replica, ReplicaPlace, StopReason
from penstock.core.model.plan import Plan, Preemption
from penstock.core.state.replicas import named_ports
from penstock.core.state.state import State

_STOP_REASON: dict[str, StopReason] = {
    "shrink": "resized",
    "grow": "resized",
    "idle": "resized",
    REBALANCE: "resized",
    "defrag": "moved",
    "elsewhere": "moved",
    "model": "moved",
}


def stop_reason(preemption: Preemption) -> StopReason:
    """Return the stop reason of a victim of a plan's preemption."""
    if preemption.rule == REBALANCE and all(room.job_id != preemption.victim for room in preemption.rooms):
        return "preempted"  # it waits until a later round has room for it
    return "suspended" if preemption.suspend else _STOP_REASON.get(preemption.rule, "preempted")


def orders_of(record: Record, state: State) -> list[Addressed]:
    """Return the orders that a fresh record calls for, given the state after it."""
    event = record.event
    if isinstance(event, AttemptAllocated):
        job = state.jobs.get(event.job_id)
        if job is None or job.attempt is None or job.attempt.number != event.attempt or event.scheduler:
            return []
        return [(r.place.node, start_order(state, job, job.attempt, r)) for r in job.attempt.replicas]
    if isinstance(event, AttemptStopRequested | AttemptResumed):
        job = state.jobs.get(event.job_id)
        if job is None or job.attempt is None or job.attempt.number != event.attempt:
            return []
        held = (r for r in job.attempt.replicas if r.holds)
        return [(r.place.node, _change_order(job, ReplicaKey(job.id, event.attempt, r.rank))) for r in held]
    if isinstance(event, BatchChosen):
        job = state.jobs.get(event.job_id)
        if job is None or job.attempt is None or job.attempt.number != event.attempt:
            return []
        return [(job.attempt.replicas[0].place.node, order) for order in _batch(job, Rank(0))]
    return []


def _change_order(job: Job, key: ReplicaKey) -> Order:
    """Return the order for a started replica of the job as it stands."""
    assert job.attempt is not None
    stop = job.attempt.stop
    if stop is None:
        return FreezeReplica(key, job.attempt.suspensions) if job.attempt.suspended_ms else ThawReplica(key)
    if stop.reason == "suspended":
        return FreezeReplica(key, job.attempt.suspensions)
    return StopReplica(key, _grace(job, key.rank), stop.reason)


def _batch(job: Job, rank: Rank) -> list[Order]:
    """Return the order that tells a program its batch: the first rank tells the others."""
    attempt = job.attempt
    if attempt is None or attempt.batch is None or attempt.stop is not None or rank != 0:
        return []
    told = attempt.replicas[rank].state == "started"
    return [ChangeBatch(ReplicaKey(job.id, attempt.number, rank), attempt.batch)] if told else []


def check_orders(state: State, now_ms: int) -> list[Addressed]:
    """Return the orders to check nodes that were closed for their failures, or that programs claim to fail."""
    return [(name, CheckNode(state.config.settings.node_check)) for name in nodes_to_check(state, now_ms)]


def _grace(job: Job, rank: Rank) -> int:
    """Return how long a replica of a stopping attempt may take.

    A rank that the others wait for in vain is killed at once: they notice that, and save what they still hold.
    """
    assert job.attempt is not None
    assert job.attempt.stop is not None
    stop = job.attempt.stop
    return 0 if stop.reason == "hung" and rank in job.progress.hang_ranks else stop.grace_ms


def save_orders(state: State, job_id: JobId) -> list[Addressed]:
    """Return the orders that ask every running replica of a job to save and carry on."""
    job = state.jobs.get(job_id)
    if job is None or job.attempt is None:
        return []
    number = job.attempt.number
    started = [r for r in job.attempt.replicas if r.state == "started"]
    return [(r.place.node, SaveReplica(ReplicaKey(job_id, number, r.rank))) for r in started]


def start_order(state: State, job: Job, attempt: Attempt, replica: Replica) -> StartReplica:
    """Return everything the node needs to start one replica, rendezvous included."""
    spec = job.spec
    order = list(dict.fromkeys(r.place.node for r in attempt.replicas))
    same_node = [r.rank for r in attempt.replicas if r.place.node == replica.place.node]
    master = state.nodes[attempt.replicas[0].place.node].spec
    owner = UserName("") if job.delegated else job.user
    found = {variable: state.secrets.of(spec.tenant, owner, name) for variable, name in spec.secrets}
    given = {variable: secret for variable, secret in found.items() if secret is not None}
    settings = state.config.settings
    missing = [name for variable, name in spec.secrets if variable not in given]
    return StartReplica(
        key=ReplicaKey(job.id, attempt.number, replica.rank),
        incarnation=replica.place.incarnation,
        command=spec.command,
        ask=job.ask.each_of(replica.rank),
        devices=replica.place.devices,
        env=spec.env + port_variables(job, attempt, replica.rank),
        world_size=len(attempt.replicas),
        local_rank=same_node.index(replica.rank),
        local_world_size=len(same_node),
        node_rank=order.index(replica.place.node),
        node_names=tuple(order),
        master_address=master.address,
        master_port=attempt.port,
        workdir=spec.workdir,
        name=spec.name,
        checkpoint=spec.checkpoint,
        grace_ms=spec.grace_ms,
        array_id=job.array_id,
        array_index=job.array_index,
        slots=replica.place.slots,
        secrets=tuple(given.items()),
        account=job.account,
        mark=state.identity.mark(job),
        unmarked=state.identity.may_be_unmarked(job),
        refused=_refused(job, attempt, replica, missing),
        workload_class=spec.workload_class,
        snapshot=spec.snapshot,
        runtime=spec.runtime,
        object_store_bytes=spec.object_store_bytes,
        inputs=_inputs(state, spec),
        python=spec.python,
        setup=spec.setup,
        preparing_limit_ms=settings.preparing_limit_ms if _prepared(spec) else 0,
        environments_kept_gib=settings.environments_kept_gib if _prepared(spec) else 0,
        image=_image(settings, spec.image),
        mps=_runs_through_mps(state, job, replica),
        batch=attempt.batch,
    )


def _image(settings: Settings, image: ImageAsk | None) -> ImageAsk | None:
    if image is None:
        return None
    return replace(image, among=allowed_runtimes(settings), folders=allowed_folders(settings))


def _prepared(spec: JobSpec) -> bool:
    """Return whether something is made ready for a job on its nodes before its programs start."""
    return bool(spec.snapshot or spec.inputs or spec.image or spec.python or spec.setup)


PORT_VARIABLE = "PENSTOCK_PORT_"


def port_variables(job: Job, attempt: Attempt, rank: Rank) -> tuple[tuple[str, str], ...]:
    """Return the variables that tell a replica its named ports."""
    given = named_ports(job.spec, attempt, rank)
    return tuple((PORT_VARIABLE + name.upper(), str(port)) for name, port in given if port)


def _refused(job: Job, attempt: Attempt, replica: Replica, missing: Sequence[str]) -> str:
    """Return why a replica cannot run, or ''."""
    if missing:
        return f"there is no secret {', '.join(missing)} any more"
    without = [name for name, port in named_ports(job.spec, attempt, replica.rank) if not port]
    return f"node {replica.place.node} has no port left for {', '.join(without)}" if without else ""


def _inputs(state: State, spec: JobSpec) -> Inputs | None:
    if not spec.inputs:
        return None
    settings = state.config.settings
    kept = settings.inputs_kept_bytes, settings.inputs_kept_ms
    return Inputs(spec.inputs, settings.input_max_bytes, *kept, words_of(settings.input_hosts))


def _runs_through_mps(state: State, job: Job, replica: Replica) -> bool:
    """Return whether a replica has a fraction of a device in a pool that gives these out through MPS.

    One that joins another job on its device has not: that one runs already, without MPS.
    """
    wanted, node = job.ask.each_of(replica.rank).devices, state.nodes[replica.place.node]
    sharing = state.config.sharing.get(node.spec.pool)
    part = wanted is not None and not wanted.whole and not wanted.profile
    return (
        part
        and (job.attempt is None or job.attempt.pairing is None)
        and sharing is not None
        and sharing.virtualization == "mps"
    )


def reconcile(state: State, report: NodeReport) -> list[Order]:
    """Return the orders that bring a node to its desired state.

    Compares one report with the state after it was applied: replicas that should run and are not known to the
    node are started (again), stops that did not arrive are repeated, foreign replicas are killed, and exits
    that are in the log are acknowledged.
    """
    orders: list[Order] = []
    for seen in report.replicas:
        if seen.state == "exited":
            if current(state, report.node, seen.key) is None:
                orders.append(Acknowledge(seen.key))
            continue
        found = current(state, report.node, seen.key)
        if found is not None:
            orders += _differing(found[0], seen)
            orders += _batch(found[0], seen.key.rank) if report.inventory else []
    orders += [StopReplica(seen.key, 0, "not current") for seen in foreign(state, report)]
    if report.inventory:
        orders += _missing_starts(state, report)
        orders += _power_limit(state, report)
    return orders


def _power_limit(state: State, report: NodeReport) -> list[Order]:
    """Return the order that brings the limit of a node's devices to that of its pool, if it differs."""
    node = state.nodes.get(report.node)
    if node is None or report.power_limit_mw is None:
        return []
    wanted_mw = state.config.device_power_limits.get(node.spec.pool, 0)
    return [LimitPower(wanted_mw)] if wanted_mw != report.power_limit_mw else []


def _differing(job: Job, seen: ReplicaSeen) -> list[Order]:
    """Return the order that brings a living replica to its desired state, if it differs."""
    attempt = job.attempt
    assert attempt is not None
    stopping = attempt.stop is not None and attempt.stop.reason != "suspended"
    freezing = not stopping and (attempt.stop is not None or attempt.suspended_ms > 0)
    wanted = "stopping" if stopping else "frozen" if freezing else "running"
    late = wanted == "frozen" == seen.state and seen.suspension != attempt.suspensions
    if seen.state in (wanted, "starting", "stopping") and not (stopping and seen.state == "starting") and not late:
        return []
    return [_change_order(job, seen.key)]


def _missing_starts(state: State, report: NodeReport) -> list[Order]:
    node = state.nodes.get(report.node)
    if node is None or node.incarnation != report.incarnation or node.state == "lost":
        return []
    listed = {seen.key for seen in report.replicas}
    orders: list[Order] = []
    for job_id, rank in sorted(state.indexes.load(report.node).replicas):
        job = state.jobs[job_id]
        attempt = job.attempt
        if attempt is None or attempt.replicas[rank].state != "allocated" or attempt.scheduler:
            continue
        key = ReplicaKey(job_id, attempt.number, rank)
        if key in listed:
            continue
        if attempt.stop is None:
            orders.append(start_order(state, job, attempt, attempt.replicas[rank]))
        else:
            orders.append(StopReplica(key, 0, attempt.stop.reason))
    return orders


def apply_plan(tx: Transaction, proposed: Plan, *, fresh: bool = False) -> Plan:
    """Commit the part of a plan that still holds: allocations first, then the preemptions.

    Args:
        fresh: the plan was made on the very state that it is committed to, so all of it holds.
    """
    checked = proposed if fresh else verify(proposed, tx.state)
    for start in checked.starts:
        port = free_port(tx.state, start.places[0].node)
        names = tx.state.jobs[start.job_id].spec.ports
        tx.emit(
            AttemptAllocated(
                start.job_id,
                start.attempt,
                start.places,
                port,
                rule=start.rule,
                waited_ms=start.waited_ms,
                choice=start.choice,
                basis=checked.seq,
                decided_ms=checked.now_ms,
                ports=free_ports(tx.state, start.places, len(names), port),
                batch=start.batch,
            )
        )
    for change in checked.batches:
        tx.emit(BatchChosen(change.job_id, change.attempt, change.batch, checked.seq, checked.now_ms))
    for resume in checked.resumes:
        tx.emit(AttemptResumed(resume.job_id, resume.attempt, checked.seq, checked.now_ms))
    rooms = dict(checked.held)
    for preemption in checked.preemptions:
        _ask_to_leave(tx, preemption, checked, rooms.pop(preemption.beneficiary, ()))
    return checked


def _ask_to_leave(tx: Transaction, preemption: Preemption, plan: Plan, room: tuple[ReplicaPlace, ...]) -> None:
    tx.emit(
        AttemptStopRequested(
            preemption.victim,
            preemption.attempt,
            stop_reason(preemption),
            tx.state.jobs[preemption.victim].spec.grace_ms,
            preemption.beneficiary,
            preemption.cost,
            preemption.rule,
            plan.seq,
            plan.now_ms,
            room,
            preemption.rooms,
        )
    )
