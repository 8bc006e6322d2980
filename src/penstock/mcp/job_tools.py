"""Read tools about jobs: lists, one job, its output, why it waits, when it starts."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.api import types as api
from penstock.api.jobs import AttemptView
from penstock.core.model.explanation import Explanation
from penstock.core.model.jobs import JobState
from penstock.mcp.callers import Caller
from penstock.mcp.cluster_tools import Limit, Offset, Word
from penstock.mcp.tool import Arguments, Tool
from penstock.mcp.values import Page, Untrusted, following, named, page, said, within_bytes

JOBS_MAX = 100
"""Of one answer, which has at most 2 KiB for each."""
JobId = Annotated[int, Meta(ge=1, le=2**53, description="number of the job")]


class JobsAsked(Arguments, frozen=True):
    state: Annotated[tuple[JobState, ...], Meta(max_length=8)] = ()
    name: Annotated[str, Meta(max_length=200, description="a name, or a pattern such as train-*")] = ""
    search: Annotated[str, Meta(max_length=100, description="a text in names, users, numbers and labels")] = ""
    user: Word = ""
    tenant: Word = ""
    queue: Word = ""
    reason: Annotated[str, Meta(max_length=60, description="code of why it waits")] = ""
    label: Annotated[tuple[Word, ...], Meta(max_length=8, description="NAME=VALUE, of live jobs")] = ()
    finished: Annotated[bool, Meta(description="finished jobs, too")] = False
    sort: Literal["newest", "id", "priority", "submitted"] = "newest"
    limit: Annotated[int, Meta(ge=1, le=JOBS_MAX, description="jobs of the answer at most")] = 25
    cursor: Annotated[str, Meta(max_length=500, description="next_page of the answer before")] = ""


class JobRow(msgspec.Struct, frozen=True):
    """A job. Times are unix milliseconds, 0 where something has not happened."""

    id: int
    name: Untrusted
    state: str
    tenant: str
    queue: str
    user: str
    priority: int
    devices: str
    """Devices asked for, such as `8`, `4x2` (devices x replicas) or `0.25`."""
    submitted_ms: int
    started_ms: int
    finished_ms: int
    attempt: int
    preemptions: int
    reason: str
    """Code of why it waits, or how it ended."""


class Jobs(msgspec.Struct, frozen=True):
    jobs: list[JobRow]
    totals: dict[str, int]
    """Live jobs that match, by state, on all pages."""
    page: Page


def jobs(caller: Caller, asked: JobsAsked) -> Jobs:
    given = msgspec.structs.asdict(asked)
    with caller.client() as client:
        found = client.jobs(**{name: value for name, value in given.items() if value})
    rows = [row_of(one) for one in found.jobs]
    return Jobs(rows, found.totals, following(len(rows), found.next_cursor))


def row_of(job: api.JobView) -> JobRow:
    return JobRow(
        id=job.id,
        name=named(job.name),
        state=job.state,
        tenant=job.tenant,
        queue=job.queue,
        user=job.user,
        priority=job.priority,
        devices=job.devices_text,
        submitted_ms=job.submitted_ms,
        started_ms=job.started_ms,
        finished_ms=job.finished_ms,
        attempt=job.attempt,
        preemptions=job.preemptions,
        reason=job.reason if job.reason.replace("_", "").isalnum() else "",
    )


class JobAsked(Arguments, frozen=True):
    job: JobId


class Replica(msgspec.Struct, frozen=True):
    rank: int
    node: str
    devices: list[int]
    state: str
    exit: Untrusted


class JobPage(msgspec.Struct, frozen=True):
    """One job with its replicas."""

    job: JobRow
    command: Untrusted
    reason: Untrusted
    """Why it waits or how it ended, in words; the last error of its program may stand in it."""
    asks: Untrusted
    placement: Untrusted
    nodes: list[str]
    step: int
    checkpoint_step: int | None
    exit_code: int | None
    exit_signal: int | None
    ends_ms: int
    time_limit_ms: int
    replicas: int
    replica_list: list[Replica]
    """The first replicas."""


def job(caller: Caller, asked: JobAsked) -> JobPage:
    with caller.client() as client:
        return page_of(client.job(asked.job))


def page_of(found: api.JobView) -> JobPage:
    replicas = [Replica(r.rank, r.node, r.devices, r.state, named(r.exit)) for r in found.replica_list[:64]]
    return JobPage(
        job=row_of(found),
        command=said(" ".join(found.command)),
        reason=said(found.reason),
        asks=named(found.asks),
        placement=named(found.placement),
        nodes=found.nodes[:64],
        step=found.step,
        checkpoint_step=found.checkpoint_step,
        exit_code=found.exit_code,
        exit_signal=found.exit_signal,
        ends_ms=found.ends_ms,
        time_limit_ms=found.time_limit_ms,
        replicas=found.replicas,
        replica_list=within_bytes(replicas),
    )


class Attempt(msgspec.Struct, frozen=True):
    """One attempt. Times are unix milliseconds, 0 where something has not happened."""

    number: int
    allocated_ms: int
    running_ms: int
    ended_ms: int
    nodes: list[str]
    devices: int
    outcome: str
    """Why it ended; empty: it has not."""
    detail: Untrusted
    """The same in words; the last error of its program may stand in it."""
    asked_reason: str
    """Why it was asked to leave; empty: it was not."""
    beneficiary: int | None
    """The job that it made room for."""
    resumed_step: int | None
    lost_steps: int
    """Steps that were made before, and again."""


class Rank(msgspec.Struct, frozen=True):
    """One replica of the last attempt."""

    rank: int
    node: str
    started_ms: int
    ended_ms: int
    exit: Untrusted


class Attempts(msgspec.Struct, frozen=True):
    """The timeline of a job, the newest of its attempts where there are many."""

    attempts: list[Attempt]
    left_out: int
    """Earlier attempts."""
    ranks: list[Rank]
    ranks_left_out: int


ATTEMPTS_MAX = 30
RANKS_MAX = 64


def attempts(caller: Caller, asked: JobAsked) -> Attempts:
    with caller.client() as client:
        found = client.attempts(asked.job)
    newest = found.attempts[-ATTEMPTS_MAX:]
    ranks = [Rank(r.rank, r.node, r.started_ms, r.ended_ms, named(r.exit)) for r in found.ranks[:RANKS_MAX]]
    return Attempts(
        [_attempt(one) for one in newest],
        found.attempts_left_out + len(found.attempts) - len(newest),
        ranks,
        found.ranks_left_out + len(found.ranks) - len(ranks),
    )


def _attempt(one: AttemptView) -> Attempt:
    return Attempt(
        number=one.number,
        allocated_ms=one.allocated_ms,
        running_ms=one.running_ms,
        ended_ms=one.ended_ms,
        nodes=one.nodes[:20],
        devices=one.devices,
        outcome=one.outcome,
        detail=named(one.detail),
        asked_reason=one.asked_reason,
        beneficiary=one.beneficiary,
        resumed_step=one.resumed_step,
        lost_steps=one.lost_steps,
    )


class Reason(msgspec.Struct, frozen=True):
    code: str
    """Stable; docs/reasons.md explains each."""
    text: Untrusted
    distance: int
    """How much is missing, in `unit`; 0 where it cannot be counted."""
    unit: str
    where: str


class EditRow(msgspec.Struct, frozen=True):
    """A change with which the job would start now: it was planned, not reasoned."""

    kind: str
    """request: a field of the job; cluster: something that operators change."""
    path: str
    text: Untrusted
    starts_now: bool
    """False: `victims` are asked to leave first."""
    victims: list[int]


class Explained(msgspec.Struct, frozen=True):
    """Why a job is not running, what would let it start, and when it may."""

    job: int
    state: str
    code: str
    text: Untrusted
    constraints: list[Reason]
    """Everything that keeps it from starting now, the decisive one first."""
    refused_nodes: dict[str, int]
    """Nodes ruled out, by reason."""
    ahead: int
    """Waiting jobs of its queue that come before it."""
    blockers: list[int]
    edits: list[EditRow]
    start_by_ms: int
    """By when it starts at the latest, as far as time limits say; 0: unknown."""
    start_early_ms: int
    """8 of 10 such starts come between early and late; 0: unknown."""
    start_likely_ms: int
    start_late_ms: int
    elsewhere: Untrusted
    """What another scheduler that decides says of it."""


def explain(caller: Caller, asked: JobAsked) -> Explained:
    with caller.client() as client:
        return explained_of(client.explain(asked.job))


def explained_of(found: Explanation) -> Explained:
    early, late = found.start_interval_ms or (0, 0)
    return Explained(
        job=found.job_id,
        state=found.state,
        code=found.code,
        text=said(found.text),
        constraints=within_bytes(
            Reason(one.code, said(one.text), one.distance, one.unit, one.where) for one in found.constraints[:50]
        ),
        refused_nodes=found.refused,
        ahead=found.ahead,
        blockers=list(found.blockers[:50]),
        edits=[
            EditRow(one.kind, one.path, said(one.text), one.starts_now, list(one.victims[:20]))
            for one in found.edits[:20]
        ],
        start_by_ms=found.start_by_ms,
        start_early_ms=early,
        start_likely_ms=found.start_likely_ms,
        start_late_ms=late,
        elsewhere=said(found.elsewhere),
    )


class EtaAsked(Arguments, frozen=True):
    job: Annotated[int, Meta(ge=0, le=2**53, description="one waiting job; 0: all")] = 0
    offset: Offset = 0
    limit: Limit = 50


class EtaRow(msgspec.Struct, frozen=True):
    """1, 5 and 9 of 10 starts come before these times (unix ms); 0: unknown."""

    job: int
    name: Untrusted
    queue: str
    early_ms: int
    likely_ms: int
    late_ms: int


class Etas(msgspec.Struct, frozen=True):
    made_ms: int
    """Time of the simulated state."""
    jobs: list[EtaRow]
    not_estimated: int
    """Waiting jobs without an estimate."""
    page: Page


def eta(caller: Caller, asked: EtaAsked) -> Etas:
    with caller.client() as client:
        found = client.etas()
    chosen = [one for one in found.jobs if asked.job in (0, one.id)]
    rows, shown = page(chosen, _eta, offset=asked.offset, limit=asked.limit)
    return Etas(found.made_ms, rows, found.untold, shown)


def _eta(one: api.EtaView) -> EtaRow:
    return EtaRow(one.id, named(one.name), one.queue, one.early_ms, one.likely_ms, one.late_ms)


TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool("jobs", "List jobs with filters: running before waiting, newest first.", JobsAsked, Jobs, jobs),
    Tool("job", "One job, live or finished, with its replicas.", JobAsked, JobPage, job),
    Tool("attempts", "The attempts of a job: when and where each ran, why it ended, and how its replicas exited.",
         JobAsked, Attempts, attempts),
    Tool("explain", "Why a job is not running: what it lacks, who is ahead, which changes would let it start now.",
         JobAsked, Explained, explain),
    Tool("eta", "When waiting jobs start: an interval that 8 of 10 starts fall into.", EtaAsked, Etas, eta),
)  # fmt: skip
