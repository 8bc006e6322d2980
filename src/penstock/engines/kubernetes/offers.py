"""What asks for room: pods that wait join their gangs, suspended workloads become gangs of their own."""

from penstock.core.model.ids import JobId
from penstock.engines.kubernetes.amounts import BadAmount
from penstock.engines.kubernetes.asks import keys_of
from penstock.engines.kubernetes.gangs.dialects import NotYet, gang_of
from penstock.engines.kubernetes.gangs.gang import Facts, Gang, GangId, Refused, differs
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.gangs.workloads import Elastic, Workload, gang_id_of
from penstock.engines.kubernetes.judging import Judging
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.placing import Placing
from penstock.engines.kubernetes.saying import Saying
from penstock.engines.kubernetes.server import Server
from penstock.engines.kubernetes.sessions import Nodes
from penstock.engines.kubernetes.view import ClusterView

SOON_S = 2.0
"""What is about to come is there by then; else it is said that it is missing."""


class Offers:
    """Takes in what waits. Everything runs on the engine's loop."""

    def __init__(
        self,
        server: Server,
        view: ClusterView,
        nodes: Nodes,
        gangs: Gangs,
        judging: Judging,
        placing: Placing,
        saying: Saying,
    ) -> None:
        self._server, self._view, self._nodes, self._gangs = server, view, nodes, gangs
        self._judging, self._placing, self._saying = judging, placing, saying
        self._waiting: dict[str, Pod] = {}
        """Pods that wait for an object which says what their gang is."""
        self._lacking: dict[str, tuple[Pod, Refused]] = {}
        """Pods that lack something which is about to come."""

    def drop(self, pod: Pod) -> None:
        """Forget a pod that does not wait any more."""
        self._waiting.pop(pod.key, None)
        self._lacking.pop(pod.key, None)

    def _say_still(self, pod: Pod) -> None:
        """Say what a pod lacks if it lacks it still."""
        known = self._lacking.get(pod.key)
        if known is not None and known[0] is pod:
            self._saying.refuse([pod], known[1])

    def offer(self, pod: Pod) -> None:
        """Add a pod to its gang; one that can never be placed gets a condition instead."""
        try:
            gang_id, facts = gang_of(pod, self._view)
            refused = self._judging.refusal(pod)
        except NotYet as why:
            self._waiting[pod.key] = pod
            self._saying.refuse([pod], Refused("GangUnknown", str(why)))
            return
        except BadAmount as error:
            refused = Refused("InvalidAmount", str(error))
        except ValueError as error:
            refused = Refused("InvalidGang", str(error))
        self._waiting.pop(pod.key, None)
        self._lacking.pop(pod.key, None)
        if refused is not None:
            if refused.soon:
                self._lacking[pod.key] = pod, refused
                self._nodes.later(SOON_S, lambda: self._say_still(pod))
            else:
                self._saying.refuse([pod], refused)
            self._gangs.take(pod)
            return
        gang = self._gangs.put(pod, *self._beyond(pod, gang_id, facts))
        ask = self._judging.ask_of(gang, pod)
        self._nodes.ask_about(keys_of(ask))
        self._placing.refill(gang)
        slot_now = gang.slot_with(pod.metadata.name)
        waits = (gang.asked or gang.job_id is not None) and not gang.placed and gang.workload is None
        if waits and (slot_now is None or differs(ask, slot_now.ask)):
            gang.edited = True

    def _beyond(self, pod: Pod, gang_id: GangId, facts: Facts) -> tuple[GangId, Facts]:
        """Return the gang of a pod; one beyond the size of a gang whose job is known starts alone."""
        gang = self._gangs.get(gang_id)
        if gang is None or gang.job_id is None or gang.workload is not None or pod.metadata.name in gang.members:
            return gang_id, facts
        if sum(not one.leaving for one in gang.members.values()) < gang.size:
            return gang_id, facts
        return (gang_id[0], f"{gang_id[1]}/{pod.metadata.name}"), facts._replace(size=1)

    def more_said(self, namespace: str) -> None:
        """Look again at pods that waited to hear what their gang is."""
        for pod in [pod for pod in self._waiting.values() if pod.metadata.namespace == namespace]:
            self.offer(pod)

    def workload_changed(self, workload: Workload) -> None:
        gang_id = gang_id_of(workload)
        known = self._gangs.get(gang_id)
        if not self._view.started_here(workload):
            return
        if workload.over and (known is None or known.job_id is None):
            if known is not None:
                known.workload = workload if known.asked else None  # else once the answer is here
                self._gangs.forget_empty(known)
            return
        gang = self._gangs.put_workload(
            gang_id, workload, Facts(max(1, workload.size), self._view.queue_of(workload), self._priority_of(workload))
        )
        if workload.elastic is not None:
            self._take_elastic(gang, workload.elastic)
        try:
            for one in workload.sets:
                self._nodes.ask_about(keys_of(self._judging.ask_of(gang, one.pod)))
        except BadAmount as error:
            self._saying.refuse_gang(gang, Refused("InvalidAmount", str(error)))
        if workload.over and not gang.placed and gang.job_id is not None:
            self._server.cancel(gang.job_id, "its workload has ended")
            self._gangs.forget(gang)
        elif workload.over:
            self._placing.workload_over(gang, "" if workload.succeeded else "its workload failed")
        else:
            self._placing.end_needless(gang)

    def _priority_of(self, workload: Workload) -> int | None:
        if workload.elastic is not None:
            return workload.elastic.priority
        lead = workload.sets[0].pod if workload.sets else None
        return self._view.priority_of_pod(lead) if lead is not None else None

    def _take_elastic(self, gang: Gang, elastic: Elastic) -> None:
        """Say what is wrong with an ElasticJob; one whose job has ended already gets no other."""
        if elastic.problem:
            self._saying.refuse_gang(gang, Refused("InvalidTemplate", elastic.problem))
        known = elastic.job and elastic.cluster == self._server.identity()
        if known and gang.job_id is None and not gang.asked and gang.ended_job is None:
            if elastic.job == gang.left_job:
                return
            gang.ended_job = JobId(elastic.job)

    def claims_changed(self, gang_id: GangId) -> None:
        """Look again at a workload whose templates name a claim that has changed."""
        gang = self._gangs.get(gang_id)
        if gang is None or gang.workload is None:
            return
        self._gangs.unlearn(gang)
        self.workload_changed(gang.workload)

    def workload_gone(self, workload: Workload) -> None:
        gang = self._gangs.get(gang_id_of(workload))
        if gang is None:
            return
        gang.workload = None
        if gang.job_id is not None:
            self._server.cancel(gang.job_id, "its workload was deleted")
        if not gang.placed and (gang.job_id is not None or not gang.asked):
            self._gangs.forget(gang)  # else once its replicas have ended, or the answer is here
