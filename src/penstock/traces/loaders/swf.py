"""Standard Workload Format, version 2.2: the logs of the Parallel Workloads Archive. Processors are CPUs here.

Source of the format: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html. Feitelson, Tsafrir, Krakov 2014.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.core.config.ask import REPLICAS_MAX
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import JobSpec
from penstock.core.model.quantities import TIME_MAX_MS
from penstock.core.model.resources import Resources
from penstock.formats.files import lines_by_block
from penstock.formats.numbers import RUN_MAX_MS, number
from penstock.traces.errors import TraceError, TracePlace
from penstock.traces.loaders.build import JOBS_MAX, NO_LENGTH, NO_START, Builder
from penstock.traces.loaders.shapes import NODES_MAX, equal_nodes, processors, widest
from penstock.traces.model import Ending, Seen, Trace
from penstock.traces.nodes import NodeGroup

FIELDS = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip
STATUS: dict[int, Ending] = {-1: "succeeded", 0: "failed", 1: "succeeded", 5: "cancelled"}
PARTIAL = frozenset({2, 3, 4})
PROCESSORS_MAX = 10_000_000
HEADER_WORDS = {word.lower(): word for word in ("MaxNodes", "MaxProcs", "UnixStartTime")}
"""By the word as it is compared: without blanks and in small letters, for headers are written by hand."""
HEADER_WORD_MAX = 2**40


class SwfEntry(NamedTuple):
    """The fields of a row that are used; -1 is unknown."""

    number: int
    submit_ms: int
    wait_ms: int
    run_ms: int
    processors: int
    limit_ms: int
    status: int
    user: int
    group: int
    queue: int


def read(path: Path, given: Sequence[NodeGroup] = ()) -> Trace:
    """Return the jobs on the cluster of the header; allocated processors, or requested ones where these are unknown.

    Users, groups (tenants) and queues are numbers in this format and are named so. The requested time is the limit.
    Raises: TraceError.
    """
    builder, head = Builder(path, given), dict[str, int]()
    entries: list[SwfEntry] = []
    for entry in _entries(path, head):
        if _usable(entry, builder):
            entries.append(entry)
        if len(entries) > JOBS_MAX:
            raise builder.fault(f"at most {JOBS_MAX} jobs", "more")
    most = max((entry.processors for entry in entries), default=1)
    nodes = builder.cluster(lambda: _cluster(head, most, builder))
    width = max(widest(nodes).cpus, -(-most // REPLICAS_MAX))
    start_ms = 1000 * head.get("UnixStartTime", 0)
    limits_raised = 0
    for entry in entries:
        run_ms, limit_ms = entry.run_ms, max(0, entry.limit_ms)
        raised = 0 < limit_ms < run_ms
        limits_raised += raised
        key = (entry.processors, entry.queue, entry.group, run_ms if raised else limit_ms)
        spec = builder.spec(key, _request, builder, key, width)
        submit_ms = start_ms + entry.submit_ms
        started_ms = submit_ms + entry.wait_ms
        seen = Seen(started_ms, started_ms + run_ms) if entry.wait_ms >= 0 else None
        user = f"user-{entry.user}" if entry.user >= 0 else ""
        builder.add(str(entry.number), submit_ms, spec, builder.work(run_ms, STATUS[entry.status]), user, seen)
    if limits_raised:
        builder.note(f"{limits_raised} jobs ran longer than they asked for: their limit is raised to what they ran")
    builder.note("memory, executables, partitions and preceding jobs of the source are not used")
    return builder.trace(nodes)


def _entries(path: Path, head: dict[str, int]) -> Iterator[SwfEntry]:
    """Yield the jobs; `head` gets the numbers of the header comments."""
    line = 0
    for lines in lines_by_block(path, TracePlace):
        for text in lines:
            line += 1
            if text.lstrip().startswith(";"):
                _comment(text, head)
                continue
            fields = text.split()
            if not fields:
                continue
            if len(fields) != len(FIELDS):
                expected = f"the {len(FIELDS)} fields of a job, separated by spaces"
                raise TraceError(str(path), line=line, found=f"{len(fields)} fields", expected=expected)
            yield _entry(path, line, fields)


def _comment(text: str, head: dict[str, int]) -> None:
    said, _, value = text.lstrip("; \t").partition(":")
    word, digits = HEADER_WORDS.get("".join(said.split()).lower()), value.split()[:1]
    if word is None or not digits:
        return
    if digits[0].isdigit() and digits[0].isascii() and len(digits[0]) < 14 and int(digits[0]) < HEADER_WORD_MAX:
        head.setdefault(word, int(digits[0]))


def _entry(path: Path, line: int, fields: list[str]) -> SwfEntry:
    row: list[int] = []
    for at, text in enumerate(fields):
        try:
            value = int(text) if text.isascii() and len(text) < 16 and "_" not in text else None
        except ValueError:
            value = None
        if value is None:
            value = _fraction(path, line, at, text)
        row.append(value)
    for at, low, high in ((1, 0, TIME_MAX_MS // 1000), (2, -1, RUN_MAX_MS // 1000), (3, -1, RUN_MAX_MS // 1000)):
        if not low <= row[at] <= high:
            raise _wrong(path, line, at, fields[at], f"a number of seconds from {low}")
    if not -1 <= row[8] <= RUN_MAX_MS // 1000:
        raise _wrong(path, line, 8, fields[8], "a number of seconds, or -1")
    for at in (4, 7):
        if not -1 <= row[at] <= PROCESSORS_MAX:
            raise _wrong(path, line, at, fields[at], f"a number of processors up to {PROCESSORS_MAX}, or -1")
    if row[10] not in STATUS and row[10] not in PARTIAL:
        raise _wrong(path, line, 10, fields[10], "a status from -1 to 5")
    submit_ms, wait_ms, run_ms, limit_ms = (1000 * row[at] if row[at] >= 0 else -1 for at in (1, 2, 3, 8))
    processors = row[4] if row[4] > 0 else row[7]
    return SwfEntry(row[0], submit_ms, wait_ms, run_ms, processors, limit_ms, row[10], row[11], row[12], row[14])


def _fraction(path: Path, line: int, at: int, text: str) -> int:
    """Averages and some times are written with decimals; a second is exact enough there."""
    try:
        value = round(number(text))
    except ValueError:
        raise _wrong(path, line, at, text, "a number, or -1 for what is not known") from None
    if abs(value) >= 2**53:
        raise _wrong(path, line, at, text, "a number below 2^53")
    return value


def _wrong(path: Path, line: int, at: int, found: str, expected: str) -> TraceError:
    return TraceError(str(path), line=line, column=f"{at + 1} ({FIELDS[at]})", found=found, expected=expected)


def _usable(entry: SwfEntry, builder: Builder) -> bool:
    if entry.status in PARTIAL:
        builder.count("rows left out: they are parts of a job whose sum is a row of its own (status 2 to 4)")
    elif entry.run_ms < 0:
        builder.count(NO_START)
    elif entry.run_ms == 0:
        builder.count(NO_LENGTH)
    elif entry.processors <= 0:
        builder.count("jobs left out: the source has neither allocated nor requested processors")
    else:
        return True
    return False


def _cluster(head: dict[str, int], most: int, builder: Builder) -> tuple[NodeSpec, ...]:
    """Return the nodes of the header; `most` is the number of processors of the largest job."""
    total, told = _processors(head, most)
    nodes = head.get("MaxNodes", 0)
    width = max(1, -(-total // nodes)) if 0 < nodes <= total else 1
    least = max(-(-most // REPLICAS_MAX), -(-total // NODES_MAX))
    if width < least:
        told += f"; nodes are put together so that there are at most {NODES_MAX} and no job has over {REPLICAS_MAX}"
        width = least
    count = -(-total // width)
    builder.note(f"cluster: {count} nodes x {width} processors, {told}; processors count as CPUs")
    return equal_nodes(count, devices=0, capacity=Resources(1000 * width))


def _processors(head: dict[str, int], most: int) -> tuple[int, str]:
    """Return how many processors the cluster has, and by what.

    MaxProcs came with version 2.1 of the format, for nodes with several processors. Where it is missing MaxNodes counts
    single processors, as in the archive's logs of that time, unless a job had more.
    """
    total, nodes = head.get("MaxProcs", 0), head.get("MaxNodes", 0)
    if total >= most:
        return total, "from the header"
    largest = "as many processors as the largest job has"
    if total:
        return most, f"{largest}: the header's {total} are fewer"
    if nodes >= most:
        return nodes, "from MaxNodes; the header has no MaxProcs, so a node counts as one processor"
    if nodes:
        each = -(-most // nodes)
        return nodes * each, f"from MaxNodes; the header has no MaxProcs, and the largest job takes {each} of each node"
    return most, largest


def _request(builder: Builder, key: tuple[int, int, int, int], width: int) -> JobSpec:
    count, queue, group, limit_ms = key
    return builder.request(
        processors(count, width),
        f"queue-{queue}" if queue >= 0 else "",
        f"group-{group}" if group >= 0 else "",
        time_limit_ms=limit_ms,
    )
