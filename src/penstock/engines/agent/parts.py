"""The MIG instances in which replicas of a node run: made before a program starts or ahead of it, kept for the next.

The tool takes seconds, so it is called in a thread; until it has answered a replica is `starting`. The thread dies with
the worker: what it was doing is completed or undone by the next one (`penstock.devices.mig_apply`), which is given the
order again. A device is divided ahead of demand only while no replica waits for an instance. Nothing of it is loaded on
a node without devices that may be divided.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import Incarnation
from penstock.core.model.nodes import DeviceInstances, NodeSpec
from penstock.core.model.resources import Device, DividingStrategy
from penstock.engines.agent.journal import Journal, programs_in

if TYPE_CHECKING:
    from penstock.devices.mig_apply import MigKeeper
    from penstock.devices.mig_journal import Place
    from penstock.engines.agent.preparing import Preparations
    from penstock.engines.processes.boxes import Containment
    from penstock.engines.processes.paths import DataFolder

log = logging.getLogger(__name__)

TRIES = 5
TRY_PAUSE_S = 1.0
"""Between two tries of what is in the way of something that passes, such as a program that is just ending."""
LOOK_EVERY_S, LOOK_AGAIN_S = 600.0, 60.0
"""Between two looks which instances there are, for an administrator may change them; and after one that failed."""


NEEDS = ("snapshot", "inputs", "image", "python", "setup")
"""Fields of an order that name what is prepared before the replica starts, in this order (`preparing.py`)."""


class Prepared(NamedTuple):
    """A replica may start, or cannot."""

    order: StartReplica
    shown: tuple[Device, ...]
    """Its devices, each by the uuid of the instance there; none with `needs`."""
    problem: str
    """Why it cannot, for people."""
    exit_code: int | None = None
    """Of what failed, where that was the job's own fault."""
    needs: bool = False
    """What it needed beside devices was prepared."""


class _Division(NamedTuple):
    device: int
    strategy: DividingStrategy


_Work = StartReplica | ReplicaKey | _Division | None


class _Try(NamedTuple):
    order: StartReplica
    number: int
    due_s: float


class NodeParts:
    """Makes instances for replicas, one at a time.

    Args:
        folder: of the node.
        devices: of the node.
        journal: as a former worker left it: what its living replicas were given stays theirs.
    """

    def __init__(
        self, folder: Path, devices: Iterable[Device], journal: Journal, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._journal, self._clock = folder, journal, clock
        self._devices = {device.index: device for device in devices}
        self._left_programs = programs_in(journal)
        self._living = tuple(str(known.key) for known in journal.known.values() if known.exit is None)
        self.preparing: set[ReplicaKey] = set()
        """Replicas whose instances are being made; they have no process yet."""
        self._any = any(device.mig for device in self._devices.values())
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Prepared] = queue.SimpleQueue()
        self._waiting: list[_Try] = []
        """Orders that are tried again; of the thread alone."""
        self._to_divide: dict[int, DividingStrategy] = {}
        """Devices that are divided as soon as nothing waits; of the thread alone."""
        self._look_due_s: float | None = None
        """When the thread looks which instances there are; None: before it has begun."""
        self.instances: tuple[DeviceInstances, ...] | None = None
        """What is on each device that can be divided, as of the last change here; None until it is known."""
        self._thread: threading.Thread | None = None
        self.make_preparations: Callable[[], Preparations] | None = None
        """Set where other needs of replicas are prepared; called for the first of them."""
        self.preparations: Preparations | None = None

    def prepare_in(self, data: "DataFolder", containment: "Containment", wake: Callable[[], None]) -> None:
        """Prepare what replicas need, from now on.

        Args:
            containment: of programs that prepare something.
            wake: called when there is a result, or something to ask the server. In threads.
        """

        def make() -> "Preparations":
            from penstock.engines.agent.preparing import Preparations
            from penstock.engines.agent.programs import Programs

            programs = Programs(self._folder, containment, self._journal, self._left_programs)
            return Preparations(self._folder.name, data, programs, self._living, wake)

        self.make_preparations = make

    def prepares(self, order: StartReplica) -> bool:
        """Return whether a replica has to wait for what it needs beside devices: `prepared` has the result."""
        if not any(getattr(order, field) for field in NEEDS):
            return False
        self.preparing.add(order.key)
        if self.make_preparations is None:
            self._done.put(Prepared(order, (), "this node prepares nothing for replicas", needs=True))
            return True
        self.preparations = self.preparations or self.make_preparations()
        self.preparations.start(order)
        return True

    def labelled(self, spec: NodeSpec, incarnation: Incarnation) -> NodeSpec:
        """Return what the node says of itself, with the container runtimes that it has tried, if it has."""
        tried = self._folder / "containers" / "runtimes.json"
        if not tried.exists():
            return spec
        from penstock.engines.containers.labels import labelled

        return labelled(spec, tried, incarnation)

    def look(self) -> None:
        """Find out which instances there are, where there can be any; end what a former worker was preparing."""
        if self._any:
            self._put(None)
        if self._left_programs and self.make_preparations is not None:  # that a former worker was running
            self.preparations = self.make_preparations()
            self.preparations.clean()

    def divide(self, index: int, strategy: DividingStrategy) -> None:
        """Divide a device by a strategy, beside what is in use; `instances` has the result."""
        if index in self._devices and self._devices[index].mig:
            self._put(_Division(index, strategy))

    def takes(self, order: StartReplica) -> bool:
        """Return whether a replica has to wait for instances: then they are made, and `prepared` has the result.

        A program sees instances alone of a device with MIG mode on: without one its replica is refused.
        """
        asked = order.ask.devices
        if asked is None or not (asked.profile or any(map(self._is_divided, order.devices))):
            return False
        self.preparing.add(order.key)
        self._put(order)
        return True

    def cancel_needs(self, key: ReplicaKey) -> bool:
        """Let a replica not start that waits for what it needs beside devices; return whether it does: `prepared` says
        that it was stopped, once nothing of the preparation is left."""
        return key in self.preparing and self.preparations is not None and self.preparations.cancel(key)

    def cancel(self, key: ReplicaKey) -> bool:
        """Let a replica not start; return whether something was made for it: instances, or all that it needed."""
        waited = key in self.preparing
        self.preparing.discard(key)
        return waited

    def _is_divided(self, index: int) -> bool:
        device = self._devices[index]
        return device.mig_mode or (device.mig and not device.simulated)

    def left(self, key: ReplicaKey) -> None:
        """Take note that nothing of a replica is left: its instances are for others now."""
        if self.preparations is not None:
            self.preparations.left(key)
        if self._any:
            self._put(key)

    def prepared(self) -> Iterator[Prepared]:
        """Yield results since the last call, without those of replicas that shall not start any more."""
        results = [self._done, *([self.preparations.done] if self.preparations is not None else [])]
        while results:
            try:
                done = results[-1].get_nowait()
            except queue.Empty:
                results.pop()
                continue
            if self.cancel(done.order.key):
                yield done

    def _put(self, work: _Work) -> None:
        self._work.put(work)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="penstock-parts", daemon=True)
            self._thread.start()

    # In the thread.

    def _keeper(self) -> "MigKeeper":
        from penstock.devices.mig_apply import MigKeeper
        from penstock.devices.provider import Machine
        from penstock.devices.simulated_mig import SimulatedMig

        if any(device.simulated for device in self._devices.values()):
            simulated = SimulatedMig(self._folder / "mig.json", self._devices.values())
            return MigKeeper(self._folder, lambda _: simulated)
        return MigKeeper(self._folder, lambda lock: Machine(inherited=(lock,)))

    def _place(self, index: int, profile: str, start: int) -> "Place":
        from penstock.devices.mig_journal import Place

        return Place(self._uuid(index), profile, start)

    def _uuid(self, index: int) -> str:
        from penstock.devices.simulated_mig import simulated_uuid

        device = self._devices[index]
        return simulated_uuid(index) if device.simulated else device.uuid

    def _run(self) -> None:
        keeper: MigKeeper | None = None
        while True:
            work = self._next()
            if work is not None:
                self._waiting = self._with(work)
            try:
                if keeper is None:
                    keeper = self._keeper()
                    keeper.keep_only(self._living)
                    self._look_due_s = self._clock()
                if isinstance(work, ReplicaKey):
                    keeper.take_back(str(work))
                self._make_due(keeper)
                if self._work.empty() and not any(one.due_s <= self._clock() for one in self._waiting):
                    self._divide_next(keeper)
                    self._look_if_due(keeper)
            except OSError as error:  # the node's folder: the next order may find it mended
                for one in self._waiting:
                    self._done.put(Prepared(one.order, (), str(error)))
                self._waiting = []

    def _next(self) -> _Work:
        """Wait for what is to be done; return None where it is something that was put off."""
        due = [one.due_s for one in self._waiting] + ([self._clock()] if self._to_divide else [])
        due += [] if self._look_due_s is None else [self._look_due_s]
        try:
            return self._work.get(timeout=max(0.0, min(due) - self._clock()) if due else None)
        except queue.Empty:
            return None

    def _divide_next(self, keeper: "MigKeeper") -> None:
        """Divide one device of those that are to be divided."""
        from penstock.devices.mig_apply import NotMade

        if not self._to_divide:
            return
        index = next(iter(self._to_divide))
        strategy, self._look_due_s = self._to_divide.pop(index), self._clock()
        try:
            divided = keeper.divide(self._uuid(index), strategy)
        except Exception:  # of this device alone: the thread goes on
            log.exception("a device was not divided", extra={"device": index})
            return
        problem = divided.reason if isinstance(divided, NotMade) else ""
        log.info("divided", extra={"device": index, "strategy": strategy, "problem": problem})

    def _look_if_due(self, keeper: "MigKeeper") -> None:
        from penstock.devices.mig_apply import NotMade

        if self._look_due_s is None or self._clock() < self._look_due_s:
            return
        seen = keeper.instances()
        if isinstance(seen, NotMade):
            log.warning("instances are not known", extra={"problem": seen.reason})
            self._look_due_s = self._clock() + LOOK_AGAIN_S
            return
        uuids = {index: self._uuid(index) for index in sorted(self._devices)}
        self.instances = tuple(DeviceInstances(i, tuple(seen[uuid])) for i, uuid in uuids.items() if uuid in seen)
        self._look_due_s = self._clock() + LOOK_EVERY_S

    def _with(self, work: _Work) -> list[_Try]:
        """Return what waits for instances, once this has come."""
        if isinstance(work, StartReplica):
            return [*self._waiting, _Try(work, 1, self._clock())]
        if isinstance(work, _Division):
            self._to_divide[work.device] = work.strategy
            return self._waiting
        return [one for one in self._waiting if one.order.key != work]

    def _make_due(self, keeper: "MigKeeper") -> None:
        now_s = self._clock()
        for one in [one for one in self._waiting if one.due_s <= now_s]:
            self._waiting.remove(one)
            self._look_due_s = now_s
            try:
                self._make(one, keeper)
            except Exception as error:  # of this replica alone: the thread goes on
                log.exception("no part of a device", extra={"key": str(one.order.key)})
                self._done.put(Prepared(one.order, (), f"{type(error).__name__}: {error}"))

    def _make(self, one: _Try, keeper: "MigKeeper") -> None:
        from penstock.devices.mig_apply import NotMade

        order = one.order
        places = self._places(order)
        if isinstance(places, str):
            self._done.put(Prepared(order, (), places))
            return
        shown = []
        for index, place in places:
            given = keeper.give(str(order.key), place)
            if isinstance(given, NotMade):
                if given.passing and one.number < TRIES:
                    self._waiting.append(_Try(order, one.number + 1, self._clock() + TRY_PAUSE_S))
                else:
                    self._done.put(Prepared(order, (), given.reason))
                return
            shown.append(replace(self._devices[index], uuid=given.uuid))
        self._done.put(Prepared(order, tuple(shown), ""))

    def _places(self, order: StartReplica) -> "list[tuple[int, Place]] | str":
        """Return device and place of each instance that a replica runs in, or why there can be none."""
        asked = order.ask.devices
        if asked is not None and asked.profile:
            if len(order.slots) != len(order.devices):
                return "the order does not say where its instances lie"
            starts = zip(order.devices, order.slots, strict=True)
            return [(index, self._place(index, asked.profile, start)) for index, start in starts]
        return (
            f"MIG mode is on on device {next(filter(self._is_divided, order.devices))}, which gives out instances "
            "alone: ask for a profile"
        )
