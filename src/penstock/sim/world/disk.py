"""A simulated log: durable records, and a disk that fails, fills, or dies half-way through a commit."""

import random
from collections.abc import Iterator, Mapping, Sequence

from penstock.core.model.errors import StaleEpoch, StoreError, StoreFull
from penstock.core.model.events import Record
from penstock.core.model.ids import Epoch, JobId
from penstock.core.model.jobs import JobState
from penstock.core.state.state import Image
from penstock.ports import FinishedJob
from penstock.store.encoding import EventRow, Specs, digest_of, encode_image, event_rows, image_of


class PowerCut(Exception):
    """The server's machine died during a commit; records that were not durable are gone."""


class SimDisk:
    """An `EventStore` in memory. Records are durable once `append` has returned; before that, a coin decides.

    Loading reads bytes as the real stores keep them.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.records: list[Record] = []
        self.finished: dict[JobId, FinishedJob] = {}
        self.epoch = Epoch(0)
        self.snapshot: bytes | None = None
        self._rows: list[EventRow] = []
        self.fail_rate = 0.0
        self.full = False
        self.cut_next = False
        self.damage: list[str] = []
        """Promises of the log itself that were broken."""

    def acquire_epoch(self) -> Epoch:
        self.epoch = Epoch(self.epoch + 1)
        return self.epoch

    def append(self, records: Sequence[Record], finished: Sequence[FinishedJob], epoch: Epoch) -> None:
        if self._is_stale(epoch):
            raise StaleEpoch(f"term {epoch} has ended")
        if not records:
            return
        if self.full:
            raise StoreFull("the simulated disk is full")
        if self._rng.random() < self.fail_rate:
            raise StoreError("the simulated disk failed")
        if self.cut_next:
            self.cut_next = False
            if self._rng.random() < 0.5:
                self._keep(records, finished)
            raise PowerCut
        self._keep(records, finished)

    def _is_stale(self, epoch: Epoch) -> bool:
        return epoch != self.epoch

    def _keep(self, records: Sequence[Record], finished: Sequence[FinishedJob]) -> None:
        expected = len(self.records) + 1
        if records[0].seq != expected:
            self.damage.append(f"record {records[0].seq} was written where {expected} belongs")
        self.records.extend(records)
        self._rows.extend(event_rows(records))
        for row in finished:
            if row.id in self.finished:
                self.damage.append(f"job {row.id} finished twice")
            self.finished[row.id] = row

    def load(self) -> tuple[Image | None, Iterator[Record]]:
        image = image_of(digest_of(self.snapshot), self.snapshot) if self.snapshot is not None else None
        return image, self.tail(image.seq if image else 0)

    def tail(self, after: int) -> Iterator[Record]:
        return map(Specs(lambda seq: self._rows[seq - 1].body).record, self._rows[after:])

    def save_snapshot(self, image: Image) -> None:
        self.snapshot = encode_image(image)

    def outcomes(self, job_ids: Sequence[JobId]) -> Mapping[JobId, JobState]:
        return {job_id: self.finished[job_id].state for job_id in job_ids if job_id in self.finished}

    def finished_jobs(self, limit: int, before: JobId | None = None) -> list[FinishedJob]:
        ids = sorted((i for i in self.finished if before is None or i < before), reverse=True)
        return [self.finished[i] for i in ids[:limit]]
