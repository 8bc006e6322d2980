"""Checks of a start: free places, maxima of queues, the older jobs that it passed, and the scores of its node."""

from collections.abc import Iterator

from penstock.core.audit.types import Check, NodeScore
from penstock.core.model import events as ev
from penstock.core.model.ids import JobId
from penstock.core.model.plan import Plan
from penstock.core.model.quantities import format_resource, listed, resource_text
from penstock.core.order.expected_power import power_pool
from penstock.core.order.queues import holder_text
from penstock.core.place.candidates import CandidateHeap
from penstock.core.place.fit import needs_of
from penstock.core.place.host_load import points_text
from penstock.core.place.index import ClusterIndex, PlacementStrategy
from penstock.core.place.score import NO_FIT
from penstock.core.state.snapshot import Snapshot
from penstock.core.state.state import State

OTHERS_SHOWN = 3
"""Other nodes whose scores are shown."""
_NOT_SCORED = ("first_fit", "first_fit_decreasing", "random")


def place_checks(event: ev.AttemptAllocated, plan: Plan, snapshot: Snapshot, state: State) -> Iterator[Check]:
    """Yield the rules that a start had to keep.

    Args:
        plan: the plan that the same inputs give, as far as it holds on `state`, the state at its commit.
    """
    if any(start.job_id == event.job_id and start.places == event.places for start in plan.starts):
        nodes = ", ".join(dict.fromkeys(place.node for place in event.places))
        yield Check("free", holds=True, text=f"what it takes was free on {nodes} when it was committed")
    yield from _maxima(event, plan, state)
    yield from _passed(event, plan, snapshot)


def _maxima(event: ev.AttemptAllocated, plan: Plan, state: State) -> Iterator[Check]:
    """Yield the use of each queue with a maximum, after this start and those before it."""
    tree, asked, account = state.queue_tree(), None, None
    for start in plan.starts:
        job = state.jobs[start.job_id]
        account = tree.account(job.spec.queue, job.spec.tenant)
        if account is None:
            continue
        demand = tree.demand_of(start.ask, start.places, state.nodes)
        tree.charge(account, demand)
        if start.job_id == event.job_id:
            asked = demand
            break
    if asked is None or account is None:
        return
    for queue in account.counted_in():
        for column, limit in queue.limits:
            if not asked[column]:
                continue
            name = tree.resources[column]
            used, most = (format_resource(name, amount) for amount in (queue.used[column], limit))
            within = queue.used[column] <= limit
            pool = power_pool(name)
            said = f"pool {pool}: expected power" if pool else f"{holder_text(queue.name)}: {resource_text(name)}"
            text = f"{said} {used} of at most {most} used, with it"
            yield Check("maximum", within, text)


def _passed(event: ev.AttemptAllocated, plan: Plan, snapshot: Snapshot) -> Iterator[Check]:
    """Yield the older jobs of its pool that the start passed and that went on waiting, with the reasons."""
    started = {start.job_id for start in plan.starts}
    mine = next((j for _, _, jobs in snapshot.classes for j in jobs if j.id == event.job_id), None)
    if mine is None:
        return
    passed: dict[str, list[JobId]] = {}
    for class_id, key, jobs in snapshot.classes:
        if key.ask.pool != mine.spec.ask.pool:
            continue
        older = [j.id for j in jobs if j.submit_seq < mine.submit_seq and j.id not in started]
        if older:
            verdict = plan.verdicts.get(class_id)
            passed.setdefault(verdict.code if verdict is not None else "not_looked_at", []).extend(older)
    if passed:
        said = "; ".join(f"{code}: {len(ids)} ({listed(sorted(ids))})" for code, ids in sorted(passed.items()))
        yield Check("passed", holds=True, text=f"older jobs that keep waiting: {said}")


def scores_of(event: ev.AttemptAllocated, plan: Plan, snapshot: Snapshot) -> tuple[NodeScore, ...]:
    """Return the scores of the first replica's node and of the best others; empty for strategies without scores.

    Reservations and holds are left out: a better node that was not taken was kept for another job.
    """
    start = next((s for s in plan.starts if s.job_id == event.job_id), None)
    if start is None or not start.places or event.rule in _NOT_SCORED:
        return ()
    pools = {p.name: PlacementStrategy(p.placement, p.speeds) for p in snapshot.config.pools}
    cluster = ClusterIndex(pools, snapshot.typical)
    cluster.sync(snapshot.nodes, snapshot.free)
    for other in plan.starts:
        if other is start:
            break
        cluster.take(other.ask, other.places)
    tenant = next(j.spec.tenant for _, _, jobs in snapshot.classes for j in jobs if j.id == event.job_id)
    need, most = needs_of(start.ask, tenant)[0]
    first = start.places[0].node
    together = sum(place.node == first for place in start.places[:most])
    view = cluster.view(need, together, event.rule)
    chosen = cluster.state_of[cluster.index[first]]
    score = view.score(cluster.table, chosen)
    if score == NO_FIT:
        return ()
    found = [NodeScore(first, score, cluster.count(chosen) - 1, chosen=True, parts=_parts(cluster, view, chosen))]
    others = [state for state in cluster.fitting_states(view) if state != chosen][:OTHERS_SHOWN]
    for state in others:
        name = cluster.names[cluster.lowest_node(state)]
        alike, parts = cluster.count(state) - 1, _parts(cluster, view, state)
        found.append(NodeScore(name, view.score(cluster.table, state), alike, parts=parts))
    return tuple(sorted(found, key=lambda s: (s.score, not s.chosen, s.node)))


def _parts(cluster: ClusterIndex, view: CandidateHeap, state: int) -> str:
    """Return in words what the score of a state is made of, where the strategy gives points."""
    put = view.put(cluster.table, state) if view.strategy == "host_load" and view.need.each.devices is None else None
    return points_text(cluster.table.frees[put[0]]) if put is not None else ""
