"""Routes about the cluster as a whole: nodes, queues, cycles, alerts, and forecasts."""

from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from starlette.responses import Response

from penstock import __version__
from penstock.api import types as api
from penstock.api.scheduling import CycleView, DefragList
from penstock.core.config.cluster import cluster_schema
from penstock.core.config.job import request_schema
from penstock.core.messages.requests import Refusal
from penstock.core.model.answers import PlanAnswer, Score
from penstock.core.state.snapshot import snapshot_beside
from penstock.core.status.alerts import alerts
from penstock.core.status.defrag import dry_run
from penstock.server.backend import Backend
from penstock.server.http.kept import max_stale_ms
from penstock.server.http.parsing import allow, refused
from penstock.server.http.responses import ApiError, answer
from penstock.server.lists import ALERTS, ETAS, QUEUES
from penstock.server.routes.openapi import EXAMPLE, returns
from penstock.server.services.estimates import EstimateService
from penstock.server.submitting import submit_of
from penstock.server.tables import ListQuery, list_query, paged
from penstock.server.views.cluster import alert_for, cluster_view, log_alerts, me_view, token_alerts, version_alerts
from penstock.server.views.scheduling import cycle_view, defrag_list, plan_for, queue_views


def cluster_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.get("/api/v1/health", **returns(api.Health))
    async def health() -> Response:
        """Say that the server answers, and whether its log can be written; needs no token."""
        return answer(api.Health("log_disk" if backend.log_problem() else "ok", __version__, backend.role))

    @app.get("/api/v1/me", **returns(api.Me))
    async def show_me(who: caller) -> Response:
        """Say who calls, and what they may see and do."""
        return answer(me_view(backend.state.config, who))

    @app.get("/api/v1/cluster", **returns(api.ClusterView))
    async def show_cluster(who: caller) -> Response:
        """Sum up the cluster."""

        async def work() -> Response:
            series = backend.metrics.series() if who.sees_all else ()
            return answer(cluster_view(backend.state, backend.name, series))

        return await backend.shared(("cluster", who.sees_all), work)

    job, cluster = answer(request_schema()).body, answer(cluster_schema()).body

    @app.get("/api/v1/schema/job", **returns(None))
    async def job_schema(who: caller) -> Response:
        """Return the JSON Schema of job files."""
        return Response(job, media_type="application/json")

    @app.get("/api/v1/schema/cluster", **returns(None))
    async def schema_of_cluster(who: caller) -> Response:
        """Return the JSON Schema of cluster files."""
        return Response(cluster, media_type="application/json")


def scheduling_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.get("/api/v1/queues", **returns(api.QueueList))
    async def list_queues(who: caller, query: Annotated[ListQuery, list_query(QUEUES)]) -> Response:
        """List queues with their numbers, and the next of the jobs that the caller may see."""

        def compute() -> Response:
            rows = queue_views(backend.state, backend.clock.unix_ms(), who, backend.service.policies or {})
            return paged(QUEUES, query, rows, api.QueueList)

        question = ("queues", who.sight, query.question)
        return await backend.kept.of(question, lambda: backend.pools.reads.run(compute), backend.state.seq)

    @app.get("/api/v1/alerts", **returns(api.AlertList))
    async def list_alerts(who: caller, query: Annotated[ListQuery, list_query(ALERTS)]) -> Response:
        """List alerts, most severe first: jobs that can never start, and other problems."""
        last, now_ms, sight = backend.service.controller.last_plan, backend.clock.unix_ms(), who.sight
        elsewhere = backend.joining.records.declares if backend.joining is not None else lambda _: False
        others = version_alerts(backend.other_agents(), elsewhere) if sight is None else []
        own = [*log_alerts(backend.log_problem(), who), *others, *token_alerts(backend.state, who, now_ms)]

        def compute() -> Response:
            found = alerts(backend.state, now_ms, last, sight)
            mine = [alert_for(one, who) for one in found if one.job_ids or sight is None]
            return paged(ALERTS, query, [*own, *mine], api.AlertList)

        question = ("alerts", sight, tuple(own), query.question)
        return await backend.kept.of(question, lambda: backend.pools.heavy.run(compute), backend.state.seq)

    @app.get("/api/v1/defrag", **returns(DefragList))
    async def dry_run_of_defrag(who: caller) -> Response:
        """Say which jobs would move so that a gang fits, if the next cycle might move them; nothing moves."""
        allow(who.sees_all, "see what would move: it is about jobs of all tenants")

        def compute() -> Response:
            snapshot = snapshot_beside(backend.state)
            moves, places = dry_run(snapshot, backend.clock.unix_ms(), backend.service.policies)
            return answer(defrag_list(moves, places, switched_on=snapshot.config.settings.defrag))

        question = ("defrag",)
        return await backend.kept.of(question, lambda: backend.pools.heavy.run(compute), backend.state.seq)

    @app.get("/api/v1/cycle", **returns(CycleView))
    async def show_cycle(who: caller) -> Response:
        """Show what the last scheduling cycle decided, and the plans that it chose from."""
        allow(who.sees_all, "see cycles: they are about jobs of all tenants")
        last = backend.service.controller.last_plan
        if last is None:
            raise ApiError("not_found", "no cycle was planned yet", hint="come back in a moment")
        return await backend.pools.reads.run(lambda: answer(cycle_view(last, backend.state.config.candidates)))


def foresight_routes(app: FastAPI, backend: Backend, estimates: EstimateService, caller: Any) -> None:
    @app.post("/api/v1/plan", **returns(PlanAnswer, body="job_request", example=EXAMPLE))
    async def plan_jobs(request: Request, who: caller) -> Response:
        """Say what a submit of this request would lead to: when and where jobs start, and who would have to leave."""
        found = await estimates.plan(await submit_of(backend, request, who, planned=True))
        if isinstance(found, Refusal):
            raise refused(found)
        return await backend.pools.reads.run(lambda: answer(plan_for(found, who, backend.reads)))

    @app.get("/api/v1/eta", **returns(api.EtaList))
    async def list_etas(
        who: caller,
        query: Annotated[ListQuery, list_query(ETAS)],
        max_age: Annotated[int, Query(ge=0, le=86_400_000, description="recomputed when older (ms)")] = 10_000,
    ) -> Response:
        """Say when waiting jobs start: an interval, corrected by how right such estimates were."""
        found = await estimates.look(max_age, max_stale_ms.get())
        waiting = backend.state.jobs.count(who.sight, "waiting")

        def compute() -> Response:
            mine = [job for job in found.jobs if who.sees(job.tenant)]
            untold = found.untold if who.sees_all else max(0, waiting - len(mine))
            return paged(ETAS, query, mine, lambda rows: api.EtaList(found.made_ms, found.samples, untold, rows))

        return await backend.pools.reads.run(compute)

    @app.get("/api/v1/eta/calibration", **returns(Score))
    async def show_calibration(who: caller) -> Response:
        """Say how right the estimates were that have come true."""
        return answer(await estimates.score())
