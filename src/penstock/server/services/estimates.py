"""Start estimates of waiting jobs and of requests, from simulations beside the server on copies of the state.

The state is simulated at intervals and on request; the start of each waiting job is corrected by the accuracy of
former estimates. Some estimates are noted in the log, to be compared with the outcome.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence

from msgspec.structs import replace

from penstock.api import types as api
from penstock.control import messages as msg
from penstock.control.controller import HISTORY_JOBS
from penstock.control.finished_jobs import past_run
from penstock.core.lifecycle.requests import Submit, jobs_named
from penstock.core.messages.requests import Refusal
from penstock.core.model import answers
from penstock.core.model.answers import Score
from penstock.core.model.estimates import StartEstimate, Times
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job, JobState
from penstock.core.model.start_text import waits_text
from penstock.core.order.turns import WaitingLimit
from penstock.core.predict.arrivals import Arrival, Arrivals
from penstock.core.predict.calibration import Calibration
from penstock.core.predict.forecast import PastRun
from penstock.core.state.images import packed
from penstock.core.state.state import Image
from penstock.server.backend import Backend
from penstock.server.http.responses import ApiError
from penstock.server.http.turns import Turn
from penstock.server.services.estimate_process import EstimateProcess
from penstock.sim.forecast.worker import ForecastPlan, Started, WhatIfSubmitted, WhenStart

log = logging.getLogger(__name__)

SHARE = WaitingLimit(user=2, tenant=4, total=32)
"""Questions that may wait; they are worked out one after the other."""
BUDGET_MS = 5_000
"""After this long no further sample is played."""
HISTORY_KEPT_MS = 60_000
WANTED_MAX = 2_000
"""Waiting jobs of one answer: the first submitted."""
NOTED_EVERY_MS = 600_000
"""A job's estimate is logged once, and again after the longer of this and half the time it had waited."""
JOBS_MAX = 20_000
"""A state of more live jobs cannot be played in time: it is not even handed over."""
PLANNED_MAX = 10_000
"""Jobs of one request that are simulated: a process needs some seconds for them."""
LOOKED_BACK_RECORDS = 200_000
"""Records of the log in which a server that starts looks for estimates that came true, and for what was submitted."""
BATCH = 10_000
MISSES_MAX = 6
IDLE_S = 1.0
KNOWN_MS = 600_000
"""Older estimates are not shown."""


class EstimateService:
    """Sends one question at a time to each of two processes: looks at waiting jobs delay no plan."""

    def __init__(
        self, backend: Backend, seer: EstimateProcess | None = None, planner: EstimateProcess | None = None
    ) -> None:
        self._backend, self._seer, self._planner = backend, seer or EstimateProcess(), planner or EstimateProcess()
        self._turn, self._plan_turn = Turn(SHARE, "requests for estimates"), Turn(SHARE, "plans")
        self._learning = threading.Lock()
        """Of what both learn from the log."""
        self._history: tuple[PastRun, ...] = ()
        self._learned_ms = -HISTORY_KEPT_MS
        self._calibration, self._arrivals = Calibration(), Arrivals()
        self._seen_seq = -1
        self._noted: dict[JobId, int] = {}
        """When the estimate of a waiting job was last logged (unix ms)."""
        self._last = api.EtaList(0, 0, 0, [])
        self._times: dict[JobId, Times] = {}
        """Of the last look, by job: those that have an estimate."""
        self._last_seq = -1
        self._behind: asyncio.Task[None] | None = None
        """Makes estimates anew for callers who were given those before."""
        self._misses = 0
        """Failed or late estimates in a row: each doubles the time until the next."""

    async def keep(self) -> None:
        """Estimate at intervals while jobs wait, until cancelled."""
        backend = self._backend
        while True:
            every_ms = backend.state.config.settings.estimate_starts_every_ms
            await asyncio.sleep(max(IDLE_S, every_ms * 2**self._misses / 1000))
            state = backend.state
            if not every_ms or not state.indexes.pending or len(state.jobs) > JOBS_MAX:
                continue
            if backend.durable_seq == self._last_seq:
                continue
            try:
                await self.look(every_ms // 2)
            except Exception as error:  # noqa: BLE001 - the top of the loop: it goes on, more and more seldom
                self._misses = min(MISSES_MAX, self._misses + 1)
                log.warning("no estimates of starts", extra={"error": repr(error)})

    def close(self) -> None:
        self._seer.close()
        self._planner.close()

    async def plan(self, request: Submit) -> answers.PlanAnswer | Refusal:
        """Return the outcome of `request`, or why it would be refused.

        Raises: ApiError when too many ask, or for too many jobs.
        """
        count = sum(new.count for new in request.jobs)
        if count > PLANNED_MAX:
            text = f"a plan may be asked for {PLANNED_MAX} jobs at once, these are {count}"
            raise ApiError("too_large", text, hint="ask for a part of them: the first say how long the others wait")
        async with self._plan_turn.mine():
            if len(self._backend.state.jobs) > JOBS_MAX:
                text = f"more than {JOBS_MAX} jobs are live: too many to simulate in time"
                raise ApiError("unavailable", text, hint="submit it, and ask for its explanation")
            image = await self._image()
            return await asyncio.to_thread(self._plan, image, request)

    async def look(self, max_age_ms: int, max_stale_ms: int = 0) -> api.EtaList:
        """Return start estimates at most `max_age_ms` old, or made since this call began; jobs that have just come are
        never left out.

        Args:
            max_stale_ms: estimates that are no older than this are given at once, without jobs that have just come, and
                made anew behind the caller.
        Raises: ApiError when too many ask.
        """
        asked_ms = self._backend.clock.unix_ms()
        age_ms = asked_ms - self._last.made_ms
        if age_ms < max_stale_ms:
            if age_ms > max_age_ms and self._behind is None:
                self._behind = asyncio.ensure_future(self._look_behind(max_age_ms))
            return self._still_waiting()
        async with self._turn.mine():
            age_ms = self._backend.clock.unix_ms() - self._last.made_ms
            old = age_ms > max_age_ms and self._last.made_ms <= asked_ms
            if old or (not self._last.untold and await asyncio.to_thread(self._newcomers)):
                await self._look_now()
            return self._still_waiting()

    async def _look_behind(self, max_age_ms: int) -> None:
        try:
            await self.look(max_age_ms)
        except ApiError as error:
            log.warning("no estimates of starts", extra={"error": error.details.title})
        finally:
            self._behind = None

    def _still_waiting(self) -> api.EtaList:
        """Return the latest estimates of jobs that wait still."""
        jobs = self._backend.state.jobs
        here = (job for job in self._last.jobs if (known := jobs.get(JobId(job.id))) and known.state == "waiting")
        return replace(self._last, jobs=list(here))

    def _newcomers(self) -> bool:
        """Return whether jobs wait that were not there at the last look."""
        listed = {job.id for job in self._last.jobs}
        waiting = self._backend.state.jobs.page(0, WANTED_MAX + 1, None, ["waiting"])
        return any(job.id not in listed for job in waiting)

    @property
    def made_ms(self) -> int:
        """Time of the state that the latest estimates were made on (unix ms); 0: there are none."""
        return self._last.made_ms

    def known(self, job_id: JobId) -> Times | None:
        """Return early, likely and late start (unix ms) as of the last look; None where it had no estimate."""
        if self._backend.clock.unix_ms() - self._last.made_ms > KNOWN_MS:
            return None
        return self._times.get(job_id)

    async def score(self) -> Score:
        """Return how right the latest estimates were."""
        async with self._turn.mine():
            return await asyncio.to_thread(self._score)

    async def _image(self) -> Image:
        reply = await self._backend.ask(msg.TakeImage())
        assert isinstance(reply, msg.ImageTaken)
        return reply.image

    async def _look_now(self) -> None:
        image, now_ms = await self._image(), self._backend.clock.unix_ms()
        waiting = sorted((job for job in image.jobs if job.state == "waiting"), key=lambda j: j.submit_seq)
        wanted = tuple(job.id for job in waiting[:WANTED_MAX]) if len(image.jobs) <= JOBS_MAX else ()
        samples, estimates = await asyncio.to_thread(self._estimates, image, wanted, now_ms)
        by_id = {job.id: job for job in waiting}
        shown = [_view(one, by_id[one.job_id]) for one in estimates]
        self._last = api.EtaList(now_ms, samples, len(waiting) - len(wanted), shown)
        self._times = {one.job_id: one.given for one in estimates if one.given[1]}
        self._last_seq = image.seq
        self._misses = 0 if samples or not wanted else min(MISSES_MAX, self._misses + 1)
        due = tuple(one for one in estimates if one.given[1] and self._is_due(by_id[one.job_id], now_ms))
        if due:
            await self._backend.ask(msg.NoteEstimates(now_ms, due))
            if self._backend.durable_seq == image.seq + 1:  # nothing but the note itself has come
                self._last_seq = self._backend.durable_seq
        self._noted = {i: at for i, at in self._noted.items() if i in by_id} | {one.job_id: now_ms for one in due}

    def _is_due(self, job: Job, now_ms: int) -> bool:
        noted_ms = self._noted.get(job.id)
        return noted_ms is None or now_ms >= noted_again_ms(noted_ms, job.submitted_ms)

    # In a thread.

    def _estimates(self, image: Image, wanted: tuple[JobId, ...], now_ms: int) -> tuple[int, list[StartEstimate]]:
        """Return the number of samples, and the estimate of each job."""
        if not wanted:
            return 0, []
        past, days = self._learned(now_ms)
        reply = self._seer.ask(WhenStart(packed(image), past, now_ms, BUDGET_MS, wanted, now_ms, days))
        assert isinstance(reply, Started)
        corrected = self._calibration.corrected
        with self._learning:
            return reply.samples, [StartEstimate(i, corrected(t, now_ms), t) for i, t in reply.times.items()]

    def _plan(self, image: Image, request: Submit) -> answers.PlanAnswer | Refusal:
        now_ms = self._backend.clock.unix_ms()
        outcomes = self._outcomes(request, [job.id for job in image.jobs])
        past, days = self._learned(now_ms)
        reply = self._planner.ask(WhatIfSubmitted(packed(image), past, now_ms, BUDGET_MS, request, outcomes, days))
        assert isinstance(reply, ForecastPlan)
        if reply.refusal is not None:
            return reply.refusal
        assert reply.plan is not None
        return replace(reply.plan, jobs=[self._corrected(job, reply.plan.now_ms) for job in reply.plan.jobs])

    def _corrected(self, job: answers.PlannedJob, now_ms: int) -> answers.PlannedJob:
        """Return the outcome with the same correction as the estimates of waiting jobs: one job, one estimate."""
        if job.starts_now or not job.start_p50_ms:
            return job
        sampled = (job.start_p10_ms, job.start_p50_ms, job.start_p90_ms)
        with self._learning:
            early_ms, likely_ms, late_ms = times = self._calibration.corrected(sampled, now_ms)
        text = waits_text(now_ms, *times)
        return replace(job, start_p10_ms=early_ms, start_p50_ms=likely_ms, start_p90_ms=late_ms, text=text)

    def _learned(self, now_ms: int) -> tuple[tuple[PastRun, ...], tuple[tuple[Arrival, ...], ...]]:
        """Return finished jobs, and what was submitted on past days, as of now."""
        with self._learning:
            self._catch_up()
            return self._past(), self._arrivals.days(now_ms)

    def _score(self) -> Score:
        with self._learning:
            self._catch_up()
            return self._calibration.score()

    def _past(self) -> tuple[PastRun, ...]:
        """Return finished jobs to learn from, looked up once a minute at most."""
        now_ms = self._backend.clock.monotonic_ms()
        if now_ms - self._learned_ms >= HISTORY_KEPT_MS:
            finished = self._backend.log.finished_jobs(HISTORY_JOBS)
            self._history, self._learned_ms = tuple(map(past_run, reversed(finished))), now_ms
        return self._history

    def _catch_up(self) -> None:
        """Learn from the outcomes since the last look."""
        reader = self._backend.log
        if self._seen_seq < 0:
            self._seen_seq = max(0, self._backend.durable_seq - LOOKED_BACK_RECORDS)
        while records := reader.records(self._seen_seq, BATCH):
            self._calibration.observe(records)
            self._arrivals.observe(records)
            self._seen_seq = records[-1].seq

    def _outcomes(self, request: Submit, live: Sequence[JobId]) -> dict[JobId, JobState]:
        """Look up how dependencies ended that have left the state."""
        return dict(self._backend.log.outcomes(sorted(jobs_named(request) - set(live))))


def noted_again_ms(noted_ms: int, submitted_ms: int) -> int:
    """Return when a job's estimate is logged again: a few times, however long it waits."""
    return noted_ms + max(NOTED_EVERY_MS, (noted_ms - submitted_ms) // 2)


def _view(estimate: StartEstimate, job: Job) -> api.EtaView:
    spec = job.spec
    return api.EtaView(job.id, spec.name, spec.tenant, spec.queue, job.user, job.submitted_ms, *estimate.given)
