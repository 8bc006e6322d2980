"""Reports training progress to the node agent: JSON lines appended to the report file of this replica.

Reports are news, not state: if they cannot be written, training goes on and a log line says so once.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.training.errors import BadArgument

PROGRESS_PERIOD_S = 0.2
MAX_FAST_REPORT_BYTES = 64 * 2**20
SLOW_PROGRESS_PERIOD_S = 60.0
"""Past `MAX_FAST_REPORT_BYTES` in the file, progress is written once a minute only: about 200 kB a day."""

_RESERVED = frozenset({"time_ms", "kind", "step", "total", "loss", "samples_per_s", "not_finite"})

_log = logging.getLogger("penstock.training")


class Reporter:
    """Writes the report file; without one (`path` None) every call does nothing.

    Each line goes out in one append, so that a kill between two lines leaves no half line behind. Events may come
    from any thread.
    """

    def __init__(self, path: Path | None, *, clock_s: Callable[[], float] = time.monotonic, rank: int = 0) -> None:
        self._path = path
        self._clock_s = clock_s
        self._rank = rank
        self._descriptor: int | None = None
        self._failed = False
        self._torn = False
        self._size_bytes = 0
        self._last_progress_s = -math.inf
        self._held_back: dict[str, Any] | None = None
        self._rate = _Rate(clock_s)
        self._lock = threading.RLock()
        self.total: int | None = None
        """Steps of the whole training, if known: for estimates of the remaining time."""

    def progress(self, step: int, *, loss: float | None, samples: int | None, metrics: Mapping[str, float]) -> None:
        """Report progress, at most five times a second; what is held back goes out with the next line, unless that
        has newer numbers of the same names.

        Args:
            step: steps completed.
            samples: samples since the previous call; turned into samples per second.
            metrics: further numbers, by a name that is not one of the fixed fields.
        """
        unusable = sorted(_RESERVED & metrics.keys())
        if unusable:
            raise BadArgument(f"metric is named {unusable[0]!r}, a fixed field; expected another name")
        with self._lock:
            self._progress(step, loss, samples, metrics)

    def _progress(self, step: int, loss: float | None, samples: int | None, metrics: Mapping[str, float]) -> None:
        self._rate.add(samples)
        held, self._held_back = self._held_back or {}, None
        record: dict[str, Any] = {**held, "time_ms": _now_ms(), "kind": "progress", "step": step}
        if self.total is not None:
            record["total"] = self.total
        numbers = {**({} if loss is None else {"loss": loss}), **metrics}
        record |= {name: float(value) for name, value in numbers.items()}
        now_s = self._clock_s()
        slow = self._size_bytes > MAX_FAST_REPORT_BYTES
        if now_s - self._last_progress_s < (SLOW_PROGRESS_PERIOD_S if slow else PROGRESS_PERIOD_S):
            self._held_back = record
            return
        self._send_progress(record, now_s)

    def event(self, kind: str, step: int, **fields: Any) -> None:
        """Report something that happened once; never held back."""
        with self._lock:
            self.flush()
            self._append({"time_ms": _now_ms(), "kind": kind, "step": step, **fields})

    @property
    def listens(self) -> Callable[[str], None] | None:
        """The report of the signal that makes the program save and carry on, '' for none; None where nobody reads."""
        return None if self._path is None else lambda name: self.event("listens", 0, signal=name)

    def flush(self) -> None:
        """Write the progress that was held back, if any."""
        with self._lock:
            if self._held_back is not None:
                self._send_progress(self._held_back, self._clock_s())

    def close(self) -> None:
        """Flush and close. Calls after this do nothing."""
        self.flush()
        self._path = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _send_progress(self, record: dict[str, Any], now_s: float) -> None:
        self._held_back = None
        self._last_progress_s = now_s
        rate = self._rate.take()
        if rate is not None:
            record["samples_per_s"] = rate
        self._append(record)

    def _append(self, record: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        try:
            if self._descriptor is None:
                self._descriptor = self._open(self._path)
            line = encode_line({**record, "rank": self._rank})
            if self._torn:
                line = b"\n" + line  # the line before was cut off by a full disk: keep this one apart
            written = os.write(self._descriptor, line)
            self._size_bytes += written
            self._torn = written < len(line)
        except OSError as error:
            if not self._failed:
                self._failed = True
                _log.warning("report could not be written", extra={"path": str(self._path), "error": str(error)})

    def _open(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._size_bytes = os.fstat(descriptor).st_size
        if self._size_bytes and os.pread(descriptor, 1, self._size_bytes - 1) != b"\n":
            os.write(descriptor, b"\n")  # a predecessor was cut off within a line: keep ours apart
        return descriptor


class _Rate:
    """Samples per second between two lines that were really written."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._since_s = clock_s()
        self._samples: int | None = None

    def add(self, samples: int | None) -> None:
        if samples is not None:
            self._samples = (self._samples or 0) + samples

    def take(self) -> float | None:
        now_s = self._clock_s()
        elapsed_s, samples = now_s - self._since_s, self._samples
        self._since_s, self._samples = now_s, None
        return None if samples is None or elapsed_s <= 0 else round(samples / elapsed_s, 3)


def encode_line(record: Mapping[str, Any]) -> bytes:
    """Return `record` as one JSON line; a number that JSON lacks becomes null, named in `not_finite`."""
    strange = [name for name, value in record.items() if isinstance(value, float) and not math.isfinite(value)]
    if strange:
        record = {**record, **dict.fromkeys(strange), "not_finite": strange}
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
