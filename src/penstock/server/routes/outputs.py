"""Outputs and reports of replicas, without the values of their secrets."""

from typing import Protocol

from penstock.core.model.events import JobSubmitted
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.ports import EventReader
from penstock.security.redaction import Redactor, blotted_piece

JOBS_KEPT = 10_000


class Outputs(Protocol):
    """Reads outputs and reports of replicas."""

    def listed(self, job_id: JobId) -> list[tuple[AttemptNumber, Rank, int]]:
        """Return (attempt, rank, bytes) of each output of the job, in order."""
        ...

    def read(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        """Return (where, up to `limit` bytes) from `offset` on, or None when there is no such output."""
        ...

    def size(self, job_id: JobId, attempt: AttemptNumber, rank: Rank) -> int | None:
        """Return the bytes of an output, with what was given up of it, or None when there is no such output."""
        ...

    def read_report(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        """Return (bytes of the report file, up to `limit` of them from `offset` on), or None when there is none."""
        ...


class CensoredOutputs:
    """Outputs as they are shown. Pieces keep their length, so that offsets mean what they say."""

    def __init__(self, outputs: Outputs, censor: Redactor, reader: EventReader) -> None:
        self._outputs, self._censor, self._reader = outputs, censor, reader
        self._submitted: dict[JobId, JobSubmitted | None] = {}

    def listed(self, job_id: JobId) -> list[tuple[AttemptNumber, Rank, int]]:
        return self._outputs.listed(job_id)

    def read(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        found = self._outputs.read(job_id, attempt, rank, offset, limit)
        values = self._values(job_id)
        if found is None or not found[1] or not values:
            return found
        where, piece = found
        reach = max(len(value.encode()) for value in values) - 1
        begin, end = max(0, where - reach), where + len(piece)
        before = self._exactly(job_id, attempt, rank, begin, where - begin)
        after = self._exactly(job_id, attempt, rank, end, reach)
        return where, blotted_piece(before, piece, after, values)

    def size(self, job_id: JobId, attempt: AttemptNumber, rank: Rank) -> int | None:
        return self._outputs.size(job_id, attempt, rank)

    def read_report(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        found = self._outputs.read_report(job_id, attempt, rank, offset, limit)
        values = self._values(job_id)
        if found is None or not found[1] or not values:
            return found
        size, piece = found
        reach = max(len(value.encode()) for value in values) - 1
        begin, end = max(0, offset - reach), offset + len(piece)
        before = self._outputs.read_report(job_id, attempt, rank, begin, offset - begin) or (0, b"")
        after = self._outputs.read_report(job_id, attempt, rank, end, reach) or (0, b"")
        return size, blotted_piece(before[1], piece, after[1], values)

    def _exactly(self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int) -> bytes:
        """Return the bytes at `offset`, none where there is a gap."""
        found = self._outputs.read(job_id, attempt, rank, offset, limit) if limit else None
        return found[1] if found is not None and found[0] == offset else b""

    def _values(self, job_id: JobId) -> tuple[str, ...]:
        if job_id not in self._submitted:
            if len(self._submitted) >= JOBS_KEPT:
                self._submitted.clear()
            records = self._reader.records_of_job(job_id)
            first = records[0].event if records else None
            if first is None:
                return ()
            self._submitted[job_id] = first if isinstance(first, JobSubmitted) and first.spec.secrets else None
        job = self._submitted[job_id]
        return self._censor.values(job.spec.tenant, job.user, job.spec.secrets) if job is not None else ()
