"""Routes about what is known of one job beyond its records: when it starts, how right that was, what is wrong."""

from typing import Any

from fastapi import FastAPI
from msgspec.structs import replace
from starlette.responses import Response

from penstock.api.history import JobEta, ToldEta
from penstock.core.health.findings import diagnosis
from penstock.core.model.diagnosis import Diagnosis
from penstock.core.model.ids import JobId
from penstock.core.model.start_text import estimate_text
from penstock.core.predict.outcomes import StartOutcome, ToldTimes
from penstock.server.backend import Backend
from penstock.server.http.responses import answer
from penstock.server.routes.jobs import JobIdPath, JobViews
from penstock.server.routes.openapi import returns
from penstock.server.services.estimates import EstimateService
from penstock.server.services.history import HistoryService


def job_findings_routes(
    app: FastAPI, backend: Backend, estimates: EstimateService, history: HistoryService, caller: Any
) -> None:
    jobs = JobViews(backend)

    @app.get("/api/v1/jobs/{job_id}/eta", **returns(JobEta))
    async def job_eta(who: caller, job_id: JobIdPath) -> Response:
        """Say when a job starts, or how right the estimates of its last start were."""
        shown = await jobs.any(who, job_id)
        outcome = await backend.pools.reads.run(history.start_outcome, JobId(job_id))
        now = estimates.known(JobId(job_id)) if shown.state == "waiting" else None
        present = ToldEta(estimates.made_ms, *now) if now is not None else None
        return answer(_eta(job_id, shown.state, present, outcome, backend.clock.unix_ms()))

    @app.get("/api/v1/jobs/{job_id}/diagnosis", **returns(Diagnosis))
    async def job_diagnosis(who: caller, job_id: JobIdPath) -> Response:
        """Say what the log knows about why a job failed, hangs or started again: summary, evidence, suggestions."""
        shown = await jobs.any(who, job_id)

        def compute() -> Response:
            found = diagnosis(backend.reads.records_of_job(who, JobId(job_id)))
            return answer(replace(found, job=job_id, state=shown.state))

        return await backend.pools.reads.run(compute)


def _eta(job_id: int, state: str, present: ToldEta | None, known: StartOutcome | None, now_ms: int) -> JobEta:
    first, last = (_told(known.first), _told(known.last)) if known is not None else (None, None)
    if state == "waiting":
        present = present or last
        told = (present.early_ms, present.likely_ms, present.late_ms) if present is not None else (0, 0, 0)
        return JobEta(job_id, state, f"starts {estimate_text(now_ms, *told)}", present, first, last)
    if known is None or not known.started_ms:
        return JobEta(job_id, state, "no start of this job was estimated, or it is long ago", None, first, last)
    part = sum(bool(time_ms) and known.started_ms > time_ms for time_ms in known.last.times)
    text = ("earlier than estimated", "as estimated", "as estimated", "later than estimated")[part]
    off_ms = known.started_ms - known.last.times[1]
    return JobEta(job_id, state, f"started {text}", None, first, last, known.started_ms, off_ms, part in (1, 2))


def _told(one: ToldTimes) -> ToldEta:
    return ToldEta(one.made_ms, *one.times)
