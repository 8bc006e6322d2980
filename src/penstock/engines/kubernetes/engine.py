"""The engine: what the server decides becomes bindings and evictions, what the cluster does becomes reports.

It decides nothing. Everything runs on one loop; `send` may be called from any thread. What it knows, others carry out:
`sessions` nodes, `settling` gangs, `placing` orders, `saying` what people read.
"""

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from penstock.core.messages.orders import Addressed, Order
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.cluster import DEFAULT_POOL
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import JobId, NodeName, PoolName
from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.api.reflector import CallSink, Reflector
from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.avoiding import Avoiding
from penstock.engines.kubernetes.binding import PODS, Binder
from penstock.engines.kubernetes.budgets import Budgets
from penstock.engines.kubernetes.claims import AllClaims
from penstock.engines.kubernetes.devices.kind import DeviceClaims
from penstock.engines.kubernetes.gangs.dialects import NotYet, gang_of
from penstock.engines.kubernetes.gangs.gang import Facts, Gang, Slot
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.judging import Judging
from penstock.engines.kubernetes.looking import Looking
from penstock.engines.kubernetes.names import CHECKPOINT_ANNOTATION, CLUSTER_ANNOTATION, POOL_LABEL
from penstock.engines.kubernetes.nominating import Nominating
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.offers import Offers
from penstock.engines.kubernetes.onnode import OnNode, Standing, devices_of, replica_of
from penstock.engines.kubernetes.operator.applying import Applying
from penstock.engines.kubernetes.operator.making import Maker
from penstock.engines.kubernetes.operator.queuemap import QueueMap, Where
from penstock.engines.kubernetes.operator.telling import Telling
from penstock.engines.kubernetes.pace import Pace
from penstock.engines.kubernetes.placing import Placing
from penstock.engines.kubernetes.saying import Saying
from penstock.engines.kubernetes.selectors import Selectors
from penstock.engines.kubernetes.server import LiveJob, Server
from penstock.engines.kubernetes.sessions import FLUSH_S, Nodes
from penstock.engines.kubernetes.settling import Settling
from penstock.engines.kubernetes.view import ClusterView, Heard
from penstock.engines.kubernetes.volumes.volumes import Volumes

log = logging.getLogger(__name__)

NODES = Kind("", "v1", "nodes", namespaced=False)
IDLE_S = 0.1
"""Volumes, devices and places that wait too long are looked at this often while no gang changes."""
AGAIN_S = 5.0
"""Gangs that no node could hold are submitted again this long after nodes have changed."""


class KubernetesEngine:
    """An `Engine` over one cluster.

    Args:
        client: entered by the caller, on the loop that runs the engine.
        draw: spreads requests in time.
        queues: the ConfigMap that declares queues as long as no Queue object does.
    """

    def __init__(
        self, client: Client, server: Server, draw: random.Random | None = None, queues: Where | None = None
    ) -> None:
        self._server, self._client, self._draw = server, client, draw
        self._pace = Pace()
        self._gangs = Gangs(self._pace.wake)
        self._budgets = Budgets(server, self._gangs)
        node_sink = CallSink(self._node_changed, self._node_removed, self.begin)
        pod_sink = CallSink(self.pod_changed, self.pod_gone, self.begin)
        self.nodes: Reflector[Node] = Reflector(client, NODES, Node, node_sink, draw=draw)
        self.pods: Reflector[Pod] = Reflector(client, PODS, Pod, pod_sink, draw=draw)
        heard = Heard(
            lambda workload: self._looking.workload_changed(workload),  # noqa: PLW0108 - not made yet
            lambda workload: self._looking.workload_gone(workload),  # noqa: PLW0108 - not made yet
            lambda namespace: self._looking.more_said(namespace),  # noqa: PLW0108 - not made yet
            self._reselect_all, self._budgets.changed, self._budgets.removed, self.begin,
        )  # fmt: skip
        self.view = ClusterView(client, heard, draw=draw)
        self._selectors = Selectors(self.view.labels_of)
        self.volumes = Volumes(client, self.nodes.objects, self._pods_at, self._places_of, self.begin, draw)
        self.devices = self._device_claims()
        claims = AllClaims((self.volumes, self.devices), self.devices.together)
        self.standing = Nodes(server, self.nodes.objects, self._obey, self._pool_of, claims.offered)
        self._judging = Judging(self.nodes.objects, self.standing, self._selectors, self._budgets, claims)
        self._avoiding = Avoiding(self._gangs, self._judging, self.standing)
        wrote, identity = self.pods.wrote, server.identity
        maker = Maker(client, self.view.elastic_jobs, self.pods.objects, wrote, identity, draw)
        self._binder = Binder(client, wrote, identity, server.term, draw)
        self.placing = Placing(server, self.standing, self._gangs, self._binder, self._judging, maker)
        self._saying = Saying(client, self._gangs, server, wrote)
        self._nominating = Nominating(client, server, self._gangs, self.pods.objects, wrote)
        self._telling = Telling(client, self._gangs, server, self._saying, self.view.elastic_jobs)
        self._queue_map = QueueMap(client, queues, draw) if queues is not None else None
        self._applying = Applying(client, server, self.view.declared, self.standing.hello_all, self._queue_map)
        self._offers = Offers(server, self.view, self.standing, self._gangs, self._judging, self.placing, self._saying)
        self._looking = Looking(
            self.view, self.volumes, self.devices, self.standing, self._gangs, self._offers, self._avoiding
        )
        self._settling = Settling(
            server,
            self._gangs,
            self._judging.ask_of,
            self.volumes.refusal_of_workload,
            self._saying.refuse_gang,
            self.placing.start_early,
            self.placing.suspend_first,
        )
        self._at: dict[str, NodeName] = {}
        """The node whose load each pod is part of."""
        self._former: set[str] = set()
        """Gangs that hold places in the log as it was when the engine began."""
        self._whole, self._fenced = asyncio.Event(), False
        self._asked: dict[JobId, GangAsk] = {}
        """What jobs ask for that were in the log already when the engine began."""
        self._finished: dict[ReplicaKey, Pod] = {}
        """Pods that were over already when the engine began, by the replica that they were."""
        self._beginning = self._all_anew = False
        """Pods are looked at for the first time; what selectors select has to be counted anew on all nodes."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def _device_claims(self) -> DeviceClaims:
        return DeviceClaims(
            self._client, self.nodes.objects, self.pods.objects, self._pods_at, partial(self.view.pod_group, "native"),
            self._places_of, lambda *what: self._avoiding.avoid(*what),  # noqa: PLW0108 - not made yet
            self.begin, self._server, self._draw,
        )  # fmt: skip

    def _pool_of(self, labels: Mapping[str, str]) -> PoolName:
        """Return the pool that a node names, where there is one of that name."""
        name = PoolName(labels.get(POOL_LABEL, ""))
        return name if name in self._server.config().pool_by_name else DEFAULT_POOL

    def _node_changed(self, node: Node) -> None:
        self.standing.hello(NodeName(node.metadata.name))

    def _node_removed(self, node: Node) -> None:
        self.node_gone(NodeName(node.metadata.name))

    def _places_of(self, pod: Pod) -> list[tuple[Pod, NodeName]]:
        return self._avoiding.places_of(pod)

    def _pods_at(self, node: NodeName) -> Iterable[Pod]:
        return self.standing.at(node).pods.values()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        self._loop = asyncio.get_running_loop()
        for job in self._server.live():
            self._adopt(job)
        works = [self.nodes.run(), self.pods.run(), self.view.run(), self.volumes.run(),
                 self.devices.run(lambda: self.standing.begun), self._fence(),
                 self.standing.report(), self.standing.stand(), self._settle(), self._again(), self._saying.run(),
                 self._telling.run(), self._applying.run(),
                 self._nominating.run(lambda: self.standing.begun)]  # fmt: skip
        if self._queue_map is not None:
            works.append(self._queue_map.run())
        try:
            async with asyncio.TaskGroup() as group:
                for work in works:
                    group.create_task(work)
        finally:
            self.placing.close()

    def send(self, orders: Sequence[Addressed]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._obey_all, tuple(orders))

    def _obey(self, node: NodeName, order: Order) -> None:
        self.placing.obey(node, order)

    def _obey_all(self, orders: Sequence[Addressed]) -> None:
        for node, order in orders:
            if node in self.standing.specs:
                self.placing.obey(node, order)

    def connected(self) -> set[NodeName]:
        """Return the nodes that the server has taken in. Any thread."""
        return self.standing.connected()

    # At the start.

    def _adopt(self, job: LiveJob) -> None:
        """Take over a gang whose job is in the log: its pods are found by what stands on them, or by their names."""
        namespace, _, name = job.gang.partition("/")
        gang = Gang(
            namespace,
            name,
            Facts(len(job.asks)),
            slots=[Slot(ask) for ask in job.asks],
            held=job.held,
            terms=job.terms,
            hold_asked=job.held,
        )
        for place in job.places:
            slot = gang.slots[place.key.rank]
            slot.node, slot.devices = place.node, place.devices
            if place.started:
                slot.key = place.key  # an order to start the others comes again
        if job.places:
            self._former.add(job.gang)
        self._gangs.adopt(gang, job.job_id)
        self._asked[job.job_id] = job.ask
        self._budgets.adopt(job.job_id, job.protected)

    def begin(self) -> None:
        """Introduce all nodes once all lists are whole: before, what runs on them is not known."""
        whole = self.nodes.whole and self.pods.whole and self.view.whole
        whole = whole and self.volumes.view.whole and self.devices.view.whole
        if self.standing.begun or not whole:
            return
        self._whole.set()
        if not self._fenced:
            return
        self.standing.begun = self._beginning = True
        for pod in self.pods.objects.values():
            self.volumes.pod_changed(pod)  # what one may use depends on what others use
        for workload in self.view.workloads():  # what says their priorities may have come after them
            self._offers.workload_changed(workload)
        for pod in tuple(self.pods.objects.values()):
            self.pod_changed(pod)
        for gang in self._gangs:
            for slot in gang.slots:
                if slot.key is None or slot.pod:
                    continue
                leaving = self.standing.at(slot.node).pod_of(slot.key)
                if leaving is not None:
                    slot.pod = leaving.metadata.name  # it holds its place until it is gone
                else:
                    self.placing.miss(gang, slot, self._finished.get(slot.key))
            if gang.job_id is not None and not gang.members and gang.workload is None and not gang.placed:
                self._server.cancel(gang.job_id, "its pods were deleted")
                self._gangs.forget(gang)
            if gang.elastic is not None and gang.placed and gang.job_id in self._asked:
                gang.edited = not self._settling.same_as_placed(gang, self._asked[gang.job_id])
            self._gangs.mark(gang)
            self.placing.refill(gang)
        self._finished.clear()
        self._asked.clear()
        self._budgets.begin()
        self._beginning = False
        self.standing.begin()

    async def _fence(self) -> None:
        """Let Bindings fail that a former leader has on their way, before anything is reported or begun.

        Which of a gang's pods it has bound to which place is not known: that of any pod may be on its way.
        """
        await self._whole.wait()
        await self._binder.fence(filter(self._may_be_bound, tuple(self.pods.objects.values())))
        self._fenced = True
        self.begin()

    def _may_be_bound(self, pod: Pod) -> bool:
        if pod.spec.scheduler_name != SCHEDULER or pod.spec.node_name or pod.over:
            return False
        own, meta = f"{pod.metadata.namespace}/{self._gang_name(pod)}", pod.metadata
        return not self._former.isdisjoint((own, f"{own}/{meta.name}", f"{meta.namespace}/pod/{meta.name}"))

    # What the cluster says.

    def node_gone(self, name: NodeName) -> None:
        on = self.standing.at(name)
        for pod in tuple(on.pods.values()):
            self._leave(on, pod)
        self.standing.gone(name)
        self.placing.node_gone(on)

    def pod_changed(self, pod: Pod) -> None:
        if not self.standing.begun:
            return  # what says more of it may come later
        ours = pod.spec.scheduler_name == SCHEDULER
        self.volumes.pod_changed(pod)
        self.devices.pod_changed(pod)
        self._stand(pod, ours=ours)
        if ours:
            self._nominating.pod_changed(pod)
        if not ours or pod.over or pod.leaving:
            self._offers.drop(pod)
            gang = self._gangs.take(pod)
            if gang is not None:
                self._budgets.pod_changed(gang)
            if ours and pod.status.phase == "Succeeded":
                self._gangs.note_done(pod, (pod.metadata.namespace, self._gang_name(pod)))
        elif pod.spec.node_name:
            self._note_bound(pod)
        elif not pod.spec.scheduling_gates:
            self._offers.offer(pod)

    def pod_gone(self, pod: Pod) -> None:
        self.volumes.pod_gone(pod)
        self.devices.pod_gone(pod)
        node = self._at.pop(pod.key, None)
        if node is not None:
            self._leave(self.standing.at(node), pod)
            self.standing.touch(node)
        gang = self._gangs.take(pod)
        if gang is not None:
            self._budgets.pod_changed(gang)
            self.placing.lost(gang, pod)
        if pod.status.phase == "Succeeded" and pod.spec.scheduler_name == SCHEDULER:
            self._gangs.forget_done(pod, (pod.metadata.namespace, self._gang_name(pod)))
        self._offers.drop(pod)
        self._selectors.drop(pod.key)
        self._saying.forget(pod.key)

    def _stand(self, pod: Pod, *, ours: bool) -> None:
        """Count a pod on the node that it is bound to, or that another scheduler keeps for it."""
        name = NodeName(pod.spec.node_name or ("" if ours or pod.over else pod.status.nominated_node_name))
        before = self._at.get(pod.key)
        if before is not None and before != name:
            self.standing.at(before).take(pod)
            self.standing.touch(before)
            del self._at[pod.key]
        if not name:
            return
        on, key = self.standing.at(name), self._key_of(pod) if ours else None
        if pod.over:
            self._leave(on, pod, key)
        else:
            self._at[pod.key] = name
            on.put(pod, self._standing_of(pod, key))
            if key is not None:
                on.starting.pop(key, None)
                self._note_checkpoint(on, key, pod)
        self.standing.touch(name)

    def _leave(self, on: OnNode, pod: Pod, key: ReplicaKey | None = None) -> None:
        """Take a pod that is over or gone off its node; a replica has lost its pod with it."""
        self._at.pop(pod.key, None)
        self._selectors.drop(pod.key)
        found = on.take(pod)
        if found is None and key is not None:  # it ended before it was seen to run
            slot = self._slot_of(key)
            if slot is not None and self._beginning:
                self._finished[key] = pod
            elif slot is not None and slot.pod == pod.metadata.name:
                found = key
        if found is not None and found not in on.exits:
            self.placing.ended(self._gangs.of_job(found.job_id), on, found, pod)

    def _slot_of(self, key: ReplicaKey) -> Slot | None:
        gang = self._gangs.of_job(key.job_id)
        return gang.slot_of(key) if gang is not None else None

    def _key_of(self, pod: Pod) -> ReplicaKey | None:
        """Return which replica a bound pod is; None where it is no pod of the gang that it claims to be of.

        What says of which gang it is may be gone before the pod: then its claim counts, within its namespace.
        """
        key = replica_of(pod)
        if key is None or pod.metadata.annotations.get(CLUSTER_ANNOTATION) != self._server.identity():
            return None
        gang = self._gangs.of_job(key.job_id)
        label = gang.label if gang is not None else self._server.gang_name(key.job_id)
        namespace, _, name = label.partition("/")
        known = self.standing.at(NodeName(pod.spec.node_name)).pod_of(key)
        if namespace != pod.metadata.namespace or (known is not None and known.key != pod.key):
            return None
        own, alone = self._gang_name(pod), f"pod/{pod.metadata.name}"
        return key if name in (own, f"{own}/{pod.metadata.name}") or own in ("", alone) else None

    def _gang_name(self, pod: Pod) -> str:
        try:
            (_, name), _ = gang_of(pod, self.view)
        except (ValueError, NotYet):
            return ""
        return name

    def _standing_of(self, pod: Pod, key: ReplicaKey | None) -> Standing:
        if key is None:
            return self._judging.standing_of(pod, None, None, frozenset())
        gang = self._gangs.of_job(key.job_id)
        planned = gang.slots[key.rank].ask if gang is not None and key.rank < len(gang.slots) else None
        if planned is not None:
            self.volumes.planned(pod, planned)
        return self._judging.standing_of(pod, key, planned, devices_of(pod))

    def _note_checkpoint(self, on: OnNode, key: ReplicaKey, pod: Pod) -> None:
        step = pod.metadata.annotations.get(CHECKPOINT_ANNOTATION, "")
        if step.isdecimal() and key.rank == 0:
            on.checkpoints[key] = int(step[:18])

    def _note_bound(self, pod: Pod) -> None:
        """Keep a pod that is bound as a member of its gang, in the slot that it says."""
        self._saying.forget(pod.key)  # why it waited is no longer to be said
        key = self._key_of(pod)
        if key is None:
            self._gangs.take(pod)  # who binds a pod without us has decided
            return
        gang = self._gangs.of_job(key.job_id)
        if gang is not None and key.rank < len(gang.slots):
            self._gangs.put(pod, gang.id, gang.facts)
            self._budgets.pod_changed(gang)
            slot = gang.slots[key.rank]
            if slot.key in (key, None) and slot.pod != pod.metadata.name and not slot.pod:
                slot.pod = pod.metadata.name

    # Selectors that came into use: which pods they select has to be counted.

    def _reselect_all(self) -> None:
        """The labels of a namespace have changed: count again what selectors of namespaces select."""
        if self._selectors.of_namespaces:
            self._all_anew = True

    def _reselect(self) -> bool:
        """Count what new selectors select. Returns: whether there were any."""
        fresh, anew, self._all_anew = self._selectors.take_fresh(), self._all_anew, False
        if not fresh and not anew:
            return False
        for on in self.standing.all():
            for pod in tuple(on.pods.values()):
                known = on.standing_of(pod)
                if known is not None and (anew or any(one.selects(pod, self.view.labels_of) for one in fresh)):
                    on.put(pod, self._standing_of(pod, known.key))
                    self.standing.touch(on.name)
        for gang in self._gangs:
            if not (gang.asked or gang.job_id is not None) or gang.placed:
                continue
            pods = gang.members.values()
            if anew or any(one.selects(pod, self.view.labels_of) for one in fresh for pod in pods):
                gang.edited = True
                self._gangs.mark(gang)
        return True

    async def _settle(self) -> None:
        while True:
            await self._pace.wait(FLUSH_S, IDLE_S)
            if self.standing.begun:
                if self._reselect():
                    self.standing.flush()  # the server hears what stands where before it hears of who minds
                more = self._looking.turn(self.pods.objects, self.pod_changed)
                if self._settling.turn(asyncio.get_running_loop().time()) or more:
                    self._pace.wake()
                self._budgets.turn()
                self.placing.give_up_overdue()

    async def _again(self) -> None:
        while True:
            await asyncio.sleep(AGAIN_S)
            if self.standing.changed:
                self.standing.changed = False
                self._gangs.reconsider()
