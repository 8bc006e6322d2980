"""Writes any trace as plain CSV, so that reading it gives the same trace again."""

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.core.model.cluster import DEFAULT_QUEUE, DEFAULT_TENANT, ClusterConfig
from penstock.core.model.foreign import in_cell
from penstock.core.model.jobs import PRIORITY_CLASSES, JobSpec
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, Resources
from penstock.formats.files import LINE_BYTES_MAX
from penstock.traces.errors import TraceError
from penstock.traces.loaders.build import printable
from penstock.traces.loaders.plain import WIDTH
from penstock.traces.loaders.plain_cells import COLUMNS, SPEC_COLUMNS, read_spec, read_work
from penstock.traces.loaders.plain_head import MORE
from penstock.traces.model import Trace, Work

PIECE_CHARACTERS = LINE_BYTES_MAX // 5
"""Of a long comment; a character has at most four bytes."""


def write_csv(trace: Trace, path: Path) -> None:
    """Write a trace as plain CSV, packed when the name ends in `.gz`; `load(path, "csv")` returns an equal trace.

    Raises: TraceError when the file cannot be written, or when a text of the trace does not fit on a line.
    """
    try:
        raw = _text(trace, _Place(path)).encode()
        path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    except (OSError, ValueError, msgspec.MsgspecError) as problem:
        raise TraceError(str(path), found=str(problem), expected="a trace and a file that can be written") from None


class _Place:
    """Names the job whose cell cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path, self.job = path, ""

    def fault(self, column: str, found: str, expected: str, hint: str = "") -> TraceError:
        """Return an error about a cell of the present job."""
        hint = hint or f"job '{self.job}' cannot be written as CSV"
        return TraceError(str(self._path), column=column, found=found, expected=expected, hint=hint)


def _text(trace: Trace, place: _Place) -> str:
    text = io.StringIO()
    for line in _head(trace):
        text.write(line + "\n")
    rows = list(_rows(trace, place))
    columns = [name for name in COLUMNS if name in ("job", "submit", "run") or any(row.get(name) for row in rows)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([in_cell(row.get(column, "")) for column in columns] for row in rows)
    return text.getvalue()


def _rows(trace: Trace, place: _Place) -> Iterator[dict[str, str]]:
    width = max((len(node.devices) for node in trace.nodes), default=0) or WIDTH
    specs: dict[JobSpec, dict[str, str]] = {}
    works: dict[Work, dict[str, str]] = {}
    for job in trace.jobs:
        place.job = job.name
        if job.spec not in specs:
            specs[job.spec] = _spec_cells(job.spec, width, trace.config, place)
        if job.work not in works:
            works[job.work] = _work_cells(job.work, place)
        row = {
            "job": job.name,
            "submit": seconds(job.submit_ms),
            "user": job.user,
            **works[job.work],
            **specs[job.spec],
        }
        if job.seen is not None:
            row["started"], row["ended"] = seconds(job.seen.started_ms), seconds(job.seen.ended_ms)
        for column in ("job", "user"):
            if printable(row[column]) != row[column] or (column == "job" and not row[column]):
                raise place.fault(column, row[column], "a short text on one line")
        if sum(map(len, row.values())) > PIECE_CHARACTERS:
            raise place.fault("", f"{sum(map(len, row.values()))} characters", f"at most {PIECE_CHARACTERS} a job")
        yield row


def seconds(value_ms: int) -> str:
    """Return seconds, with three decimals where they are no whole ones."""
    whole, rest = divmod(value_ms, 1000)
    return f"{whole}.{rest:03}" if rest else str(whole)


def _work_cells(work: Work, place: _Place) -> dict[str, str]:
    cells = {
        "run": seconds(work.run_ms),
        "ends": "" if work.ends == "succeeded" else work.ends,
        "speeds": ";".join(f"{model}={speed}" for model, speed in work.speeds),
        "scaling": ";".join(f"{size}={speed}" for size, speed in work.scaling),
        "saves": "yes" if work.saves else "",
        "fails": ";".join(map(seconds, work.fails_after_ms)),
        "use": _use(work),
    }
    if read_work(place, cells) != replace(work, trains=None):  # what was measured is no cell: its scaling stays
        raise place.fault("speeds", cells["speeds"], "models without ';', and amounts from 0")
    return cells


def _use(work: Work) -> str:
    if work.busy_milli is None:
        return ""
    return f"busy={work.busy_milli};mib={work.device_memory_bytes >> 20};beside={work.beside_milli}"


def _spec_cells(spec: JobSpec, width: int, config: ClusterConfig, place: _Place) -> dict[str, str]:
    """Return the cells of a spec: by columns when these give it back, else the whole of it as JSON."""
    ask, each = spec.ask, spec.ask.each
    share = each.devices.share_milli if each.devices else WHOLE_DEVICE_MILLI
    shared = {
        "name": spec.name,
        "model": "|".join(each.devices.models) if each.devices else "",
        "tenant": spec.tenant if spec.tenant != DEFAULT_TENANT else "",
        "queue": spec.queue if spec.queue != DEFAULT_QUEUE else "",
        "priority": str(spec.priority) if spec.priority != PRIORITY_CLASSES["medium"] else "",
        "limit": seconds(spec.time_limit_ms) if spec.time_limit_ms else "",
        "retries": str(spec.retries_max or ""),
        "shareable": "yes" if spec.shareable else "",
    }
    whole = {**shared, "devices": str(ask.device_total or ""), **_host_cells(ask.host_total)}
    count = seconds(share) if share < WHOLE_DEVICE_MILLI else str(each.device_count or "")
    several = {**shared, "devices": count, "replicas": str(ask.replicas), **_host_cells(each.host)}
    if ask.replicas_max:
        several["replicas_max"] = str(ask.replicas_max)
    for cells in (whole, several):
        cells = {column: cells.get(column, "") for column in (*SPEC_COLUMNS, "spec")}
        try:
            if read_spec(place, cells, width, config) == spec:
                return cells
        except TraceError:
            continue
    cells = {**dict.fromkeys(SPEC_COLUMNS, ""), "spec": msgspec.json.encode(spec).decode()}
    if read_spec(place, cells, width, config) != spec:
        raise place.fault("spec", cells["spec"], "a spec that JSON gives back")
    return cells


def _host_cells(host: Resources) -> dict[str, str]:
    return {
        "cpus": seconds(host.cpu_milli) if host.cpu_milli else "",
        "memory": str(host.memory_bytes) if host.memory_bytes else "",
    }


def _head(trace: Trace) -> Iterator[str]:
    yield from _comment("name", trace.name)
    yield from _comment("config", trace.config)
    for node in trace.nodes:
        yield from _comment("node", node)
    for outage in trace.outages:
        yield from _comment("outage", outage)
    for change in trace.changes:
        yield from _comment("change", change)
    for note in trace.notes:
        yield from _comment("note", note)


def _comment(word: str, value: object) -> Iterator[str]:
    text = f"# {word}: {msgspec.json.encode(value).decode()}"
    yield text[:PIECE_CHARACTERS]
    for at in range(PIECE_CHARACTERS, len(text), PIECE_CHARACTERS):
        yield MORE + text[at : at + PIECE_CHARACTERS]
