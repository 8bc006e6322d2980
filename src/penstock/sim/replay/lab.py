"""A process that replays a server's log under other rules, beside the server and at low priority.

On its standard input it gets a question and then the records, in batches; on its standard output it says how far it is,
and then what it found; each message is MessagePack behind its length. It ends after one question.
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.errors import PenstockError
from penstock.core.model.ids import Incarnation, JobId, UserName
from penstock.core.model.whatif import GroupOutcome, JobDifference, WhatIfChange, WhatIfOutcome, WhatIfResult
from penstock.core.model.words import counted
from penstock.core.state.history import JOB_EVENTS
from penstock.extensions import installed_policies
from penstock.sim.forecast.worker import read_frame, write_frame
from penstock.sim.replay.agreement import as_recorded
from penstock.sim.replay.costs import CostMeter, Costs
from penstock.sim.replay.life import Life
from penstock.sim.replay.measures import measure
from penstock.sim.replay.replay import Ran, replay
from penstock.sim.replay.variants import Variant
from penstock.traces.edit import with_nodes
from penstock.traces.model import Trace
from penstock.traces.ownlog import LogTrace, trace_of

NICENESS = 15
MEMORY_MAX_BYTES = 8 << 30
CPU_MAX_S = 1_200
AFFECTED_MAX = 50
PROGRESS_EVERY_S = 0.5
DAY_MS = 86_400_000


class LabQuestion(msgspec.Struct, frozen=True):
    """What is to be tried."""

    base: ClusterConfig
    """The rules in force: what the others are compared with."""
    variants: tuple[Variant, ...]
    nodes: str = ""
    """Other nodes for the variants, as `penstock whatif --nodes` takes them."""
    since_ms: int = 0
    """Only jobs submitted since count (unix ms); those of the day before are replayed with them."""
    jobs_max: int = 20_000
    """The newest are replayed."""
    specs: tuple[NodeSpec, ...] = ()
    """Nodes, where the records do not begin with the first of the log."""


class LabProgress(msgspec.Struct, frozen=True, tag=True):
    share: float


class LabFailed(msgspec.Struct, frozen=True, tag=True):
    text: str


LabAnswer = LabProgress | LabFailed | WhatIfResult


def answer(question: LabQuestion, records: Iterable[ev.Record], on_share: Callable[[float], None]) -> WhatIfResult:
    """Return what the changes come to.

    Raises: PenstockError when there is nothing to replay, or the nodes cannot be as asked.
    """
    told, notes = _trace(question, list(records))
    changed = with_nodes(told.trace, question.nodes) if question.nodes else told.trace
    steps = 1 + len(question.variants)

    def run(trace: Trace, one: Variant, place: int) -> tuple[Ran, Costs | None]:
        meter = CostMeter(question.base.billing)
        rules = replace(trace, config=one.config, changes=tuple(c for c in trace.changes if c.config is None))
        ran = replay(
            rules,
            as_recorded(told),
            knows=one.knows,
            policies=installed_policies(),
            on_progress=lambda done, total: on_share((place + done / max(1, total)) / steps),
            on_records=meter.take,
        )
        kept = tuple(life for life in ran.lives if life.submitted_ms >= question.since_ms)
        return replace(ran, lives=kept), meter.costs({life.job_id for life in kept}, ran.ended_ms)

    before, costs = run(told.trace, Variant("as it is", question.base), 0)
    if not before.lives:
        raise PenstockError("no job was submitted in this time", hint="ask for a longer one")
    numbers = list(told.jobs)
    after = []
    for place, one in enumerate(question.variants, 1):
        ran, its_costs = run(changed, one, place)
        after.append(_change(_outcome(one.name, ran, its_costs), before.lives, ran.lives, numbers))
    real = [job for job in told.jobs.values() if job.submitted_ms >= question.since_ms and job.attempts]
    waited = sorted(job.attempts[0].allocated_ms - job.submitted_ms for job in real)
    times = [life.submitted_ms for life in before.lives]
    return WhatIfResult(
        min(times),
        max(times),
        len(before.lives),
        question.base.billing.currency,
        _part(waited, 50),
        _part(waited, 95),
        _outcome("as it is", before, costs),
        after,
        [*notes, *changed.notes],
    )


def _trace(question: LabQuestion, records: list[ev.Record]) -> tuple[LogTrace, list[str]]:
    """Return the trace of the newest jobs, and notes on what was left out."""
    first_ms = question.since_ms - DAY_MS
    submits = [record.event.job_id for record in records if isinstance(record.event, ev.JobSubmitted)]
    recent = [
        record.event.job_id
        for record in records
        if isinstance(record.event, ev.JobSubmitted) and record.time_ms >= first_ms
    ][-question.jobs_max :]
    if not recent:
        raise PenstockError("no job was submitted in this time", hint="ask for a longer one")
    wanted = frozenset(recent)
    kept = [one for one in records if not isinstance(one.event, _OF_JOBS) or one.event.job_id in wanted]
    began = [ev.ConfigChanged(question.base, UserName(""))] if question.specs else []
    for spec in question.specs:
        began += [ev.NodeRegistered(spec, Incarnation("i1")), ev.NodeReady(spec.name)]  # type: ignore[list-item]
    told = trace_of([*(ev.Record(0, kept[0].time_ms, event) for event in began), *kept])
    notes = []
    if question.specs:
        notes.append("the log is long: only its newest records are replayed, on the nodes of now")
    if len(recent) < len(submits):
        notes.append(f"{counted(len(submits) - len(recent), 'earlier job')} of these records left out")
    return told, notes


_OF_JOBS = (ev.JobSubmitted, *JOB_EVENTS)


def _outcome(name: str, ran: Ran, costs: Costs | None) -> WhatIfOutcome:
    measures = measure(ran)

    def group(lives: Sequence[Life], tenant: str | None) -> GroupOutcome:
        ended = [life for life in lives if life.ended_ms]
        waits = sorted(life.wait_ms for life in ended)
        lived = sorted(life.completion_ms for life in ended)
        return GroupOutcome(
            jobs=len(lives),
            wait_mean_ms=sum(waits) // max(1, len(waits)),
            wait_p50_ms=_part(waits, 50),
            wait_p95_ms=_part(waits, 95),
            completion_p50_ms=_part(lived, 50),
            completion_p95_ms=_part(lived, 95),
            starts=sum(life.attempts for life in lives),
            preemptions=sum(life.preemptions for life in lives),
            unfinished=len(lives) - len(ended),
            device_hours=round(sum(life.held_device_ms for life in lives) / 3_600_000, 2),
            cost="" if costs is None else costs.of(tenant),
        )

    tenants: dict[str, list[Life]] = {}
    for life in ran.lives:
        tenants.setdefault(life.spec.tenant, []).append(life)
    by_tenant = {tenant: group(tenants[tenant], tenant) for tenant in sorted(tenants)}
    used = measures.utilisation or measures.utilisation_whole  # where all jobs came at once
    return WhatIfOutcome(name, group(ran.lives, None), by_tenant, round(used, 4), measures.makespan_ms)


def _change(
    outcome: WhatIfOutcome, before: Sequence[Life], after: Sequence[Life], numbers: Sequence[JobId]
) -> WhatIfChange:
    others = {life.job_id: life for life in after}
    pairs = [(life, others[life.job_id]) for life in before if life.job_id in others]
    moved = [(later.wait_ms - was.wait_ms, was, later) for was, later in pairs if later.wait_ms != was.wait_ms]
    moved.sort(key=lambda one: (-abs(one[0]), one[1].job_id))
    affected = [
        JobDifference(
            numbers[was.job_id - 1],
            was.spec.name,
            was.spec.tenant,
            was.user,
            was.wait_ms if was.started_ms else 0,
            later.wait_ms if later.started_ms else 0,
            was.ended_ms,
            later.ended_ms,
            was.preemptions,
            later.preemptions,
        )
        for _, was, later in moved[:AFFECTED_MAX]
    ]
    sooner = sum(by_ms < 0 for by_ms, _, _ in moved)
    return WhatIfChange(outcome, sooner, len(moved) - sooner, affected)


def _part(ascending: Sequence[int], percent: int) -> int:
    return ascending[min(len(ascending) - 1, len(ascending) * percent // 100)] if ascending else 0


def _records(source: BinaryIO) -> Iterable[ev.Record]:
    decoder = msgspec.msgpack.Decoder(list[ev.Record])
    while (body := read_frame(source)) is not None and (batch := decoder.decode(body)):
        yield from batch


def main() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_MAX_S, CPU_MAX_S + 5))
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints of a third party's policy are no answers
    encode, said_s = msgspec.msgpack.Encoder().encode, [0.0]

    def on_share(share: float) -> None:
        if time.monotonic() > said_s[0] + PROGRESS_EVERY_S:
            said_s[0] = time.monotonic()
            write_frame(target, encode(LabProgress(share)))

    body = read_frame(sys.stdin.buffer)
    found: LabAnswer
    try:
        question = msgspec.msgpack.decode(body or b"", type=LabQuestion)
        found = answer(question, _records(sys.stdin.buffer), on_share)
    except PenstockError as error:
        found = LabFailed(f"{error.message}; {error.hint}" if error.hint else error.message)
    except MemoryError:
        found = LabFailed("these jobs take more memory than a what-if may; ask for a shorter time")
    except Exception as error:  # noqa: BLE001 - said to the server, which goes on
        found = LabFailed(f"{type(error).__name__}: {error}")
    write_frame(target, encode(found))


if __name__ == "__main__":
    main()
