"""What programs write into their report files, read as it comes."""

import os
from pathlib import Path

import msgspec

from penstock.core.lifecycle.reports import ProgressSeen, ReplicaKey

READ_MAX_BYTES = 1 << 20
LINE_MAX_BYTES = 65_536
NUMBER_MAX = 2**53


class _ReportLine(msgspec.Struct):
    """The fields of a report line that the server needs; others are the monitor's."""

    kind: str
    step: int = 0
    bytes: int = 0
    why: str = ""


_decode = msgspec.json.Decoder(_ReportLine).decode


class ReportFile:
    """Follows one replica's report file. Lines that are no reports are counted and passed over."""

    def __init__(self, key: ReplicaKey, path: Path) -> None:
        self._key, self._path = key, path
        self._offset = 0
        self.bad_lines = 0
        self.done = False
        self.step = 0

    def read(self) -> list[ProgressSeen]:
        """Return the checkpoints and resumptions reported since the last call, else the newest step; notes `done`."""
        found: list[ProgressSeen] = []
        before = self.step
        while data := self._next():
            for line in data.splitlines():
                seen = self._line(line)
                if seen is not None:
                    found.append(seen)
        if self.step > before and not found:
            found.append(ProgressSeen(self._key, "progress", self.step))
        return found

    def _next(self) -> bytes:
        try:
            size = os.stat(self._path).st_size
        except OSError:
            return b""
        if size <= self._offset:
            return b""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(READ_MAX_BYTES)
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) > LINE_MAX_BYTES:
            end = len(data)
        self._offset += end
        return data[:end]

    def _line(self, line: bytes) -> ProgressSeen | None:
        try:
            report = _decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self.bad_lines += 1
            return None
        if not (0 <= report.step <= NUMBER_MAX and 0 <= report.bytes <= NUMBER_MAX):
            self.bad_lines += 1
            return None
        self.step = max(self.step, report.step)
        if report.kind == "done":
            self.done = True
        elif report.kind == "checkpoint":
            return ProgressSeen(self._key, "checkpoint", report.step, report.bytes, report.why)
        elif report.kind == "resumed":
            return ProgressSeen(self._key, "resumed", report.step)
        return None
