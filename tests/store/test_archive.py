"""A backup is whole or not there, of one moment, and gives the same log in any store; restoring is all or nothing."""

import json
import os
import stat
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.model.errors import InvalidInput, StoreError
from penstock.store import archive
from penstock.store.address import Address, copy_of, restoring
from penstock.store.archive import restore_archive, write_archive
from penstock.store.copying import NotEmpty
from tests.store.builders import finished, image_of, kept, records
from tests.store.places import KINDS, NAMES, Place, PostgresPlace, SqlitePlace, opened
from tests.store.test_migrations import make_old


@pytest.fixture(params=KINDS, ids=[f"into {name}" for name in NAMES])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Another place, empty."""
    yield from opened(request.param, tmp_path / "other")


def at(place: Place) -> Address:
    if isinstance(place, SqlitePlace):
        return Address(place.folder)
    return Address(Path("/nowhere"), place.url)


def filled(place: Place, count: int = 30):
    """Return a log with finished jobs, a snapshot and a third term."""
    store = place.open()
    term = [store.acquire_epoch() for _ in range(3)][-1]
    store.append(records(1, count), [finished(1), finished(3, "failed")], term)
    store.save_snapshot(image_of(records(1, 20)))
    return store


def backed_up(place: Place, file: Path) -> archive.ArchiveManifest:
    with copy_of(at(place)) as log:
        return write_archive(file, log, program="test", made_ms=7)


def restored(file: Path, place: Place) -> archive.ArchiveManifest:
    with restoring(at(place)) as target:
        return restore_archive(file, target)


def test_a_backup_restored_anywhere_is_the_same_log(place, other, tmp_path):
    filled(place)
    backed_up(place, tmp_path / "b.zip")
    restored(tmp_path / "b.zip", other)
    store = other.open()
    image, tail = store.load()
    assert (image, list(tail)) == (image_of(records(1, 20)), records(21, 30))
    assert list(store.tail(0)) == records(1, 30)
    assert store.finished_jobs(9) == [finished(3, "failed"), finished(1)]
    assert store.records_of_job(7) == records(7, 7)
    assert store.acquire_epoch() == 4


def test_an_empty_log_can_be_backed_up_and_restored(place, other, tmp_path):
    place.open()
    assert backed_up(place, tmp_path / "b.zip").last_seq == 0
    restored(tmp_path / "b.zip", other)
    assert kept(other.open()) == []


def test_a_backup_is_restored_where_an_older_program_has_made_its_tables(place, tmp_path):
    filled(place)
    backed_up(place, tmp_path / "backup")
    for old in opened(PostgresPlace, tmp_path):
        make_old(old)
        restored(tmp_path / "backup", old)
        assert list(old.open().tail(0)) == records(1, 30)


def test_the_manifest_says_what_is_in_it(place, tmp_path):
    filled(place)
    backed_up(place, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as file:
        manifest = json.loads(file.read("manifest.json"))
        sizes = {name: len(file.read(name)) for name in manifest["members"]}
    assert {k: manifest[k] for k in ("format", "program", "made_ms", "epoch", "last_seq")} == {
        "format": 2,
        "program": "test",
        "made_ms": 7,
        "epoch": 3,
        "last_seq": 30,
    }
    assert {name: member["rows"] for name, member in manifest["members"].items()} == {
        "events.rows": 30,
        "finished.rows": 2,
        "snapshot": 0,
    }
    assert sizes == {name: member["bytes"] for name, member in manifest["members"].items()}


def test_a_backup_is_of_one_moment_while_the_log_grows(place, other, tmp_path):
    """Job n ends in record n, so a torn backup would hold one without the other."""
    store = place.open()
    term, over = store.acquire_epoch(), threading.Event()

    def grow() -> None:
        seq = 0
        while not over.is_set():
            seq += 1
            store.append(records(seq, seq), [finished(seq)], term)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        while not store.records(50, 1):
            pass
        found = [backed_up(place, tmp_path / f"{i}.zip") for i in range(5)]
    finally:
        over.set()
        writer.join()
    for manifest in found:
        assert manifest.members["events.rows"].rows == manifest.members["finished.rows"].rows == manifest.last_seq
    assert found[-1].last_seq > found[0].last_seq >= 50
    restored(tmp_path / "4.zip", other)
    assert kept(other.open()) == records(1, found[-1].last_seq)


def test_a_backup_is_private_and_replaces_nothing(place, tmp_path):
    filled(place)
    backed_up(place, tmp_path / "b.zip")
    assert stat.S_IMODE((tmp_path / "b.zip").stat().st_mode) == 0o600
    before = (tmp_path / "b.zip").read_bytes()
    with pytest.raises(NotEmpty, match="exists already"):
        backed_up(place, tmp_path / "b.zip")
    assert (tmp_path / "b.zip").read_bytes() == before


def test_a_backup_that_fails_leaves_no_file(place, tmp_path, monkeypatch):
    filled(place)
    monkeypatch.setattr(archive.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    folder = tmp_path / "backups"
    folder.mkdir()
    with pytest.raises(StoreError, match="could not be written: No space left"):
        backed_up(place, folder / "b.zip")
    assert list(folder.iterdir()) == []


def test_a_log_with_a_gap_is_not_backed_up(place, tmp_path):
    store = place.open()
    term = store.acquire_epoch()
    store.append(records(1, 2), [], term)
    store.append(records(4, 4), [], term)
    with pytest.raises(StoreError, match="record 3 is expected, and 4 comes there"):
        backed_up(place, tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()


def test_where_there_is_a_log_nothing_is_restored(place, other, tmp_path):
    filled(place)
    backed_up(place, tmp_path / "b.zip")
    store = other.open()
    store.append(records(1, 1), [], store.acquire_epoch())
    with pytest.raises(NotEmpty, match=r"is not empty|there is a log at"):
        restored(tmp_path / "b.zip", other)
    assert kept(store) == records(1, 1)


DAMAGES = {
    "cut off": lambda data: data[: len(data) // 2],
    "a flipped bit": lambda data: data[:300] + bytes([data[300] ^ 4]) + data[301:],
    "no archive": lambda _: b"hello",
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_backup_is_refused_and_leaves_nothing(other, tmp_path, damage):
    for place in opened(SqlitePlace, tmp_path / "from"):
        filled(place, 200)
        backed_up(place, tmp_path / "b.zip")
    data = (tmp_path / "b.zip").read_bytes()
    (tmp_path / "b.zip").write_bytes(DAMAGES[damage](data))
    with pytest.raises(InvalidInput):
        restored(tmp_path / "b.zip", other)
    nothing_is_left(other)


def nothing_is_left(place: Place) -> None:
    if isinstance(place, SqlitePlace):
        assert list(place.folder.parent.glob("*")) == []
    else:
        assert place.ask("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []


def _rewritten(file: Path, **changed: bytes | None) -> None:
    """Change members of an archive, its own checksums right again."""
    with zipfile.ZipFile(file) as archive_:
        members = {name: archive_.read(name) for name in archive_.namelist()}
    for name, data in changed.items():
        members[name.replace("_", ".")] = data or b""
    with zipfile.ZipFile(file, "w") as archive_:
        for name, data in members.items():
            archive_.writestr(name, data)


@pytest.mark.parametrize("member", ["events_rows", "finished_rows", "snapshot"])
def test_a_member_that_is_not_what_the_manifest_says_is_refused(other, tmp_path, member):
    for place in opened(SqlitePlace, tmp_path / "from"):
        filled(place)
        backed_up(place, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as file:
        data = file.read(member.replace("_", "."))
    last = data[:-1] + bytes([data[-1] ^ 1])
    _rewritten(tmp_path / "b.zip", **{member: last})
    with pytest.raises((InvalidInput, StoreError)):
        restored(tmp_path / "b.zip", other)
    nothing_is_left(other)


def test_the_backup_of_a_newer_program_is_refused(other, tmp_path):
    for place in opened(SqlitePlace, tmp_path / "from"):
        filled(place)
        manifest = backed_up(place, tmp_path / "b.zip")
    newer = json.dumps({**json.loads(json.dumps(_plain(manifest))), "format": 3, "program": "9.9"}).encode()
    _rewritten(tmp_path / "b.zip", manifest_json=newer)
    with pytest.raises(InvalidInput, match="has format 3") as refused:
        restored(tmp_path / "b.zip", other)
    assert "9.9" in refused.value.hint
    nothing_is_left(other)


def _plain(manifest: archive.ArchiveManifest):
    import msgspec

    return msgspec.to_builtins(manifest)


def test_a_restore_that_is_killed_leaves_nothing_that_opens_as_a_log(place, tmp_path):
    """Until its end there is only a folder beside, or a transaction that goes with its session."""
    filled(place)
    backed_up(place, tmp_path / "b.zip")
    for kind in KINDS:
        for target in opened(kind, tmp_path / kind.__name__):
            pid = os.fork()
            if pid == 0:
                with restoring(at(target)) as filling:
                    restore_archive(tmp_path / "b.zip", filling)
                    os._exit(9)
            os.waitpid(pid, 0)
            if isinstance(target, PostgresPlace):
                assert target.ask("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []
            else:
                assert not target.folder.exists()
            restored(tmp_path / "b.zip", target)
            assert list(target.open().tail(0)) == records(1, 30)
            if isinstance(target, SqlitePlace):
                assert list(target.folder.parent.iterdir()) == [target.folder]
