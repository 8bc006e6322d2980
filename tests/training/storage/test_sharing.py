"""Files that did not change are shared with the checkpoint before, by two at most; what shrinks is compressed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.training import CheckpointDirectory
from penstock.training.storage.directory import folder_name
from tests.training.needs import need

Open = Callable[..., CheckpointDirectory]
FROZEN = np.random.default_rng(0).standard_normal(50_000)


def state(step: int) -> dict[str, Any]:
    return {"frozen": FROZEN, "head": np.random.default_rng(step).standard_normal(5_000)}


def inode(folder: Path, step: int, word: str) -> int:
    return next(path.stat().st_ino for path in (folder / folder_name(step)).iterdir() if word in path.name)


def test_what_did_not_change_is_not_written_again(open_directory: Open, folder: Path) -> None:
    directory = open_directory()
    directory.write(1, state(1))
    directory.write(2, state(2))
    assert inode(folder, 1, "frozen") == inode(folder, 2, "frozen")
    assert inode(folder, 1, "head") != inode(folder, 2, "head")


def test_no_more_than_two_checkpoints_share_one_copy(open_directory: Open, folder: Path) -> None:
    directory = open_directory(keep=5)
    for step in range(1, 6):
        directory.write(step, state(step))
    copies = [inode(folder, step, "frozen") for step in range(1, 6)]
    assert copies[0] == copies[1] != copies[2] == copies[3] != copies[4]


def test_one_bad_file_leaves_a_whole_checkpoint_though_it_is_shared(open_directory: Open, folder: Path) -> None:
    directory = open_directory(keep=3)
    for step in (1, 2, 3):
        directory.write(step, state(step))
    for step in (1, 2, 3):
        path = next(path for path in (folder / folder_name(step)).iterdir() if "frozen" in path.name)
        raw = path.read_bytes()
        path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))  # in place: all names of it
        assert directory.newest_valid()[0] is not None
        path.write_bytes(raw)


def test_a_checkpoint_lives_on_when_the_one_it_shares_with_is_let_go(open_directory: Open) -> None:
    directory = open_directory(keep=3)
    for step in range(1, 5):
        directory.write(step, state(step))
    assert directory.steps() == [4, 3, 2]
    assert np.array_equal(directory.read(2).state["frozen"], FROZEN)


def test_after_a_restart_it_is_shared_too(open_directory: Open, folder: Path) -> None:
    open_directory().write(1, state(1))
    directory = open_directory(attempt=2)
    directory.read(1)
    directory.write(2, state(2))
    assert inode(folder, 1, "frozen") == inode(folder, 2, "frozen")


def test_where_files_have_one_name_only_everything_is_written(
    open_directory: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    directory = open_directory()
    directory.write(1, state(1))
    directory.write(2, state(2))
    assert inode(folder, 1, "frozen") != inode(folder, 2, "frozen")
    assert np.array_equal(directory.read(2).state["frozen"], FROZEN)


def test_what_shrinks_is_compressed_and_what_does_not_is_not(open_directory: Open, folder: Path) -> None:
    need("zstandard")
    directory = open_directory()
    counts = np.arange(100_000, dtype=np.int64)
    manifest = directory.write(1, {"counts": counts, "noise": FROZEN})
    kept = {blob.name.split("-")[1]: blob for blob in manifest.blobs if "-" in blob.name}
    assert kept["counts.npy.zst"].encoding == "zstd"
    assert kept["counts.npy.zst"].size_bytes < counts.nbytes // 2
    assert kept["noise.npy"].encoding == ""
    found = directory.read(1).state
    assert np.array_equal(found["counts"], counts)
    directory.write(2, {"counts": counts, "noise": FROZEN})
    assert inode(folder, 1, "counts") == inode(folder, 2, "counts"), "compressed files are shared too"
    assert np.array_equal(directory.read(2).state["counts"], counts)


@pytest.mark.parametrize("keep", [1, 2])
def test_where_few_are_kept_none_shares(keep: int, open_directory: Open, folder: Path) -> None:
    directory = open_directory(keep=keep)
    directory.write(1, state(1))
    before = inode(folder, 1, "frozen")
    directory.write(2, state(2))
    assert inode(folder, 2, "frozen") != before
