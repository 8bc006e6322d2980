"""The same batch at any number of ranks: which rows a step works on, and which of them fall to this rank.

An elastic job changes its size while it trains. Learning rate, noise of the gradient and data order belong to the
batch of all ranks together, so that stays as it is: fewer ranks take more rows each, in several rounds where they do
not fit at once (gradient accumulation). The loss then does not depend on the number of ranks beyond rounding.
Costs of growing the batch with the ranks instead: Goyal et al., 2017; McCandlish et al., 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
        import numpy

        if dataset < self.size:
            raise BadArgument(f"the dataset has {dataset} rows; expected at least the batch of {self.size}")
        epoch, position = divmod(step, dataset // self.size)
        order = numpy.random.Generator(numpy.random.PCG64([self.seed, epoch])).permutation(dataset)
        return order[position * self.size : (position + 1) * self.size]

    def rounds(self, step: int, dataset: int, *, rank: int, world_size: int) -> Sequence[Round]:
        """Return the work of `rank` in `step`: one round or more.

        Raises: BadArgument if there are more ranks than rows.
        """
        if not 0 <= rank < world_size:
            raise BadArgument(f"rank is {rank}; expected 0 to {world_size - 1}")
        if world_size > self.size:
            raise BadArgument(f"{world_size} ranks share a batch of {self.size} rows; expected at most one rank a row")
        own = self.rows(step, dataset)[rank::world_size]
        at_once = self.rows_max or len(own)
        parts = [own[first : first + at_once] for first in range(0, len(own), at_once)]
        return [
            Round(part, len(part) * world_size / self.size, last=index == len(parts) - 1)
            for index, part in enumerate(parts)
        ]
