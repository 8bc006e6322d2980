"""Why a job is in its state: all binding constraints, with distances; edits that start it now; when it may start."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from penstock.core.cycle.planner import Planner
from penstock.core.explain import line
from penstock.core.explain.edits import smallest_edits
from penstock.core.explain.limits import limits
from penstock.core.explain.models import model_text
from penstock.core.explain.reasons import CONSTRAINTS, STOP_RULES
from penstock.core.explain.rights import rights
from penstock.core.explain.scene import Scene
from penstock.core.explain.shortage import shortages
from penstock.core.explain.sizes import what_changes, why_this_size
from penstock.core.explain.start import WAITING_SEEN_MAX, Estimator, start_bound
from penstock.core.health.anomaly import is_untouched
from penstock.core.model.explanation import Awaiting, Constraint, Explanation, Stop
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import Attempt, Job, StopOrder
from penstock.core.model.quantities import format_duration, format_size, format_time, listed
from penstock.core.model.refused import refused_text
from penstock.core.model.words import counted
from penstock.core.order.extension import Policies
from penstock.core.place.fit import eligible
from penstock.core.state.idleness import makes_room, said
from penstock.core.state.snapshot import Snapshot, snapshot_beside
from penstock.core.state.state import State
from penstock.core.status.alerts import EmptyCluster

PLANNER_USES_MAX = 64
"""Explanations after which a planner is made anew: it remembers every request that was tried."""
_FITS = ("next_cycle", "decided_elsewhere")
"""Codes of jobs for which a cycle would decide now."""
_RANK = {code: rank for rank, code in enumerate(CONSTRAINTS)}


class Question(msgspec.Struct, frozen=True):
    """The input of one explanation: a cut that does not change while the state moves on."""

    job: Job
    snapshot: Snapshot
    dependencies: tuple[Awaiting, ...]
    """Its live dependencies."""
    blocked: tuple[Job, ...]
    """As `line.blocked_jobs` returns them."""
    awaited: frozenset[JobId]
    """Running jobs that others depend on: their ends let more jobs in."""
    now_ms: int
    shadow: bool = False
    """Another scheduler decides: what a cycle would do is only what Penstock would do."""


def question_of(state: State, job: Job, now_ms: int) -> Question:
    """Return the question why `job` is in its state."""
    blocked = line.blocked_jobs(state, WAITING_SEEN_MAX + 1)  # first: who is ready by now is counted all the same
    snapshot = snapshot_beside(state)
    runs = state.indexes.dependants.runs
    awaited = frozenset(job_id for job_id in snapshot.running if job_id in runs)
    shadow = state.identity.shadow
    return Question(job, snapshot, line.awaiting(state, job), blocked, awaited, now_ms, shadow)


class Explainer:
    """Answers questions. Its indexes are a cache: the answer depends on the question alone. For one thread."""

    def __init__(self, policies: Policies | None = None, estimator: Estimator | None = None) -> None:
        self._policies: Policies = policies or {}
        self._estimator = estimator
        self._planner = Planner(self._policies)
        self._uses = 0
        self._idle: EmptyCluster | None = None

    def explain(self, question: Question) -> Explanation:
        """Return why the job is in its state."""
        job = question.job
        if job.state != "waiting":
            return _not_waiting(job, question.snapshot, question.now_ms)
        if job.hold is not None:
            by, since = job.hold.by, format_time(job.hold.since_ms)
            found = Constraint("held", f"held by {by} since {since}: penstock release {job.id}")
            return Explanation(job.id, job.state, found.code, found.text, (found,))
        if job.waits_turn and not job.unmet:
            text = (
                f"array {job.array_id} runs {job.spec.array_parallel} of its jobs at a time, and others come before it"
            )
            return Explanation(job.id, job.state, "array_turn", text, (Constraint("array_turn", text),))
        hold = question.snapshot.held.get(job.spec.tenant)
        if hold is not None:
            found = Constraint("tenant_held", hold.text, where=job.spec.tenant)
            return Explanation(job.id, job.state, found.code, hold.text, (found,))
        if self._uses >= PLANNER_USES_MAX:
            self._planner, self._idle, self._uses = Planner(self._policies), None, 0
        self._uses += 1
        base = self._planner.plan(question.snapshot, question.now_ms)
        scene = Scene(question.snapshot, job, question.now_ms, self._planner, base)
        return self._waiting(scene, question, self._idle_of(question.snapshot, question.now_ms))

    def _idle_of(self, snapshot: Snapshot, now_ms: int) -> EmptyCluster:
        config, nodes, powers = snapshot.config, snapshot.nodes, snapshot.pool_powers
        if self._idle is None or not self._idle.holds(config, nodes, now_ms, powers):
            self._idle = EmptyCluster(config, nodes, snapshot.free, now_ms, powers)
        return self._idle

    def _waiting(self, scene: Scene, question: Question, idle: EmptyCluster) -> Explanation:
        ahead, first = line.jobs_ahead(scene, self._policies)
        found, blockers = _constraints(scene, question, idle)
        fits = found[0].code in _FITS
        if ahead and not fits:
            found.append(line.behind(scene, ahead, first))
        code, codes = _code(found), {c.code for c in found}
        codes |= {"decided_elsewhere"} if question.shadow else set()
        start = start_bound(scene, codes, question.dependencies, question.blocked)
        estimate = self._estimator(scene) if self._estimator is not None else None
        refused = scene.count_refused() if not fits else {}
        text = _headline(scene, found, refused) + (
            f"; {counted(ahead, 'job')} ahead" if ahead and code == "no_fit" else ""
        )
        text += model_text(scene.job, question.snapshot) if fits or code == "no_fit" else ""
        possible = scene.replicas_possible
        edits, note = (
            ((), "")
            if any(CONSTRAINTS[one.code].settled for one in found)
            else smallest_edits(scene, self._policies, question.awaited)
        )
        return Explanation(
            scene.job.id,
            scene.job.state,
            code,
            text,
            tuple(found),
            refused,
            possible,
            ahead,
            first,
            blockers,
            edits,
            note,
            start.by_ms,
            start.note,
            (estimate[0], estimate[2]) if estimate is not None else None,
            estimate[1] if estimate is not None else 0,
        )


def explain(state: State, job: Job, now_ms: int, policies: Policies | None = None) -> Explanation:
    """Return why `job` is in its state, judged on the present state of the cluster."""
    return Explainer(policies).explain(question_of(state, job, now_ms))


# Waiting jobs.


def _constraints(scene: Scene, question: Question, idle: EmptyCluster) -> tuple[list[Constraint], tuple[JobId, ...]]:
    """Return the constraints that keep the job from starting, the deciding one first, and the jobs it waits for."""
    job = scene.job
    found: list[Constraint] = []
    blockers: list[JobId] = [job_id for one in question.dependencies for job_id, _ in one.first]
    if job.unmet:
        found.append(line.dependency(question.dependencies))
    if job.not_before_ms > scene.now_ms:
        found.append(line.backing_off(job, scene.now_ms))
    if not found and scene.starts:
        if question.shadow:
            return [line.decided_elsewhere(scene)], ()
        return [Constraint("next_cycle", "fits now: the next cycle starts it")], ()
    verdict = scene.base.verdicts.get(job.class_id)
    making = job.id in scene.base.held
    if making:
        constraint, victims = line.making_room(scene)
        if question.shadow:
            constraint = line.decided_elsewhere(scene, victims)
        found.append(constraint)
        blockers += victims
    elif verdict is not None and verdict.code == "cycle_full":
        most = scene.settings.starts_per_cycle_max
        found.append(
            Constraint("cycle_full", f"the cycle starts at most {most} jobs; the next one continues", most, "jobs")
        )
    found += limits(scene)
    found += shortages(scene)
    for constraint, jobs in (*line.barred(scene), *line.kept(scene)):
        found.append(constraint)
        blockers += jobs
    if not making and (not found or any(not CONSTRAINTS[c.code].timed for c in found)):
        found += _beyond(scene, found, idle)
    found.sort(key=lambda c: _RANK[c.code])
    return found, tuple(dict.fromkeys(blockers))[: line.BLOCKERS_MAX]


def _beyond(scene: Scene, found: list[Constraint], idle: EmptyCluster) -> list[Constraint]:
    """Return why it can never start, or why no job leaves for it; without other constraints, the cycle's verdict."""
    more = [Constraint("never", f"can never start as things are: {never.text}") for never in idle.never(scene.key)]
    if not more:
        more += rights(scene)
    if not found:
        verdict = scene.base.verdicts.get(scene.job.class_id)
        blocker = verdict.blocker if verdict is not None else None
        text = "the cycle found no capacity for it after the jobs before it"
        text += f"; room is kept for job {blocker}" if blocker is not None else ""
        more.append(Constraint("no_fit", text))
    return more


def _code(found: list[Constraint]) -> str:
    """Return the code of the deciding constraint: all shortages share one code, constraints have the details."""
    return "no_fit" if CONSTRAINTS[found[0].code].shortage else found[0].code


def _headline(scene: Scene, found: list[Constraint], refused: Mapping[str, int]) -> str:
    if not CONSTRAINTS[found[0].code].shortage:
        return found[0].text
    reasons = refused_text(refused.items())
    gang, cluster = scene.gang, scene.real()
    ask = gang.each.devices
    if gang.others or (ask is not None and not ask.whole):
        return f"{found[0].text}: {reasons}"
    if ask is None:
        return f"{scene.replicas_possible} of {gang.replicas} replicas fit: {reasons}"
    states = Counter(cluster.state_of[node] for node in scene.open_nodes)
    counts = {state: len(eligible(ask, cluster.table.frees[state])) for state in states}
    free, most = sum(counts[state] * nodes for state, nodes in states.items()), max(counts.values(), default=0)
    return f"needs {gang.replicas} x {ask.count} devices; {free} free in all, at most {most} on one node: {reasons}"


# Jobs that hold places.


def _not_waiting(job: Job, snapshot: Snapshot, now_ms: int) -> Explanation:
    attempt = job.attempt
    if attempt is None:
        return Explanation(job.id, job.state, job.state, f"attempt {job.last_attempt} has just ended")
    where = ", ".join(sorted({r.place.node for r in attempt.replicas}))
    if attempt.suspended_ms and attempt.stop is None:
        return _suspended(job, attempt, snapshot, now_ms)
    if attempt.stop is None:
        text = f"attempt {attempt.number} is {job.state} on {where}"
        text += why_this_size(job, attempt, snapshot, now_ms) + _prepares(job, attempt) + model_text(job, snapshot)
        text += _shares(attempt, snapshot) + _untouched(job, now_ms) + _idle(job, snapshot, now_ms)
        return Explanation(job.id, job.state, job.state, text)
    stop = attempt.stop
    left_ms = max(0, stop.requested_ms + stop.grace_ms - now_ms)
    told = Stop(stop.reason, stop.rule, stop.beneficiary, stop.cost, left_ms)
    changes = what_changes(job, attempt, snapshot)
    text = f"attempt {attempt.number} on {where} is being stopped: {why_stopped(stop)}{changes}"
    blockers = () if stop.beneficiary is None else (stop.beneficiary,)
    return Explanation(job.id, job.state, stop.reason, text, blockers=blockers, stop=told)


def _prepares(job: Job, attempt: Attempt) -> str:
    """Return what nodes make ready before the programs of an attempt can start there."""
    spec, waiting = job.spec, {r.place.node for r in attempt.replicas if r.state == "allocated"}
    needs = {
        "folder": spec.snapshot,
        "inputs": spec.inputs,
        "Python environment": spec.python,
        "setup": spec.setup,
    }
    wanted = [name for name, needed in needs.items() if needed]
    if not waiting or not wanted:
        return ""
    verb = "prepares" if len(waiting) == 1 else "prepare"
    return f"; {listed(sorted(waiting))} {verb} its {listed(wanted)} first: penstock logs {job.id} says how far"


def _shares(attempt: Attempt, snapshot: Snapshot) -> str:
    pairing = attempt.pairing
    if pairing is None:
        return ""
    place = attempt.replicas[0].place
    held = f"{format_size(pairing.memory_bytes)} of device {place.devices[0]} of {place.node}"
    other = snapshot.running.get(pairing.other)
    theirs = other.attempt.pairing if other is not None and other.attempt is not None else None
    if theirs is None:
        return f"; it holds half of it with {held}: job {pairing.other}, which shared it, has left"
    return f"; it shares {held} with job {pairing.other}: {pairing.why}"


def _untouched(job: Job, now_ms: int) -> str:
    return f"; it has never used {counted(job.use.untouched, 'device')} of its own" if is_untouched(job, now_ms) else ""


def _idle(job: Job, snapshot: Snapshot, now_ms: int) -> str:
    found = said(job, now_ms)
    if found and makes_room(job, snapshot.config.idle_rules, now_ms):
        found += "; it saves and leaves as soon as a job waits that is not below it and fits there"
    return f"; {found}" if found else ""


def _suspended(job: Job, attempt: Attempt, snapshot: Snapshot, now_ms: int) -> Explanation:
    needs: dict[NodeName, int] = {}
    for replica in attempt.replicas:
        if replica.holds:
            name = replica.place.node
            needs[name] = needs.get(name, 0) + job.placed.each_of(replica.rank).host.cpu_milli
    settings = snapshot.config.settings
    short: list[str] = []
    for name, milli in sorted(needs.items()):
        free = snapshot.free.get(name)
        has = free.cpu_milli if free is not None and not free.closed else 0
        short.append(f"{milli / 1000:g} CPUs on {name}, where {has / 1000:g} are free")
    memory = format_size(job.ask.host_total.memory_bytes)
    since_ms = now_ms - attempt.suspended_ms
    cause = f" for job {attempt.suspended_for}" if attempt.suspended_for is not None else ""
    text = f"attempt {attempt.number} is suspended{cause} since {format_duration(since_ms)}, frozen with {memory} of "
    text += f"memory; it resumes with {'; '.join(short)}. After {format_duration(settings.suspended_max_ms)} it saves "
    text += "and leaves, to resume wherever there is capacity"
    blockers = () if attempt.suspended_for is None else (attempt.suspended_for,)
    return Explanation(job.id, job.state, "suspended", text, blockers=blockers)


def why_stopped(stop: StopOrder) -> str:
    """Return why an attempt is being stopped, with its beneficiary, the rule and the cost."""
    text = stop.reason.replace("_", " ")
    if stop.beneficiary is not None:
        text += f" for job {stop.beneficiary}"
    if stop.rule in STOP_RULES:
        text += f", by rule {stop.rule}: {STOP_RULES[stop.rule]}"
    elif stop.rule:
        text += f": {stop.rule}"
    if stop.cost:
        text += f"; it costs {stop.cost / 1000:.1f} device-seconds"
    return text
