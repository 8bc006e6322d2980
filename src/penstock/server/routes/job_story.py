"""Routes about what became of one job: its records, attempts, series and outputs."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import FastAPI, Query
from starlette.responses import Response

from penstock.api import types as api
from penstock.api.jobs import AttemptList, JobSeriesList, LogMatches, ReportedList
from penstock.core.model.events import Record
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank
from penstock.core.model.jobs import FINAL_STATES
from penstock.server.backend import Backend
from penstock.server.http.responses import ApiError, answer
from penstock.server.logsearch import LINES_MAX, Read, finder, search, tail
from penstock.server.routes.jobs import JobIdPath, JobViews
from penstock.server.routes.openapi import returns
from penstock.server.views.reported import reported
from penstock.server.views.story import attempt_list, series_list

MATCHES_MAX = 1_000
ARRIVING_S, ARRIVING_LOOK_S = 5.0, 0.05
"""How long an answer waits for outputs of a job that has just ended on another machine, and between two looks."""
SOUGHT_MAX = 200
"""Characters of a text or expression that is searched for."""
END = 2**62
AttemptQuery = Annotated[int, Query(ge=1, le=2**31, examples=[1])]
RankQuery = Annotated[int, Query(ge=0, le=2**31)]
LogBytesQuery = Annotated[int, Query(ge=1, le=api.LOG_READ_MAX_BYTES, description="maximum number of bytes")]
BeforeQuery = Annotated[int, Query(ge=0, le=END, description="only lines that begin before this offset")]


def job_story_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    jobs = JobViews(backend)
    _story_routes(app, backend, caller, jobs)
    _reported_route(app, backend, caller, jobs)
    _output_routes(app, backend, caller, jobs)
    _search_route(app, backend, caller, jobs)


def _story_routes(app: FastAPI, backend: Backend, caller: Any, jobs: JobViews) -> None:
    @app.get("/api/v1/jobs/{job_id}/events", **returns(list[Record]))
    async def job_events(who: caller, job_id: JobIdPath) -> Response:
        """Return everything the log says of one job, in order."""
        await jobs.any(who, job_id)
        return answer(await backend.pools.reads.run(backend.reads.records_of_job, who, JobId(job_id)))

    @app.get("/api/v1/jobs/{job_id}/attempts", **returns(AttemptList))
    async def job_attempts(
        who: caller,
        job_id: JobIdPath,
        attempt: Annotated[int, Query(ge=0, le=2**31, description="whose ranks are listed; 0: the last")] = 0,
    ) -> Response:
        """Return the timeline of a job: waits, attempts with why they ended, and the ranks of one of them."""
        await jobs.any(who, job_id)

        def compute() -> Response:
            records = backend.reads.records_of_job(who, JobId(job_id))
            if not records:
                raise ApiError("not_found", f"there is no job {job_id}")
            return answer(attempt_list(records, attempt, lambda other: backend.reads.owner(who, other) is not None))

        return await backend.pools.reads.run(compute)

    @app.get("/api/v1/jobs/{job_id}/series", **returns(JobSeriesList))
    async def job_series(who: caller, job_id: JobIdPath) -> Response:
        """Return what programs reported over time (steps, rates, memory, ...), checkpoints, and the job's size."""
        await jobs.any(who, job_id)

        def compute() -> Response:
            records = backend.reads.records_of_job(who, JobId(job_id))
            if not records:
                raise ApiError("not_found", f"there is no job {job_id}")
            return answer(series_list(records, backend.clock.unix_ms()))

        return await backend.pools.reads.run(compute)


def _reported_route(app: FastAPI, backend: Backend, caller: Any, jobs: JobViews) -> None:
    @app.get("/api/v1/jobs/{job_id}/reported", **returns(ReportedList))
    async def job_reported(who: caller, job_id: JobIdPath, rank: RankQuery = 0) -> Response:
        """Return the curves of the numbers that one rank of a job reports (loss, accuracy, ...), attempts apart.

        At most 32 metrics of 500 points. Read from up to 2 MiB of its report files; of longer ones evenly spread parts.
        """
        view = await jobs.any(who, job_id)
        await arrived(backend, view)

        def compute() -> Response:
            outputs, job = backend.outputs, JobId(job_id)
            return answer(
                reported(
                    job_id,
                    rank,
                    outputs.listed(job),
                    lambda attempt, offset, limit: outputs.read_report(
                        job, AttemptNumber(attempt), Rank(rank), offset, limit
                    ),
                )
            )

        # The answer is the same for all who see the job. One from before its end may lack its last report.
        question = ("reported", job_id, rank)
        return await backend.kept.of(question, lambda: backend.pools.heavy.run(compute), view.state)


def _output_routes(app: FastAPI, backend: Backend, caller: Any, jobs: JobViews) -> None:
    @app.get("/api/v1/jobs/{job_id}/outputs", **returns(api.OutputList))
    async def job_outputs(who: caller, job_id: JobIdPath) -> Response:
        """List the outputs of a job's replicas over all its attempts."""
        await arrived(backend, await jobs.any(who, job_id))
        listed = await backend.pools.reads.run(backend.outputs.listed, JobId(job_id))
        return answer(api.OutputList([api.OutputRef(*ref) for ref in listed]))

    where = {
        "X-Penstock-Offset": "where this piece begins",
        "X-Penstock-Size": "size of the whole output in bytes, with its discarded beginning",
    }

    @app.get("/api/v1/jobs/{job_id}/logs", **returns(None, media="application/octet-stream", headers=where))
    async def job_logs(
        who: caller,
        job_id: JobIdPath,
        attempt: AttemptQuery,
        rank: RankQuery = 0,
        offset: Annotated[int, Query(ge=0, le=END)] = 0,
        limit: LogBytesQuery = api.LOG_READ_MAX_BYTES,
        lines: Annotated[int, Query(ge=0, le=LINES_MAX, description="the last lines, up to `limit` bytes")] = 0,
        before: BeforeQuery = END,
    ) -> Response:
        """Return a piece of one replica's output, as it was written; `X-Penstock-Offset` says where it begins.

        With `lines` it is the last ones, or those before an offset.
        """
        output = _Output(backend, job_id, attempt, rank)
        await arrived(backend, await jobs.any(who, job_id))

        def compute() -> Response:
            size = output.size()
            piece = tail(output.read, min(before, size), lines, limit) if lines else output.read(offset, limit)
            if piece is None:
                raise output.missing()
            begin, data = piece
            headers = {"X-Penstock-Offset": str(begin), "X-Penstock-Size": str(max(size, begin + len(data)))}
            return Response(data, headers=headers, media_type="application/octet-stream")

        return await backend.pools.reads.run(compute)


def _search_route(app: FastAPI, backend: Backend, caller: Any, jobs: JobViews) -> None:
    @app.get("/api/v1/jobs/{job_id}/logs/search", **returns(LogMatches))
    async def search_logs(
        who: caller,
        job_id: JobIdPath,
        attempt: AttemptQuery,
        q: Annotated[str, Query(min_length=1, max_length=SOUGHT_MAX, examples=["error"])],
        rank: RankQuery = 0,
        regex: Annotated[bool, Query(description="q is a regular expression of RE2")] = False,
        ignore_case: Annotated[bool, Query()] = False,
        before: BeforeQuery = END,
        limit: Annotated[int, Query(ge=1, le=MATCHES_MAX)] = 100,
    ) -> Response:
        """Find lines of one replica's output, the last first; a request searches up to 4 MiB."""
        output = _Output(backend, job_id, attempt, rank)
        await arrived(backend, await jobs.any(who, job_id))

        def compute() -> Response:
            make = finder(q, regex=regex, ignore_case=ignore_case)
            size = output.size()
            found = search(output.read, make, min(before, size), limit)
            return answer(LogMatches(found.lines, found.before, size, found.read))

        return await backend.pools.reads.run(compute)


async def arrived(backend: Backend, job: api.JobView) -> None:
    """Wait, for a moment, until the outputs of a job that has ended are here: nodes of other machines send them."""
    if backend.arriving is None or backend.joining is None or job.state not in FINAL_STATES:
        return
    if len(backend.joining.records) == 0:
        return
    arriving, deadline = backend.arriving, time.monotonic() + ARRIVING_S

    def there() -> set[NodeName]:  # an agent that has just lost its connection comes back: its lease says when not
        return {name for name, node in backend.state.nodes.copy().items() if node.state != "lost"}

    while await backend.pools.reads.run(lambda: arriving.arriving(JobId(job.id), there)):
        if time.monotonic() > deadline or backend.closing.is_set():
            return
        await asyncio.sleep(ARRIVING_LOOK_S)


class _Output:
    """One replica's output."""

    def __init__(self, backend: Backend, job_id: int, attempt: int, rank: int) -> None:
        self._outputs, self._arriving = backend.outputs, backend.arriving
        self._key = JobId(job_id), AttemptNumber(attempt), Rank(rank)
        self.read: Read = lambda offset, limit: self._outputs.read(*self._key, offset, limit)

    def size(self) -> int:
        """Return its bytes. Raises: ApiError where there is no such output."""
        size = self._outputs.size(*self._key)
        if size is None:
            raise self.missing()
        return size

    def missing(self) -> ApiError:
        job, attempt, rank = self._key
        node = self._arriving.missing(job, attempt, rank) if self._arriving is not None else ""
        if node:
            hint = f"it is on node {node}, another machine, and has not come from there"
            return ApiError("not_found", f"job {job} has no output of attempt {attempt}, rank {rank} here", hint=hint)
        return ApiError("not_found", f"job {job} has no output of attempt {attempt}, rank {rank}")
