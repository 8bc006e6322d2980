"""Rules of checkpoints made by several ranks: valid with all parts, published by rank 0, read by the same ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import training
from penstock.training import BadArgument, CheckpointDirectory, DamagedCheckpoint, PartsMissing, WorldSizeMismatch
from penstock.training.ranks.shards import publish_parts, write_part

Open = Callable[..., CheckpointDirectory]


def publish_two(open_directory: Open, step: int, attempt: int = 1) -> list[CheckpointDirectory]:
    ranks = [open_directory(attempt, rank=rank, ranks=2) for rank in (0, 1)]
    for rank in (1, 0):
        write_part(ranks[rank], step, {"rank": rank, "step": step, "raw": bytes([rank])})
    publish_parts(ranks[0], step, wait_s=0)
    return ranks


def test_each_rank_reads_its_own_part(open_directory: Open) -> None:
    ranks = publish_two(open_directory, 3)
    assert [one.read(3).state["raw"] for one in ranks] == [b"\x00", b"\x01"]


def test_without_all_parts_nothing_is_published(open_directory: Open) -> None:
    first = open_directory(rank=0, ranks=3)
    write_part(first, 3, {})
    with pytest.raises(PartsMissing, match=r"step 3 has no part of rank 1, 2 after 0 s; expected 3 parts"):
        publish_parts(first, 3, wait_s=0)
    assert first.steps() == []


def test_a_half_written_part_is_no_part(open_directory: Open, folder: Path) -> None:
    ranks = [open_directory(rank=rank, ranks=2) for rank in (0, 1)]
    for one in ranks:
        write_part(one, 3, {"raw": b"12345"})
    next(folder.glob(".parts-*/rank-0001/0000-raw.bin")).write_bytes(b"123")
    with pytest.raises(PartsMissing, match="rank 1"):
        publish_parts(ranks[0], 3, wait_s=0)


def test_a_retried_part_replaces_the_first(open_directory: Open) -> None:
    ranks = [open_directory(rank=rank, ranks=2) for rank in (0, 1)]
    for one, value in ((ranks[0], 0), (ranks[1], 1), (ranks[1], 2)):
        write_part(one, 3, {"value": value})
    publish_parts(ranks[0], 3, wait_s=0)
    assert ranks[1].read(3).state == {"value": 2}


@pytest.mark.parametrize("name", ["rank-0001/tree.json", "rank-0000/0000-raw.bin"])
def test_a_missing_piece_of_any_rank_makes_it_invalid_for_all(name: str, open_directory: Open, folder: Path) -> None:
    ranks = publish_two(open_directory, 3)
    (folder / "step-000000003" / name).unlink()
    for one in ranks:
        with pytest.raises(DamagedCheckpoint, match=f"{name} is missing"):
            one.read(3)


def test_another_world_size_is_refused_with_both_numbers(open_directory: Open) -> None:
    publish_two(open_directory, 3)
    with pytest.raises(WorldSizeMismatch, match="parts of 2 ranks; expected 4"):
        open_directory(rank=0, ranks=4).newest_valid()


def test_parts_that_never_became_whole_do_not_pile_up(open_directory: Open, folder: Path) -> None:
    write_part(open_directory(rank=1, ranks=2), 2, {})
    publish_two(open_directory, 3)
    assert not list(folder.glob(".parts-*"))
    write_part(open_directory(rank=1, ranks=2), 4, {})
    open_directory(attempt=2)
    assert not list(folder.glob(".parts-*"))


def test_ranks_that_save_parts_must_agree_on_the_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with training.session(folder, sharded=True) as run, pytest.raises(BadArgument, match="needs agree="):
        run.steps(3, capture=dict)


def test_a_session_publishes_when_the_parts_are_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        with training.session(folder, sharded=True, parts_wait_s=0) as run:
            manifest = run.checkpoint(lambda: {"value": 1}, step=1)
            assert manifest is not None
    assert (folder / "step-000000001").is_dir()
