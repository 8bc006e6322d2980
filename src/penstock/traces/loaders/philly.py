"""Microsoft Philly: the job list that ships with Pollux, and the original `cluster_job_log` (JSON).

Sources of the formats: https://github.com/msr-fiddle/philly-traces (README), adaptdl branch osdi21-artifact
simulator/traces/philly.csv; nodes of virtual clusters: HeliosArtifact, philly_vc.csv. Jeon et al., ATC 2019.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.core.model.cluster import NodeSpec, Quota
from penstock.core.model.jobs import JobSpec
from penstock.formats.devices import GIB
from penstock.formats.files import from_json, lines_by_block, whole_file
from penstock.formats.numbers import RUN_MAX_MS, moment_ms
from penstock.traces.errors import TraceError, TracePlace
from penstock.traces.loaders.build import NO_END, NO_LENGTH, NO_START, QUEUES_MAX, Builder, device_quota
from penstock.traces.loaders.shapes import (
    DEVICES_MAX,
    NODES_MAX,
    PLAIN_NODE,
    WIDTH_MAX,
    NodeNames,
    devices_of,
    equal_nodes,
    gang,
)
from penstock.traces.loaders.table import TextTable, beside
from penstock.traces.model import Ending, Seen, Trace
from penstock.traces.nodes import NodeGroup

WIDTH, NODES = 8, 352
COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
QUOTA_FILES = ("philly_vc_nodes.csv", "philly_vc.csv")
MACHINE_FILES = ("cluster_machine_list", "cluster_machine_list.csv")
STATUS: dict[str, Ending] = {"Pass": "succeeded", "Killed": "cancelled", "Failed": "failed"}


def read(path: Path, given: Sequence[NodeGroup] = ()) -> Trace:
    """Return the jobs; each virtual cluster is a queue and a tenant, with its nodes as guarantee where known.

    `philly_vc_nodes.csv` (vc, node num) or `cluster_machine_list` are taken from the same folder when they are there.
    Raises: TraceError.
    """
    builder = Builder(path, given)
    if is_log(path):
        return _read_log(path, builder)
    table = TextTable(path)
    submit, duration, gpus, vc = table.columns(*COLUMNS)
    for row in table.rows():
        submit_ms, run_ms = table.moment_ms(row, submit), table.length_ms(row, duration)
        key = (table.whole(row, gpus, low=1, high=DEVICES_MAX), row[vc])
        builder.ran(str(table.line - 1), submit_ms, run_ms, key, _request)
    builder.note("jobs have no id in the source: they are named by their row; the source has no users")
    builder.note("times have no zone in the source: they count as UTC")
    return _finished(path, builder)


def _request(builder: Builder, key: tuple[int, str], retries: int = 0) -> JobSpec:
    return builder.request(gang(key[0], builder.width(WIDTH)), key[1], key[1], retries_max=retries)


def _finished(path: Path, builder: Builder) -> Trace:
    found = beside(path, QUOTA_FILES)
    nodes_of = _nodes_by_vc(found) if found else {}
    count = sum(nodes_of.values()) or NODES
    guaranteed: Mapping[str, Quota] = {vc: device_quota(WIDTH * nodes) for vc, nodes in nodes_of.items()}

    def own() -> tuple[NodeSpec, ...]:
        told = f"from {found.name}" if found else "as in Hu et al. 2021; no node list beside the file"
        builder.note(f"cluster: {count} nodes x {WIDTH} GPUs, {told}; the source has no GPU model")
        return equal_nodes(count, devices=WIDTH)

    nodes = builder.cluster(own)
    if found:
        without = {job.spec.queue for job in builder.jobs} - {builder.queues.of(vc) for vc in nodes_of}
        if without:
            builder.note(f"{len(without)} virtual clusters have jobs but no nodes of their own: no guarantee")
    return builder.trace(nodes, guaranteed)


def _nodes_by_vc(path: Path) -> dict[str, int]:
    table = TextTable(path)
    vc, count = table.columns("vc", "node num")
    total, found = 0, dict[str, int]()
    for row in table.rows():
        if row[vc] in found:
            raise table.wrong(row, vc, "each virtual cluster once")
        found[row[vc]] = table.whole(row, count, high=NODES_MAX)
        total += found[row[vc]]
        if total > NODES_MAX or len(found) > QUEUES_MAX:
            raise table.wrong(row, count, f"at most {NODES_MAX} nodes in all, of {QUEUES_MAX} virtual clusters")
    return found


# The original log.


class Detail(msgspec.Struct):
    """The devices of an attempt on one machine."""

    ip: str = ""
    gpus: list[str] = []


class LoggedAttempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[Detail] = []


class LoggedJob(msgspec.Struct):
    """One entry of `cluster_job_log`."""

    status: str
    vc: str
    jobid: str
    submitted_time: str
    attempts: list[LoggedAttempt] = []
    user: str | None = None


def is_log(path: Path) -> bool:
    """Return whether the file is JSON, by its first letter."""
    for lines in lines_by_block(path, TracePlace):
        for line in lines:
            if line.strip():
                return line.lstrip()[0] in "[{"
    return False


def _read_log(path: Path, builder: Builder) -> Trace:
    for at, job in enumerate(_logged(path)):
        try:
            _add(builder, job)
        except _BadEntryError as problem:
            place = f"[{at}].{problem.field}"
            raise TraceError(str(path), column=place, found=problem.found, expected=problem.expected) from None
    builder.note("times have no zone in the source: they count as UTC")
    builder.note("run time is that of the last attempt; earlier attempts failed after their run times, and are retried")
    machines = beside(path, MACHINE_FILES)
    if not machines:
        return _finished(path, builder)

    def own() -> tuple[NodeSpec, ...]:
        nodes = _machines(machines)
        builder.note(f"cluster: {len(nodes)} machines from {machines.name}; the source has no GPU model")
        return nodes

    return builder.trace(builder.cluster(own))


def _logged(path: Path) -> list[LoggedJob]:
    expected = "a JSON list of jobs with status, vc, jobid, submitted_time, attempts"
    hint = "of JSON files only the cluster_job_log of Philly is a trace"
    return from_json(whole_file(path, TracePlace), list[LoggedJob], TracePlace(str(path)), expected, hint=hint)


class _BadEntryError(Exception):
    def __init__(self, field: str, found: str, expected: str) -> None:
        super().__init__(field)
        self.field, self.found, self.expected = field, found, expected


def _add(builder: Builder, job: LoggedJob) -> None:
    if job.status not in STATUS:
        raise _BadEntryError("status", job.status, "one of " + ", ".join(STATUS))
    submit_ms = _moment(job.submitted_time, "submitted_time")
    spans = [_span(attempt) for attempt in job.attempts]
    devices = max((sum(len(d.gpus) for d in attempt.detail) for attempt in job.attempts), default=0)
    if devices > DEVICES_MAX:
        raise _BadEntryError("attempts", f"{devices} GPUs", f"at most {DEVICES_MAX} GPUs")
    known = [span for span in spans if span]
    if not devices or not spans:
        builder.count(NO_START)
    elif not known or spans[-1] is None:
        builder.count(NO_END)
    else:
        *failed, run_ms = (end - start for start, end in known)
        if not 0 < run_ms <= RUN_MAX_MS or max(failed, default=0) > RUN_MAX_MS:
            builder.count(NO_LENGTH)
            return
        key = (devices, job.vc)
        spec = builder.spec((*key, len(failed)), _request, builder, key, len(failed))
        work = builder.work(run_ms, STATUS[job.status])
        if failed:
            work = msgspec.structs.replace(work, fails_after_ms=tuple(failed))
        builder.add(job.jobid, submit_ms, spec, work, job.user or "", Seen(known[0][0], known[-1][1]))


def _span(attempt: LoggedAttempt) -> tuple[int, int] | None:
    times = (attempt.start_time, attempt.end_time)
    if None in times or "None" in times:
        return None
    start = _moment(attempt.start_time or "", "attempts.start_time")
    return start, max(start, _moment(attempt.end_time or "", "attempts.end_time"))


def _moment(text: str, field: str) -> int:
    try:
        return moment_ms(text)
    except ValueError:
        raise _BadEntryError(field, text, "a time such as 2017-10-09 07:01:55") from None


def _machines(path: Path) -> tuple[NodeSpec, ...]:
    """Return the nodes of a machine list: name, number of GPUs, memory of one (`24GB`)."""
    table = TextTable(path)
    name, gpus, memory = (
        table.columns(*table.names[:3])
        if len(table.names) == 3
        else table.columns("machineId", "number of GPUs", "single GPU mem")
    )
    names, found = NodeNames(), list[NodeSpec]()
    for row in table.rows():
        row = [cell.strip() for cell in row]
        count = table.whole(row, gpus, high=WIDTH_MAX)
        size = row[memory].removesuffix("GB")
        if not (size.isdigit() and size.isascii() and 0 < len(size) < 4):
            raise table.wrong(row, memory, "the memory of one GPU such as 24GB")
        if len(found) >= NODES_MAX:
            raise table.wrong(row, name, f"at most {NODES_MAX} machines")
        node = names.of(row[name])
        if node is None:
            raise table.wrong(row, name, "each machine once, with a name")
        found.append(NodeSpec(node, PLAIN_NODE, devices_of("", count, int(size) * GIB)))
    return tuple(found)
