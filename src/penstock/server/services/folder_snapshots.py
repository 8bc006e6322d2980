"""Snapshots of folders for nodes, and the cleaning of old ones.

A node gets parts of a snapshot while a job that starts in it has a replica there, and of no other one.
"""

import asyncio
import logging
from collections.abc import Callable

from penstock.core.model.errors import PenstockError
from penstock.core.model.ids import NodeName
from penstock.core.state.state import State
from penstock.engines.agent.protocol import PART_BYTES, WANTED_MAX, AgentFetch, ServerPart
from penstock.server.services.periodic import repeat
from penstock.store.folder_snapshots import FolderSnapshots, Holder

log = logging.getLogger(__name__)

CLEAN_EVERY_S = 3_600.0
NOT_HERE = "no job that starts in this snapshot has a replica on this node"


class SnapshotService:
    """Reads snapshots for agents, on their loop's threads; `keep` runs on the server's loop."""

    def __init__(self, kept: FolderSnapshots, state: Callable[[], State]) -> None:
        self._kept, self._state = kept, state

    def fetch(self, node: NodeName, wanted: AgentFetch) -> ServerPart:
        """Return the part of a snapshot that a node asks for, or why there is none. Any thread."""
        if not self._placed(node, wanted.snapshot) or len(wanted.wanted) > WANTED_MAX:
            return ServerPart(wanted.number, problem=NOT_HERE)
        by, _, name = wanted.snapshot.partition("/")
        try:
            if wanted.wanted:
                chunks = self._kept.contents(Holder(by), name, wanted.wanted, PART_BYTES)
                return ServerPart(wanted.number, tuple(chunks))
            data = self._kept.files(Holder(by), name)
            piece = data[max(0, wanted.offset) : max(0, wanted.offset) + PART_BYTES]
            return ServerPart(wanted.number, (piece,), len(data))
        except PenstockError as error:
            log.warning("a snapshot cannot be read", extra={"node": node, "problem": error.message})
            return ServerPart(wanted.number, problem=error.message)

    def _placed(self, node: NodeName, snapshot: str) -> bool:
        state = self._state()
        load = state.indexes.loads.get(node)
        held = load.replicas.copy() if load is not None else set()
        jobs = (state.jobs.get(job_id) for job_id, _ in held)
        return any(job is not None and job.spec.snapshot == snapshot for job in jobs)

    async def keep(self) -> None:
        """Remove what is no longer needed, now and every hour."""
        await repeat(self._clean, "snapshots of folders", CLEAN_EVERY_S)

    async def _clean(self) -> None:
        if freed := await asyncio.to_thread(self._kept.clean):
            log.info("old snapshots of folders were removed", extra={"bytes": freed})
