"""Routes about jobs: submit, list, show, explain, cancel, outputs."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from typing import Annotated, Any

from fastapi import FastAPI, Header, Path, Query, Request
from msgspec.structs import replace
from starlette.responses import Response

from penstock.api import types as api
from penstock.control import messages as msg
from penstock.core.explain import Explainer, Explanation, question_of
from penstock.core.lifecycle.versions import CHANGED, job_version
from penstock.core.messages.reports import ReplicaKey
from penstock.core.messages.requests import Refusal, Submitted
from penstock.core.model.access import Scope
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import FINAL_STATES, Job
from penstock.core.model.measured import Measured, total
from penstock.core.state import idleness
from penstock.core.state.live_jobs import LIVE_STATES
from penstock.ports import FinishedJob
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, refused
from penstock.server.http.responses import ApiError, answer
from penstock.server.http.versions import IfMatch, changed, versions_of, with_version
from penstock.server.listing import check_filters, job_table, page_of
from penstock.server.routes.openapi import EXAMPLE, MADE, returns
from penstock.server.services.estimates import EstimateService
from penstock.server.submitting import submit_of
from penstock.server.tables import ListQuery, Page, answer_with, list_query
from penstock.server.views.jobs import finished_job, finished_views, job_refs, live_job, waiting_reason
from penstock.server.views.scheduling import explanation_for

LIST_AT_ONCE = 20_000
"""Live jobs that are filtered and sorted as fast as a page."""
NEWEST = 2**53
"""As `before`: all finished jobs, from the newest."""
MEASURED_LIVE_MAX = 1_000
"""Replicas whose use is added up for one answer while they run; of larger jobs, once they have ended."""
REFS_AT_ONCE = 100
"""The answer to a submit of more jobs is written beside the event loop."""

JobIdPath = Annotated[int, Path(ge=1, le=2**53, description="number of the job", examples=[1])]


def job_routes(app: FastAPI, backend: Backend, estimates: EstimateService, caller: Any) -> None:
    jobs = JobViews(backend, estimates)
    _submit_routes(app, backend, caller)
    _list_routes(app, backend, caller, jobs)
    explainer = Explainer(backend.service.policies, lambda scene: estimates.known(scene.job.id))
    _one_job_routes(app, backend, explainer, caller, jobs)


class JobViews:
    """Jobs as the API shows them, live ones with facts of the control loop beyond the log."""

    def __init__(self, backend: Backend, estimates: EstimateService | None = None) -> None:
        self._backend, self._estimates = backend, estimates

    def live(self, jobs: Iterable[Job], *, full: bool = False) -> list[api.JobView]:
        controller = self._backend.service.controller
        now_ms, holds = self._backend.clock.unix_ms(), self._backend.state.money.holds()
        found = []
        for job in jobs:
            held = job.spec.tenant in holds
            waits_for = "tenant_held" if held else self._waiting_reason(job, now_ms)
            reason = waits_for if job.state == "waiting" else idleness.said(job, now_ms)
            reached = controller.reached.get(job.id, 0)
            likely_ms = self._likely_ms(job)
            measured = self._measured(job, now_ms) if full else None
            found.append(
                live_job(
                    job,
                    full=full,
                    waits_for=reason,
                    reached=reached,
                    likely_ms=likely_ms,
                    measured=measured,
                    nodes=self._backend.state.nodes if full else {},
                )
            )
        return found

    def _measured(self, job: Job, now_ms: int) -> Measured | None:
        """Return what a job has used so far: in the log, and as its nodes last reported."""
        state, figures, attempt = self._backend.state, self._backend.service.figures, job.attempt
        if attempt is None or len(attempt.replicas) > MEASURED_LIVE_MAX:
            return job.measured
        live = [
            figures.measured(state, ReplicaKey(job.id, attempt.number, replica.rank), replica.place.node, now_ms)
            for replica in attempt.replicas
            if replica.holds
        ]
        return total(job.measured, *live)

    def _likely_ms(self, job: Job | FinishedJob) -> int:
        """Return when a waiting job is expected to start, as last estimated; 0: nobody knows."""
        if self._estimates is None or job.state != "waiting":
            return 0
        times = self._estimates.known(JobId(job.id))
        return times[1] if times is not None else 0

    def _waiting_reason(self, job: Job, now_ms: int) -> str:
        controller = self._backend.service.controller
        return waiting_reason(job, controller.last_plan, now_ms, shadow=controller.shadow)

    def reasons(self) -> Callable[[Job | FinishedJob], str]:
        """Return what says in a short code why a job waits or ended, '' of one that runs, as things stand now."""
        now_ms, holds = self._backend.clock.unix_ms(), self._backend.state.money.holds()

        def reason_of(job: Job | FinishedJob) -> str:
            if not isinstance(job, Job):
                return job.reason
            if job.state != "waiting":
                return ""
            return "tenant_held" if job.spec.tenant in holds else self._waiting_reason(job, now_ms)

        return reason_of

    def page(self, scope: Scope, query: ListQuery, *, finished: bool, fold_arrays: bool) -> Response:
        """Return the answer with one page of a list."""
        reads, table = self._backend.reads, job_table(self.reasons(), lambda job: self._likely_ms(job) or None)
        found = page_of(table, query, scope, reads, finished=finished, fold_arrays=fold_arrays)
        live = self.live(row.job for row in found.rows if isinstance(row.job, Job))
        ended = finished_views(reads, [row.job for row in found.rows if not isinstance(row.job, Job)])
        shown = {view.id: view for view in (*live, *ended)}
        views = [replace(shown[row.job.id], array_counts=row.counts) for row in found.rows]
        totals = dict(Counter[str](map(attrgetter("state"), found.matching)))
        page = Page([row.job for row in found.rows], found.cursor, found.matching)
        return answer_with(table, query, api.JobList(views, None, totals), page)

    async def any(self, scope: Scope, job_id: int, *, full: bool = False) -> api.JobView:
        """Return the view of a job, live or finished; raises ApiError when there is none.

        Args:
            full: of a finished job, too, with what it was submitted with: one more read of the log.
        """
        job = self._backend.reads.live_job(scope, JobId(job_id))
        if job is not None:
            return self.live([job], full=True)[0]
        reads = self._backend.reads

        def compute() -> api.JobView | None:
            found = reads.finished_job(scope, JobId(job_id))
            if found is None:
                return None
            return finished_job(found, reads.submits([found]).get(found.id) if full else None, full=full)

        finished = await self._backend.pools.reads.run(compute)
        if finished is None:
            raise ApiError("not_found", f"there is no job {job_id}")
        return finished

    async def change(self, scope: Scope, request: msg.Cancel | msg.AskCheckpoint) -> None:
        """Do something with one job. Raises: ApiError, also where it is none of the versions that the caller knows."""
        reply = await self._backend.ask(request)
        if not isinstance(reply, Refusal):
            return
        if reply.code != CHANGED:
            raise refused(reply)
        now = await self.any(scope, request.job_id, full=True)
        raise changed(job_version(self._backend.state.jobs.get(request.job_id)), f"job {request.job_id}", now)

    async def check(self, scope: Scope, job_id: int, what: str) -> None:
        """Raise ApiError when there is no such job, or the caller may not do this with it."""
        owner = await self._backend.pools.reads.run(self._backend.reads.owner, scope, JobId(job_id))
        if owner is None:
            raise ApiError("not_found", f"there is no job {job_id}")
        allow(scope.acts_on(*owner), f"{what} job {job_id}")


def _submit_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.post(
        "/api/v1/jobs", status_code=201, **returns(api.SubmitAnswer, body="job_request", example=EXAMPLE, statuses=MADE)
    )
    async def submit_jobs(
        request: Request, who: caller, idempotency_key: Annotated[str | None, Header(max_length=200)] = None
    ) -> Response:
        """Submit one job, or many all together or not at all."""
        reply = await backend.ask(await submit_of(backend, request, who, idempotency_key or ""))
        if isinstance(reply, Refusal):
            raise refused(reply)
        assert isinstance(reply, Submitted)
        status = 200 if reply.repeated else 201
        if len(reply.job_ids) <= REFS_AT_ONCE:
            return answer(_made(who, backend, reply), status)
        return await backend.pools.heavy.run(lambda: answer(_made(who, backend, reply), status))


def _made(who: Scope, backend: Backend, reply: Submitted) -> api.SubmitAnswer:
    return api.SubmitAnswer(job_refs(who, backend.reads, reply.job_ids), reply.repeated, reply.warnings)


def _list_routes(app: FastAPI, backend: Backend, caller: Any, jobs: JobViews) -> None:
    asked_for = list_query(job_table(lambda job: ""))

    @app.get("/api/v1/jobs", **returns(api.JobList))
    async def list_jobs(
        who: caller,
        query: Annotated[ListQuery, asked_for],
        finished: Annotated[bool, Query(description="finished jobs too, newest first")] = False,
        before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        after: Annotated[int, Query(ge=0, le=2**53, description="only live jobs with a higher number")] = 0,
        fold_arrays: Annotated[bool, Query(description="one row for each array of live jobs")] = False,
    ) -> Response:
        """List jobs. With `sort` or another of the newer parameters, in that order; else live ones by number."""
        assert query.limit is not None
        limit = query.limit
        states, tenant = query.given.get("state", ()), query.given.get("tenant")
        check_filters(query.given, who, backend.state.config)
        newer = query.sort or query.cursor or query.fields or query.totals_by or fold_arrays or len(states) > 1
        if newer or query.given.keys() - {"state", "tenant"}:
            query = query if query.sort else replace(query, sort="newest")
            far = (finished or FINAL_STATES.intersection(states)) and query.given  # a search may look at many
            pool = backend.pools.heavy if far or len(backend.state.jobs) > LIST_AT_ONCE else backend.pools.reads

            def page() -> Awaitable[Response]:
                return pool.run(jobs.page, who, query, finished=finished, fold_arrays=fold_arrays)

            if query.cursor:
                return await page()
            return await backend.shared(("jobs", who.sight, query.question, finished, fold_arrays), page)

        def compute() -> Response:
            found: list[api.JobView] = []
            if before is None:
                live = [one for one in LIVE_STATES if not states or one in states]
                found = jobs.live(backend.reads.live_page(who, after, limit, tenant=tenant, states=live))
            following: int | None = None
            if finished and len(found) == limit:
                following = NEWEST
            elif finished:
                start = JobId(before) if before is not None else None
                older = backend.reads.finished_jobs(who, limit - len(found), start)
                listed = {v.id for v in found}
                ended = (
                    job
                    for job in older.jobs
                    if (not states or job.state in states) and tenant in (None, job.tenant) and job.id not in listed
                )
                found += finished_views(backend.reads, list(ended))
                following = older.before
            return answer(api.JobList(found, following))

        return await backend.pools.reads.run(compute)


def _one_job_routes(app: FastAPI, backend: Backend, explainer: Explainer, caller: Any, jobs: JobViews) -> None:
    @app.get("/api/v1/jobs/{job_id}", **returns(api.JobView))
    async def show_job(who: caller, job_id: JobIdPath) -> Response:
        """Show one job, live or finished."""
        job = backend.reads.live_job(who, JobId(job_id))
        if job is not None:
            return with_version(answer(jobs.live([job], full=True)[0]), job_version(job))
        return answer(await jobs.any(who, job_id, full=True))

    @app.get("/api/v1/jobs/{job_id}/explanation", **returns(Explanation))
    async def explain_job(who: caller, job_id: JobIdPath) -> Response:
        """Say all that keeps a job waiting, what would let it start now, and when it may; or where it is."""
        job = backend.reads.live_job(who, JobId(job_id))
        if job is None:
            shown = await jobs.any(who, job_id)
            text = f"{shown.state}: {shown.reason}" if shown.reason else shown.state
            return answer(Explanation(JobId(job_id), shown.state, shown.state, text))

        def compute() -> Response:
            question = question_of(backend.state, job, backend.clock.unix_ms())
            found = explanation_for(explainer.explain(question), who)
            said = backend.said_elsewhere(job.id) if job.state in ("waiting", "starting") else ""
            return answer(replace(found, elsewhere=said) if said else found)

        return await backend.pools.explain.run(compute)

    @app.post("/api/v1/jobs/{job_id}/cancel", **returns(api.DoneAnswer))
    async def cancel_job(who: caller, job_id: JobIdPath, if_match: IfMatch = "") -> Response:
        """Ask a job to end; asking again, or for one that has ended, changes nothing."""
        await jobs.check(who, job_id, "cancel")
        await jobs.change(who, msg.Cancel(JobId(job_id), who.user, versions=versions_of(if_match)))
        return answer(api.DoneAnswer(True))

    @app.post("/api/v1/jobs/{job_id}/checkpoint", **returns(api.DoneAnswer))
    async def checkpoint_job(who: caller, job_id: JobIdPath, if_match: IfMatch = "") -> Response:
        """Ask a running program to save a checkpoint and carry on."""
        await jobs.check(who, job_id, "ask for a checkpoint of")
        await jobs.change(who, msg.AskCheckpoint(JobId(job_id), versions_of(if_match)))
        return answer(api.DoneAnswer(True))
