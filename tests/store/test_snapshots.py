"""Snapshots only save time: whatever is wrong with one, the log alone gives the same state."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

from penstock.core.errors import StoreError
from penstock.core.planner import plan
from penstock.core.snapshot import take_snapshot
from penstock.core.state import fold
from penstock.store.sqlite import SNAPSHOTS_KEPT, SqliteStore
from tests.core.histories import operations, play, small_world
from tests.store.builders import image_of, records, restarted, same


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A log of eight records with snapshots after three and six of them."""
    made = SqliteStore(tmp_path / "log")
    made.append(records(1, 8), [], made.acquire_epoch())
    for seq in (3, 6):
        made.save_snapshot(image_of(records(1, seq)))
    yield made
    made.close()


@pytest.fixture
def snapshots(store: SqliteStore, tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "log" / "snapshots").iterdir())


def used(store: SqliteStore) -> int:
    """Return the number of the snapshot that a start uses; the state must be that of the log anyway."""
    assert same(restarted(store), fold(records(1, 8)))
    image, _ = store.load()
    return image.seq if image else 0


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # a counter: what is left is a well-formed image of another state
    path.write_bytes(data)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def test_the_newest_whole_snapshot_is_used(store):
    assert used(store) == 6


@pytest.mark.parametrize("damage", [_torn, _flipped, _empty, Path.unlink])
def test_a_damaged_snapshot_is_passed_over(store, snapshots, damage):
    damage(snapshots[-1])
    assert used(store) == 3
    damage(snapshots[0])
    assert used(store) == 0


def test_a_snapshot_of_another_shape_is_passed_over(store, snapshots):
    import hashlib

    body = b"\x81\xa3seq\xa1x"
    snapshots[-1].write_bytes(hashlib.sha256(body).digest() + body)
    assert used(store) == 3


def test_a_snapshot_ahead_of_the_log_is_passed_over(store):
    store.save_snapshot(image_of(records(1, 9)))
    assert used(store) == 6


def test_what_a_kill_left_of_a_snapshot_does_no_harm(store, snapshots):
    snapshots[-1].with_name("00000000000000000007.tmp").write_bytes(b"half")
    assert used(store) == 6


def test_only_the_newest_snapshots_are_kept(store, tmp_path):
    for seq in (7, 8):
        store.save_snapshot(image_of(records(1, seq)))
    names = sorted(int(p.name) for p in (tmp_path / "log" / "snapshots").iterdir())
    assert names == [7, 8][-SNAPSHOTS_KEPT:]


def test_a_snapshot_that_cannot_be_written_is_an_error_and_changes_nothing(store, tmp_path):
    (tmp_path / "log" / "snapshots" / f"{8:020d}").mkdir()
    with pytest.raises(StoreError, match="could not be written"):
        store.save_snapshot(image_of(records(1, 8)))
    (tmp_path / "log" / "snapshots" / f"{8:020d}").rmdir()
    assert used(store) == 6
    assert not list((tmp_path / "log" / "snapshots").glob("*.tmp"))


@settings(max_examples=10, deadline=None)
@given(history=operations)
def test_a_snapshot_anywhere_in_a_history_gives_the_same_state(history, tmp_path_factory):
    world = play(small_world(), history)
    store = SqliteStore(tmp_path_factory.mktemp("log"))
    store.append(world.records, [], store.acquire_epoch())
    middle = len(world.records) // 2
    store.save_snapshot(image_of(world.records[:middle]))
    found = restarted(store)
    assert same(found, world.state)
    assert plan(take_snapshot(found), world.now).starts == world.plan().starts
    store.close()
