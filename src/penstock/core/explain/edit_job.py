"""Edits of a job's standing among others: priority, queue, preemptible, length, an alternative as its request."""

from bisect import bisect_left

from msgspec.structs import replace

from penstock.core.explain.search import Edits, Search, request
from penstock.core.explain.trials import TrialOutcome
from penstock.core.model.jobs import JobSpec
from penstock.core.model.quantities import exact_duration, listed
from penstock.core.order.policies import SCORE_SCALE, priority_score_milli
from penstock.core.order.ranks import rounded_up_ms

PRIORITY_MAX = 10_000
QUEUES_TRIED_MAX = 8
VICTIMS_WEIGHED_MAX = 256
"""Running jobs of lower priority up to which a higher priority is tried: most of the cost is weighing them."""


def alternatives(search: Search) -> Edits:
    """One of its own alternatives as the request: quotas are judged by the request alone."""
    for number, ask in enumerate(search.spec.alternatives, 1):
        if search.starts(replace(search.spec, ask=ask, alternatives=())):
            yield request(
                f"alternatives[{number - 1}]", "an alternative", "the request", f"ask for alternative {number} alone"
            )
            return


def preemptible(search: Search) -> Edits:
    pool = search.scene.pool
    matters = pool is not None and (pool.reserve_milli > 0 or bool(search.scene.snapshot.leaving))
    if matters and not search.spec.preemptible and search.starts(replace(search.spec, preemptible=True)):
        yield request("preemptible", False, True, "preemptible: true")


def queue(search: Search) -> Edits:
    """Another queue that has quota left, siblings first."""
    config, mine = search.scene.config, search.spec.queue
    parents = {q.name: q.parent for q in config.queues}
    inner = set(parents.values())
    others = [q.name for q in config.queues if q.name != mine and q.name not in inner]
    others.sort(key=lambda name: parents[name] != parents.get(mine))
    for name in others[:QUEUES_TRIED_MAX]:
        if search.starts(replace(search.spec, queue=name)):
            yield request("queue", mine, name, f"queue: {name} instead of {mine}")
            return


def length(search: Search) -> Edits:
    """A time limit with which the job ends before room reserved for others is needed."""
    scene = search.scene
    starts = [r.start_ms for r in scene.base.reserved if r.job_id != scene.job.id]
    starts += [w.start_ms for w in scene.config.reservations if w.tenant != scene.tenant]
    starts += [scene.snapshot.nodes[name].leaves_ms for name in scene.snapshot.leaving]
    present = scene.key.length_ms
    for gap_ms in sorted({s - scene.now_ms for s in starts if s > scene.now_ms}, reverse=True):
        limit_ms = _rounded_within(gap_ms)
        shorter = limit_ms > 0 and (not present or rounded_up_ms(limit_ms) < present)
        if shorter and search.starts(replace(search.spec, time_limit_ms=limit_ms)):
            old = exact_duration(search.spec.time_limit_ms) if search.spec.time_limit_ms else None
            new = exact_duration(limit_ms)
            text = f"time_limit: {new} instead of {old or 'none'}: it would end before the room is needed"
            yield request("time_limit", old, new, text)
            return


def _rounded_within(gap_ms: int) -> int:
    """Return the longest time in whole seconds that the scheduler rounds to at most `gap_ms` (ms)."""
    seconds = range(1, gap_ms // 1000 + 1)
    return 1000 * bisect_left(seconds, True, key=lambda s: rounded_up_ms(1000 * s) > gap_ms)


def priority(search: Search) -> Edits:
    """The lowest priority with which the job would start, or victims would be asked to leave for it."""
    old = search.spec.priority
    thresholds = _thresholds(search)
    known: dict[int, TrialOutcome] = {old: TrialOutcome(False)}

    def works(value: int) -> bool:
        if value not in known:
            known[value] = search.trials.with_spec(_with_priority(search, value))
        return known[value].started or bool(known[value].victims)

    if not thresholds or not works(thresholds[-1]):
        return
    at = bisect_left(thresholds, True, key=works)
    low, high = (thresholds[at - 1] if at else old), thresholds[at]
    if high - 1 > low and works(high - 1):
        high = low + 1 + bisect_left(range(low + 1, high), True, key=works)
    if search.trials.spent:
        return
    found = known[high]
    text = f"priority: {high} instead of {old}"
    if not found.started:
        text += f" would preempt {'job' if len(found.victims) == 1 else 'jobs'} {listed(found.victims)}"
    yield request("priority", old, high, text, () if found.started else found.victims)


def _with_priority(search: Search, value: int) -> JobSpec:
    return replace(search.spec, priority=value)


def _thresholds(search: Search) -> list[int]:
    """Return the priorities at which the order changes: above a running job's, or before a waiting job, ascending."""
    scene, old = search.scene, search.spec.priority
    found: set[int] = set()
    rule = scene.tree.rules.get(scene.spec.queue)
    policy = rule.policy if rule is not None else "fifo"
    own_score = (
        priority_score_milli(scene.job, scene.gang.device_milli, scene.settings, scene.now_ms) - SCORE_SCALE * old
    )
    for _, key, jobs in scene.snapshot.classes:
        if key.queue != scene.spec.queue or jobs[0].id == scene.job.id:
            continue
        if policy == "priority":
            ahead = priority_score_milli(jobs[0], key.ask.device_milli, scene.settings, scene.now_ms)
            found.add((ahead - own_score) // SCORE_SCALE + 1)
        elif policy != "fifo":
            found.add(key.priority + 1)
    running = sorted((p, n) for (pool, p), n in scene.snapshot.evictable.items() if pool == scene.gang.pool)
    found.update(p + 1 for p, _ in running)
    low = [p for p in found if sum(n for at, n in running if at < p) <= VICTIMS_WEIGHED_MAX]
    return sorted(p for p in low if old < p <= PRIORITY_MAX)
