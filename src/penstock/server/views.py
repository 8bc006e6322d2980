"""From state to answers. Reads are made on the event loop while the control thread folds: each dictionary is copied
by one atomic call, each value in it is frozen."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock import __version__
from penstock.api import types as api
from penstock.core.explain import Explanation
from penstock.core.explain.line import RESERVATION
from penstock.core.model.access import Scope
from penstock.core.model.answers import Alert
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import Job, ReplicaPlace
from penstock.core.model.plan import Plan
from penstock.core.order.tree import QueueTree
from penstock.core.order.walk import JobOrder
from penstock.core.state.expected_end import told_end_ms
from penstock.core.state.snapshot import snapshot_beside
from penstock.core.state.state import State
from penstock.core.state.usage import expected_end_ms, whole_total
from penstock.core.status.defrag import Moves
from penstock.ports import FinishedJob
from penstock.server.http.auth import made_by_another
from penstock.server.reads import Reads, public_reason

NEXT_JOBS_SHOWN = 10
TOKEN_ALERTS_MAX = 20


def waiting_reason(job: Job, last: Plan | None, now_ms: int) -> str:
    """Return the short code of why a waiting job waits, as the last cycle saw its class."""
    if job.unmet:
        return "dependency"
    if job.not_before_ms > now_ms:
        return "backing_off"
    if last is None:
        return ""
    if job.id in last.held:
        return "making_room"
    verdict = last.verdicts.get(job.class_id)
    return ("no_fit" if verdict.code == "making_room" else verdict.code) if verdict else ""


def live_job(job: Job, *, full: bool = False, waits_for: str = "", reached: int = 0) -> api.JobView:
    """Return the view of a live job; `full` adds the command and each replica."""
    attempt, spec = job.attempt, job.spec
    nodes = list(dict.fromkeys(r.place.node for r in attempt.replicas)) if attempt else []
    replicas = [
        api.ReplicaView(r.rank, r.place.node, list(r.place.devices), r.state, r.exit.text() if r.exit else "")
        for r in (attempt.replicas if attempt and full else ())
    ]
    reason = attempt.stop.reason if attempt and attempt.stop else job.progress.hang or waits_for
    return api.JobView(
        id=job.id,
        name=spec.name,
        state=job.state,
        tenant=spec.tenant,
        queue=spec.queue,
        user=job.user,
        priority=spec.priority,
        preemptible=spec.preemptible,
        replicas=spec.ask.replicas,
        devices=spec.ask.device_total,
        submitted_ms=job.submitted_ms,
        started_ms=job.first_started_ms,
        finished_ms=0,
        attempt=job.last_attempt,
        preemptions=job.preemptions,
        nodes=[str(n) for n in nodes],
        reason=reason,
        step=max(job.progress.step, reached),
        checkpoint_step=job.progress.checkpoint_step,
        array_id=job.array_id,
        array_index=job.array_index,
        command=list(spec.command) if full else [],
        replica_list=replicas,
        ends_ms=_ends_ms(job),
    )


def _ends_ms(job: Job) -> int:
    """Return when the job is expected to end, 0 where nobody said more than that it is limited."""
    tells = told_end_ms(job) or job.predicted_ms or job.spec.estimated_duration_ms
    return expected_end_ms(job) if tells else 0


def finished_job(job: FinishedJob) -> api.JobView:
    return api.JobView(
        id=job.id,
        name=job.name,
        state=job.state,
        tenant=job.tenant,
        queue=job.queue,
        user=job.user,
        priority=job.priority,
        preemptible=False,
        replicas=job.replicas,
        devices=job.devices,
        submitted_ms=job.submitted_ms,
        started_ms=job.started_ms,
        finished_ms=job.finished_ms,
        attempt=job.attempts,
        preemptions=job.preemptions,
        nodes=list(job.nodes),
        reason=job.reason,
        step=job.step,
        checkpoint_step=0,
        exit_code=job.exit.code if job.exit else None,
        exit_signal=job.exit.signal if job.exit else None,
        array_id=job.array_id,
        array_index=job.array_index,
    )


def node_view(state: State, name: NodeName, *, connected: bool, scope: Scope) -> api.NodeView:
    """Return the view of a node; of jobs that the caller does not see only that they hold something."""
    node = state.nodes[name]
    load = state.derived.loads.get(name)
    lists = {index: tuple(holders) for index, holders in list(load.devices.items())} if load else {}
    held = {index: holders[0] for index, holders in lists.items() if holders}
    free = state.derived.free[name]
    capacity = node.spec.capacity

    def shown(job_id: JobId | None) -> JobId | None:
        job = state.jobs.get(job_id) if job_id is not None else None
        return job_id if scope.sees_all or (job is not None and scope.sees(job.spec.tenant)) else None

    return api.NodeView(
        name=name,
        state=node.state,
        draining=node.draining,
        drain_reason=node.drain_reason if scope.sees_all else public_reason(node.closed_by, node.drain_reason),
        virtual=node.spec.virtual,
        pool=node.spec.pool,
        cpu_milli=capacity.cpu_milli,
        cpu_held_milli=capacity.cpu_milli - free.cpu_milli,
        memory_bytes=capacity.memory_bytes,
        memory_held_bytes=capacity.memory_bytes - free.memory_bytes,
        devices=[
            api.DeviceView(
                d.index,
                d.vendor,
                d.model,
                d.memory_bytes,
                d.simulated,
                shown(held.get(d.index)),
                d.index in held,
            )
            for d in node.spec.devices
        ],
        jobs=sorted({job_id for job_id, _ in (list(load.replicas) if load else []) if shown(job_id) is not None}),
        connected=connected,
        shut_to=[str(tenant) for tenant in node.shut_to if scope.sees(tenant)],
    )


def cluster_view(state: State, server: str) -> api.ClusterView:
    nodes = list(state.nodes.values())
    loads = list(state.derived.loads.values())
    active = len(state.derived.active)
    return api.ClusterView(
        version=__version__,
        server=server,
        epoch=state.epoch,
        seq=state.seq,
        nodes_ready=sum(n.state == "ready" and not n.draining for n in nodes),
        nodes=len(nodes),
        devices=sum(len(n.spec.devices) for n in nodes if n.state != "lost"),
        devices_held=sum(len(load.devices) for load in loads),
        jobs_waiting=len(state.jobs) - active,
        jobs_active=active,
        jobs_succeeded=state.finished_ok,
        jobs_not_succeeded=state.finished_bad,
    )


def queue_views(state: State, now_ms: int, scope: Scope) -> list[api.QueueView]:
    """Return each queue with its numbers, and those of its next jobs that are seen, in the present order."""
    snapshot, jobs = snapshot_beside(state), state.jobs
    first: dict[str, list[api.JobRef]] = {}
    tree = QueueTree(snapshot.config).load(snapshot.usage, whole_total(snapshot.free), now_ms)
    order = JobOrder(snapshot.config, tree, snapshot.classes, now_ms, {})
    for _ in range(1000):
        cursor = order.peek()
        if cursor is None:
            break
        head = cursor.job
        refs = first.setdefault(head.spec.queue, [])
        if len(refs) < NEXT_JOBS_SHOWN and scope.sees(head.spec.tenant):
            refs.append(api.JobRef(head.id, head.spec.name))
        order.started(cursor)
    return [
        api.QueueView(
            name=queue.name,
            parent=queue.parent,
            policy=queue.policy,
            preemption=queue.preemption,
            waiting=jobs.in_queue(queue.name, "waiting"),
            blocked=jobs.in_queue(queue.name, "blocked"),
            active=jobs.in_queue(queue.name, "active"),
            next_jobs=first.get(queue.name, []),
        )
        for queue in state.config.queues
    ]


def job_refs(scope: Scope, reads: Reads, job_ids: tuple[JobId, ...]) -> list[api.JobRef]:
    """Return names and numbers of jobs that were accepted, wherever they are by now."""
    return [api.JobRef(job_id, _name_of(scope, reads, job_id)) for job_id in job_ids]


def _name_of(scope: Scope, reads: Reads, job_id: JobId) -> str:
    """Return the name of a job, or nothing where there is none that the caller sees."""
    job = reads.live_job(scope, job_id)
    ended = reads.finished_job(scope, job_id) if job is None else None
    return job.spec.name if job is not None else ended.name if ended is not None else ""


def explanation_for(found: Explanation, scope: Scope) -> Explanation:
    """Return an explanation without the names of reservations to whom does not see all tenants."""
    if scope.sees_all:
        return found
    constraints = (replace(c, where="") if c.where.startswith(RESERVATION) else c for c in found.constraints)
    edits = (edit for edit in found.edits if not edit.path.startswith("reservations."))
    return replace(found, constraints=tuple(constraints), edits=tuple(edits))


def alert_for(alert: Alert, scope: Scope) -> Alert:
    """Return an alert without the names of reservations to whom does not see all tenants."""
    named = alert.code == "nodes_reserved" and not scope.sees_all
    return replace(alert, resolve="ask for less") if named else alert


def token_alerts(state: State, scope: Scope, now_ms: int) -> list[Alert]:
    """Return that others made tokens which speak for the caller, the newest first."""
    if scope.delegated:
        return []  # it is for the user to know, not for who has such a token
    tokens = [one for one in state.tokens.of_user(scope.user) if one.by != one.user and made_by_another(one, state)]
    live = (one for one in tokens if not 0 < one.expires_ms <= now_ms)
    return [
        Alert(
            "token_made_for_you",
            (),
            0,
            f"{one.by} made a token that speaks for you ({one.level}): it reaches neither your own secrets nor your "
            "account of the machines",
            f"penstock token revoke {one.id}",
        )
        for one in sorted(live, key=lambda one: -one.created_ms)[:TOKEN_ALERTS_MAX]
    ]


def plan_for(found: api.PlanAnswer, scope: Scope, reads: Reads) -> api.PlanAnswer:
    """Return what a request would lead to, without the names of what the caller may not see."""
    if scope.sees_all:
        return found

    def hidden(victim: api.PlannedVictim) -> api.PlannedVictim:
        return replace(victim, name=_name_of(scope, reads, JobId(victim.job_id)))

    def planned(job: api.PlannedJob) -> api.PlannedJob:
        why = job.explanation and explanation_for(job.explanation, scope)
        return replace(job, preempts=tuple(map(hidden, job.preempts)), explanation=why)

    return replace(found, jobs=list(map(planned, found.jobs)))


def cycle_view(plan: Plan, placements: Sequence[str]) -> api.CycleView:
    front = plan.front
    candidates = [
        api.CandidatePlan(
            placements[point.index] if point.index < len(placements) else f"candidate {point.index}",
            point.scores,
            point.weighted,
            chosen=point.index == front.chosen,
            on_front=point.dominated_by is None,
        )
        for point in (front.points if front is not None else ())
        if front is not None
    ]
    return api.CycleView(
        plan.seq,
        plan.strategy,
        len(plan.starts),
        len(plan.preemptions),
        dict(sorted(Counter(verdict.code for verdict in plan.verdicts.values()).items())),
        [reserved.job_id for reserved in plan.reserved],
        candidates,
        list(plan.problems),
    )


def defrag_list(moves: Moves, places: Mapping[JobId, tuple[ReplicaPlace, ...]], *, switched_on: bool) -> api.DefragList:
    found = [
        api.Defrag(
            beneficiary,
            sorted({place.node for place in places[beneficiary]}),
            [api.Move(job_id, cost) for job_id, cost in moved],
        )
        for beneficiary, moved in sorted(moves.items())
        if beneficiary in places
    ]
    return api.DefragList(switched_on, found)
