"""Turns the body of a request into a `Submit` for the control loop: rights, jobs, tenants, dependencies, size.

The right to submit is checked before the body, of bounded size, is read; the rest is for a thread.
"""

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace
from starlette.requests import Request

from penstock.control.cron import problems_of
from penstock.core.config.notifications import NAME as SCHEDULE_NAME
from penstock.core.config.notifications import NAME_EXPECTED
from penstock.core.lifecycle.asking import asked_problems
from penstock.core.lifecycle.defaults import default_queue, default_tenant
from penstock.core.lifecycle.requests import NewJob, unknown_job
from penstock.core.lifecycle.slots import with_slots
from penstock.core.messages.requests import Submit
from penstock.core.model.access import Scope
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import PROBLEMS_MAX, Problem, Problems, TooManyProblems, nearest
from penstock.core.model.folder_snapshots import NAME
from penstock.core.model.ids import JobId, QueueName, TenantName
from penstock.core.model.jobs import JobSpec
from penstock.core.model.quantities import listed
from penstock.core.model.schedule_rule import ScheduleRule
from penstock.core.model.schedules import Schedule
from penstock.core.state.idempotency import IDEMPOTENCY_KEPT_MS
from penstock.engines.processes.accounts import may_switch
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, invalid, jobs_of, large_body_of
from penstock.server.http.responses import ApiError
from penstock.server.routes.snapshots import holder_of, kept_by
from penstock.server.services.notifying.asked import destination_problems
from penstock.server.views.reads import Reads
from penstock.store.folder_snapshots import Holder

READ_AT_ONCE_BYTES = 1_024
"""A request of this size is read on the event loop, in some milliseconds at worst."""
ON_DISK = b"after_", b"snapshot"
"""In the body of a request of which something is looked up on the disk."""
READ_BESIDE_BYTES = 262_144
"""A larger request is read in turn with others of its kind."""


async def submit_of(
    backend: Backend, request: Request, who: Scope, idempotency_key: str = "", *, planned: bool = False
) -> Submit:
    """Return the `Submit` of a request, with all checks that need no decision done.

    Args:
        planned: it is not submitted: the folders that its jobs start in need not have been sent.
    Raises: ApiError with all problems; the body of a caller who may not submit is not read.
    """
    allow(who.submits_anywhere, "submit jobs")
    with await large_body_of(request, backend.bodies) as body:
        if len(body) <= READ_AT_ONCE_BYTES and not any(word in body for word in ON_DISK):
            return _submit(backend, body, who, idempotency_key, planned=planned)
        pool = backend.pools.reads if len(body) <= READ_BESIDE_BYTES else backend.pools.intake
        return await pool.run(_submit, backend, body, who, idempotency_key, planned=planned)


def _submit(backend: Backend, body: bytes, who: Scope, idempotency_key: str, *, planned: bool = False) -> Submit:
    config_seq = backend.state.config_seq  # before anything is looked up in that configuration
    config = backend.state.config
    entries, problems = with_slots(adopted(jobs_of(body), who, config), config)
    if problems:
        raise invalid(problems)
    if refused := _not_kept(entries, backend):
        raise invalid(refused)
    _check_inputs(backend, entries)
    _check_destinations(backend, entries, who)
    if not planned and any(new.schedule is not None for new in entries):
        raise invalid([_not_now(entries)])
    key = f"{who.user}/{idempotency_key}" if idempotency_key else ""
    known = backend.state.idempotency.get(key)  # a repeated request needs no room: its jobs exist
    repeated = known is not None and backend.clock.unix_ms() - known.time_ms < IDEMPOTENCY_KEPT_MS
    log_bytes = backend.gate.admit(entries, backend.state.jobs)
    if who.role != "admin" and not repeated:
        backend.gate.share(entries, log_bytes, backend.state.jobs, len(config.tenants))
    check_dependencies(entries, who, backend.reads)
    digest = hashlib.sha256(body).hexdigest() if key else ""
    account = account_for(who, config)
    made = Submit(entries, who.user, key, digest, account, who.delegated, who.role == "admin", log_bytes)
    if repeated:
        return made  # names unchecked: the key may be of another request, or expired by now
    if unprepared := _unprepared(entries, backend):
        raise invalid([unprepared])
    if not planned:
        made = replace(made, jobs=with_snapshots(entries, who, backend))
    problems = asked_problems(backend.state, made)
    if problems:
        raise invalid(problems)
    return replace(made, config_seq=config_seq)


def _check_inputs(backend: Backend, entries: Sequence[NewJob]) -> None:
    if backend.snapshots is None and (found := [entry for entry in entries if entry.spec.inputs]):
        raise invalid([_no_inputs(entry) for entry in found[:PROBLEMS_MAX]])
    if backend.snapshots is None and (found := [entry for entry in entries if entry.spec.image is not None]):
        raise invalid([_no_image(entry) for entry in found[:PROBLEMS_MAX]])


def _check_destinations(backend: Backend, entries: Sequence[NewJob], who: Scope) -> None:
    if problems := destination_problems(entries, who, backend.state):
        raise invalid(problems)


def _not_now(entries: Sequence[NewJob]) -> Problem:
    field = next(f"{new.field}.schedule".lstrip(".") for new in entries if new.schedule is not None)
    text = f"{field} is given: jobs with a schedule are not submitted now"
    return Problem(
        "scheduled", field, text, "", "penstock submit sets the schedule; so does PUT /api/v1/schedules/NAME"
    )


def schedule_of(backend: Backend, body: bytes, who: Scope, name: str) -> Schedule:
    """Return the schedule that a job file asks for, with all checks that need no decision done. For a thread.

    Raises: ApiError with what is wrong.
    """
    config = backend.state.config
    if not who.local and who.user not in config.user_by_name:
        hint = f"an administrator declares them: penstock admin add user {who.user} tenants.NAME=member"
        raise ApiError("forbidden", f"user {who.user} is not declared, and a schedule outlives a session", hint=hint)
    entries, problems = with_slots(adopted(jobs_of(body), who, config), config)
    rules = list(dict.fromkeys(new.schedule for new in entries if new.schedule is not None))
    if not problems:
        problems = _rule_problems(name, entries, rules)
    if problems:
        raise invalid(problems)
    _check_inputs(backend, entries)
    _check_destinations(backend, entries, who)
    account_for(who, config)
    jobs = tuple(replace(new, schedule=None) for new in with_snapshots(entries, who, backend))
    tenant = entries[0].spec.tenant
    return Schedule(name, who.user, replace(rules[0], name=name), jobs, tenant, operator=who.local)


def _rule_problems(name: str, entries: Sequence[NewJob], rules: Sequence[ScheduleRule]) -> list[Problem]:
    if not SCHEDULE_NAME.fullmatch(name):
        return [Problem("bad_value", "name", f"name is '{name[:80]}', expected {NAME_EXPECTED}", name[:80])]
    if len(rules) != 1:
        text = "schedule is missing" if not rules else f"these jobs have {len(rules)} different schedules"
        text += ", expected one: of one job, or in the defaults of all"
        return [Problem("missing_field", "schedule", text, "", "schedule: {cron: '0 3 * * *', zone: Europe/Berlin}")]
    if len({new.spec.tenant for new in entries}) > 1:
        text = "the jobs of a schedule belong to several tenants, expected one"
        return [Problem("bad_value", "tenant", text, "", "make a schedule for each")]
    return problems_of(rules[0])


def check_dependencies(entries: Sequence[NewJob], scope: Scope, reads: Reads) -> None:
    """Raise ApiError when jobs depend on jobs that the caller does not see, whether or not these exist.

    Reads the log: for a thread.
    """
    if scope.sees_all:
        return  # the control loop reports missing jobs
    known: dict[JobId, bool] = {}
    problems = Problems()
    try:
        for entry in entries:
            for one in entry.spec.after:
                for job_id in map(JobId, one.jobs):
                    if job_id not in known:
                        known[job_id] = reads.owner(scope, job_id) is not None
                    if not known[job_id]:
                        field = f"{entry.field}.{one.kind}" if entry.field else one.kind
                        problems.append(unknown_job(field, job_id))
    except TooManyProblems:
        raise invalid(problems.and_more()) from None
    if problems:
        raise invalid(problems)


def _unprepared(entries: Sequence[NewJob], backend: Backend) -> Problem | None:
    """Return a field that nodes of this server cannot meet, for they prepare nothing before programs start."""
    if backend.snapshots is not None:
        return None
    for entry in entries:
        spec, python = entry.spec, "conda" if entry.spec.python and entry.spec.python.conda else "python"
        for name, value in ((python, spec.python), ("setup", spec.setup)):
            if value:
                field = f"{entry.field}.{name}" if entry.field else name
                text = f"{field} is given, but the nodes of this server prepare nothing before a program starts"
                return Problem("bad_value", field, text, "", "put it into the image, or into the script")
    return None


def with_snapshots(entries: Sequence[NewJob], scope: Scope, backend: Backend) -> tuple[NewJob, ...]:
    """Return the jobs with whole names of the snapshots that they start in. Reads the disk: for a thread.

    Raises: ApiError when the caller has not sent one of them, or not all of it.
    """
    by = holder_of(scope)
    checked: dict[str, str] = {}
    filled: dict[int, JobSpec] = {}
    found = []
    for entry in entries:
        spec = entry.spec
        if spec.snapshot:
            if spec.snapshot not in checked:
                checked[spec.snapshot] = _whole_name(entry, by, backend)
            if id(spec) not in filled:  # entries alike may share their spec
                filled[id(spec)] = replace(spec, snapshot=checked[spec.snapshot])
            entry = replace(entry, spec=filled[id(spec)])
        found.append(entry)
    return tuple(found)


def _whole_name(entry: NewJob, by: Holder, backend: Backend) -> str:
    name = entry.spec.snapshot
    if kept_by(backend).has(by, name):
        return f"{by}/{name}"
    field = f"{entry.field}.workdir.snapshot" if entry.field else "workdir.snapshot"
    if NAME.fullmatch(name):
        text = f"{field} is '{name}', which you have not sent, or long ago: the server has no such snapshot"
    else:
        text = f"{field} is '{name[:80]}', expected the name of a snapshot that you have sent"
    hint = "penstock submit sends a folder and puts its name there; so does Client.submit"
    raise invalid([Problem("unknown_snapshot", field, text, name[:80], hint)])


def _no_image(entry: NewJob) -> Problem:
    field = f"{entry.field}.image" if entry.field else "image"
    text = f"{field} is given, but this server's jobs are pods of Kubernetes: their own templates name images"
    return Problem("bad_value", field, text, "", "name it in the pod's template")


def _not_kept(entries: Sequence[NewJob], backend: Backend) -> list[Problem]:
    """Return what of the jobs the engine cannot keep."""
    checked: dict[int, tuple[str, str] | None] = {}
    problems: list[Problem] = []
    for entry in entries:
        if id(entry.spec) not in checked:  # entries alike may share their spec
            checked[id(entry.spec)] = backend.not_kept(entry.spec)
        if (said := checked[id(entry.spec)]) is not None and len(problems) < PROBLEMS_MAX:
            name = f"{entry.field}.{said[0]}" if entry.field else said[0]
            problems.append(Problem("not_kept", name, said[1], "", "start it on a server with another engine"))
    return problems


def _no_inputs(entry: NewJob) -> Problem:
    field = f"{entry.field}.inputs" if entry.field else "inputs"
    text = f"{field} are given, but pods of this server get none: nodes of its cluster run no agent that fetches them"
    return Problem("bad_value", field, text, "", "mount a volume, or let an init container fetch them")


def account_for(scope: Scope, config: ClusterConfig) -> str:
    """Return the account as which the caller's jobs run; '' for that of the server.

    Only root can switch accounts. The server's own user runs jobs as the server; all others need a declared account.

    Raises: ApiError when none is.
    """
    if scope.local or not may_switch():
        return ""
    user = config.user_by_name.get(scope.user) if not scope.delegated else None
    name = (user.account if user is not None else "") or config.settings.job_account
    if not name and scope.delegated:
        text = f"a token that another user issued for {scope.user} does not run jobs as their account"
        raise ApiError(
            "forbidden", text, hint=f"{scope.user} makes one: penstock token create; or settings.job_account=NAME"
        )
    if not name:
        hint = f"penstock admin set user.{scope.user}.account=NAME, or settings.job_account=NAME for all without one"
        raise ApiError("forbidden", f"{scope.user} has no account of the machines to run jobs as", hint=hint)
    return name


def adopted(entries: Sequence[NewJob], scope: Scope, config: ClusterConfig) -> tuple[NewJob, ...]:
    """Return the jobs with the defaults of those that name no tenant or queue (`core/lifecycle/defaults.py`).

    Raises: ApiError when there is no default, and when the caller may not submit for one of their tenants. Only callers
        who see every tenant learn that it does not exist.
    """
    tenant, queue = TenantName(""), QueueName("")
    if any(entry.unnamed for entry in entries):
        tenant, queue = default_tenant(config, scope), default_queue(config, scope.user)
    filled: dict[tuple[int, bool, bool], JobSpec] = {}
    found = []
    for entry in entries:
        if entry.unnamed:
            open_tenant, open_queue = "tenant" in entry.unnamed, "queue" in entry.unnamed
            if (open_tenant and not tenant) or (open_queue and not queue):
                raise invalid(_without_default(entry, scope, config, tenant=tenant, queue=queue))
            key = (id(entry.spec), open_tenant, open_queue)  # entries alike may share their spec
            spec = filled.get(key)
            if spec is None:
                names = (tenant if open_tenant else entry.spec.tenant, queue if open_queue else entry.spec.queue)
                spec = filled[key] = _of(entry.spec, *names)
            entry = entry if spec is entry.spec else replace(entry, spec=spec, unnamed=())
        if not scope.submits(entry.spec.tenant):
            raise _not_theirs(entry, scope, config)
        found.append(entry)
    return tuple(found)


def _of(spec: JobSpec, tenant: TenantName, queue: QueueName) -> JobSpec:
    """Return the spec with a tenant and a queue; the same one where it has them."""
    return spec if (spec.tenant, spec.queue) == (tenant, queue) else replace(spec, tenant=tenant, queue=queue)


def _not_theirs(entry: NewJob, scope: Scope, config: ClusterConfig) -> ApiError:
    mine, name = _own_tenants(scope, config), entry.spec.tenant
    where = f"{entry.field}.tenant" if entry.field else "tenant"
    hint = nearest(name, mine) or (f"you may for {listed(mine)}" if mine else "ask for the role of a member")
    return ApiError("forbidden", f"{where} is '{name}': you may not submit jobs for it", hint=hint)


def _own_tenants(scope: Scope, config: ClusterConfig) -> list[TenantName]:
    return [tenant.name for tenant in config.tenants if scope.submits(tenant.name)]


def _without_default(
    entry: NewJob, scope: Scope, config: ClusterConfig, *, tenant: TenantName, queue: QueueName
) -> list[Problem]:
    """Return what an entry has to name, what there is to name, and how to set a default."""
    mine = _own_tenants(scope, config)
    problems = []
    if "tenant" in entry.unnamed and not tenant:
        text = f"names no tenant, and there is no default: you may submit jobs for {listed(mine) or 'none'}"
        problems.append(_to_name("tenant", entry, scope, config, text, mine))
    if "queue" in entry.unnamed and not queue:
        names = [one.name for one in config.queues]
        text = f"names no queue, and there is no default: there are {listed(names)}"
        problems.append(_to_name("queue", entry, scope, config, text, names))
    return problems


def _to_name(
    field: str, entry: NewJob, scope: Scope, config: ClusterConfig, text: str, names: Sequence[str]
) -> Problem:
    name = names[0] if names else "NAME"
    hint = f"--{field} {name}"
    if scope.administers:
        hint += f"; a default for all: penstock admin set settings.default_{field}={name}"
        if scope.user in config.user_by_name:
            hint += f"; for you: penstock admin set user.{scope.user}.default_{field}={name}"
    else:
        hint += f"; or ask an administrator for a default (default_{field})"
    where = f"{entry.field}.{field}" if entry.field else field
    return Problem("missing_field", where, f"{entry.field or 'the job'} {text}", "", hint)
