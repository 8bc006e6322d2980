"""Checkpoints that no node reaches any more: after a while their jobs start anew, and the log says so.

A job that has saved waits for nodes on the storage where that lies. Its node may only have lost touch, and come back;
but a job that waits for a disk which is gone would wait for ever.
"""

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.events import CheckpointAbandoned
from penstock.core.state.state import State

ABANDONED_AFTER_MS = 600_000
"""No node on the storage of a checkpoint has lived for so long: the job starts without it."""


def abandon_out_of_reach(tx: Transaction) -> None:
    """Let waiting jobs start without what they have saved where no living node has reached it for long."""
    state, since = tx.state, dict[str, int | None]()
    waiting = []
    for _, pending in state.indexes.pending.items():
        storage = pending.key.ask.storage
        if storage is not None:
            if storage not in since:
                since[storage] = unreached_since_ms(state, storage)
            if since[storage] is not None:
                waiting += pending.jobs
    for job in sorted(waiting, key=lambda one: one.id):
        storage = job.progress.saved_on
        assert storage is not None
        if tx.now_ms - max(since[storage] or 0, job.waiting_since_ms) >= ABANDONED_AFTER_MS:
            tx.emit(CheckpointAbandoned(job.id, job.progress.checkpoint_step, storage))


def unreached_since_ms(state: State, storage: str) -> int | None:
    """Return since when no living node has a storage (unix ms; 0: since before any node is known); None: one has."""
    lost = [node for node in state.nodes.values() if node.spec.storage == storage]
    return None if any(node.state != "lost" for node in lost) else max((node.lost_ms for node in lost), default=0)
