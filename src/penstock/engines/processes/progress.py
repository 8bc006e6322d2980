"""Reads the report files of programs as they grow."""

import contextlib
import math
import os
import statistics
from collections import deque
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.core.messages.reports import ProgressSeen, ReplicaKey
from penstock.core.model.batching import BatchSeen
from penstock.core.model.progress import SAVE_SIGNALS, Gauges
from penstock.engines.processes import account_files

READ_MAX_BYTES = 1 << 18
TURN_MAX_BYTES = 1 << 18
"""In one go: a program that writes faster, or a huge file, must not keep the agent from all other work."""
LINE_MAX_BYTES = 65_536
WHY_MAX_CHARS = 200
"""Of what a program says about a checkpoint: an agent keeps many of them until the server has heard."""
NUMBER_MAX = 2**53
PACE_KEPT = 33
PACE_LEAST = 3
LOCAL_MAX, ACCUMULATION_MAX, NOISE_MAX = 2**31, 2**16, 2**40
"""Samples of a pass, passes before an update, samples: a program that says more is wrong."""
STEP_MAX_US = 24 * 3_600_000_000
BAD_LOSSES_LEAST = 3
"""Values in a row that are not finite before it is reported: with mixed precision a single one is usual."""


class _ReportLine(msgspec.Struct):
    """The fields of a report line that the server needs; others are the monitor's."""

    kind: str
    step: int = 0
    bytes: int = 0
    why: str = ""
    signal: str = ""
    time_ms: int = 0
    total: int = 0
    samples_per_s: float | None = None
    data_wait: float | None = None
    communication: float | None = None
    memory_bytes: float | None = None
    queue_length: float | None = None
    local_batch: float | None = None
    accumulation: float | None = None
    step_s: float | None = None
    sync_s: float | None = None
    noise_scale: float | None = None
    loss: object = None
    not_finite: object = None
    """Names of numbers that JSON lacks: they are null in the line."""


_decode = msgspec.json.Decoder(_ReportLine).decode


class ReportFile:
    """Follows one replica's report file. Lines that are no reports are counted and passed over."""

    def __init__(self, key: ReplicaKey, path: Path) -> None:
        self._key, self._path = key, path
        self._offset = 0
        self.bad_lines = 0
        self.done = False
        self.step = 0
        self._pace = StepPace()
        self._gauges = Gauges()
        self._latest: _ReportLine | None = None
        """The newest progress that is not in the gauges yet."""
        self._bad_losses = 0

    def read(self) -> list[ProgressSeen]:
        """Return the checkpoints and resumptions reported since the last call, then the newest step; notes `done`."""
        found: list[ProgressSeen] = []
        before = self.step
        end = self._offset + TURN_MAX_BYTES
        while self._offset < end and (data := self._next()):
            for line in data.splitlines():
                seen = self._line(line)
                if seen is not None:
                    found.append(seen)
        if self._latest is not None:
            self._gauges = replace(_gauges(self._latest), loss_not_finite=self._bad_losses >= BAD_LOSSES_LEAST)
            self._latest = None
        if self.step != before and (not found or found[-1].step != self.step):
            gauges = replace(self._gauges, step_ms=self._pace.step_ms(), report_gap_ms=self._pace.gap_ms())
            found.append(ProgressSeen(self._key, "progress", self.step, gauges=gauges if gauges != Gauges() else None))
        return found

    def rest(self) -> list[ProgressSeen]:
        """Return the rest as `read` does, after the last write; of more than it reads in one go, the end."""
        with contextlib.suppress(OSError):
            size = os.stat(self._path, follow_symlinks=False).st_size  # root's: nothing is opened
            self._offset = max(self._offset, size - TURN_MAX_BYTES)
        return self.read()

    def _next(self) -> bytes:
        try:
            if os.stat(self._path, follow_symlinks=False).st_size <= self._offset:  # root's: nothing is opened
                return b""
            descriptor = account_files.plain_file(self._path)
        except OSError:
            return b""
        try:
            data = os.pread(descriptor, READ_MAX_BYTES, self._offset)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
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
        self.step = report.step if report.kind == "progress" else max(self.step, report.step)
        if report.kind == "done":
            self.done = True
        elif report.kind == "checkpoint":
            return ProgressSeen(self._key, "checkpoint", report.step, report.bytes, report.why[:WHY_MAX_CHARS])
        elif report.kind == "progress":
            self._pace.add(report.time_ms, report.step)
            self._note_loss(report)
            self._latest = report
        elif report.kind == "resumed":
            return ProgressSeen(self._key, "resumed", report.step)
        elif report.kind == "listens" and report.signal in ("", *SAVE_SIGNALS):
            return ProgressSeen(self._key, "listens", report.step, why=report.signal)
        return None

    def _note_loss(self, report: _ReportLine) -> None:
        if isinstance(report.not_finite, list) and "loss" in report.not_finite:
            self._bad_losses += 1
        elif report.loss is not None:
            self._bad_losses = 0


class StepPace:
    """The usual time of a step, from the latest reports."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._each_ms: deque[float] = deque(maxlen=PACE_KEPT)
        self._gaps_ms: deque[int] = deque(maxlen=PACE_KEPT)

    def add(self, time_ms: int, step: int) -> None:
        """Take in that `step` was reached at `time_ms`; what goes back in step or time begins anew."""
        if self._last is not None and step > self._last[1] and time_ms >= self._last[0]:
            self._each_ms.append((time_ms - self._last[0]) / (step - self._last[1]))
            self._gaps_ms.append(time_ms - self._last[0])
        if self._last is None or step != self._last[1]:
            self._last = time_ms, step

    def step_ms(self) -> int:
        """Return the median time of a step in ms, at least 1; 0 before enough of them are known."""
        return max(1, round(statistics.median(self._each_ms))) if len(self._each_ms) >= PACE_LEAST else 0

    def gap_ms(self) -> int:
        """Return the median time between two reports in ms; 0 before enough of them are known."""
        return round(statistics.median(self._gaps_ms)) if len(self._gaps_ms) >= PACE_LEAST else 0


def _gauges(report: _ReportLine) -> Gauges:
    return Gauges(
        total_steps=_whole(report.total),
        samples_per_s_milli=_whole(report.samples_per_s, 1000),
        data_wait_milli=min(1000, _whole(report.data_wait, 1000)),
        communication_milli=min(1000, _whole(report.communication, 1000)),
        memory_bytes=_whole(report.memory_bytes),
        data_queue=_whole(report.queue_length),
        batch=_batch(report),
    )


def _batch(report: _ReportLine) -> BatchSeen | None:
    """Return what a program measured with its batch; None where it says nothing, or numbers that cannot be."""
    local, accumulation = _whole(report.local_batch), _whole(report.accumulation)
    step_us = _whole(report.step_s, 1_000_000)
    if not (0 < local <= LOCAL_MAX and accumulation <= ACCUMULATION_MAX and 0 < step_us <= STEP_MAX_US):
        return None
    sync_us, noise = min(step_us, _whole(report.sync_s, 1_000_000)), _whole(report.noise_scale)
    return BatchSeen(local, accumulation, step_us, sync_us, noise if noise <= NOISE_MAX else 0)


def _whole(value: float | None, scale: int = 1) -> int:
    """Return a program's number as an integer; 0 where it is missing or absurd."""
    if value is None or not math.isfinite(value) or not 0 <= value * scale <= NUMBER_MAX:
        return 0
    return round(value * scale)
