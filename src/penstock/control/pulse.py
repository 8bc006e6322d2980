"""The pulse of running programs: their newest steps and gauges, and what is done when no step comes.

Volatile, like the leases: a new controller learns it anew within a few steps. Only what counts becomes an event: how a
program does, now and then, and a hang that was found.
"""

from collections.abc import Iterable

import msgspec

from penstock.core.hang.diagnose import diagnose, stalled
from penstock.core.hang.types import Finding, Sight
from penstock.core.lifecycle.orders import Addressed, InspectReplica
from penstock.core.lifecycle.reports import NodeReport, ProgressSeen, ReplicaInspected, ReplicaKey
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.events import AttemptStopRequested, HangFound, ProgressNoted
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import Attempt, Gauges, Job
from penstock.core.state import State

ANSWERS_WAIT_MS = 5_000
"""Agents that have not answered by then are concluded without."""
LOOK_PAUSE_MS = 2_000
AGAIN_FIRST_MS = 10_000
AGAIN_MAX_MS = 300_000
"""A stall that is no hang is looked at again, after twice as long each time."""
NOTE_FIRST_STEPS_MS = 5_000
NOTE_EVERY_MS = 600_000
NOTE_CHANGE_MILLI = 200
"""Gauges are noted when one of them has changed by this much, but no more often than every minute."""
NOTE_PAUSE_MS = 60_000
NOTE_FLOOR = 50
"""Smaller values than this (ms, thousandths) do not count as changed by their share."""
LOOKS_LEAST = 3
"""A hang that may go on by itself is seen so often, alike each time, before anything is started again."""
NATIVE_WAIT_MS = 15_000


class _Rank(msgspec.Struct):
    step: int
    gauges: Gauges


class _Look(msgspec.Struct):
    """One round of looking at all ranks."""

    asked_ms: int
    ranks: frozenset[Rank]
    native: bool
    sights: dict[Rank, Sight]
    before: dict[Rank, Sight] = {}
    """What a first look showed, where this one is a closer one."""


class _Program(msgspec.Struct):
    """One running attempt, as its programs tell; times are monotonic ms."""

    attempt: AttemptNumber
    since_ms: int
    ranks: dict[Rank, _Rank] = {}
    step: int = 0
    moved_ms: int | None = None
    """When the newest step was reported; None before the first."""
    noted: Gauges | None = None
    noted_ms: int = 0
    look: _Look | None = None
    again_ms: int = 0
    pause_ms: int = AGAIN_FIRST_MS
    closer: tuple[Rank, ...] = ()
    """Ranks whose native stacks are to be asked for."""
    found: Finding | None = None
    found_step: int = 0
    alike: int = 0
    """Looks in a row that found the same."""
    known: Gauges = Gauges()
    """From the log, until its ranks have told anew."""

    def gauges(self) -> Gauges:
        return gauges_of(rank.gauges for rank in self.ranks.values()) if self.ranks else self.known


class Pulses:
    """Knows of each running attempt when it last made a step."""

    def __init__(self) -> None:
        self._programs: dict[JobId, _Program] = {}

    def learn(self, state: State, now_ms: int) -> None:
        """Take over what the log knows of programs that run: a new controller may meet one that hangs already."""
        self._programs.clear()
        for job in state.jobs.values():
            attempt, progress = job.attempt, job.progress
            if attempt is not None and attempt.stop is None and progress.noted_attempt == attempt.number:
                program = _Program(attempt.number, now_ms, step=progress.step, moved_ms=now_ms, known=progress.gauges)
                self._programs[job.id] = program

    def note(self, state: State, report: NodeReport, now_ms: int) -> None:
        """Take in what a node says of its programs."""
        for seen in report.progress:
            program = self._program(state, seen.key, now_ms)
            if program is not None:
                _progress(program, seen, now_ms)
        for one in report.inspected:
            program = self._program(state, one.key, now_ms)
            if program is not None and program.look is not None:
                _answer(program.look, one)

    def _program(self, state: State, key: ReplicaKey, now_ms: int) -> _Program | None:
        job = state.jobs.get(key.job_id)
        if job is None or job.attempt is None or job.attempt.number != key.attempt:
            return None
        program = self._programs.get(key.job_id)
        if program is None or program.attempt != key.attempt:
            program = self._programs[key.job_id] = _Program(key.attempt, now_ms)
        return program

    def forget(self, job_ids: Iterable[JobId]) -> None:
        """Drop what is known of jobs that are gone."""
        for job_id in job_ids:
            self._programs.pop(job_id, None)

    def tell(self, tx: Transaction, now_ms: int) -> None:
        """Emit what has become worth it: how programs do, and hangs that the looks of agents have shown."""
        for job_id, program in list(self._programs.items()):
            job = tx.state.jobs.get(job_id)
            if job is None or job.attempt is None or job.attempt.number != program.attempt:
                del self._programs[job_id]
                continue
            _note(tx, job, program, now_ms)
            if program.look is not None and not program.closer and _complete(program.look, now_ms):
                _conclude(tx, job, program, now_ms)

    def looks(self, state: State, now_ms: int) -> list[Addressed]:
        """Return the orders to look at programs that make no step."""
        orders: list[Addressed] = []
        for job_id, program in self._programs.items():
            job = state.jobs.get(job_id)
            if job is None or job.attempt is None or job.attempt.stop is not None:
                continue
            if program.closer:
                orders += _ask(job, job.attempt, program, now_ms, program.closer)
                program.closer = ()
            elif _worth_a_look(program, now_ms):
                orders += _ask(job, job.attempt, program, now_ms)
        return orders


def _progress(program: _Program, seen: ProgressSeen, now_ms: int) -> None:
    known = program.ranks.get(seen.key.rank)
    gauges = seen.gauges or (known.gauges if known is not None else Gauges())
    program.ranks[seen.key.rank] = _Rank(seen.step, gauges)
    if seen.step != program.step:  # a fold or a phase may count from 0 again
        program.step, program.moved_ms = seen.step, now_ms
        program.look, program.closer, program.again_ms, program.pause_ms = None, (), 0, AGAIN_FIRST_MS
    elif seen.kind == "checkpoint":
        program.moved_ms = now_ms


def gauges_of(ranks: Iterable[Gauges]) -> Gauges:
    """Return the gauges of a job: rates and memory of its ranks add up, the worst share and the slowest step count."""
    found = list(ranks)
    return Gauges(
        step_ms=max((g.step_ms for g in found), default=0),
        report_gap_ms=max((g.report_gap_ms for g in found), default=0),
        total_steps=max((g.total_steps for g in found), default=0),
        samples_per_s_milli=sum(g.samples_per_s_milli for g in found),
        data_wait_milli=max((g.data_wait_milli for g in found), default=0),
        communication_milli=max((g.communication_milli for g in found), default=0),
        memory_bytes=sum(g.memory_bytes for g in found),
        data_queue=min((g.data_queue for g in found), default=0),
    )


def _note(tx: Transaction, job: Job, program: _Program, now_ms: int) -> None:
    gauges = program.gauges()
    if program.found is not None:
        if program.step == program.found_step:
            return
        program.found, program.alike = None, 0
    elif not gauges.step_ms or now_ms - program.since_ms < NOTE_FIRST_STEPS_MS:
        return
    elif program.noted is not None:
        age_ms = now_ms - program.noted_ms
        if age_ms < NOTE_PAUSE_MS or (age_ms < NOTE_EVERY_MS and not _changed(program.noted, gauges)):
            return
    program.noted, program.noted_ms = gauges, now_ms
    tx.emit(ProgressNoted(job.id, program.attempt, program.step, gauges))


def _changed(before: Gauges, after: Gauges) -> bool:
    pairs = ((getattr(before, name), getattr(after, name)) for name in Gauges.__struct_fields__ if name != "data_queue")
    return any(abs(new - old) * 1000 > NOTE_CHANGE_MILLI * max(old, new, NOTE_FLOOR) for old, new in pairs)


def _worth_a_look(program: _Program, now_ms: int) -> bool:
    if program.look is not None or program.moved_ms is None or now_ms < program.again_ms:
        return False
    gauges = program.gauges()
    at_end = 0 < gauges.total_steps <= program.step
    usual_ms = max(gauges.step_ms, gauges.report_gap_ms) if gauges.step_ms else 0
    return not at_end and stalled(now_ms - program.moved_ms, usual_ms)


def _ask(job: Job, attempt: Attempt, program: _Program, now_ms: int, closer: Iterable[Rank] = ()) -> list[Addressed]:
    """Ask the agents of all ranks; or only of those `closer`, with native stacks, keeping what others showed."""
    wanted = frozenset(closer) or frozenset(r.rank for r in attempt.replicas if r.state == "started")
    known = dict(program.look.sights) if closer and program.look is not None else {}
    program.look = _Look(now_ms, wanted, bool(closer), {}, known)
    return [
        (r.place.node, InspectReplica(ReplicaKey(job.id, attempt.number, r.rank), native=bool(closer)))
        for r in attempt.replicas
        if r.rank in wanted
    ]


def _answer(look: _Look, one: ReplicaInspected) -> None:
    if one.key.rank in look.ranks:
        look.sights[one.key.rank] = one.sight


def _complete(look: _Look, now_ms: int) -> bool:
    wait_ms = NATIVE_WAIT_MS if look.native else ANSWERS_WAIT_MS
    return look.ranks <= look.sights.keys() or now_ms - look.asked_ms > wait_ms


def _conclude(tx: Transaction, job: Job, program: _Program, now_ms: int) -> None:
    """Say what the looks show; let a hung job start again where its owner wants that."""
    look, attempt = program.look, job.attempt
    assert look is not None
    assert attempt is not None
    if attempt.stop is not None:
        program.look, program.closer = None, ()
        return
    missing = {rank: Sight(rank, problem="its agent did not answer") for rank in look.ranks - look.sights.keys()}
    ended = {r.rank: Sight(r.rank, state="X") for r in attempt.replicas if r.state == "exited"}
    sights = {**missing, **look.before, **look.sights, **ended}
    finding = diagnose([sights[rank] for rank in sorted(sights)])
    if finding.look_closer and not look.native and len(finding.culprits) != 1:
        program.closer = finding.look_closer
        return
    program.look = None
    idle_ms = now_ms - (program.moved_ms or 0)
    program.again_ms = now_ms + program.pause_ms
    program.pause_ms = min(2 * program.pause_ms, AGAIN_MAX_MS)
    if not finding.hung:
        program.alike = 0
        return
    same = program.found is not None and program.found.culprits == finding.culprits
    program.alike = program.alike + 1 if same else 1
    if program.found is None or program.found.text != finding.text:
        tx.emit(HangFound(job.id, attempt.number, program.step, finding.culprits, finding.text, idle_ms))
    program.found, program.found_step = finding, program.step
    if job.spec.on_hang != "restart":
        return
    left_ms = job.spec.hang_limit_ms - idle_ms
    if finding.certain or (left_ms <= 0 and program.alike >= LOOKS_LEAST):
        tx.emit(AttemptStopRequested(job.id, attempt.number, "hung", job.spec.grace_ms, rule=finding.text))
    else:  # so often, until the limit, that it is sure by then
        program.again_ms = min(program.again_ms, now_ms + max(LOOK_PAUSE_MS, left_ms // LOOKS_LEAST))
