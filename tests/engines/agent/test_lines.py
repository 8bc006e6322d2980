"""Lines on a full disk: room is kept for them; what has none waits, in its order, and no line is torn or lost."""

import errno
import os

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.diskroom import FULL_BYTES
from penstock.engines.agent import lines
from penstock.engines.agent.disk import DiskWatch
from penstock.engines.agent.journal import Journal, JournalLine, replay
from penstock.engines.agent.lines import HELD_MAX, ROOM_BYTES, LineFile
from tests.smalldisk import small_file_system

KEYS = [ReplicaKey(1, 1, rank) for rank in range(3)]


@pytest.fixture
def small_disk(tmp_path):
    with small_file_system(tmp_path / "disk", "4m") as folder:
        yield folder


class Disk:
    """Stands before `os.write`: takes so many bytes more, then refuses with an error."""

    def __init__(self, monkeypatch, number=errno.ENOSPC) -> None:
        self.room, self.number, self._real = 1 << 30, number, os.write
        monkeypatch.setattr(lines.os, "write", self._write)

    def _write(self, descriptor, data):
        if not self.room:
            raise OSError(self.number, os.strerror(self.number))
        written = self._real(descriptor, data[: self.room])
        self.room -= written
        return written


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def fill(folder):
    free_bytes = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "ballast").write_bytes(bytes(free_bytes))
    with pytest.raises(OSError, match="No space"):
        (folder / "more").write_bytes(b"x")


@pytest.mark.root
def test_on_a_full_disk_there_is_room_for_what_runs(small_disk):
    journal = Journal(small_disk / "journal")
    journal.write(JournalLine(KEYS[0], "spawning"))
    fill(small_disk)
    line = JournalLine(KEYS[1], "spawning", problem="x" * 200)
    for _ in range(ROOM_BYTES // 400):
        journal.announce(line)
    assert journal.problem == "No space left on device"  # for half of what was kept is used up
    assert set(replay(small_disk / "journal")) == {KEYS[0], KEYS[1]}


@pytest.mark.root
def test_a_disk_is_full_until_there_is_more_than_a_little_room(small_disk):
    watch = DiskWatch(small_disk, Journal(small_disk / "journal"))
    assert watch.problem() == ""
    fill(small_disk)
    assert watch.problem() == "its disk is full: 0 B are free"
    os.truncate(small_disk / "ballast", os.path.getsize(small_disk / "ballast") - 2 * FULL_BYTES)
    assert watch.problem() == "its disk is full: 512 KiB are free"
    (small_disk / "ballast").unlink()
    assert watch.problem() == ""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("room", [0, 3, 20])
def test_what_cannot_be_written_comes_later_in_its_order(tmp_path, disk, room, number):
    file = LineFile(tmp_path / "lines")
    file.write(b"before\n")
    disk.room, disk.number = room, number
    for name in (b"one\n", b"two\n"):
        assert file.write(name) is (room == 20)
    disk.room = 1 << 20
    assert file.problem == ("" if room == 20 else os.strerror(number))
    file.tend()
    assert (file.problem, (tmp_path / "lines").read_bytes()) == ("", b"before\none\ntwo\n")


@pytest.mark.parametrize("room", range(6))
def test_what_must_be_written_at_once_is_given_up_and_spoils_no_other_line(tmp_path, disk, room):
    file = LineFile(tmp_path / "lines")
    disk.room = room
    assert not file.write(b"given up\n", held=False)
    disk.room = 1 << 20
    file.write(b"next\n")
    assert (tmp_path / "lines").read_bytes() == b"given up\n"[:room] + b"\n" * bool(room) + b"next\n"


def test_a_disk_that_takes_nothing_and_says_no_error_is_full(tmp_path, monkeypatch):
    file = LineFile(tmp_path / "lines")
    monkeypatch.setattr(lines.os, "write", lambda *_: 0)
    assert not file.write(b"waits\n")
    assert file.problem == "No space left on device"


def test_nothing_overtakes_what_waits(tmp_path, disk):
    file = LineFile(tmp_path / "lines")
    disk.room = 0
    file.write(b"waits\n")
    assert not file.write(b"given up\n", held=False)
    disk.room = 1 << 20
    assert file.write(b"last\n", held=False)
    assert (tmp_path / "lines").read_bytes() == b"waits\nlast\n"


def test_as_many_lines_wait_as_are_named(tmp_path, disk):
    file = LineFile(tmp_path / "lines")
    disk.room = 0
    for number in range(HELD_MAX + 5):
        file.write(b"%d\n" % number)
    disk.room = 1 << 30
    file.tend()
    assert (tmp_path / "lines").read_bytes().split() == [b"%d" % number for number in range(HELD_MAX)]


def test_a_file_that_cannot_be_opened_is_opened_later(tmp_path):
    file = LineFile(tmp_path / "missing" / "lines")
    assert not file.write(b"waits\n")
    assert file.problem == "No such file or directory"
    (tmp_path / "missing").mkdir()
    file.tend()
    assert (tmp_path / "missing" / "lines").read_bytes() == b"waits\n"


@pytest.mark.parametrize("cut", range(0, 90, 7))
def test_a_line_that_was_cut_takes_no_neighbour_with_it(tmp_path, cut):
    path, journal = tmp_path / "journal", Journal(tmp_path / "journal")
    journal.write(JournalLine(KEYS[0], "spawning"))
    with path.open("ab") as file:  # as a former version did
        file.write(b'{"key":{"job_id":1,"attempt":1,"rank":1},"what":"spawning","limits":{}}'[:cut])
    journal.write(JournalLine(KEYS[2], "spawning"))
    assert {KEYS[0], KEYS[2]} <= set(replay(path))


def test_a_journal_that_cannot_be_compacted_stays_as_it_is(tmp_path, monkeypatch):
    Journal(tmp_path / "journal").write(JournalLine(KEYS[0], "spawning"))

    def refused(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("penstock.engines.agent.journal.write_whole", refused)
    assert set(Journal(tmp_path / "journal").known) == set(replay(tmp_path / "journal")) == {KEYS[0]}
