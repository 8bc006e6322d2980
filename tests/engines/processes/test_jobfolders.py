"""Folders of jobs: each job finds its own, whatever has happened to the log, and nothing is deleted."""

from pathlib import Path

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.engines.processes.jobfolders import ATTEMPT_RECORD, mark_of, prepare_folder
from penstock.engines.processes.paths import DataFolder
from penstock.training.storage import fence
from tests.engines.agent.builders import start


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
        ran(data, "c-1", attempt, rank)
    assert saved(data) == {"by-c-1"}
    assert [path.name for path in data.job(7).parent.iterdir()] == ["7"]


def test_a_job_of_the_same_number_finds_nothing_of_another_and_nothing_is_lost(data):
    ran(data, "c-1")
    ran(data, "d-1")
    assert saved(data) == {"by-d-1"}
    assert data.outputs(7) == [(1, 0, data.job(7) / "attempt-1.rank-0.log")]
    assert (data.job(7).parent / "7.c-1" / "checkpoints" / "by-c-1").exists()


def test_a_job_finds_its_own_again_after_a_return_to_its_log(data):
    ran(data, "c-1")
    ran(data, "d-1")
    ran(data, "c-1", 2)
    assert saved(data) == {"by-c-1"}
    assert sorted(path.name for path in data.job(7).parent.iterdir()) == ["7", "7.d-1"]


def test_an_unmarked_folder_is_taken_over_only_where_it_may_be_the_jobs(data):
    data.checkpoints(7).mkdir(parents=True)
    (data.checkpoints(7) / "old").touch()
    ran(data, "c-1", 2, unmarked=True)
    assert (saved(data), mark_of(data.job(7))) == ({"old", "by-c-1"}, "c-1")


def test_an_unmarked_folder_of_unknown_origin_is_moved_aside(data):
    for _ in range(2):
        data.checkpoints(7).mkdir(parents=True, exist_ok=True)
        ran(data, "c-1")
        (data.job(7) / "job").unlink()
    data.checkpoints(7).mkdir(exist_ok=True)
    ran(data, "c-2")
    assert saved(data) == {"by-c-2"}
    names = sorted(path.name for path in data.job(7).parent.iterdir())
    assert names == ["7", "7.unmarked", "7.unmarked.2", "7.unmarked.3"]


def test_without_a_mark_folders_are_left_as_they_are(data):
    data.checkpoints(7).mkdir(parents=True)
    prepare_folder(data, start(ReplicaKey(7, 1, 0)))
    assert mark_of(data.job(7)) == "unmarked"


def test_a_half_made_folder_is_finished(data):
    (data.job(7).parent / ".7.new").mkdir()
    ran(data, "c-1")
    assert [path.name for path in data.job(7).parent.iterdir()] == ["7"]


def test_a_restored_job_keeps_its_checkpoints_and_may_save_again(data):
    for attempt in (1, 2, 3, 4):
        ran(data, "c-1", attempt)
    prepare_folder(data, start(ReplicaKey(7, 2, 0), mark="c-1"))
    assert saved(data) == {"by-c-1"}
    assert not (data.checkpoints(7) / ATTEMPT_RECORD).exists()
    assert [attempt for attempt, _, _ in data.outputs(7)] == [1]
    kept = sorted(path.read_text() for path in data.job(7).glob("restored.*"))
    assert kept == ["c-1 2", "c-1 3", "c-1 4"]


def test_the_record_of_the_highest_attempt_stays_where_nothing_was_restored(data):
    ran(data, "c-1", 1)
    prepare_folder(data, start(ReplicaKey(7, 2, 0), mark="c-1"))
    assert (data.checkpoints(7) / ATTEMPT_RECORD).read_text() == "1\n"


def test_the_record_is_that_of_the_training_library():
    assert fence.MARKER_NAME == ATTEMPT_RECORD
