"""Orders of the server, carried out: pods are bound and evicted, workloads started and suspended.

Every order is answered by a report in the end: the replica runs, or it ended and why. Lost work is derived again: the
server repeats orders that a report does not show as done.
"""

import asyncio
import logging
from functools import partial

from penstock.core.messages.orders import Acknowledge, CheckNode, Order, StartReplica, StopReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import JobId, NodeName
from penstock.engines.kubernetes.binding import WITHDRAWN, Binder
from penstock.engines.kubernetes.gangs.gang import Gang, GangId, Slot, differs, fill, pods_of
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.judging import Judging
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.onnode import GONE, OnNode
from penstock.engines.kubernetes.operator.making import Maker
from penstock.engines.kubernetes.server import Server
from penstock.engines.kubernetes.sessions import Nodes
from penstock.engines.kubernetes.stops import Stops
from penstock.engines.kubernetes.tasks import Tasks
from penstock.engines.kubernetes.together import Together, claims_something

log = logging.getLogger(__name__)

EARLY_S = 5.0
"""An order for an unknown job is kept this long: its gang may be about to be known."""
PODS_S = 120.0
"""A workload that was started has made its pods by then."""
REPLACED_S = 60.0
"""A pod that ended without being asked to has been made anew by its controller by then."""
LEARNED_S = 300.0
"""Where the volumes of pods were counts for those that come after them for so long."""
CHANGED = "it asks for something else by now"


class Placing:
    """Carries out orders. Everything runs on the engine's loop."""

    def __init__(
        self, server: Server, nodes: Nodes, gangs: Gangs, binder: Binder, judging: Judging, maker: Maker
    ) -> None:
        self._server, self._nodes, self._gangs, self._binder, self._judging = server, nodes, gangs, binder, judging
        self._maker = maker
        self._early: dict[ReplicaKey, tuple[OnNode, StartReplica]] = {}
        """Orders for jobs that no gang is known for."""
        self._unasked: set[GangId] = set()
        """Workloads that are being suspended because they were not started here."""
        self._binding: set[ReplicaKey] = set()
        """Replicas whose pods are being bound; `_withdrawn`: those that are not to start any more."""
        self._withdrawn: set[ReplicaKey] = set()
        self._together = Together()
        self._tasks = Tasks()
        self._stops = Stops(server, gangs, binder, judging, self._tasks)

    def close(self) -> None:
        self._tasks.cancel()
        self._maker.close()

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
                on.check = self._judging.check(node)
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
        elif gang.renewed or (gang.elastic and gang.edited) or differs(order.ask, gang.slots[key.rank].ask):
            self._fail(on, key, CHANGED)
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

    def _fail(self, on: OnNode, key: ReplicaKey, problem: str, *, stopped: bool = False) -> None:
        on.starting.pop(key, None)
        self._together.fail(key)
        on.failed(key, problem, stopped=stopped)
        self._tell(on, key)

    def _tell(self, on: OnNode, key: ReplicaKey) -> None:
        """Let the server hear of an end; on a node that is gone it counts the replica as lost already."""
        self._nodes.touch(on.name)
        if not self._nodes.exists(on.name):
            self._acknowledged(on, key)

    def _start_pod(self, gang: Gang, on: OnNode, order: StartReplica) -> None:
        slot = gang.slots[order.key.rank]
        pod = gang.members.get(slot.pod)
        if pod is None or pod.spec.node_name or pod.leaving:
            self._fail(on, order.key, GONE)
            return
        ask = self._judging.ask_of(gang, pod)
        if self._judging.changed(on.name, ask, slot.ask):
            gang.edited = True
            self._fail(on, order.key, CHANGED)
            self._gangs.mark(gang)
        elif why := self._judging.refusal_of(on.name, ask, pod):
            self._fail(on, order.key, why)
        else:
            self._hold_place(on, slot, order)
            self._begin_bind(gang, on, slot, pod)

    def _begin_bind(self, gang: Gang, on: OnNode, slot: Slot, pod: Pod) -> None:
        assert slot.key is not None, "a place is held before a pod is bound to it"
        self._together.begin(gang, slot.key)
        on.binding[slot.key] = self._judging.sums_of(pod)
        self._tasks.begin(self._bind(gang, on, slot, slot.key, pod))

    def _hold_place(self, on: OnNode, slot: Slot, order: StartReplica) -> None:
        slot.key, slot.node, slot.devices, slot.waits = order.key, on.name, order.devices, False
        on.starting[order.key] = order.devices

    def _start_workload(self, gang: Gang, on: OnNode, order: StartReplica) -> None:
        """Hold the place for a pod to come, and let the workload make its pods."""
        slot = gang.slots[order.key.rank]
        self._hold_place(on, slot, order)
        pod = gang.members.get(slot.pod)
        if pod is None or pod.leaving or pod.spec.node_name:
            slot.pod, pod = "", None  # the pod of an attempt before, such as one of a node that is gone
        self._await_pod(gang, slot, PODS_S)
        if pod is not None:
            self.filled(gang, slot, pod)
        self.refill(gang)  # pods of a workload that was running already
        if gang.elastic is not None:
            self._maker.forget_old(gang, order.key)
            self._tasks.begin(self._make_pod(gang, on, order))
        elif gang.started != order.key.attempt:
            gang.started = order.key.attempt
            self._tasks.begin(self._begin_workload(gang))

    async def _make_pod(self, gang: Gang, on: OnNode, order: StartReplica) -> None:
        problem = await self._maker.make(gang, order, lambda: order.key in on.starting)
        if problem and order.key in on.starting:
            log.info("a pod could not be made", extra={"gang": gang.label, "problem": problem})
            self._fail(on, order.key, problem)

    async def _begin_workload(self, gang: Gang) -> None:
        problem = await self._binder.start(gang.workload) if gang.workload is not None else GONE
        if problem:
            log.info("a workload could not be started", extra={"gang": gang.label, "problem": problem})
            self._give_up_vacant(gang, problem)

    def _await_pod(self, gang: Gang, slot: Slot, wait_s: float) -> None:
        slot.waits, slot.ends_s = not slot.pod, asyncio.get_running_loop().time() + wait_s
        self._gangs.vacant[gang.id] = gang

    def miss(self, gang: Gang, slot: Slot, finished: Pod | None) -> None:
        """Note that a replica has no pod, after a restart: it has ended, or its workload makes another pod.

        Args:
            finished: the pod that it was and that is over; None where it is gone.
        """
        assert slot.key is not None
        on = self._nodes.at(slot.node)
        if gang.made_elsewhere and (finished is None or _is_replaced(gang, finished)):
            on.starting[slot.key] = slot.devices
            self._await_pod(gang, slot, PODS_S)
        elif finished is not None:
            on.ended(slot.key, finished)
            self._tell(on, slot.key)
        else:
            self._fail(on, slot.key, GONE)

    def suspend_first(self, gang: Gang) -> None:
        """Suspend a workload that runs without having been started here."""
        if gang.id not in self._unasked:
            self._unasked.add(gang.id)
            self._tasks.begin(self._suspend_first(gang))

    async def _suspend_first(self, gang: Gang) -> None:
        try:
            if gang.workload is not None:
                await self._binder.suspend(gang.workload, list, "")
        finally:
            self._unasked.discard(gang.id)

    def filled(self, gang: Gang, slot: Slot, pod: Pod) -> None:
        """Bind a pod that has come into a slot with a place."""
        if slot.key is None or pod.spec.node_name or slot.key not in self._nodes.at(slot.node).starting:
            return  # what it was before has yet to end
        ask = self._judging.ask_of(gang, pod)
        changed = self._judging.changed(slot.node, ask, slot.ask)
        if changed and (other := self._judging.other_place(gang, slot, ask)) is not None:
            slot.pod, slot.waits, other.pod, other.waits = "", True, pod.metadata.name, False
            self.filled(gang, other, pod)
            return
        why = self._judging.refusal_of(slot.node, slot.ask if changed else ask, pod)
        if why:
            slot.pod, slot.waits = "", True
            self._leave_node(gang, slot, why)
        elif changed:
            gang.learned[slot.template], gang.edited, slot.pod = ask, True, ""
            if claims_something(pod):
                self._nodes.later(LEARNED_S, partial(self._gangs.unlearn, gang))
            self._give_up(slot, "its pods ask for something else than their template says: they are planned anew")
        else:
            self._begin_bind(gang, self._nodes.at(slot.node), slot, pod)

    def _leave_node(self, gang: Gang, slot: Slot, why: str) -> None:
        """Give up a place on a node that takes no more pods, such as one that is being drained."""
        others = any(one is not slot and one.key is not None and one.node != slot.node for one in gang.slots)
        if others and gang.workload is not None and gang.workload.completions is not None:
            self._finish(slot, "")  # its pods go on in the places of the others
        else:
            self._give_up(slot, why)

    async def _bind(self, gang: Gang, on: OnNode, slot: Slot, key: ReplicaKey, pod: Pod) -> None:
        self._binding.add(key)
        try:
            problem = await self._bind_with_claims(gang, on, slot, key, pod)
        finally:
            self._binding.discard(key)
            self._withdrawn.discard(key)
        if problem:
            on.binding.pop(key, None)
            log.info("a pod could not be bound", extra={"pod": pod.key, "node": on.name, "problem": problem})
            if slot.key == key and slot.pod == pod.metadata.name and on.pod_of(key) is None:
                slot.pod = ""
                known = gang.members.get(pod.metadata.name)
                gone = known is None or known.leaving or known.spec.node_name
                if gone and gang.workload is not None and key in on.starting:
                    self._await_pod(gang, slot, REPLACED_S)  # its controller makes another one
                else:
                    self._fail(on, key, problem)
        else:
            self.lost(gang, pod)
        self._nodes.touch(on.name)

    async def _bind_with_claims(self, gang: Gang, on: OnNode, slot: Slot, key: ReplicaKey, pod: Pod) -> str:
        devices, claims = slot.devices, self._judging.claims

        def wanted() -> bool:
            return key not in self._withdrawn and self._together.wanted(key)

        def worth_waiting() -> bool:
            now = gang.members.get(pod.metadata.name)
            same = now is not None and now.metadata.uid == pod.metadata.uid and not now.leaving
            return same and slot.key == key and wanted()

        problem = await claims.prepare(pod, on.name, worth_waiting)
        if problem:
            return problem
        await self._together.ready(key, worth_waiting)
        problem = await self._binder.bind(pod, on.name, key, devices, wanted) if worth_waiting() else WITHDRAWN
        if problem:
            await claims.release(pod, on.name)
        return problem

    # Ends.

    def lost(self, gang: Gang, pod: Pod) -> None:
        """Note that a pod is gone which was bound, and of which nothing was seen since: a watch may miss all of it."""
        slot = gang.slot_with(pod.metadata.name)
        if slot is None or slot.key is None or slot.key in self._binding or pod.metadata.name in gang.members:
            return
        on = self._nodes.at(slot.node)
        if on.pod_of(slot.key) is None and on.starting.pop(slot.key, None) is not None:
            self.ended(gang, on, slot.key, pod)
            self._nodes.touch(on.name)

    def ended(self, gang: Gang | None, on: OnNode, key: ReplicaKey, pod: Pod) -> None:
        """Note that a replica's pod is over or gone: its place waits for the next one, or the replica has ended."""
        slot = gang.slot_of(key) if gang is not None else None
        on.binding.pop(key, None)
        if gang is not None and slot is not None and slot.pod == pod.metadata.name:
            slot.pod = ""
            if key not in on.stopping and _is_replaced(gang, pod):
                on.starting[key] = slot.devices
                self._await_pod(gang, slot, REPLACED_S)
                self.refill(gang)
                return
        on.ended(key, pod)
        self._tell(on, key)
        if gang is not None:
            self.end_needless(gang)

    def refill(self, gang: Gang) -> None:
        """Bind pods that came before a place was vacant."""
        waiting = [pod for pod in gang.members.values() if not pod.spec.node_name]
        for slot, pod in fill(gang, waiting, partial(self._judging.ask_of, gang)):
            self.filled(gang, slot, pod)

    def end_needless(self, gang: Gang) -> None:
        """End replicas whose places wait for pods that do not come: the others suffice for what is left to do."""
        workload = gang.workload
        if workload is None or workload.completions is None:
            return
        left = workload.completions - max(workload.done, gang.done_count)
        vacant = [slot for slot in gang.slots if not slot.pod and self._is_open(slot)]
        for slot in vacant[max(0, left - sum(bool(one.pod) for one in gang.slots)) :]:
            self._finish(slot, "")

    def _is_open(self, slot: Slot) -> bool:
        """Return whether a slot has a place whose replica has not ended."""
        return slot.key is not None and slot.key in self._nodes.at(slot.node).starting

    def _finish(self, slot: Slot, problem: str) -> None:
        assert slot.key is not None
        on = self._nodes.at(slot.node)
        if slot.key in on.starting and slot.key not in self._binding:
            del on.starting[slot.key]
            slot.waits = False
            self._together.leave(slot.key)
            on.finished(slot.key, problem)
            self._tell(on, slot.key)

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
            slot.waits = False
            self._fail(on, slot.key, problem)

    def workload_over(self, gang: Gang, problem: str) -> None:
        """End the replicas of a workload that has ended, of which no more pods come."""
        for slot in gang.slots:
            if slot.key is not None and not slot.pod:
                self._finish(slot, problem)

    def _acknowledged(self, on: OnNode, key: ReplicaKey) -> None:
        """Forget an end that is in the log, and the gang with it when its job is over."""
        on.acknowledged(key)
        gang = self._gangs.of_job(key.job_id)
        if gang is None:
            return
        slot = gang.slot_of(key)
        if slot is not None:
            slot.key, slot.waits = None, False
        if gang.placed:
            return
        self._together.forget(key.job_id)
        if gang.elastic is not None:
            self._maker.sweep(gang)
        if self._server.gang_name(key.job_id) == gang.label:
            self.refill(gang)
            self._note_edits(gang)
            self._gangs.unplaced(gang)
            self._gangs.mark(gang)
        else:
            self._gangs.reform(gang)

    def _note_edits(self, gang: Gang) -> None:
        """Compare what pods ask for with what was planned: what they claim may have changed while they had places."""
        if any(map(claims_something, pods_of(gang))):
            if gang.workload is not None and not gang.edited:
                gang.learned.clear()  # it was about the volumes of pods that are gone
            gang.edited = gang.edited or self._judging.edited(gang)

    def node_gone(self, on: OnNode) -> None:
        """Forget what was on a node that is gone: the server counts its replicas as lost."""
        for key in (*on.exits, *on.starting):
            self._acknowledged(on, key)
        on.starting.clear()

    # Stops.

    def _stop(self, on: OnNode, order: StopReplica) -> None:
        key, pod = order.key, on.pod_of(order.key)
        self._early.pop(key, None)
        gang = self._gangs.of_job(key.job_id)
        slot = gang.slot_of(key) if gang is not None else None
        if pod is None and key in self._binding:
            self._withdrawn.add(key)  # whether it was bound in time is about to be known
        elif pod is None and slot is not None and slot.pod and key in on.starting:
            pass  # it is bound: once the watch shows that, the order comes again
        elif pod is None:
            self._fail(on, key, GONE, stopped=True)  # whatever ended it, its attempt does not end for that
        elif gang is not None and gang.made_elsewhere and slot is not None:
            on.stopping.add(key)
            self._stops.suspend(gang, key)
        else:
            self._stops.evict(on, pod, order)


def _is_replaced(gang: Gang, pod: Pod) -> bool:
    """Return whether another pod comes for one that is over or gone, without having been asked to leave.

    What is known of a workload and of its pods comes at different times: what is further counts.
    """
    workload, succeeded = gang.workload, pod.status.phase == "Succeeded"
    if workload is not None and workload.elastic is not None:
        return False  # another one comes with the next attempt
    if workload is None:
        return gang.size > 1 and pod.metadata.controller is not None and not succeeded
    if succeeded:
        gang.done_before[pod.metadata.name] = pod.metadata.uid
    if workload.over or workload.suspended:
        return False
    if workload.completions is None:
        return not succeeded
    left = workload.completions - max(workload.done, gang.done_count)
    return left > sum(bool(slot.pod) for slot in gang.slots)
