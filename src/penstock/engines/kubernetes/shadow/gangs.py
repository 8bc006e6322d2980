"""Gangs that wait for another scheduler, or that it has placed; and what the server was told of them.

A gang becomes a job once all of it is there, and the job starts once all its pods are bound: where they really are.
What comes to a gang that has started is work of its own.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import JobId, NodeName, QueueName, Rank
from penstock.engines.kubernetes.amounts import BadAmount
from penstock.engines.kubernetes.asks import keys_of
from penstock.engines.kubernetes.gangs.dialects import NotYet, gang_of
from penstock.engines.kubernetes.gangs.gang import Facts, Gang, GangId, Refused, Slot, new_job
from penstock.engines.kubernetes.gangs.workloads import Workload
from penstock.engines.kubernetes.judging import Asking
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.onnode import GONE, OnNode
from penstock.engines.kubernetes.server import LiveJob, Noted, ShadowServer
from penstock.engines.kubernetes.sessions import Nodes
from penstock.engines.kubernetes.shadow.asked import Asked
from penstock.engines.kubernetes.shadow.terms import is_there, queue_of, said_by
from penstock.engines.kubernetes.view import ClusterView

log = logging.getLogger(__name__)

AGAIN_S = 1.0
"""The server is asked again about a gang after this long."""
GIVE_UP_S = 30.0
"""A gang whose places do not fit what is known of the nodes counts as load from then on."""
PARTIAL_S = 2.0
"""Pods of a gang that is bound in part count as load of their nodes after this long."""
SAID_MAX_CHARS = 2_000
GANGS_MAX = 500
"""Gangs about which the server is asked in one turn of the loop."""


class WatchedGangs:
    """The gangs. Everything runs on the engine's loop.

    Args:
        restand: counts a pod on its node anew.
    """

    def __init__(
        self,
        server: ShadowServer,
        view: ClusterView,
        nodes: Nodes,
        asking: Asking,
        restand: Callable[[Pod], None],
    ) -> None:
        self._server, self._view, self._nodes, self._asking = server, view, nodes, asking
        self._restand = restand
        self._asked = Asked(asking.ask_of)
        self._gangs: dict[GangId, Gang] = {}
        self._of_pod: dict[str, Gang] = {}
        self._of_job: dict[JobId, Gang] = {}
        self._changed: dict[GangId, Gang] = {}
        self._unknown: dict[str, Pod] = {}
        """Pods that wait for an object which says what their gang is."""
        self._bound_s: dict[GangId, float] = {}
        """Since when the pods of a gang are bound in part, or do not fit where they are."""
        self._as_load: set[GangId] = set()
        """Gangs whose bound pods count as load, although they are not placed."""
        self._misfits: set[GangId] = set()
        """Gangs that do not fit where they run, by what is known: each of them was a job once."""
        self._ended: dict[str, Pod] = {}
        """Pods that ended while the server was told where they run."""
        self.in_log: dict[str, tuple[Gang, Slot]] = {}
        """Replicas of the log by the uid of their pods, until the engine begins."""

    # What is known of a pod.

    def standing_of(self, pod: Pod) -> tuple[ReplicaKey | None, Slot | None, bool]:
        """Return which replica a bound pod is, its slot, and whether it counts as load of its node."""
        gang = self._of_pod.get(pod.key)
        if gang is None:
            return None, None, True
        slot = gang.slot_with(pod.metadata.name)
        if slot is not None and slot.key is not None:
            return slot.key, slot, True
        return None, None, gang.id in self._as_load

    def said_of(self, job_id: JobId) -> str:
        """Return what the scheduler of a job that waits says of it, in its own words, or ''. Any thread."""
        gang = self._of_job.get(job_id)
        if gang is None:
            return ""
        workload, pods = gang.workload, tuple(gang.members.values())
        uids = [*((workload.uid,) if workload is not None else ()), *(pod.metadata.uid for pod in pods)]
        kueue = next(filter(None, map(self._view.said_of, uids)), "")
        if kueue:
            return f"Kueue: {kueue}"[:SAID_MAX_CHARS]
        return next(filter(None, map(said_by, pods)), "")[:SAID_MAX_CHARS]

    # What the cluster says.

    def put(self, pod: Pod) -> None:
        """Add a pod that waits or is bound, or its newer version."""
        gang = self._of_pod.get(pod.key)
        if gang is not None and gang.members[pod.metadata.name].metadata.uid != pod.metadata.uid:
            self.take(gang.members[pod.metadata.name])
            gang = None
        if gang is None:
            gang = self._joined(pod)
            if gang is None:
                return
        ask = self._asked.put(gang, pod)
        gang.members[pod.metadata.name] = pod
        self._of_pod[pod.key] = gang
        self._nodes.ask_about(keys_of(ask))
        self._mark(gang)

    def _joined(self, pod: Pod) -> Gang | None:
        """Return the gang that a new pod belongs to; None where that is not known."""
        self._unknown.pop(pod.key, None)
        try:
            gang_id, facts = gang_of(pod, self._view)
        except NotYet:
            self._unknown[pod.key] = pod
            return None
        except ValueError as error:
            log.info("a pod's gang cannot be", extra={"pod": pod.key, "problem": str(error)})
            gang_id, facts = (pod.metadata.namespace, f"pod/{pod.metadata.name}"), Facts()
        gang = self._gangs.get(gang_id)
        if gang is not None and self._begun(gang):
            gang_id, facts = (gang_id[0], f"{gang_id[1]}/{pod.metadata.name}"), facts._replace(size=1)
            gang = self._gangs.get(gang_id)
        if gang is None:
            gang = self._gangs[gang_id] = Gang(*gang_id, facts)
        elif gang.job_id is None and gang.workload is None:
            gang.facts = facts
        return gang

    def _begun(self, gang: Gang) -> bool:
        """Return whether a gang has all its pods, or has started: one that comes then is work of its own."""
        if gang.placed or (gang.left_job is not None and gang.workload is not None and not gang.workload.suspended):
            return True
        size = len(gang.slots) if gang.job_id is not None else gang.size
        return gang.workload is None and gang.job_id is not None and len(gang.members) >= size

    def take(self, pod: Pod) -> None:
        """Remove a pod that is over or gone."""
        self._unknown.pop(pod.key, None)
        gang = self._of_pod.get(pod.key)
        if gang is None or gang.members[pod.metadata.name].metadata.uid != pod.metadata.uid:
            return
        del self._of_pod[pod.key], gang.members[pod.metadata.name]
        self._asked.take(gang, pod)
        if gang.asked and gang.job_id is not None:
            self._ended[pod.metadata.uid] = pod
        self._mark(gang)

    def more_said(self, namespace: str) -> None:
        """Look again at pods of which it was not known what their gang is."""
        for pod in [one for one in self._unknown.values() if one.metadata.namespace == namespace]:
            self.put(pod)
            self._restand(pod)

    def workload_changed(self, workload: Workload) -> None:
        if not self._view.started_here(workload):
            return
        gang_id = workload.namespace, f"{workload.kind.plural.removesuffix('s')}/{workload.name}"
        gang = self._gangs.get(gang_id)
        if gang is None:
            if workload.over:
                return
            gang = self._gangs[gang_id] = Gang(*gang_id)
        lead = workload.sets[0].pod if workload.sets else None
        priority = self._view.priority_of_pod(lead) if lead is not None else gang.facts.priority
        gang.workload = workload
        self._asked.change(gang)
        gang.facts = Facts(max(1, workload.size), self._view.queue_of(workload), priority)
        if workload.suspended:
            gang.left_job = None  # all of it waits again
        self._mark(gang)

    def workload_gone(self, workload: Workload) -> None:
        gang = self._gangs.get((workload.namespace, f"{workload.kind.plural.removesuffix('s')}/{workload.name}"))
        if gang is not None:
            gang.workload = None
            self._asked.change(gang)
            self._mark(gang)

    def _mark(self, gang: Gang) -> None:
        self._changed[gang.id] = gang

    def reconsider(self) -> None:
        """Ask again about gangs that the server did not take; those that it had taken stay what they are by now."""
        for gang in self._gangs.values():
            if gang.refused and gang.id not in self._misfits:
                gang.refused = False
                self._mark(gang)

    # At the start.

    def adopt(self, job: LiveJob) -> None:
        """Take over a gang whose job is in the log."""
        namespace, _, name = job.gang.partition("/")
        gang = Gang(
            namespace,
            name,
            Facts(len(job.asks)),
            slots=[Slot(ask) for ask in job.asks],
            job_id=job.job_id,
            terms=job.terms,
        )
        for place in job.places:
            slot = gang.slots[place.key.rank]
            slot.node, slot.devices, slot.key = place.node, place.devices, place.key
            self.in_log[place.name] = gang, slot
        self._gangs[gang.id] = self._of_job[job.job_id] = gang
        self._mark(gang)

    def find(self, gang: Gang, slot: Slot, pod: Pod) -> None:
        """Note which pod a replica of the log is."""
        slot.pod = pod.metadata.name
        gang.members[pod.metadata.name] = pod
        self._of_pod[pod.key] = gang

    # Towards the server.

    def turn(self) -> None:
        """Tell the server of gangs that have changed."""
        now_s, told = asyncio.get_running_loop().time(), 0
        for gang_id, gang in tuple(self._changed.items()):
            if gang.asked or gang.again_s > now_s:
                continue
            if told >= GANGS_MAX:
                return
            del self._changed[gang_id]
            told += self._settle(gang, now_s)

    def _settle(self, gang: Gang, now_s: float) -> bool:
        """Tell the server of one gang. Returns: whether there was something to tell."""
        over = gang.workload is None or gang.workload.over
        if gang.job_id is None:
            if not gang.refused and is_there(gang):
                return self._submit(gang)
            if not gang.members and over:
                self._forget(gang)
        elif gang.placed:
            pass
        elif over and not gang.members:
            self._end(gang, "its pods were deleted")
        elif self._renewed(gang):
            self._end(gang, "it asks for something else by now: a new job follows")
            self._mark(gang)
        else:
            return self._place(gang, now_s)
        return False

    def _renewed(self, gang: Gang) -> bool:
        """Return whether a gang that waits is something else by now than its job says."""
        if gang.workload is not None and gang.workload.size not in (0, len(gang.slots)):
            return True
        whole = gang.workload is None and len(gang.members) >= len(gang.slots)
        if whole and not self._asked.fits(gang):
            return True
        queue = self._queue_of(gang)
        return gang.terms is not None and queue is not None and queue != gang.terms.queue

    def _queue_of(self, gang: Gang) -> QueueName | None:
        return queue_of(gang, self._asked.lead_of(gang), self._view, self._server.config())

    def _end(self, gang: Gang, reason: str) -> None:
        assert gang.job_id is not None
        self._server.cancel(gang.job_id, reason)
        self._over(gang)

    def _over(self, gang: Gang) -> None:
        """Forget the job of a gang."""
        assert gang.job_id is not None
        self._of_job.pop(gang.job_id, None)
        gang.left_job, gang.job_id, gang.slots = gang.job_id, None, []
        self._bound_s.pop(gang.id, None)
        if gang.workload is not None and gang.workload.suspended:
            gang.left_job = None
        self._mark(gang)

    def _forget(self, gang: Gang) -> None:
        self._gangs.pop(gang.id, None)
        self._asked.forget(gang.id)
        self._bound_s.pop(gang.id, None)
        self._as_load.discard(gang.id)
        self._misfits.discard(gang.id)

    def _submit(self, gang: Gang) -> bool:
        """Submit a gang as a job that waits. Returns: whether it can be one."""
        try:
            job = new_job(
                gang, partial(self._asking.ask_of, gang), tenant_known=self._server.knows_tenant(gang.namespace)
            )
        except BadAmount as error:
            self._leave_out(gang, str(error))
            return False
        queue = self._queue_of(gang)
        unnamed = tuple(name for name in job.unnamed if name != "queue") + (("queue",) if queue is None else ())
        spec = replace(job.spec, queue=queue) if queue is not None else job.spec
        assert gang.terms is not None
        gang.terms = gang.terms._replace(queue=queue or "")
        gang.asked = True

        def reply(found: JobId | Refused) -> None:
            gang.asked = False
            if isinstance(found, Refused):
                gang.slots, gang.again_s = [], asyncio.get_running_loop().time() + AGAIN_S
                if not found.again:
                    self._leave_out(gang, found.text)
            else:
                gang.job_id = found
                self._of_job[found] = gang
            self._mark(gang)

        self._server.note_waiting(replace(job, spec=spec, unnamed=unnamed), reply)
        return True

    def _leave_out(self, gang: Gang, problem: str) -> None:
        """Count the pods of a gang as load: it cannot be a job."""
        log.warning(
            "work of another scheduler cannot be shown as a job", extra={"gang": gang.label, "problem": problem}
        )
        gang.refused, gang.slots = True, []
        self._count_as_load(gang)

    def _count_as_load(self, gang: Gang) -> None:
        if gang.id not in self._as_load:
            self._as_load.add(gang.id)
            self._restand_all(gang)

    def _restand_all(self, gang: Gang) -> None:
        for pod in tuple(gang.members.values()):
            self._restand(pod)

    def _place(self, gang: Gang, now_s: float) -> bool:
        """Tell the server where a gang runs, once all its pods are bound."""
        bound = [pod for pod in gang.members.values() if pod.spec.node_name]
        if not bound:
            return False
        since_s = self._bound_s.setdefault(gang.id, now_s)
        pods = self._asked.in_slots(gang, bound)
        if pods is None:
            if now_s - since_s >= PARTIAL_S:
                self._count_as_load(gang)
            else:
                gang.again_s = now_s + PARTIAL_S / 2
                self._mark(gang)
            return False
        for slot, pod in zip(gang.slots, pods, strict=True):
            slot.pod = pod.metadata.name
        if gang.id in self._as_load:
            self._as_load.discard(gang.id)
            self._restand_all(gang)
        self._nodes.flush()  # ends on these nodes come first: what they leave may be what this one has
        gang.asked = True
        assert gang.job_id is not None
        self._server.note_start(
            gang.job_id,
            pods[0].spec.scheduler_name,
            [NodeName(pod.spec.node_name) for pod in pods],
            [pod.metadata.uid for pod in pods],
            partial(self._placed, gang, pods),
        )
        return True

    def _placed(self, gang: Gang, pods: list[Pod], found: Noted | Refused) -> None:
        gang.asked = False
        if isinstance(found, Noted):
            assert gang.job_id is not None
            self._bound_s.pop(gang.id, None)
            for rank, (slot, pod) in enumerate(zip(gang.slots, pods, strict=True)):
                slot.key = ReplicaKey(gang.job_id, found.attempt, Rank(rank))
                slot.node, slot.devices = NodeName(pod.spec.node_name), found.devices[rank]
                self._stand_or_end(gang, slot, pod)
        else:
            self._not_placed(gang, found)
        for pod in pods:
            self._ended.pop(pod.metadata.uid, None)
        self._mark(gang)

    def _stand_or_end(self, gang: Gang, slot: Slot, pod: Pod) -> None:
        now = gang.members.get(pod.metadata.name)
        if now is not None and now.metadata.uid == pod.metadata.uid:
            self._restand(now)
            return
        assert slot.key is not None
        on = self._nodes.at(slot.node)
        on.ended(slot.key, self._ended.get(pod.metadata.uid, pod))
        self._tell(on, slot.key)

    def _tell(self, on: OnNode, key: ReplicaKey) -> None:
        """Let the server hear of an end; on a node that is gone it counts the replica as lost already."""
        self._nodes.touch(on.name)
        if not self._nodes.exists(on.name):
            self.acknowledged(on, key)

    def _not_placed(self, gang: Gang, why: Refused) -> None:
        """Try again for a while: nodes may be about to be known, and what has ended to be told."""
        now_s = asyncio.get_running_loop().time()
        if gang.job_id is not None and self._server.gang_name(gang.job_id) != gang.label:
            self._over(gang)  # its job has ended meanwhile
            return
        if why.again or now_s - self._bound_s.get(gang.id, now_s) < GIVE_UP_S:
            gang.again_s = now_s + AGAIN_S
            return
        if gang.job_id is not None:
            self._end(gang, f"it runs, but {why.text}")
        self._leave_out(gang, why.text)
        self._misfits.add(gang.id)

    # Ends.

    def ended(self, on: OnNode, key: ReplicaKey, pod: Pod) -> None:
        """Note how a replica ended with its pod."""
        on.ended(key, pod)
        self._tell(on, key)

    def ended_before(self, slot: Slot, pod: Pod | None) -> None:
        """Note that a replica of the log ended while nobody watched; None: how it ended is not known any more."""
        assert slot.key is not None
        on = self._nodes.at(slot.node)
        if pod is not None:
            on.ended(slot.key, pod)
        else:
            on.failed(slot.key, GONE)
        self._tell(on, slot.key)

    def acknowledged(self, on: OnNode, key: ReplicaKey) -> None:
        """Forget an end that is in the log; what is left of its gang waits again, or forms another job."""
        on.exits.pop(key, None)
        gang = self._of_job.get(key.job_id)
        slot = gang.slot_of(key) if gang is not None else None
        if gang is None or slot is None:
            return
        slot.key, slot.pod = None, ""
        if gang.placed:
            return
        if self._server.gang_name(key.job_id) == gang.label:
            self._mark(gang)
        else:
            self._over(gang)
