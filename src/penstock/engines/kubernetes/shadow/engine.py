"""The engine of a shadow: what other schedulers decide becomes reports, and no order is ever carried out.

Everything runs on one loop; `send` may be called from any thread. Its client sends no writes.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

from penstock.core.messages.orders import Acknowledge, Addressed, Order
from penstock.core.model.cluster import DEFAULT_POOL
from penstock.core.model.ids import JobId, NodeName, PoolName
from penstock.core.model.weaker import KUBERNETES_SHADOW
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.reflector import Reflector
from penstock.engines.kubernetes.binding import PODS
from penstock.engines.kubernetes.claims import AllClaims
from penstock.engines.kubernetes.engine import NODES
from penstock.engines.kubernetes.judging import Asking
from penstock.engines.kubernetes.names import POOL_LABEL
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.onnode import OnNode, Standing
from penstock.engines.kubernetes.selectors import Selectors
from penstock.engines.kubernetes.server import ShadowServer
from penstock.engines.kubernetes.sessions import FLUSH_S, Nodes
from penstock.engines.kubernetes.shadow.gangs import WatchedGangs
from penstock.engines.kubernetes.shadow.terms import is_work
from penstock.engines.kubernetes.view import ClusterView, Heard

AGAIN_S = 60.0
"""Work that could not be shown as a job is tried again after this long."""


class _NodeSink:
    def __init__(self, engine: "ShadowEngine") -> None:
        self._engine = engine

    def changed(self, old: Node | None, new: Node) -> None:
        self._engine.standing.hello(NodeName(new.metadata.name))

    def removed(self, old: Node) -> None:
        self._engine.node_gone(NodeName(old.metadata.name))

    def listed(self) -> None:
        self._engine.begin()


class _PodSink:
    def __init__(self, engine: "ShadowEngine") -> None:
        self._engine = engine

    def changed(self, old: Pod | None, new: Pod) -> None:
        self._engine.pod_changed(new)

    def removed(self, old: Pod) -> None:
        self._engine.pod_gone(old)

    def listed(self) -> None:
        self._engine.begin()


class ShadowEngine:
    """An `Engine` that watches one cluster.

    Args:
        client: one that only reads, entered by the caller, on the loop that runs the engine.
        draw: spreads requests in time.
    """

    def __init__(self, client: Client, server: ShadowServer, draw: random.Random | None = None) -> None:
        self._server = server
        self.nodes: Reflector[Node] = Reflector(client, NODES, Node, _NodeSink(self), draw=draw)
        self.pods: Reflector[Pod] = Reflector(client, PODS, Pod, _PodSink(self), draw=draw)
        self.view = ClusterView(
            client,
            Heard(
                lambda workload: self.gangs.workload_changed(workload),  # noqa: PLW0108 - not made yet
                lambda workload: self.gangs.workload_gone(workload),  # noqa: PLW0108 - not made yet
                lambda namespace: self.gangs.more_said(namespace),  # noqa: PLW0108 - not made yet
                lambda: None,
                lambda _: None,
                lambda _: None,
                self.begin,
            ),
            shadow=True,
            draw=draw,
        )
        self._selectors = Selectors(self.view.labels_of)
        self.standing = Nodes(server, self.nodes.objects, self._obey, self._pool_of, engine=KUBERNETES_SHADOW)
        self._asking = Asking(self.standing, self._selectors, AllClaims())
        self.gangs = WatchedGangs(server, self.view, self.standing, self._asking, self._restand)
        self._at: dict[str, NodeName] = {}
        """The node on which each pod stands."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def _pool_of(self, labels: Mapping[str, str]) -> PoolName:
        """Return the pool that a node names, where there is one of that name."""
        name = PoolName(labels.get(POOL_LABEL, ""))
        return name if name in self._server.config().pool_by_name else DEFAULT_POOL

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        self._loop = asyncio.get_running_loop()
        for job in self._server.live():
            self.gangs.adopt(job)
        works = (self.nodes.run(), self.pods.run(), self.view.run(), self.standing.report(), self.standing.stand(),
                 self._settle(), self._again())  # fmt: skip
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)

    def send(self, orders: Sequence[Addressed]) -> None:
        """Take orders of the server; those that would change something are not carried out."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._obey_all, tuple(orders))

    def _obey_all(self, orders: Sequence[Addressed]) -> None:
        for node, order in orders:
            self._obey(node, order)

    def _obey(self, node: NodeName, order: Order) -> None:
        if isinstance(order, Acknowledge):
            self.gangs.acknowledged(self.standing.at(node), order.key)

    def connected(self) -> set[NodeName]:
        """Return the nodes that the server has taken in. Any thread."""
        return self.standing.connected()

    def said_of(self, job_id: JobId) -> str:
        """Return what the scheduler of a job that waits says of it, in its own words, or ''. Any thread."""
        return self.gangs.said_of(job_id)

    def begin(self) -> None:
        """Introduce all nodes once all lists are whole: before, what runs on them is not known."""
        if self.standing.begun or not (self.nodes.whole and self.pods.whole and self.view.whole):
            return
        self.standing.begun = True
        known = self.gangs.in_log
        for pod in tuple(self.pods.objects.values()):
            found = known.pop(pod.metadata.uid, None)
            if found is not None and not pod.over:
                self.gangs.find(*found, pod)
            elif found is not None:
                self.gangs.ended_before(found[1], pod)
            self.pod_changed(pod)
        for _, slot in known.values():
            self.gangs.ended_before(slot, None)
        known.clear()
        self.standing.begin()

    # What the cluster says.

    def node_gone(self, name: NodeName) -> None:
        on = self.standing.at(name)
        for pod in tuple(on.pods.values()):
            self._leave(on, pod)
        self.standing.gone(name)
        for key in tuple(on.exits):
            self.gangs.acknowledged(on, key)

    def pod_changed(self, pod: Pod) -> None:
        if not self.standing.begun:
            return  # what says more of it may come later
        if pod.over or not is_work(pod):
            self._stand(pod)
            self.gangs.take(pod)
        else:
            self.gangs.put(pod)
            self._stand(pod)

    def pod_gone(self, pod: Pod) -> None:
        node = self._at.get(pod.key)
        if node is not None:
            self._leave(self.standing.at(node), pod)
            self.standing.touch(node)
        self.gangs.take(pod)
        self._selectors.drop(pod.key)

    def _stand(self, pod: Pod) -> None:
        """Count a pod on the node that it is bound to, or that a scheduler keeps for it."""
        name = NodeName(pod.spec.node_name)
        before = self._at.get(pod.key)
        if before is not None:
            on = self.standing.at(before)
            former = on.pods.get(pod.key, pod)
            if before != name or pod.over or former.metadata.uid != pod.metadata.uid:
                self._leave(on, pod if former.metadata.uid == pod.metadata.uid else former)
                self.standing.touch(before)
        if name and not pod.over:
            self._at[pod.key] = name
            self.standing.at(name).put(pod, self._standing_of(pod))
            self.standing.touch(name)

    def _restand(self, pod: Pod) -> None:
        """Count a pod anew: it has become a replica, or load, or is neither for a moment."""
        if self._at.get(pod.key) is not None:
            self._stand(pod)

    def _leave(self, on: OnNode, pod: Pod) -> None:
        """Take a pod that is over or gone off its node; a replica has ended with it."""
        self._at.pop(pod.key, None)
        key = on.take(pod)
        if key is not None and key not in on.exits:
            self.gangs.ended(on, key, pod)

    def _standing_of(self, pod: Pod) -> Standing:
        key, slot, counts = self.gangs.standing_of(pod)
        if not counts:
            return Standing()
        planned = slot.ask if slot is not None else None
        devices = frozenset(slot.devices) if slot is not None else frozenset()
        return self._asking.standing_of(pod, key, planned, devices)

    def _reselect(self) -> None:
        """Count what selectors select that came into use."""
        fresh = self._selectors.take_fresh()
        for on in self.standing.all() if fresh else ():
            for pod in tuple(on.pods.values()):
                if any(one.selects(pod, self.view.labels_of) for one in fresh):
                    on.put(pod, self._standing_of(pod))
                    self.standing.touch(on.name)

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            if self.standing.begun:
                self._reselect()
                self.gangs.turn()

    async def _again(self) -> None:
        while True:
            await asyncio.sleep(AGAIN_S)
            self.gangs.reconsider()
