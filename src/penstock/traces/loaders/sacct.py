"""Slurm accounting: `sacct -P` (or `--parsable2`), any columns that include JobID, Submit, Start, End.

Source of the format: https://slurm.schedmd.com/sacct.html.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.errors import nearest
from penstock.core.model.jobs import GangAsk, GroupAsk, JobSpec
from penstock.formats.numbers import RUN_MAX_MS, within
from penstock.formats.slurm import limit_ms, time_ms
from penstock.traces.loaders.build import ENDINGS, JOBS_MAX, NO_END, NO_LENGTH, NO_START, Builder
from penstock.traces.loaders.guess import nodes_at_peak
from penstock.traces.loaders.sacct_header import (
    COMMAND,
    IDENTITIES,
    NO_HEADER,
    OTHER_COLUMNS,
    REQUIRED,
    UNKNOWN,
    hint_for,
    read_header,
)
from penstock.traces.loaders.slurm_amounts import SHAPE_COLUMNS, Key, ask_of
from penstock.traces.loaders.table import Row, TextTable
from penstock.traces.model import Ending, Seen, Trace
from penstock.traces.nodes import NodeGroup

PRIORITY_MAX = 10_000
PRIORITY_READ_MAX = 2**40
COMPONENTS_MAX = 64
"""Parts of one heterogeneous job."""

SHARES = ("shard", "mps")
"""Generic resources that are parts of devices."""
ENDED: dict[str, Ending] = {
    **ENDINGS,
    "SPECIAL_EXIT": "failed",
    "LAUNCH_FAILED": "failed",
    "RECONFIG_FAIL": "failed",
}
FOLLOWED = frozenset({"REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESIZING"})
LIVE = frozenset({
    "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "RESV_DEL_HOLD", "SIGNALING", "STAGE_OUT", "STOPPED"
})  # fmt: skip
CUT_OFF = frozenset({"PREEMPTED", "NODE_FAIL"})
"""Such a run may be followed by another of the same job (`sacct -D`); where none follows, it was the last."""
NO_LIMIT = frozenset({"", "Partition_Limit", "INVALID", "Unknown", "None"})
STEPS = "rows left out: they are steps of jobs"
REQUEUED = "rows left out: the job was put back or resized, the run that followed is a row of its own"
OVER_LIMIT = "jobs succeeded after more time than their limit: it is raised to what they ran"
SHARED = "jobs had parts of devices (gres/shard, gres/mps), which are not kept: they count as jobs without devices"


class SacctRun(NamedTuple):
    """One row that can be used, with the further components of its job."""

    name: str
    submit_ms: int
    start_ms: int
    end_ms: int
    run_ms: int
    ends: Ending
    cut_off: bool
    parts: tuple[str, ...]
    """Numbers of its components; one empty text where the job has none."""
    keys: tuple[Key, ...]
    """Of each component, the cells that define its shape."""
    limit_ms: int
    priority: int
    user: str
    words: tuple[str, str, str]
    """Account, partition and quality of service."""


def read(path: Path, given: Sequence[NodeGroup] = ()) -> Trace:
    """Return the jobs that started and ended: account is the tenant, partition the queue, quality of service a label.

    Components of a heterogeneous job are groups of one gang. The cluster is as large as the peak of concurrent use.
    Raises: TraceError.
    """
    builder = Builder(path, given)
    sheet = _Sheet(path, builder)
    runs = sheet.runs()
    top = max((run.priority for run in runs), default=0)
    for run in runs:
        priority = run.priority if top <= PRIORITY_MAX else run.priority * PRIORITY_MAX // top
        key = (run.keys, run.limit_ms, priority, run.words)
        spec = builder.spec(key, sheet.request, run, priority)
        seen = Seen(run.start_ms, run.end_ms)
        builder.add(run.name, run.submit_ms, spec, builder.work(run.run_ms, run.ends), run.user, seen)
    if top > PRIORITY_MAX:
        builder.note(f"priorities are scaled: {top} in the source is {PRIORITY_MAX} here")
    builder.note("times without a zone count as UTC")
    if not sheet.has("State"):
        builder.note("the source has no column State: every job counts as succeeded")
    return builder.trace(builder.cluster(lambda: _nodes(builder)))


def _nodes(builder: Builder) -> tuple[NodeSpec, ...]:
    nodes = nodes_at_peak(builder)
    devices = sum(len(node.devices) for node in nodes)
    builder.note(
        f"cluster: {len(nodes)} nodes with {devices} devices hold what ran at once at the peak; the source has none"
    )
    return nodes


class _Sheet:
    """The table, and where its columns are."""

    def __init__(self, path: Path, builder: Builder) -> None:
        self._table, self._builder = TextTable(path, separator="|", header=read_header), builder
        table = self._table
        if table.headless:
            builder.note(NO_HEADER)
        identity = next((name for name in IDENTITIES if table.optional(name) >= 0), IDENTITIES[0])
        for name in (identity, *REQUIRED):
            if table.optional(name) < 0:
                hint = hint_for(table.first) or f"bring the output of {COMMAND}"
                raise table.fault("", table.first, f"a column '{name}' in the header", hint)
        self._job, self._submit, self._start, self._end = table.columns(identity, *REQUIRED)
        self._elapsed = max(self._table.optional("Elapsed"), self._table.optional("ElapsedRaw"))
        self._shape = [self._table.optional(name) for name in SHAPE_COLUMNS]
        self._at = {name: self._table.optional(name) for name in OTHER_COLUMNS}
        self._limits: dict[str, int] = {}
        self._asks: dict[Key, GangAsk] = {}

    def has(self, column: str) -> bool:
        """Return whether the source has one of `OTHER_COLUMNS`."""
        return self._at[column] >= 0

    def runs(self) -> list[SacctRun]:
        """Return of each job the last run that can be used; its components are joined to the first of them."""
        found: list[SacctRun] = []
        at_of: dict[tuple[str, str], int] = {}  # places of runs that a later row may join or follow
        for row in self._table.rows():
            run = self._run(row)
            if run is None:
                continue
            key = (self._cell(row, "Cluster"), run.name)
            at = at_of.get(key)
            if at is not None and run.parts[0] not in found[at].parts:
                first = found[at]
                if len(first.parts) >= COMPONENTS_MAX:
                    raise self._table.wrong(row, self._job, f"at most {COMPONENTS_MAX} components of a job")
                found[at] = first._replace(parts=first.parts + run.parts, keys=first.keys + run.keys)
            elif at is not None and found[at].cut_off:
                self._builder.count(REQUEUED)
                found[at] = run
            else:
                if run.cut_off or run.parts[0]:
                    at_of[key] = len(found)
                found.append(run)
                if len(found) > JOBS_MAX:
                    raise self._table.fault("", "more", f"at most {JOBS_MAX} jobs")
        return found

    def _run(self, row: Row) -> SacctRun | None:
        table, name = self._table, row[self._job]
        if "." in name:
            self._builder.count(STEPS)
            return None
        submit_ms = table.moment_ms(row, self._submit)
        ends = self._ending(row)
        if ends is None:
            return None
        start_ms, end_ms = table.moment_ms(row, self._start), table.moment_ms(row, self._end)
        run_ms = end_ms - start_ms if self._elapsed < 0 else self._length(row)
        if run_ms <= 0:
            self._builder.count(NO_LENGTH)
            return None
        limit_ms = self._limit(row)
        if ends == "succeeded" and 0 < limit_ms < run_ms:  # Slurm checks limits now and then, and may grant more
            self._builder.count(OVER_LIMIT)
            limit_ms = run_ms
        base, _, part = name.partition("+")
        return SacctRun(
            base, submit_ms, start_ms, end_ms, run_ms, ends, self._state(row) in CUT_OFF, (part,), (self._key(row),),
            limit_ms, self._priority(row), self._cell(row, "User"),
            (self._cell(row, "Account"), self._cell(row, "Partition"), self._cell(row, "QOS")),
        )  # fmt: skip

    def _ending(self, row: Row) -> Ending | None:
        """Return how the job ended; None, counted, when it has not started or not ended."""
        started, ended = row[self._start] not in UNKNOWN, row[self._end] not in UNKNOWN
        word = self._state(row)
        if word in FOLLOWED:
            self._builder.count(REQUEUED)
        elif word not in ENDED and word not in LIVE:
            known = {*ENDED, *LIVE, *FOLLOWED}
            raise self._table.wrong(row, self._at["State"], "a state of a Slurm job", nearest(word, known))
        elif not started or word == "PENDING":
            self._builder.count(NO_START)
        elif not ended or word in LIVE:
            self._builder.count(NO_END)
        else:
            return ENDED[word]
        return None

    def _state(self, row: Row) -> str:
        """Return the word of the state, without the user who cancelled it."""
        return self._cell(row, "State").split(" ")[0] or "COMPLETED"

    def _cell(self, row: Row, column: str) -> str:
        at = self._at[column]
        return row[at] if at >= 0 else ""

    def _key(self, row: Row) -> Key:
        key = tuple(row[at] if at >= 0 else "" for at in self._shape)
        if key not in self._asks:
            self._asks[key] = ask_of(self._table, key)
        if not self._asks[key].device_milli and any(word in cell for cell in key[:4] for word in SHARES):
            self._builder.count(SHARED)
        return key

    def _length(self, row: Row) -> int:
        try:
            return within(time_ms(row[self._elapsed], bare_ms=1000), 0, RUN_MAX_MS)
        except ValueError:
            raise self._table.wrong(row, self._elapsed, "a length such as 1-02:03:04, or seconds") from None

    def _limit(self, row: Row) -> int:
        at = self._at["Timelimit"] if self._at["Timelimit"] >= 0 else self._at["TimelimitRaw"]
        if at < 0:
            return 0
        if row[at] not in self._limits:
            try:
                self._limits[row[at]] = 0 if row[at] in NO_LIMIT else min(limit_ms(row[at]), RUN_MAX_MS)
            except ValueError:
                expected = "a length such as 1-02:03:04, minutes, UNLIMITED or Partition_Limit"
                raise self._table.wrong(row, at, expected) from None
        return self._limits[row[at]]

    def _priority(self, row: Row) -> int:
        at = self._at["Priority"]
        return self._table.whole(row, at, high=PRIORITY_READ_MAX) if at >= 0 and row[at] else 500

    def request(self, run: SacctRun, priority: int) -> JobSpec:
        """Return the spec of a run: its components are groups of one gang."""
        ask, *more = (self._asks[key] for key in run.keys)
        for part in more:
            groups = (GroupAsk(part.replicas, part.each), *part.others)
            ask = msgspec.structs.replace(ask, others=(*ask.others, *groups))
        account, partition, quality = run.words
        return self._builder.request(
            ask, partition, account, priority=priority, time_limit_ms=run.limit_ms, label=("qos", quality)
        )
