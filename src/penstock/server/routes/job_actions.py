"""One request that acts on many jobs: selected beside the event loop, changed through the control loop in slices."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request
from starlette.responses import Response

from penstock.api.jobs import ACTION_JOBS_MAX, LISTED, ActionAnswer, ActionRequest, Unchanged
from penstock.control import messages as msg
from penstock.core.config.edit import parse_change
from penstock.core.lifecycle import acting
from penstock.core.lifecycle.versions import job_version
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import Scope
from penstock.core.model.actions import REFUSAL_TEXT, JobChange
from penstock.core.model.actions import Unchanged as UnchangedCode
from penstock.core.model.errors import Problem
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.order.queues import QueueTree
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, body_of, invalid, json_of, read_body
from penstock.server.http.responses import ApiError, answer
from penstock.server.http.versions import IfMatch, changed, check_version, versions_of
from penstock.server.routes.openapi import returns
from penstock.server.selecting import Named, Selected, check_names, named_by, selected
from penstock.server.views.jobs import live_job

SLICE = 250
"""Jobs changed by one commit; between two of them the control loop serves everybody else."""
FEW = 100
"""Ids that are looked up as fast as a page."""
BODY_BYTES = 65_536
_EXAMPLE = {"action": "cancel", "select": {"ids": ["3", "5-9"]}, "dry_run": True}


def job_action_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.post("/api/v1/jobs/actions", **returns(ActionAnswer, body=ActionRequest, example=_EXAMPLE))
    async def act_on_jobs(
        request: Request,
        who: caller,
        idempotency_key: Annotated[str, Header(max_length=200)] = "",
        if_match: IfMatch = "",
    ) -> Response:
        """Do one action with all live jobs of a selection that the caller may act on. Each job is changed or not."""
        allow(who.acts_anywhere, "act on jobs")
        body = await body_of(request, BODY_BYTES)
        wanted = read_body(json_of(body), ActionRequest)
        change = _change_of(backend, who, wanted)

        async def work_out() -> Response:
            if if_match:
                await backend.pools.reads.run(_check_version, backend, who, wanted, if_match)
            return answer(await _acted(backend, who, wanted, change, if_match))

        return await backend.repeats.of(who.user, idempotency_key, body, work_out)


def _check_version(backend: Backend, who: Scope, wanted: ActionRequest, if_match: str) -> None:
    """Raise ApiError where the caller decided on another version of the one job than the present one."""
    named = named_by(wanted.select.ids)
    if len(named.singles) != 1 or named.ranges or named.arrays:
        raise invalid([Problem("bad_value", "If-Match", "If-Match is for one job, named by its number")])
    (number,) = named.singles
    job = backend.reads.live_job(who, JobId(number))
    check_version(if_match, job_version(job), f"job {number}", live_job(job, full=True) if job is not None else None)


def _changed_since(backend: Backend, job_id: JobId) -> ApiError:
    """Return the error where a job has changed between that check and the commit."""
    job = backend.state.jobs.get(job_id)
    return changed(job_version(job), f"job {job_id}", live_job(job, full=True) if job is not None else None)


def _change_of(backend: Backend, who: Scope, wanted: ActionRequest) -> JobChange:
    """Return what an edit changes, nothing for other actions. Raises: ApiError."""
    if wanted.action != "edit":
        if wanted.set:
            raise invalid([Problem("unknown_field", "set", f"set is for edit alone, the action is {wanted.action}")])
        return acting.NO_CHANGE
    change, problems = parse_change(wanted.set)
    if problems:
        raise invalid(problems)
    check_names(who, backend.state.config, queue=change.queue or "", prefix="set.")
    return change


async def _acted(backend: Backend, who: Scope, wanted: ActionRequest, change: JobChange, if_match: str) -> ActionAnswer:
    """Select, then change slice by slice. Raises: ApiError."""
    if not backend.service.controller.leads:
        raise ApiError("not_leader", "this server does not lead", hint="ask the leader", leader=backend.service.leader)
    named = named_by(wanted.select.ids)
    few = 0 < len(named.singles) <= FEW and not named.ranges and not named.arrays
    pool = backend.pools.reads if few else backend.pools.heavy
    found, outcome = await pool.run(chosen, backend, who, wanted, named, change)
    administrator = who.role == "admin"
    for at in range(0, len(found), SLICE):
        part = tuple(found[at : at + SLICE])
        try:
            reply = await backend.ask(
                msg.ChangeJobs(wanted.action, part, who.user, change, administrator, versions_of(if_match))
            )
        except ApiError as error:
            raise _broken_off(error, outcome) from error
        if isinstance(reply, Refusal):
            raise _changed_since(backend, part[0])
        assert isinstance(reply, msg.JobsChanged)
        outcome.changed += reply.changed
        for job_id, why in reply.unchanged:
            outcome.leave(why, job_id)
    return outcome.answer()


def chosen(
    backend: Backend, who: Scope, wanted: ActionRequest, named: Named, change: JobChange
) -> "tuple[list[JobId], _Outcome]":
    """Return the jobs to change, and what is known of the others; none to change when they are only counted."""
    found = selected(wanted.select, named, who, backend.reads, backend.state.config)
    if named.singles and len(wanted.select.ids) == 1:
        _check_one(found, wanted.action, who, backend)
    if len(found.jobs) > ACTION_JOBS_MAX:
        text = f"{len(found.jobs)} jobs match, one request may act on {ACTION_JOBS_MAX}"
        raise ApiError("too_large", text, hint="narrow the selection, by queue or state say")
    outcome = _Outcome(found)
    mine: list[Job] = []
    for job in found.jobs:
        if who.acts_on(job.spec.tenant, job.user):
            mine.append(job)
        else:
            outcome.leave("no_right", job.id)
    if wanted.expect is not None and wanted.expect != outcome.matched:
        text = f"{outcome.matched} jobs match by now, {wanted.expect} were expected: nothing was done"
        raise ApiError("conflict", text, hint="look at them again")
    if not wanted.dry_run:
        return [job.id for job in mine], outcome
    state = backend.state
    powers = state.indexes.powers.expected(state.config, state.indexes.nodes)
    empty = QueueTree(state.config).weigh(powers)  # that of the state is the control loop's
    administrator = who.role == "admin"
    for job in mine:
        why = acting.why_not(backend.state, job.id, wanted.action, change, empty=empty, administrator=administrator)
        if why is None:
            outcome.changed.append(job.id)
        else:
            outcome.leave(why, job.id)
    return [], outcome


def _check_one(found: Selected, action: str, who: Scope, backend: Backend) -> None:
    """Raise ApiError where the one job that is named does not exist, or the caller may not act on it."""
    if found.unknown:
        raise ApiError("not_found", f"there is no job {found.unknown[0]}")
    for job_id, _ in found.over:
        owner = backend.reads.owner(who, JobId(job_id))
        allow(owner is None or who.acts_on(*owner), f"{action} job {job_id}")
    for job in found.jobs:
        allow(who.acts_on(job.spec.tenant, job.user), f"{action} job {job.id}")


class _Outcome:
    """What became of the jobs of a selection so far."""

    def __init__(self, found: Selected) -> None:
        self.changed: list[JobId] = []
        self._states = dict(found.over)
        self._unchanged: dict[UnchangedCode, list[int]] = {}
        for job_id, _ in found.over:
            self.leave("over", job_id)
        for job_id in found.unknown:
            self.leave("not_found", job_id)
        self.matched = len(found.jobs) + len(found.over) + len(found.unknown)

    def leave(self, code: UnchangedCode, job_id: int) -> None:
        self._unchanged.setdefault(code, []).append(job_id)

    def answer(self) -> ActionAnswer:
        left = [
            Unchanged(code, self._text(code, jobs), len(jobs), sorted(jobs)[:LISTED])
            for code, jobs in self._unchanged.items()
        ]
        return ActionAnswer(self.matched, len(self.changed), left, list(self.changed[:LISTED]))

    def _text(self, code: UnchangedCode, jobs: Sequence[int]) -> str:
        state = self._states.get(jobs[0], "") if len(jobs) == 1 else ""
        return unchanged_text(code, jobs, f" ({state})" if state else "")


def unchanged_text(code: UnchangedCode, jobs: Sequence[int], more: str = "") -> str:
    """Return why an action left jobs as they are, as a sentence without its stop."""
    one = len(jobs) == 1
    subject = f"job {jobs[0]}" if one else f"{len(jobs)} jobs"
    match code:
        case "no_right":
            whose = "belongs to another user: you may not act on it"
            return f"{subject} {whose if one else 'belong to other users: you may not act on them'}"
        case "not_found":
            return f"there is no job {jobs[0]}" if one else f"{len(jobs)} of the numbers are of no job"
        case _:
            return subject + " " + REFUSAL_TEXT[code][0 if one else 1] + more


def _broken_off(error: ApiError, outcome: "_Outcome") -> ApiError:
    """Return the error of a slice, with what the slices before it have done."""
    if outcome.changed:
        done = len(outcome.changed)
        text = f"{error.details.title}; {done} of {outcome.matched} jobs were changed before"
        details = error.details
        return ApiError(details.code, text, hint="send the request again for the others", leader=details.leader)
    return error
