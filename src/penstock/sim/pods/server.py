"""A simulated server process with the engine of a cluster: the real controller, the real engine, one loop.

It ends by a crash at any moment, or stands still while another takes over, and goes on as if nothing had been.
"""

import asyncio
import random
from collections.abc import Callable, Sequence

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.inbox import SERVER, OnReply
from penstock.control.pods import PodJobs
from penstock.core.cycle.alternatives import PlanChooser
from penstock.core.messages.reports import NodeReport
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.errors import StaleEpoch
from penstock.core.model.ids import Incarnation, NodeName
from penstock.core.order.extension import Policies
from penstock.core.order.turns import Submitter
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.engines.kubernetes.shadow.engine import ShadowEngine
from penstock.ports import Clock, NodeSession
from penstock.sim.apiserver.requests import Api
from penstock.sim.pods.client import MemoryClient
from penstock.sim.world.disk import SimDisk

TICK_S = 0.5
UNIX_BEGIN_MS = 1_700_000_000_000


class LoopClock:
    """The loop's virtual time."""

    def unix_ms(self) -> int:
        return UNIX_BEGIN_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


class PodServer:
    """One life of a server. It is what `ControlService` is to the engine."""

    shares_log = True

    def __init__(
        self,
        api: Api,
        disk: SimDisk,
        config: ClusterConfig,
        number: int,
        rng: random.Random,
        after_commit: Callable[[Controller], None],
        *,
        shadow: bool = False,
    ) -> None:
        self._rng, self._after_commit = rng, after_commit
        self.clock: Clock = LoopClock()
        self.policies: Policies | None = None
        self.controller = Controller(disk, self.clock, name=f"server-{number}", shadow=shadow)
        self.controller.open(config if number == 1 else None)
        self._going, self._deciding = asyncio.Event(), asyncio.Event()
        self.resume()
        jobs = PodJobs(self)
        self.client = MemoryClient(api, random.Random(rng.random()), self._going, jobs.leads)
        self._inbox: list[tuple[msg.Request, OnReply | None]] = []
        self._news = asyncio.Event()
        self._planner, self._planning = PlanChooser(), False
        made = ShadowEngine if shadow else KubernetesEngine
        self.engine: KubernetesEngine | ShadowEngine = made(self.client, jobs, random.Random(rng.random()))
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.fault: BaseException | None = None
        """What ended it, beside a crash."""

    @property
    def alive(self) -> bool:
        return not self._task.done()

    def kill(self) -> None:
        self._task.cancel()

    def pause(self) -> None:
        self._going.clear()
        self._deciding.clear()

    def resume(self, *, decides_in_s: float = 0.0) -> None:
        """Go on; the thread that commits, and finds that another leads, does so later."""
        self._going.set()
        asyncio.get_running_loop().call_later(decides_in_s, self._deciding.set)

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.engine.run())
                group.create_task(self._decide())
                group.create_task(self._tick())
        except BaseExceptionGroup as error:
            if not error.subgroup(StaleEpoch):
                self.fault = error
                raise

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self._going.wait()
            self.ask(msg.TimePassed())

    async def _decide(self) -> None:
        """The live service's loop: decide and commit what waits, then answer, then plan."""
        while True:
            await self._news.wait()
            await asyncio.sleep(self._rng.random() * 0.01)
            await self._deciding.wait()
            self._news.clear()
            group, self._inbox = self._inbox[:64], self._inbox[64:]
            if group:
                self._commit(group)
            if self._inbox:
                self._news.set()
            if not self._planning and self.controller.plan_clock.due(self.clock.monotonic_ms()):
                self._planning = True
                asyncio.get_running_loop().create_task(self._plan())

    def _commit(self, group: list[tuple[msg.Request, OnReply | None]]) -> None:
        handled = self.controller.handle([request for request, _ in group])
        self._after_commit(self.controller)
        if handled.orders:
            self.engine.send(handled.orders)
        for (request, on_reply), reply in zip(group, handled.replies, strict=True):
            if isinstance(request, msg.CommitPlan):
                self._planning = False
            if on_reply is not None:
                asyncio.get_running_loop().call_soon(on_reply, reply)

    async def _plan(self) -> None:
        decided = self._planner.plan(self.controller.snapshot(), self.clock.unix_ms())
        await asyncio.sleep(self._rng.random() * (0.02 if self._rng.random() < 0.8 else 0.5))
        await self._going.wait()
        self.ask(msg.CommitPlan(decided))

    # What the engine calls: the same as of `ControlService`.

    def ask(self, request: msg.Request, on_reply: OnReply | None = None, caller: Submitter = SERVER) -> None:
        self._inbox.append((request, on_reply))
        self._news.set()

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None:
        def welcome(reply: msg.Reply) -> None:
            if isinstance(reply, msg.Welcome):
                session.welcome(reply.epoch, reply.lease_ms, reply.heartbeat_ms)
            else:
                session.close()

        self.ask(msg.Hello(spec, incarnation), welcome)

    def on_report(self, report: NodeReport, session: NodeSession) -> None:
        def taken(reply: msg.Reply) -> None:
            if isinstance(reply, msg.ReportTaken):
                session.taken(reply.seq, reply.orders, accepted=reply.accepted)

        self.ask(report, taken)

    def on_alive(self, nodes: Sequence[tuple[NodeName, Incarnation]]) -> None:
        self.ask(msg.Alive(tuple(nodes)))
