"""The agent's notes: what a killed worker wrote, the next one knows, half a line notwithstanding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.jobs import CheckpointSpec, ExitInfo
from penstock.core.model.resources import Resources
from penstock.engines.agent.journal import (
    EXITS_KEPT_MAX,
    GUARDIAN,
    WORKER,
    ExitBook,
    Journal,
    JournalLine,
    replay,
)

KEYS = [ReplicaKey(1, 1, rank) for rank in range(2)]
SAVING = CheckpointSpec(request_signal="SIGUSR1")
STORY = [
    JournalLine(KEYS[0], "spawning", checkpoint=SAVING, limits=Resources(2_000)),
    JournalLine(KEYS[0], "started", 11, 22),
    JournalLine(KEYS[0], "stopping", kill_at_ms=900),
    JournalLine(KEYS[0], "exited", exit=ExitInfo(3)),
    JournalLine(KEYS[0], "forgotten"),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


def written(path, lines) -> Journal:
    journal = Journal(path)
    for line in lines:
        journal.write(line)
    journal.close()
    return journal


@pytest.mark.parametrize("steps", range(1, 6))
def test_the_next_worker_knows_every_step(path, steps):
    written(path, STORY[:steps])
    known = replay(path).get(KEYS[0])
    assert (known is None) == (steps == 5)
    if known is not None:
        assert (known.what, known.checkpoint, known.limits) == (STORY[steps - 1].what, SAVING, Resources(2_000))
        assert (known.pid, known.ticks) == ((11, 22) if steps > 1 else (0, 0))
        assert (known.stopping, known.kill_at_ms) == ((True, 900) if steps > 2 else (False, 0))
        assert known.exit == (ExitInfo(3) if steps > 3 else None)


def test_a_worker_without_a_journal_knows_nothing(path):
    assert replay(path) == {}


@given(cut=st.integers(0, 700))
def test_a_kill_in_the_middle_of_a_line_loses_at_most_that_line(cut, tmp_path_factory):
    path = tmp_path_factory.mktemp("node") / "journal"
    written(path, STORY[:4])
    data = path.read_bytes()
    path.write_bytes(data[: min(cut, len(data))])
    whole = data[: min(cut, len(data))].count(b"\n")
    whole += data[:cut].endswith(b"}") and data[cut : cut + 1] == b"\n"
    known = replay(path)
    assert (known[KEYS[0]].what if known else None) == (STORY[whole - 1].what if whole else None)


def test_what_is_written_after_half_a_line_is_not_lost(path):
    written(path, STORY[:2])
    with path.open("ab") as file:
        file.write(b'{"key":{"job_id":1,"att')
    written(path, [JournalLine(KEYS[1], "spawning")])
    assert {k: v.what for k, v in replay(path).items()} == {KEYS[0]: "started", KEYS[1]: "spawning"}


@pytest.mark.parametrize("steps", range(1, 6))
def test_compaction_changes_nothing_that_is_known(path, steps):
    written(path, STORY[:steps])
    before = replay(path)
    written(path, [])
    assert replay(path) == before


def test_compaction_drops_what_is_forgotten(path):
    written(path, STORY)
    written(path, [])
    assert path.read_bytes() == b""


def test_an_exit_is_told_by_process_and_start_time(tmp_path):
    ExitBook(tmp_path / "exits").add(11, 22, 3, None)
    ExitBook(tmp_path / "exits").add(11, 99, None, 9)
    book = ExitBook(tmp_path / "exits")
    book.refresh()
    assert book.exits == {(11, 22): (3, None), (11, 99): (None, 9)}


def test_an_exit_is_told_once(tmp_path):
    book = ExitBook(tmp_path / "exits")
    book.refresh()
    book.add(11, 22, 0, None)
    book.refresh()
    book.exits.clear()
    book.refresh()
    assert book.exits == {}


def test_half_a_note_is_read_when_it_is_whole(tmp_path):
    path, book = tmp_path / "exits", ExitBook(tmp_path / "exits")
    ExitBook(path).add(12, 23, None, 9)
    whole = path.read_bytes()
    note = slice(*(whole.index(b"\x17\0\0\0") + at for at in (0, 8)))  # start ticks 23
    with path.open("r+b") as file:
        file.seek(note.start)
        file.write(bytes(8))
        file.flush()
        book.refresh()
        assert book.exits == {}
        file.seek(note.start)
        file.write(whole[note])
    book.refresh()
    assert book.exits == {(12, 23): (None, 9)}


def test_what_is_no_note_is_no_exit(tmp_path):
    (tmp_path / "exits").write_bytes(b"11 22 3 -\n12 23")  # of an older version
    book = ExitBook(tmp_path / "exits")
    book.add(13, 24, 0, None)
    book.refresh()
    assert book.exits == {(13, 24): (0, None)}


def test_an_end_by_the_lease_is_told_apart(tmp_path):
    book = ExitBook(tmp_path / "exits")
    book.add_ended_by_lease(11, 22)
    book.refresh()
    assert (book.ended_by_lease, book.exits) == ({(11, 22)}, {})


def test_guardian_and_worker_do_not_write_over_each_other(tmp_path):
    books = [ExitBook(tmp_path / "exits", writer) for writer in (GUARDIAN, WORKER)]
    for pid in range(6):
        books[pid % 2].add(pid, 22, pid, None)
    books[0].refresh()
    assert books[0].exits == {(pid, 22): (pid, None) for pid in range(6)}


def test_the_book_keeps_the_newest_notes(tmp_path):
    book, reader = ExitBook(tmp_path / "exits"), ExitBook(tmp_path / "exits")
    reader.refresh()
    for pid in range(EXITS_KEPT_MAX + 3):
        book.add(pid, 22, 0, None)
    reader.refresh()
    assert sorted(pid for pid, _ in reader.exits) == list(range(3, EXITS_KEPT_MAX + 3))
    ExitBook(tmp_path / "exits").add(7_000, 22, 0, None)
    reader.refresh()
    assert (7_000, 22) in reader.exits
