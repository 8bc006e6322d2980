"""Routes about the configuration: show, plan, apply. A change is one event in the log, or nothing."""

from typing import Any

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from penstock.api import types as api
from penstock.api.whatif import WhatIfAsked
from penstock.control import messages as msg
from penstock.control.config_files import cluster_config, with_changes
from penstock.core.config.cluster import declaration
from penstock.core.config.diff import diff, digest
from penstock.core.lifecycle.requests import config_problems
from penstock.core.messages.requests import Refusal
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import InvalidInput, Problem
from penstock.engines.processes.accounts import may_switch, unknown_account
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, body_of, invalid, json_of, read_body, refused
from penstock.server.http.responses import ApiError, answer
from penstock.server.http.versions import IfMatch, check_version, with_version
from penstock.server.routes.openapi import returns
from penstock.server.routes.whatif import allow_lab
from penstock.server.services.whatif import WhatIfService

BODY_MAX_BYTES = 16 * 2**20
CHANGES_MAX = 1_000
EXAMPLE = {"set": ["settings.defrag=true"], "dry_run": True}


class NewConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to hold from now on: a whole cluster file, or some changes."""

    config: dict[str, Any] | None = None
    """A cluster file as plain data; its `nodes` are taken when a server starts, and not here."""
    set: list[str] = []
    """PATH=VALUE in the words of a cluster file, such as `queue.research.max.devices=16`."""
    add: list[str] = []
    """New entries such as `user.ann`, of which `set` may say more."""
    remove: list[str] = []
    """Entries such as `user.ann`."""
    base: str = ""
    """Digest of the configuration to be changed; a conflict if another is in force by now."""
    dry_run: bool = False
    simulate: bool = False
    """With `dry_run`: begin a what-if of the change on the jobs of the log, whose id the answer gives."""


def declaring_routes(app: FastAPI, backend: Backend, lab: WhatIfService, caller: Any) -> None:
    @app.get("/api/v1/config", **returns(api.ConfigView))
    async def show_config(who: caller) -> Response:
        """Show what is declared, in the words of a cluster file."""
        allow(who.sees_all, "see the configuration: it covers all tenants")
        config = backend.state.config
        return await backend.pools.heavy.run(_shown, config)

    @app.post("/api/v1/config", **returns(api.ConfigPlan, body=NewConfig, example=EXAMPLE))
    async def change_config(request: Request, who: caller, if_match: IfMatch = "") -> Response:
        """Plan a change of what is declared, and apply it unless it is a dry run; the same again changes nothing."""
        allow(who.administers, "change the configuration")
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewConfig)
        if wanted.simulate and not wanted.dry_run:
            text = "simulate goes with dry_run: a change is tried before it is made"
            raise invalid([Problem("bad_value", "simulate", text, hint="dry_run")])
        after, base, changes = await backend.pools.heavy.run(_planned, backend, wanted, if_match)
        tried = ""
        if wanted.simulate and changes:
            allow_lab(who)
            asked = WhatIfAsked(set=wanted.set)
            tried = lab.begin(await backend.pools.heavy.run(lab.check, asked, after), who.user).id
        apply = not wanted.dry_run and bool(changes)
        if apply:
            reply = await backend.ask(msg.Configure(after, who.user, base))
            if isinstance(reply, Refusal):
                raise refused(reply)
        return answer(api.ConfigPlan(base, digest(after), changes, apply, tried))


def _shown(config: ClusterConfig) -> Response:
    version = digest(config)
    return with_version(answer(api.ConfigView(version, declaration(config))), version)


def _planned(backend: Backend, wanted: NewConfig, if_match: str) -> tuple[ClusterConfig, str, list[api.ConfigChange]]:
    """Return the new configuration, the digest of the present one, and the changes.

    Raises: ApiError with all problems.
    """
    before = backend.state.config
    base = digest(before)
    check_version(if_match, base, "the configuration", {"digest": base})
    if wanted.base not in ("", base):
        hint = "look at what holds now, and plan it again"
        raise ApiError("conflict", "the configuration has changed since this was planned", hint=hint)
    try:
        after = _config(before, wanted)
    except InvalidInput as error:
        raise invalid(list(error.problems)) from error
    wrong = account_problems(before, after)
    if wrong:
        raise invalid(wrong)
    problems = config_problems(backend.state, after, backend.clock.unix_ms())
    if problems:
        raise ApiError("conflict", problems[0].message, problems=problems)
    return after, base, [api.ConfigChange(one.path, one.old, one.new, one.text()) for one in diff(before, after)]


def account_problems(before: ClusterConfig, after: ClusterConfig) -> list[Problem]:
    """Return a problem for each newly named account that the machine lacks, where jobs would run as it."""
    if not may_switch():
        return []
    known = {user.name: user.account for user in before.users}
    named = {f"users.{u.name}.account": u.account for u in after.users if u.account != known.get(u.name, "")}
    if after.settings.job_account != before.settings.job_account:
        named["settings.job_account"] = after.settings.job_account
    wrong = {field: (name, unknown_account(name)) for field, name in named.items() if name}
    return [
        Problem("unknown_account", field, f"{field} is '{name}': {text}", name)
        for field, (name, text) in wrong.items()
        if text
    ]


def _config(before: ClusterConfig, wanted: NewConfig) -> ClusterConfig:
    if len(wanted.set) + len(wanted.add) + len(wanted.remove) > CHANGES_MAX:
        text = f"at most {CHANGES_MAX} changes at once"
        raise InvalidInput(text, problems=[Problem("too_many", "set", text, hint="send a whole cluster file")])
    after = before
    if wanted.config is not None:
        after = cluster_config({name: value for name, value in wanted.config.items() if name != "nodes"})
    return with_changes(after, wanted.set, add=wanted.add, remove=wanted.remove)
