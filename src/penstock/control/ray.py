"""The control service behind the Ray engine: nodes that it declares, closes, opens and forgets."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.control import messages as msg
from penstock.control.inbox import InboxFull
from penstock.control.joining import Joining
from penstock.control.service import ControlService
from penstock.core.model.ids import NodeName, UserName
from penstock.core.order.turns import Submitter
from penstock.core.status.scaleout import Missing, missing
from penstock.engines.agent.joined import DeclaredNode, Offer
from penstock.engines.ray.driver_options import DriverOptions
from penstock.engines.ray.engine import RayEngine
from penstock.engines.ray.records import Amounts, KnownNode, RayNode
from penstock.ports import Clock
from penstock.privatefiles import make_folder

log = logging.getLogger(__name__)

RAY = UserName("ray")
ENGINE = "ray"
LONG_S = 3_600.0
BUNDLES_MAX = 500
"""Asked of Ray's autoscaler at a time."""


class RayNodes:
    """Args: `listens_locally`: whether agents of other machines cannot reach this server."""

    def __init__(self, service: ControlService, joining: Joining, clock: Clock, *, listens_locally: bool) -> None:
        self._service, self._joining, self._clock = service, joining, clock
        self._listens_locally = listens_locally
        self._idle_since: dict[str, float] = {}

    def known(self) -> Mapping[str, KnownNode]:
        state, connected, now_s = self._service.controller.state, self._joining.connected(), time.monotonic()
        found, declared = {}, self._joining.declared()
        self._joining.clear(ENGINE, {record.node.name for record in declared})
        for record in declared:
            name, node = record.node.name, state.nodes.get(record.node.name)
            if record.node.engine != ENGINE:
                continue
            if node is None or state.indexes.load(name).replicas:
                self._idle_since.pop(name, None)
            else:
                self._idle_since.setdefault(name, now_s)
            closed = node.drain_reason if node is not None and node.draining and node.closed_by == RAY else ""
            idle_s = now_s - self._idle_since.get(name, now_s)
            found[str(name)] = KnownNode(name, name in connected, node is None or node.state == "lost", idle_s, closed)
        return found

    def has_joined(self, name: str) -> bool:
        return any(one.node.name == name and one.joined_ms for one in self._joining.declared())

    def declare(self, name: str, node: RayNode, amounts: Amounts, gpus: int) -> str:
        most = Offer(cpu_milli=amounts.cpus * 1000, memory_bytes=amounts.memory_bytes, devices=gpus)
        at = f"Ray node {node.id[:12]} on {node.host}"
        bundle = self._joining.declare(DeclaredNode(NodeName(name), most=most, engine=ENGINE, at=at))
        return bundle.encoded().decode()

    def close(self, name: str, deadline_ms: int | None, reason: str) -> None:
        self._ask(msg.Drain(NodeName(name), True, RAY, reason, evict=deadline_ms is not None))

    def open(self, name: str) -> None:
        self._ask(msg.Drain(NodeName(name), False, RAY, "its Ray node is there"))

    def forget(self, name: str) -> None:
        self._joining.remove(NodeName(name))

    def missing(self) -> Sequence[Amounts]:
        controller = self._service.controller
        state = controller.state
        after_ms = state.config.settings.scale_after_ms
        found = missing(dict(state.jobs), controller.last_plan, self._clock.unix_ms(), after_ms)
        return [amounts for one in found for amounts in _each(one)][:BUNDLES_MAX]

    def local_only(self) -> bool:
        return self._listens_locally

    def _ask(self, request: msg.Request) -> None:
        with contextlib.suppress(InboxFull):  # it is seen again in a second
            self._service.ask(request, None, Submitter(RAY, ""))


def _each(one: Missing) -> list[Amounts]:
    """Return what each replica of some jobs lacks."""
    groups = [(one.ask.replicas, one.ask.each), *((group.replicas, group.each) for group in one.ask.others)]
    each = [
        Amounts(-(-ask.host.cpu_milli // 1000), ask.device_count, ask.host.memory_bytes)
        for count, ask in groups
        for _ in range(min(count, BUNDLES_MAX))
    ]
    return each * min(one.count, BUNDLES_MAX)


async def follow_ray(nodes: RayNodes, options: DriverOptions, folder: Path, *, share_milli: int, idle_s: float) -> None:
    """Follow a Ray cluster in a thread until cancelled."""
    make_folder(folder)
    engine = RayEngine(nodes, options, folder, share_milli=share_milli, idle_release_s=idle_s)
    ending = threading.Event()
    thread = threading.Thread(target=engine.run, args=(ending,), name="penstock-ray")
    thread.start()
    try:
        while True:
            await asyncio.sleep(LONG_S)
    finally:
        ending.set()  # it ends by itself, within a second
