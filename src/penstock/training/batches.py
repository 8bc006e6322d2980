"""The same batch at any number of ranks: which rows a step works on, and which of them fall to this rank.

An elastic job changes its size while it trains. Learning rate, noise of the gradient and data order belong to the
batch of all ranks together, so that stays as it is: fewer ranks take more rows each, in several rounds where they do
not fit at once (gradient accumulation). The loss then does not depend on the number of ranks beyond rounding.
Costs of growing the batch with the ranks instead: Goyal et al., 2017; McCandlish et al., 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.training.errors import BadArgument


@dataclass(frozen=True, slots=True)
class Round:
    """Rows that one rank works on at once.

    Args:
        rows: their indices within the dataset, in order.
        weight: times the mean loss over `rows`; then the gradients that DDP averages over the ranks add up to the
            mean over the whole batch.
        last: after it the ranks exchange gradients; before, `no_sync()` spares that.
    """

    rows: Any
    weight: float
    last: bool


@dataclass(frozen=True, slots=True)
class GlobalBatch:
    """How many rows all ranks work on in one step, and how many fit one rank at once.

    Args:
        size: rows of one step (>= 1), at any number of ranks.
        rows_max: most rows of one round (>= 1); None: all that fall to the rank.
        seed: of the order of the rows; each epoch has its own.
    Raises: BadArgument.
    """

    size: int
    rows_max: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("rows_max", self.rows_max)):
            if value is not None and value < 1:
                raise BadArgument(f"{name} is {value}; expected at least 1")

    def rows(self, step: int, dataset: int) -> Any:
        """Return the indices of the batch of `step` among `dataset` rows: shape (size,), the same on all ranks.

        Nothing of it has to be saved: it follows from seed and step. Rows that do not fill a batch at the end of an
        epoch are left out of it; another epoch leaves out others.
        Raises: BadArgument if the dataset is smaller than one batch.
        """
        if dataset < self.size:
            raise BadArgument(f"the dataset has {dataset} rows; expected at least the batch of {self.size}")
        epoch, position = divmod(step, dataset // self.size)
        return _permutation(self.seed, epoch, dataset)[position * self.size : (position + 1) * self.size].copy()

    def rounds(self, step: int, dataset: int, *, rank: int, world_size: int) -> Sequence[Round]:
        """Return the work of `rank` in `step`: one round or more.

        Raises: BadArgument if there are more ranks than rows.
        """
        if not 0 <= rank < world_size:
            raise BadArgument(f"rank is {rank}; expected 0 to {world_size - 1}")
        if world_size > self.size:
            raise BadArgument(f"{world_size} ranks share a batch of {self.size} rows; expected at most one rank a row")
        return _rounds(self.rows(step, dataset), self.rows_max, rank, world_size)


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """Rows without end, epoch after epoch: for batches that change while a program trains.

    Row number k is the same whatever batches came before, at any number of ranks: so the position is all that a
    checkpoint needs, and each epoch has each row once. A batch may reach into the next epoch.

    Args:
        dataset: number of rows (>= 1).
        seed: of the order; each epoch has its own.
    Raises: BadArgument.
    """

    dataset: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dataset < 1:
            raise BadArgument(f"dataset is {self.dataset}; expected at least 1 row")

    def rows(self, start: int, count: int) -> Any:
        """Return the indices of rows `start` to `start + count` - 1: shape (count,)."""
        import numpy

        parts = []
        while count:
            epoch, position = divmod(start, self.dataset)
            part = _permutation(self.seed, epoch, self.dataset)[position : position + count]
            parts.append(part)
            start, count = start + len(part), count - len(part)
        return numpy.concatenate(parts) if parts else numpy.empty(0, dtype=numpy.int64)

    def rounds(self, start: int, size: int, *, rank: int, ranks: int, rows_max: int | None = None) -> Sequence[Round]:
        """Return the work of `rank` on the `size` rows from `start` on: passes of at most `rows_max` rows."""
        return _rounds(self.rows(start, size), rows_max, rank, ranks)


@lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, dataset: int) -> Any:
    import numpy

    order = numpy.random.Generator(numpy.random.PCG64([seed, epoch])).permutation(dataset)
    order.flags.writeable = False
    return order


def _rounds(rows: Any, rows_max: int | None, rank: int, ranks: int) -> Sequence[Round]:
    own = rows[rank::ranks]
    at_once = rows_max or len(own)
    parts = [own[first : first + at_once] for first in range(0, len(own), at_once)]
    return [
        Round(part, len(part) * ranks / len(rows), last=index == len(parts) - 1) for index, part in enumerate(parts)
    ]
