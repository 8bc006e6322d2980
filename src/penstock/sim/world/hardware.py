"""The hardware of simulated nodes, in some worlds: devices fail and are mended, strangers use them, hosts are busy.

What the log made of it is checked against what was really so, by a fold of its own.
"""

import random
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from penstock.core.messages.reports import HostFigures, NodeFigures
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank
from penstock.core.model.nodes import DeviceFault, OthersLoad
from penstock.engines.agent.state_machine import DeviceNews
from penstock.sim.world.clockwork import UNIX_BEGIN_MS
from penstock.sim.world.ground import Ground

FAULTS = (2, 8)
STRANGERS = (0, 4)
IN_USE_PART = 0.7
DIES_PART = 0.5
"""Part of the faults that end the programs on the device."""
DIED_CODE = 134
"""With which programs end by a failure of their device: of an abort."""
ILL_LEAST_MS = 4_000
"""Longer than an exit is late: the node says what it died of."""
ILL_MOST_MS = 20_000
AGAIN_MS = 1_000
LEAVES_WITHIN_MS = 1_000
"""Within this time after a device was closed for its fault, all that runs on it has been asked to leave."""
FIGURES_EVERY_MS = 5_000
Place = tuple[NodeName, int]
Run = tuple[JobId, AttemptNumber]


class Hardware:
    """Faults, strangers and load; `rng` has no other use, so a seed otherwise keeps meaning the same world."""

    def __init__(self, world: Ground, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self._ill: dict[Place, int] = {}
        """Devices at fault, and since when."""
        self._past: dict[Place, list[tuple[int, int]]] = {}
        """From when to when each device was at fault before."""
        self._taken: set[Place] = set()
        self._figures_ms: dict[str, int] = {}
        self._busy: dict[str, int] = {}

    def declare(self, config: ClusterConfig) -> ClusterConfig:
        """Return the same with devices that are opened soon; hosts' load decides in half of the worlds."""
        settings = replace(config.settings, device_open_after_ms=self._rng.choice((2_000, 8_000)))
        if self._rng.random() < 0.5:
            config = replace(config, pools=tuple(replace(pool, placement="host_load") for pool in config.pools))
        return replace(config, settings=settings)

    def plan(self, over_ms: int) -> None:
        """Spread faults and strangers over a time."""
        for _ in range(self._rng.randint(*FAULTS)):
            self._world.agenda.after(self._rng.randint(500, over_ms), self._fail)
        for _ in range(self._rng.randint(*STRANGERS)):
            self._world.agenda.after(self._rng.randint(500, over_ms), self._take)

    def _place(self) -> Place:
        """Return a device by chance: mostly one that is in use."""
        nodes = sorted(self._world.nodes.items())
        used = sorted({(name, i) for name, node in nodes for one in node.processes.values() for i in one.devices})
        if used and self._rng.random() < IN_USE_PART:
            name, index = self._rng.choice(used)
            return NodeName(name), index
        name = self._rng.choice(sorted(self._world.nodes))
        return NodeName(name), self._rng.randrange(len(self._world.nodes[name].spec.devices))

    def _fail(self) -> None:
        place = self._place()
        if place in self._ill:
            return
        self._world.probe("device_failed")
        self._ill[place] = self._world.agenda.now_ms
        self._world.nodes[place[0]].device_failed(place[1], ends=self._rng.random() < DIES_PART)
        self._world.agenda.after(self._rng.randint(ILL_LEAST_MS, ILL_MOST_MS), lambda: self._mend(place))

    def _mend(self, place: Place) -> None:
        """Mend a device once the server knows that it was ill: an agent reports a fault until it was heard."""
        server = self._world.server
        node = server.controller.state.nodes.get(place[0]) if server is not None else None
        if node is None or node.closure_of(place[1]) is None:
            self._world.agenda.after(AGAIN_MS, lambda: self._mend(place))
            return
        self._past.setdefault(place, []).append((self._ill.pop(place), self._world.agenda.now_ms))

    def _take(self) -> None:
        place = self._place()
        self._taken.add(place)
        self._world.probe("device_taken_by_stranger")
        self._world.agenda.after(self._rng.randint(2_000, 20_000), lambda: self._taken.discard(place))

    # What agents see.

    def news(self, node: str) -> DeviceNews:
        """Return what a node's agent reads of its devices now."""
        faults = tuple(DeviceFault(index, "hardware_fault") for name, index in sorted(self._ill) if name == node)
        taken = tuple(index for name, index in sorted(self._taken) if name == node)
        return DeviceNews(faults, OthersLoad(devices=taken))

    def figures(self, node: str) -> NodeFigures | None:
        """Return how busy a node's host is, now and then."""
        now_ms = self._world.agenda.now_ms
        if now_ms < self._figures_ms.get(node, 0):
            return None
        self._figures_ms[node] = now_ms + FIGURES_EVERY_MS
        busy = self._busy[node] = min(1000, max(0, self._busy.get(node, 500) + self._rng.randint(-100, 100)))
        return NodeFigures(host=HostFigures(busy, 1000 - busy))

    # What must be true of the log.

    def violations(self, records: Iterable[ev.Record]) -> Iterator[str]:
        """Yield devices that were closed while well, opened while ill or given out while closed or taken, and work that
        was not asked to leave a device that failed, or was without need.
        """
        yield from _Check(self._all_past()).violations(records)

    def _all_past(self) -> dict[Place, list[tuple[int, int]]]:
        now_ms = self._world.agenda.now_ms
        past = {place: [*times] for place, times in self._past.items()}
        for place, since_ms in self._ill.items():
            past.setdefault(place, []).append((since_ms, now_ms))
        return past


class _Check:
    """The fold of a log that knows what was really so."""

    def __init__(self, past: dict[Place, list[tuple[int, int]]]) -> None:
        self._past = past
        self._closed: dict[Place, int] = {}
        self._taken: dict[NodeName, tuple[int, ...]] = {}
        self._given: dict[Run, frozenset[Place]] = {}
        self._held: dict[Run, dict[Rank, tuple[Place, ...]]] = {}
        """The devices of replicas that have not ended."""
        self._to_leave: dict[Run, tuple[int, Place]] = {}
        self._stopping: set[Run] = set()

    def violations(self, records: Iterable[ev.Record]) -> Iterator[str]:
        for record in records:
            now_ms = record.time_ms - UNIX_BEGIN_MS
            for run, (since_ms, place) in list(self._to_leave.items()):
                if now_ms - since_ms > LEAVES_WITHIN_MS:
                    del self._to_leave[run]
                    yield f"job {run[0]}, attempt {run[1]} was not asked to leave {place}, which failed"
            yield from self._follow(record.event, now_ms)

    def _follow(self, event: ev.AnyEvent, now_ms: int) -> Iterator[str]:
        match event:
            case ev.NodeRegistered():
                self._taken.pop(event.spec.name, None)
            case ev.OthersLoadChanged():
                self._taken[event.node] = event.load.devices
            case ev.DeviceClosed():
                yield from self._device_closed((event.node, event.index), now_ms)
            case ev.DeviceOpened():
                place = (event.node, event.index)
                closed_ms = self._closed.pop(place, now_ms)
                if any(begun <= closed_ms and now_ms < ended for begun, ended in self._past.get(place, ())):
                    yield f"device {place} was opened by {event.by} though it has been ill since it was closed"
            case ev.NodeRemoved():
                self._closed = {place: at_ms for place, at_ms in self._closed.items() if place[0] != event.node}
            case ev.AttemptAllocated():
                yield from self._allocated(event)
            case ev.ReplicaExited():
                self._held[event.job_id, event.attempt].pop(event.rank, None)
            case ev.NodeLost():
                for run, held in self._held.items():
                    self._held[run] = {rank: places for rank, places in held.items() if places[0][0] != event.node}
            case ev.AttemptStopRequested():
                run = (event.job_id, event.attempt)
                self._stopping.add(run)
                self._to_leave.pop(run, None)
                if event.reason == "device_failed" and not self._given[run] & self._closed.keys():
                    yield f"job {event.job_id} was asked to leave devices that are well: {sorted(self._given[run])}"
            case ev.AttemptEnded():
                run = (event.job_id, event.attempt)
                self._stopping.discard(run)
                del self._given[run], self._held[run]
                self._to_leave.pop(run, None)
            case _:
                pass

    def _allocated(self, event: ev.AttemptAllocated) -> Iterator[str]:
        run = (event.job_id, event.attempt)
        ranks = enumerate(event.places)
        held = {Rank(rank): tuple((one.node, index) for index in one.devices) for rank, one in ranks if one.devices}
        self._held[run], self._given[run] = held, frozenset(place for places in held.values() for place in places)
        for place in sorted(self._given[run]):
            if place in self._closed or place[1] in self._taken.get(place[0], ()):
                yield f"job {event.job_id} was given device {place}, which is closed or taken"

    def _device_closed(self, place: Place, now_ms: int) -> Iterator[str]:
        self._closed[place] = now_ms
        if not any(begun <= now_ms for begun, _ in self._past.get(place, ())):
            yield f"device {place} was closed, and never was ill"
        for run, held in self._held.items():
            if run not in self._stopping and any(place in places for places in held.values()):
                self._to_leave[run] = (now_ms, place)


def hardware_of(world: Ground) -> Hardware | None:
    """Return what happens to the hardware of a seed's world: of every fifth, and none that has found a bug before."""
    return Hardware(world, random.Random(f"{world.seed} hardware")) if world.seed % 5 == 1 else None
