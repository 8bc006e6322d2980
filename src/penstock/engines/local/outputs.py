"""Reads what replicas wrote. All virtual nodes share the data folder, so the server reads the files itself."""

import os

from penstock.core.lifecycle.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.engines.local.paths import DataFolder


class LocalOutputs:
    """The outputs below one data folder."""

    def __init__(self, data: DataFolder) -> None:
        self._data = data

    def listed(self, job_id: JobId) -> list[tuple[AttemptNumber, Rank, int]]:
        """Return (attempt, rank, bytes) of each output of the job, in order."""
        return [(attempt, rank, path.stat().st_size) for attempt, rank, path in self._data.outputs(job_id)]

    def read(self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int) -> bytes | None:
        """Return up to `limit` bytes from `offset`, or None when there is no such output."""
        try:
            descriptor = os.open(self._data.output(ReplicaKey(job_id, attempt, rank)), os.O_RDONLY)
        except OSError:
            return None
        try:
            return os.pread(descriptor, limit, offset)
        finally:
            os.close(descriptor)
