"""Orders of the server, carried out: pods are bound and evicted, workloads started and suspended.

Every order is answered by a report in the end: the replica runs, or it ended and why. Lost work is derived again: the
server repeats orders that a report does not show as done.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from penstock.core.messages.orders import Acknowledge, CheckNode, Order, StartReplica, StopReplica
from penstock.core.messages.reports import NodeCheck, ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, NodeName
from penstock.core.model.resources import ReplicaAsk
from penstock.engines.kubernetes.binding import Binder
from penstock.engines.kubernetes.gangs.gang import Gang, GangId, Slot
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.onnode import GONE, OnNode
from penstock.engines.kubernetes.server import Server
from penstock.engines.kubernetes.sessions import Nodes

log = logging.getLogger(__name__)

EARLY_S = 5.0
"""An order for an unknown job is kept this long: its gang may be about to be known."""
PODS_S = 120.0
"""A workload that was started has made its pods by then."""
REPLACED_S = 60.0
"""A pod that ended without being asked to has been made anew by its controller by then."""


class Judge(Protocol):
    """What the engine knows of pods, beyond what stands on nodes."""

    def ask_of(self, gang: Gang, pod: Pod) -> ReplicaAsk: ...

    def check(self, node: NodeName) -> NodeCheck: ...


class Placing:
    """Carries out orders. Everything runs on the engine's loop."""

    def __init__(self, server: Server, nodes: Nodes, gangs: Gangs, binder: Binder, judge: Judge) -> None:
        self._server, self._nodes, self._gangs, self._binder, self._judge = server, nodes, gangs, binder, judge
        self._early: dict[ReplicaKey, tuple[OnNode, StartReplica]] = {}
        """Orders for jobs that no gang is known for."""
        self._started: dict[JobId, AttemptNumber] = {}
        """Attempts for which a workload was started; `_suspended`: for which it was suspended."""
        self._suspended: dict[JobId, AttemptNumber] = {}
        self._unasked: set[GangId] = set()
        """Workloads that are being suspended because they were not started here."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def obey(self, node: NodeName, order: Order) -> None:
        on = self._nodes.at(node)
        match order:
            case StartReplica():
                self._start(on, order)
            case StopReplica():
                self._stop(on, order)
            case Acknowledge():
                self._acknowledged(on, order.key)
            case CheckNode():
                on.check = self._judge.check(node)
                self._nodes.touch(node)
            case _:
                log.debug("an order that pods know nothing of", extra={"order": type(order).__name__})

    # Starts.

    def _start(self, on: OnNode, order: StartReplica) -> None:
        key = order.key
        if key in on.starting or key in on.exits or on.pod_of(key) is not None:
            return
        gang = self._gangs.of_job(key.job_id)
        if gang is None:
            self._start_later(on, order)
        elif key.rank >= len(gang.slots) or not gang.complete:
            self._fail(on, key, GONE)  # while a pod of its gang is missing none is bound: it could not go on
        elif gang.workload is not None:
            self._start_workload(gang, on, order)
        else:
            self._start_pod(gang, on, order)

    def _start_later(self, on: OnNode, order: StartReplica) -> None:
        """Keep an order that came before the answer to the submit."""
        if order.key not in self._early:
            self._early[order.key] = on, order
            self._nodes.later(EARLY_S, lambda: self._too_late(order.key))

    def start_early(self, job_id: JobId) -> None:
        """Carry out the orders that came before their job's gang was known."""
        for key in [key for key in self._early if key.job_id == job_id]:
            self._start(*self._early.pop(key))

    def _too_late(self, key: ReplicaKey) -> None:
        found = self._early.pop(key, None)
        if found is not None:
            self._fail(found[0], key, GONE)
            self._server.cancel(key.job_id, "its pods were deleted")

    def _fail(self, on: OnNode, key: ReplicaKey, problem: str) -> None:
        on.starting.pop(key, None)
        on.failed(key, problem)
        self._nodes.touch(on.name)

    def _start_pod(self, gang: Gang, on: OnNode, order: StartReplica) -> None:
        slot = gang.slots[order.key.rank]
        pod = gang.members.get(slot.pod)
        if pod is None or pod.spec.node_name or pod.leaving:
            self._fail(on, order.key, GONE)
        elif differs(self._judge.ask_of(gang, pod), slot.ask):
            gang.edited = True
            self._fail(on, order.key, "it asks for something else by now")
            self._gangs.mark(gang)
        else:
            self._hold_place(on, slot, order)
            self._begin(self._bind(gang, on, slot, pod))

    def _hold_place(self, on: OnNode, slot: Slot, order: StartReplica) -> None:
        slot.key, slot.node, slot.devices = order.key, on.name, order.devices
        on.starting[order.key] = order.devices

    def _start_workload(self, gang: Gang, on: OnNode, order: StartReplica) -> None:
        """Hold the place for a pod to come, and let the workload make its pods."""
        slot = gang.slots[order.key.rank]
        self._hold_place(on, slot, order)
        self._await_pod(gang, slot, PODS_S)
        pod = gang.members.get(slot.pod)
        if pod is not None and not pod.spec.node_name and not pod.leaving:
            self._begin(self._bind(gang, on, slot, pod))
        if self._started.get(order.key.job_id) != order.key.attempt:
            self._started[order.key.job_id] = order.key.attempt
            self._begin(self._begin_workload(gang))

    async def _begin_workload(self, gang: Gang) -> None:
        assert gang.workload is not None
        problem = await self._binder.start(gang.workload)
        if problem:
            log.info("a workload could not be started", extra={"gang": gang.label, "problem": problem})
            self._give_up_vacant(gang, problem)

    def _await_pod(self, gang: Gang, slot: Slot, wait_s: float) -> None:
        slot.ends_s = asyncio.get_running_loop().time() + wait_s
        self._gangs.vacant[gang.id] = gang

    def miss(self, gang: Gang, slot: Slot) -> None:
        """Note that the pod of a replica is gone, after a restart: a workload may make it anew."""
        assert slot.key is not None
        on = self._nodes.at(slot.node)
        if slot.key in on.exits:
            return  # how it ended is known
        if gang.workload is None:
            on.failed(slot.key, GONE)
        else:
            on.starting[slot.key] = slot.devices
            self._await_pod(gang, slot, PODS_S)

    def suspend_first(self, gang: Gang) -> None:
        """Suspend a workload that runs without having been started here."""
        if gang.id not in self._unasked:
            self._unasked.add(gang.id)
            self._begin(self._suspend_first(gang))

    async def _suspend_first(self, gang: Gang) -> None:
        assert gang.workload is not None
        try:
            await self._binder.suspend(gang.workload, list, "")
        finally:
            self._unasked.discard(gang.id)

    def filled(self, gang: Gang, slot: Slot, pod: Pod) -> None:
        """Bind a pod that has come into a slot with a place."""
        if slot.key is not None and not pod.spec.node_name:
            self._begin(self._bind(gang, self._nodes.at(slot.node), slot, pod))

    async def _bind(self, gang: Gang, on: OnNode, slot: Slot, pod: Pod) -> None:
        key = slot.key
        assert key is not None, "a place is held before a pod is bound to it"
        problem = await self._binder.bind(pod, on.name, key, slot.devices)
        if problem:
            log.info("a pod could not be bound", extra={"pod": pod.key, "node": on.name, "problem": problem})
            if slot.key == key and slot.pod == pod.metadata.name and on.pod_of(key) is None:
                slot.pod = ""
                if gang.workload is not None and key in on.starting:
                    self._await_pod(gang, slot, REPLACED_S)  # its controller makes another one
                else:
                    self._fail(on, key, problem)
        self._nodes.touch(on.name)

    # Ends.

    def ended(self, gang: Gang | None, on: OnNode, key: ReplicaKey, pod: Pod) -> None:
        """Note that a replica's pod is over or gone: its place waits for the next one, or the replica has ended."""
        slot = gang.slot_of(key) if gang is not None else None
        if gang is not None and slot is not None and slot.pod == pod.metadata.name:
            slot.pod = ""
            if key not in on.stopping and _is_replaced(gang, pod):
                on.starting[key] = slot.devices
                self._await_pod(gang, slot, REPLACED_S)
                return
        on.ended(key, pod)

    def give_up_overdue(self) -> None:
        """End replicas whose places have waited too long for a pod."""
        now_s = asyncio.get_running_loop().time()
        for gang in self._gangs.overdue(now_s):
            late = [slot for slot in gang.slots if slot.key is not None and not slot.pod and slot.ends_s <= now_s]
            for slot in late:
                self._give_up(slot, "no pod came for it")
            if not any(slot.key is not None and not slot.pod for slot in gang.slots):
                self._gangs.vacant.pop(gang.id, None)

    def _give_up_vacant(self, gang: Gang, problem: str) -> None:
        for slot in gang.slots:
            if slot.key is not None and not slot.pod:
                self._give_up(slot, problem)

    def _give_up(self, slot: Slot, problem: str) -> None:
        assert slot.key is not None
        on = self._nodes.at(slot.node)
        if slot.key in on.starting:
            self._fail(on, slot.key, problem)

    def workload_over(self, gang: Gang, problem: str) -> None:
        """End the replicas of a workload that has ended, of which no more pods come."""
        for slot in gang.slots:
            if slot.key is None or slot.pod:
                continue
            on = self._nodes.at(slot.node)
            if slot.key in on.starting:
                del on.starting[slot.key]
                on.finished(slot.key, problem)
                self._nodes.touch(on.name)

    def _acknowledged(self, on: OnNode, key: ReplicaKey) -> None:
        """Forget an end that is in the log, and the gang with it when its job is over."""
        on.exits.pop(key, None)
        on.stopping.discard(key)
        gang = self._gangs.of_job(key.job_id)
        if gang is None:
            return
        slot = gang.slot_of(key)
        if slot is not None:
            slot.key = None
        if gang.placed:
            return
        if self._server.gang_name(key.job_id) == gang.label:
            self._gangs.mark(gang)
        else:
            self._started.pop(key.job_id, None)
            self._suspended.pop(key.job_id, None)
            self._gangs.forget(gang)

    # Stops.

    def _stop(self, on: OnNode, order: StopReplica) -> None:
        key, pod = order.key, on.pod_of(order.key)
        self._early.pop(key, None)
        gang = self._gangs.of_job(key.job_id)
        slot = gang.slot_of(key) if gang is not None else None
        if pod is None:
            if slot is None or not slot.pod or key not in on.starting:  # else it is being bound: the report shows it
                self._fail(on, key, GONE)
        elif gang is not None and gang.workload is not None and slot is not None:
            on.stopping.add(key)
            self._suspend(gang, key)
        elif not pod.leaving and key not in on.stopping:
            on.stopping.add(key)
            self._begin(self._evict(on, pod, order))

    def _suspend(self, gang: Gang, key: ReplicaKey) -> None:
        if self._suspended.get(key.job_id) != key.attempt:
            self._suspended[key.job_id] = key.attempt
            self._begin(self._end_workload(gang, key.job_id))

    async def _end_workload(self, gang: Gang, job_id: JobId) -> None:
        def pods() -> list[Pod]:
            return [pod for pod in gang.members.values() if pod.spec.node_name and not pod.over and not pod.leaving]

        assert gang.workload is not None
        await self._binder.suspend(gang.workload, pods, self._server.stop_text(job_id))

    async def _evict(self, on: OnNode, pod: Pod, order: StopReplica) -> None:
        def wanted() -> bool:
            now = on.pods.get(pod.key)
            return now is not None and now.metadata.uid == pod.metadata.uid and not now.leaving

        try:
            why = self._server.stop_text(order.key.job_id) or order.reason
            await self._binder.evict(pod, order.grace_ms, why, wanted)
        finally:
            on.stopping.discard(order.key)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def differs(ask: ReplicaAsk, planned: ReplicaAsk) -> bool:
    """Return whether a pod asks for something else than was planned; who else looks at it is no part of that."""
    return (ask.host, ask.devices, ask.affinity, ask.label_terms, ask.tolerations) != (
        planned.host,
        planned.devices,
        planned.affinity,
        planned.label_terms,
        planned.tolerations,
    )


def _is_replaced(gang: Gang, pod: Pod) -> bool:
    """Return whether another pod comes for one that is over or gone, without having been asked to leave."""
    workload = gang.workload
    if workload is not None:
        return not workload.over and not workload.suspended and (workload.more or pod.status.phase != "Succeeded")
    return gang.size > 1 and pod.metadata.controller is not None and pod.status.phase != "Succeeded"
