"""Report files belong to programs: read without waiting or following, and kept small once their program has ended."""

import itertools
import os

import pytest

from penstock.engines.processes.reportfiles import KEPT_MAX_BYTES, read_report, thin_report


@pytest.fixture
def report(tmp_path):
    return tmp_path / "attempt-1.rank-0.report"


def test_a_piece_comes_with_the_size_of_all(report):
    report.write_bytes(b"0123456789")
    assert read_report(report, 3, 4) == (10, b"3456")
    assert read_report(report, 0, 0) == (10, b"")
    assert read_report(report, 11, 4) == (10, b"")


@pytest.mark.parametrize("kind", ["missing", "link", "hard link", "pipe", "folder"])
def test_what_is_no_regular_file_is_not_read(report, tmp_path, kind):
    (tmp_path / "other").write_bytes(b"of another\n" * KEPT_MAX_BYTES)
    if kind == "link":
        report.symlink_to(tmp_path / "other")
    elif kind == "hard link":
        report.hardlink_to(tmp_path / "other")
    elif kind == "pipe":
        os.mkfifo(report)
    elif kind == "folder":
        report.mkdir()
    assert read_report(report, 0, 10) is None
    assert not thin_report(report)
    assert (tmp_path / "other").stat().st_size == 11 * KEPT_MAX_BYTES


def test_a_long_report_is_thinned_to_whole_lines_from_all_over(report):
    lines = [b"%d\n" % n for n in range(500_000)]
    report.write_bytes(b"".join(lines))
    mode = report.stat().st_ino, report.stat().st_mode
    assert thin_report(report)
    kept = [int(line) for line in report.read_bytes().splitlines()]
    assert 0.9 * KEPT_MAX_BYTES < report.stat().st_size <= KEPT_MAX_BYTES
    assert (kept[0], kept[-1]) == (0, 499_999)
    assert kept == sorted(set(kept))
    assert max(after - n for n, after in itertools.pairwise(kept)) < 15_000
    assert (report.stat().st_ino, report.stat().st_mode) == mode


def test_a_short_report_stays_as_it_is(report):
    report.write_bytes(b"x" * KEPT_MAX_BYTES)
    assert not thin_report(report)
    assert report.stat().st_size == KEPT_MAX_BYTES
