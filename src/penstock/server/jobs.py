"""Routes about jobs: submit, list, show, explain, cancel, what they wrote."""

import asyncio
import hashlib
from itertools import islice
from typing import Annotated, Any

from fastapi import FastAPI, Header, Path, Query, Request
from starlette.responses import Response

from penstock.api import types as api
from penstock.control import messages as msg
from penstock.core import idleness
from penstock.core.access import Scope
from penstock.core.explain import Explainer, Explanation, question_of
from penstock.core.lifecycle.requests import Refusal, Submit, Submitted
from penstock.core.model.events import Record
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import Job
from penstock.server import views
from penstock.server.answers import ApiError, answer
from penstock.server.backend import Backend
from penstock.server.foresight import Foresight
from penstock.server.intake import allow, body_of, jobs_of, refused
from penstock.server.openapi import EXAMPLE, MADE, returns
from penstock.server.submitting import account_for, adopted, check_dependencies

LOG_READ_MAX_BYTES = 1 << 20
LIST_MAX = 1_000
NEWEST = 2**53
"""As `before`: all finished jobs, from the newest."""
EXPLANATIONS_WAITING_MAX = 64
"""Explanations asked for at once; they are worked out one after the other, beside the event loop."""

JobIdPath = Annotated[int, Path(ge=1, le=2**53, description="number of the job", examples=[1])]


def job_routes(app: FastAPI, backend: Backend, foresight: Foresight, caller: Any) -> None:
    jobs = _JobViews(backend)
    _submit_and_list_routes(app, backend, caller, jobs)
    _one_job_routes(app, backend, _Explanations(backend, foresight), caller, jobs)
    _job_story_routes(app, backend, caller, jobs)


class _JobViews:
    """Jobs as the API shows them, live ones with what the control loop knows beyond the log."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def live(self, job: Job, *, full: bool = False) -> api.JobView:
        controller = self._backend.service.controller
        now_ms = self._backend.clock.unix_ms()
        held = job.spec.tenant in self._backend.state.money.holds()
        waits_for = "tenant_held" if held else views.waiting_reason(job, controller.last_plan, now_ms)
        reason = waits_for if job.state == "waiting" else idleness.said(job, now_ms)
        return views.live_job(job, full=full, waits_for=reason, reached=controller.reached.get(job.id, 0))

    async def any(self, scope: Scope, job_id: int) -> api.JobView:
        """Return the view of a job, live or finished; raises ApiError when there is none."""
        job = self._backend.reads.live_job(scope, JobId(job_id))
        if job is not None:
            return self.live(job, full=True)
        finished = await asyncio.to_thread(self._backend.reads.finished_job, scope, JobId(job_id))
        if finished is None:
            raise ApiError("not_found", f"there is no job {job_id}")
        return views.finished_job(finished)

    async def check(self, scope: Scope, job_id: int, what: str) -> None:
        """Raise ApiError when there is no such job, or the caller may not do this with it."""
        owner = await asyncio.to_thread(self._backend.reads.owner, scope, JobId(job_id))
        if owner is None:
            raise ApiError("not_found", f"there is no job {job_id}")
        allow(scope.acts_on(*owner), f"{what} job {job_id}")


def _submit_and_list_routes(app: FastAPI, backend: Backend, caller: Any, jobs: _JobViews) -> None:
    @app.post(
        "/api/v1/jobs", status_code=201, **returns(api.SubmitAnswer, body="job_request", example=EXAMPLE, statuses=MADE)
    )
    async def submit_jobs(
        request: Request, who: caller, idempotency_key: Annotated[str | None, Header(max_length=200)] = None
    ) -> Response:
        """Submit one job, or many all together or not at all."""
        body = await body_of(request)
        entries = await jobs_of(body)
        entries = adopted(entries, who, backend.state.config)
        await asyncio.to_thread(check_dependencies, entries, who, backend.reads)
        key = f"{who.user}/{idempotency_key}" if idempotency_key else ""
        digest = hashlib.sha256(body).hexdigest() if key else ""
        account = account_for(who, backend.state.config)
        reply = await backend.ask(Submit(entries, who.user, key, digest, account))
        if isinstance(reply, Refusal):
            raise refused(reply)
        assert isinstance(reply, Submitted)
        refs = await asyncio.to_thread(views.job_refs, who, backend.reads, reply.job_ids)
        return answer(api.SubmitAnswer(refs, reply.repeated), 200 if reply.repeated else 201)

    @app.get("/api/v1/jobs", **returns(api.JobList))
    async def list_jobs(
        who: caller,
        state: Annotated[str | None, Query(max_length=20)] = None,
        tenant: Annotated[str | None, Query(max_length=63)] = None,
        finished: Annotated[bool, Query(description="finished jobs too, newest first")] = False,
        before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 200,
    ) -> Response:
        """List live jobs by number, then finished ones from the newest."""

        def wanted(its_state: str, its_tenant: str) -> bool:
            return state in (None, its_state) and tenant in (None, its_tenant)

        found: list[api.JobView] = []
        if before is None:
            live = (job for job in backend.reads.live_jobs(who) if wanted(job.state, job.spec.tenant))
            found = [jobs.live(job) for job in islice(live, limit)]
        following: int | None = None
        if finished and len(found) == limit:
            following = NEWEST
        elif finished:
            start = JobId(before) if before is not None else None
            older = await asyncio.to_thread(backend.reads.finished_jobs, who, limit - len(found), start)
            listed = {v.id for v in found}
            ended = [job for job in older.jobs if wanted(job.state, job.tenant) and job.id not in listed]
            found += map(views.finished_job, ended)
            following = older.before
        return answer(api.JobList(found, following))


class _Explanations:
    """Works out one explanation at a time, in a thread: the explainer keeps indexes from one to the next."""

    def __init__(self, backend: Backend, foresight: Foresight) -> None:
        self._backend = backend
        self._explainer = Explainer(backend.service.policies, lambda scene: foresight.known(scene.job.id))
        self._turn, self._waiting = asyncio.Lock(), 0

    async def of(self, job: Job) -> Explanation:
        """Return why `job` is where it is. Raises: ApiError when too many ask at once."""
        if self._waiting >= EXPLANATIONS_WAITING_MAX:
            raise ApiError("overloaded", "too many explanations are being worked out", hint="come back in a moment")
        self._waiting += 1
        try:
            async with self._turn:
                question = question_of(self._backend.state, job, self._backend.clock.unix_ms())
                return await asyncio.to_thread(self._explainer.explain, question)
        finally:
            self._waiting -= 1


def _one_job_routes(app: FastAPI, backend: Backend, explanations: _Explanations, caller: Any, jobs: _JobViews) -> None:
    @app.get("/api/v1/jobs/{job_id}", **returns(api.JobView))
    async def show_job(who: caller, job_id: JobIdPath) -> Response:
        """Show one job, live or finished."""
        return answer(await jobs.any(who, job_id))

    @app.get("/api/v1/jobs/{job_id}/explanation", **returns(Explanation))
    async def explain_job(who: caller, job_id: JobIdPath) -> Response:
        """Say all that keeps a job waiting, what would let it start now, and when it may; or where it is."""
        job = backend.reads.live_job(who, JobId(job_id))
        if job is None:
            shown = await jobs.any(who, job_id)
            text = f"{shown.state}: {shown.reason}" if shown.reason else shown.state
            return answer(Explanation(JobId(job_id), shown.state, shown.state, text))
        return answer(views.explanation_for(await explanations.of(job), who))

    @app.post("/api/v1/jobs/{job_id}/cancel", **returns(api.DoneAnswer))
    async def cancel_job(who: caller, job_id: JobIdPath) -> Response:
        """Ask a job to end; asking again, or for one that has ended, changes nothing."""
        await jobs.check(who, job_id, "cancel")
        await backend.ask(msg.Cancel(JobId(job_id), who.user))
        return answer(api.DoneAnswer(True))

    @app.post("/api/v1/jobs/{job_id}/checkpoint", **returns(api.DoneAnswer))
    async def checkpoint_job(who: caller, job_id: JobIdPath) -> Response:
        """Ask a running program to save a checkpoint and carry on."""
        await jobs.check(who, job_id, "ask for a checkpoint of")
        reply = await backend.ask(msg.AskCheckpoint(JobId(job_id)))
        if isinstance(reply, Refusal):
            raise refused(reply)
        return answer(api.DoneAnswer(True))


def _job_story_routes(app: FastAPI, backend: Backend, caller: Any, jobs: _JobViews) -> None:
    @app.get("/api/v1/jobs/{job_id}/events", **returns(list[Record]))
    async def job_events(who: caller, job_id: JobIdPath) -> Response:
        """Return everything the log says of one job, in order."""
        await jobs.any(who, job_id)
        return answer(await asyncio.to_thread(backend.reads.records_of_job, who, JobId(job_id)))

    @app.get("/api/v1/jobs/{job_id}/outputs", **returns(api.OutputList))
    async def job_outputs(who: caller, job_id: JobIdPath) -> Response:
        """List the outputs of a job's replicas over all its attempts."""
        await jobs.any(who, job_id)
        listed = await asyncio.to_thread(backend.outputs.listed, JobId(job_id))
        return answer(api.OutputList([api.OutputRef(*ref) for ref in listed]))

    where = {"X-Penstock-Offset": "where this piece begins"}

    @app.get("/api/v1/jobs/{job_id}/logs", **returns(None, media="application/octet-stream", headers=where))
    async def job_logs(
        who: caller,
        job_id: JobIdPath,
        attempt: Annotated[int, Query(ge=1, le=2**31, examples=[1])],
        rank: Annotated[int, Query(ge=0, le=2**31)] = 0,
        offset: Annotated[int, Query(ge=0, le=2**62)] = 0,
        limit: Annotated[int, Query(ge=1, le=LOG_READ_MAX_BYTES)] = LOG_READ_MAX_BYTES,
    ) -> Response:
        """Return a piece of one replica's output, as it was written; `X-Penstock-Offset` says where it begins."""
        await jobs.any(who, job_id)
        read = backend.outputs.read
        piece = await asyncio.to_thread(read, JobId(job_id), AttemptNumber(attempt), Rank(rank), offset, limit)
        if piece is None:
            raise ApiError("not_found", f"job {job_id} has no output of attempt {attempt}, rank {rank}")
        where, data = piece
        return Response(data, headers={"X-Penstock-Offset": str(where)}, media_type="application/octet-stream")
