"""Answers that look back: timelines of allocations, and series over time."""

import msgspec


class AllocationView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One bar: what an attempt held on one node in [start_ms, end_ms) (unix ms).

    Of jobs that the caller does not see only node, devices and times are given, with `held`.
    """

    row: int
    """Its place in `rows`, from 0."""
    node: str
    start_ms: int
    end_ms: int | None
    """None while it lasts."""
    devices: list[int]
    """Their indexes on the node."""
    held_devices: float
    """A part of a device counts as its part."""
    job: int = 0
    attempt: int = 0
    name: str = ""
    tenant: str = ""
    user: str = ""
    outcome: str = ""
    """How the attempt ended; empty until it has ended on all its nodes."""
    held: bool = False


class TimelineRow(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    """Name of the node, tenant or user, or number of the job."""
    bars: int
    devices: int = 0
    """Of a node, as it is now."""
    density: list[float] = []
    """Devices held on average in equal parts of the window, where bars were merged."""


class TimelineView(msgspec.Struct, frozen=True):
    """Allocations that overlap [from_ms, until_ms): the window that was asked for, widened to a grid."""

    from_ms: int
    until_ms: int
    by: str
    rows: list[TimelineRow]
    bars: list[AllocationView]
    """By row, then by start; empty where there are too many: then `merged`, and rows have `density`."""
    merged: bool
    bars_total: int
    """On this page of rows."""
    next_cursor: str
    """Empty on the last page."""
    seq: int
    """The last record that was read."""
    complete: bool
    """False while a server that has just started still reads the log: later records are missing."""
    since_ms: int
    """Allocations that ended before may be missing; 0: none are."""


class ToldEta(msgspec.Struct, frozen=True):
    """An estimate of a start: 1, 5 and 9 of 10 starts should come before these times (unix ms; 0: unknown)."""

    made_ms: int
    early_ms: int
    likely_ms: int
    late_ms: int


class JobEta(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a job starts; of one that has started, how right the estimates of that start were."""

    job: int
    state: str
    text: str
    """For people."""
    now: ToldEta | None = None
    """The present estimate of a job that waits."""
    first: ToldEta | None = None
    """The first that was noted in the log since it began to wait."""
    last: ToldEta | None = None
    """The last one."""
    started_ms: int = 0
    """When it really started; 0: it waits, or nothing was estimated."""
    off_ms: int = 0
    """By how much it started later than the likely time of the last estimate; negative: sooner."""
    in_interval: bool | None = None
    """Whether the start came between the early and the late time of the last estimate."""


class SeriesView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One course over time, a point for each step; None where nothing is known, and ahead."""

    name: str
    unit: str
    """`devices`, `jobs`, `events` or `ms`."""
    values: list[float | None]
    """Means over each step; of events how many there were in it."""
    lowest: list[float | None] = []
    """In each step; empty for what is no level, or is added up from several tenants."""
    highest: list[float | None] = []
    labels: dict[str, str] = {}
    """`model` or `reason`; empty for all together."""


class SeriesList(msgspec.Struct, frozen=True):
    """Series over [from_ms, from_ms + points * step_ms)."""

    from_ms: int
    step_ms: int
    points: int
    series: list[SeriesView]
    left_out: int
    """Series beyond the most that one answer has."""
    seq: int
    """The last record that was read."""
    complete: bool
    """False while a server that has just started still reads the log: the newest records are missing."""
    since_ms: int
    """What was before is not known at this step."""
