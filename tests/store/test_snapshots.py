"""Snapshots only save time: whatever is wrong with one, the log alone gives the same state."""

import hashlib
from typing import Any

import pytest
from hypothesis import given

from penstock.core.cycle.planner import plan
from penstock.core.model.errors import StoreError
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.state import fold
from penstock.store.sqlite import SNAPSHOTS_KEPT
from tests.core.histories import operations, play, small_world
from tests.properties import examples
from tests.store.builders import image_of, records, restarted, same
from tests.store.places import KINDS, NAMES, Place, SqlitePlace, opened


@pytest.fixture
def store(place: Place) -> Any:
    """A log of eight records with snapshots after three and six of them."""
    made = place.open()
    made.append(records(1, 8), [], made.acquire_epoch())
    for seq in (3, 6):
        made.save_snapshot(image_of(records(1, seq)))
    return made


def used(store: Any) -> int:
    """Return the number of the snapshot that a start uses; the state must be that of the log anyway."""
    assert same(restarted(store), fold(records(1, 8)))
    image, _ = store.load()
    return image.seq if image else 0


def _torn(data: bytes) -> bytes:
    return data[:-5]


def _flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])  # a counter: what is left is a well-formed image of another state


def _empty(_: bytes) -> bytes:
    return b""


def _gone(_: bytes) -> None:
    return None


def test_the_newest_whole_snapshot_is_used(store):
    assert used(store) == 6


@pytest.mark.parametrize("damage", [_torn, _flipped, _empty, _gone])
def test_a_damaged_snapshot_is_passed_over(store, place, damage):
    place.put_snapshot(6, damage(place.snapshot(6)))
    assert used(store) == 3
    place.put_snapshot(3, damage(place.snapshot(3)))
    assert used(store) == 0


def test_a_snapshot_of_another_shape_is_passed_over(store, place):
    body = b"\x81\xa3seq\xa1x"
    place.put_snapshot(6, hashlib.sha256(body).digest() + body)
    assert used(store) == 3


def test_a_snapshot_ahead_of_the_log_is_passed_over(store):
    store.save_snapshot(image_of(records(1, 9)))
    assert used(store) == 6


def test_only_the_newest_snapshots_are_kept(store, place):
    for seq in (7, 8):
        store.save_snapshot(image_of(records(1, seq)))
    assert place.snapshots() == [7, 8][-SNAPSHOTS_KEPT:]


@pytest.mark.parametrize("place", [SqlitePlace], indirect=True)
def test_what_a_kill_left_of_a_snapshot_does_no_harm(store, place):
    (place.folder / "snapshots" / "00000000000000000007.tmp").write_bytes(b"half")
    assert used(store) == 6


@pytest.mark.parametrize("place", [SqlitePlace], indirect=True)
def test_a_snapshot_that_cannot_be_written_is_an_error_and_changes_nothing(store, place):
    folder = place.folder / "snapshots"
    (folder / f"{8:020d}").mkdir()
    with pytest.raises(StoreError, match="could not be written"):
        store.save_snapshot(image_of(records(1, 8)))
    (folder / f"{8:020d}").rmdir()
    assert used(store) == 6
    assert not list(folder.glob("*.tmp"))


@examples(10)
@given(history=operations)
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_a_snapshot_anywhere_in_a_history_gives_the_same_state(kind, history, tmp_path_factory):
    world = play(small_world(), history)
    for place in opened(kind, tmp_path_factory.mktemp("log")):
        store = place.open()
        store.append(world.records, [], store.acquire_epoch())
        middle = len(world.records) // 2
        store.save_snapshot(image_of(world.records[:middle]))
        found = restarted(store)
        assert same(found, world.state)
        assert plan(take_snapshot(found), world.now).starts == world.plan().starts
