"""Queues, plans and explanations as the API shows them."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.api import types as api
from penstock.api.scheduling import CandidatePlan, CycleView, Defrag, DefragList, Move
from penstock.core.explain import Explanation
from penstock.core.explain.line import RESERVATION
from penstock.core.model.access import Scope
from penstock.core.model.answers import PlanAnswer, PlannedJob, PlannedVictim
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import ReplicaPlace
from penstock.core.model.plan import Plan
from penstock.core.order.extension import Policies
from penstock.core.order.queues import QueueTree
from penstock.core.order.walk import JobQueue
from penstock.core.state.snapshot import snapshot_beside
from penstock.core.state.state import State
from penstock.core.state.usage import whole_total
from penstock.core.status.defrag import Moves
from penstock.server.views.jobs import name_of
from penstock.server.views.reads import Reads

NEXT_JOBS_SHOWN = 10
PEEKS_MAX = 1_000
"""Waiting jobs looked at for all queues together: those that the caller does not see count, too."""


def queue_views(state: State, now_ms: int, scope: Scope, policies: Policies) -> list[api.QueueView]:
    """Return each queue with its numbers, and those of its next jobs that are seen, in the order of the next cycle.

    Args:
        policies: the planner's own.
    """
    snapshot, jobs = snapshot_beside(state), state.jobs
    first: dict[str, list[api.JobRef]] = {}
    whole = whole_total(snapshot.free)
    tree = QueueTree(snapshot.config).load(snapshot.usage, whole, now_ms, snapshot.pool_powers)
    order = JobQueue(snapshot.config, tree, snapshot.classes, now_ms, policies)
    for _ in range(PEEKS_MAX):
        cursor = order.peek()
        if cursor is None:
            break
        head = cursor.job
        refs = first.setdefault(head.spec.queue, [])
        if len(refs) < NEXT_JOBS_SHOWN and scope.sees(head.spec.tenant):
            refs.append(api.JobRef(head.id, head.spec.name))
        if len(refs) < NEXT_JOBS_SHOWN:
            order.started(cursor)
        else:
            order.leave_queue()
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


def explanation_for(found: Explanation, scope: Scope) -> Explanation:
    """Return an explanation, without names of reservations unless the caller sees all tenants."""
    if scope.sees_all:
        return found
    constraints = (replace(c, where="") if c.where.startswith(RESERVATION) else c for c in found.constraints)
    edits = (edit for edit in found.edits if not edit.path.startswith("reservations."))
    return replace(found, constraints=tuple(constraints), edits=tuple(edits))


def plan_for(found: PlanAnswer, scope: Scope, reads: Reads) -> PlanAnswer:
    """Return the plan of a request, without the names of jobs that the caller may not see."""
    if scope.sees_all:
        return found

    def hidden(victim: PlannedVictim) -> PlannedVictim:
        return replace(victim, name=name_of(scope, reads, JobId(victim.job_id)))

    def planned(job: PlannedJob) -> PlannedJob:
        why = job.explanation and explanation_for(job.explanation, scope)
        return replace(job, preempts=tuple(map(hidden, job.preempts)), explanation=why)

    return replace(found, jobs=list(map(planned, found.jobs)))


def cycle_view(plan: Plan, placements: Sequence[str]) -> CycleView:
    front = plan.front
    candidates = [
        CandidatePlan(
            placements[point.index] if point.index < len(placements) else f"candidate {point.index}",
            point.scores,
            point.weighted,
            chosen=point.index == front.chosen,
            on_front=point.dominated_by is None,
        )
        for point in (front.points if front is not None else ())
        if front is not None
    ]
    return CycleView(
        plan.seq,
        plan.strategy,
        len(plan.starts),
        len(plan.preemptions),
        dict(sorted(Counter(verdict.code for verdict in plan.verdicts.values()).items())),
        [reserved.job_id for reserved in plan.reserved],
        candidates,
        list(plan.problems),
        plan.now_ms,
        front.weights if front is not None else None,
        plan.dropped,
        front.energy if front is not None else "",
    )


def defrag_list(moves: Moves, places: Mapping[JobId, tuple[ReplicaPlace, ...]], *, switched_on: bool) -> DefragList:
    found = [
        Defrag(
            beneficiary,
            sorted({place.node for place in places[beneficiary]}),
            [Move(job_id, cost) for job_id, cost in moved],
        )
        for beneficiary, moved in sorted(moves.items())
        if beneficiary in places
    ]
    return DefragList(switched_on, found)
