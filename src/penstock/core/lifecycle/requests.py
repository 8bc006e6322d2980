"""Decisions about what people ask for: submit, cancel, drain. A refusal is a value and leaves nothing behind."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from penstock.core.amounts import BYTES, resource_text
from penstock.core.errors import PROBLEMS_MAX, Problem, Problems, TooManyProblems, nearest
from penstock.core.idempotency import IDEMPOTENCY_KEPT_MS
from penstock.core.ledger.past import past_problems
from penstock.core.lifecycle.ending import finish, refused_text
from penstock.core.lifecycle.size import NewJob as NewJob
from penstock.core.lifecycle.size import over_size, runs_by_name, size_of
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.cluster import ClusterConfig, Queue, split_resource
from penstock.core.model.estimates import StartEstimate
from penstock.core.model.events import (
    AttemptStopRequested,
    JobCancelRequested,
    JobSubmitted,
    StartsEstimated,
)
from penstock.core.model.ids import JobId, QueueName, TenantName, UserName
from penstock.core.model.jobs import Dependency, GangAsk, JobSpec, JobState, RequestClass
from penstock.core.order.tree import holder_text
from penstock.core.place.fit import REASON_TEXT
from penstock.core.place.free import empty
from penstock.core.place.gang import NoFit, place_gang
from penstock.core.place.index import FreeCluster
from penstock.core.state import State
from penstock.core.thresholds import Claim, over_share

SHAPES_MAX = 1_000
"""Different shapes of jobs in one request: each is tried on the empty cluster."""
REPLICAS_TRIED_MAX = 100_000
"""Replicas of these shapes together."""


class Submit(msgspec.Struct, frozen=True):
    jobs: tuple[NewJob, ...]
    user: UserName
    idempotency_key: str = ""
    digest: str = ""
    account: str = ""
    """As which the jobs run on the machines; empty: as that of the agents."""
    delegated: bool = False
    """By a token that somebody else made for the user: the jobs get none of the user's own secrets."""
    administrator: bool = False
    """Shares of what all use are not held against whoever keeps the cluster."""
    log_bytes: int = 0
    """What it adds to the log, where that was worked out before."""


class Refusal(msgspec.Struct, frozen=True):
    """Nothing was done; `problems` says all that is wrong. `code` maps to an HTTP status."""

    code: str
    problems: tuple[Problem, ...]


class Submitted(msgspec.Struct, frozen=True):
    job_ids: tuple[JobId, ...]
    repeated: bool = False
    """The same request came before under this key; these are the jobs it made then."""


def submit(tx: Transaction, request: Submit, finished: Mapping[JobId, JobState]) -> Submitted | Refusal:
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
    over = over_size(size_of(request.jobs))
    if over is not None:
        return Refusal("invalid_input", (over,))
    problems = _submit_problems(state, request, finished)
    if problems:
        return Refusal("invalid_input", tuple(problems))
    return _accept(tx, request, finished)


def jobs_named(request: Submit) -> set[JobId]:
    """Return the jobs that a request names by their numbers."""
    return {JobId(job_id) for new in request.jobs for one in new.spec.after for job_id in one.jobs}


def _submit_problems(state: State, request: Submit, finished: Mapping[JobId, JobState]) -> list[Problem]:
    problems = Problems()
    try:
        _find_problems(state, request, finished, problems)
    except TooManyProblems:
        return problems.and_more()
    return problems


def _find_problems(state: State, request: Submit, finished: Mapping[JobId, JobState], problems: list[Problem]) -> None:
    checked: set[int] = set()
    shapes: set[GangAsk] = set()
    replicas = 0
    coming: dict[QueueName, Counter[TenantName]] = {}
    for new in request.jobs:
        coming.setdefault(new.spec.queue, Counter())[new.spec.tenant] += new.count
        if id(new.spec) not in checked:
            checked.add(id(new.spec))
            for ask in (new.spec.ask, *new.spec.alternatives):
                replicas += ask.replica_total if ask not in shapes else 0
                shapes.add(ask)
            if len(shapes) > SHAPES_MAX or replicas > REPLICAS_TRIED_MAX:
                problems.append(_too_many_shapes(new.field))
                return
            problems += spec_problems(state, new.spec, new.field, finished)
            problems += _unknown_secrets(state, new, UserName("") if request.delegated else request.user)
    for queue in state.config.queues:
        if queue.name in coming:
            problems += _no_room(state, queue, coming[queue.name], request)


def _too_many_shapes(field: str) -> Problem:
    text = f"one request may ask for {SHAPES_MAX} different shapes of jobs, of {REPLICAS_TRIED_MAX} replicas together"
    return Problem("too_many_shapes", field, text, "", "round what the jobs ask for, or submit fewer at once")


def _no_room(state: State, queue: Queue, coming: Mapping[TenantName, int], request: Submit) -> list[Problem]:
    """Return why a queue takes no more waiting jobs: it is full, or what is left is for others."""
    waiting, more = state.jobs.queued(queue.name), sum(coming.values())
    if waiting + more > queue.max_waiting:
        text = f"queue '{queue.name}' holds {waiting} of at most {queue.max_waiting} waiting jobs"
        return [Problem("queue_full", "queue", text, queue.name, "submit again when some have run")]
    claims = []
    if len(state.config.tenants) > 1:
        claims = [Claim(f"tenant '{name}'", state.jobs.queued(queue.name, tenant=name)) for name in sorted(coming)]
    if len(state.config.users) > 1:
        claims.append(Claim(request.user, state.jobs.queued(queue.name, user=request.user)))
    over = None if request.administrator else over_share(claims, used=waiting, most=queue.max_waiting, more=more)
    if over is None:
        return []
    text = f"{over.who} has {over.own} waiting jobs in queue '{queue.name}'; {more} more would leave too few of its "
    text += f"{over.left} free places to others"
    return [Problem("share_used_up", "queue", text, queue.name, "submit again when some have run, or fewer at once")]


def spec_problems(state: State, spec: JobSpec, where: str, finished: Mapping[JobId, JobState]) -> list[Problem]:
    """Return everything about `spec` that this cluster cannot serve, with paths below `where`."""
    config, problems = state.config, []
    prefix = f"{where}." if where else ""
    for field, value, names in (
        ("queue", spec.queue, config.queue_by_name),
        ("tenant", spec.tenant, [t.name for t in config.tenants]),
        ("pool", spec.ask.pool, [p.name for p in config.pools]),
    ):
        if value not in names:
            text = f"there is no {field} '{value}'"
            problems.append(Problem(f"unknown_{field}", prefix + field, text, value, nearest(value, list(names))))
    unknown = (
        unknown_job(prefix + one.kind, JobId(job_id))
        for one in spec.after
        for job_id in one.jobs
        if job_id not in state.jobs and job_id not in finished
    )
    problems += islice(unknown, PROBLEMS_MAX)
    if not problems:
        problems += _over_maximum(state, spec, prefix)
    if not problems and not config.settings.allow_waiting_for_nodes:
        refused = could_never_fit(state, spec.ask)
        if refused and all(could_never_fit(state, other) for other in spec.alternatives):
            problems.append(_never_fits(state, spec, prefix, refused))
    return problems


def _unknown_secrets(state: State, new: NewJob, user: UserName) -> list[Problem]:
    problems = []
    prefix = f"{new.field}." if new.field else ""
    for variable, name in new.spec.secrets:
        if state.secrets.of(new.spec.tenant, user, name) is None:
            text = f"there is no secret '{name}' of {user} or of tenant {new.spec.tenant}"
            if not user:
                text = f"there is no secret '{name}' of tenant {new.spec.tenant}, and this token reaches no others"
            hint = f"penstock secret set {name}; penstock secret list shows those that are there"
            problems.append(Problem("unknown_secret", f"{prefix}secrets.{variable}", text, name, hint))
    return problems


def unknown_job(field: str, job_id: JobId) -> Problem:
    """Return what is wrong with waiting for a job that does not exist."""
    text = f"job {job_id} does not exist, so nothing can wait for it"
    return Problem("unknown_job", field, text, str(job_id))


def _over_maximum(state: State, spec: JobSpec, prefix: str) -> list[Problem]:
    """Return why no shape of the job could start even if nobody else used the queues above it, or nothing."""
    tree = state.empty_tree()
    found = None
    for ask in (spec.ask, *spec.alternatives):
        branch = tree.part(tree.branches[spec.queue], spec.tenant)
        block = tree.block(branch, tree.demand(RequestClass(spec.queue, spec.tenant, spec.priority, ask)))
        if block is None:
            return []
        found = found or block
    assert found is not None
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
    cached = state.derived.never_fits.get(ask)
    if cached is None:
        placed = place_gang(ask, empty_cluster(state))
        cached = (placed.refused or (("no_nodes", 0),)) if isinstance(placed, NoFit) else ()
        if len(state.derived.never_fits) > 10_000:
            state.derived.never_fits.clear()
        state.derived.never_fits[ask] = cached
    return cached


def empty_cluster(state: State) -> FreeCluster:
    """Return every known node as if it were ready and held nothing: what could ever fit."""
    cluster = state.derived.emptied
    if cluster is None:
        cluster = state.derived.emptied = FreeCluster()
        cluster.sync(state.derived.nodes, {name: empty(free.shape) for name, free in state.derived.free.items()})
    return cluster


def _never_fits(state: State, spec: JobSpec, prefix: str, refused: tuple[tuple[str, int], ...]) -> Problem:
    counted = ", ".join(f"{count} {REASON_TEXT.get(reason, reason)}" for reason, count in refused)
    biggest = max((len(n.spec.devices) for n in state.nodes.values()), default=0)
    each = spec.ask.each
    wanted = f"{spec.ask.replicas} x ({each.device_count} devices, {each.host.cpu_milli / 1000:g} CPUs, "
    wanted += f"{each.host.memory_bytes / 2**30:.3g} GiB)"
    return Problem(
        "never_fits",
        prefix + "replicas" if spec.ask.replicas > 1 else prefix + "devices",
        f"no nodes of pool '{spec.ask.pool}' could hold {wanted}, even when empty: of its nodes {counted}",
        wanted,
        f"the pool has {len(state.nodes)} nodes, the largest with {biggest} devices",
    )


def _accept(tx: Transaction, request: Submit, finished: Mapping[JobId, JobState]) -> Submitted:
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
            tx.emit(
                JobSubmitted(
                    job_id, spec, request.user, array_id, index, key, digest, batch, request.account, request.delegated
                )
            )
            if why:
                impossible.append((job_id, why))
    for job_id, why in impossible:
        if job_id in tx.state.jobs:
            finish(tx, tx.state.jobs[job_id], "cancelled", why)
    return Submitted(tuple(JobId(first + i) for i in range(total)))


def config_problems(state: State, config: ClusterConfig, now_ms: int) -> list[Problem]:
    """Return what a new configuration takes away though live jobs still need it, and prices of the past it changes."""
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
    elif job.attempt.stop is None or job.attempt.stop.reason != "cancelled":
        tx.emit(AttemptStopRequested(job_id, job.attempt.number, "cancelled", job.spec.grace_ms))
    return True


def note_estimates(tx: Transaction, made_ms: int, estimates: Sequence[StartEstimate]) -> bool:
    """Note what was said of jobs that still wait; return whether there are any."""
    jobs = tx.state.jobs
    kept = tuple(e for e in estimates if e.job_id in jobs and jobs[e.job_id].state == "waiting")
    if kept:
        tx.emit(StartsEstimated(made_ms, kept))
    return bool(kept)


def may_ask_checkpoint(state: State, job_id: JobId) -> Problem | None:
    """Return why a program cannot be asked to save and carry on, or None when it can."""
    job = state.jobs.get(job_id)
    if job is None or job.state != "running":
        text = f"job {job_id} is not running, so there is nothing to save"
        return Problem("not_running", "job_id", text, str(job_id))
    if not job.spec.checkpoint.request_signal:
        text = f"job {job_id} does not say which signal makes it save and carry on"
        hint = "declare checkpoint.request_signal in the job file"
        return Problem("cannot_checkpoint", "checkpoint.request_signal", text, "", hint)
    return None
