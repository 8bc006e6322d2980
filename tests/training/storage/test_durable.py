"""A file that is summed up while another library writes it."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from penstock.training.storage import durable


def test_the_sum_is_of_what_was_written(tmp_path: Path) -> None:
    with durable.SummedFile(tmp_path / "file") as file:
        file.write(b"one")
        file.write(memoryview(b"two"))
    assert (tmp_path / "file").read_bytes() == b"onetwo"
    assert file.written == durable.Written(6, durable.checksum([b"onetwo"]))


def test_it_is_on_disk_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (sizes.append(os.fstat(descriptor).st_size), real(descriptor)))
    file = durable.SummedFile(tmp_path / "file")
    file.write(b"12345")
    file.close()
    file.close()
    assert sizes == [5]


def test_nobody_can_go_back_in_it(tmp_path: Path) -> None:
    with durable.SummedFile(tmp_path / "file") as file, pytest.raises(io.UnsupportedOperation):
        file.seek(0)


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        durable.SummedFile(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"old"
