"""Decisions about users' requests: submit, cancel, drain. A refusal is a value and leaves nothing behind."""

from collections.abc import Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from penstock.core.ledger.past import past_problems
from penstock.core.lifecycle.asking import asked_problems, unknown_names
from penstock.core.lifecycle.ending import finish, refused_text
from penstock.core.lifecycle.never_fits import never_fits
from penstock.core.lifecycle.size import BOUNDS, RequestBounds, over_size, over_weight, runs_by_name, size_of, weight_of
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.lifecycle.unshared import not_shared, warnings_of
from penstock.core.messages.requests import NewJob as NewJob
from penstock.core.messages.requests import Refusal, Submitted
from penstock.core.messages.requests import Submit as Submit
from penstock.core.model.actions import REFUSAL_TEXT
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import PROBLEMS_MAX, Problem, Problems, TooManyProblems
from penstock.core.model.estimates import StartEstimate
from penstock.core.model.events import (
    AttemptStopRequested,
    JobCancelRequested,
    JobHeld,
    JobSubmitted,
    StartsEstimated,
)
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import Dependency, GangAsk, JobSpec, JobState, RequestClass, Scheduled
from penstock.core.model.quantities import BYTES, resource_text, split_resource
from penstock.core.order.expected_power import over_power, power_pool
from penstock.core.order.queues import QueueTree, holder_text
from penstock.core.place.capacity import empty, opened_shape
from penstock.core.place.gang import NoFit, place_gang
from penstock.core.place.index import ClusterIndex
from penstock.core.state.idempotency import IDEMPOTENCY_KEPT_MS
from penstock.core.state.state import State


def submit(
    tx: Transaction, request: Submit, finished: Mapping[JobId, JobState], bounds: RequestBounds = BOUNDS
) -> Submitted | Refusal:
    """Accept all jobs of the request or none.

    Args:
        finished: how the jobs ended that the request depends on and that are no longer in the state.
    """
    state = tx.state
    known = state.idempotency.get(request.idempotency_key) if request.idempotency_key else None
    if known is not None and tx.now_ms - known.time_ms < IDEMPOTENCY_KEPT_MS:
        if known.digest != request.digest:
            problem = Problem(
                "idempotency_key_reused",
                "Idempotency-Key",
                f"this key was used for another request at job {known.first_job}",
                request.idempotency_key,
                "use a new key for a new request",
            )
            return Refusal("conflict", (problem,))
        return Submitted(tuple(JobId(known.first_job + i) for i in range(known.count)), repeated=True)
    over = over_bounds(request, bounds)
    if over is not None:
        return Refusal("invalid_input", (over,))
    problems = _seen_problems(state, request) if request.seen else submit_problems(state, request, finished, bounds)
    if problems:
        return Refusal("invalid_input", tuple(problems))
    said = warnings_of(state, request.jobs, lambda: empty_cluster(state)) if not request.seen else ()
    return replace(accept(tx, request, finished), warnings=said)


def over_bounds(request: Submit, bounds: RequestBounds) -> Problem | None:
    """Return the first maximum that a request exceeds; its bytes are counted unless an earlier check did that."""
    size = size_of(request.jobs)
    over = over_size(size, bounds)
    if over is None and not request.log_bytes:
        over = over_weight(weight_of(request.jobs, bounds), size.jobs, bounds)
    return over


def jobs_named(request: Submit) -> set[JobId]:
    """Return the jobs that a request names by their numbers."""
    return {JobId(job_id) for new in request.jobs for one in new.spec.after for job_id in one.jobs}


def submit_problems(
    state: State, request: Submit, finished: Mapping[JobId, JobState], bounds: RequestBounds = BOUNDS
) -> list[Problem]:
    """Return why the jobs of a request of bounded size cannot be accepted; or nothing."""
    problems = Problems()
    seen: set[int] = set()
    served: set[tuple[object, ...]] = set()
    """What could start on this cluster: the jobs of a request differ by their names, mostly."""
    try:
        problems += asked_problems(state, request, bounds)
        for new in request.jobs if not problems else ():
            spec = new.spec
            if id(spec) in seen:
                continue
            seen.add(id(spec))
            prefix = f"{new.field}." if new.field else ""
            found = unknown_jobs(state, spec, prefix, finished) if spec.after else []
            asked = (spec.queue, spec.tenant, spec.ask, spec.alternatives, spec.checkpoint.shared)
            if not found and asked not in served:
                found = never_served(state, spec, prefix, hinted=bool(problems))
                apart = not_shared(state, spec, prefix, lambda: empty_cluster(state)) if not found else None
                found = [apart] if apart is not None else found
            if found:
                problems += found
            else:
                served.add(asked)
    except TooManyProblems:
        return problems.and_more()
    return problems


def _seen_problems(state: State, request: Submit) -> list[Problem]:
    """Return what is wrong with the names of jobs that wait for another scheduler; whether they fit is its matter."""
    return [problem for new in request.jobs for problem in unknown_names(state.config, new.spec, "")]


def unknown_jobs(state: State, spec: JobSpec, prefix: str, finished: Mapping[JobId, JobState]) -> list[Problem]:
    """Return the jobs that `spec` waits for and that never existed."""
    unknown = (
        unknown_job(prefix + one.kind, JobId(job_id))
        for one in spec.after
        for job_id in one.jobs
        if job_id not in state.jobs and job_id not in finished
    )
    return list(islice(unknown, PROBLEMS_MAX))


def never_served(state: State, spec: JobSpec, prefix: str, *, hinted: bool) -> list[Problem]:
    """Return why this cluster could never start `spec`, all of whose names are declared; or nothing.

    Args:
        hinted: without what would fit instead.
    """
    problems = over_maximum(state.empty_tree(), spec, prefix)
    if not problems and not state.config.settings.allow_waiting_for_nodes:
        refused = could_never_fit(state, spec.ask)
        if refused and all(could_never_fit(state, other) for other in spec.alternatives):
            problems.append(never_fits(state, empty_cluster(state), spec, prefix, refused, hinted=hinted))
    return problems


def unknown_job(field: str, job_id: JobId) -> Problem:
    """Return the problem of waiting for a job that does not exist."""
    text = f"job {job_id} does not exist, so nothing can wait for it"
    return Problem("unknown_job", field, text, str(job_id))


def over_maximum(tree: QueueTree, spec: JobSpec, prefix: str) -> list[Problem]:
    """Return why no shape of the job could start even in the queues of `tree`, which are empty; or nothing."""
    found = None
    for ask in (spec.ask, *spec.alternatives):
        account = tree.account(spec.queue, spec.tenant)
        assert account is not None, "the queue was looked up before"
        block = tree.exceeded(account, tree.demand(RequestClass(spec.queue, spec.tenant, spec.priority, ask)))
        if block is None:
            return []
        found = found or block
    assert found is not None
    pool = power_pool(found.resource)
    if pool:
        text, asked, hint = over_power(found, pool)
        return [Problem("over_power_limit", prefix + "devices", f"{text}: it could never start", asked, hint)]
    text = (
        f"{holder_text(found.queue)} may hold {amount_text(found.resource, found.limit)} of "
        f"{resource_text(found.resource)}, "
        f"this job asks for {amount_text(found.resource, found.asked)}: it could never start"
    )
    hint = "ask for less, or use another queue"
    return [Problem("over_maximum", prefix + "queue", text, spec.queue, hint)]


def amount_text(resource: str, amount: int) -> str:
    """Return an amount of a resource as quotas name it, such as `2.5` devices or `512 GiB` of memory or storage."""
    _, resource = split_resource(resource)
    if resource in BYTES:
        return f"{amount / 2**30:.4g} GiB"
    return str(amount) if resource == "jobs" else f"{amount / 1000:g}"


def could_never_fit(state: State, ask: GangAsk) -> tuple[tuple[str, int], ...]:
    """Return why no set of known nodes could hold `ask` even when all of them were empty, or ()."""
    cached = state.indexes.never_fits.get(ask)
    if cached is None:
        state.indexes.shapes_tried += 1
        placed = place_gang(ask, empty_cluster(state))
        cached = (placed.refused or (("no_nodes", 0),)) if isinstance(placed, NoFit) else ()
        if len(state.indexes.never_fits) > 10_000:
            state.indexes.never_fits.clear()
        state.indexes.never_fits[ask] = cached
    return cached


def empty_cluster(state: State) -> ClusterIndex:
    """Return every known node as if it were ready, held nothing and no device was closed: what could ever fit."""
    cluster = state.indexes.emptied
    if cluster is None:
        cluster = state.indexes.emptied = ClusterIndex()
        shapes = {name: opened_shape(state.nodes[name], free.shape) for name, free in state.indexes.free.items()}
        cluster.sync(state.indexes.nodes, {name: empty(shape) for name, shape in shapes.items()})
        cluster.holds_nothing = True
    return cluster


def accept(
    tx: Transaction, request: Submit, finished: Mapping[JobId, JobState], scheduled: Scheduled | None = None
) -> Submitted:
    """Make the jobs of a request that has no problems.

    Args:
        scheduled: the run of a schedule that they are.
    """
    first = tx.state.next_job
    total = sum(new.count for new in request.jobs)
    runs_of = runs_by_name(request.jobs, first) if any(new.after_names for new in request.jobs) else {}
    impossible: list[tuple[JobId, str]] = []
    for new in request.jobs:
        named = tuple(
            Dependency(job_id, kind, count) for name, kind in new.after_names for job_id, count in runs_of[name]
        )
        assert all(d.jobs.stop <= tx.state.next_job for d in named), "the parser sorts entries by dependency"
        spec = replace(new.spec, after=new.spec.after + named) if named else new.spec
        array_id = JobId(tx.state.next_job) if new.array else None
        why = refused_text(new.spec.after, finished)
        for index in range(new.count):
            job_id = JobId(tx.state.next_job)
            key = request.idempotency_key if job_id == first else ""
            digest = request.digest if key else ""
            batch = total if key else 1
            number = new.array_first + index * new.array_step
            tx.emit(
                JobSubmitted(
                    job_id,
                    spec,
                    request.user,
                    array_id,
                    number,
                    key,
                    digest,
                    batch,
                    request.account,
                    request.delegated,
                    scheduled,
                )
            )
            if new.held:
                tx.emit(JobHeld(job_id, request.user))
            if why:
                impossible.append((job_id, why))
    for job_id, why in impossible:
        if job_id in tx.state.jobs:
            finish(tx, tx.state.jobs[job_id], "cancelled", why)
    return Submitted(tuple(JobId(first + i) for i in range(total)))


def config_problems(state: State, config: ClusterConfig, now_ms: int) -> list[Problem]:
    """Return what a new configuration removes though live jobs still use it, and prices of the past it changes."""
    problems = []
    live = list(state.jobs.values())
    for field, kept, used in (
        ("queues", {q.name for q in config.queues}, {j.spec.queue for j in live}),
        ("tenants", {t.name for t in config.tenants}, {j.spec.tenant for j in live}),
        ("pools", {p.name for p in config.pools}, {j.spec.ask.pool for j in live}),
        ("users", {*config.user_by_name}, {j.user for j in live if j.user in state.config.user_by_name}),
    ):
        for name in sorted(used - kept):
            text = f"{field}: '{name}' is missing, and live jobs belong to it"
            problems.append(Problem("still_used", field, text, name, "keep it until they have ended"))
    return problems + past_problems(state.config.billing, config.billing, now_ms)


def cancel(tx: Transaction, job_id: JobId, by: UserName, reason: str = "") -> bool:
    """Ask for the end of a live job; return False when there is no such live job. Asking twice is fine."""
    job = tx.state.jobs.get(job_id)
    if job is None:
        return False
    if not job.cancel_requested:
        tx.emit(JobCancelRequested(job_id, by, reason))
    job = tx.state.jobs[job_id]
    if job.attempt is None:
        finish(tx, job, "cancelled", reason or f"cancelled by {by}")
    elif not job.attempt.scheduler and (job.attempt.stop is None or job.attempt.stop.reason != "cancelled"):
        tx.emit(AttemptStopRequested(job_id, job.attempt.number, "cancelled", job.spec.grace_ms))
    return True


def note_estimates(tx: Transaction, made_ms: int, estimates: Sequence[StartEstimate]) -> bool:
    """Log the estimates of jobs that still wait; return whether there are any."""
    jobs = tx.state.jobs
    kept = tuple(e for e in estimates if e.job_id in jobs and jobs[e.job_id].state == "waiting")
    if kept:
        tx.emit(StartsEstimated(made_ms, kept))
    return bool(kept)


def may_ask_checkpoint(state: State, job_id: JobId) -> Problem | None:
    """Return why a program cannot be asked to save and carry on, or None when it can."""
    job = state.jobs.get(job_id)
    if job is None or job.state != "running":
        text = f"job {job_id} {REFUSAL_TEXT['not_running'][0]}"
        return Problem("not_running", "job_id", text, str(job_id))
    if not job.save_signal:
        text = f"job {job_id} {REFUSAL_TEXT['cannot_checkpoint'][0]}"
        hint = "a session of penstock.training says it once it has begun; for other programs, declare "
        hint += "checkpoint.request_signal in the job file"
        return Problem("cannot_checkpoint", "checkpoint.request_signal", text, "", hint)
    return None
