"""What programs of a node report, read in rounds: how many report, and how much, is for users to choose."""

import time
from collections.abc import Callable

from penstock.core.messages.reports import ProgressSeen, ReplicaKey
from penstock.engines.processes.outputs import bound_output
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.progress import ReportFile

EVERY_MS = 500
OUTPUT_MAX_BYTES = 64 * 2**20
"""Kept of one replica's output: the newest part."""


class ReportReader:
    """The report files of a node's replicas.

    Args:
        on_seen: gets what a program has reported.
    """

    def __init__(self, data: DataFolder, on_seen: Callable[[ProgressSeen], None]) -> None:
        self._data, self._on_seen = data, on_seen
        self._files: dict[ReplicaKey, ReportFile] = {}
        self._round: list[ReplicaKey] = []
        """Replicas that are still to be looked at in this round."""
        self._due_ms = 0

    @property
    def busy(self) -> bool:
        """Whether a round has begun that has not ended."""
        return bool(self._round)

    def follow(self, key: ReplicaKey) -> None:
        """Read what a replica reports from now on."""
        self._files[key] = ReportFile(key, self._data.report(key))

    def read(self, now_ms: int, slice_s: float) -> bool:
        """Read reports for as long as a slice lasts, and bound outputs; return whether a round began."""
        begins = not self._round and now_ms >= self._due_ms
        if begins:
            self._due_ms, self._round = now_ms + EVERY_MS, list(self._files)
        until_s = time.monotonic() + slice_s
        while self._round and time.monotonic() < until_s:
            key = self._round.pop()
            if key in self._files:
                for seen in self._files[key].read():
                    self._on_seen(seen)
                bound_output(self._data.output(key), OUTPUT_MAX_BYTES)
        return begins

    def end(self, key: ReplicaKey) -> bool:
        """Read the last reports of a replica; return whether its program said that it is done."""
        file = self._files.pop(key, None)
        for seen in file.rest() if file is not None else ():
            self._on_seen(seen)
        return file is not None and file.done
