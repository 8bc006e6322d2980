"""Turns the body of a request into a `Submit` for the control loop: rights, jobs, tenants, dependencies, size.

The right to submit is checked before the body, of bounded size, is read; the rest is for a thread.
"""

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace
from starlette.requests import Request

from penstock.core.lifecycle.asking import asked_problems
from penstock.core.lifecycle.requests import NewJob, unknown_job
from penstock.core.messages.requests import Submit
from penstock.core.model.access import Scope
from penstock.core.model.cluster import DEFAULT_TENANT, ClusterConfig
from penstock.core.model.errors import Problems, TooManyProblems, nearest
from penstock.core.model.ids import JobId
from penstock.core.state.idempotency import IDEMPOTENCY_KEPT_MS
from penstock.engines.processes.accounts import may_switch
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, invalid, jobs_of, large_body_of
from penstock.server.http.responses import ApiError
from penstock.server.views.reads import Reads

READ_AT_ONCE_BYTES = 1_024
"""A request of this size is read on the event loop, in some milliseconds at worst."""
READ_BESIDE_BYTES = 262_144
"""A larger request is read in turn with others of its kind."""


async def submit_of(backend: Backend, request: Request, who: Scope, idempotency_key: str = "") -> Submit:
    """Return the `Submit` of a request, with all checks that need no decision done.

    Raises: ApiError with all problems; the body of a caller who may not submit is not read.
    """
    allow(who.submits_anywhere, "submit jobs")
    with await large_body_of(request, backend.bodies) as body:
        if len(body) <= READ_AT_ONCE_BYTES and b"after_" not in body:  # dependencies are looked up on the disk
            return _submit(backend, body, who, idempotency_key)
        pool = backend.pools.reads if len(body) <= READ_BESIDE_BYTES else backend.pools.intake
        return await pool.run(_submit, backend, body, who, idempotency_key)


def _submit(backend: Backend, body: bytes, who: Scope, idempotency_key: str) -> Submit:
    config_seq = backend.state.config_seq  # before anything is looked up in that configuration
    config = backend.state.config
    entries = adopted(jobs_of(body), who, config)
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
    problems = asked_problems(backend.state, made)
    if problems:
        raise invalid(problems)
    return replace(made, config_seq=config_seq)


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
    """Return the jobs, those that name no tenant for the only one for which the caller may submit.

    Raises: ApiError when the caller may not submit for one of their tenants. Only callers who see every tenant learn
        that it does not exist.
    """
    mine = [tenant.name for tenant in config.tenants if scope.submits(tenant.name)]
    found = []
    for entry in entries:
        tenant = entry.spec.tenant
        if not scope.submits(tenant) and tenant == DEFAULT_TENANT and len(mine) == 1:
            entry = replace(entry, spec=replace(entry.spec, tenant=mine[0]))
        elif not scope.submits(tenant):
            where = f"{entry.field}.tenant" if entry.field else "tenant"
            text = f"{where} is '{tenant}': you may not submit jobs for it"
            hint = nearest(tenant, mine) or (
                f"you may for {', '.join(mine)}" if mine else "ask for the role of a member"
            )
            raise ApiError("forbidden", text, hint=hint)
        found.append(entry)
    return tuple(found)
