"""Allocations: which nodes and devices each attempt held, and when. A fold of the log that goes on for ever.

Unlike sessions (`sessions.py`), which are priced, an allocation is one bar of a timeline: all replicas of one attempt
on one node, from their start until the last of them is gone. Only what has not ended is kept here.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock.core.model import events as ev
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.gang import HALF_MILLI, halved
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank, TenantName, UserName
from penstock.core.model.jobs import GangAsk, Outcome, ReplicaPlace
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, ReplicaAsk


class Allocation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one attempt held on one node in [start_ms, end_ms) (unix ms); `end_ms` is 0 while it lasts."""

    job_id: JobId
    attempt: AttemptNumber
    node: NodeName
    start_ms: int
    end_ms: int
    device_milli: int
    """Thousandths of devices; a part of a device counts as its part."""
    tenant: TenantName
    user: UserName
    job_name: str
    devices: tuple[int, ...] = ()
    """Their indexes on the node, ascending."""
    outcome: Outcome | str = ""
    """How the attempt ended; empty until it has ended everywhere."""


class OpenRank(msgspec.Struct, array_like=True):
    """What one replica of an attempt holds."""

    node: NodeName
    parts: tuple[tuple[int, int], ...]
    """Indexes of devices on the node, and thousandths of each."""
    models: tuple[tuple[str, int], ...]
    """Thousandths of devices by model; of claims, too, which have no indexes."""
    gone: bool = False


class OpenNode(msgspec.Struct, omit_defaults=True):
    """The part of an attempt on one node."""

    devices: tuple[int, ...]
    device_milli: int
    replicas: int
    """That are not gone yet."""
    end_ms: int = 0


class OpenAttempt(msgspec.Struct):
    """An attempt that has not ended."""

    number: AttemptNumber
    start_ms: int
    ranks: tuple[OpenRank, ...]
    nodes: dict[NodeName, OpenNode]


class KnownJob(msgspec.Struct, omit_defaults=True):
    """A job that has not ended."""

    id: JobId
    tenant: TenantName
    user: UserName
    name: str
    asks: tuple[GangAsk, ...]
    """Its own, then its alternatives."""
    attempt: OpenAttempt | None = None


class Move(NamedTuple):
    """A replica takes its place, or leaves it."""

    tenant: TenantName
    held: OpenRank
    sign: int
    """1 or -1."""


class JobImage(msgspec.Struct, frozen=True, array_like=True):
    """A `KnownJob`; `asks` by their place in the image: jobs of an array have the same."""

    id: JobId
    tenant: TenantName
    user: UserName
    name: str
    asks: int
    attempt: OpenAttempt | None


class AllocationImage(msgspec.Struct, frozen=True):
    """The whole of an `AllocationLog`."""

    seq: int
    time_ms: int
    jobs: tuple[JobImage, ...]
    asks: tuple[tuple[GangAsk, ...], ...]
    nodes: tuple[NodeSpec, ...]


class AllocationLog:
    """Folds records; `take` returns the allocations that a record has ended. For one thread."""

    def __init__(self, image: AllocationImage | None = None) -> None:
        image = image or AllocationImage(0, 0, (), (), ())
        self.seq, self.time_ms = image.seq, image.time_ms
        self.jobs: dict[JobId, KnownJob] = {
            one.id: KnownJob(one.id, one.tenant, one.user, one.name, image.asks[one.asks], one.attempt)
            for one in image.jobs
        }
        self._nodes: dict[NodeName, NodeSpec] = {spec.name: spec for spec in image.nodes}
        self.moves: list[Move] = []
        """What the last record did to nodes."""
        self._shown: dict[JobId, tuple[Allocation, ...]] = {}
        """What `open` yields of a job, as long as nothing about it changes: most of them stand for hours."""
        self._on_node: dict[NodeName, set[JobId]] = {}
        """Jobs with replicas that are not gone."""
        for known in image.jobs:
            for name, held in known.attempt.nodes.items() if known.attempt else ():
                if not held.end_ms:
                    self._on_node.setdefault(name, set()).add(known.id)

    def image(self) -> AllocationImage:
        """Return everything, to be encoded before the next record is taken."""
        asks: dict[tuple[GangAsk, ...], int] = {}
        jobs = tuple(
            JobImage(one.id, one.tenant, one.user, one.name, asks.setdefault(one.asks, len(asks)), one.attempt)
            for one in self.jobs.values()
        )
        return AllocationImage(self.seq, self.time_ms, jobs, tuple(asks), tuple(self._nodes.values()))

    def open(self) -> Iterator[Allocation]:
        """Yield what has not ended, and parts that have ended of attempts that have not."""
        for known in self.jobs.values():
            if known.attempt is not None:
                yield from self._shown.get(known.id) or self._show(known, known.attempt)

    def _show(self, known: KnownJob, attempt: OpenAttempt) -> tuple[Allocation, ...]:
        shown = self._shown[known.id] = tuple(_allocations(known, attempt, ""))
        return shown

    def take(self, record: ev.Record) -> Sequence[Allocation]:
        """Fold one record.

        Raises: BrokenInvariant when it does not follow the last one.
        """
        if record.seq != self.seq + 1:
            raise BrokenInvariant(f"record {record.seq} does not follow {self.seq}")
        self.seq, self.time_ms = record.seq, max(self.time_ms, record.time_ms)
        self.moves.clear()
        event = record.event
        match event:
            case ev.JobSubmitted():
                spec = event.spec
                asks = (spec.ask, *spec.alternatives)
                self.jobs[event.job_id] = KnownJob(event.job_id, spec.tenant, event.user, spec.name, asks)
            case ev.JobEdited():
                self._edited(event)
            case ev.NodeRegistered():
                self._nodes[event.spec.name] = event.spec
            case ev.AttemptAllocated():
                self._allocated(event)
            case ev.DeviceShared():
                self._resize(event.job_id, HALF_MILLI)
            case ev.DeviceShareEnded():
                self._resize(event.job_id, WHOLE_DEVICE_MILLI)
            case ev.ReplicaExited():
                self._exited(event)
            case ev.NodeLost():
                self._lost(event.node)
            case ev.AttemptEnded():
                return self._ended(event)
            case ev.JobFinished():
                self.jobs.pop(event.job_id, None)
                self._shown.pop(event.job_id, None)
            case _:
                pass
        return ()

    def _edited(self, event: ev.JobEdited) -> None:
        known, change = self.jobs[event.job_id], event.change
        self._shown.pop(event.job_id, None)
        known.name = known.name if change.name is None else change.name
        if change.ask is not None:
            known.asks = (change.ask, *known.asks[1:])

    def _allocated(self, event: ev.AttemptAllocated) -> None:
        known = self.jobs[event.job_id]
        chosen = known.asks[event.choice]
        ask = chosen.sized(len(event.places)) if chosen.elastic else chosen
        ask = ask if event.pairing is None else halved(ask, event.pairing.memory_bytes)
        ranks = tuple(self._rank(ask.each_of(Rank(rank)), place) for rank, place in enumerate(event.places))
        on_nodes: dict[NodeName, list[OpenRank]] = {}
        for held in ranks:
            on_nodes.setdefault(held.node, []).append(held)
            self.moves.append(Move(known.tenant, held, 1))
        self._shown.pop(known.id, None)
        known.attempt = OpenAttempt(event.attempt, self.time_ms, ranks, {n: _node(r) for n, r in on_nodes.items()})
        for name in on_nodes:
            self._on_node.setdefault(name, set()).add(event.job_id)

    def _rank(self, each: ReplicaAsk, place: ReplicaPlace) -> OpenRank:
        models, milli = dict(each.claimed), 0
        if each.devices is not None and place.devices:
            milli, devices = each.devices.milli // len(place.devices), self._nodes[place.node].devices
            for index in place.devices:
                models[devices[index].model] = models.get(devices[index].model, 0) + milli
        return OpenRank(place.node, tuple((index, milli) for index in place.devices), tuple(models.items()))

    def _resize(self, job_id: JobId, milli: int) -> None:
        """Take over what an attempt on one device holds of it from now on."""
        known = self.jobs[job_id]
        attempt = known.attempt
        if attempt is None or attempt.ranks[0].gone:
            return
        before = attempt.ranks[0]
        ((index, _),), ((model, _),) = before.parts, before.models
        after = OpenRank(before.node, ((index, milli),), ((model, milli),))
        attempt.ranks, attempt.nodes[before.node].device_milli = (after,), milli
        self.moves += (Move(known.tenant, before, -1), Move(known.tenant, after, 1))
        self._shown.pop(job_id, None)

    def _exited(self, event: ev.ReplicaExited) -> None:
        known = self.jobs.get(event.job_id)
        if known is not None and known.attempt is not None and known.attempt.number == event.attempt:
            self._leave(known, known.attempt, known.attempt.ranks[event.rank])

    def _leave(self, known: KnownJob, attempt: OpenAttempt, held: OpenRank) -> None:
        if held.gone:
            return  # it was lost with its node before
        held.gone = True
        self._shown.pop(known.id, None)
        self.moves.append(Move(known.tenant, held, -1))
        node = attempt.nodes[held.node]
        node.replicas -= 1
        if node.replicas == 0:
            node.end_ms = self.time_ms
            self._on_node[held.node].discard(known.id)

    def _lost(self, node: NodeName) -> None:
        for job_id in sorted(self._on_node.get(node, ())):
            known = self.jobs[job_id]
            assert known.attempt is not None, "it holds the node"
            for held in known.attempt.ranks:
                if held.node == node:
                    self._leave(known, known.attempt, held)

    def _ended(self, event: ev.AttemptEnded) -> list[Allocation]:
        known = self.jobs.get(event.job_id)
        if known is None or known.attempt is None or known.attempt.number != event.attempt:
            return []
        attempt = known.attempt
        for held in attempt.ranks:
            self._leave(known, attempt, held)
        known.attempt = None
        self._shown.pop(known.id, None)
        return list(_allocations(known, attempt, event.outcome))


def _node(held: Sequence[OpenRank]) -> OpenNode:
    devices = {index for one in held for index, _ in one.parts}
    milli = sum(milli for one in held for _, milli in one.models)
    return OpenNode(tuple(sorted(devices)), milli, len(held))


def _allocations(known: KnownJob, attempt: OpenAttempt, outcome: str) -> Iterator[Allocation]:
    for node, held in attempt.nodes.items():
        yield Allocation(
            known.id,
            attempt.number,
            node,
            attempt.start_ms,
            held.end_ms,
            held.device_milli,
            known.tenant,
            known.user,
            known.name,
            held.devices,
            outcome,
        )


def allocations(records: Iterable[ev.Record]) -> list[Allocation]:
    """Return all allocations of a log, the ended ones in the order of their ends, then the open ones."""
    log, done = AllocationLog(), list[Allocation]()
    for record in records:
        done += log.take(record)
    return [*done, *log.open()]
