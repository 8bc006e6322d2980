"""Why a job that does not fit preempts no other: the rule of its queue, priority, guarantees, run time."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from penstock.core.explain.scene import Scene
from penstock.core.model.explanation import Constraint
from penstock.core.model.jobs import Job
from penstock.core.model.quantities import exact_duration, listed
from penstock.core.model.words import counted
from penstock.core.order.queues import QueueNode
from penstock.core.order.ranks import always_lost
from penstock.core.place.backfill import held_places
from penstock.core.preempt.rights import PreemptionRights, turn_left_ms
from penstock.core.state.idleness import makes_room

RUNNING_SEEN_MAX = 512
"""Running jobs that are checked one by one."""


class _Candidates(NamedTuple):
    """Running jobs of the pool that the rules allow to preempt: now, and after their guaranteed time."""

    now: list[tuple[Job, QueueNode]]
    later: list[tuple[int, Job, str]]
    """With the time left until then (ms), and why not now."""
    guarded: list[Job]
    """That must not be disrupted now."""
    cut_off: bool


def rights(scene: Scene) -> Iterator[Constraint]:
    """Yield why no job is preempted for this one, given that it does not start."""
    rule, leaf = scene.tree.rules[scene.spec.queue], scene.leaf
    assert leaf is not None, "a job whose queue is not declared gets that as its reason"
    if rule.preemption == "never":
        text = f"queue {rule.name} never asks others to leave"
        yield Constraint("preempt_never", text, where=rule.name)
        return
    if not scene.spec.preempts:
        yield Constraint("preempt_never", "it never asks others to leave, as it was declared", where=rule.name)
        return
    if always_lost(scene.job):
        lost = scene.job.infrastructure_failures
        text = f"its {lost} attempts were lost before it ran: it asks nobody to leave until it has run"
        yield Constraint("preempt_never", text, where=rule.name)
        return
    rights = PreemptionRights(scene.job, scene.key, leaf, scene.demand, scene.tree)
    found = _candidates(scene, rights)
    for left_ms, job, why in found.later[:1]:
        text = f"job {job.id} may be asked to leave in {exact_duration(left_ms)}: {why}"
        more = len(found.later) - 1
        yield Constraint("min_runtime", text + (f", {more} more later" if more else ""), left_ms, "ms", f"job {job.id}")
    for job in found.guarded[:1]:
        more = len(found.guarded) - 1
        text = f"job {job.id} is not asked to leave: {job.protected}" + (f", {more} more like it" if more else "")
        yield Constraint("disruption_budget", text, len(found.guarded), "jobs", f"job {job.id}")
    if found.now:
        yield _not_enough(scene, rights, found)
    elif not (found.later or found.guarded):
        yield _nobody(scene, rights, rule.preemption)


def may_ask_others(scene: Scene) -> bool:
    """Return False where a cheap check shows that no running job can be asked to leave for the job."""
    assert scene.leaf is not None, "nothing is looked for when the queue is not in the tree"
    rights = PreemptionRights(scene.job, scene.key, scene.leaf, scene.demand, scene.tree)
    lower = any(pool == scene.gang.pool and p < scene.spec.priority for pool, p in scene.snapshot.evictable)
    least = scene.leaf.policy == "least_attained"
    return rights.may_preempt and (lower or rights.may_reclaim or least or _some_idle(scene))


def _some_idle(scene: Scene) -> bool:
    return bool(scene.config.idle_rules) and bool(scene.snapshot.idle)


def _candidates(scene: Scene, rights: PreemptionRights) -> _Candidates:
    if not may_ask_others(scene):
        return _Candidates([], [], [], False)
    running = scene.snapshot.running.values()
    now, later, guarded = [], [], []
    for job in islice(running, RUNNING_SEEN_MAX):
        account = scene.account_of(job)
        if account is None or job.spec.ask.pool != scene.gang.pool or not job.spec.preemptible:
            continue
        if job.attempt is None or job.attempt.stop is not None:
            continue
        idle = makes_room(job, scene.config.idle_rules, scene.now_ms) and rights.may_take_idle(job.spec.priority)
        left_ms, why = _guaranteed_left_ms(scene, job), "its minimum run time is not over"
        if not idle and rights.rule_for(job, account, scene.held(job), scene.settings, scene.now_ms) is None:
            turn_ms = turn_left_ms(job, scene.settings, scene.now_ms)
            if turn_ms <= 0 or rights.less_service_in_ms(job, scene.settings, scene.now_ms) != turn_ms:
                continue
            if turn_ms > left_ms:
                left_ms, why = turn_ms, "it has not run for as long as it waited"
        if job.protected:
            guarded.append(job)
        elif left_ms > 0:
            later.append((left_ms, job, why))
        else:
            now.append((job, account))
    later.sort(key=lambda entry: (entry[0], entry[1].id))
    return _Candidates(now, later, guarded, len(scene.snapshot.running) > RUNNING_SEEN_MAX)


def _guaranteed_left_ms(scene: Scene, job: Job) -> int:
    rule, attempt = scene.tree.rules.get(job.spec.queue), job.attempt
    assert attempt is not None
    least_ms = rule.min_runtime_ms if rule is not None else None
    if least_ms is None:
        least_ms = scene.settings.min_runtime_before_preemption_ms
    return (attempt.running_ms or attempt.allocated_ms) + least_ms - scene.now_ms


def _not_enough(scene: Scene, rights: PreemptionRights, found: _Candidates) -> Constraint:
    """Return why no candidate was preempted: their places do not suffice, or a guarantee protects their use."""
    victims = [(job, part) for job, part in found.now]
    cluster = scene.real()
    with cluster.tentatively():
        for job, _ in victims:
            cluster.put_back(job.ask, held_places(job))
        fits = scene.fits(scene.gang)
    names = listed(job.id for job, _ in victims)
    count = ("at least " if found.cut_off else "") + counted(len(victims), "job")
    if not fits:
        text = f"{count} may be asked to leave ({names}), and even without them it does not fit"
        return Constraint("victims_short", text, len(victims), "jobs", scene.gang.pool)
    if not rights.unblocked((part, scene.held(job)) for job, part in victims):
        text = f"{count} may be asked to leave ({names}), and even without them a quota is short"
        return Constraint("victims_short", text, len(victims), "jobs", scene.gang.pool)
    text = f"{count} could leave ({names}), but then a queue would have less than it is guaranteed"
    return Constraint("guarantee", text, len(victims), "jobs", scene.gang.pool)


def _nobody(scene: Scene, rights: PreemptionRights, rule: str) -> Constraint:
    pool, priority = scene.gang.pool, scene.spec.priority
    counts = {"preemptible": 0, "protected": 0, "leaving": 0}
    for job in islice(scene.snapshot.running.values(), RUNNING_SEEN_MAX):
        if job.spec.ask.pool == pool:
            leaving = job.attempt is not None and job.attempt.stop is not None
            counts["leaving" if leaving else "preemptible" if job.spec.preemptible else "protected"] += 1
    if rule == "reclaim":
        text = f"queue {scene.spec.queue} only reclaims its guarantee"
        text += "" if rights.may_reclaim else ", and with this job it would hold more than that"
    else:
        text = f"no preemptible job of lower priority than {priority} in pool {pool}"
    kinds = {
        "preemptible": "preemptible" if rule == "reclaim" else "preemptible and not lower",
        "protected": "not preemptible",
        "leaving": "leaving already",
    }
    found = [f"{counts[kind]} {word}" for kind, word in kinds.items() if counts[kind]]
    return Constraint("no_lower_priority", text + (f" ({', '.join(found)})" if found else ""), where=pool)
