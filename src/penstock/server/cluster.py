"""Routes about the cluster as a whole: nodes, queues, cycles, alerts, and what is ahead."""

import asyncio
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from penstock import __version__
from penstock.api import types as api
from penstock.control import messages as msg
from penstock.core.access import Scope
from penstock.core.defrag import dry_run
from penstock.core.jobfile import request_schema
from penstock.core.lifecycle.requests import Refusal, Submit
from penstock.core.model.ids import JobId, NodeName
from penstock.core.predict.calibration import Score
from penstock.core.snapshot import snapshot_beside
from penstock.core.stuck import alerts
from penstock.server import views
from penstock.server.answers import ApiError, answer
from penstock.server.backend import Backend
from penstock.server.foresight import Foresight
from penstock.server.intake import allow, body_of, jobs_of, refused
from penstock.server.openapi import EXAMPLE, returns
from penstock.server.submitting import adopted, check_dependencies

NodePath = Annotated[str, Path(max_length=63, description="name of the node")]


def cluster_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.get("/api/v1/health", **returns(api.Health))
    async def health() -> Response:
        """Say that the server answers; needs no token."""
        return answer(api.Health("ok", __version__, backend.role))

    @app.get("/api/v1/me", **returns(api.Me))
    async def show_me(who: caller) -> Response:
        """Say who calls, and what they may see and do."""
        names = [tenant.name for tenant in backend.state.config.tenants]
        roles = {name: role for name, role in sorted(who.tenants.items()) if who.sees(name)}
        submits = [str(name) for name in names if who.submits(name)]
        return answer(api.Me(who.user, who.role, roles, who.level, submits))

    @app.get("/api/v1/cluster", **returns(api.ClusterView))
    async def show_cluster(who: caller) -> Response:
        """Sum up the cluster."""
        return answer(views.cluster_view(backend.state, backend.name))

    @app.get("/api/v1/nodes", **returns(api.NodeList))
    async def list_nodes(who: caller) -> Response:
        """List nodes with their devices and who holds them; of jobs of others only that they do."""
        connected, state = backend.connected(), backend.state
        mine = None if who.sees_all else {job.id for job in backend.reads.live_jobs(who)}
        names = sorted(state.nodes)
        return answer(api.NodeList([views.node_view(state, n, connected=n in connected, visible=mine) for n in names]))

    @app.post("/api/v1/nodes/{node}/drain", **returns(api.DoneAnswer))
    async def drain_node(
        who: caller,
        node: NodePath,
        on: Annotated[bool, Query(description="false opens the node again")] = True,
        evict: Annotated[bool, Query(description="ask running work to move")] = False,
        evict_after: Annotated[int, Query(ge=0, le=10**10, description="ask it after so long (ms); 0: never")] = 0,
        reason: Annotated[str, Query(max_length=1000)] = "",
    ) -> Response:
        """Close a node for new work, or open it again."""
        allow(who.operates, "close or open nodes")
        at_ms = backend.clock.unix_ms() + evict_after if evict_after else 0
        reply = await backend.ask(msg.Drain(NodeName(node), on, who.user, reason, evict, at_ms))
        if isinstance(reply, msg.Done) and not reply.found:
            raise ApiError("not_found", f"there is no node '{node}'")
        return answer(api.DoneAnswer(True))

    @app.get("/api/v1/schema/job", **returns(None))
    async def job_schema(who: caller) -> Response:
        """Return the JSON Schema of job files."""
        return answer(request_schema())


def scheduling_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.get("/api/v1/queues", **returns(api.QueueList))
    async def list_queues(who: caller) -> Response:
        """List queues with their numbers, and the next of the jobs that the caller may see."""
        return answer(api.QueueList(views.queue_views(backend.state, backend.clock.unix_ms(), who)))

    @app.get("/api/v1/alerts", **returns(api.AlertList))
    async def list_alerts(who: caller) -> Response:
        """List what does not go on by itself: jobs that can never start, and other standstills."""
        last, now_ms = backend.service.controller.last_plan, backend.clock.unix_ms()
        found = await asyncio.to_thread(alerts, backend.state, now_ms, last, lambda job: who.sees(job.spec.tenant))
        mine = [views.alert_for(alert, who) for alert in found if alert.job_ids or who.sees_all]
        return answer(api.AlertList(mine))

    @app.get("/api/v1/defrag", **returns(api.DefragList))
    async def dry_run_of_defrag(who: caller) -> Response:
        """Say which jobs would move so that a gang fits, if the next cycle might move them; nothing moves."""
        allow(who.sees_all, "see what would move: it is about jobs of all tenants")
        snapshot, now_ms = snapshot_beside(backend.state), backend.clock.unix_ms()
        moves, places = await asyncio.to_thread(dry_run, snapshot, now_ms, backend.service.policies)
        return answer(views.defrag_list(moves, places, switched_on=snapshot.config.settings.defrag))

    @app.get("/api/v1/cycle", **returns(api.CycleView))
    async def show_cycle(who: caller) -> Response:
        """Show what the last scheduling cycle decided, and the plans that it chose from."""
        allow(who.sees_all, "see cycles: they are about jobs of all tenants")
        last = backend.service.controller.last_plan
        if last is None:
            raise ApiError("not_found", "no cycle was planned yet", hint="come back in a moment")
        return answer(views.cycle_view(last, backend.state.config.candidates))


def foresight_routes(app: FastAPI, backend: Backend, foresight: Foresight, caller: Any) -> None:
    @app.post("/api/v1/plan", **returns(api.PlanAnswer, body="job_request", example=EXAMPLE))
    async def plan_jobs(request: Request, who: caller) -> Response:
        """Say what a submit of this request would lead to: when and where jobs start, and who would have to leave."""
        entries = await jobs_of(await body_of(request))
        entries = adopted(entries, who, backend.state.config)
        await asyncio.to_thread(check_dependencies, entries, who, backend.reads)
        found = await foresight.plan(Submit(entries, who.user))
        if isinstance(found, Refusal):
            raise refused(found)
        return answer(await asyncio.to_thread(views.plan_for, found, who, backend.reads))

    @app.get("/api/v1/eta", **returns(api.EtaList))
    async def list_etas(
        who: caller,
        max_age: Annotated[int, Query(ge=0, le=86_400_000, description="worked out anew when older (ms)")] = 10_000,
    ) -> Response:
        """Say when waiting jobs start: an interval, corrected by how right such estimates were."""
        found = await foresight.look(max_age)
        mine = [job for job in found.jobs if who.sees(job.tenant)]
        untold = found.untold if who.sees_all else sum(_untold(JobId(job.id), found) for job in _waiting(backend, who))
        return answer(api.EtaList(found.made_ms, found.samples, untold, mine))

    @app.get("/api/v1/eta/calibration", **returns(Score))
    async def show_calibration(who: caller) -> Response:
        """Say how right the estimates were that have come true."""
        return answer(await foresight.score())


def _waiting(backend: Backend, scope: Scope) -> list[Any]:
    return [job for job in backend.reads.live_jobs(scope) if job.state == "waiting"]


def _untold(job_id: JobId, found: api.EtaList) -> bool:
    return all(job.id != job_id for job in found.jobs)
