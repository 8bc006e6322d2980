"""Rules of the report file: whole lines, at most five progress lines a second, never in the way of training."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.training import BadArgument, reports
from penstock.training.reports import Reporter

ReadLines = Callable[[Path], list[dict[str, Any]]]


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make(path: Path) -> tuple[Reporter, Clock]:
    clock = Clock()
    return Reporter(path, clock_s=clock), clock


def step_all(reporter: Reporter, clock: Clock, *, count: int, period_s: float) -> None:
    for step in range(1, count + 1):
        clock.now_s += period_s
        reporter.progress(step, loss=0.5, samples=10, metrics={})


def test_progress_is_limited_to_five_lines_a_second(tmp_path: Path, read_lines: ReadLines) -> None:
    reporter, clock = make(tmp_path / "report")
    step_all(reporter, clock, count=1000, period_s=0.01)
    assert 48 <= len(read_lines(tmp_path / "report")) <= 51


def test_the_last_progress_is_never_lost(tmp_path: Path, read_lines: ReadLines) -> None:
    reporter, clock = make(tmp_path / "report")
    step_all(reporter, clock, count=7, period_s=0.01)
    reporter.event("done", 7)
    assert [(line["kind"], line["step"]) for line in read_lines(tmp_path / "report")] == [
        ("progress", 1),
        ("progress", 7),
        ("done", 7),
    ]


def test_a_metric_that_is_reported_now_and_then_is_never_lost(tmp_path: Path, read_lines: ReadLines) -> None:
    reporter, clock = make(tmp_path / "report")
    step_all(reporter, clock, count=3, period_s=0.01)
    reporter.progress(3, loss=0.25, samples=None, metrics={"eval": 0.75})
    step_all(reporter, clock, count=30, period_s=0.01)
    shown = [(line["step"], line["loss"], line.get("eval")) for line in read_lines(tmp_path / "report")]
    assert shown == [(1, 0.5, None), (18, 0.5, 0.75)]


def test_samples_per_second_counts_the_lines_held_back(tmp_path: Path, read_lines: ReadLines) -> None:
    reporter, clock = make(tmp_path / "report")
    step_all(reporter, clock, count=21, period_s=0.01)
    assert [line["samples_per_s"] for line in read_lines(tmp_path / "report")] == [1000.0, 1000.0]


def test_a_big_file_grows_slowly(tmp_path: Path, read_lines: ReadLines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_FAST_REPORT_BYTES", 500)
    reporter, clock = make(tmp_path / "report")
    step_all(reporter, clock, count=600, period_s=0.2)
    assert 5 <= len(read_lines(tmp_path / "report")) <= 9


def test_not_a_number_is_reported_as_such(tmp_path: Path, read_lines: ReadLines) -> None:
    reporter, _ = make(tmp_path / "report")
    reporter.progress(1, loss=math.nan, samples=None, metrics={"norm": math.inf})
    line = read_lines(tmp_path / "report")[0]
    assert (line["loss"], line["norm"], line["not_finite"]) == (None, None, ["loss", "norm"])


def test_a_half_line_of_a_killed_predecessor_stays_apart(tmp_path: Path) -> None:
    (tmp_path / "report").write_bytes(b'{"kind":"pro')
    reporter, _ = make(tmp_path / "report")
    reporter.event("done", 1)
    first, second = (tmp_path / "report").read_text().splitlines()
    assert first == '{"kind":"pro'
    assert second.endswith("}")


def test_a_line_cut_off_by_a_full_disk_stays_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter, _ = make(tmp_path / "report")
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:9]))
        reporter.event("done", 1)
    reporter.event("done", 2)
    first, second = (tmp_path / "report").read_text().splitlines()
    assert (len(first), json.loads(second)["step"]) == (9, 2)


def test_a_report_that_cannot_be_written_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reporter, _ = make(tmp_path / "missing" / "report")
    reporter.event("done", 1)
    reporter.event("done", 1)
    assert caplog.messages == ["report could not be written"]


def test_a_metric_cannot_take_the_name_of_a_fixed_field(tmp_path: Path) -> None:
    reporter, _ = make(tmp_path / "report")
    with pytest.raises(BadArgument, match="'kind', a fixed field"):
        reporter.progress(1, loss=None, samples=None, metrics={"kind": 1.0})


def test_after_close_nothing_is_written(tmp_path: Path, read_lines: ReadLines) -> None:
    reporter, _ = make(tmp_path / "report")
    reporter.event("checkpoint", 1)
    reporter.close()
    reporter.event("done", 1)
    assert [line["kind"] for line in read_lines(tmp_path / "report")] == ["checkpoint"]
