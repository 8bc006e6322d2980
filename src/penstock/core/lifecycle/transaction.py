"""A group of events decided together: each is folded at once, so that the next decision sees it."""

from collections.abc import Mapping, Sequence

from penstock.core.model.events import AnyEvent, JobFinished, Record, ReplicaExited, ReplicaStarted
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.state.state import State


class Transaction:
    """Collects the records of one commit. They may not be delivered before they are on disk."""

    def __init__(self, state: State, now_ms: int, reached: Mapping[JobId, int] | None = None) -> None:
        self.state = state
        self.reached: Mapping[JobId, int] = reached or {}
        """Steps that programs reported and that no event carries yet."""
        self.now_ms = max(now_ms, state.time_ms)
        self.records: list[Record] = []
        self.finished: list[tuple[Job, Record]] = []
        """Jobs that left the state in this group, as they stood, each with the record of its end."""

    def emit(self, event: AnyEvent) -> None:
        """Fold `event` into the state and keep its record for the commit."""
        record = Record(self.state.seq + 1, self.now_ms, event)
        if isinstance(event, JobFinished):
            self.finished.append((self.state.jobs[event.job_id], record))
        self.state.apply(record)
        self.records.append(record)

    def emit_alike(self, events: Sequence[ReplicaStarted] | Sequence[ReplicaExited]) -> None:
        """Do what `emit` does for each: replicas of one attempt, each once, that all start or all exit."""
        alike: Sequence[AnyEvent] = events
        if alike:
            records = [Record(seq, self.now_ms, event) for seq, event in enumerate(alike, self.state.seq + 1)]
            self.state.apply_alike(records)
            self.records += records
