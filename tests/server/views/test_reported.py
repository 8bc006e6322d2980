"""Curves of what programs report: the numbers as they are, in bounded work whatever is in the files."""

import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.jobs import ReportedList
from penstock.core.model.pieces import even_pieces, whole_lines
from penstock.server.views import reported as view
from penstock.server.views.reported import METRICS_MAX, reported
from penstock.server.views.story import POINTS_MAX
from penstock.training.reports import encode_line


def line(step: int, **numbers: Any) -> bytes:
    return encode_line({"time_ms": 1000 * step, "kind": "progress", "step": step, **numbers, "rank": 0})


def curves(*reports: bytes, rank: int = 0) -> ReportedList:
    """Return the curves of attempts 1, 2, ... with these reports."""
    asked = []

    def read(attempt: int, offset: int, limit: int) -> tuple[int, bytes]:
        data = reports[attempt - 1]
        asked.append(limit)
        return len(data), data[offset : offset + limit]

    found = reported(7, rank, [(attempt, rank, 5) for attempt in range(1, len(reports) + 1)], read)
    assert found.read_bytes <= sum(asked) <= view.READ_MAX_BYTES
    return found


def test_each_report_is_a_point_and_the_loss_is_first():
    found = curves(line(1, accuracy=0.5, loss=2.0, samples_per_s=64) + line(2, loss=1.5, accuracy=0.75))
    assert [one.name for one in found.metrics] == ["loss", "accuracy", "samples_per_s"]
    (loss,) = found.metrics[0].lines
    assert (loss.steps, loss.times_ms, loss.values, loss.not_finite) == ([1, 2], [1000, 2000], [2.0, 1.5], [0, 0])
    assert (found.metrics[0].last, found.metrics[0].lowest, found.metrics[0].highest) == (1.5, 1.5, 2.0)
    assert (found.ranks, found.attempts, found.read_bytes) == ([0], [1], found.size_bytes)


def test_attempts_are_apart_and_the_latest_are_kept():
    reports = [line(step, loss=step / 10) + line(step + 1, loss=0.5) for step in range(1, view.ATTEMPTS_MAX + 3)]
    found = curves(*reports)
    assert (found.attempts, found.attempts_left_out) == (list(range(3, len(reports) + 1)), 2)
    assert next((one.attempt, one.steps) for one in found.metrics[0].lines) == (3, [3, 4])
    assert found.metrics[0].last == 0.5


def test_a_point_for_many_reports_has_the_mean_of_the_finite_ones_and_counts_the_others():
    steps = range(1, 4 * POINTS_MAX + 1)
    numbers = {7: math.nan, 8: math.inf}
    found = curves(b"".join(line(step, loss=numbers.get(step, 1.0 if step % 2 else 3.0)) for step in steps))
    (loss,) = found.metrics[0].lines
    assert len(loss.steps) <= POINTS_MAX
    assert loss.steps == sorted(set(loss.steps))
    assert (loss.steps[-1], sum(loss.not_finite)) == (steps[-1], 2)
    whole = [value for value, strange in zip(loss.values, loss.not_finite, strict=True) if not strange]
    assert 1.9 < sum(whole) / len(whole) < 2.1
    assert (found.metrics[0].lowest, found.metrics[0].highest) == (1, 3)


def test_reports_that_are_all_strange_are_a_gap():
    found = curves(line(1, loss=math.nan) + line(2, loss=2) + line(3, loss=-math.inf))
    assert (found.metrics[0].lines[0].values, found.metrics[0].last) == ([None, 2, None], 2)


def test_large_numbers_have_a_mean():
    found = curves(b"".join(line(step, loss=1.7e308) for step in range(3 * POINTS_MAX)))
    assert set(found.metrics[0].lines[0].values) == {1.7e308}


@pytest.fixture
def little(monkeypatch):
    """Let an answer read a sixteenth of what it may."""
    monkeypatch.setattr(view, "READ_MAX_BYTES", view.READ_MAX_BYTES // 16)
    return view.READ_MAX_BYTES


def test_a_long_report_is_read_in_pieces_from_its_beginning_to_its_end(little):
    count = 3 * little // len(line(10_000, loss=0.125))
    found = curves(b"".join(line(step, loss=0.125) for step in range(count)))
    (loss,) = found.metrics[0].lines
    assert little * 0.9 < found.read_bytes < found.size_bytes / 2
    assert (loss.steps[0] < count / 100, loss.steps[-1]) == (True, count - 1)
    assert max(after - step for step, after in pairwise(loss.steps)) < count / 3, "between two of the eight pieces"


def test_what_short_reports_leave_goes_to_the_long_one(little):
    long = line(1, loss=0.5) * (little // len(line(1, loss=0.5)))
    assert curves(line(1, loss=1), long[: little - 200], line(1, loss=1)).read_bytes > little - 400
    assert [len(one.steps) for one in curves(long, long).metrics[0].lines] == [246, 246]


def test_metrics_have_a_bound_that_leaves_a_place_for_the_loss():
    many = {f"m/{i}": i for i in range(METRICS_MAX + 5)}
    found = curves(line(1, **many) + line(2, loss=1))
    assert (len(found.metrics), found.metrics[0].name, found.metrics_left_out) == (METRICS_MAX, "loss", True)
    assert not curves(line(1, **dict(list(many.items())[: METRICS_MAX - 1]))).metrics_left_out


def test_the_latest_attempt_says_which_metrics_there_are():
    first, second = ({f"{i}.{n}": n for n in range(METRICS_MAX - 1)} for i in (1, 2))
    assert {one.name[:2] for one in curves(line(1, **first), line(1, **second)).metrics} == {"2."}


def test_fixed_fields_and_gauges_of_the_log_and_odd_names_are_no_metrics():
    odd = {"total": 5, "data_wait": 0.5, "memory_bytes": 1, "<b>": 1, "x" * 65: 1, "": 1, "é": 1, "a\n": 1}
    assert [one.name for one in curves(line(1, **odd) + line(2, ok=1)).metrics] == ["ok"]


def test_what_is_no_report_is_passed_over():
    bad = [
        b"", b"nonsense", b"[1]", b"null", b'{"kind":"progress"}', line(-1, loss=1), line(2**60, loss=1),
        b'{"kind":"progress","step":1.5,"loss":1}', b'{"kind":"done","step":1,"loss":1}', b'{"a":' * 5_000,
        b'{"kind":"progress","step":1,"loss":"1"}', b'{"kind":"progress","step":1,"loss":true}',
        b'{"kind":"progress","step":1,"loss":null}', b'{"kind":"progress","step":1,"loss":null,"not_finite":7}',
        b'{"kind":"progress","step":1,"loss":' + b"9" * 400 + b"}", b"\xff\xfe{}", b"\0" * 100,
    ]  # fmt: skip
    assert curves(b"\n".join(bad) + b"\n").metrics == []
    cut = line(3, loss=1)
    assert curves(b"\n".join(bad) + b"\n" + cut + cut[:-9]).metrics[0].lines[0].steps == [3]


def test_an_attempt_without_a_report_has_no_curve():
    def none(attempt: int, offset: int, limit: int) -> None:
        return None

    found = reported(7, 1, [(1, 0, 5), (1, 1, 5)], none)
    assert (found.metrics, found.ranks, found.attempts) == ([], [0, 1], [1])
    assert reported(7, 3, [(1, 0, 5)], none).attempts == []


numbers = st.dictionaries(
    st.sampled_from(["loss", "a", "b/c", "é", "not_finite", "time_ms"]),
    st.floats() | st.integers() | st.none() | st.text(max_size=3) | st.just(["loss", 5]),
    max_size=4,
)
lines = st.binary(max_size=30) | st.builds(
    lambda step, more: json.dumps({"kind": "progress", "step": step, **more}).encode(),
    st.integers(-5, 10**20),
    numbers,
)


@settings(max_examples=60)
@given(st.lists(st.lists(lines, max_size=5), max_size=2))
def test_whatever_is_in_the_files_the_answer_is_whole_and_in_bounds(files):
    found = curves(*(b"\n".join(file) + b"\n" for file in files))
    json.dumps([one.last for one in found.metrics], allow_nan=False)
    for metric in found.metrics:
        assert sum(len(one.steps) for one in metric.lines) <= POINTS_MAX
        for one in metric.lines:
            assert len(one.steps) == len(one.times_ms) == len(one.values) == len(one.not_finite) > 0
            assert all(value is None or math.isfinite(value) for value in one.values)


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 10**4))
def test_pieces_are_apart_and_reach_from_the_beginning_to_the_end(size, most, piece):
    pieces = even_pieces(size, most, piece)
    assert sum(length for _, length in pieces) <= most
    ends = [offset + length for offset, length in pieces]
    assert all(end <= offset for end, (offset, _) in zip(ends, pieces[1:], strict=False))
    if size and most:
        assert ends[-1] == size
    if len(pieces) > 1:
        assert pieces[0][0] == 0


@given(st.lists(st.sampled_from([b"a", b"\n", b"bc\n"])).map(b"".join), st.booleans())
def test_lines_that_a_piece_cuts_are_dropped(piece, from_start):
    found = whole_lines(piece, from_start=from_start)
    assert found in piece
    assert found.count(b"\n") == max(0, piece.count(b"\n") - (not from_start))
    assert found == b"" or found.endswith(b"\n")
