"""Decisions about secrets: set, removed, sealed with another key. Values come here sealed, and leave sealed."""

import msgspec
from msgspec.structs import replace

from penstock.core.errors import Problem, nearest
from penstock.core.lifecycle.requests import Refusal
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.events import SecretRemoved, SecretSet
from penstock.core.model.ids import JobId, TenantName, UserName
from penstock.core.model.secrets import Secret

SECRETS_MAX = 10_000
JOBS_NAMED = 3


class SetSecret(msgspec.Struct, frozen=True):
    """Sealed by whoever asks."""

    secret: Secret


class RemoveSecret(msgspec.Struct, frozen=True):
    tenant: TenantName
    owner: UserName
    name: str
    by: UserName


class ResealSecrets(msgspec.Struct, frozen=True):
    """The same values, sealed with another key. What was set or removed in between is left as it is."""

    former: tuple[Secret, ...]
    sealed: tuple[Secret, ...]


SecretRequest = SetSecret | RemoveSecret | ResealSecrets


class SecretDone(msgspec.Struct, frozen=True):
    """It is in the log. `found` is False when there was no such secret."""

    found: bool = True


def decide(tx: Transaction, request: SecretRequest) -> SecretDone | Refusal:
    """Carry a request out, or say why not."""
    match request:
        case SetSecret():
            return _set(tx, request.secret)
        case RemoveSecret():
            return _remove(tx, request)
    for former, sealed in zip(request.former, request.sealed, strict=True):
        if tx.state.secrets.by_holder.get(former.holder) == former:
            tx.emit(SecretSet(sealed))
    return SecretDone()


def _set(tx: Transaction, secret: Secret) -> SecretDone | Refusal:
    known = tx.state.secrets.by_holder
    tenants = [tenant.name for tenant in tx.state.config.tenants]
    if secret.tenant and secret.tenant not in tenants:
        text = f"there is no tenant '{secret.tenant}'"
        hint = nearest(secret.tenant, tenants)
        return Refusal("invalid_input", (Problem("unknown_tenant", "tenant", text, secret.tenant, hint),))
    if secret.holder not in known and len(known) >= SECRETS_MAX:
        text = f"there are {SECRETS_MAX} secrets, and no more may be"
        problem = Problem("too_many_secrets", "name", text, secret.name, "remove those that nobody uses")
        return Refusal("invalid_input", (problem,))
    tx.emit(SecretSet(replace(secret, set_ms=tx.now_ms)))
    return SecretDone()


def _remove(tx: Transaction, request: RemoveSecret) -> SecretDone | Refusal:
    secret = tx.state.secrets.by_holder.get((request.tenant, request.owner, request.name))
    if secret is None:
        return SecretDone(found=False)
    users = _live_users(tx, secret)
    if users:
        named = ", ".join(str(job_id) for job_id in users[:JOBS_NAMED])
        more = f" and {len(users) - JOBS_NAMED} more" if len(users) > JOBS_NAMED else ""
        text = f"{secret.text} is needed by job {named}{more}"
        hint = "wait for them or cancel them, or set another value: what starts from then on gets that"
        return Refusal("conflict", (Problem("still_used", "name", text, secret.name, hint),))
    tx.emit(SecretRemoved(request.tenant, request.owner, request.name, request.by))
    return SecretDone()


def _live_users(tx: Transaction, secret: Secret) -> list[JobId]:
    """Return the live jobs that would have nothing by that name without it, by number."""
    found = []
    for job in tx.state.jobs.values():
        if not any(name == secret.name for _, name in job.spec.secrets):
            continue
        tenant, user = job.spec.tenant, job.user
        if tx.state.secrets.of(tenant, user, secret.name) != secret:
            continue
        shared = tx.state.secrets.by_holder.get((tenant, UserName(""), secret.name))
        if shared is None or shared == secret:
            found.append(job.id)
    return sorted(found)
