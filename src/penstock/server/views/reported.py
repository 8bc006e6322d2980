"""Curves of the numbers that a job's programs report, from pieces of their report files.

The files are the programs': whatever is in them, an answer reads and keeps a bounded part of it, and passes over what
is no report. Nothing here opens a file.
"""

import math
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.api.jobs import ReportedLine, ReportedList, ReportedMetric
from penstock.core.model.pieces import even_pieces, whole_lines
from penstock.server.views.story import POINTS_MAX, RANKS_MAX

READ_MAX_BYTES = 2 << 20
"""Of all attempts together. Of longer reports evenly spread pieces are read."""
PIECE_BYTES = 16_384
ATTEMPTS_MAX = 8
"""Attempts that are shown: the latest."""
METRICS_MAX = 32
FIRST = "loss"
"""Has a place among the metrics whatever else a program reports."""
FIXED = frozenset({"time_ms", "kind", "step", "total", "not_finite", "rank"})
"""Fields of a line that are no metric."""
OF_THE_LOG = frozenset({"data_wait", "communication", "memory_bytes", "queue_length"})
"""Numbers that the log has over time: `GET /jobs/{job_id}/series`."""
NAMES_KEPT = 1_024
"""Names whose verdict is remembered, so that a line of many bad ones is cheap."""
NUMBER_MAX = 2**53
DIGITS = 7
"""Of a value: more cannot be seen."""
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,64}", re.ASCII)
_decode = msgspec.json.Decoder(dict[str, Any]).decode

ReadReport = Callable[[int, int, int], tuple[int, bytes] | None]
"""Of an attempt, from an offset up to so many bytes: (bytes of the whole report, the piece); None: there is none."""


class _Numbers(NamedTuple):
    """What one attempt reported of one metric, in the order written."""

    steps: "array[int]"
    times_ms: "array[int]"
    values: "array[float]"
    """NaN where it was not finite."""


Numbers = dict[str, _Numbers]


class _Names:
    """Names of metrics that are shown: the first met, and `loss`."""

    def __init__(self) -> None:
        self.chosen = {FIRST}
        self.left_out = False
        self._verdicts: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        known = self._verdicts.get(name)
        if known is None:
            known = self._judged(name)
            if len(self._verdicts) < NAMES_KEPT:
                self._verdicts[name] = known
        return known

    def _judged(self, name: str) -> bool:
        if name in self.chosen:
            return True
        if name in FIXED or name in OF_THE_LOG or _NAME.fullmatch(name) is None:
            return False
        if len(self.chosen) == METRICS_MAX:
            self.left_out = True
            return False
        self.chosen.add(name)
        return True


def reported(job_id: int, rank: int, outputs: Sequence[tuple[int, int, int]], read: ReadReport) -> ReportedList:
    """Return the curves of what one rank of a job reports, attempts apart.

    Args:
        outputs: (attempt, rank, bytes) of each output of the job, in order.
        read: reads reports of that rank.
    """
    ranks = sorted({one for _, one, _ in outputs})
    attempts = [attempt for attempt, one, _ in outputs if one == rank]
    sizes = {}
    for attempt in attempts[-ATTEMPTS_MAX:]:
        found = read(attempt, 0, 0)
        sizes[attempt] = found[0] if found is not None else 0
    names, by_attempt, read_bytes = _Names(), dict[int, Numbers](), 0
    for attempt, most in reversed(_shares(sizes).items()):
        numbers: Numbers = {}
        for data in _pieces(attempt, sizes[attempt], most, read):
            read_bytes += len(data)
            for line in data.split(b"\n"):
                if line.startswith(b"{"):
                    _take(line, numbers, names)
        by_attempt[attempt] = numbers
    shown = dict(reversed(by_attempt.items()))
    order = dict.fromkeys([FIRST, *(name for numbers in by_attempt.values() for name in numbers)])
    return ReportedList(
        job_id,
        rank,
        ranks[:RANKS_MAX],
        list(shown),
        [_metric(name, shown) for name in order if any(name in numbers for numbers in shown.values())],
        size_bytes=sum(sizes.values()),
        read_bytes=read_bytes,
        attempts_left_out=len(attempts) - len(shown),
        metrics_left_out=names.left_out,
    )


def _shares(sizes: Mapping[int, int]) -> dict[int, int]:
    """Return how many bytes of each report are read: what short ones leave goes to longer ones."""
    left, shares = READ_MAX_BYTES, dict[int, int]()
    by_size = sorted(sizes, key=lambda attempt: sizes[attempt])
    for at, attempt in enumerate(by_size):
        shares[attempt] = min(sizes[attempt], left // (len(by_size) - at))
        left -= shares[attempt]
    return {attempt: shares[attempt] for attempt in sizes}


def _pieces(attempt: int, size: int, most: int, read: ReadReport) -> Iterator[bytes]:
    """Yield the whole lines of each piece of a report, up to `most` bytes of them."""
    for offset, length in even_pieces(size, most, PIECE_BYTES):
        found = read(attempt, offset, length)
        if found is not None:
            yield whole_lines(found[1][:length], from_start=offset == 0)


def _take(line: bytes, numbers: Numbers, names: _Names) -> None:
    """Note the numbers of a line; of one that is no report, nothing."""
    try:
        report = _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return
    step, time_ms = report.get("step"), report.get("time_ms")
    if report.get("kind") != "progress" or type(step) is not int or not 0 <= step <= NUMBER_MAX:
        return
    if type(time_ms) is not int or not 0 <= time_ms <= NUMBER_MAX:
        time_ms = 0
    strange = report.get("not_finite")
    not_finite = {name for name in strange if type(name) is str} if type(strange) is list else ()
    for name, value in report.items():
        if value is None:
            if name not in not_finite:
                continue
            value = math.nan
        elif type(value) is int:
            if not -NUMBER_MAX <= value <= NUMBER_MAX:
                continue
        elif type(value) is not float:
            continue
        if not names.has(name):
            continue
        known = numbers.get(name)
        if known is None:
            known = numbers[name] = _Numbers(array("q"), array("q"), array("d"))
        known.steps.append(step)
        known.times_ms.append(time_ms)
        known.values.append(value)


def _metric(name: str, by_attempt: Mapping[int, Numbers]) -> ReportedMetric:
    of_attempts = {attempt: numbers[name] for attempt, numbers in by_attempt.items() if name in numbers}
    count = sum(len(numbers.values) for numbers in of_attempts.values())
    lines = []
    for attempt, numbers in of_attempts.items():
        own = len(numbers.values)
        # One point is left for each attempt, so that the shares, rounded up to 1, add up to POINTS_MAX at most.
        most = own if count <= POINTS_MAX else max(1, (POINTS_MAX - ATTEMPTS_MAX) * own // count)
        lines.append(_line(attempt, numbers, most))
    finite = [value for numbers in of_attempts.values() for value in numbers.values if math.isfinite(value)]
    ends = (finite[-1], min(finite), max(finite)) if finite else (None, None, None)
    return ReportedMetric(name, lines, *ends)


def _line(attempt: int, numbers: _Numbers, most: int) -> ReportedLine:
    """Return the curve of one attempt: a point for each of `most` parts of equal numbers of reports."""
    line = ReportedLine(attempt, [], [], [], [])
    count = len(numbers.values)
    parts = min(most, count)
    for i in range(parts):
        begin, end = i * count // parts, (i + 1) * count // parts
        finite = [value for value in numbers.values[begin:end] if math.isfinite(value)]
        line.steps.append(numbers.steps[end - 1])
        line.times_ms.append(numbers.times_ms[end - 1])
        line.values.append(_mean(finite) if finite else None)
        line.not_finite.append(end - begin - len(finite))
    return line


def _mean(values: Sequence[float]) -> float:
    """Return the mean; parts are divided first, as a sum of large numbers may be infinite."""
    return float(f"{sum(value / len(values) for value in values):.{DIGITS}g}")
