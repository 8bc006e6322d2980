"""The engine: what the server decides becomes bindings and evictions, what the cluster does becomes reports.

It decides nothing. Everything runs on one loop; `send` may be called from any thread. Lost work is derived again: the
server repeats orders that a report does not show as done, and a restart finds its replicas by what stands on the pods.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from penstock.core.messages.orders import (
    Acknowledge,
    Addressed,
    CheckNode,
    FreezeReplica,
    Order,
    StartReplica,
    StopReplica,
)
from penstock.core.messages.reports import NodeCheck, ReplicaKey
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import Epoch, Incarnation, JobId, NodeName
from penstock.engines.kubernetes.amounts import BadAmount
from penstock.engines.kubernetes.binding import PODS, Binder
from penstock.engines.kubernetes.client import Client, Kind
from penstock.engines.kubernetes.errors import KubernetesError
from penstock.engines.kubernetes.gangs import Gang, Gangs, Refused, gang_of, new_job, ranked, refusal
from penstock.engines.kubernetes.nodes import node_spec
from penstock.engines.kubernetes.objects import Node, Pod
from penstock.engines.kubernetes.onnode import GONE, OnNode, replica_of
from penstock.engines.kubernetes.pods import SCHEDULER, alike, keys_of
from penstock.engines.kubernetes.reflector import Reflector
from penstock.engines.kubernetes.server import Server

log = logging.getLogger(__name__)

NODES = Kind("", "v1", "nodes", namespaced=False)
FLUSH_S = 0.02
"""Changes of so long a time go into one report of each node."""
ALIVE_S = 5.0
"""The server hears of all nodes this often: well within the shortest useful lease."""
EARLY_S = 5.0
"""An order for an unknown job is kept this long: its gang may be about to be known."""
SETTLE_S = 1.0
"""Gangs whose pods came or went are settled with the server this often."""


class _Session:
    """The engine's side of one node's session."""

    def __init__(self, engine: "KubernetesEngine", name: NodeName, incarnation: Incarnation) -> None:
        self._engine, self.name, self.incarnation = engine, name, incarnation
        self.welcomed = False

    def welcome(self, epoch: Epoch, lease_ms: int, heartbeat_ms: int) -> None:
        self.welcomed = True
        self._engine.touch(self.name)

    def taken(self, report_seq: int, orders: Sequence[Order], *, accepted: bool) -> None:
        if not accepted:
            self._engine.hello(self.name)
        for order in orders:
            self._engine.obey(self.name, order)

    def refuse(self, reason: str) -> None:
        log.warning("the server refuses a node", extra={"node": self.name, "reason": reason})

    def close(self) -> None:
        self.welcomed = False
        self._engine.later(SETTLE_S, lambda: self._engine.hello(self.name))


class _NodeSink:
    def __init__(self, engine: "KubernetesEngine") -> None:
        self._engine = engine

    def changed(self, old: Node | None, new: Node) -> None:
        self._engine.hello(NodeName(new.metadata.name))

    def removed(self, old: Node) -> None:
        self._engine.node_gone(NodeName(old.metadata.name))

    def listed(self) -> None:
        self._engine.begin()


class _PodSink:
    def __init__(self, engine: "KubernetesEngine") -> None:
        self._engine = engine

    def changed(self, old: Pod | None, new: Pod) -> None:
        self._engine.pod_changed(new)

    def removed(self, old: Pod) -> None:
        self._engine.pod_gone(old)

    def listed(self) -> None:
        self._engine.begin()


class KubernetesEngine:
    """An `Engine` over one cluster.

    Args:
        client: entered by the caller, on the loop that runs the engine.
    """

    def __init__(self, client: Client, server: Server) -> None:
        self._server, self._client = server, client
        self.nodes: Reflector[Node] = Reflector(client, NODES, Node, _NodeSink(self))
        self.pods: Reflector[Pod] = Reflector(client, PODS, Pod, _PodSink(self))
        self._binder = Binder(client, self.pods.wrote)
        self._gangs = Gangs()
        self._on: dict[NodeName, OnNode] = {}
        self._specs: dict[NodeName, NodeSpec] = {}
        self._sessions: dict[NodeName, _Session] = {}
        self._touched: set[NodeName] = set()
        self._keys: set[str] = set()
        self._told: dict[str, Refused] = {}
        """What stands as a condition on pods that are not placed."""
        self._begun = False
        self._nodes_changed = False
        """What the server refused because no node could ever hold it may fit by now."""
        self._early: dict[ReplicaKey, tuple[OnNode, StartReplica]] = {}
        """Orders for jobs that no gang is known for."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as group:
                for work in (self.nodes.run(), self.pods.run(), self._flush(), self._stand(), self._settle()):
                    group.create_task(work)
        finally:
            for task in self._tasks:
                task.cancel()

    def send(self, orders: Sequence[Addressed]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._obey_all, tuple(orders))

    # What the cluster says.

    def begin(self) -> None:
        """Introduce all nodes once both lists are whole: before, what runs on them is not known."""
        if not self._begun and self.nodes.whole and self.pods.whole:
            self._begun = True
            for _, name in tuple(self.nodes.objects):
                self.hello(NodeName(name))

    def hello(self, name: NodeName) -> None:
        """Introduce a node, unless the server knows it as it is."""
        node = self.nodes.objects.get(("", name))
        if node is None or not self._begun:
            return
        try:
            spec = node_spec(node, self._keys)
        except BadAmount as error:
            log.warning("a node's amounts cannot be read", extra={"node": name, "problem": str(error)})
            return
        incarnation, session = Incarnation(node.metadata.uid), self._sessions.get(name)
        known = session is not None and session.welcomed and session.incarnation == incarnation
        if known and self._specs.get(name) == spec:
            return
        self._nodes_changed = True
        self._specs[name] = spec
        self._sessions[name] = _Session(self, name, incarnation)
        self._server.on_hello(spec, incarnation, self._sessions[name])

    def node_gone(self, name: NodeName) -> None:
        session, spec = self._sessions.pop(name, None), self._specs.pop(name, None)
        if session is not None and spec is not None:
            on = self._at(name)
            for pod in tuple(on.pods.values()):
                on.take(pod, None)
            self._server.on_report(msgspec.structs.replace(on.report(spec, session.incarnation), leaving=True), session)

    def pod_changed(self, pod: Pod) -> None:
        node, ours = NodeName(pod.spec.node_name), pod.spec.scheduler_name == SCHEDULER
        if node:
            on, key = self._at(node), self._key_of(pod)
            if pod.over:
                on.take(pod, key)
            else:
                on.put(pod, key)
            if key is not None:
                on.starting.pop(key, None)
            ours = key is not None  # who binds a pod without us has decided
            self.touch(node)
        if pod.over or pod.metadata.deletion_timestamp or not ours:
            self._gangs.take(pod)
        elif not pod.spec.scheduling_gates:
            self._offer(pod)

    def _key_of(self, pod: Pod) -> ReplicaKey | None:
        """Return which replica a bound pod is; None where it is no pod of the gang that it claims to be of."""
        key = replica_of(pod)
        if key is None:
            return None
        try:
            (namespace, name), _ = gang_of(pod)
        except ValueError:
            return None
        return key if self._server.gang_name(key.job_id) == f"{namespace}/{name}" else None

    def pod_gone(self, pod: Pod) -> None:
        self._gangs.take(pod)
        self._told.pop(pod.key, None)
        if pod.spec.node_name:
            self._at(NodeName(pod.spec.node_name)).take(pod, self._key_of(pod))
            self.touch(NodeName(pod.spec.node_name))

    def _offer(self, pod: Pod) -> None:
        """Add a pod to its gang; one that can never be placed gets a condition instead."""
        refused = refusal(pod)
        if refused is not None:
            self._say([pod], refused)
            return
        self._gangs.put(pod)
        new = keys_of(alike(pod)) - self._keys
        if new:
            self._keys |= new  # nodes are described with the labels that somebody asks about
            for _, name in tuple(self.nodes.objects):
                self.hello(NodeName(name))

    def touch(self, name: NodeName) -> None:
        """Note that a node has something to report."""
        self._touched.add(name)

    def _at(self, name: NodeName) -> OnNode:
        found = self._on.get(name)
        if found is None:
            found = self._on[name] = OnNode(name)
        return found

    # What goes to the server.

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            touched, self._touched = self._touched, set()
            for name in sorted(touched):
                session, spec = self._sessions.get(name), self._specs.get(name)
                if session is not None and spec is not None and session.welcomed and self.pods.whole:
                    self._server.on_report(self._at(name).report(spec, session.incarnation), session)

    async def _stand(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_S)
            self._server.on_alive([(s.name, s.incarnation) for s in self._sessions.values() if s.welcomed])
            if self._nodes_changed:
                self._nodes_changed = False
                self._gangs.reconsider()

    async def _settle(self) -> None:
        """Submit gangs that are whole, hold the jobs of those that lack pods, and release them once they are there."""
        while True:
            await asyncio.sleep(FLUSH_S)
            for gang in self._gangs.unsettled(asyncio.get_running_loop().time()) if self._begun else ():
                gang.asked = True
                if gang.job_id is None:
                    self._submit(gang)
                elif gang.complete:
                    ranked(gang)
                    self._server.hold(gang.job_id, partial(self._released, gang), held=False)
                else:
                    self._server.hold(gang.job_id, partial(self._held, gang), held=True)

    def _submit(self, gang: Gang) -> None:
        job = new_job(gang, tenant_known=self._server.knows_tenant(gang.namespace))
        if isinstance(job, Refused):
            gang.asked, gang.refused = False, True
            self._say(gang.members.values(), job)
            return

        def reply(found: JobId | Refused) -> None:
            gang.asked = False
            if isinstance(found, Refused):
                gang.refused, gang.again_s = not found.again, asyncio.get_running_loop().time() + SETTLE_S
                self._say(gang.members.values(), found)
            else:
                self._gangs.submitted(gang, found)
                self._start_early(found)

        self._server.submit(job, gang.identity(), reply)

    def _held(self, gang: Gang, problem: str) -> None:
        gang.asked = False
        if problem in ("", "held_already"):
            gang.held = True
            if not gang.members and gang.job_id is not None:
                self._server.cancel(gang.job_id, "its pods were deleted")
                self._gangs.forget(gang)
        elif problem == "over":
            self._gangs.forget(gang)
        else:
            gang.again_s = asyncio.get_running_loop().time() + SETTLE_S  # it runs still

    def _released(self, gang: Gang, problem: str) -> None:
        gang.asked, gang.held = False, False
        if problem == "over":
            self._gangs.forget(gang)

    # What the server decides.

    def _obey_all(self, orders: Sequence[Addressed]) -> None:
        for node, order in orders:
            if node in self._specs:
                self.obey(node, order)

    def connected(self) -> set[NodeName]:
        """Return the nodes that the server has taken in. Any thread."""
        return {name for name, session in tuple(self._sessions.items()) if session.welcomed}

    def obey(self, node: NodeName, order: Order) -> None:
        on = self._at(node)
        match order:
            case StartReplica():
                self._start(on, order)
            case StopReplica():
                self._stop(on, order)
            case Acknowledge():
                on.exits.pop(order.key, None)
            case CheckNode():
                on.check = self._checked(node)
                self.touch(node)
            case FreezeReplica():
                pass  # `on_preempt: suspend` is never set on a job of pods
            case _:
                log.debug("an order that pods know nothing of", extra={"order": type(order).__name__})

    def _start(self, on: OnNode, order: StartReplica) -> None:
        key = order.key
        if key in on.starting or key in on.exits or on.pod_of(key) is not None:
            return
        gang = self._gangs.of_job(key.job_id)
        if gang is None and order.key not in self._early:
            self._early[key] = on, order  # the order may come before the answer to the submit
            self.later(EARLY_S, lambda: self._start_early(key.job_id))
            return
        pod = gang.pod_of(key.rank) if gang is not None and gang.complete else None
        changed = gang is not None and pod is not None and alike(pod) != gang.asks[key.rank]
        if pod is None or pod.spec.node_name or changed:  # while one is missing none is bound: it could not go on
            on.failed(key, GONE)
            self.touch(on.name)
            if gang is None or changed:
                self._server.cancel(key.job_id, "its pods were deleted")  # others of their name ask for other things
            if gang is not None and changed:
                self._gangs.reform(gang)
            return
        on.starting[key] = order.devices
        self._begin(self._bind(on, pod, order))

    def _start_early(self, job_id: JobId) -> None:
        """Start the replicas of a job whose gang is known by now; one that is still not known has no pods."""
        for key in [key for key in self._early if key.job_id == job_id]:
            on, order = self._early[key]
            self._start(on, order)
            self._early.pop(key, None)

    async def _bind(self, on: OnNode, pod: Pod, order: StartReplica) -> None:
        problem = await self._binder.bind(pod, on.name, order.key, order.devices)
        if problem:
            log.info("a pod could not be bound", extra={"pod": pod.key, "node": on.name, "problem": problem})
            on.starting.pop(order.key, None)
            on.failed(order.key, problem)
        self.touch(on.name)

    def _stop(self, on: OnNode, order: StopReplica) -> None:
        pod = on.pod_of(order.key)
        if pod is not None and pod.metadata.deletion_timestamp is None and order.key not in on.stopping:
            on.stopping.add(order.key)
            self._begin(self._evict(on, pod, order))
        elif pod is None and order.key not in on.starting:
            on.failed(order.key, GONE)
            self.touch(on.name)

    async def _evict(self, on: OnNode, pod: Pod, order: StopReplica) -> None:
        def wanted() -> bool:
            now = on.pods.get(pod.key)
            return now is not None and now.metadata.uid == pod.metadata.uid and now.metadata.deletion_timestamp is None

        try:
            await self._binder.evict(pod, order.grace_ms, wanted)
        finally:
            on.stopping.discard(order.key)

    def _checked(self, name: NodeName) -> NodeCheck:
        node = self.nodes.objects.get(("", name))
        ready = next((c for c in node.status.conditions if c.type == "Ready"), None) if node is not None else None
        if ready is not None and ready.status != "True":
            return NodeCheck(False, f"{ready.reason}: {ready.message}")
        return NodeCheck(node is not None)

    def _say(self, pods: Any, refused: Refused) -> None:
        """Write a condition on pods that are not placed, once for each text."""
        for pod in tuple(pods):
            if self._told.get(pod.key) != refused:
                self._told[pod.key] = refused
                self._begin(self._patch(pod, refused))

    async def _patch(self, pod: Pod, refused: Refused) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": refused.reason, "message": refused.text}
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "status")
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        try:
            self.pods.wrote(await self._client.patch(path, body, Pod, "strategic"))
        except KubernetesError as error:
            self._told.pop(pod.key, None)
            log.warning("a condition could not be written", extra={"pod": pod.key, "problem": error.message})

    def later(self, wait_s: float, action: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_later(wait_s, action)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
