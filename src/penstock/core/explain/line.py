"""Constraints before a job's turn: dependencies, its back-off, jobs ahead in its queue, room kept for others."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from heapq import merge
from itertools import chain, islice

from penstock.core.explain.scene import Scene
from penstock.core.model.explanation import Awaiting, Constraint
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import Job
from penstock.core.model.quantities import format_duration, listed
from penstock.core.model.words import agree, counted
from penstock.core.order.extension import Policies
from penstock.core.order.policies import OrderKey, order_key
from penstock.core.place.fit import capacity
from penstock.core.state.state import State

AHEAD_NAMED_MAX = 3
BLOCKERS_MAX = 8
RESERVATION = "reservation "
"""Begins `where` of a constraint by a reservation. No text has its name or tenant: not every caller may see them."""


def jobs_ahead(scene: Scene, policies: Policies) -> tuple[int, tuple[JobId, ...]]:
    """Return how many waiting jobs of the queue come before this one by its policy, and the first of them.

    Where tenants of a queue share it fairly, only the tenant's own jobs count: the others' turn depends on use.
    """
    queue = scene.tree.rules.get(scene.spec.queue)
    policy: str = queue.policy if queue is not None else "fifo"
    if any(problem.startswith(f"policy {policy}:") for problem in scene.base.problems):
        policy = "fifo"  # as the cycle does for a third-party policy that fails
    mine = order_key(policy, scene.job, scene.key, scene.settings, scene.now_ms, policies)
    count = 0
    heads: list[list[tuple[OrderKey, JobId]]] = []
    for _, key, jobs in scene.snapshot.classes:
        if key.queue != scene.spec.queue or (policy == "fair_share" and key.tenant != scene.tenant):
            continue

        def key_of(job: Job) -> OrderKey:
            return order_key(policy, job, key, scene.settings, scene.now_ms, policies)  # noqa: B023 - used at once

        before = bisect_left(jobs, mine, key=key_of)
        count += before
        if before:
            heads.append([(key_of(job), job.id) for job in jobs[: min(before, AHEAD_NAMED_MAX)]])
    return count, tuple(job_id for _, job_id in islice(merge(*heads), AHEAD_NAMED_MAX))


def behind(scene: Scene, count: int, first: tuple[JobId, ...]) -> Constraint:
    more = ", ..." if count > len(first) else ""
    text = f"{counted(count, 'job')} of queue {scene.spec.queue} {agree('come', count)} first: "
    text += ", ".join(map(str, first)) + more
    return Constraint("behind", text, count, "jobs", scene.spec.queue)


def awaiting(state: State, job: Job) -> tuple[Awaiting, ...]:
    """Return the live dependencies of `job`, each awaited job named once; lowest numbers first."""
    found: list[Awaiting] = []
    beyond = 0
    for one in sorted(job.awaited, key=lambda one: (one.run, one.kind)):
        if one.jobs.stop <= beyond:
            continue  # an earlier one has all of them
        left = state.indexes.dependants.left(one, state.jobs)
        new = range(max(one.job_id, beyond), one.jobs.stop)
        if new.start > one.job_id:
            left = sum(job_id in state.jobs for job_id in new)
        beyond = one.jobs.stop
        live = (state.jobs.get(JobId(job_id)) for job_id in new)
        first = tuple((other.id, other.state) for other in islice((o for o in live if o is not None), BLOCKERS_MAX))
        if left:
            found.append(Awaiting(one.kind, new.start, new.stop, left, first))
    return tuple(found)


def blocked_jobs(state: State, limit: int) -> tuple[Job, ...]:
    """Return up to `limit` jobs that wait for others or for their turn in an array, ascending. Any thread.

    Jobs that a user holds are left out.
    """
    turns = (list(members) for members in list(state.indexes.arrays.waiting.values()))
    numbers = chain(list(state.indexes.dependants.open), chain.from_iterable(turns))
    found: dict[JobId, Job] = {}
    for job_id in numbers:
        job = state.jobs.get(job_id)
        if job is not None and (job.unmet or job.waits_turn) and job.hold is None:
            found[job_id] = job
            if len(found) >= limit:
                break
    return tuple(found[job_id] for job_id in sorted(found))


def dependency(found: Sequence[Awaiting]) -> Constraint:
    count = sum(one.left for one in found)
    named = [f"{job_id} ({one.kind}, {state})" for one in found for job_id, state in one.first][:BLOCKERS_MAX]
    more = f" and {count - len(named)} more" if count > len(named) else ""
    text = f"waits for {counted(count, 'job')} to end first: {', '.join(named)}{more}"
    return Constraint("dependency", text, count, "jobs")


def backing_off(job: Job, now_ms: int) -> Constraint:
    left_ms = job.not_before_ms - now_ms
    text = f"backs off after a failure; next attempt in {left_ms / 1000:.1f} s"
    return Constraint("backing_off", text, left_ms, "ms")


def making_room(scene: Scene) -> tuple[Constraint, tuple[JobId, ...]]:
    """Return the constraint of a job whose victims are leaving, with the latest time, and the victims."""
    verdict = scene.base.verdicts.get(scene.job.class_id)
    victims = verdict.victims if verdict is not None and verdict.first == scene.job.id else ()
    if not victims:
        victims = tuple(sorted(i for i, b in scene.snapshot.stopping.items() if b == scene.job.id))
    left_ms = max((_grace_left_ms(scene, i) for i in victims), default=0)
    names = f"{'job' if len(victims) == 1 else 'jobs'} {', '.join(map(str, victims))}" if victims else "ending attempts"
    text = f"starts as soon as {names} {agree('have ', len(victims))}saved and left"
    text += f", in {format_duration(left_ms)} at the latest" if left_ms else ""
    return Constraint("making_room", text, left_ms, "ms"), victims


def decided_elsewhere(scene: Scene, victims: Sequence[JobId] = ()) -> Constraint:
    """Return the constraint of a job for which Penstock would decide now, where another scheduler does."""
    if victims:
        names = f"{'job' if len(victims) == 1 else 'jobs'} {', '.join(map(str, victims))}"
        return Constraint("decided_elsewhere", f"Penstock would let {names} leave for it; another scheduler decides")
    start = next((start for start in scene.base.starts if start.job_id == scene.job.id), None)
    nodes = list(dict.fromkeys(place.node for place in start.places)) if start is not None else []
    where = f" on {listed(nodes)}" if nodes else ""
    return Constraint("decided_elsewhere", f"fits now{where}: Penstock would start it; another scheduler decides")


def _grace_left_ms(scene: Scene, job_id: JobId) -> int:
    job = scene.snapshot.running[job_id]
    stop = job.attempt.stop if job.attempt is not None else None
    return max(0, stop.requested_ms + stop.grace_ms - scene.now_ms) if stop is not None else job.spec.grace_ms


def barred(scene: Scene) -> Iterator[tuple[Constraint, tuple[JobId, ...]]]:
    """Yield the first job of a strict pool, which no other may pass."""
    pool = next((p for p in scene.config.pools if p.name == scene.gang.pool), None)
    verdict = scene.base.verdicts.get(scene.job.class_id)
    first = verdict.blocker if verdict is not None and verdict.code == "kept_back" else None
    if pool is not None and pool.backfill == "strict" and first not in (None, scene.job.id):
        text = f"pool {pool.name} is strict: no job passes job {first}, which comes first and does not fit yet"
        yield Constraint("kept_back", text, where=f"job {first}"), (JobId(first),)


def kept(scene: Scene) -> Iterator[tuple[Constraint, tuple[JobId, ...]]]:
    """Yield reservations and holds on nodes that would take a replica otherwise, each with its job."""
    nodes = _nodes_kept(scene)
    for reserved in scene.base.reserved:
        names = sorted(nodes.intersection(place.node for place in reserved.places))
        if names and reserved.job_id != scene.job.id:
            until_ms = max(0, reserved.start_ms - scene.now_ms)
            when = f"which is to start in {format_duration(until_ms)}" if reserved.start_ms else (
                "which has waited too long and starts when enough is free")  # fmt: skip
            text = f"room on {listed(names)} is kept for job {reserved.job_id}, {when}"
            yield Constraint("kept_back", text, until_ms, "ms", f"job {reserved.job_id}"), (reserved.job_id,)
    for job_id, places in scene.base.held.items():
        names = sorted(nodes.intersection(place.node for place in places))
        if names and job_id != scene.job.id:
            text = f"room on {listed(names)} is kept for job {job_id}, for which others are leaving"
            yield Constraint("kept_back", text, where=f"job {job_id}"), (job_id,)
    for window in scene.config.reservations:
        names = sorted(nodes.intersection(window.nodes))
        if names and scene.now_ms < window.start_ms and window.tenant != scene.tenant:
            left_ms = window.start_ms - scene.now_ms
            text = f"{listed(names)}: reserved for another tenant in {format_duration(left_ms)}, "
            text += "and it might still run then"
            yield Constraint("kept_back", text, left_ms, "ms", f"{RESERVATION}{window.name}"), ()
    yield from ((one, ()) for one in _leaving(scene, nodes))


def _leaving(scene: Scene, nodes: Set[str]) -> Iterator[Constraint]:
    """Yield the nodes that go before the job would have ended, together: the last of them goes last."""
    names = sorted(nodes & set(scene.snapshot.leaving))
    if not names:
        return
    left_ms = max(0, max(scene.snapshot.nodes[NodeName(name)].leaves_ms for name in names) - scene.now_ms)
    goes = agree(f"go in {format_duration(left_ms)} at the latest", len(names))
    text = f"{listed(names)} {goes}, and it might still run then"
    if not scene.job.spec.preemptible:
        text += ", though it must not be preempted"
    yield Constraint("kept_back", text, left_ms, "ms", listed(names))


def _nodes_kept(scene: Scene) -> set[str]:
    """Return nodes that would take more replicas of the job without the room kept there."""
    cluster = scene.real()
    return {
        str(cluster.names[node])
        for node, shown in scene.kept_nodes
        if any(capacity(need, shown, most) < capacity(need, cluster.free_of(node), most) for need, most in scene.needs)
    }
