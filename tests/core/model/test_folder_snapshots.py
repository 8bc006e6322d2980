"""Lists of files that may be a snapshot, and those that may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import folder_snapshots as fs
from penstock.core.model.folder_snapshots import SnapshotFile

ONE = fs.chunk_hash(b"1")


def file(path: str, *, size: int = 1, chunks: tuple[bytes, ...] = (ONE,)) -> SnapshotFile:
    return SnapshotFile(path, "file", size, chunks)


def link(path: str, target: str) -> SnapshotFile:
    return SnapshotFile(path, "link", target=target)


@pytest.mark.parametrize(
    ("files", "wrong"),
    [
        ([file("b"), file("a")], "ascending"),
        ([file("a"), file("a")], "each path once"),
        ([file("../a")], "relative"),
        ([file("/a")], "relative"),
        ([file("a//b")], "relative"),
        ([file("a/./b")], "relative"),
        ([file("a\0b")], "relative"),
        ([file("\ud800")], "UTF-8"),
        ([file("a" * 1_025)], "1024 bytes"),
        ([file("a/" * 70 + "a")], "64 parts"),
        ([file("a"), file("a/b")], "which is no folder"),
        ([link("a", "b"), file("a/b/c")], "which is no folder"),
        ([link("a", "/etc")], "absolute"),
        ([link("a", "../b")], "out of the folder"),
        ([link("s/a", "../../b")], "out of the folder"),
        ([link("s/a", "x/../../b")], "goes up after it went down"),
        ([link("a", "")], "a link leads to"),
        ([SnapshotFile("a", "link", 1, (ONE,), "b")], "a link has no content"),
        ([SnapshotFile("a", "file", 1, (ONE,), "b")], "only a link"),
        ([file("a", size=-1)], "do not go together"),
        ([file("a", size=fs.CHUNK_BYTES + 1)], "do not go together"),
        ([file("a", chunks=(b"1",))], "a hash has 32 bytes"),
        ([file("a", size=2**30 + 1, chunks=(ONE,) * 1_025)], "expected at most 1073741824"),
        ([file(f"{i:06}") for i in range(20_001)], "expected at most 20000"),
    ],
)
def test_what_cannot_be_unpacked_safely_is_no_snapshot(files, wrong):
    assert wrong in fs.problem_of(files)


def test_links_within_the_folder_are_fine():
    assert fs.problem_of([link("a", "b/c"), link("s/t/u", "../../a"), file("x")]) == ""


names = st.text("abc/", min_size=1, max_size=4)
lists = st.dictionaries(names, st.sampled_from([b"1", b"2"]), max_size=6).map(
    lambda found: tuple(file(path, chunks=(fs.chunk_hash(found[path]),)) for path in sorted(found))
)


@given(lists, lists)
def test_changes_make_the_one_list_of_the_other(now, former):
    assert fs.applied(former, *fs.changed(now, former)) == now


@given(lists)
def test_a_list_comes_back_from_its_bytes(files):
    assert fs.decoded(fs.encoded(files)) == files
