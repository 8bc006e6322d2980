"""Looks whether the disk of a node's own folder takes more: its journal, and what its jobs write."""

from pathlib import Path

from penstock.diskroom import AGAIN_BYTES, FULL_BYTES, why_full
from penstock.engines.agent.journal import Journal


class DiskWatch:
    """Looks at one folder."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self._folder, self._journal = folder, journal
        self._full = ""

    def problem(self) -> str:
        """Let the journal write what waits; return why the disk takes nothing, or ''."""
        self._journal.tend()
        self._full = why_full(self._folder, AGAIN_BYTES if self._full else FULL_BYTES)
        problem = self._journal.problem
        return self._full or (f"its journal cannot be written: {problem}" if problem else "")
