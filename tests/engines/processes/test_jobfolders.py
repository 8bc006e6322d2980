"""Folders of jobs: each job finds its own, whatever has happened to the log, and nothing is deleted."""

import fcntl
import os
from pathlib import Path

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.state.identity import LENGTH, Identity, begun_by
from penstock.engines.processes import jobfolders
from penstock.engines.processes.jobfolders import ATTEMPT_RECORD, MARK_NAME, mark_of, prepare_folder
from penstock.engines.processes.paths import DataFolder
from penstock.testing.harness import cluster
from penstock.training.storage import fence
from tests.engines.agent.builders import start

FIRST, OTHER, LATER = (f"{cluster * LENGTH}-{time_ms}" for cluster, time_ms in (("c", 1), ("d", 1), ("c", 2)))


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    (tmp_path / "jobs").mkdir()
    return DataFolder(tmp_path)


def ran(data: DataFolder, mark: str, attempt: int = 1, rank: int = 0, *, unmarked: bool = False) -> None:
    """Prepare the folder for a replica, and leave what it would leave."""
    key = ReplicaKey(7, attempt, rank)
    prepare_folder(data, start(key, mark=mark, unmarked=unmarked))
    folder = data.checkpoints(7)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"by-{mark}").touch()
    (folder / ATTEMPT_RECORD).write_text(f"{attempt}\n")
    data.output(key).write_text(f"{mark} {attempt}")


def saved(data: DataFolder) -> set[str]:
    return {path.name for path in data.checkpoints(7).iterdir()} - {ATTEMPT_RECORD}


def test_attempts_and_ranks_of_one_job_share_its_folder(data):
    for attempt, rank in ((1, 0), (1, 1), (2, 0)):
        ran(data, FIRST, attempt, rank)
    assert saved(data) == {f"by-{FIRST}"}
    assert [path.name for path in data.job(7).parent.iterdir()] == ["7"]


def test_a_job_of_the_same_number_finds_nothing_of_another_and_nothing_is_lost(data):
    ran(data, FIRST)
    ran(data, OTHER)
    assert saved(data) == {f"by-{OTHER}"}
    assert data.outputs(7) == [(1, 0, data.job(7) / "attempt-1.rank-0.log")]
    assert (data.job(7).parent / f"7.{FIRST}" / "checkpoints" / f"by-{FIRST}").exists()


def test_a_job_finds_its_own_again_after_a_return_to_its_log(data):
    ran(data, FIRST)
    ran(data, OTHER)
    ran(data, FIRST, 2)
    assert saved(data) == {f"by-{FIRST}"}
    assert sorted(path.name for path in data.job(7).parent.iterdir()) == ["7", f"7.{OTHER}"]


def test_an_unmarked_folder_is_taken_over_only_where_it_may_be_the_jobs(data):
    data.checkpoints(7).mkdir(parents=True)
    (data.checkpoints(7) / "old").touch()
    ran(data, FIRST, 2, unmarked=True)
    assert (saved(data), mark_of(data.job(7))) == ({"old", f"by-{FIRST}"}, FIRST)


def test_an_unmarked_folder_of_unknown_origin_is_moved_aside(data):
    for _ in range(2):
        data.checkpoints(7).mkdir(parents=True, exist_ok=True)
        ran(data, FIRST)
        (data.job(7) / MARK_NAME).unlink()
    data.checkpoints(7).mkdir(exist_ok=True)
    ran(data, LATER)
    assert saved(data) == {f"by-{LATER}"}
    names = sorted(path.name for path in data.job(7).parent.iterdir())
    assert names == ["7", "7.unmarked", "7.unmarked.2", "7.unmarked.3"]


def test_without_a_mark_folders_are_left_as_they_are(data):
    data.checkpoints(7).mkdir(parents=True)
    prepare_folder(data, start(ReplicaKey(7, 1, 0)))
    assert mark_of(data.job(7)) == "unmarked"


def test_a_half_made_folder_is_finished(data):
    (data.job(7).parent / ".7.new").mkdir()
    ran(data, FIRST)
    assert [path.name for path in data.job(7).parent.iterdir()] == ["7"]


def test_a_restored_job_keeps_its_checkpoints_and_may_save_again(data):
    for attempt in (1, 2, 3, 4):
        ran(data, FIRST, attempt)
    prepare_folder(data, start(ReplicaKey(7, 2, 0), mark=FIRST))
    assert saved(data) == {f"by-{FIRST}"}
    assert not (data.checkpoints(7) / ATTEMPT_RECORD).exists()
    assert [attempt for attempt, _, _ in data.outputs(7)] == [1]
    kept = sorted(path.read_text() for path in data.job(7).glob("restored.*"))
    assert kept == [f"{FIRST} 2", f"{FIRST} 3", f"{FIRST} 4"]


def test_the_record_of_the_highest_attempt_stays_where_nothing_was_restored(data):
    ran(data, FIRST, 1)
    prepare_folder(data, start(ReplicaKey(7, 2, 0), mark=FIRST))
    assert (data.checkpoints(7) / ATTEMPT_RECORD).read_text() == "1\n"


@pytest.mark.parametrize("name", ["attempt-1.rank-0.train.log", "attempt-x.rank-0.log", "attempt-1.rank-0.log.log"])
def test_files_that_a_program_names_like_output_change_nothing(data, name):
    ran(data, FIRST)
    (data.job(7) / name).touch()
    ran(data, FIRST, 2)
    assert [(attempt, rank) for attempt, rank, _ in data.outputs(7)] == [(1, 0), (2, 0)]
    assert (data.job(7) / name).exists()


def test_a_job_without_a_folder_has_no_output(data):
    assert data.outputs(7) == []


@pytest.mark.parametrize("left", [b"hello", b"a\0b", b"", "folder", "link"])
def test_what_is_no_mark_in_its_place_is_as_if_there_was_none(data, left):
    ran(data, FIRST)
    mark = data.job(7) / MARK_NAME
    mark.unlink()
    if left == "folder":
        mark.mkdir()
    elif left == "link":
        mark.symlink_to(data.output(ReplicaKey(7, 1, 0)))
    else:
        mark.write_bytes(left)
    assert mark_of(data.job(7)) == "unmarked"
    ran(data, FIRST, 2)
    assert sorted(path.name for path in data.job(7).parent.iterdir()) == ["7", "7.unmarked"]


def test_a_lock_that_another_process_keeps_is_an_error_not_a_wait_without_end(data, monkeypatch):
    monkeypatch.setattr(jobfolders, "LOCK_WAIT_S", 0.02)
    descriptor = os.open(data.job(7).parent, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(OSError, match="another process holds the lock"):
            ran(data, FIRST)
    finally:
        os.close(descriptor)
    ran(data, FIRST)


def test_a_mark_is_as_the_core_writes_it(data):
    w = cluster(1, 1)
    job = w.state.jobs[w.submit(1)]
    mark = Identity(begun_by("server", 1)).mark(job)
    ran(data, mark)
    assert mark_of(data.job(7)) == mark


def test_the_record_is_that_of_the_training_library():
    assert fence.MARKER_NAME == ATTEMPT_RECORD
