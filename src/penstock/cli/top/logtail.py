"""The end of a job's output, as it grows: what `penstock top` follows. Bounded in bytes, lines and replicas."""

import re
from typing import NamedTuple

from penstock.api import types as api
from penstock.client import Client
from penstock.core.model.foreign import one_line

TAIL_BYTES = 64 * 1024
"""Of each output, this much of its end is read at first, and where it has grown by more than STEP_BYTES."""
STEP_BYTES = 256 * 1024
RANKS_MAX = 16
"""Replicas that are followed; `penstock logs --rank` prints any."""
LINE_MAX = 2_000
"""Characters of one line that are shown."""
TAB = 8
_STYLES = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)")
"""Escape sequences of colours, cursors and titles: taken out, for they command a terminal."""


class LogPiece(NamedTuple):
    """What has come since the last look."""

    lines: list[str]
    unfinished: list[str]
    """Last lines without an end, of each output that has one."""
    note: str


class LogTail:
    """Reads the outputs of the newest attempt. Used in the thread that asks."""

    def __init__(self, job_id: int) -> None:
        self._job_id = job_id
        self._attempt = 0
        self._offsets: dict[int, int] = {}
        self._partial: dict[int, bytes] = {}

    def step(self, client: Client) -> LogPiece:
        """Return new lines; up to STEP_BYTES of each output."""
        listed = client.outputs(self._job_id)
        newest = max((one.attempt for one in listed), default=0)
        lines: list[str] = []
        if newest != self._attempt:
            lines += [f"--- attempt {newest} ---"] if self._attempt else []
            self._attempt, self._offsets, self._partial = newest, {}, {}
        outputs = sorted((one for one in listed if one.attempt == newest), key=lambda one: one.rank)
        several = len(outputs) > 1
        for output in outputs[:RANKS_MAX]:
            lines += self._read(client, output, several=several)
        unfinished = [
            _line(self._partial[rank], rank, several) for rank in sorted(self._partial) if self._partial[rank]
        ]
        return LogPiece(lines, unfinished, self._note(outputs))

    def _note(self, outputs: list[api.OutputRef]) -> str:
        if not outputs:
            return "it has written nothing yet"
        which = f"attempt {self._attempt}"
        if len(outputs) > RANKS_MAX:
            which += f", {RANKS_MAX} of {len(outputs)} replicas: penstock logs {self._job_id} --rank N has any"
        elif len(outputs) > 1:
            which += f", {len(outputs)} replicas"
        return which

    def _read(self, client: Client, output: api.OutputRef, *, several: bool) -> list[str]:
        rank, size = output.rank, output.size_bytes
        begin = self._offsets.get(rank)
        said: list[str] = []
        if begin is None or size - begin > STEP_BYTES:
            start = max(begin or 0, size - TAIL_BYTES)
            if start > (begin or 0):
                said.append(f"[... {start - (begin or 0):,} bytes not shown]")
                self._partial.pop(rank, None)
            cut, begin = start > 0, start
        else:
            cut = False
        if size <= begin:
            self._offsets[rank] = begin
            return said
        where, data = client.logs(self._job_id, output.attempt, rank, begin, STEP_BYTES)
        self._offsets[rank] = where + len(data)
        *whole, self._partial[rank] = (self._partial.pop(rank, b"") + data).split(b"\n")
        if cut and whole:
            whole = whole[1:]  # the end of a line that began before
        self._partial[rank] = self._partial[rank][-STEP_BYTES:]
        return said + [_line(line, rank, several) for line in whole]


def _line(data: bytes, rank: int, several: bool) -> str:
    """Return one line as a terminal would show it in the end, without commands; it carries its rank among several."""
    last = data.rstrip(b"\r").rpartition(b"\r")[2]  # a progress bar overwrites its line
    text = one_line(_STYLES.sub("", last[: 4 * LINE_MAX].decode(errors="replace")).expandtabs(TAB))
    text = text[:LINE_MAX] + "…" if len(text) > LINE_MAX else text
    return f"[{rank}] {text}" if several else text
