"""Rules of the checkpoint directory: whole or nothing, the damaged never, the newest kept."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.training import BadArgument, CheckpointDirectory, DamagedCheckpoint
from penstock.training.storage.checkpoints import folder_name
from penstock.training.storage.manifest import ManifestProblem, decode_manifest, encode_manifest

Open = Callable[..., CheckpointDirectory]
STATE = {
    "weights": np.random.default_rng(0).standard_normal(9_000),
    "small": np.arange(50.0),
    "note": "first",
    "raw": b"\x00\x01",
}


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "checkpoints"
    directory = CheckpointDirectory(folder)
    directory.open()
    directory.write(1, STATE)
    directory.write(2, {**STATE, "note": "second"})
    return folder


def damage(folder: Path, rng: random.Random) -> str:
    """Hurt one file of a checkpoint in one of the ways that disks, crashes and people do; return which."""
    path = rng.choice(sorted(folder.iterdir()))
    raw = bytearray(path.read_bytes())
    how = rng.choice(["flip", "truncate", "delete", "empty", "append", "swap"])
    if how == "flip":
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        path.write_bytes(raw)
    elif how == "truncate":
        path.write_bytes(raw[: rng.randrange(len(raw))])
    elif how == "delete":
        path.unlink()
    elif how == "append":
        path.write_bytes(raw + b"\n")
    elif how == "empty":
        (folder / "manifest.json").write_bytes(b"")
    else:
        other = rng.choice([name for name in sorted(folder.iterdir()) if name != path])
        path.write_bytes(other.read_bytes())
    return f"{how} {path.name}"


@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_any_damage_is_noticed_and_the_one_before_restored(first: int, two_checkpoints: Path, tmp_path: Path) -> None:
    for seed in range(first, first + 50):
        copy = tmp_path / f"copy-{seed}"
        shutil.copytree(two_checkpoints, copy)
        what = damage(copy / folder_name(2), random.Random(seed))
        found, skipped = CheckpointDirectory(copy).newest_valid()
        assert found is not None, what
        assert (found.manifest.step, found.state["note"]) == (1, "first"), what
        assert [one.step for one in skipped] == [2], what


def test_every_single_flipped_bit_of_the_manifest_is_noticed(two_checkpoints: Path, tmp_path: Path) -> None:
    raw = (two_checkpoints / folder_name(2) / "manifest.json").read_bytes()
    accepted = []
    for bit in range(len(raw) * 8):
        hurt = bytearray(raw)
        hurt[bit // 8] ^= 1 << (bit % 8)
        with contextlib.suppress(ManifestProblem):
            decode_manifest(bytes(hurt))
            accepted.append(bit)
    assert accepted == []


def test_the_problem_names_the_file_and_both_sizes(open_directory: Open, folder: Path) -> None:
    directory = open_directory()
    directory.write(7, {"raw": b"12345"})
    (folder / folder_name(7) / "0000-raw.bin").write_bytes(b"123")
    with pytest.raises(DamagedCheckpoint, match=r"step 7 .*0000-raw\.bin has 3 bytes; expected 5"):
        directory.verify(7)


@pytest.mark.parametrize("name", ["manifest.json", "0000-raw.bin"])
def test_a_pipe_in_the_place_of_a_file_is_damage_and_nobody_waits_for_it(
    open_directory: Open, folder: Path, name: str
) -> None:
    directory = open_directory()
    directory.write(7, {"raw": b"12345"})
    path = folder / folder_name(7) / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedCheckpoint):
        directory.verify(7)


def test_a_manifest_of_another_step_is_refused(open_directory: Open, folder: Path) -> None:
    directory = open_directory()
    directory.write(7, STATE)
    (folder / folder_name(7)).rename(folder / folder_name(8))
    with pytest.raises(DamagedCheckpoint, match="is of step 7; expected 8"):
        directory.verify(8)


def test_a_manifest_cannot_name_files_outside_its_folder(open_directory: Open, folder: Path) -> None:
    directory = open_directory()
    path = folder / folder_name(1) / "manifest.json"
    directory.write(1, {"raw": b"x"})
    manifest = decode_manifest(path.read_bytes())
    object.__setattr__(manifest.blobs[0], "name", "../attempt")
    path.write_bytes(encode_manifest(manifest))
    with pytest.raises(DamagedCheckpoint, match="outside its folder"):
        directory.verify(1)


def test_a_newer_format_is_passed_over_and_named(open_directory: Open, folder: Path) -> None:
    directory = open_directory()
    manifest = directory.write(1, STATE)
    object.__setattr__(manifest, "format_version", 3)
    (folder / folder_name(1) / "manifest.json").write_bytes(encode_manifest(manifest))
    assert directory.newest_valid()[1][0].problem.startswith("manifest.json has format version 3")


def test_a_file_is_read_whole_however_little_one_call_brings(
    open_directory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reads 2 GiB at most by one call; a tensor may be larger."""

    class Sips(io.FileIO):
        def readinto(self, memory: Any) -> int:
            return super().readinto(memoryview(memory)[:7])

    directory = open_directory()
    directory.write(1, STATE)
    monkeypatch.setattr(Path, "open", lambda path, *_, **__: Sips(path))
    assert np.array_equal(directory.read(1).state["weights"], STATE["weights"])


def test_without_any_valid_checkpoint_all_are_named(open_directory: Open, folder: Path) -> None:
    directory = open_directory()
    for step in (1, 2):
        directory.write(step, STATE)
        (folder / folder_name(step) / "manifest.json").unlink()
    found, skipped = directory.newest_valid()
    assert found is None
    assert [one.step for one in skipped] == [2, 1]


def test_the_newest_are_kept(open_directory: Open) -> None:
    directory = open_directory(keep=2)
    for step in (10, 20, 30, 40):
        directory.write(step, STATE)
    assert directory.steps() == [40, 30]


def test_a_damaged_one_does_not_count_among_the_kept(open_directory: Open, folder: Path) -> None:
    directory = open_directory(keep=2)
    directory.write(10, STATE)
    directory.write(20, STATE)
    (folder / folder_name(20) / "manifest.json").write_bytes(b"")
    directory.write(30, STATE)
    assert directory.steps() == [30, 20, 10]


def test_one_found_damaged_on_resume_does_not_count_either(open_directory: Open, folder: Path) -> None:
    directory = open_directory(keep=2)
    directory.write(10, STATE)
    directory.write(20, STATE)
    tree = folder / folder_name(20) / "tree.json"
    tree.write_bytes(tree.read_bytes().replace(b"first", b"worse"))  # same size: only the checksum tells
    assert directory.newest_valid()[1][0].step == 20
    directory.write(15, STATE)
    assert directory.steps() == [20, 15, 10]


def test_a_damaged_newer_one_never_pushes_out_the_only_valid(open_directory: Open, folder: Path) -> None:
    open_directory(keep=1).write(50, STATE)
    tree = folder / folder_name(50) / "tree.json"
    tree.write_bytes(tree.read_bytes().replace(b"first", b"worse"))
    directory = open_directory(keep=1)
    assert directory.newest_valid()[0] is None
    directory.write(10, STATE)
    found, _ = open_directory(keep=1).newest_valid()
    assert found is not None
    assert found.manifest.step == 10


def test_a_whole_checkpoint_of_the_same_step_is_kept(open_directory: Open) -> None:
    directory = open_directory()
    first = directory.write(5, STATE)
    assert directory.write(5, {"other": 1}) == first


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(open_directory: Open, folder: Path) -> None:
    directory = open_directory()
    directory.write(5, STATE)
    (folder / folder_name(5) / "tree.json").unlink()
    directory.write(5, {"other": 1})
    assert directory.read(5).state == {"other": 1}


class Crash(BaseException):
    """Stands for the end of the process: no handler of the code under test may catch it."""


OPERATIONS = ("open", "mkdir", "fsync", "link", "rename")


def count_operations(monkeypatch: pytest.MonkeyPatch, fail_at: int | None, error: BaseException) -> list[str]:
    """Let the `fail_at`-th file operation raise; return the growing list of operations that were begun."""
    begun: list[str] = []

    def patch(name: str) -> None:
        real = getattr(os, name)

        def operation(*arguments: Any, **options: Any) -> Any:
            begun.append(name)
            if len(begun) - 1 == fail_at:
                raise error
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, operation)

    for name in OPERATIONS:
        patch(name)
    return begun


@pytest.mark.parametrize("error", [Crash(), OSError(28, "No space left on device")], ids=["crash", "full"])
def test_failing_at_any_file_operation_leaves_a_whole_checkpoint(
    error: BaseException, open_directory: Open, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    open_directory().write(1, STATE)
    failures = published = 0
    for fail_at in range(1000):
        directory = open_directory(keep=1)
        with monkeypatch.context() as patch:
            begun = count_operations(patch, fail_at, error)
            try:
                directory.write(2, STATE)
            except (Crash, OSError):
                failures += 1
            done = len(begun) <= fail_at
        found, skipped = open_directory().newest_valid()
        assert found is not None, f"operation {fail_at} of {begun}"
        assert (found.state["note"], skipped) == ("first", []), f"operation {fail_at} of {begun}"
        if done:
            break
        if found.manifest.step == 2:
            published += 1
            shutil.rmtree(folder / folder_name(2))
            shutil.rmtree(folder / folder_name(1), ignore_errors=True)
            open_directory().write(1, STATE)
    assert done
    assert failures >= 10
    assert published >= 1, "no failure was placed after the rename"


@pytest.mark.parametrize("fail_at", range(12))
def test_a_crash_while_claiming_leaves_the_record_whole(
    fail_at: int, open_directory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_directory(attempt=1)
    with monkeypatch.context() as patch:
        begun = count_operations(patch, fail_at, Crash())
        with contextlib.suppress(Crash):
            open_directory(attempt=2)
    renamed = "rename" in begun[:fail_at]
    assert first.fence.recorded() == (2 if renamed else 1)


def test_nothing_is_named_before_it_is_on_disk(open_directory: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = open_directory()
    with monkeypatch.context() as patch:
        begun = count_operations(patch, None, Crash())
        directory.write(1, {"raw": b"x"})
    # Blob, tree, manifest: each opened, then synced; then the folder, the rename, and the parent folder.
    order = [name for name in begun if name in ("mkdir", "fsync", "rename")]
    assert order == ["mkdir", "fsync", "fsync", "fsync", "fsync", "rename", "fsync"]


def test_a_dead_attempt_leaves_nothing_for_ever(
    open_directory: Open, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    directory = open_directory(attempt=1)
    with monkeypatch.context() as patch:
        count_operations(patch, 6, Crash())
        with pytest.raises(Crash):
            directory.write(1, STATE)
    assert list(folder.glob(".writing-*"))
    open_directory(attempt=2)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "attempt"]


def test_a_full_disk_leaves_no_rest(open_directory: Open, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    directory = open_directory()
    with monkeypatch.context() as patch:
        count_operations(patch, 6, OSError(28, "No space left on device"))
        with pytest.raises(OSError, match="No space"):
            directory.write(1, STATE)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "attempt"]


@pytest.mark.parametrize(("keep", "step"), [(0, 1), (1, -1), (1, 10**12)])
def test_numbers_out_of_range_are_named(folder: Path, keep: int, step: int) -> None:
    with pytest.raises(BadArgument, match=f"is {keep if keep < 1 else step}; expected"):
        CheckpointDirectory(folder, keep=keep).write(step, STATE)
