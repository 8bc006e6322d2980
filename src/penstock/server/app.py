"""The routes of `/api/v1`. Each checks the token, translates, asks the control loop, translates back."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from penstock import __version__
from penstock.api import types as api
from penstock.control import messages as msg
from penstock.core.defrag import dry_run
from penstock.core.errors import Problem
from penstock.core.explain import Explainer, Explanation, question_of
from penstock.core.jobfile import parse_request, request_schema
from penstock.core.lifecycle.requests import Refusal, Submit, Submitted
from penstock.core.model.events import Record
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank
from penstock.core.model.jobs import Job
from penstock.core.predict.calibration import Score
from penstock.core.snapshot import take_snapshot
from penstock.core.stuck import alerts
from penstock.server import views
from penstock.server.answers import ApiError, answer, problem
from penstock.server.auth import Principal
from penstock.server.backend import Backend
from penstock.server.bill import bill_routes
from penstock.server.foresight import Foresight
from penstock.server.openapi import describe, returns

BODY_MAX_BYTES = 64 * 2**20
LOG_READ_MAX_BYTES = 1 << 20
LIST_MAX = 1_000
NEWEST = 2**53
"""As `before`: all finished jobs, from the newest."""
EVENTS_MAX = 10_000
STREAM_BATCH = 500
STREAM_KEEPALIVE_S = 15.0
EXPLANATIONS_WAITING_MAX = 64
"""Explanations asked for at once; they are worked out one after the other, beside the event loop."""

JobIdPath = Annotated[int, Path(ge=1, le=2**53, description="number of the job")]
NodePath = Annotated[str, Path(max_length=63, description="name of the node")]
AfterQuery = Annotated[int, Query(ge=0, le=2**53, description="only events with a higher number")]
_bearer = HTTPBearer(auto_error=False)
_decode_json = msgspec.json.Decoder().decode


def create_app(backend: Backend, foresight: Foresight) -> FastAPI:
    """Return the application; it owns nothing and ends nothing."""
    app = FastAPI(
        title="Penstock", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/v1/openapi.json"
    )
    _errors(app)

    async def principal(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Principal:
        found = backend.tokens.principal(credentials.credentials) if credentials else None
        if found is None:
            title = "the token is not valid" if credentials else "a token is needed"
            raise ApiError("unauthenticated", title, hint="send 'Authorization: Bearer TOKEN'")
        return found

    caller = Annotated[Principal, Depends(principal)]
    _job_routes(app, backend, foresight, caller)
    _cluster_routes(app, backend, caller)
    _scheduling_routes(app, backend, caller)
    _foresight_routes(app, foresight, caller)
    _event_routes(app, backend, caller)
    bill_routes(app, backend, caller)
    describe(app)
    return app


def _errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def on_api_error(_: Request, error: ApiError) -> Response:
        return problem(error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        problems = [
            Problem("bad_value", ".".join(map(str, e["loc"])), f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}")
            for e in error.errors()
        ]
        return problem(ApiError("invalid_input", "the request has wrong parameters", problems=problems))

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
        return problem(ApiError(code, str(error.detail)), error.headers)


async def _body(request: Request) -> bytes:
    """Return the body. Raises ApiError when it is over the limit."""
    announced = request.headers.get("content-length", "0")
    body = bytearray()
    if not announced.isdigit() or int(announced) <= BODY_MAX_BYTES:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_MAX_BYTES:
                break
        else:
            return bytes(body)
    raise ApiError("too_large", f"a request may have {BODY_MAX_BYTES} bytes")


def _json(body: bytes) -> Any:
    try:
        return _decode_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("not_json", "the body is not JSON", detail=str(error)) from error


class _JobViews:
    """Jobs as the API shows them, live ones with what the control loop knows beyond the log."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def live(self, job: Job, *, full: bool = False) -> api.JobView:
        controller = self._backend.service.controller
        now_ms = self._backend.clock.unix_ms()
        waits_for = views.waiting_reason(job, controller.last_plan, now_ms) if job.state == "waiting" else ""
        return views.live_job(job, full=full, waits_for=waits_for, reached=controller.reached.get(job.id, 0))

    def any(self, job_id: int) -> api.JobView:
        """Return the view of a job, live or finished; raises ApiError when there is none."""
        job = self._backend.live_job(JobId(job_id))
        if job is not None:
            return self.live(job, full=True)
        finished = self._backend.reader.finished_job(JobId(job_id))
        if finished is None:
            raise ApiError("not_found", f"there is no job {job_id}")
        return views.finished_job(finished)


def _job_routes(app: FastAPI, backend: Backend, foresight: Foresight, caller: Any) -> None:
    jobs = _JobViews(backend)
    _submit_and_list_routes(app, backend, caller, jobs)
    _one_job_routes(app, backend, _Explanations(backend, foresight), caller, jobs)
    _job_story_routes(app, backend, caller, jobs)


def _submit_and_list_routes(app: FastAPI, backend: Backend, caller: Any, jobs: _JobViews) -> None:
    @app.post("/api/v1/jobs", status_code=201, **returns(api.SubmitAnswer, body="job_request"))
    async def submit_jobs(
        request: Request, who: caller, idempotency_key: Annotated[str | None, Header(max_length=200)] = None
    ) -> Response:
        """Submit one job, or many all together or not at all."""
        body = await _body(request)
        entries, problems = parse_request(_json(body))
        if problems:
            raise ApiError("invalid_input", _title(problems), problems=problems)
        key = f"{who.user}/{idempotency_key}" if idempotency_key else ""
        digest = hashlib.sha256(body).hexdigest() if key else ""
        reply = await backend.ask(Submit(entries, who.user, key, digest))
        if isinstance(reply, Refusal):
            raise ApiError(reply.code, _title(list(reply.problems)), problems=reply.problems)
        assert isinstance(reply, Submitted)
        refs = views.job_refs(backend.state, backend.reader, reply.job_ids)
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

        def wanted(job: api.JobView) -> bool:
            return (state is None or job.state == state) and (tenant is None or job.tenant == tenant)

        found: list[api.JobView] = []
        if before is None:
            found = [v for v in map(jobs.live, backend.live_jobs()) if wanted(v)][:limit]
        following: int | None = None
        if finished and len(found) == limit:
            following = NEWEST
        elif finished:
            start = JobId(before) if before is not None else None
            older = await asyncio.to_thread(backend.reader.finished_jobs, limit - len(found), start)
            listed = {v.id for v in found}
            found += [v for v in map(views.finished_job, older) if wanted(v) and v.id not in listed]
            following = older[-1].id if older else None
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
        return answer(jobs.any(job_id))

    @app.get("/api/v1/jobs/{job_id}/explanation", **returns(Explanation))
    async def explain_job(who: caller, job_id: JobIdPath) -> Response:
        """Say all that keeps a job waiting, what would let it start now, and when it may; or where it is."""
        job = backend.live_job(JobId(job_id))
        if job is None:
            shown = jobs.any(job_id)
            text = f"{shown.state}: {shown.reason}" if shown.reason else shown.state
            return answer(Explanation(JobId(job_id), shown.state, shown.state, text))
        return answer(await explanations.of(job))

    @app.post("/api/v1/jobs/{job_id}/cancel", **returns(api.DoneAnswer))
    async def cancel_job(who: caller, job_id: JobIdPath) -> Response:
        """Ask a job to end; asking again, or for one that has ended, changes nothing."""
        reply = await backend.ask(msg.Cancel(JobId(job_id), who.user))
        if isinstance(reply, msg.Done) and not reply.found:
            jobs.any(job_id)
        return answer(api.DoneAnswer(True))

    @app.post("/api/v1/jobs/{job_id}/checkpoint", **returns(api.DoneAnswer))
    async def checkpoint_job(who: caller, job_id: JobIdPath) -> Response:
        """Ask a running program to save a checkpoint and carry on."""
        jobs.any(job_id)
        reply = await backend.ask(msg.AskCheckpoint(JobId(job_id)))
        if isinstance(reply, Refusal):
            raise ApiError(reply.code, _title(list(reply.problems)), problems=reply.problems)
        return answer(api.DoneAnswer(True))


def _job_story_routes(app: FastAPI, backend: Backend, caller: Any, jobs: _JobViews) -> None:
    @app.get("/api/v1/jobs/{job_id}/events", **returns(list[Record]))
    async def job_events(who: caller, job_id: JobIdPath) -> Response:
        """Return everything the log says of one job, in order."""
        jobs.any(job_id)
        return answer(await asyncio.to_thread(backend.reader.records_of_job, JobId(job_id)))

    @app.get("/api/v1/jobs/{job_id}/outputs", **returns(api.OutputList))
    async def job_outputs(who: caller, job_id: JobIdPath) -> Response:
        """List the outputs of a job's replicas over all its attempts."""
        jobs.any(job_id)
        listed = await asyncio.to_thread(backend.outputs.listed, JobId(job_id))
        return answer(api.OutputList([api.OutputRef(*ref) for ref in listed]))

    @app.get("/api/v1/jobs/{job_id}/logs", **returns(None, media="application/octet-stream"))
    async def job_logs(
        who: caller,
        job_id: JobIdPath,
        attempt: Annotated[int, Query(ge=1, le=2**31)],
        rank: Annotated[int, Query(ge=0, le=2**31)] = 0,
        offset: Annotated[int, Query(ge=0, le=2**62)] = 0,
        limit: Annotated[int, Query(ge=1, le=LOG_READ_MAX_BYTES)] = LOG_READ_MAX_BYTES,
    ) -> Response:
        """Return a piece of one replica's output, as it was written; `X-Penstock-Offset` says where it begins."""
        jobs.any(job_id)
        read = backend.outputs.read
        piece = await asyncio.to_thread(read, JobId(job_id), AttemptNumber(attempt), Rank(rank), offset, limit)
        if piece is None:
            raise ApiError("not_found", f"job {job_id} has no output of attempt {attempt}, rank {rank}")
        where, data = piece
        return Response(data, headers={"X-Penstock-Offset": str(where)}, media_type="application/octet-stream")


def _title(problems: list[Problem]) -> str:
    first = problems[0].message
    return first if len(problems) == 1 else f"{first} (and {len(problems) - 1} more problem(s))"


def _cluster_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.get("/api/v1/health", **returns(api.Health))
    async def health() -> Response:
        """Say that the server answers; needs no token."""
        return answer(api.Health("ok", __version__))

    @app.get("/api/v1/cluster", **returns(api.ClusterView))
    async def show_cluster(who: caller) -> Response:
        """Sum up the cluster."""
        return answer(views.cluster_view(backend.state, backend.name))

    @app.get("/api/v1/nodes", **returns(api.NodeList))
    async def list_nodes(who: caller) -> Response:
        """List nodes with their devices and who holds them."""
        connected = backend.connected()
        names = sorted(backend.state.nodes)
        return answer(api.NodeList([views.node_view(backend.state, n, connected=n in connected) for n in names]))

    @app.post("/api/v1/nodes/{node}/drain", **returns(api.DoneAnswer))
    async def drain_node(
        who: caller,
        node: NodePath,
        on: Annotated[bool, Query(description="false opens the node again")] = True,
        evict: Annotated[bool, Query(description="ask running work to move")] = False,
        reason: Annotated[str, Query(max_length=1000)] = "",
    ) -> Response:
        """Close a node for new work, or open it again."""
        reply = await backend.ask(msg.Drain(NodeName(node), on, who.user, reason, evict))
        if isinstance(reply, msg.Done) and not reply.found:
            raise ApiError("not_found", f"there is no node '{node}'")
        return answer(api.DoneAnswer(True))

    @app.get("/api/v1/usage", **returns(api.UsageList))
    async def usage(who: caller) -> Response:
        """Return device and CPU time by tenant, recomputed from the log."""

        def compute() -> list[api.UsageView]:
            records: list[Record] = []
            while batch := backend.reader.records(records[-1].seq if records else 0, EVENTS_MAX):
                records += batch
            return views.usage_views(records, backend.clock.unix_ms())

        return answer(api.UsageList(await asyncio.to_thread(compute)))

    @app.get("/api/v1/schema/job", **returns(None))
    async def job_schema(who: caller) -> Response:
        """Return the JSON Schema of job files."""
        return answer(request_schema())


def _scheduling_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.get("/api/v1/queues", **returns(api.QueueList))
    async def list_queues(who: caller) -> Response:
        """List queues with their numbers and next jobs."""
        return answer(api.QueueList(views.queue_views(backend.state, backend.clock.unix_ms())))

    @app.get("/api/v1/alerts", **returns(api.AlertList))
    async def list_alerts(who: caller) -> Response:
        """List what does not go on by itself: jobs that can never start, and other standstills."""
        last, now_ms = backend.service.controller.last_plan, backend.clock.unix_ms()
        return answer(api.AlertList(list(await asyncio.to_thread(alerts, backend.state, now_ms, last))))

    @app.get("/api/v1/defrag", **returns(api.DefragList))
    async def dry_run_of_defrag(who: caller) -> Response:
        """Say which jobs would move so that a gang fits, if the next cycle might move them; nothing moves."""
        snapshot, now_ms = take_snapshot(backend.state), backend.clock.unix_ms()
        moves, places = await asyncio.to_thread(dry_run, snapshot, now_ms, backend.service.policies)
        return answer(views.defrag_list(moves, places, switched_on=snapshot.config.settings.defrag))

    @app.get("/api/v1/cycle", **returns(api.CycleView))
    async def show_cycle(who: caller) -> Response:
        """Show what the last scheduling cycle decided, and the plans that it chose from."""
        last = backend.service.controller.last_plan
        if last is None:
            raise ApiError("not_found", "no cycle was planned yet", hint="come back in a moment")
        return answer(views.cycle_view(last, backend.state.config.candidates))


def _foresight_routes(app: FastAPI, foresight: Foresight, caller: Any) -> None:
    @app.post("/api/v1/plan", **returns(api.PlanAnswer, body="job_request"))
    async def plan_jobs(request: Request, who: caller) -> Response:
        """Say what a submit of this request would lead to: when and where jobs start, and who would have to leave."""
        entries, problems = parse_request(_json(await _body(request)))
        if problems:
            raise ApiError("invalid_input", _title(problems), problems=problems)
        found = await foresight.plan(Submit(entries, who.user))
        if isinstance(found, Refusal):
            raise ApiError(found.code, _title(list(found.problems)), problems=found.problems)
        return answer(found)

    @app.get("/api/v1/eta", **returns(api.EtaList))
    async def list_etas(
        who: caller,
        max_age: Annotated[int, Query(ge=0, le=86_400_000, description="worked out anew when older (ms)")] = 10_000,
    ) -> Response:
        """Say when waiting jobs start: an interval, corrected by how right such estimates were."""
        return answer(await foresight.look(max_age))

    @app.get("/api/v1/eta/calibration", **returns(Score))
    async def show_calibration(who: caller) -> Response:
        """Say how right the estimates were that have come true."""
        return answer(await foresight.score())


def _event_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.get("/api/v1/events", **returns(list[Record]))
    async def list_events(
        who: caller, after: AfterQuery = 0, limit: Annotated[int, Query(ge=1, le=EVENTS_MAX)] = 1000
    ) -> Response:
        """Return events of the log, in order."""
        return answer(await asyncio.to_thread(backend.reader.records, after, limit))

    @app.get("/api/v1/events/stream", **returns(None, media="text/event-stream"))
    async def stream_events(
        who: caller,
        after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=2**53)] = None,
    ) -> Response:
        """Follow the log as server-sent events; `after` or Last-Event-ID says where to go on, else from now."""
        start = last_event_id if last_event_id is not None else after
        follow = _follow(backend, backend.durable_seq if start is None else start)
        return StreamingResponse(follow, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


async def _follow(backend: Backend, after: int) -> AsyncIterator[bytes]:
    yield b": following\n\n"
    while not backend.closing.is_set():
        records = await asyncio.to_thread(backend.reader.records, after, STREAM_BATCH)
        for record in records:
            kind = type(record.event).__name__
            yield f"id: {record.seq}\nevent: {kind}\ndata: ".encode() + msgspec.json.encode(record) + b"\n\n"
        if records:
            after = records[-1].seq
        elif backend.durable_seq <= after:
            await backend.wait_for_change(STREAM_KEEPALIVE_S)
            if backend.durable_seq <= after:
                yield b": still here\n\n"
