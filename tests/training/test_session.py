"""Rules of the session: what happens at a border between two steps, and at the end."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock import training
from penstock.training import (
    BadArgument,
    BadEnvironment,
    BorderAction,
    CheckpointDirectory,
    FencedAttempt,
    NotMainThread,
    Preempted,
    ResumeNotCalled,
    Session,
    UnsavableValue,
)

ReadLines = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture
def report(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the agent's contract; return the path of the report file."""
    folder.mkdir()
    monkeypatch.setenv("PENSTOCK_JOB_ID", "job-1")
    monkeypatch.setenv("PENSTOCK_ATTEMPT", "1")
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_DIR", str(folder))
    monkeypatch.setenv("PENSTOCK_REPORT_FILE", str(tmp_path / "report"))
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_SIGNAL", "SIGUSR1")
    return tmp_path / "report"


def count_to(
    stop: int, at: Mapping[int, Callable[[Session], object]] | None = None, **options: Any
) -> tuple[list[int], int]:
    """Run a training that counts; at step n first do `at[n]`. Return the steps done, and the count."""
    done: list[int] = []
    with training.session(**options) as run:
        state = run.resume({"count": 0})
        for step in run.steps(stop, capture=lambda: state):
            if at and step in at:
                at[step](run)
            state["count"] += 1
            done.append(step)
    return done, state["count"]


def count_nothing(run: Session) -> None:
    """Ask for a stop before the first step; a step that begins all the same fails the test."""
    run.request_stop()
    for step in run.steps(5, capture=dict):
        pytest.fail(f"step {step} began")


def kill(signal_number: int) -> Callable[[Session], object]:
    return lambda run: os.kill(os.getpid(), signal_number)


def kinds(lines: list[dict[str, Any]]) -> list[tuple[str, int, str | None]]:
    return [(line["kind"], line["step"], line.get("why")) for line in lines]


def test_an_undisturbed_run_saves_at_the_end_and_is_done(report: Path, read_lines: ReadLines) -> None:
    assert count_to(5) == ([0, 1, 2, 3, 4], 5)
    assert kinds(read_lines(report)) == [("checkpoint", 5, "final"), ("done", 5, None)]


def test_a_stop_saves_at_the_next_border_and_leaves_with_143(report: Path, read_lines: ReadLines) -> None:
    with pytest.raises(SystemExit) as caught:
        count_to(5, {2: kill(signal.SIGTERM)})
    assert (caught.value.code, caught.type) == (143, Preempted)
    assert kinds(read_lines(report)) == [("checkpoint", 3, "preemption")]


def test_after_a_stop_no_step_is_done_twice_or_left_out(report: Path, read_lines: ReadLines) -> None:
    with pytest.raises(Preempted):
        count_to(5, {2: kill(signal.SIGTERM)})
    assert count_to(5) == ([3, 4], 5)
    assert kinds(read_lines(report))[1] == ("resumed", 3, None)


def test_a_stop_during_the_last_step_is_done_not_preempted(report: Path, read_lines: ReadLines) -> None:
    assert count_to(5, {4: kill(signal.SIGTERM)})[1] == 5
    assert kinds(read_lines(report))[-1] == ("done", 5, None)


def test_a_stop_before_the_first_step_saves_nothing_new(report: Path, folder: Path) -> None:
    with training.session() as run, pytest.raises(Preempted):
        count_nothing(run)
    assert not list(folder.glob("step-*"))


def test_the_checkpoint_signal_saves_and_carries_on(report: Path, read_lines: ReadLines) -> None:
    assert count_to(5, {1: kill(signal.SIGUSR1)})[1] == 5
    assert kinds(read_lines(report))[0] == ("checkpoint", 2, "request")


def test_without_a_declared_signal_the_session_says_to_which_it_listens_and_heeds_it(
    report: Path, read_lines: ReadLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_CHECKPOINT_SIGNAL")
    assert count_to(5, {1: kill(signal.SIGUSR1)})[1] == 5
    lines = read_lines(report)
    assert [line["signal"] for line in lines if line["kind"] == "listens"] == ["SIGUSR1", ""]
    assert ("checkpoint", 2, "request") in kinds(lines)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_signal_that_the_program_uses_is_left_to_it(
    report: Path, read_lines: ReadLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_CHECKPOINT_SIGNAL")
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        count_to(2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "listens" not in {line["kind"] for line in read_lines(report)}


def test_a_forked_child_that_leaves_the_session_says_nothing_for_its_parent(
    report: Path, monkeypatch: pytest.MonkeyPatch, read_lines: ReadLines
) -> None:
    monkeypatch.delenv("PENSTOCK_CHECKPOINT_SIGNAL")
    with training.session() as run:
        run.resume({})
        child = os.fork()
        if child == 0:
            try:
                run.__exit__(None, None, None)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert [line["signal"] for line in read_lines(report) if line["kind"] == "listens"] == ["SIGUSR1"]
    assert [line["signal"] for line in read_lines(report) if line["kind"] == "listens"] == ["SIGUSR1", ""]


def test_every_request_gets_an_answer(report: Path, read_lines: ReadLines) -> None:
    def save_now_and_ask(run: Session) -> None:
        run.checkpoint(lambda: {"count": 2})
        run.request_checkpoint()

    count_to(5, {1: save_now_and_ask})
    assert kinds(read_lines(report))[:2] == [("checkpoint", 2, "request")] * 2


def test_the_interval_saves_by_itself(report: Path, read_lines: ReadLines) -> None:
    count_to(3, interval_s=1e-9, behind=False)
    assert kinds(read_lines(report))[:2] == [("checkpoint", 0, "interval"), ("checkpoint", 1, "interval")]


def test_damaged_checkpoints_are_skipped_and_named(report: Path, read_lines: ReadLines, folder: Path) -> None:
    count_to(2)
    count_to(4)
    (folder / "step-000000004" / "tree.json").unlink()
    assert count_to(4) == ([2, 3], 4)
    resumed = [line for line in read_lines(report) if line["kind"] == "resumed"][-1]
    assert (resumed["step"], resumed["skipped"]) == (2, [{"step": 4, "problem": "tree.json is missing"}])


def test_only_damaged_checkpoints_start_over_and_say_so(report: Path, read_lines: ReadLines, folder: Path) -> None:
    count_to(2)
    (folder / "step-000000002" / "manifest.json").unlink()
    assert count_to(2)[0] == [0, 1]
    assert ("resumed", 0, None) in kinds(read_lines(report))


def test_starting_over_beside_checkpoints_is_refused(report: Path) -> None:
    count_to(2)
    with training.session() as run, pytest.raises(ResumeNotCalled, match="up to step 2, but resume"):
        run.steps(5)


def test_a_full_disk_does_not_end_training(
    report: Path, read_lines: ReadLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, training.session() as run:
        run.resume(None)
        patch.setattr(CheckpointDirectory, "write_files", full)
        for _ in run.steps(2, capture=dict, final=False):
            run.request_checkpoint()
    assert kinds(read_lines(report)) == [("checkpoint_failed", 1, "request"), ("done", 2, None)]


def test_a_fenced_process_ends(report: Path, folder: Path) -> None:
    newer = CheckpointDirectory(folder, training.Place("job-1", 2))
    with pytest.raises(FencedAttempt):
        count_to(5, {1: lambda run: (newer.open(), run.request_checkpoint())})
    assert newer.steps() == []


def test_a_failure_is_not_reported_as_done(report: Path, read_lines: ReadLines) -> None:
    with pytest.raises(ZeroDivisionError):
        count_to(5, {1: lambda run: 1 // 0})
    assert read_lines(report) == []


def test_without_directory_and_agent_the_script_just_runs() -> None:
    assert count_to(5, {1: lambda run: run.checkpoint(dict)}) == ([0, 1, 2, 3, 4], 5)


def test_a_local_directory_is_enough_to_resume(folder: Path) -> None:
    count_to(3, directory=folder)
    assert count_to(5, directory=folder) == ([3, 4], 5)


def test_other_ranks_leave_saving_to_rank_0(
    report: Path, read_lines: ReadLines, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    count_to(3, {1: lambda run: run.request_checkpoint()})
    assert not list(folder.glob("step-*"))
    assert kinds(read_lines(report)) == [("done", 3, None)]


def test_the_strongest_wish_of_all_ranks_counts(report: Path, read_lines: ReadLines) -> None:
    class OtherRankStops:
        def __init__(self) -> None:
            self.calls: list[tuple[BorderAction, int] | str] = []

        def decide(self, action: BorderAction, step: int) -> BorderAction:
            self.calls.append((action, step))
            return BorderAction.STOP if step == 2 else action

        def barrier(self) -> None:
            self.calls.append("barrier")

    agree = OtherRankStops()
    with pytest.raises(Preempted), training.session() as run:
        list(run.steps(5, capture=dict, agree=agree))
    assert agree.calls == [(BorderAction.NOTHING, 0), (BorderAction.NOTHING, 1), (BorderAction.NOTHING, 2), "barrier"]
    assert kinds(read_lines(report)) == [("checkpoint", 2, "preemption")]


def test_progress_counts_the_step_under_way(report: Path, read_lines: ReadLines) -> None:
    with training.session() as run:
        for _ in run.steps(1):
            run.report(loss=0.25, queue_length=3)
    line = read_lines(report)[0]
    assert (line["kind"], line["step"], line["loss"], line["queue_length"]) == ("progress", 1, 0.25, 3.0)


def test_handlers_are_put_back(report: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    with training.session():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)) == before


def test_handlers_are_put_back_when_the_fence_refuses(report: Path, folder: Path) -> None:
    CheckpointDirectory(folder, training.Place("job-1", 2)).open()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(FencedAttempt), training.session():
        pass
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_helper_still_dies_of_sigterm(report: Path) -> None:
    with training.session() as run:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not run.stop_requested


def test_another_thread_is_told_to_use_the_main_one() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            training.session().__enter__()
        except NotMainThread as error:
            caught.append(error)

    thread = threading.Thread(target=work, name="worker-7")
    thread.start()
    thread.join()
    assert "worker-7" in str(caught[0])


def test_a_state_that_cannot_be_saved_is_named_after_the_first_step(report: Path) -> None:
    with training.session() as run, pytest.raises(UnsavableValue, match=r"state\['bad'\] is a builtins\.set"):
        count_with_a_set(run)
    assert run.step == 1


def count_with_a_set(run: Session) -> None:
    for step in run.steps(5, capture=lambda: {"bad": {1}}):
        assert step == 0


def test_a_shared_directory_that_is_not_there_is_not_made(report: Path, folder: Path) -> None:
    folder.rmdir()
    with pytest.raises(BadEnvironment, match=r"PENSTOCK_CHECKPOINT_DIR .* not a directory on this node"):
        training.session()
    assert not folder.exists()


def test_an_interval_of_zero_is_refused() -> None:
    with pytest.raises(BadArgument, match="interval_s is 0; expected"):
        training.session(interval_s=0)
