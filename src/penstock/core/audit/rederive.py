"""Makes the decisions of a log again: the state is folded up to the basis of each plan, and planned anew.

A plan depends on the log up to its `basis` and on its time, both of which its decisions carry; the part that still
held at its commit depends on the log up to there. So a log alone shows whether its decisions follow from it.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import msgspec

from penstock.core.audit.causes import cause
from penstock.core.audit.claims import claim_checks
from penstock.core.audit.closing import closing
from penstock.core.audit.places import place_checks, scores_of
from penstock.core.audit.types import Ruling
from penstock.core.cycle.alternatives import PlanChooser
from penstock.core.cycle.verify import verify
from penstock.core.lifecycle.orders import stop_reason
from penstock.core.model import events as ev
from penstock.core.model.errors import BrokenInvariant, InvalidInput
from penstock.core.model.ids import JobId
from penstock.core.model.pairing import PAIR, PART
from penstock.core.model.plan import Plan, Preemption, Start
from penstock.core.model.words import counted
from penstock.core.order.extension import Policies
from penstock.core.state.snapshot import Snapshot, take_snapshot
from penstock.core.state.state import State
from penstock.core.state.suspension import CANNOT_FREEZE, TOO_LONG

Decision = ev.AttemptAllocated | ev.AttemptStopRequested | ev.AttemptResumed | ev.BatchChosen


class RederivedPlan(msgspec.Struct, frozen=True):
    """The decisions of one plan in the log."""

    basis: int
    decided_ms: int
    records: tuple[ev.Record, ...]
    """Of its decisions, in their order."""


def planned_in(records: Sequence[ev.Record]) -> list[RederivedPlan]:
    """Return the plans of a log that name their basis."""
    told = [r for r in records if isinstance(r.event, Decision) and r.event.basis]
    return [RederivedPlan(*key, tuple(group)) for key, group in groupby(told, key=_made_on)]


def _made_on(record: ev.Record) -> tuple[int, int]:
    assert isinstance(record.event, Decision)
    return record.event.basis, record.event.decided_ms


def audit(
    records: Sequence[ev.Record],
    job_id: JobId | None = None,
    *,
    policies: Policies | None = None,
    on_record: Callable[[int], None] | None = None,
) -> Iterator[Ruling]:
    """Yield a ruling on each start and each stop, in their order.

    Args:
        records: the log from its first record on.
        job_id: only decisions about this job, and those by which others left for it; they come with digest and
            scores. None: all decisions, and the closing of nodes for their failures.
        policies: third-party policies of the cluster.
        on_record: called after each record with its place.

    Raises: InvalidInput for records that cannot follow from those before them.
    """
    return _Auditor(records, job_id, policies).run(on_record)


class _Auditor:
    def __init__(self, records: Sequence[ev.Record], job_id: JobId | None, policies: Policies | None) -> None:
        self._records, self._job_id = records, job_id
        self._state, self._version = State(), ""
        self._chooser = PlanChooser(policies)
        wanted = [p for p in planned_in(records) if any(self._wanted(r.event) for r in p.records)]
        self._by_basis = {p.basis: p for p in wanted}
        self._by_first = {p.records[0].seq: p for p in wanted}
        self._open: dict[int, tuple[Snapshot, Plan, str]] = {}
        """Plans made again that are not committed yet, by their basis."""
        self._ruled: dict[int, Ruling] = {}
        """Rulings on decisions that come next, by their records."""

    def _wanted(self, event: ev.AnyEvent) -> bool:
        if not isinstance(event, Decision):
            return False
        theirs = isinstance(event, ev.AttemptStopRequested) and event.beneficiary == self._job_id
        return self._job_id is None or event.job_id == self._job_id or theirs

    def run(self, on_record: Callable[[int], None] | None) -> Iterator[Ruling]:
        for place, record in enumerate(self._records, start=1):
            try:
                yield from self._take(record)
            except (BrokenInvariant, KeyError, IndexError, ValueError, AssertionError) as error:
                kind = type(record.event).__name__
                text = f"record {record.seq} ({kind}) does not follow from those before it: {error!r}"
                raise InvalidInput(text, hint="the log was damaged or changed") from error
            if on_record is not None:
                on_record(place)

    def _take(self, record: ev.Record) -> Iterator[Ruling]:
        """Move on by one record; yield the rulings on it."""
        planned = self._by_first.get(record.seq)
        if planned is not None and planned.basis in self._open:
            self._compare(planned)
        if self._wanted(record.event):
            ruled = self._ruled.pop(record.seq, None)
            yield ruled if ruled is not None else self._not_derived(record)
        elif self._job_id is None and isinstance(record.event, ev.NodeDrainChanged | ev.NodeShut):
            yield from closing(record, self._state, self._version)
        if isinstance(record.event, ev.LeaderElected):
            self._version = record.event.version
        self._state.apply(record)
        due = self._by_basis.get(self._state.seq)
        if due is not None:
            self._plan(due)

    def _plan(self, due: RederivedPlan) -> None:
        digest = ""
        if self._job_id is not None:
            digest = hashlib.sha256(msgspec.msgpack.encode(self._state.image())).hexdigest()
        snapshot = take_snapshot(self._state)
        self._open[due.basis] = (snapshot, self._chooser.plan(snapshot, due.decided_ms), digest)

    def _compare(self, planned: RederivedPlan) -> None:
        """Compare one plan's decisions in the log with those that come out now; the state is that of the commit."""
        snapshot, proposed, digest = self._open.pop(planned.basis)
        plan = verify(proposed, self._state)
        indexes = [
            *map(_start_key, plan.starts),
            *(("batch", change.job_id, change.attempt, change.batch) for change in plan.batches),
            *(("resume", resume.job_id, resume.attempt) for resume in plan.resumes),
            *(_stop_key(stop, self._state) for stop in plan.preemptions),
        ]
        whole = len(indexes) == len(planned.records)
        for at, record in enumerate(planned.records):
            event = record.event
            assert isinstance(event, Decision)
            if not self._wanted(event):
                continue
            same = whole and indexes[at] == _told_key(event)
            ruling = _ruling(record, self._state)
            checks, scores = ruling.checks, ruling.scores
            if isinstance(event, ev.AttemptAllocated):
                checks = tuple(place_checks(event, plan, snapshot, self._state))
                scores = scores_of(event, plan, snapshot) if self._job_id is not None else ()
            elif isinstance(event, ev.AttemptStopRequested):
                checks = tuple(claim_checks(event, plan, snapshot, self._chooser.plan, same=same))
            self._ruled[record.seq] = msgspec.structs.replace(
                ruling,
                basis=event.basis,
                decided_ms=event.decided_ms,
                digest=digest,
                same=same,
                instead="" if same else _instead(event, plan, alone=_told_key(event) in indexes),
                version=self._version,
                checks=checks,
                scores=scores,
            )

    def _not_derived(self, record: ev.Record) -> Ruling:
        ruling = _ruling(record, self._state)
        if not ruling.planned:
            checks = tuple(cause(record, self._state))
            return msgspec.structs.replace(ruling, version=self._version, checks=checks)
        event = record.event
        assert isinstance(event, Decision)
        told = event.basis > 0 or bool(self._version)
        instead = "what it says it was made on is not in the log" if told else ""
        return msgspec.structs.replace(
            ruling, version=self._version, basis=event.basis, same=False if told else None, instead=instead
        )


def _ruling(record: ev.Record, state: State) -> Ruling:
    event = record.event
    if isinstance(event, ev.AttemptAllocated):
        nodes = ", ".join(dict.fromkeys(place.node for place in event.places))
        by = f" by {event.scheduler}" if event.scheduler else ""
        text = f"attempt {event.attempt} given places on {nodes}{by}"
        ruling = Ruling(record.seq, record.time_ms, "start", event.job_id, event.attempt, text, event.rule)
        return msgspec.structs.replace(ruling, planned=not event.scheduler and event.pairing is None)
    if isinstance(event, ev.AttemptResumed):
        text = f"attempt {event.attempt} resumes where it was"
        return Ruling(record.seq, record.time_ms, "resume", event.job_id, event.attempt, text, "resume")
    if isinstance(event, ev.BatchChosen):
        text = f"attempt {event.attempt} goes on with a batch of {event.batch.local} samples a replica and pass"
        return Ruling(record.seq, record.time_ms, "batch", event.job_id, event.attempt, text, "batch")
    assert isinstance(event, ev.AttemptStopRequested)
    text = f"attempt {event.attempt} asked to leave ({event.reason})"
    other = event.beneficiary
    if other is not None and other != event.job_id:
        name = state.jobs[other].spec.name if other in state.jobs else ""
        text += f" for job {other}" + (f" '{name}'" if name else "")
    planned = (
        bool(event.rule) and event.rule not in (TOO_LONG, CANNOT_FREEZE, PAIR, PART) and event.reason != "device_failed"
    )
    return Ruling(record.seq, record.time_ms, "stop", event.job_id, event.attempt, text, event.rule, other, planned)


_Key = tuple[object, ...]


def _start_key(start: Start) -> _Key:
    key = start.job_id, start.attempt, start.places, start.choice, start.rule, start.waited_ms
    return ("start", *key, start.batch)


def _stop_key(stop: Preemption, state: State) -> _Key:
    grace_ms = state.jobs[stop.victim].spec.grace_ms
    return (
        "stop",
        stop.victim,
        stop.attempt,
        stop.beneficiary,
        stop.cost,
        stop.rule,
        stop_reason(stop),
        grace_ms,
        stop.rooms,
    )


def _told_key(event: Decision) -> _Key:
    if isinstance(event, ev.AttemptAllocated):
        key = event.job_id, event.attempt, event.places, event.choice, event.rule, event.waited_ms
        return ("start", *key, event.batch)
    if isinstance(event, ev.AttemptResumed):
        return ("resume", event.job_id, event.attempt)
    if isinstance(event, ev.BatchChosen):
        return ("batch", event.job_id, event.attempt, event.batch)
    about = (event.job_id, event.attempt, event.beneficiary, event.cost)
    return ("stop", *about, event.rule, event.reason, event.grace_ms, event.rooms)


def _instead(event: Decision, plan: Plan, *, alone: bool) -> str:
    """Return the job's fate in the plan that comes out now; `alone`: it is the same, and only other jobs differ."""
    if alone:
        starts = counted(len(plan.starts), "start")
        return f"another plan, with {starts} and {counted(len(plan.preemptions), 'preemption')}"
    if any(r.job_id == event.job_id for r in plan.resumes):
        return "it keeps running where it is"
    start = next((s for s in plan.starts if s.job_id == event.job_id), None)
    if start is not None:
        nodes = ", ".join(dict.fromkeys(place.node for place in start.places))
        return f"it starts on {nodes}"
    stop = next((p for p in plan.preemptions if p.victim == event.job_id), None)
    if stop is not None:
        return f"it leaves for job {stop.beneficiary} by {stop.rule}"
    return "it is not started" if isinstance(event, ev.AttemptAllocated) else "it is not asked to leave"
