"""Files that are none are refused with their line."""

import pytest

from penstock.core.model.errors import PenstockError
from penstock.migrate.errors import ImportFault, all_of
from penstock.migrate.reading import read_text
from tests.migrate.helpers import write


def test_a_byte_order_mark_is_left_out(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfx")
    assert read_text(tmp_path / "a") == "x"


@pytest.mark.parametrize(("raw", "line", "said"), [(b"a\nb\xff", 2, "UTF-8"), (b"a\n\nb\0", 3, "NUL")])
def test_what_is_no_text_is_refused_with_its_line(tmp_path, raw, line, said):
    (tmp_path / "a").write_bytes(raw)
    with pytest.raises(ImportFault, match=said) as caught:
        read_text(tmp_path / "a")
    assert caught.value.line == line


def test_missing_and_huge_files_and_folders_are_refused(tmp_path):
    write(tmp_path, "big", "x" * 101)
    for path, said in ((tmp_path, "plain file"), (tmp_path / "no", "plain file"), (tmp_path / "big", "at most 100")):
        with pytest.raises(ImportFault, match=said):
            read_text(path, bytes_max=100)


def test_a_fault_says_file_line_field_value_and_what_was_expected():
    fault = ImportFault("slurm.conf", line=7, field="Nodez", value="a", expected="a key", hint="did you mean 'Nodes'?")
    assert isinstance(fault, PenstockError)
    assert str(fault) == "slurm.conf, line 7, Nodez: found 'a', expected a key"
    assert (fault.code, fault.hint, fault.problems[0].field) == (
        "bad_import",
        "did you mean 'Nodes'?",
        "slurm.conf:7: Nodez",
    )


def test_faults_that_were_collected_are_all_listed():
    faults = [ImportFault("f", line=n, expected="x") for n in (1, 2)]
    assert [p.field for p in all_of(faults).problems] == ["f:1", "f:2"]
