"""Actions on many jobs at once; and what became of one job: attempts, what its programs told, lines of its outputs.

Times are unix milliseconds, 0 where something has not happened.
"""

from typing import Any

import msgspec

from penstock.core.model.actions import JobAction

IDS_MAX = 2_000
"""Entries of `ids` in one selection."""
NUMBERS_MAX = 100_000
"""Numbers that the ranges of one selection may span together."""
ACTION_JOBS_MAX = 100_000
"""Jobs that one request may act on."""
LISTED = 20
"""Jobs that an answer lists of each kind."""


class JobSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which live jobs; all given conditions must hold. With neither ids nor a condition, `all` is needed."""

    ids: list[str] = []
    """Numbers (`3`), ranges (`5-9`, its live jobs), arrays by their first job (`12[]`), members (`12[0-3,7]`)."""
    all: bool = False
    states: list[str] = []
    name: str = ""
    """A name, or a pattern with `*`, `?` and `[...]`."""
    user: str = ""
    tenant: str = ""
    queue: str = ""
    labels: dict[str, str] = {}


class ActionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action on all jobs of a selection."""

    action: JobAction
    select: JobSelection = JobSelection()
    set: dict[str, Any] = {}
    """For `edit`: the new values, named as in a job file."""
    dry_run: bool = False
    """Only count."""
    expect: int | None = None
    """Refuse when another number of jobs matches by now."""


class Unchanged(msgspec.Struct, frozen=True):
    """Jobs that an action left as they were, for one reason."""

    code: str
    """`over`, `no_right`, `not_found`, `cancel_requested`, `not_running`, ..."""
    text: str
    count: int
    jobs: list[int]
    """The first of them."""


class ActionAnswer(msgspec.Struct, frozen=True):
    """What became of a selection: `matched` = `changed` + the counts in `unchanged`."""

    matched: int
    changed: int
    """With `dry_run`: how many would be changed."""
    unchanged: list[Unchanged]
    jobs: list[int]
    """The first jobs that are changed."""


class RankView(msgspec.Struct, frozen=True):
    """One replica of an attempt."""

    rank: int
    node: str
    devices: list[int]
    started_ms: int = 0
    ended_ms: int = 0
    exit: str = ""
    """How it ended, such as `exit 1`."""


class AttemptView(msgspec.Struct, frozen=True):
    """One attempt: allocated, running once all its replicas have started, ended."""

    number: int
    allocated_ms: int
    running_ms: int
    ended_ms: int
    nodes: list[str]
    replicas: int
    devices: int
    """Devices that it holds any part of."""
    outcome: str = ""
    """Why it ended: `succeeded`, `failed`, `preempted`, `lost`, ...; empty: it has not."""
    detail: str = ""
    asked_ms: int = 0
    """When it was last asked to leave."""
    asked_reason: str = ""
    beneficiary: int | None = None
    """The job that it was asked to make room for, where the caller may see that."""
    idle_ms: int = 0
    """For how long it was suspended."""
    suspended_ms: int = 0
    """Since when it is suspended."""
    resumed_step: int | None = None
    """The step from which its programs went on."""
    lost_steps: int = 0
    """Steps that were made before, and again."""
    saved_step: int | None = None
    """The job's newest checkpoint when it ended, or now."""
    requeued: bool = False
    scheduler: str = ""
    """Who decided it, where that was not Penstock."""


class Wait(msgspec.Struct, frozen=True):
    """A time of waiting, [from_ms, until_ms); until_ms is 0 where it still waits."""

    from_ms: int
    until_ms: int


class AttemptList(msgspec.Struct, frozen=True):
    """The timeline of a job: attempts and waits in order, the newest of each where there are many."""

    id: int
    state: str
    submitted_ms: int
    finished_ms: int
    attempts: list[AttemptView]
    waits: list[Wait]
    ranks: list[RankView]
    """Of one attempt: that which was asked for, else the last."""
    ranks_of: int
    """That attempt; 0: there is none."""
    attempts_left_out: int = 0
    """Earlier attempts beyond the limit."""
    waits_left_out: int = 0
    ranks_left_out: int = 0
    """Higher ranks beyond the limit."""


class Point(msgspec.Struct, frozen=True, array_like=True):
    """A value from a time on (unix ms)."""

    time_ms: int
    value: float


class JobSeries(msgspec.Struct, frozen=True):
    """One quantity of a job over time, in the order of time."""

    name: str
    """`step`, `step_ms`, `samples_per_s`, `data_wait`, `communication`, `memory_bytes`, `data_queue`, `checkpoint`,
    `replicas`, `devices`."""
    unit: str
    """`steps`, `ms`, `1/s`, `share` (0 to 1), `bytes`, `items`, `replicas` or `devices`."""
    points: list[Point]
    thinned: bool = False
    """Of more points than are shown the lowest and the highest of each stretch are left."""


class JobSeriesList(msgspec.Struct, frozen=True):
    """What the log has of a job over time; a series without a point is left out."""

    id: int
    from_ms: int
    until_ms: int
    total_steps: int
    """As its programs last reported; 0: unknown."""
    series: list[JobSeries]


class ReportedLine(msgspec.Struct, frozen=True):
    """The curve of one attempt, in the order in which it was reported; all lists have one entry a point.

    A point stands for one report, or for some in a row where there are more than can be shown.
    """

    attempt: int
    steps: list[int]
    """The step of the last of them."""
    times_ms: list[int]
    """When that was reported, by the clock of its node; 0: unknown."""
    values: list[float | None]
    """The mean of the finite numbers; null: there was none."""
    not_finite: list[int]
    """Numbers that were NaN or infinite."""


class ReportedMetric(msgspec.Struct, frozen=True):
    """A number that a job's programs report, over its attempts in order: at most 500 points together."""

    name: str
    lines: list[ReportedLine]
    last: float | None
    """The latest finite number; null: there was none. So with those below, of what was read."""
    lowest: float | None
    highest: float | None


class ReportedList(msgspec.Struct, frozen=True):
    """What one rank of a job has reported: `loss` first, then by when the latest attempt first reported it."""

    id: int
    rank: int
    ranks: list[int]
    """All ranks that have an output, the lowest 1,000."""
    attempts: list[int]
    """Those that were looked at: the latest, in order."""
    metrics: list[ReportedMetric]
    size_bytes: int
    """Of the reports of these attempts."""
    read_bytes: int
    """Of them, for this answer; if fewer, evenly spread parts were read."""
    attempts_left_out: int = 0
    """Earlier attempts beyond the limit."""
    metrics_left_out: bool = False
    """Whether it reports more metrics than the limit."""


class LogLine(msgspec.Struct, frozen=True):
    """A line of an output that matches."""

    offset: int
    """Where the line begins, in bytes."""
    text: str
    """The line without its end, or a part of a long one around the match."""
    begin: int
    """Where the match begins in the text, in characters."""
    end: int
    cut: bool = False
    """The text is a part of the line."""


class LogMatches(msgspec.Struct, frozen=True):
    """Lines that match, from the end of the output backwards."""

    lines: list[LogLine]
    next_before: int
    """To go on, as `before`; 0: the output was searched to its beginning."""
    size_bytes: int
    """Of the whole output, now."""
    searched_bytes: int
    """By this request."""
