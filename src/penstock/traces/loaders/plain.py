"""Penstock's own CSV: one job a line, for users with a trace of their own. The columns are in docs/traces.md.

Lines before the header that start with `#` describe the cluster; with them a written trace reads back unchanged.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.errors import nearest
from penstock.core.model.foreign import from_cell
from penstock.core.model.jobs import JobSpec
from penstock.traces.loaders.build import NO_LENGTH, Builder
from penstock.traces.loaders.guess import nodes_at_peak
from penstock.traces.loaders.plain_cells import COLUMNS, SPEC_COLUMNS, WORK_COLUMNS, read_spec, read_work
from penstock.traces.loaders.plain_head import Head, read_head
from penstock.traces.loaders.table import Row, TextTable
from penstock.traces.model import Seen, Trace, Work
from penstock.traces.nodes import NodeGroup

WIDTH = 8
"""Devices of a node when neither the file nor a job says otherwise."""


def read(path: Path, given: Sequence[NodeGroup] = ()) -> Trace:
    """Return the jobs of a file with at least the columns `submit` and `run`. Raises: TraceError."""
    table, builder = TextTable(path, comment="#"), Builder(path, given)
    head = read_head(path, table.comments)
    for name in table.names:
        if name not in COLUMNS:
            raise table.fault(name, name, "a column of the plain CSV", nearest(name, COLUMNS))
    table.columns("submit", "run")
    width = builder.width(max((len(node.devices) for node in head.nodes), default=0) or WIDTH)
    _Jobs(table, builder, head, width).read()
    return _finished(builder, head)


class _Jobs:
    """Reads the rows into the builder."""

    def __init__(self, table: TextTable, builder: Builder, head: Head, width: int) -> None:
        self._table, self._builder, self._head, self._width = table, builder, head, width
        self._at = {name: table.optional(name) for name in COLUMNS}
        self._spec_at = [self._at[name] for name in (*SPEC_COLUMNS, "spec")]
        self._work_at = [self._at[name] for name in WORK_COLUMNS]
        self._works: dict[tuple[str, ...], Work] = {}

    def read(self) -> None:
        table, submit = self._table, self._at["submit"]
        for row in table.rows():
            submit_ms = table.moment_ms(row, submit)
            work = self._work(row)
            key = self._cells(row, self._spec_at)
            spec = self._builder.spec(key, self._spec, key)
            name = from_cell(self._cell(row, "job")) or str(table.line)
            seen = self._seen(row)
            if work.run_ms <= 0:
                self._builder.count(NO_LENGTH)
            else:
                self._builder.add(name, submit_ms, spec, work, from_cell(self._cell(row, "user")), seen)

    def _cells(self, row: Row, at: list[int]) -> tuple[str, ...]:
        return tuple([row[i] if i >= 0 else "" for i in at])

    def _cell(self, row: Row, name: str) -> str:
        at = self._at[name]
        return row[at] if at >= 0 else ""

    def _work(self, row: Row) -> Work:
        key = self._cells(row, self._work_at)
        found = self._works.get(key)
        if found is None:
            found = self._works[key] = read_work(self._table, dict(zip(WORK_COLUMNS, map(from_cell, key), strict=True)))
        return found

    def _spec(self, key: tuple[str, ...]) -> JobSpec:
        cells = dict(zip((*SPEC_COLUMNS, "spec"), map(from_cell, key), strict=True))
        config = self._head.config
        if config is not None:
            return read_spec(self._table, cells, self._width, config)
        spec = read_spec(self._table, cells, self._width, None)
        named = self._builder.request(spec.ask, spec.queue, spec.tenant)
        return msgspec.structs.replace(spec, queue=named.queue, tenant=named.tenant)

    def _seen(self, row: Row) -> Seen | None:
        if not self._cell(row, "started"):
            return None
        table = self._table
        ended = self._at["ended"]
        ended_ms = table.moment_ms(row, ended) if ended >= 0 and row[ended] else 0
        return Seen(table.moment_ms(row, self._at["started"]), ended_ms)


def _finished(builder: Builder, head: Head) -> Trace:
    trace = builder.trace(builder.cluster(lambda: _nodes(builder, head), {spec.pool for spec in head.nodes}))
    if builder.given:
        head.outages, head.changes = (), tuple(change for change in head.changes if change.config is not None)
    return msgspec.structs.replace(
        trace,
        name=trace.name if head.name is None else head.name,
        config=trace.config if head.config is None else head.config,
        outages=head.outages,
        changes=head.changes,
        notes=(*head.notes, *trace.notes),
    )


def _nodes(builder: Builder, head: Head) -> tuple[NodeSpec, ...]:
    if head.nodes:
        return head.nodes
    nodes = nodes_at_peak(builder)
    builder.note(
        f"cluster: {len(nodes)} nodes, as many as would hold every job from its submit on; "
        "say another with --nodes, or with a line such as `# nodes=16 devices=8 model=V100` before the header"
    )
    return nodes
