"""What a program tells of its training: steps, losses, waiting; and the batch that it is told. Part of a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from penstock.training.batching.batch import Batch
from penstock.training.meters import Item, Meters, Waiting, device_memory_bytes
from penstock.training.reports import PROGRESS_PERIOD_S, Reporter


class Telling:
    """The part of a `Session` that reports. `step` is the number of steps completed."""

    def __init__(self, reporter: Reporter, batch: Batch) -> None:
        self.step = 0
        self.batch = batch
        """The batch: ordered by the scheduler where the job declares a range, else that of `session(batch=...)`."""
        self._reporter = reporter
        self._meters = Meters()
        self._shares: dict[str, float] = {}
        self._within_step = False

    def report(
        self,
        *,
        step: int | None = None,
        loss: float | None = None,
        samples: int | None = None,
        **metrics: float,
    ) -> None:
        """Report progress. Cheap: call it at every step, at most five lines a second are written.

        Args:
            step: steps completed, counting this one; default: the right number inside `steps`.
            loss: any number; NaN and infinity are reported as such.
            samples: samples processed since the previous call.
            metrics: further numbers by name. `queue_length` (inputs that wait to be worked on), `data_wait`,
                `communication` (shares of the time, 0 to 1) and `memory_bytes` are known to the scheduler.
        """
        self._shares = self._meters.take(PROGRESS_PERIOD_S) or self._shares
        memory_bytes = device_memory_bytes()
        known = {**self._shares, **({"memory_bytes": memory_bytes} if memory_bytes else {})}
        self._reporter.progress(
            self._completed(step), loss=loss, samples=samples, metrics=known | self.batch.numbers() | metrics
        )

    def data(self, source: Iterable[Item]) -> Iterator[Item]:
        """Yield the items of `source` (a data loader, say), and report the share of the time that this takes."""
        return self._meters.data(source)

    def waiting(self, what: Waiting) -> AbstractContextManager[None]:
        """Count the time of a `with` block as waiting: "data_wait", or "communication" with other ranks."""
        return self._meters.waiting(what)

    def _completed(self, step: int | None) -> int:
        return self.step + (1 if self._within_step else 0) if step is None else step
