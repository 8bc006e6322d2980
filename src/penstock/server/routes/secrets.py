"""Routes about secrets: set, listed, removed, sealed with another key. No route gives a value back."""

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Query, Request
from msgspec.structs import replace
from starlette.responses import Response

from penstock.api import types as api
from penstock.control import messages as msg
from penstock.core.messages.access import RemoveSecret, ResealSecrets, SecretDone, SetSecret
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import Scope
from penstock.core.model.errors import Problem
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.secrets import NAME, NAME_EXPECTED, Secret
from penstock.core.order.turns import WaitingLimit
from penstock.security.vault import Vault, VaultError
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, body_of, invalid, json_of, read_body, refused
from penstock.server.http.responses import ApiError, answer
from penstock.server.http.turns import Turn, WorkerPool
from penstock.server.lists import SECRETS
from penstock.server.routes.openapi import returns
from penstock.server.tables import ListQuery, list_query, paged
from penstock.server.views.reads import sees_secret

VALUE_MAX_BYTES = 32_768
BODY_MAX_BYTES = 8 * VALUE_MAX_BYTES
SHARE = WaitingLimit(user=32, tenant=128, total=1_024)
EXAMPLE = {"value": "hf_abcdefgh"}
NamePath = Annotated[str, Path(max_length=200, description="name of the secret", examples=["HF_TOKEN"])]


class NewSecret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value, and whose jobs may have it."""

    value: str
    tenant: str = ""
    """All jobs of this tenant may; empty: the caller's own jobs alone."""


def sealing_turn() -> Turn:
    """Return what all share who seal something, from sealing to logging: no key is thrown away in between."""
    return Turn(SHARE, "changes of what is sealed")


def secret_routes(app: FastAPI, backend: Backend, turn: Turn, caller: Any) -> None:
    @app.put("/api/v1/secrets/{name}", **returns(api.SecretView, body=NewSecret, example=EXAMPLE))
    async def set_secret(request: Request, who: caller, name: NamePath) -> Response:
        """Set a secret, or give it another value: jobs that start from then on get that."""
        allow(who.submits_anywhere, "keep secrets")
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewSecret)
        _allowed(who, wanted.tenant, backend)
        problems = _problems(name, wanted.value)
        if problems:
            raise invalid(problems)
        secret = Secret(name, TenantName(wanted.tenant), UserName("" if wanted.tenant else who.user), by=who.user)
        async with turn.mine():
            sealed = await _in_vault(backend.pools.reads, _vault(backend).seal, secret, wanted.value)
            await _asked(backend, SetSecret(sealed, who.administers))
        found = backend.state.secrets.by_holder.get(secret.holder, secret)
        return answer(_shown(found))

    @app.get("/api/v1/secrets", **returns(api.SecretList))
    async def list_secrets(who: caller, query: Annotated[ListQuery, list_query(SECRETS)]) -> Response:
        """List the caller's own secrets and those of their tenants, without the values."""

        def compute() -> Response:
            known = backend.state.secrets
            if who.administers:
                found = list(known.by_holder.copy().values())
            else:
                tenants = who.sight if who.sight is not None else [one.name for one in backend.state.config.tenants]
                found = [*known.of_user(who.user), *(one for name in tenants for one in known.of_tenant(name))]
            mine = sorted((one for one in found if sees_secret(who, one)), key=lambda one: one.holder)
            return paged(SECRETS, query, map(_shown, mine), api.SecretList)

        return await backend.pools.reads.run(compute)

    @app.delete("/api/v1/secrets/{name}", **returns(api.DoneAnswer))
    async def remove_secret(
        who: caller,
        name: NamePath,
        tenant: Annotated[str, Query(max_length=63, description="of this tenant; none: the caller's own")] = "",
    ) -> Response:
        """Remove a secret that no live job needs."""
        owner = UserName("" if tenant else who.user)
        if not tenant:
            _allowed(who, tenant, backend)
        found = backend.state.secrets.by_holder.get((TenantName(tenant), owner, name))
        if found is None or not sees_secret(who, found):
            raise ApiError("not_found", f"there is no such secret '{name[:63]}'")
        _allowed(who, tenant, backend)
        reply = await _asked(backend, RemoveSecret(TenantName(tenant), owner, name, who.user))
        return answer(api.DoneAnswer(reply.found))

    _key_routes(app, backend, caller, turn)


def _key_routes(app: FastAPI, backend: Backend, caller: Any, turn: Turn) -> None:
    @app.post("/api/v1/secret-key", **returns(api.KeyRotated))
    async def rotate_secret_key(who: caller) -> Response:
        """Seal all secrets with a new key, and throw the former ones away: removed values are lost for good."""
        allow(who.administers, "replace the key of all secrets")
        vault = _vault(backend)
        async with turn.mine():
            await _in_vault(backend.pools.reads, vault.add_key)
            former = tuple(backend.state.secrets.by_holder.values())
            chosen = tuple(backend.state.subscriptions.by_key.values())
            sealed = await _in_vault(backend.pools.reads, _sealed_anew, vault, former)
            places = await _in_vault(backend.pools.reads, _sealed_anew, vault, tuple(one.to for one in chosen))
            by = tuple(replace(one, by=who.user) for one in sealed)
            subscriptions = tuple(replace(one, to=to) for one, to in zip(chosen, places, strict=True))
            await _asked(backend, ResealSecrets(former, by, chosen, subscriptions))
            used = backend.state.secrets.key_ids() | backend.state.subscriptions.key_ids()
            dropped = await _in_vault(backend.pools.reads, vault.keep, used)
        backend.access.note(
            "secret_key_rotated", who.user, f"{len(sealed)} secrets sealed again, {dropped} keys dropped"
        )
        return answer(api.KeyRotated(len(sealed), dropped))


def _allowed(scope: Scope, tenant: str, backend: Backend) -> None:
    if tenant:
        allow(scope.manages(tenant), f"keep secrets of tenant {tenant}")
    else:
        tenants = [one.name for one in backend.state.config.tenants]
        allow(scope.keeps_secrets(tenants), "keep secrets: you submit no jobs, or this token is for some tenants alone")


def _problems(name: str, value: str) -> list[Problem]:
    problems = []
    if not NAME.fullmatch(name):
        problems.append(Problem("bad_value", "name", f"name is '{name[:80]}', expected {NAME_EXPECTED}", name[:80]))
    if not 0 < len(value.encode(errors="replace")) <= VALUE_MAX_BYTES or "\0" in value:
        text = f"value has {len(value)} characters, expected 1 to {VALUE_MAX_BYTES} bytes of text without NUL"
        problems.append(Problem("bad_value", "value", text, ""))
    return problems


def _vault(backend: Backend) -> Vault:
    assert backend.vault is not None, "every server has one"
    return backend.vault


async def _in_vault(pool: WorkerPool, do: Any, *arguments: Any) -> Any:
    """Do something with the file of keys, beside the event loop. Raises: ApiError when it cannot be used."""
    try:
        return await pool.run(do, *arguments)
    except VaultError as error:
        raise ApiError(error.code, error.message, hint=error.hint) from error


def _sealed_anew(vault: Vault, secrets: tuple[Secret, ...]) -> tuple[Secret, ...]:
    return tuple(vault.seal(one, vault.open(one)) for one in secrets)


async def _asked(backend: Backend, request: msg.Request) -> SecretDone:
    reply = await backend.ask(request)
    if isinstance(reply, Refusal):
        raise refused(reply)
    assert isinstance(reply, SecretDone)
    return reply


def _shown(secret: Secret) -> api.SecretView:
    return api.SecretView(secret.name, secret.tenant, secret.owner, secret.set_ms, secret.by)
