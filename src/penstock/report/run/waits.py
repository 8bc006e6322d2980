"""Second pass over the log: the causes of each job's waiting.

The log holds decisions, not reasons, because reasons follow from it: fold it up to a moment, let the same `plan`
that decided then look at that state, and its verdicts are the reasons. They are taken to hold until the next
moment with a record.
"""

import heapq
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from penstock.core.cycle.planner import plan
from penstock.core.model import events as ev
from penstock.core.model.ids import ClassId, JobId
from penstock.core.model.jobs import Job
from penstock.core.model.plan import Plan
from penstock.core.place.fit import count_refusals, needs_of
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.state import State
from penstock.report.run.causes import CAUSES
from penstock.report.run.model import Sampling, WaitCause, WaitPart

PLANS_MAX = 3_000
"""Plans made for one report. A log with more moments is sampled evenly, and the report says so."""
PLAN_WORK_MAX = 2_000_000
"""Sum over these plans of waiting classes times nodes, and of waiting jobs, a measure of cost: the second bound on the
same sampling."""


class WaitReason(msgspec.Struct, frozen=True):
    cause: WaitCause
    refused: tuple[tuple[str, int], ...] = ()
    blockers: tuple[JobId, ...] = ()


_NEXT_CYCLE = WaitReason("next_cycle")
_NOT_SAMPLED = WaitReason("not_sampled")


def attribute(records: Sequence[ev.Record], until_ms: int) -> tuple[dict[JobId, tuple[WaitPart, ...]], Sampling]:
    """Return for each job that waited its time by cause, in the order of `CAUSES`, and how it was sampled.

    Args:
        records: a log from its first record on, none later than `until_ms`.
    Raises: BrokenInvariant when the records do not follow each other from the first on.
    """
    groups = [(time_ms, list(group)) for time_ms, group in groupby(records, key=lambda r: r.time_ms)]
    tracker = _Tracker(len(groups))
    for time_ms, group in groups:
        tracker.pass_timers(time_ms)
        tracker.happened(time_ms, group)
    tracker.pass_timers(until_ms)
    return tracker.close(until_ms), tracker.sampling


class _Tracker:
    """Folds the log and keeps for each waiting job its present reason and since when."""

    def __init__(self, moments: int) -> None:
        self.sampling = Sampling()
        self._state = State()
        self._plan: Plan | None = None
        self._moments, self._passed = moments, 0
        self._plans = self._work = self._points = 0
        self._open: dict[JobId, tuple[int, WaitReason]] = {}
        self._sums: dict[JobId, dict[WaitReason, int]] = {}
        self._timers: list[tuple[int, JobId]] = []

    def happened(self, time_ms: int, group: Iterable[ev.Record]) -> None:
        """Fold the records of one moment and update the reasons of waiting jobs."""
        touched: set[JobId] = set()
        for record in group:
            touched.update(self._touches(record.event))
            self._state.apply(record)
        self._set_timers(time_ms, touched)
        self._passed += 1
        self._judge(time_ms, touched)

    def pass_timers(self, before_ms: int) -> None:
        """Update reasons at moments before `before_ms` at which time alone changed some: they have no record."""
        while self._timers and self._timers[0][0] < before_ms:
            time_ms, job_id = heapq.heappop(self._timers)
            touched = {job_id}
            while self._timers and self._timers[0][0] == time_ms:
                touched.add(heapq.heappop(self._timers)[1])
            if any(i in self._open for i in touched):
                self._judge(time_ms, touched)

    def close(self, until_ms: int) -> dict[JobId, tuple[WaitPart, ...]]:
        """End every open wait at `until_ms` and return the times by cause."""
        for job_id in list(self._open):
            self._settle(job_id, until_ms)
        self.sampling = Sampling(self._points, self._plans)
        return {job_id: _parts(sums) for job_id, sums in self._sums.items()}

    def _touches(self, event: ev.AnyEvent) -> list[JobId]:
        if isinstance(event, ev.JobSubmitted | ev.JobRequeued | ev.AttemptAllocated | ev.JobHeld | ev.JobReleased):
            return [event.job_id]
        if isinstance(event, ev.JobFinished):
            freed = self._state.indexes.dependants.waiting_for_last(event.job_id, self._state.jobs)
            return [event.job_id, *freed]
        return []

    def _set_timers(self, time_ms: int, touched: Iterable[JobId]) -> None:
        """Backing off ends without a record."""
        for job_id in sorted(touched):
            job = self._state.jobs.get(job_id)
            if job is None or job.state != "waiting":
                continue
            if job.not_before_ms > time_ms:
                heapq.heappush(self._timers, (job.not_before_ms, job_id))

    def _judge(self, time_ms: int, touched: Iterable[JobId]) -> None:
        jobs = self._state.jobs
        if self._replan(time_ms):
            waiting = [job_id for job_id, job in jobs.items() if job.state == "waiting"]
            self._update(time_ms, [*waiting, *(i for i in self._open if i not in jobs or jobs[i].state != "waiting")])
        else:
            self._update(time_ms, sorted(touched))

    def _replan(self, time_ms: int) -> bool:
        """Make a plan when some job could start and the allowance, which grows with the moments, permits it."""
        classes = len(self._state.indexes.pending)
        if not classes:
            self._plan = None
            return False
        self._points += 1
        share = (self._passed + 1, self._moments + 1)
        if self._plans * share[1] > PLANS_MAX * share[0] or self._work * share[1] > PLAN_WORK_MAX * share[0]:
            return False
        self._plans += 1
        waiting = sum(len(pending.jobs) for pending in self._state.indexes.pending.values())
        self._work += classes * (1 + len(self._state.nodes)) + 2 * waiting  # each gets its reason anew
        self._plan = plan(take_snapshot(self._state), time_ms)
        again_ms, verdicts = self._plan.again_ms, self._plan.verdicts
        if again_ms > time_ms and verdicts:  # a job starves then, or is judged anew for another reason without a record
            heapq.heappush(self._timers, (again_ms, next(iter(verdicts.values())).first))
        return True

    def _update(self, time_ms: int, job_ids: Iterable[JobId]) -> None:
        apart = self._apart()
        by_class: dict[ClassId, WaitReason] = {}
        for job_id in job_ids:
            job = self._state.jobs.get(job_id)
            reason = None
            if job is not None and job.state == "waiting":
                reason = self._own_reason(job, time_ms) or apart.get(job_id) or by_class.get(job.class_id)
                if reason is None:
                    reason = by_class[job.class_id] = self._class_reason(job.class_id)
            before = self._open.get(job_id)
            if before is not None and before[1] != reason:
                self._settle(job_id, time_ms)
                before = None
            if before is None and reason is not None:
                self._open[job_id] = (time_ms, reason)

    def _own_reason(self, job: Job, time_ms: int) -> WaitReason | None:
        if job.hold is not None:
            return WaitReason("held")
        if job.unmet:
            return WaitReason("dependency", blockers=job.unmet)
        if job.waits_turn:
            return WaitReason("array_turn")
        return WaitReason("backing_off") if job.not_before_ms > time_ms else None

    def _apart(self) -> dict[JobId, WaitReason]:
        """Return the reasons of those jobs that the plan did not leave with their class."""
        if self._plan is None:
            return {}
        found = {start.job_id: _NEXT_CYCLE for start in self._plan.starts}
        for job_id in self._plan.held:
            job = self._state.jobs.get(job_id)
            verdict = self._plan.verdicts.get(job.class_id) if job is not None else None
            found[job_id] = WaitReason("making_room", blockers=verdict.victims if verdict else ())
        return found

    def _class_reason(self, class_id: ClassId) -> WaitReason:
        verdict = self._plan.verdicts.get(class_id) if self._plan is not None else None
        if verdict is None:
            return _NOT_SAMPLED
        if verdict.code in ("making_room", "backing_off"):
            return _NEXT_CYCLE  # reason of another job of the class: the plan did not reach this one
        blockers = (verdict.blocker,) if verdict.blocker is not None else ()
        job = self._state.jobs.get(verdict.first)
        refused: tuple[tuple[str, int], ...] = ()
        if verdict.code == "no_fit" and job is not None:
            refused = count_refusals(needs_of(job.spec.ask, job.spec.tenant), self._state.indexes.free.values())
        return WaitReason(verdict.code, refused, blockers)

    def _settle(self, job_id: JobId, time_ms: int) -> None:
        since_ms, reason = self._open.pop(job_id)
        if time_ms > since_ms:
            sums = self._sums.setdefault(job_id, {})
            sums[reason] = sums.get(reason, 0) + time_ms - since_ms


def _parts(sums: dict[WaitReason, int]) -> tuple[WaitPart, ...]:
    parts = []
    for cause in CAUSES:
        mine = {reason: ms for reason, ms in sums.items() if reason.cause == cause}
        if mine:
            longest = max(mine, key=lambda r: mine[r])  # of equal ones the earlier, as dicts keep their order
            parts.append(WaitPart(cause, sum(mine.values()), longest.refused, longest.blockers))
    return tuple(parts)
