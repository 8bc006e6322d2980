"""How the cluster and each tenant stand after each record: devices held, free and unhealthy, jobs that wait and run.

A fold of the log beside `AllocationLog`, which says what attempts take and leave. `rings.py` keeps its course.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from penstock.core.ledger.allocations import Allocation, AllocationLog, KnownJob, OpenRank
from penstock.core.model import events as ev
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import NodeName
from penstock.core.model.resources import WHOLE_DEVICE_MILLI
from penstock.core.state.devices import still_there

CLUSTER = ""
"""As a holder: everybody."""
LevelName = Literal["devices_held", "devices_free", "devices_unhealthy", "jobs_waiting", "jobs_running"]
CountName = Literal["starts", "ends", "preemptions"]


class Key(NamedTuple):
    """One level or count: of a tenant or the cluster; a part of it, such as one model of device."""

    holder: str
    name: str
    part: str = ""
    """Empty: all parts together."""


class NodeLevel(msgspec.Struct, omit_defaults=True):
    """A node as its devices count."""

    spec: NodeSpec
    ready: bool = False
    lost: bool = False
    draining: bool = False
    others: tuple[int, ...] = ()
    """Devices that programs hold which Penstock did not place."""
    closed: dict[int, str] = {}
    """Devices that are closed, and their uuids."""
    held: dict[int, int] = {}
    """Thousandths of devices that attempts hold."""
    counted: dict[str, tuple[int, int]] = {}
    """Thousandths that are free and unhealthy, by model."""

    def count(self) -> dict[str, tuple[int, int]]:
        """Return what is free and what is unhealthy by model: neither is held by an attempt of the cluster.

        Devices of nodes that are closed, or not ready, count as unhealthy; those of lost nodes are not there.
        """
        found: dict[str, tuple[int, int]] = {}
        for device in () if self.lost else self.spec.devices:
            left = max(0, WHOLE_DEVICE_MILLI - self.held.get(device.index, 0))
            usable = self.ready and not self.draining and device.healthy and device.index not in self.closed
            free, unhealthy = found.get(device.model, (0, 0))
            if not usable:
                unhealthy += left
            elif device.index not in self.others:
                free += left
            found[device.model] = free, unhealthy
        return found


class LevelImage(msgspec.Struct, frozen=True):
    """The whole of `Levels`, but for the log beside it."""

    nodes: tuple[NodeLevel, ...]
    values: tuple[tuple[str, str, str, int], ...]


class Levels:
    """Folds records. After each `take`, `changed` has the levels that it changed and `counts` what it counted."""

    def __init__(self, log: AllocationLog, image: LevelImage | None = None) -> None:
        image = image or LevelImage((), ())
        self.log = log
        self._nodes: dict[NodeName, NodeLevel] = {node.spec.name: node for node in image.nodes}
        self.values: Counter[Key] = Counter({Key(*key): value for *key, value in image.values})
        """Devices in thousandths."""
        self.changed: set[Key] = set()
        self.counts: list[Key] = []

    def image(self) -> LevelImage:
        """Return everything, to be encoded before the next record is taken."""
        return LevelImage(tuple(self._nodes.values()), tuple((*key, value) for key, value in self.values.items()))

    def take(self, record: ev.Record) -> Sequence[Allocation]:
        """Fold one record, and return the allocations that it ends. Raises: BrokenInvariant as the log does."""
        self.changed.clear()
        self.counts.clear()
        event = record.event
        known = self.log.jobs.get(event.job_id) if isinstance(event, _OF_JOBS) else None
        ended = self.log.take(record)
        for move in self.log.moves:
            for model, milli in move.held.models:
                self._add(move.tenant, "devices_held", move.sign * milli, model)
            if move.held.parts:
                self._held(move.held, move.sign)
        if isinstance(event, _OF_JOBS):
            self._job(event, known or self.log.jobs.get(event.job_id))
        else:
            self._node(event)
        return ended

    def _job(self, event: ev.AnyEvent, known: KnownJob | None) -> None:
        if known is None:
            return
        match event:
            case ev.JobSubmitted():
                self._add(known.tenant, "jobs_waiting", 1)
            case ev.AttemptAllocated():
                self._start(known, 1)
                self._counted(known.tenant, "starts")
            case ev.AttemptEnded():
                self._start(known, -1)
                if event.outcome == "preempted":
                    self._counted(known.tenant, "preemptions")
            case ev.JobFinished():
                self._add(known.tenant, "jobs_waiting" if known.attempt is None else "jobs_running", -1)
                self._counted(known.tenant, "ends")
            case _:
                pass

    def _start(self, known: KnownJob, sign: int) -> None:
        self._add(known.tenant, "jobs_waiting", -sign)
        self._add(known.tenant, "jobs_running", sign)

    def _node(self, event: ev.AnyEvent) -> None:
        match event:
            case ev.NodeRegistered():
                node = self._nodes.setdefault(event.spec.name, NodeLevel(event.spec, held={}))
                node.spec, node.ready, node.lost, node.others = event.spec, False, False, ()
                node.closed = still_there(node.closed, event.spec.devices)
                self._recount(node)
            case ev.NodeReady():
                self._nodes[event.node].ready = True
                self._recount(self._nodes[event.node])
            case ev.NodeLost():
                node = self._nodes[event.node]
                node.ready, node.lost, node.held = False, True, {}
                self._recount(node)
            case ev.NodeDrainChanged():
                self._nodes[event.node].draining = event.draining
                self._recount(self._nodes[event.node])
            case ev.OthersLoadChanged():
                self._nodes[event.node].others = event.load.devices
                self._recount(self._nodes[event.node])
            case ev.DeviceClosed():
                node = self._nodes[event.node]
                node.closed = node.closed | {event.index: node.spec.devices[event.index].uuid}
                self._recount(node)
            case ev.DeviceOpened():
                node = self._nodes[event.node]
                node.closed = {index: uuid for index, uuid in node.closed.items() if index != event.index}
                self._recount(node)
            case _:
                pass

    def _held(self, held: OpenRank, sign: int) -> None:
        node = self._nodes[held.node]
        for index, milli in held.parts:
            node.held[index] = node.held.get(index, 0) + sign * milli
        self._recount(node)

    def _recount(self, node: NodeLevel) -> None:
        former, node.counted = node.counted, node.count()
        for model in {*former, *node.counted}:
            was_free, was_unhealthy = former.get(model, (0, 0))
            free, unhealthy = node.counted.get(model, (0, 0))
            self._change(CLUSTER, "devices_free", free - was_free, model)
            self._change(CLUSTER, "devices_unhealthy", unhealthy - was_unhealthy, model)

    def _add(self, tenant: str, name: LevelName, by: int, model: str = "") -> None:
        self._change(tenant, name, by, model)
        self._change(CLUSTER, name, by, model)

    def _change(self, holder: str, name: LevelName, by: int, model: str) -> None:
        for key in {Key(holder, name), Key(holder, name, model)} if by else ():
            self.values[key] += by
            self.changed.add(key)

    def _counted(self, tenant: str, name: CountName) -> None:
        self.counts += (Key(tenant, name), Key(CLUSTER, name))


_OF_JOBS = (ev.JobSubmitted, ev.AttemptAllocated, ev.AttemptEnded, ev.JobFinished)
