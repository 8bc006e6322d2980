"""Why a job waits: the binding constraint with its numbers, what would let it start now, and when it may start."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from penstock.core.model.ids import JobId
from penstock.core.model.jobs import GangAsk, Job
from penstock.core.order.policies import order_key
from penstock.core.place.fit import REASON_TEXT, closed_reason
from penstock.core.place.free import FreeCluster, free_cluster
from penstock.core.place.gang import NoFit, place_gang
from penstock.core.plan import Plan, Verdict
from penstock.core.room.victims import held_places
from penstock.core.state import State


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a job is not running. `code` is stable; `text` is one sentence for people."""

    job_id: JobId
    state: str
    code: str
    text: str
    refused: dict[str, int] = {}
    """Nodes ruled out, by reason; adds up to the number of nodes."""
    replicas_possible: int = 0
    ahead: int = 0
    """Waiting jobs that come before this one in the present order."""
    blockers: tuple[JobId, ...] = ()
    suggestions: tuple[str, ...] = ()
    """Changes of the request that would let it start now; each was proven by placing it."""
    start_by_ms: int = 0
    """Upper estimate of its start (unix ms) if nothing else comes ahead; 0 when it cannot be told."""
    start_note: str = ""


def explain(state: State, job: Job, last: Plan | None, now_ms: int) -> Explanation:
    """Return why `job` is where it is, judged on the present state and the last cycle's plan."""
    if job.state != "waiting":
        return _not_waiting(job)
    if job.unmet:
        names = ", ".join(str(i) for i in job.unmet[:8])
        text = f"waits for {len(job.unmet)} job(s) to end first: {names}"
        return Explanation(job.id, job.state, "dependency", text, blockers=job.unmet)
    if job.not_before_ms > now_ms:
        left_s = (job.not_before_ms - now_ms) / 1000
        text = f"backs off after a failure; next attempt in {left_s:.1f} s"
        return Explanation(job.id, job.state, "backing_off", text, start_by_ms=job.not_before_ms)
    verdict = last.verdicts.get(job.class_id) if last else None
    if last is not None and job.id in last.held:
        return _making_room(state, job, verdict)
    cluster = free_cluster(state)
    for held_for, places in (last.held if last else {}).items():
        held = state.jobs.get(held_for)
        if held is not None and held.state == "waiting" and held.id != job.id:
            cluster.take(held.spec.ask, places)
    return _no_room(state, job, verdict, cluster, now_ms)


def _not_waiting(job: Job) -> Explanation:
    attempt = job.attempt
    if attempt is None:
        return Explanation(job.id, job.state, job.state, f"attempt {job.last_attempt} has just ended")
    nodes = sorted({r.place.node for r in attempt.replicas})
    where = ", ".join(nodes)
    if job.state == "stopping" and attempt.stop is not None:
        why = attempt.stop.reason.replace("_", " ")
        if attempt.stop.beneficiary is not None:
            why += f" for job {attempt.stop.beneficiary}"
        text = f"attempt {attempt.number} on {where} is being stopped: {why}"
        return Explanation(job.id, job.state, attempt.stop.reason, text)
    return Explanation(job.id, job.state, job.state, f"attempt {attempt.number} is {job.state} on {where}")


def _making_room(state: State, job: Job, verdict: Verdict | None) -> Explanation:
    victims = [i for i in (verdict.victims if verdict else ()) if i in state.jobs]
    names = ", ".join(str(i) for i in victims) or "ending attempts"
    text = f"starts as soon as job(s) {names} have saved and left"
    return Explanation(job.id, job.state, "making_room", text, blockers=tuple(victims))


def _no_room(state: State, job: Job, verdict: Verdict | None, cluster: FreeCluster, now_ms: int) -> Explanation:
    ahead = jobs_ahead(state, job, now_ms)
    placed = place_gang(job.spec.ask, cluster)
    if verdict is not None and verdict.code == "behind_starving_job" and verdict.blocker is not None:
        text = f"held back so that job {verdict.blocker}, which has waited too long, can start first"
        return Explanation(job.id, job.state, verdict.code, text, ahead=ahead, blockers=(verdict.blocker,))
    if not isinstance(placed, NoFit):
        text = f"fits now; the next cycle looks at it after {ahead} job(s) ahead"
        return Explanation(job.id, job.state, "next_cycle", text, ahead=ahead, start_by_ms=now_ms)
    start_by_ms, note = start_bound(state, job, now_ms)
    return Explanation(
        job.id,
        job.state,
        "no_fit",
        no_fit_text(job.spec.ask, placed, cluster) + (f"; {ahead} job(s) ahead" if ahead else ""),
        refused=dict(placed.refused),
        replicas_possible=placed.replicas_possible,
        ahead=ahead,
        blockers=tuple(sorted(state.derived.active))[:8],
        suggestions=tuple(suggestions(job.spec.ask, cluster)),
        start_by_ms=start_by_ms,
        start_note=note,
    )


def no_fit_text(ask: GangAsk, nofit: NoFit, cluster: FreeCluster) -> str:
    """Return the refusals in words, with the distance to a start where it can be counted."""
    reasons = "; ".join(f"{count} node(s) {REASON_TEXT.get(code, code)}" for code, count in nofit.refused)
    need = ask.device_total
    if need:
        suited = [n for n in cluster.nodes.values() if not closed_reason(ask, n)]
        counts = [len(n.eligible(ask.each.devices)) for n in suited] if ask.each.devices else []
        free, most = sum(counts), max(counts, default=0)
        short = (
            f"needs {ask.replicas} x {ask.each.device_count} devices; {free} free in all, at most {most} on one node"
        )
        return f"{short}: {reasons}"
    return f"{nofit.replicas_possible} of {ask.replicas} replicas fit: {reasons}"


def jobs_ahead(state: State, job: Job, now_ms: int) -> int:
    """Return how many ready jobs of the same queue come before `job` by its policy."""
    policies = {q.name: q.policy for q in state.config.queues}
    policy = policies.get(job.spec.queue, "fifo")
    settings = state.config.settings
    mine = order_key(policy, job, settings, now_ms)
    count = 0
    for pending in state.derived.pending.values():
        if pending.key.queue == job.spec.queue:
            count += sum(order_key(policy, state.jobs[i], settings, now_ms) < mine for i in pending.jobs)
    return count


def suggestions(ask: GangAsk, cluster: FreeCluster) -> Iterable[str]:
    """Yield single edits of the request with which it would fit now, each proven by placing it."""

    def fits(changed: GangAsk) -> bool:
        return not isinstance(place_gang(changed, cluster), NoFit)

    fewer = next((k for k in range(ask.replicas - 1, 0, -1) if fits(replace(ask, replicas=k))), 0)
    if fewer:
        yield f"replicas: {fewer} (instead of {ask.replicas}) would start now"
    devices = ask.each.devices
    if devices is not None:
        for count in range(devices.count - 1, 0, -1):
            if fits(replace(ask, each=replace(ask.each, devices=replace(devices, count=count)))):
                yield f"devices: {count} a replica (instead of {devices.count}) would start now"
                break
        if devices.models and fits(replace(ask, each=replace(ask.each, devices=replace(devices, models=())))):
            yield "any device model would start now"
    if ask.topology and ask.topology.required and fits(replace(ask, topology=None)):
        yield f"without the required topology '{ask.topology.scope}' it would start now"
    if (ask.labels_wanted or ask.labels_shunned) and fits(replace(ask, labels_wanted=(), labels_shunned=())):
        yield "without the node labels it would start now"


def start_bound(state: State, job: Job, now_ms: int) -> tuple[int, str]:
    """Return by when capacity must be free for `job` (unix ms) and how that is known, or (0, why not).

    Running attempts are taken to end at their declared limit, or at their estimate where there is no limit;
    jobs without either count as never ending.
    """
    cluster = free_cluster(state)
    ends = sorted((_end_ms(j, now_ms), j.id) for j in map(state.jobs.__getitem__, state.derived.active))
    unknown = sum(1 for end_ms, _ in ends if not end_ms)
    for end_ms, job_id in ends:
        if not end_ms:
            continue
        running = state.jobs[job_id]
        cluster.put_back(running.spec.ask, held_places(running))
        if not isinstance(place_gang(job.spec.ask, cluster), NoFit):
            return max(end_ms, now_ms), "by the declared limits of running jobs, if nothing else comes ahead"
    if unknown:
        return 0, f"cannot be told: {unknown} running job(s) declare neither a time limit nor an estimate"
    return 0, "cannot be told: it does not fit even when all running jobs have ended"


def _end_ms(job: Job, now_ms: int) -> int:
    attempt = job.attempt
    length_ms = job.spec.time_limit_ms or job.spec.estimated_duration_ms
    if attempt is None or not length_ms:
        return 0
    return max(now_ms, (attempt.running_ms or now_ms) + length_ms)
