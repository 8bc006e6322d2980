"""Routes about schedules: jobs that are submitted again and again."""

from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from penstock.api import schedules as api
from penstock.api.types import DoneAnswer
from penstock.control import messages as msg
from penstock.control.calendar import local_time
from penstock.control.cron import CronTimes
from penstock.core.messages.requests import Refusal
from penstock.core.messages.schedules import ActOnSchedule, RemoveSchedule, ScheduleDone, SetSchedule
from penstock.core.model.access import Scope
from penstock.core.model.errors import nearest
from penstock.core.model.ids import UserName
from penstock.core.model.schedules import Schedule
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, body_of, json_of, read_body, refused
from penstock.server.http.responses import ApiError, answer
from penstock.server.routes.openapi import returns
from penstock.server.submitting import schedule_of

BODY_MAX_BYTES = 262_144
ACTION_MAX_BYTES = 4_096
COMING = 5
NAMES_MAX = 50
EXAMPLE = {"name": "nightly", "command": "python train.py", "schedule": {"cron": "0 3 * * *", "zone": "Europe/Berlin"}}
NamePath = Annotated[str, Path(max_length=200, description="name of the schedule", examples=["nightly"])]
UserQuery = Annotated[str, Query(max_length=256, description="of this user; by default the caller's own")]
_TIMES = CronTimes()


def schedule_routes(app: FastAPI, backend: Backend, caller: Any) -> None:

    @app.get("/api/v1/schedules", **returns(api.ScheduleList))
    async def list_schedules(
        who: caller, everyone: Annotated[bool, Query(description="all that the caller sees")] = False
    ) -> Response:
        """List schedules with their next times: the caller's own, or all of tenants that they see."""

        def compute() -> Response:
            known = backend.state.schedules
            found = list(known.by_key.copy().values()) if everyone else known.of_user(who.user)
            seen = sorted((one for one in found if who.sees(one.tenant)), key=lambda one: one.key)
            return answer(api.ScheduleList([_view(backend, one) for one in seen]))

        return await backend.pools.reads.run(compute)

    @app.get("/api/v1/schedules/{name}", **returns(api.ScheduleView))
    async def show_schedule(who: caller, name: NamePath, user: UserQuery = "") -> Response:
        """Show a schedule with its next times and latest runs."""
        one = _seen(backend, who, name, user)
        return await backend.pools.reads.run(lambda: answer(_view(backend, one, full=True)))

    @app.put("/api/v1/schedules/{name}", **returns(api.ScheduleView, body="job_request", example=EXAMPLE))
    async def set_schedule(request: Request, who: caller, name: NamePath) -> Response:
        """Set a schedule of the caller, or change it: a job file whose jobs have the field `schedule`."""
        allow(who.submits_anywhere and not who.delegated, "set schedules")
        body = await body_of(request, BODY_MAX_BYTES)
        one = await backend.pools.reads.run(schedule_of, backend, body, who, name)
        await _asked(backend, SetSchedule(one, who.role == "admin"))
        made = backend.state.schedules.by_key.get(one.key, one)
        return await backend.pools.reads.run(lambda: answer(_view(backend, made, full=True)))

    _changing_routes(app, backend, caller)


def _changing_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    example = {"action": "pause"}

    @app.post(
        "/api/v1/schedules/{name}/actions",
        **returns(api.ScheduleView, body=api.ScheduleActionRequest, example=example),
    )
    async def act_on_schedule(request: Request, who: caller, name: NamePath, user: UserQuery = "") -> Response:
        """Pause a schedule, resume it, or start a run now."""
        allow(who.acts_anywhere, "act on schedules")
        wanted = read_body(json_of(await body_of(request, ACTION_MAX_BYTES)), api.ScheduleActionRequest)
        one = _owned(backend, who, name, user, f"{wanted.action} schedule")
        await _asked(backend, ActOnSchedule(one.owner, one.name, wanted.action, who.user))
        now = backend.state.schedules.by_key.get(one.key, one)
        return await backend.pools.reads.run(lambda: answer(_view(backend, now, full=True)))

    @app.delete("/api/v1/schedules/{name}", **returns(DoneAnswer))
    async def remove_schedule(who: caller, name: NamePath, user: UserQuery = "") -> Response:
        """Remove a schedule; jobs that it has submitted stay."""
        allow(who.acts_anywhere, "remove schedules")
        one = _owned(backend, who, name, user, "remove schedule")
        reply = await _asked(backend, RemoveSchedule(one.owner, one.name, who.user))
        return answer(DoneAnswer(reply.found))


def _seen(backend: Backend, who: Scope, name: str, user: str) -> Schedule:
    """Return a schedule. Raises: ApiError when the caller sees none of that name."""
    owner = UserName(user or who.user)
    one = backend.state.schedules.by_key.get((owner, name))
    if one is None or not who.sees(one.tenant):
        known = [one.name for one in backend.state.schedules.of_user(owner) if who.sees(one.tenant)]
        whose = f" of {owner[:63]}" if user else ""
        raise ApiError("not_found", f"there is no schedule '{name[:63]}'{whose}", hint=nearest(name[:63], known))
    return one


def _owned(backend: Backend, who: Scope, name: str, user: str, what: str) -> Schedule:
    """Return a schedule that the caller may act on. Raises: ApiError."""
    one = _seen(backend, who, name, user)
    allow(who.acts_on(one.tenant, one.owner), f"{what} '{one.name}'")
    return one


async def _asked(backend: Backend, request: msg.Request) -> ScheduleDone:
    reply = await backend.ask(request)
    if isinstance(reply, Refusal):
        raise refused(reply)
    assert isinstance(reply, ScheduleDone)
    return reply


def _view(backend: Backend, one: Schedule, *, full: bool = False) -> api.ScheduleView:
    rule, live = one.rule, {first: len(jobs) for first, jobs in backend.state.schedules.live_runs(one.key)}
    names = list(dict.fromkeys(new.spec.name for new in one.jobs))[:NAMES_MAX] if full else []
    runs = one.runs if full else ()
    return api.ScheduleView(
        name=one.name,
        owner=one.owner,
        tenant=one.tenant,
        cron=rule.cron,
        zone=rule.zone,
        catch_up=rule.catch_up,
        overlap=rule.overlap,
        start_ms=rule.start_ms,
        end_ms=rule.end_ms,
        paused=one.paused,
        paused_by=one.paused_by,
        paused_why=one.paused_why,
        set_ms=one.set_ms,
        next_ms=one.due_ms,
        next_local=local_time(rule.zone, one.due_ms),
        live_runs=len(live),
        run_total=one.run_total,
        skipped_total=one.skipped_total,
        skipped=one.skipped,
        skipped_ms=one.skipped_ms,
        jobs=sum(new.count for new in one.jobs),
        job_names=names,
        coming=_coming(one) if full else [],
        runs=[api.RunView(run.due_ms, run.first, run.count, live.get(run.first, 0), run.by) for run in runs],
    )


def _coming(one: Schedule) -> list[str]:
    """Return the next times by the clock of the zone."""
    due_ms = one.due_ms
    found: list[str] = []
    while due_ms and len(found) < COMING:
        found.append(local_time(one.rule.zone, due_ms))
        due_ms = _TIMES.following(one.rule, due_ms)
    return found
