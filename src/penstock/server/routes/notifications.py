"""Routes about what users choose to hear of. No route gives a destination back."""

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from penstock.api import notifications as api
from penstock.api.types import DoneAnswer
from penstock.control import messages as msg
from penstock.core.config.notifications import NAME, NAME_EXPECTED, read_events
from penstock.core.config.reader import Reader
from penstock.core.messages.access import NotificationDone, RemoveNotification, SetNotification
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import Scope
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.notifications import (
    EVENTS,
    GROUPS,
    NODE_EVENTS,
    TENANT_EVENTS,
    Channel,
    Destination,
    Subscription,
    sealed_as,
)
from penstock.security.vault import Vault, VaultError
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, body_of, invalid, json_of, read_body, refused
from penstock.server.http.responses import ApiError, answer
from penstock.server.http.turns import Turn
from penstock.server.routes.openapi import returns
from penstock.server.services.notifying.channels import check_destination
from penstock.server.services.notifying.errors import NotSent
from penstock.server.services.notifying.places import JobPlace, Target
from penstock.server.services.notifying.service import NotificationService
from penstock.server.services.notifying.webhook import KEY_EXPECTED, is_key, new_key

BODY_MAX_BYTES = 16_384
EXAMPLE = {"channel": "email", "to": "ann@example.org", "events": ["end", "preempted"]}
CHANNELS = ("email", "webhook", "slack", "command")
KNOWN = (*EVENTS, *GROUPS)
NamePath = Annotated[str, Path(max_length=200, description="name of the notification", examples=["mail"])]


class NewNotification(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which events go where."""

    channel: str
    events: list[str]
    to: str = ""
    """An e-mail address, a URL, or the name of a command; empty: as it was."""
    tenant: str = ""
    """Whose budgets it is about."""
    signing_key: str = ""
    """Of a webhook: `whsec_` and base64 of 16 to 64 bytes; empty: as it was, or a new one."""


def notification_routes(
    app: FastAPI, backend: Backend, service: NotificationService, sealing: Turn, caller: Any
) -> None:

    @app.get("/api/v1/notifications", **returns(api.NotificationList))
    async def list_notifications(
        who: caller,
        everyone: Annotated[bool, Query(description="of all users: for administrators")] = False,
    ) -> Response:
        """List the caller's notifications with what became of them, and the channels that may be chosen."""
        if everyone:
            allow(who.administers, "see the notifications of others")

        def compute() -> Response:
            known = backend.state.subscriptions
            own = known.of_user(who.user) if _own(who) else []
            found = list(known.by_key.copy().values()) if everyone else own
            views = [_view(service, one) for one in sorted(found, key=lambda one: one.key)]
            places = service.of_jobs(None if everyone else who.user) if everyone or _own(who) else []
            of_jobs = [_view(service, one) for one in places]
            return answer(api.NotificationList(views, _channels(who, backend), of_jobs))

        return await backend.pools.reads.run(compute)

    @app.put("/api/v1/notifications/{name}", **returns(api.NotificationMade, body=NewNotification, example=EXAMPLE))
    async def set_notification(request: Request, who: caller, name: NamePath) -> Response:
        """Choose which events are sent to the caller, and where to; or change that."""
        allow(who.sets_notifications, "set notifications")
        wanted = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), NewNotification)
        made, place, key = _wanted(backend, who, name, wanted)
        async with sealing.mine():
            made = await backend.pools.reads.run(_sealed, backend, made, place)
            await _asked(backend, SetNotification(made, who.administers))
        found = backend.state.subscriptions.by_key.get(made.key, made)
        return answer(api.NotificationMade(_view(service, found), key))

    _removing_routes(app, backend, service, caller)


def _removing_routes(app: FastAPI, backend: Backend, service: NotificationService, caller: Any) -> None:
    @app.delete("/api/v1/notifications/{name}", **returns(DoneAnswer))
    async def remove_notification(
        who: caller,
        name: NamePath,
        user: Annotated[str, Query(max_length=256, description="of this user: for administrators")] = "",
    ) -> Response:
        """Remove a notification; what still waits to be sent is dropped."""
        if user and user != who.user:
            allow(who.administers, "remove the notifications of others")
        else:
            allow(who.sets_notifications, "remove notifications")
        owner = UserName(user or who.user)
        if (owner, name) not in backend.state.subscriptions.by_key:
            raise _unknown(backend, owner, name)
        reply = await _asked(backend, RemoveNotification(owner, name, who.user))
        return answer(DoneAnswer(reply.found))

    @app.post("/api/v1/notifications/{name}/test", **returns(api.NotificationTested))
    async def test_notification(who: caller, name: NamePath) -> Response:
        """Send a test message of one of the caller's notifications now, and say whether it was taken."""
        allow(who.sets_notifications, "test notifications")
        found = backend.state.subscriptions.by_key.get((who.user, name))
        if found is None:
            raise _unknown(backend, who.user, name)
        try:
            await service.test(found)
        except NotSent as error:
            return answer(api.NotificationTested(False, error.message, error.hint))
        return answer(api.NotificationTested(True))


def _own(scope: Scope) -> bool:
    return not scope.only and not scope.delegated


def _wanted(
    backend: Backend, who: Scope, name: str, wanted: NewNotification
) -> tuple[Subscription, Destination | None, str]:
    """Return what is asked for, its destination (None: as it was), and a key to be shown.

    Raises: ApiError with all problems, or for lack of rights.
    """
    problems: list[Problem] = []
    if not NAME.fullmatch(name):
        problems.append(Problem("bad_value", "name", f"name is '{name[:80]}', expected {NAME_EXPECTED}", name[:80]))
    if wanted.channel not in CHANNELS:
        given, hint = wanted.channel[:80], nearest(wanted.channel[:80], CHANNELS)
        text = f"channel is '{given}', expected one of {', '.join(CHANNELS)}"
        problems.append(Problem("bad_value", "channel", text, given, hint))
    events = read_events(Reader("", problems), "events", wanted.events, KNOWN)
    if problems:
        raise invalid(problems)
    _allowed(who, events, wanted.tenant)
    channel: Channel = wanted.channel  # type: ignore[assignment]
    made = Subscription(name, who.user, channel, events, sealed_as(who.user, name), "", TenantName(wanted.tenant))
    former = backend.state.subscriptions.by_key.get(made.key)
    if not wanted.to and former is not None and former.channel == channel and not wanted.signing_key:
        return msgspec.structs.replace(made, to=former.to, shown=former.shown), None, ""
    shown = _checked(backend, who, channel, wanted)
    key = (wanted.signing_key or new_key()) if channel == "webhook" else ""
    return msgspec.structs.replace(made, shown=shown), Destination(wanted.to, key), key


def _allowed(who: Scope, events: tuple[str, ...], tenant: str) -> None:
    """Raise ApiError unless the caller may hear of these events."""
    about_tenant = [event for event in events if event in TENANT_EVENTS]
    if about_tenant and not tenant:
        text = f"tenant is missing: {about_tenant[0]} is about a tenant"
        raise invalid([Problem("missing_field", "tenant", text, "", "name the tenant whose budgets it is about")])
    if tenant:
        allow(who.manages(tenant), f"hear of the budgets of tenant {tenant[:63]}")
        if not about_tenant:
            text = f"tenant is '{tenant[:63]}', but none of the events is about a tenant"
            raise invalid([Problem("bad_value", "tenant", text, tenant[:63], ", ".join(TENANT_EVENTS))])
    if any(event in NODE_EVENTS for event in events):
        allow(who.operates, "hear of nodes")


def _checked(backend: Backend, who: Scope, channel: str, wanted: NewNotification) -> str:
    """Return the destination as it may be shown. Raises: ApiError when it is not permitted."""
    try:
        shown = check_destination(backend.state.config.notifications, channel, wanted.to, operates=who.operates)
    except NotSent as error:
        raise invalid([Problem("not_permitted", "to", f"to: {error.message}", "", error.hint)]) from error
    if wanted.signing_key and (channel != "webhook" or not is_key(wanted.signing_key)):
        text = f"signing_key: expected {KEY_EXPECTED}, for a webhook"
        raise invalid([Problem("bad_value", "signing_key", text, "", "leave it out: one is made")])
    return shown


def _sealed(backend: Backend, made: Subscription, place: Destination | None) -> Subscription:
    """Return it with its destination sealed. Raises: ApiError when the keys cannot be used."""
    if place is None:
        return made
    vault: Vault | None = backend.vault
    assert vault is not None, "every server has one"
    try:
        return msgspec.structs.replace(made, to=vault.seal(made.to, msgspec.json.encode(place).decode()))
    except VaultError as error:
        raise ApiError(error.code, error.message, hint=error.hint) from error


async def _asked(backend: Backend, request: msg.Request) -> NotificationDone:
    reply = await backend.ask(request)
    if isinstance(reply, Refusal):
        raise refused(reply)
    assert isinstance(reply, NotificationDone)
    return reply


def _unknown(backend: Backend, owner: UserName, name: str) -> ApiError:
    known = [one.name for one in backend.state.subscriptions.of_user(owner)]
    return ApiError("not_found", f"there is no notification '{name[:63]}'", hint=nearest(name[:63], known))


def _channels(who: Scope, backend: Backend) -> api.Channels:
    declared = backend.state.config.notifications
    mail, hooks = declared.email, declared.webhooks
    commands = [one.name for one in declared.commands if who.operates or one.open_to == "everyone"]
    return api.Channels(list(mail.domains if mail.host else ()), [*hooks.hosts, *hooks.internal], commands)


def _view(service: NotificationService, one: Target) -> api.NotificationView:
    stats, waiting, message = service.standing(one.key)
    events, set_ms = ([], 0) if isinstance(one, JobPlace) else (list(one.events), one.set_ms)
    return api.NotificationView(
        one.name,
        one.owner,
        one.channel,
        one.shown,
        events,
        one.tenant,
        set_ms,
        waiting,
        message.tries if message else 0,
        message.next_ms if message and message.tries else 0,
        stats.sent,
        stats.given_up,
        stats.last_sent_ms,
        stats.last_error,
        stats.last_error_ms,
    )
