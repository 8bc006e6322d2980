"""One global batch at any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.training import BadArgument, GlobalBatch


@given(st.integers(1, 40), st.integers(1, 8), st.none() | st.integers(1, 9), st.integers(0, 500))
def test_all_ranks_together_do_the_batch_once(size: int, ranks: int, most: int | None, step: int) -> None:
    batch, dataset = GlobalBatch(size, most, seed=3), 2 * size + 1
    if ranks > size:
        with pytest.raises(BadArgument, match="at most one rank a row"):
            batch.rounds(step, dataset, rank=0, world_size=ranks)
        return
    found = [batch.rounds(step, dataset, rank=rank, world_size=ranks) for rank in range(ranks)]
    rows = [row for rounds in found for part in rounds for row in part.rows]
    assert sorted(rows) == sorted(batch.rows(step, dataset))
    assert all(len(part.rows) <= (most or size) for rounds in found for part in rounds)
    assert all([part.last for part in rounds] == [False] * (len(rounds) - 1) + [True] for rounds in found)
    values = np.random.default_rng(step).standard_normal(dataset)
    averaged = sum(part.weight * values[part.rows].mean() for rounds in found for part in rounds) / ranks
    assert averaged == pytest.approx(values[batch.rows(step, dataset)].mean())


def test_an_epoch_takes_no_row_twice_and_the_next_has_another_order() -> None:
    batch = GlobalBatch(10, seed=1)
    first = np.concatenate([batch.rows(step, 40) for step in range(4)])
    second = np.concatenate([batch.rows(step, 40) for step in range(4, 8)])
    assert sorted(first) == sorted(second) == list(range(40))
    assert list(first) != list(second)


@pytest.mark.parametrize(("size", "most"), [(0, None), (4, 0)])
def test_numbers_out_of_range_are_named(size: int, most: int | None) -> None:
    with pytest.raises(BadArgument, match="is 0; expected at least 1"):
        GlobalBatch(size, most)


def test_a_dataset_smaller_than_a_batch_is_refused() -> None:
    with pytest.raises(BadArgument, match="has 3 rows; expected at least the batch of 4"):
        GlobalBatch(4).rows(0, 3)
