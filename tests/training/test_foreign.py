"""Rules of files that another library wrote: published whole, verified before they are handed back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import training
from penstock.training import (
    BadArgument,
    BorderAction,
    CheckpointDirectory,
    FencedAttempt,
    Place,
    Preempted,
    ResumeNotCalled,
)
from penstock.training.foreign import ForeignLoop
from penstock.training.storage import durable
from tests.training.needs import need

Open = Callable[..., CheckpointDirectory]
ReadLines = Callable[[Path], list[dict[str, Any]]]
FILES = {"model.bin": b"weights", "manifest.json": b"theirs", "deep/er/state.json": b"{}", "empty": b""}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder as a library leaves it."""
    return fill(tmp_path / "theirs")


def fill(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("linked", [False, True])
def test_files_come_back_as_they_were(linked: bool, open_directory: Open, theirs: Path) -> None:
    manifest = open_directory().adopt(4, theirs, linked=linked)
    found, skipped = open_directory().newest_foreign()
    assert found is not None
    assert (manifest.layout, found.manifest, skipped) == ("foreign", manifest, [])
    assert content(found.folder) == FILES == content(theirs)


def test_a_copy_does_not_change_with_the_original(open_directory: Open, theirs: Path) -> None:
    directory = open_directory()
    directory.adopt(4, theirs)
    with (theirs / "model.bin").open("r+b") as file:
        file.write(b"XXX")
    assert content(directory.read_files(4).folder) == FILES


def test_linked_files_take_no_room_and_may_be_replaced(open_directory: Open, theirs: Path) -> None:
    directory = open_directory()
    directory.adopt(4, theirs, linked=True)
    path = directory.read_files(4).folder / "model.bin"
    assert path.samefile(theirs / "model.bin")
    (theirs / "model.bin").unlink()
    (theirs / "model.bin").write_bytes(b"other")
    assert content(directory.read_files(4).folder) == FILES


def test_where_files_have_one_name_only_they_are_copied(
    open_directory: Open, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "link", lambda *_, **__: False)
    directory = open_directory()
    directory.adopt(4, theirs, linked=True)
    assert not (directory.read_files(4).folder / "model.bin").samefile(theirs / "model.bin")


def test_a_link_to_a_file_is_taken_for_the_file(open_directory: Open, theirs: Path) -> None:
    directory = open_directory()
    (theirs / "alias").symlink_to(theirs / "model.bin")
    directory.adopt(4, theirs, linked=True)
    (theirs / "model.bin").unlink()
    assert content(directory.read_files(4).folder)["alias"] == b"weights"


@pytest.mark.parametrize("name", [*FILES, "../manifest.json"])
def test_a_damaged_one_is_named_and_the_one_before_given(name: str, open_directory: Open, theirs: Path) -> None:
    directory = open_directory()
    directory.adopt(4, theirs)
    directory.adopt(6, theirs)
    path = directory.path(6) / "files" / name
    path.write_bytes(path.read_bytes() + b"x")
    found, skipped = directory.newest_foreign()
    assert found is not None
    assert found.manifest.step == 4
    assert [one.step for one in skipped] == [6]
    assert path.name in skipped[0].problem


def test_checkpoints_of_another_kind_are_refused(open_directory: Open, theirs: Path) -> None:
    directory = open_directory()
    directory.write(1, {"a": 1})
    with pytest.raises(BadArgument, match="layout 'whole'; expected 'foreign'"):
        directory.newest_foreign()
    directory.adopt(2, theirs)
    with pytest.raises(BadArgument, match="layout 'foreign', which is not a state of plain values"):
        directory.newest_valid()


def test_a_folder_without_files_is_refused(open_directory: Open, tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="holds no files"):
        open_directory().adopt(1, tmp_path / "missing")


def test_an_older_attempt_cannot_adopt(open_directory: Open, theirs: Path, folder: Path) -> None:
    old = open_directory(attempt=1)
    open_directory(attempt=2)
    with pytest.raises(FencedAttempt):
        old.adopt(1, theirs)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "attempt"]


def test_a_full_disk_leaves_no_rest(
    open_directory: Open, theirs: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    directory = open_directory()
    with monkeypatch.context() as patch:
        patch.setattr(durable, "_write_all", full)
        with pytest.raises(OSError, match="No space"):
            directory.adopt(1, theirs)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "attempt"]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_REPORT_FILE", str(tmp_path / "report"))
    return tmp_path / "report"


def train(run: training.Session, stop: int, theirs: Path, ask_at: dict[int, Callable[[], None]]) -> list[int]:
    """Train as a library does that saves by itself; return the steps done."""
    loop, done = ForeignLoop(run), []
    loop.begin(run.step, stop)
    for step in range(run.step, stop):
        ask_at.get(step, lambda: None)()
        done.append(step)
        action = loop.border(step + 1)
        if action is not BorderAction.NOTHING:
            loop.publish(fill(theirs, {"step": str(step + 1).encode()}), action)
        if action is BorderAction.STOP:
            loop.leave()
    return done


def test_a_loop_of_another_library_is_stopped_and_resumed(
    folder: Path, tmp_path: Path, report: Path, read_lines: ReadLines
) -> None:
    with training.session(folder) as run:
        assert run.resume_files() is None
        with pytest.raises(Preempted) as caught:
            train(run, 9, tmp_path / "theirs", {1: run.request_checkpoint, 4: run.request_stop})
    assert (caught.value.code, caught.value.step) == (143, 5)
    saved = [(line["step"], line["why"]) for line in read_lines(report) if line["kind"] == "checkpoint"]
    assert saved == [(2, "request"), (5, "preemption")]
    with training.session(folder) as run:
        found = run.resume_files()
        assert found is not None
        assert content(found) == {"step": b"5"}
        assert train(run, 9, tmp_path / "theirs", {}) == [5, 6, 7, 8]


def test_the_interval_asks_a_library_as_well(folder: Path, tmp_path: Path) -> None:
    with training.session(folder, interval_s=1e-9, keep=9) as run:
        train(run, 3, tmp_path / "theirs", {})
        assert run.checkpoints is not None
        assert run.checkpoints.steps() == [3, 2, 1]


def test_a_library_that_did_not_resume_is_told(folder: Path, theirs: Path) -> None:
    CheckpointDirectory(folder).adopt(5, theirs)
    with training.session(folder) as run:
        run.resume_files()
        with pytest.raises(BadArgument, match="begins at step 0; expected 5"):
            ForeignLoop(run).begin(0, 9)
    with training.session(folder) as run, pytest.raises(ResumeNotCalled):
        ForeignLoop(run).begin(0, 9)


def test_what_a_library_cannot_write_does_not_end_training(folder: Path, report: Path, read_lines: ReadLines) -> None:
    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with training.session(folder) as run:
        run.step = 3
        ForeignLoop(run).save(full, BorderAction.INTERVAL)
    failed = next(line for line in read_lines(report) if line["kind"] == "checkpoint_failed")
    assert (failed["step"], failed["why"]) == (3, "interval")
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "attempt"]


def test_what_cannot_be_published_does_not_end_training(
    folder: Path, theirs: Path, report: Path, read_lines: ReadLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckpointDirectory, "adopt", full)
    with training.session(folder) as run:
        assert run.adopt(theirs, BorderAction.REQUEST) is None
    said = [line["kind"] for line in read_lines(report) if line["kind"] != "listens"]
    assert said == ["checkpoint_failed", "done"]


def test_a_folder_that_was_made_for_the_library_is_gone_afterwards(folder: Path) -> None:
    with training.session(folder) as run:
        run.step = 3
        ForeignLoop(run).save(fill, BorderAction.REQUEST)
        assert run.checkpoints is not None
    assert content(CheckpointDirectory(folder).read_files(3).folder) == FILES
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "attempt", "step-000000003"]


def test_without_a_directory_a_library_just_trains(theirs: Path) -> None:
    with training.session() as run:
        assert run.resume_files() is None
        ForeignLoop(run).save(lambda _: pytest.fail("nothing is to be written"), BorderAction.REQUEST)
        assert train(run, 3, theirs, {1: run.request_checkpoint}) == [0, 1, 2]


def test_only_rank_0_publishes_and_only_when_all_have_come(
    folder: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[str] = []

    class Agrees:
        def decide(self, action: BorderAction, step: int) -> BorderAction:
            came.append(f"decide {step}")
            return BorderAction.STOP

        def barrier(self) -> None:
            came.append("barrier")

    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with training.session(folder, rescue=False) as run:
        loop = ForeignLoop(run, Agrees())
        loop.publish(theirs, loop.border(7))
        with pytest.raises(Preempted):
            loop.leave()
    assert came == ["decide 7", "barrier", "barrier"]
    assert CheckpointDirectory(folder).steps() == []


@pytest.fixture
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_signals_that_a_library_took_over_are_taken_back(handler: None) -> None:
    with training.session() as run:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ForeignLoop(run).begin(0, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.stop_requested


def test_at_a_url_a_callback_is_refused(tmp_path: Path) -> None:
    need("fsspec")
    with training.session(f"memory://{tmp_path.name}") as run, pytest.raises(BadArgument, match="a callback cannot"):
        ForeignLoop(run)


def test_a_place_names_who_published(folder: Path, theirs: Path) -> None:
    directory = CheckpointDirectory(folder, Place("job-1", 3, 0, 4))
    directory.open()
    manifest = directory.adopt(1, theirs)
    assert (manifest.job, manifest.attempt, manifest.world_size) == ("job-1", 3, 4)
