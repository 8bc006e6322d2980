"""Detection of hangs: the ranks of a program that makes no step are inspected, and a hang is logged.

A standstill lasts from a step that none follows in time to the next one; with that its findings are forgotten. In it
the agents of all ranks are asked what their program does (an inspection), then those of a few for native stacks where
that may show which rank is to blame. The result is a finding: no hang, and the next inspection follows after twice as
long; or a hang, which goes into the log, and is ended at once if it is certain, or when its limit is over and enough
inspections in a row have found the same.

Before the first report the step time is unknown, and a start may take long: an attempt that should have
reported by now is inspected as well, and what is found is said; only a rank that is certain to be stuck ends it.
"""

import msgspec
from msgspec.structs import replace

from penstock.control.progress import Pulse, Pulses
from penstock.core.health.anomaly import first_report_overdue
from penstock.core.health.diagnose import diagnose, stalled
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.orders import Addressed, InspectReplica
from penstock.core.messages.reports import NodeReport, ReplicaKey
from penstock.core.model.events import AttemptStopRequested, HangFound
from penstock.core.model.hangs import Finding, Sight
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import Attempt, Job
from penstock.core.state.state import State

ANSWERS_WAIT_MS, NATIVE_WAIT_MS = 5_000, 15_000
"""An inspection is concluded without the agents that have not answered by then."""
AGAIN_LEAST_MS = 2_000
AGAIN_FIRST_MS, AGAIN_MAX_MS = 10_000, 300_000
"""A standstill that is no hang is inspected again, after twice as long each time."""
ALIKE_LEAST = 3
"""A hang that may be transient restarts the job only after this number of equal findings in a row."""


EXPECT_EVERY_MS = 5_000
"""Attempts that have reported nothing are looked through this often."""
EXPECT_AT_ONCE = 500
"""Jobs looked at in one turn of the control thread: submits wait for it."""


class Inspection(msgspec.Struct):
    """One question to the agents of several ranks, and their answers so far."""

    asked_ms: int
    ranks: frozenset[Rank]
    native: bool
    sights: dict[Rank, Sight]
    before: dict[Rank, Sight] = {}
    """Sights of the first inspection, where this is a closer one."""

    def over(self, now_ms: int) -> bool:
        """Return whether all ranks have answered, or their time is over."""
        wait_ms = NATIVE_WAIT_MS if self.native else ANSWERS_WAIT_MS
        return self.ranks <= self.sights.keys() or now_ms - self.asked_ms > wait_ms


class Standstill(msgspec.Struct):
    """Findings since the last step of one attempt; times are monotonic ms."""

    attempt: AttemptNumber
    moves: int
    """Steps counted by the pulse: the standstill is over when this changes."""
    inspection: Inspection | None = None
    again_ms: int = 0
    pause_ms: int = AGAIN_FIRST_MS
    closer: tuple[Rank, ...] = ()
    """Ranks whose native stacks are to be asked for."""
    found: Finding | None = None
    alike: int = 0
    """Inspections in a row that found the same."""


class Inspections:
    """Inspects programs that make no step, by their pulses."""

    def __init__(self, pulses: Pulses) -> None:
        self._pulses = pulses
        self._by_job: dict[JobId, Standstill] = {}
        self._expected_ms: int | None = None
        self._to_expect: list[JobId] = []
        """Jobs that are still to be looked at, as in `_expect`."""

    def note(self, report: NodeReport) -> None:
        """Take in a node's answers."""
        for one in report.inspected:
            standstill = self._by_job.get(one.key.job_id)
            if standstill is None or standstill.attempt != one.key.attempt or standstill.inspection is None:
                continue
            if one.key.rank in standstill.inspection.ranks:
                standstill.inspection.sights[one.key.rank] = one.sight

    def orders(self, state: State, now_ms: int, *, unix_ms: int) -> list[Addressed]:
        """Return the orders to inspect programs that make no step.

        Args:
            now_ms: monotonic ms.
        """
        self._expect(state, now_ms, unix_ms)
        orders: list[Addressed] = []
        for job_id, pulse in self._pulses:
            standstill = self._by_job.get(job_id)
            if standstill is not None and not _lasts(standstill, pulse):
                standstill = None
                del self._by_job[job_id]
            closer = standstill.closer if standstill is not None else ()
            if not closer and not _overdue(standstill, pulse, now_ms):
                continue
            job = state.jobs.get(job_id)
            if job is None or job.attempt is None or job.undisturbed is None:
                continue
            if standstill is None:
                standstill = self._by_job[job_id] = Standstill(pulse.attempt, pulse.moves)
            orders += _ask(job, job.attempt, standstill, now_ms)
        return orders

    def _expect(self, state: State, now_ms: int, unix_ms: int) -> None:
        """Note the attempts that should have reported a step by now, and have reported nothing."""
        if not self._to_expect:
            if self._expected_ms is not None and now_ms - self._expected_ms < EXPECT_EVERY_MS:
                return
            self._expected_ms, self._to_expect = now_ms, list(state.indexes.active)
        now, self._to_expect = self._to_expect[-EXPECT_AT_ONCE:], self._to_expect[:-EXPECT_AT_ONCE]
        for job_id in now:
            if (job := state.indexes.active.get(job_id)) is None:
                continue
            attempt, pulse = job.undisturbed, self._pulses.of(job_id)
            if attempt is None or not attempt.running_ms or (pulse is not None and pulse.attempt == attempt.number):
                continue
            worked_ms, limit_ms = attempt.worked_ms(unix_ms), job.spec.hang_limit_ms
            if (limit_ms is not None and worked_ms >= limit_ms) or first_report_overdue(job, unix_ms):
                self._pulses.expect(job_id, attempt.number, now_ms, since_ms=now_ms - worked_ms)

    def conclude(self, tx: Transaction, now_ms: int) -> None:
        """Emit hangs that inspections have shown, and restart hung jobs where their spec asks for it."""
        for job_id, standstill in list(self._by_job.items()):
            job, pulse = tx.state.jobs.get(job_id), self._pulses.of(job_id)
            if job is None or job.attempt is None or pulse is None or not _lasts(standstill, pulse):
                del self._by_job[job_id]
            elif job.attempt.stop is not None or job.attempt.suspended_ms:
                standstill.inspection, standstill.closer = None, ()
            elif standstill.inspection is not None and not standstill.closer and standstill.inspection.over(now_ms):
                _conclude(tx, job, job.attempt, pulse, standstill, now_ms)


def _lasts(standstill: Standstill, pulse: Pulse) -> bool:
    return (standstill.attempt, standstill.moves) == (pulse.attempt, pulse.moves)


def _overdue(standstill: Standstill | None, pulse: Pulse, now_ms: int) -> bool:
    """Return whether the next step is so late that the ranks are to be inspected, or inspected again."""
    if standstill is not None and (standstill.inspection is not None or now_ms < standstill.again_ms):
        return False
    if pulse.moved_ms is None:
        return pulse.awaited_since_ms is not None
    gauges = pulse.gauges()
    at_end = 0 < gauges.total_steps <= pulse.step
    usual_ms = max(gauges.step_ms, gauges.report_gap_ms) if gauges.step_ms else 0
    return not at_end and stalled(now_ms - pulse.moved_ms, usual_ms)


def _ask(job: Job, attempt: Attempt, standstill: Standstill, now_ms: int) -> list[Addressed]:
    """Ask the agents of all ranks; or, with native stacks, only of the `closer` ones, keeping the other sights."""
    closer, before = standstill.closer, standstill.inspection
    wanted = frozenset(closer) or frozenset(r.rank for r in attempt.replicas if r.state == "started")
    known = dict(before.sights) if closer and before is not None else {}
    standstill.inspection, standstill.closer = Inspection(now_ms, wanted, bool(closer), {}, known), ()
    return [
        (r.place.node, InspectReplica(ReplicaKey(job.id, attempt.number, r.rank), native=bool(closer)))
        for r in attempt.replicas
        if r.rank in wanted
    ]


def _finding(inspection: Inspection, attempt: Attempt) -> Finding:
    missing = inspection.ranks - inspection.sights.keys()
    silent = {rank: Sight(rank, problem="its agent did not answer") for rank in missing}
    ended = {r.rank: Sight(r.rank, state="X") for r in attempt.replicas if r.state == "exited"}
    sights = {**silent, **inspection.before, **inspection.sights, **ended}
    return diagnose([sights[rank] for rank in sorted(sights)])


def _conclude(tx: Transaction, job: Job, attempt: Attempt, pulse: Pulse, standstill: Standstill, now_ms: int) -> None:
    """Apply the finding of an inspection; restart a hung job where its spec asks for it."""
    inspection = standstill.inspection
    assert inspection is not None
    finding = _finding(inspection, attempt)
    if finding.look_closer and not inspection.native and len(finding.culprits) != 1:
        standstill.closer = finding.look_closer
        return
    standstill.inspection = None
    awaited_ms = pulse.awaited_since_ms
    if awaited_ms is not None:
        finding = replace(finding, text=f"no step is reported yet; {finding.text}")
    idle_ms = now_ms - (awaited_ms if awaited_ms is not None else pulse.moved_ms or 0)
    standstill.again_ms = now_ms + standstill.pause_ms
    standstill.pause_ms = min(2 * standstill.pause_ms, AGAIN_MAX_MS)
    if not finding.hung:
        standstill.alike = 0
        return
    before = standstill.found
    standstill.alike = standstill.alike + 1 if _same(before, finding) else 1
    if before is None or before.text != finding.text:
        tx.emit(HangFound(job.id, attempt.number, pulse.step, finding.culprits, finding.text, idle_ms))
    standstill.found, pulse.hang_step = finding, pulse.step
    if job.spec.on_hang == "restart" and (awaited_ms is None or finding.certain):
        _end(tx, job, attempt, standstill, job.spec.effective_hang_limit_ms - idle_ms, now_ms)


def _same(before: Finding | None, after: Finding) -> bool:
    return before is not None and before.culprits == after.culprits


def _end(tx: Transaction, job: Job, attempt: Attempt, standstill: Standstill, left_ms: int, now_ms: int) -> None:
    """End a hung attempt once the hang is certain enough; until then inspect often enough to know by its limit."""
    finding = standstill.found
    assert finding is not None
    if finding.certain or (left_ms <= 0 and standstill.alike >= ALIKE_LEAST):
        tx.emit(AttemptStopRequested(job.id, attempt.number, "hung", job.spec.grace_ms, rule=finding.text))
    else:
        again_ms = now_ms + max(AGAIN_LEAST_MS, left_ms // ALIKE_LEAST)
        standstill.again_ms = min(standstill.again_ms, again_ms)
