"""Decisions about secrets: set, removed, sealed with another key. Values come here sealed, and leave sealed."""

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from penstock.core.lifecycle.thresholds import Holding, over_share
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.access import RemoveSecret, SecretDone, SecretRequest, SetSecret
from penstock.core.messages.requests import Refusal
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.events import NotificationSet, SecretRemoved, SecretSet
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.secrets import Secret

SECRETS_MAX = 10_000
RESERVE = 1_000
"""Beyond that, for administrators."""
JOBS_NAMED = 3


def decide(tx: Transaction, request: SecretRequest) -> SecretDone | Refusal:
    """Carry a request out, or say why not."""
    match request:
        case SetSecret():
            return _set(tx, request.secret, administrator=request.administrator)
        case RemoveSecret():
            return _remove(tx, request)
    for former, sealed in zip(request.former, request.sealed, strict=True):
        if tx.state.secrets.by_holder.get(former.holder) == former:
            tx.emit(SecretSet(sealed))
    for before, after in zip(request.former_subscriptions, request.sealed_subscriptions, strict=True):
        if tx.state.subscriptions.by_key.get(before.key) == before:
            tx.emit(NotificationSet(after))
    return SecretDone()


def _set(tx: Transaction, secret: Secret, *, administrator: bool) -> SecretDone | Refusal:
    tenants = [tenant.name for tenant in tx.state.config.tenants]
    if secret.tenant and secret.tenant not in tenants:
        text = f"there is no tenant '{secret.tenant}'"
        hint = nearest(secret.tenant, tenants)
        return Refusal("invalid_input", (Problem("unknown_tenant", "tenant", text, secret.tenant, hint),))
    if secret.holder not in tx.state.secrets.by_holder:
        problem = _too_many(tx, secret, administrator=administrator)
        if problem is not None:
            return Refusal("invalid_input", (problem,))
    tx.emit(SecretSet(replace(secret, set_ms=tx.now_ms)))
    return SecretDone()


def _too_many(tx: Transaction, secret: Secret, *, administrator: bool) -> Problem | None:
    """Return why this holder may have no further secret: the maximum is reached, or the rest is for other holders."""
    known = tx.state.secrets
    used, most = len(known.by_holder), SECRETS_MAX + (RESERVE if administrator else 0)
    own = len(known.of_tenant(secret.tenant) if secret.tenant else known.of_user(secret.owner))
    hint = "remove unused ones"
    if used >= most:
        return Problem("too_many_secrets", "name", f"there are {used} secrets, and no more may be", secret.name, hint)
    who = f"tenant {secret.tenant}" if secret.tenant else f"user {secret.owner}"
    over = None if administrator else over_share([Holding(who, own)], used=used, most=most)
    if over is None:
        return None
    text = f"{who} has {own} secrets; the {over.left} that there may still be are for others"
    return Problem("share_used_up", "name", text, secret.name, hint)


def _remove(tx: Transaction, request: RemoveSecret) -> SecretDone | Refusal:
    secret = tx.state.secrets.by_holder.get((request.tenant, request.owner, request.name))
    if secret is None:
        return SecretDone(found=False)
    users = list(islice(_live_users(tx, secret), JOBS_NAMED + 1))
    if users:
        named = ", ".join(str(job_id) for job_id in users[:JOBS_NAMED])
        more = " and others" if len(users) > JOBS_NAMED else ""
        text = f"{secret.text} is needed by job {named}{more}"
        hint = "wait for them or cancel them, or set another value: what starts from then on gets that"
        return Refusal("conflict", (Problem("still_used", "name", text, secret.name, hint),))
    tx.emit(SecretRemoved(request.tenant, request.owner, request.name, request.by))
    return SecretDone()


def _live_users(tx: Transaction, secret: Secret) -> Iterator[JobId]:
    """Yield the live jobs that would have nothing by that name without it, by number."""
    known = tx.state.secrets
    if secret.tenant:
        jobs = tx.state.jobs.naming_secret(secret.name, tenant=secret.tenant)
    else:
        jobs = tx.state.jobs.naming_secret(secret.name, user=secret.owner)
    for job in jobs:
        owner = UserName("") if job.delegated else job.user
        if known.of(job.spec.tenant, owner, secret.name) == secret:
            shared = known.by_holder.get((job.spec.tenant, UserName(""), secret.name))
            if shared is None or shared == secret:
                yield job.id
