"""Where the replicas of a job were placed, by the log: whose outputs a node of another machine may send."""

from collections.abc import Callable

from penstock.core.model.events import AttemptAllocated
from penstock.core.model.ids import JobId, Rank
from penstock.core.state.state import State
from penstock.engines.joined.outputs import JobPlaces
from penstock.ports import EventReader


def places_in(reader: EventReader, state: Callable[[], State]) -> Callable[[JobId], JobPlaces | None]:
    """Return what reads the places of a job's replicas, and the mark of its folder, from the log. Any thread."""

    def read(job_id: JobId) -> JobPlaces | None:
        records = reader.records_of_job(job_id)
        if not records:
            return None
        nodes = {
            (record.event.attempt, Rank(rank)): place.node
            for record in records
            if isinstance(record.event, AttemptAllocated)
            for rank, place in enumerate(record.event.places)
        }
        cluster = state().identity.cluster
        return JobPlaces(nodes, f"{cluster}-{records[0].time_ms}" if cluster else "")

    return read
