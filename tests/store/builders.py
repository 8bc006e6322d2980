"""Records, finished jobs and logs for the tests of the stores."""

from collections.abc import Sequence

import msgspec

from penstock.core.model.events import JobSubmitted, Record
from penstock.core.model.ids import ClassId, JobId, UserName
from penstock.core.model.jobs import GangAsk, JobSpec
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.core.state.state import Image, State, fold
from penstock.ports import EventStore, FinishedJob

SPEC = JobSpec(("true",), GangAsk(1, ReplicaAsk(Resources(1000))))


def record(seq: int, name: str = "") -> Record:
    """Return the submit of job `seq`, so that records from 1 on can be folded."""
    return Record(seq, 1_000 + seq, JobSubmitted(JobId(seq), msgspec.structs.replace(SPEC, name=name), UserName("ann")))


def records(first: int, last: int) -> list[Record]:
    return [record(seq) for seq in range(first, last + 1)]


def finished(job_id: int, state: str = "succeeded") -> FinishedJob:
    return FinishedJob(JobId(job_id), f"j{job_id}", "t", "q", "ann", state, "", 1, 2, 3, 1, 0, 1, 0, 500)


def kept(store: EventStore) -> list[Record]:
    """Return everything that the log holds, snapshots left aside."""
    image, tail = store.load()
    assert image is None
    return list(tail)


def restarted(store: EventStore) -> State:
    """Return the state as a server that starts now would have it."""
    image, tail = store.load()
    return fold(list(tail), State.from_image(image) if image else None)


def image_of(log: Sequence[Record]) -> Image:
    return fold(list(log)).image()


def same(one: State, other: State) -> bool:
    """Return whether two states are equal but for the numbers that classes of jobs got, which are a cache."""
    return _plain(one) == _plain(other)


def _plain(state: State) -> bytes:
    jobs = [msgspec.structs.replace(job, class_id=ClassId(0)) for job in state.jobs.values()]
    return msgspec.msgpack.encode(msgspec.structs.replace(state.image(), jobs=jobs))
