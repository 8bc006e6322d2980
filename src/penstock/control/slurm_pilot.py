"""Nodes that Slurm lends: the pilot's way to the control loop, and to Slurm."""

import getpass
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.inbox import SERVER, InboxFull, OnReply
from penstock.control.joining import Joining
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import JobId, NodeName, PoolName, UserName
from penstock.core.model.resources import Resources
from penstock.core.order.turns import Submitter
from penstock.core.status.scaleout import Missing, missing
from penstock.devices.simulated import simulated
from penstock.engines.agent.joined import DeclaredNode
from penstock.engines.slurm.commands import SlurmAway, SlurmCommands
from penstock.engines.slurm.nodes import MIB, SlurmNode, devices_of
from penstock.engines.slurm.pilot.engine import SlurmPilot
from penstock.engines.slurm.pilot.lent import LentJob, read_lent
from penstock.engines.slurm.pilot.script import Place
from penstock.engines.slurm.pilot.server import PilotNode
from penstock.engines.slurm.pilot.settings import PilotSettings
from penstock.engines.slurm.reading import SlurmReader
from penstock.engines.slurm.writing import SlurmWriter
from penstock.formats.devices import GIB

log = logging.getLogger(__name__)

ENGINE = "slurm"
PILOT = UserName("pilot")
"""Configures what a pilot needs."""
KEY_VALID_MS = 30 * 86_400_000
"""An ask may wait for weeks in Slurm's queue."""


class Service(Protocol):
    """What of the control service is needed here."""

    @property
    def controller(self) -> Controller: ...

    def ask(self, request: msg.Request, on_reply: OnReply | None = None, caller: Submitter = SERVER) -> None: ...


async def fly_pilot(
    settings: PilotSettings,
    service: Service,
    joining: Joining,
    data: Path,
    started: Callable[[SlurmPilot], None],
) -> None:
    """Run the pilot on this loop until cancelled."""
    folder = Path(settings.folder) if settings.folder else data / "pilot"
    place = Place(folder, settings.python or sys.executable, os.environ.get("PYTHONPATH", ""))
    engine = SlurmPilot(PilotJobs(service, joining), SlurmHere(), settings, place)
    started(engine)
    await engine.run()


class SlurmHere:
    """Slurm by its commands on this machine."""

    def __init__(self) -> None:
        self._commands, self._writer = SlurmCommands(), SlurmWriter()

    async def lent(self, name: str) -> tuple[dict[tuple[str, int], LentJob], float]:
        jobs = await read_lent(self._commands, name, getpass.getuser())
        return jobs, self._commands.last_s

    async def tracks_all(self) -> bool:
        said = await self._commands.run("scontrol", "show", "config")
        return "proctrack/cgroup" in said

    async def fresh(self, settings: PilotSettings) -> NodeSpec:
        nodes = await SlurmReader(self._commands).nodes()
        return fresh_node(nodes, settings)

    async def submit(self, script: str) -> str:
        return await self._writer.submit(script)

    async def cancel(self, numbers: Sequence[str]) -> None:
        await self._writer.cancel(numbers)


def fresh_node(nodes: Sequence[SlurmNode], settings: PilotSettings) -> NodeSpec:
    """Return what each node of an allocation offers at the least: the smallest of the nodes that it may be on.

    Raises: SlurmAway where there is no such node.
    """
    there = [one for one in nodes if not settings.partition or settings.partition in one.partitions]
    wanted = set(filter(None, settings.constraint.split("&")))
    plain = all(word.replace("-", "_").replace(".", "_").isidentifier() for word in wanted)
    fitting = [one for one in there if not plain or wanted <= set(one.features)]
    if not fitting:
        raise SlurmAway(f"Slurm has no node in partition '{settings.partition}' with '{settings.constraint}'")
    least = min(fitting, key=lambda one: (one.cpus, one.memory_bytes, one.name))
    gres = replace(least, gres=settings.gres)
    cpus = settings.cpus or min(one.cpus for one in fitting)
    memory = settings.memory_mib * MIB or min(one.memory_bytes for one in fitting)
    devices = devices_of(gres) if settings.gres else ()
    if settings.simulated and devices:
        devices = simulated(len(devices), devices[0].model, devices[0].memory_bytes or 80 * GIB)
    return NodeSpec(NodeName("fresh"), Resources(cpus * 1000, memory, 2**60), devices, PoolName(settings.pool))


class PilotJobs:
    """The server as the pilot sees it."""

    def __init__(self, service: Service, joining: Joining) -> None:
        self._service, self._joining = service, joining
        self._leaves: dict[NodeName, int] = {}

    def begin(self) -> None:
        config = self._service.controller.state.config
        if not config.settings.allow_waiting_for_nodes:
            settings = replace(config.settings, allow_waiting_for_nodes=True)
            self._ask(msg.Configure(replace(config, settings=settings), PILOT))

    def cluster(self) -> str:
        return self._service.controller.state.identity.cluster

    def missing(self, after_ms: int) -> tuple[Missing, ...]:
        controller = self._service.controller
        return missing(dict(controller.state.jobs), controller.last_plan, time.time_ns() // 1_000_000, after_ms)

    def ask_of(self, job_id: JobId) -> GangAsk | None:
        job = self._service.controller.state.jobs.get(job_id)
        return job.spec.ask if job is not None else None

    def nodes(self) -> dict[NodeName, PilotNode]:
        state = self._service.controller.state
        found = {}
        for name in self.declared():
            node = state.nodes.get(name)
            if node is None:
                continue
            jobs = {job_id for job_id, _ in tuple(state.indexes.load(name).replicas)}
            graces = (job.spec.grace_ms for job_id in jobs if (job := state.jobs.get(job_id)) is not None)
            grace_ms = max(graces, default=0)
            found[name] = PilotNode(node.state == "ready", node.state == "lost", len(jobs), grace_ms, node.draining)
        return found

    def connected(self) -> frozenset[NodeName]:
        return self._joining.connected()

    def declared(self) -> Mapping[NodeName, str]:
        return {one.node.name: one.node.at for one in self._joining.declared() if one.node.engine == ENGINE}

    def declare(self, name: NodeName, pool: PoolName, at: str) -> bytes:
        node = DeclaredNode(name, pool=pool, engine=ENGINE, at=at)
        return self._joining.declare(node, valid_ms=KEY_VALID_MS).encoded()

    def leaves(self, name: NodeName, leaves_ms: int, stays_ms: int) -> None:
        if self._leaves.get(name) != leaves_ms:
            self._leaves[name] = leaves_ms
            self._ask(msg.NoteNodeLeaves(name, leaves_ms, stays_ms))

    def going(self, name: NodeName, deadline_ms: int | None, reason: str) -> None:
        self._joining.going(name, deadline_ms=deadline_ms, reason=reason)

    def gone(self, name: NodeName, reason: str) -> None:
        self._joining.gone(name, reason)

    def remove(self, name: NodeName) -> None:
        self._leaves.pop(name, None)
        self._joining.remove(name)

    def clear(self, kept: Collection[NodeName]) -> None:
        self._joining.clear(ENGINE, kept)

    def note(self, missing: Sequence[Missing], text: str, *, accepted: bool) -> None:
        self._ask(msg.NoteCapacity(tuple(missing), accepted, text))

    def _ask(self, request: msg.Request) -> None:
        try:
            self._service.ask(request)
        except InboxFull:
            log.warning("the control loop is busy: a note is left out")
