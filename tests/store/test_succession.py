"""A data folder leaves its log only for one that continues it."""

import errno
from pathlib import Path

import pytest

from penstock.core.model.errors import InvalidInput
from penstock.core.state.identity import identity_of
from penstock.store import address
from penstock.store.address import FORMER, Address, address_of, remember
from penstock.store.sqlite import SqliteStore
from penstock.store.succession import Extent, extent, kept_address, refuse_other
from tests.store.builders import records


@pytest.fixture
def log(tmp_path):
    """Make a log of some length, that begins like the others of its name."""

    def made(folder: str, count: int, *, later_ms: int = 0) -> Address:
        found = records(1, count)
        store = SqliteStore(tmp_path / folder)
        store.append([type(r)(r.seq, r.time_ms + later_ms, r.event) for r in found], [], store.acquire_epoch())
        store.close()
        return Address(tmp_path / folder)

    return made


def why_refused(kept: Address | None, wanted: Address) -> str:
    try:
        refuse_other(kept, wanted)
    except InvalidInput as refused:
        return refused.message.rpartition(", and ")[2]
    return ""


def test_a_log_is_known_by_its_first_record_and_its_length(log):
    found = log("a", 3)
    assert extent(found) == Extent(identity_of(records(1, 1)[0]), 3)


def test_a_copy_that_is_as_long_or_longer_continues_it(log, tmp_path):
    kept = log("a", 3)
    assert [why_refused(kept, log(name, count)) for name, count in (("b", 3), ("c", 4))] == ["", ""]
    assert why_refused(kept, log("d", 2)) == f"{tmp_path / 'd'} has only 2 of its 3 records"


def test_another_log_and_none_do_not(log, tmp_path):
    kept = log("a", 3)
    assert why_refused(kept, log("b", 9, later_ms=1)) == f"{tmp_path / 'b'} has the log of another cluster"
    assert why_refused(kept, Address(tmp_path / "c")) == f"there is none in {tmp_path / 'c'}"
    assert not (tmp_path / "c").exists()


def test_an_empty_log_is_nothing_to_leave_behind(log, tmp_path):
    SqliteStore(tmp_path / "empty").close()
    assert why_refused(Address(tmp_path / "empty"), log("a", 1)) == ""
    assert why_refused(None, log("b", 1)) == ""


def test_a_folder_keeps_the_log_of_its_file_or_of_the_address_that_it_remembers(log, tmp_path):
    assert kept_address(tmp_path / "a", tmp_path / "store.url") is None
    assert kept_address(log("a", 1).folder, tmp_path / "store.url") == Address(tmp_path / "a")
    (tmp_path / "store.url").write_text("postgresql://h/d\n")
    assert kept_address(tmp_path / "a", tmp_path / "store.url") == Address(tmp_path / "a", "postgresql://h/d")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("postgresql://bob:pw@h/d?sslmode=require", True),
        ("postgresql://h/e", False),
        ("postgresql://h:5433/d", False),
        ("postgresql://h/d?options=-csearch_path%3Dteam_a", False),
        ("", False),
    ],
)
def test_an_address_names_the_same_log_for_every_user(tmp_path, other, same):
    here = Address(tmp_path, "postgresql://ann@h/d")
    assert here.same_place(Address(tmp_path, other)) == same


ANN, BOB, ELSEWHERE = "postgresql://ann@h/d", "postgresql://bob@h/d", "postgresql://ann@h/e"


def lines(path: Path) -> list[str]:
    """Return the address that is remembered, and the former one; '' where there is none."""
    return [file.read_text().strip() if file.exists() else "" for file in (path, path.with_name(path.name + FORMER))]


def test_the_address_of_a_log_that_was_left_is_kept_until_another_one_is_left(tmp_path):
    path = tmp_path / "store.url"
    seen = []
    for url in (ANN, ELSEWHERE, BOB, ANN, ""):
        remember(Address(tmp_path, url), path)
        seen.append(lines(path))
    assert seen == [[ANN, ""], [ELSEWHERE, ANN], [BOB, ELSEWHERE], [ANN, ELSEWHERE], ["", ANN]]


def test_a_full_disk_leaves_the_address_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "store.url"
    remember(Address(tmp_path, ANN), path)
    whole, written = address.write_whole, []

    def full(target: Path, data: str) -> None:
        written.append(target)
        if target == path:
            raise OSError(errno.ENOSPC, "no space left")
        whole(target, data)

    monkeypatch.setattr(address, "write_whole", full)
    with pytest.raises(OSError, match="no space"):
        remember(Address(tmp_path, ELSEWHERE), path)
    assert address_of(tmp_path, None, path).url == ANN
    assert written[-1] == path
