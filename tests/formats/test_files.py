"""Files that are none are refused with their line."""

import gzip

import pytest

from penstock.formats.files import whole_text
from penstock.migrate.errors import ImportFault
from penstock.migrate.report import SourcePlace
from tests.migrate.helpers import write


def test_a_byte_order_mark_is_left_out(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfx")
    assert whole_text(tmp_path / "a", SourcePlace, bytes_max=100) == "x"


@pytest.mark.parametrize(("raw", "line", "said"), [(b"a\nb\xff", 2, "UTF-8"), (b"a\n\nb\0", 3, "NUL")])
def test_what_is_no_text_is_refused_with_its_line(tmp_path, raw, line, said):
    (tmp_path / "a").write_bytes(raw)
    with pytest.raises(ImportFault, match=said) as caught:
        whole_text(tmp_path / "a", SourcePlace, bytes_max=100)
    assert caught.value.line == line


def test_missing_and_huge_files_and_folders_are_refused(tmp_path):
    write(tmp_path, "big", "x" * 101)
    for name, said in (("", "found 'a folder'"), ("no", "found 'nothing'"), ("big", "at most 100")):
        with pytest.raises(ImportFault, match=said):
            whole_text(tmp_path / name, SourcePlace, bytes_max=100)


def test_packed_files_are_unpacked_within_the_same_bounds(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x" * 100))
    assert whole_text(tmp_path / "a.gz", SourcePlace, bytes_max=100) == "x" * 100
    with pytest.raises(ImportFault, match="at most 99 bytes"):
        whole_text(tmp_path / "a.gz", SourcePlace, bytes_max=99)
