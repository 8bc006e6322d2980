"""Rules of the fence: after a newer attempt has started, an older one changes nothing."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.training import CheckpointDirectory, DirectoryBusy, FencedAttempt
from penstock.training.ranks.shards import write_part
from penstock.training.storage import durable, fence

Open = Callable[..., CheckpointDirectory]


def test_an_older_attempt_cannot_publish(open_directory: Open) -> None:
    old = open_directory(attempt=1)
    new = open_directory(attempt=2)
    with pytest.raises(FencedAttempt, match=r"attempt 1 .* attempt 2 of this job has started"):
        old.write(5, {"from": "old"})
    assert new.steps() == []


def test_an_older_attempt_cannot_start(open_directory: Open) -> None:
    open_directory(attempt=2)
    with pytest.raises(FencedAttempt) as caught:
        open_directory(attempt=1)
    assert (caught.value.code, caught.value.mine, caught.value.recorded) == ("fenced_attempt", 1, 2)


@pytest.mark.parametrize("rank", [0, 1], ids=["clears our rest", "only claims"])
def test_a_newer_attempt_that_starts_during_a_save_wins(
    rank: int, open_directory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_directory(attempt=1)
    publish = old.publish
    start_newer = partial(open_directory, attempt=2, rank=rank, ranks=2)
    monkeypatch.setattr(old, "publish", lambda *a, **o: (start_newer(), publish(*a, **o))[1])
    with pytest.raises(FencedAttempt):
        old.write(5, {"from": "old"})
    assert old.steps() == []


def test_nobody_can_claim_between_the_look_at_the_record_and_the_rename(
    open_directory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_directory(attempt=1)
    monkeypatch.setattr(fence, "LOCK_WAIT_S", 0.0)
    monkeypatch.setattr(durable, "move", lambda *_: open_directory(attempt=2))
    with pytest.raises(DirectoryBusy):
        old.write(5, {})


def test_an_older_attempt_cannot_write_a_part(open_directory: Open) -> None:
    old = open_directory(attempt=1, rank=1, ranks=2)
    open_directory(attempt=2)
    with pytest.raises(FencedAttempt):
        write_part(old, 5, {})


def test_all_ranks_of_one_attempt_may_claim(open_directory: Open, folder: Path) -> None:
    open_directory(attempt=3, rank=0, ranks=2)
    open_directory(attempt=3, rank=1, ranks=2)
    assert (folder / "attempt").read_text() == "3\n"


def test_outside_penstock_the_recorded_attempt_is_taken_over(open_directory: Open) -> None:
    open_directory(attempt=4)
    local = open_directory(attempt=None)
    assert local.write(1, {}).attempt == 4


def test_an_unreadable_record_falls_back_on_the_manifests(open_directory: Open, folder: Path) -> None:
    open_directory(attempt=5).write(1, {})
    (folder / "attempt").write_bytes(b"\xff")
    with pytest.raises(FencedAttempt, match="attempt 5"):
        open_directory(attempt=4)


def test_a_damaged_manifest_does_not_hide_the_others(open_directory: Open, folder: Path) -> None:
    open_directory(attempt=5).write(1, {})
    (folder / "step-000000002").mkdir()
    (folder / "attempt").write_bytes(b"")
    with pytest.raises(FencedAttempt, match="attempt 5"):
        open_directory(attempt=4)


def test_a_held_lock_is_waited_for_and_then_named(
    open_directory: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory()
    monkeypatch.setattr(fence, "LOCK_WAIT_S", 0.0)
    with (folder / ".lock").open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(DirectoryBusy, match="was held by another process"):
            directory.write(1, {})
    assert directory.write(1, {}).step == 1


def test_a_file_system_without_locks_still_checks_the_record(
    open_directory: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    old = open_directory(attempt=1)
    open_directory(attempt=2)
    with pytest.raises(FencedAttempt):
        old.write(1, {})
    assert any("has no locks" in message for message in caplog.messages)


def test_an_unknown_lock_error_is_not_hidden(open_directory: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match="Input/output"):
        open_directory()
