"""Places that are kept for jobs of a simulated world until these stand there: followed in its log alone.

A promise ends without being kept when its job may not start, or when something happens to the places.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.core.model import events as ev
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import JobSpec, ReplicaPlace

Device = tuple[NodeName, int]


class Promise(NamedTuple):
    """Where a job is to stand next."""

    places: tuple[ReplicaPlace, ...]
    basis: int
    """The plan that said so: the record that it rests on."""


class Promises:
    """Places that are kept for jobs that come back, or come later."""

    def __init__(self) -> None:
        self._of: dict[JobId, Promise] = {}

    def make(self, job_id: JobId, places: tuple[ReplicaPlace, ...], basis: int) -> None:
        self._of[job_id] = Promise(places, basis)

    def replace(self, places: tuple[ReplicaPlace, ...], basis: int) -> None:
        """Note that a later round gives out places: it is played when nobody leaves, so who was to come could not."""
        taken = devices_of(places)
        for job_id in [i for i, one in self._of.items() if one.basis != basis and taken & devices_of(one.places)]:
            self.void(job_id)

    def void(self, job_id: JobId) -> None:
        """Note that the places of a job need not be kept any more."""
        self._of.pop(job_id, None)

    def follow(self, event: ev.AnyEvent, specs: Mapping[JobId, JobSpec]) -> None:
        """Note what ends promises without a start."""
        match event:
            case ev.NodeRegistered():
                self._void_on(event.spec.name)
            case ev.NodeLost() | ev.NodeShut() | ev.NodeDrainChanged() | ev.NodeLeaveNoted():
                self._void_on(event.node)
            case ev.DeviceClosed() | ev.OthersLoadChanged():
                self._void_on(event.node)
            case ev.TenantHeld():
                for job_id in [i for i in self._of if specs[i].tenant == event.tenant]:
                    self.void(job_id)
            case ev.JobEdited() | ev.JobHeld() | ev.JobCancelRequested() | ev.JobFinished():
                self.void(event.job_id)
            case ev.AttemptEnded() if event.outcome not in ("resized", "moved"):
                self.void(event.job_id)
            case _:
                pass

    def _void_on(self, node: NodeName) -> None:
        for job_id in [i for i, one in self._of.items() if any(place.node == node for place in one.places)]:
            self.void(job_id)

    def given(self, event: ev.AttemptAllocated) -> Iterator[str]:
        """Yield what is wrong with places that a job is given; its promise is kept by that."""
        self._of.pop(event.job_id, None)
        taken = devices_of(event.places)
        for job_id, one in self._of.items():
            if taken & devices_of(one.places):
                kept = f"{_text(devices_of(one.places))} are kept for job {job_id} by the plan of {one.basis}"
                yield f"job {event.job_id} was given {_text(taken)}, and {kept}"


def devices_of(places: Iterable[ReplicaPlace]) -> set[Device]:
    return {(place.node, index) for place in places for index in place.devices}


def _text(devices: Iterable[Device]) -> str:
    return ", ".join(f"{name}:{index}" for name, index in sorted(devices))
