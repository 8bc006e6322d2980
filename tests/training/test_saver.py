"""Saving beside training: the copy is of the border, the disk may be slow, trouble is told, the fence holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.training import CheckpointDirectory, FencedAttempt, Place
from penstock.training.ranks.layouts import Whole
from penstock.training.reports import Reporter
from penstock.training.saver import Saver
from penstock.training.storage import blobs as blobs_module

Open = Callable[..., CheckpointDirectory]
ReadLines = Callable[[Path], list[dict[str, Any]]]


class Gate:
    """Lets the saving thread go on only when told."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.open.wait(20)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made, real = Gate(), blobs_module._write

    def write(*arguments: Any, **options: Any) -> Any:
        made.wait()
        return real(*arguments, **options)

    monkeypatch.setattr(blobs_module, "_write", write)
    yield made
    made.open.set()


def saver_of(directory: CheckpointDirectory, report: Path | None = None, *, behind: bool = True) -> Saver:
    return Saver(directory, Whole(), Reporter(report), behind=behind)


def test_what_is_saved_is_the_state_of_the_border_though_training_goes_on(open_directory: Open, gate: Gate) -> None:
    directory = open_directory()
    saver = saver_of(directory)
    weights = np.arange(100_000.0)
    saver.save_behind(1, lambda: {"weights": weights}, "interval")
    gate.reached.wait(20)
    weights += 1
    assert saver.busy
    gate.open.set()
    saver.wait()
    assert np.array_equal(directory.read(1).state["weights"], np.arange(100_000.0))


def test_the_memory_of_the_copy_is_used_again(open_directory: Open) -> None:
    directory = open_directory()
    saver = saver_of(directory)
    for step in (1, 2, 3):
        saver.save_behind(step, lambda step=step: {"weights": np.full(100_000, float(step))}, "interval")
    saver.wait()
    assert [directory.read(step).state["weights"][0] for step in (1, 2, 3)] == [1.0, 2.0, 3.0]


def test_trouble_beside_training_is_told_and_training_goes_on(
    open_directory: Open,
    tmp_path: Path,
    read_lines: ReadLines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = open_directory()
    saver = saver_of(directory, tmp_path / "report")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(blobs_module, "_write", full)
        saver.save_behind(1, lambda: {"a": 1}, "interval")
        saver.wait()
    saver.save_behind(2, lambda: {"a": 2}, "interval")
    saver.wait()
    lines = [(line["kind"], line["step"]) for line in read_lines(tmp_path / "report")]
    assert lines == [("checkpoint_failed", 1), ("checkpoint", 2)]


def test_a_fence_met_beside_training_ends_it_at_the_next_save(open_directory: Open, folder: Path, gate: Gate) -> None:
    saver = saver_of(open_directory(attempt=1))
    saver.save_behind(1, lambda: {"a": 1}, "interval")
    gate.reached.wait(20)
    CheckpointDirectory(folder, Place("job-1", 2)).fence.claim()
    gate.open.set()
    with pytest.raises(FencedAttempt):
        saver.save_behind(2, lambda: {"a": 2}, "interval")


def test_a_step_that_was_saved_is_not_saved_again(open_directory: Open) -> None:
    saver = saver_of(open_directory())
    first = saver.save(1, lambda: {"a": 1}, "request")
    assert saver.save(1, lambda: {"a": 2}, "preemption") is first
    assert saver.has(1)
    assert not saver.has(2)


def test_without_memory_for_a_copy_training_waits_for_the_disk(
    open_directory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory()
    saver = saver_of(directory)
    monkeypatch.setattr(Whole, "stage", lambda *_: (_ for _ in ()).throw(MemoryError("1 TB")))
    saver.save_behind(1, lambda: {"a": 1}, "interval")
    assert not saver.busy
    assert directory.steps() == [1]


def test_the_report_says_how_long_training_was_held(
    open_directory: Open, tmp_path: Path, read_lines: ReadLines, gate: Gate
) -> None:
    saver = saver_of(open_directory(), tmp_path / "report")
    saver.save_behind(1, lambda: {"a": b"x" * 1000}, "interval")
    gate.reached.wait(20)
    threading.Event().wait(0.05)
    gate.open.set()
    saver.wait()
    line = read_lines(tmp_path / "report")[0]
    assert line["held_ms"] < 50 <= line["duration_ms"]
