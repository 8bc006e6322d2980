"""Communication of ranks that save together: in a group of their own, so that any thread may wait in it.

Any error on one rank is raised on all of them: no rank waits for one that has given up, and all continue in the same
way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch.distributed as dist

from penstock.training.errors import BadArgument, PartsMissing, TrainingError

Result = TypeVar("Result")


class Ranks:
    """All ranks of the job, in a new gloo group. Collective: make it in the main thread, at one place on every rank.

    Args:
        world_size: how many there should be.
        wait_s: how long they wait for each other, in seconds.
    Raises: BadArgument where torch.distributed is not initialised for this number of ranks.
    """

    def __init__(self, world_size: int, wait_s: float) -> None:
        found = dist.get_world_size() if dist.is_initialized() else 0
        if found != world_size:
            raise BadArgument(
                f"torch.distributed has {found or 'no'} ranks; expected {world_size}, which is WORLD_SIZE, and "
                "init_process_group() called before the first save or resume, also by a single rank"
            )
        self.group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=wait_s))
        self.rank = int(dist.get_rank(self.group))

    def everywhere(self, work: Callable[[], Result]) -> list[Result]:
        """Return what `work` returned on each rank, to all of them.

        Raises: on all ranks, the error of any rank: a TrainingError as it was, others within PartsMissing.
        """
        outcome: tuple[Result | None, TrainingError | str]
        try:
            outcome = work(), ""
        except RuntimeError:
            raise  # gloo has lost the others: no rank is left to inform
        except TrainingError as error:
            outcome = None, error
        except Exception as error:  # noqa: BLE001 - after any error, the others must not wait for this rank
            outcome = None, f"{type(error).__name__}: {error}"
        outcomes: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(outcomes, outcome, group=self.group)
        failures = {rank: failure for rank, (_, failure) in enumerate(outcomes) if failure}
        for failure in failures.values():
            if isinstance(failure, TrainingError):
                raise failure
        if failures:
            raise PartsMissing("; ".join(f"rank {rank}: {failure}" for rank, failure in failures.items()))
        return [result for result, _ in outcomes]

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Return, to all, what `work` returned on rank 0, where alone it is called. Raises: like `everywhere`."""
        results = self.everywhere(lambda: work() if self.rank == 0 else None)
        return cast(Result, results[0])

    def here(self, work: Callable[[], Result]) -> Result:
        """Return what `work` returned on this rank, which others need not know. Raises: like `everywhere`."""
        results: list[Result] = []
        self.everywhere(lambda: results.append(work()))
        return results[0]

    @contextmanager
    def lost(self, doing: str, kind: type[TrainingError]) -> Iterator[None]:
        """Turn gloo's error for a rank that is gone, or late, into a `TrainingError` of this kind."""
        try:
            yield
        except RuntimeError as error:
            raise kind(f"{doing}, rank {self.rank} lost the others: {error}") from error
