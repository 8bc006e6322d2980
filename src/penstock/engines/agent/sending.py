"""Outputs and reports of replicas on their way to the server: one small piece at a time, behind orders and reports.

Each file is a stream with an offset. The server says how much it has, so that nothing is lost or doubled by a new
connection, a killed agent, or another server. What was given up on this node (`bound_output`) is skipped.
"""

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.engines.agent.protocol import OUTPUT_PIECE_BYTES, AgentOutput, OutputKind, ServerStored
from penstock.engines.agent.state_machine import ReplicaEntry
from penstock.engines.processes.outputs import read_output
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.reportfiles import read_report, thin_report
from penstock.privatefiles import write_whole

log = logging.getLogger(__name__)

RATE_BYTES_PER_S = 16 * 2**20
"""Of one node; the rest waits in its files."""
LOOK_S = 0.2
"""Between two looks at a file that had nothing new."""
PAUSE_S = 10.0
"""After the server could keep nothing."""
KEPT_S = 1.0
"""How long the list of what is to be sent may be behind, where nothing would be missed."""
_decode = msgspec.json.Decoder(list[ReplicaKey]).decode


class Stream(msgspec.Struct):
    """One file that is being sent."""

    key: ReplicaKey
    kind: OutputKind
    path: Path
    offset: int | None = None
    """What the server has; None: it has not said."""
    look_s: float = 0.0
    """When to look at the file again."""


class OutputSender:
    """Sends what the replicas of a node write. On the agent's loop.

    Args:
        folder: of the node: the list of what is to be sent lies there.
        entries: the replicas of the agent, until the server has heard of their exits.
    """

    def __init__(
        self,
        data: DataFolder,
        folder: Path,
        entries: Mapping[ReplicaKey, ReplicaEntry],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._data, self._list, self._entries, self._clock = data, folder / "unsent.json", entries, clock
        self._streams: deque[Stream] = deque()
        self._keys: set[ReplicaKey] = set()
        self._done: set[ReplicaKey] = set()
        """Of the agent's replicas those of which the server has all."""
        self._number = 0
        self._out: Stream | None = None
        """The one of which a piece is on its way."""
        self._out_ends = False
        self._after_s = self._kept_s = 0.0
        self._changed = False
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            self._add(_decode(self._list.read_bytes()))

    def sends(self, key: ReplicaKey) -> bool:
        """Return whether something of a replica is to be sent yet."""
        return key in self._keys

    def begin(self) -> None:
        """Take note of a new connection: what is on its way on a former one gets no answer."""
        if self._out is not None:
            self._streams.append(self._out)
        self._out = None
        for stream in self._streams:
            stream.offset, stream.look_s = None, 0.0

    def next(self) -> AgentOutput | None:
        """Return the next piece, None while there is none, or one is on its way."""
        now_s = self._clock()
        if new := [key for key in self._entries if key not in self._keys and key not in self._done]:
            self._add(new)
            self._keep()  # at once: the agent may soon forget them
        if self._changed and now_s >= self._kept_s:
            self._keep()
        if self._out is not None or now_s < self._after_s:
            return None
        for _ in range(len(self._streams)):
            stream = self._streams.popleft()
            piece = self._piece(stream, now_s) if now_s >= stream.look_s else None
            if piece is not None:
                self._out, self._out_ends = stream, piece.ends
                return piece
            self._streams.append(stream)
        return None

    def stored(self, answer: ServerStored) -> None:
        """Take the server's answer to a piece."""
        stream, now_s = self._out, self._clock()
        if stream is None or answer.number != self._number:
            return
        self._out = None
        if answer.problem:
            log.warning("the server keeps no outputs now: %s", answer.problem)
            self._after_s = now_s + PAUSE_S
        elif answer.unwanted or self._out_ends:
            self._end(stream)
            return
        else:
            stream.offset = answer.size
        self._streams.append(stream)

    def _piece(self, stream: Stream, now_s: float) -> AgentOutput | None:
        entry = self._entries.get(stream.key)
        ended = entry is None or entry.state == "exited"  # before its size: nothing is written after
        if stream.offset is None:
            return self._made(stream, 0, b"", ends=False)
        where, data = self._read(stream)
        if data:
            self._after_s = now_s + len(data) / RATE_BYTES_PER_S
            return self._made(stream, where, data, ends=False)
        if ended:
            return self._made(stream, stream.offset, b"", ends=True)
        stream.look_s = now_s + LOOK_S
        return None

    def _made(self, stream: Stream, offset: int, data: bytes, *, ends: bool) -> AgentOutput:
        self._number += 1
        return AgentOutput(self._number, stream.key, stream.kind, offset, data, ends)

    def _read(self, stream: Stream) -> tuple[int, bytes]:
        """Return where the next bytes begin, and them; none at the present end."""
        offset = stream.offset or 0
        if stream.kind == "report":
            found = read_report(stream.path, offset, OUTPUT_PIECE_BYTES)
            return offset, found[1] if found is not None else b""
        try:
            if os.stat(stream.path, follow_symlinks=False).st_size <= offset:
                return offset, b""
        except OSError:
            return offset, b""
        return read_output(stream.path, offset, OUTPUT_PIECE_BYTES) or (offset, b"")

    def _add(self, keys: Iterable[ReplicaKey]) -> None:
        for key in keys:
            self._keys.add(key)
            self._streams.append(Stream(key, "output", self._data.output(key)))
            self._streams.append(Stream(key, "report", self._data.report(key)))

    def _end(self, stream: Stream) -> None:
        """Take note that the server has all of a file."""
        if stream.kind == "report":
            with contextlib.suppress(OSError):
                thin_report(stream.path)
        if not any(one.key == stream.key for one in self._streams):
            self._keys.discard(stream.key)
            self._done = {key for key in self._done if key in self._entries} | {stream.key}
            self._changed = True

    def _keep(self) -> None:
        self._changed, self._kept_s = False, self._clock() + KEPT_S
        try:
            write_whole(self._list, msgspec.json.encode(sorted(self._keys)), synced=False)
        except OSError as error:
            log.warning("what is to be sent cannot be noted: %s", error)
