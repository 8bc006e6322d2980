"""What is kept of submitters' folders: nobody's for others, whole or not at all, while it is needed."""

import contextlib
import sqlite3

import pytest

from penstock.core.model import folder_snapshots as fs
from penstock.core.model.errors import InvalidInput, StoreError, StoreFull
from penstock.core.model.folder_snapshots import SnapshotFile
from penstock.store import folder_snapshots as kept_in
from penstock.store.folder_snapshots import FolderSnapshots, NoRoom, NoSnapshot, StillUsed, holder

ANN = holder("ann", delegated=False, only=())
BEN = holder("ben", delegated=False, only=())
HOUR, DAY = 3_600_000, 86_400_000


class World:
    """Snapshots whose clock and live jobs are set by hand."""

    def __init__(self, root, quota_bytes=kept_in.QUOTA_BYTES):
        self.now = 100 * DAY
        self.kept = FolderSnapshots(root / "folders", lambda: self.now, quota_bytes=quota_bytes)
        self.live: set[str] = set()
        self.kept.held = lambda: self.live

    def sends(self, *contents: bytes, by=ANN) -> str:
        """Send a snapshot with these contents, and return its name."""
        files = listed(*contents)
        name = named(files)
        for _ in range(2):
            found = self.kept.declare(by, name, files, ())
            if found.complete:
                return name
            self.kept.add(by, [data for data in contents if fs.chunk_hash(data) in found.missing])
        raise AssertionError(f"never complete: {found}")


def listed(*contents: bytes) -> fs.Files:
    return tuple(SnapshotFile(f"f{i}", "file", len(c), (fs.chunk_hash(c),)) for i, c in enumerate(contents))


def named(files: fs.Files) -> str:
    return fs.name_of(fs.encoded(files))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_what_is_missing_is_named_and_then_it_is_complete(world):
    files = listed(b"one", b"two")
    name = named(files)
    world.kept.add(ANN, [b"one"])
    assert world.kept.declare(ANN, name, files, ()).missing == (fs.chunk_hash(b"two"),)
    assert not world.kept.has(ANN, name)
    assert world.kept.add(ANN, [b"two", b"one"]) == 3
    assert world.kept.declare(ANN, name, files, ()).complete
    assert world.kept.has(ANN, name)
    assert world.kept.contents(ANN, name, [1, 0], 100) == [b"two", b"one"]


def test_changes_of_a_known_snapshot_are_enough(world):
    first = world.sends(b"one", b"two")
    files = listed(b"one", b"new")
    changed, removed = fs.changed(files, listed(b"one", b"two"))
    assert world.kept.declare(ANN, named(files), changed, removed, first).missing == (fs.chunk_hash(b"new"),)
    assert not world.kept.declare(ANN, named(files), changed, removed, "0" * 64).base_known


def test_nobody_has_what_another_has_sent(world):
    name = world.sends(b"secret of ann")
    files = listed(b"secret of ann")
    for other in (BEN, holder("ann", delegated=True, only=()), holder("ann", delegated=False, only=("a",))):
        assert not world.kept.has(other, name)
        assert world.kept.declare(other, name, files, ()).missing == files[0].chunks
        with pytest.raises(NoSnapshot):
            world.kept.files(other, name)
        with pytest.raises(NoSnapshot):
            world.kept.contents(other, name, [0], 100)


def test_a_list_of_another_name_is_refused(world):
    with pytest.raises(InvalidInput, match="are those of snapshot"):
        world.kept.declare(ANN, "0" * 64, listed(b"x"), ())


def test_a_chunk_of_another_size_is_refused(world):
    world.kept.add(ANN, [b"four"])
    files = (SnapshotFile("f", "file", 5, (fs.chunk_hash(b"four"),)),)
    with pytest.raises(InvalidInput, match="a chunk of 4 bytes, said to be 5"):
        world.kept.declare(ANN, named(files), files, ())


def test_a_part_has_at_least_one_chunk_and_no_more_than_fits(world):
    name = world.sends(b"a" * 60, b"b" * 60, b"c")
    assert world.kept.contents(ANN, name, [0, 1, 2], 100) == [b"a" * 60]
    assert world.kept.contents(ANN, name, [1], 10) == [b"b" * 60]
    with pytest.raises(InvalidInput, match="has 3 chunks"):
        world.kept.contents(ANN, name, [3], 100)


def test_what_a_live_job_has_stays_and_what_is_unused_goes(world):
    live, idle = world.sends(b"live"), world.sends(b"idle")
    world.live = {f"{ANN}/{live}"}
    world.now += kept_in.KEPT_MS + 1
    assert world.kept.clean() == len(b"idle")
    assert world.kept.has(ANN, live)
    assert not world.kept.has(ANN, idle)


def test_asking_for_a_snapshot_counts_as_use(world):
    name = world.sends(b"x")
    world.now += kept_in.KEPT_MS - HOUR
    assert world.kept.has(ANN, name)
    world.now += 2 * HOUR
    assert world.kept.clean() == 0


def test_a_partial_upload_stays_for_an_hour(world):
    world.kept.add(ANN, [b"part"])
    world.now += HOUR
    assert world.kept.clean() == 0
    world.now += 1
    assert world.kept.clean() == len(b"part")


def test_the_longest_unused_snapshots_make_room(tmp_path):
    world = World(tmp_path, quota_bytes=1_000)
    oldest, live = world.sends(b"o" * 300), world.sends(b"l" * 300)
    world.live = {f"{ANN}/{live}"}
    world.now += 2 * HOUR
    newest = world.sends(b"n" * 300)
    assert [world.kept.has(ANN, one) for one in (oldest, live, newest)] == [False, True, True]


def test_without_room_nothing_is_removed_and_numbers_are_named(tmp_path):
    world = World(tmp_path, quota_bytes=1_000)
    held = [world.sends(byte * 300) for byte in (b"a", b"b")]
    world.live = {f"{ANN}/{one}" for one in held}
    world.now += 2 * HOUR
    with pytest.raises(NoRoom, match="over 1000"):
        world.sends(b"c" * 500)
    assert all(world.kept.has(ANN, one) for one in held)


def test_a_disk_that_is_nearly_full_is_kept_for_the_log(world, monkeypatch):
    monkeypatch.setattr(kept_in, "KEPT_FREE_BYTES", 2**60)
    with pytest.raises(StoreFull, match="kept for its log"):
        world.sends(b"x")
    with pytest.raises(StoreFull):
        world.sends(b"x")


def test_one_holder_takes_no_room_of_another(tmp_path):
    world = World(tmp_path, quota_bytes=1_000)
    mine, theirs = world.sends(b"a" * 800), world.sends(b"b" * 800, by=BEN)
    assert (world.kept.has(ANN, mine), world.kept.has(BEN, theirs)) == (True, True)


def test_a_request_that_fails_leaves_nothing(world):
    name = world.sends(b"x")
    with pytest.raises(StoreError), world.kept._open(ANN) as db:  # noqa: PT012 - both belong to it
        db.execute("DELETE FROM snapshots")
        db.execute("SELECT nothing")
    assert world.kept.has(ANN, name)


def test_a_file_that_is_broken_is_an_error_of_the_store(world):
    name = world.sends(b"x")
    world.kept._path(ANN).write_bytes(b"no database at all, and long enough to be looked at" * 100)
    with pytest.raises(StoreError):
        world.kept.has(ANN, name)


def test_a_holder_lists_what_is_kept_and_removes_what_nobody_needs(tmp_path):
    w = World(tmp_path)
    first, second = w.sends(b"one", b"and"), w.sends(b"two")
    w.now += HOUR
    w.sends(b"two")
    assert [(one.name, one.files, one.bytes) for one in w.kept.listed(ANN)] == [(second, 1, 3), (first, 2, 6)]
    assert w.kept.listed(BEN) == []
    assert not (tmp_path / "folders" / BEN).exists()
    with pytest.raises(NoSnapshot):
        w.kept.remove(BEN, first)
    w.kept.remove(ANN, first)
    assert [one.name for one in w.kept.listed(ANN)] == [second]
    with pytest.raises(NoSnapshot):
        w.kept.remove(ANN, first)
    w.now += HOUR
    assert w.kept.clean() == 6


def test_what_jobs_need_or_a_submit_may_need_is_not_removed(tmp_path):
    w = World(tmp_path)
    name = w.sends(b"one")
    w.now += kept_in.SUBMIT_MS - 500
    with pytest.raises(StillUsed, match="a moment ago") as refused:
        w.kept.remove(ANN, name)
    assert refused.value.hint == "try again in 1 s"
    w.now += 500
    w.live = {f"{ANN}/{name}"}
    with pytest.raises(StillUsed, match="needed by live jobs"):
        w.kept.remove(ANN, name)
    w.live = {f"{BEN}/{name}"}
    w.kept.remove(ANN, name)


def test_a_file_of_the_former_form_is_read_and_lists_what_is_known(tmp_path):
    w = World(tmp_path)
    name = w.sends(b"one")
    with contextlib.closing(sqlite3.connect(tmp_path / "folders" / ANN / "snapshots.sqlite")) as db, db:
        for column in ("count", "bytes"):
            db.execute(f"ALTER TABLE snapshots DROP COLUMN {column}")
        db.execute("PRAGMA user_version = 1")
    assert w.kept.has(ANN, name)
    assert [(one.name, one.files, one.bytes) for one in w.kept.listed(ANN)] == [(name, 0, 0)]
    assert w.kept.files(ANN, w.sends(b"new"))
