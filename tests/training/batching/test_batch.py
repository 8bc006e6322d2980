"""`run.batch`: ordered, followed, counted and saved; every row of an epoch once at any batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import training
from penstock.training import BadArgument, Batch, SampleOrder, Share, read_environment
from penstock.training.ranks.consensus import BorderAction
from tests.training.batching.test_noise import known


def batch_of(base: int | None = None, order: str = "", *, rank: int = 0, ranks: int = 1, file: str = "") -> Batch:
    variables = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "PENSTOCK_BATCH": order, "PENSTOCK_BATCH_FILE": file}
    return Batch(read_environment(variables), base)


def write(path: Path, order: str) -> None:
    new = path.with_name("new")
    new.write_text(order)
    new.rename(path)


def test_an_order_wins_over_the_batch_of_the_program() -> None:
    assert (batch_of(64, "48,1", ranks=2).share, batch_of(64, "48,1", ranks=2).total) == (Share(48, 1), 192)
    assert (batch_of(64, ranks=2).share, batch_of(65, ranks=2).total) == (Share(32), 66)


def test_without_any_batch_it_says_what_is_missing() -> None:
    with pytest.raises(BadArgument, match=r"expected training.session\(batch=...\)"):
        _ = batch_of().local
    with pytest.raises(BadArgument, match="batch is 0; expected at least 1"):
        batch_of(0)
    assert batch_of().numbers() == {}


def test_the_learning_rate_follows_the_rule_of_the_user() -> None:
    batch = batch_of(32, "64,1", ranks=2)
    assert batch.learning_rate_factor("linear") == 8
    assert batch.learning_rate_factor("square_root") == pytest.approx(8**0.5)
    assert batch.learning_rate_factor("adascale") == 1
    batch.noise = known(256.0)
    assert batch.learning_rate_factor("adascale") == pytest.approx(8 * (256 + 32) / (256 + 256))
    with pytest.raises(BadArgument, match="rule is 'cosine'; expected one of linear, square_root, adascale"):
        batch.learning_rate_factor("cosine")  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="batch of the learning rate is not known"):
        batch_of(None, "64,1").learning_rate_factor("linear")


shares = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=12)


@given(shares, st.integers(1, 60))
def test_rows_are_the_same_whatever_batches_and_ranks_they_fall_to(
    shapes: list[tuple[int, int, int]], dataset: int
) -> None:
    order, done, seen = SampleOrder(dataset, seed=2), 0, []
    for local, accumulation, ranks in shapes:
        size = local * (accumulation + 1) * ranks
        works = [order.rounds(done, size, rank=rank, ranks=ranks, rows_max=local) for rank in range(ranks)]
        assert all(len(work) == accumulation + 1 and len(part.rows) == local for work in works for part in work)
        assert sum(part.weight for part in works[0]) == pytest.approx(1)
        rows = np.empty(size, dtype=int)
        for rank, work in enumerate(works):
            rows[rank::ranks] = np.concatenate([part.rows for part in work])
        seen += rows.tolist()
        done += size
    assert seen == SampleOrder(dataset, seed=2).rows(0, done).tolist()
    epochs = [sorted(seen[first : first + dataset]) for first in range(0, done - dataset + 1, dataset)]
    assert all(rows == list(range(dataset)) for rows in epochs)


def test_a_dataset_without_rows_is_refused() -> None:
    with pytest.raises(BadArgument, match="dataset is 0; expected at least 1 row"):
        SampleOrder(0)


def train(directory: Path, samples: int, orders: Mapping[int, str], file: Path) -> tuple[list[int], list[int]]:
    """Train over a SampleOrder of 50 rows; after update n write `orders[n]`. Return rows seen and totals of updates."""
    rows: list[int] = []
    totals: list[int] = []
    order = SampleOrder(50, seed=1)
    with training.session(directory, batch=8) as run:
        state = run.resume(None)
        if state is not None:
            run.batch.load_state_dict(state["batch"])
        for step in run.steps(samples=samples, capture=lambda: {"batch": run.batch.state_dict()}):
            rows += [int(row) for part in run.batch.rounds(order) for row in part.rows]
            totals.append(run.batch.total)
            if step in orders:
                write(file, orders[step])
    return rows, totals


def test_a_batch_changes_at_the_next_border_and_no_row_is_lost(tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "batch"
    monkeypatch.setenv("PENSTOCK_BATCH", "8,0")
    monkeypatch.setenv("PENSTOCK_BATCH_FILE", str(file))
    rows, totals = train(tmp_path / "all", 100, {1: "12,1", 3: "5,0"}, file)
    assert totals == [8, 8, 24, 24] + [5] * 8
    assert rows == SampleOrder(50, seed=1).rows(0, 104).tolist()


def test_what_is_resumed_continues_with_the_next_row(tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "batch"
    first, _ = train(tmp_path / "c", 40, {}, file)
    monkeypatch.setenv("PENSTOCK_BATCH", "3,1")
    second, totals = train(tmp_path / "c", 70, {}, file)
    assert (first + second, totals) == (SampleOrder(50, seed=1).rows(0, 70).tolist(), [6] * 5)


def test_without_an_order_the_batch_is_that_of_the_checkpoint_at_the_same_ranks() -> None:
    saved = batch_of(8, "6,1").state_dict()
    same, other, ordered = batch_of(8), batch_of(8, ranks=2), batch_of(8, "4,0")
    for batch in (same, other, ordered):
        batch.load_state_dict(saved)
    assert [batch.share for batch in (same, other, ordered)] == [Share(6, 1), Share(4), Share(4)]


def test_within_a_step_the_state_is_that_of_its_end() -> None:
    batch = batch_of(8)
    batch.begun()
    ahead = batch.state_dict()
    batch.done()
    assert batch.state_dict() == ahead
    assert (ahead["samples"], ahead["updates"], ahead["scaled_steps"]) == (8, 1, 1.0)


def test_a_rank_among_others_changes_only_where_they_are_told(tmp_path: Path) -> None:
    file = tmp_path / "batch"
    write(file, "16,0")
    first, other = (batch_of(8, "4,0", rank=rank, ranks=2, file=str(file)) for rank in (0, 1))
    assert not first.ordered(alone=True)
    assert (first.ordered(alone=False), other.ordered(alone=False)) == (True, False)
    numbers: list[Any] = []
    first.change(lambda given: numbers.append(given) or given)
    other.change(lambda given: numbers[0])
    assert first.share == other.share == Share(16)


def test_an_order_waits_while_something_stronger_is_due(tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "batch"
    monkeypatch.setenv("PENSTOCK_BATCH_FILE", str(file))
    write(file, "16,0")
    with training.session(batch=8) as run:
        run.request_checkpoint()
        assert (run.due(), run.batch.local) == (BorderAction.REQUEST, 8)
        assert (run.due(), run.batch.local) == (BorderAction.NOTHING, 16)


def test_a_library_that_was_given_the_batch_keeps_it(tmp_path: Path) -> None:
    write(tmp_path / "batch", "16,0")
    batch = batch_of(8, file=str(tmp_path / "batch"))
    batch.fix()
    assert not batch.ordered(alone=False)


def test_pace_and_batch_are_in_the_report(tmp_path: Path, monkeypatch: Any) -> None:
    report = tmp_path / "report"
    monkeypatch.setenv("PENSTOCK_REPORT_FILE", str(report))
    with training.session(batch=8) as run:
        for _ in run.steps(samples=8 * 20):
            run.report(loss=1.0)
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "progress"][-1]
    assert (last["local_batch"], last["accumulation"], last["total"]) == (8, 0, 20)
    assert 0 <= last["sync_s"] <= last["step_s"] < 1
    assert "noise_scale" not in last


def test_a_training_may_end_by_what_its_updates_are_worth() -> None:
    with training.session(batch=8) as run:
        run.batch.noise, done = known(24.0), 0
        run.batch._share = Share(16)
        for _ in run.steps(scaled_steps=8):
            assert run._reporter.total == 5
            done += 1
    assert (done, run.batch.samples) == (5, 80)
    assert run.batch.scaled_steps == pytest.approx(5 * 2 * (24 + 8) / (24 + 16))


@pytest.mark.parametrize("given", [{}, {"stop": 5, "samples": 5}, {"samples": 5, "scaled_steps": 5}])
def test_steps_end_by_one_of_two_numbers(given: dict[str, int]) -> None:
    with training.session(batch=8) as run, pytest.raises(BadArgument, match="expected one of them"):
        run.steps(**given)
