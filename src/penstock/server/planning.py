"""Works out what a request would lead to, beside the event loop, on a copy of the state."""

import asyncio
from collections.abc import Sequence

from penstock.api import types as api
from penstock.control import messages as msg
from penstock.control.controller import HISTORY_JOBS, past_run
from penstock.core.lifecycle.requests import Refusal, Submit
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import JobState
from penstock.core.predict.forecast import predictor_of
from penstock.core.predict.runtime import RuntimePredictor
from penstock.core.state import Image
from penstock.server.answers import ApiError
from penstock.server.backend import Backend
from penstock.sim.replay.dryrun import dry_run
from penstock.sim.replay.outlook import learned_lengths

WAITING_MAX = 8
"""Dry runs asked for at once; they are worked out one after the other."""
TIME_MAX_MS = 5_000
"""After this long no further sample is played."""
HISTORY_KEPT_MS = 60_000


class DryRuns:
    """Answers one request at a time. What was learned from finished jobs is looked up once a minute at most."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._turn, self._waiting = asyncio.Lock(), 0
        self._predictor, self._learned_ms = RuntimePredictor(), -HISTORY_KEPT_MS

    async def of(self, request: Submit) -> api.PlanAnswer | Refusal:
        """Return what `request` would lead to, or why it would be refused. Raises: ApiError when too many ask."""
        if self._waiting >= WAITING_MAX:
            raise ApiError("overloaded", "too many dry runs are being worked out", hint="come back in a moment")
        self._waiting += 1
        try:
            async with self._turn:
                reply = await self._backend.ask(msg.TakeImage())
                assert isinstance(reply, msg.ImageTaken)
                return await asyncio.to_thread(self._work, reply.image, request)
        finally:
            self._waiting -= 1

    def _work(self, image: Image, request: Submit) -> api.PlanAnswer | Refusal:
        backend = self._backend
        begun_ms, now_ms = backend.clock.monotonic_ms(), backend.clock.unix_ms()
        if begun_ms - self._learned_ms >= HISTORY_KEPT_MS:
            history = reversed(backend.reader.finished_jobs(HISTORY_JOBS))
            self._predictor, self._learned_ms = predictor_of(map(past_run, history)), begun_ms
        return dry_run(
            image,
            request,
            now_ms,
            learned_lengths(self._predictor),
            finished=self._outcomes(request, [job.id for job in image.jobs]),
            policies=backend.service.policies,
            enough=lambda: backend.clock.monotonic_ms() - begun_ms > TIME_MAX_MS,
        )

    def _outcomes(self, request: Submit, live: Sequence[JobId]) -> dict[JobId, JobState]:
        """Look up how dependencies ended that have left the state."""
        wanted = {d.job_id for new in request.jobs for d in new.spec.after} - set(live)
        found = {job_id: self._backend.reader.finished_job(job_id) for job_id in sorted(wanted)}
        return {job_id: job.state for job_id, job in found.items() if job is not None}
