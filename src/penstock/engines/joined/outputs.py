"""Outputs and reports that nodes of other machines send, kept where those of this machine's nodes lie.

Beside each output a small file says which node sends it, and whether all of it has come: `attempt-1.rank-0.from`.
"""

import contextlib
import logging
import os
import shutil
import stat
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank
from penstock.engines.agent.protocol import AgentOutput, ServerStored
from penstock.engines.processes.jobfolders import make_own
from penstock.engines.processes.outputs import bound_output
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.reportfiles import thin_report
from penstock.privatefiles import PASSED, write_whole

log = logging.getLogger(__name__)

OUTPUT_MAX_BYTES = 64 * 2**20
"""Kept of one replica's output: the newest part, as its node keeps it."""
DISK_LEAST_BYTES = 512 * 2**20
"""Free on the server's disk: its log comes first."""
JOBS_KEPT = 2_000
OFFSET_MAX = 2**50
RANKS_LOOKED_AT = 4_096
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class JobPlaces(NamedTuple):
    """Where a job's replicas were placed, of all attempts so far, and the mark of its folder."""

    nodes: Mapping[tuple[AttemptNumber, Rank], NodeName]
    mark: str


class Source(msgspec.Struct, frozen=True):
    """Where an output comes from."""

    node: NodeName
    whole: bool = False
    """Nothing of it is missing here but what its node has given up."""


class ArrivingOutputs:
    """Keeps what nodes send. Any thread.

    Args:
        places: returns where a job's replicas are, None for a job that is not in the log. Reads the log.
        is_away: whether a node is on another machine, and sends its outputs.
    """

    def __init__(
        self, data: DataFolder, places: Callable[[JobId], JobPlaces | None], is_away: Callable[[NodeName], bool]
    ) -> None:
        self._data, self._read_places, self._is_away = data, places, is_away
        self._lock = Lock()
        self._places: OrderedDict[JobId, JobPlaces] = OrderedDict()

    def store(self, node: NodeName, piece: AgentOutput) -> ServerStored:
        """Keep a piece, where its replica was placed on this node, and say how much there is now."""
        key = piece.key
        places = self._placed(key)
        if places is None or places.nodes.get((key.attempt, key.rank)) != node or not 0 <= piece.offset <= OFFSET_MAX:
            return ServerStored(piece.number, unwanted=True)
        try:
            if piece.data and shutil.disk_usage(self._data.root).free < DISK_LEAST_BYTES:
                return ServerStored(piece.number, problem="the server's disk is nearly full")
            size = self._kept(node, piece, places.mark)
        except OSError as error:
            log.error("an output cannot be kept: %s", error, extra={"key": str(key), "node": node})
            return ServerStored(piece.number, problem=f"the server cannot keep it: {error.strerror}")
        return ServerStored(piece.number, size)

    def arriving(self, job_id: JobId, connected: Callable[[], set[NodeName]]) -> bool:
        """Return whether more of the newest attempt's outputs will come, from nodes that are connected."""
        places = self._placed(ReplicaKey(job_id, AttemptNumber(1), Rank(0)))
        if places is None or not places.nodes:
            return False
        newest = max(attempt for attempt, _ in places.nodes)
        away = [rank for (attempt, rank), node in places.nodes.items() if attempt == newest and self._is_away(node)]
        if not away:
            return False
        there = connected()
        return any(
            places.nodes[newest, rank] in there and not self._is_whole(ReplicaKey(job_id, newest, rank))
            for rank in away[:RANKS_LOOKED_AT]
        )

    def missing(self, job_id: JobId, attempt: AttemptNumber, rank: Rank) -> str:
        """Return the node that has an output of which nothing has come, '' where that is not why there is none."""
        places = self._placed(ReplicaKey(job_id, attempt, rank))
        node = places.nodes.get((attempt, rank)) if places is not None else None
        return node if node is not None and self._is_away(node) else ""

    def _placed(self, key: ReplicaKey) -> JobPlaces | None:
        with self._lock:
            known = self._places.get(key.job_id)
            if known is not None and (key.attempt, key.rank) in known.nodes:
                self._places.move_to_end(key.job_id)
                return known
        found = self._read_places(key.job_id)
        if found is not None:
            with self._lock:
                self._places[key.job_id] = found
                while len(self._places) > JOBS_KEPT:
                    self._places.popitem(last=False)
        return found

    def _kept(self, node: NodeName, piece: AgentOutput, mark: str) -> int:
        key, folder = piece.key, self._data.job(piece.key.job_id)
        if not _source_file(self._data, key).exists():
            folder.parent.mkdir(mode=PASSED, parents=True, exist_ok=True)
            if mark:
                make_own(folder, mark)
            folder.mkdir(mode=0o700, exist_ok=True)
            self._note(key, Source(node))
        path = self._data.output(key) if piece.kind == "output" else self._data.report(key)
        if piece.kind == "report" and not piece.data and not path.exists():
            return 0  # few programs report
        size = _written(path, piece)
        if piece.data and piece.kind == "output":
            bound_output(path, OUTPUT_MAX_BYTES)
        if piece.ends and piece.kind == "output":
            self._note(key, Source(node, whole=True))
        elif piece.ends:
            thin_report(path)
        return size

    def _note(self, key: ReplicaKey, source: Source) -> None:
        write_whole(_source_file(self._data, key), msgspec.json.encode(source), synced=False)

    def _is_whole(self, key: ReplicaKey) -> bool:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(_source_file(self._data, key).read_bytes(), type=Source).whole
        return False


def _source_file(data: DataFolder, key: ReplicaKey) -> Path:
    return data.output(key).with_suffix(".from")


def _written(path: Path, piece: AgentOutput) -> int:
    """Write a piece behind what there is, leaving a hole where its node has one; return the size then.

    What is there already is left as it is: an answer was lost.
    """
    descriptor = os.open(path, _WRITING, 0o640)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
            raise OSError(0, "it is no plain file", str(path))
        if piece.offset < about.st_size or not piece.data:
            return about.st_size
        done = 0
        while done < len(piece.data):
            done += os.pwrite(descriptor, piece.data[done:], piece.offset + done)
        return piece.offset + done
    finally:
        os.close(descriptor)
