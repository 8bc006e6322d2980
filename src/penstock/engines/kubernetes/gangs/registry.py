"""All gangs of pods that wait or run here, by name, by pod and by job; and which of them have to be settled."""

from collections.abc import Callable, Iterable, Iterator

from penstock.core.model.ids import JobId
from penstock.engines.kubernetes.gangs.gang import Facts, Gang, GangId, terms_of
from penstock.engines.kubernetes.gangs.workloads import Workload
from penstock.engines.kubernetes.objects.pods import Pod


class Gangs:
    """The gangs. What changes a gang marks it: `unsettled` yields those about which the server is to be asked.

    Args:
        marked: is called each time that a gang was marked.
    """

    def __init__(self, marked: Callable[[], None] = lambda: None) -> None:
        self._marked = marked
        self._gangs: dict[GangId, Gang] = {}
        self._of_pod: dict[str, Gang] = {}
        self._of_job: dict[JobId, Gang] = {}
        self._changed: dict[GangId, Gang] = {}
        self._done: dict[GangId, dict[str, str]] = {}
        """Pods that have succeeded: they may be there before the others of their gang are seen."""
        self.vacant: dict[GangId, Gang] = {}
        """Gangs with places that wait for pods."""
        self._unplaced: dict[JobId, Gang] = {}
        """Gangs with a job; those that hold places are in it until they are looked at."""

    def __iter__(self) -> Iterator[Gang]:
        return iter(tuple(self._gangs.values()))

    def put(self, pod: Pod, gang_id: GangId, facts: Facts) -> Gang:
        """Add a pod that could be placed, or its newer version, and return its gang."""
        former = self._of_pod.get(pod.key)
        if former is not None and former.id != gang_id:
            self.take(pod)
        gang = self._gangs.get(gang_id)
        if gang is None:
            gang = self._new(Gang(*gang_id, facts))
        gang.done_before.pop(pod.metadata.name, None)
        known = gang.members.get(pod.metadata.name)
        gang.members[pod.metadata.name] = pod
        self._of_pod[pod.key] = gang
        if gang.workload is not None:
            pass  # which says all of it
        elif gang.job_id is None:
            new = known is None or known.spec != pod.spec or gang.facts != facts
            gang.facts, gang.refused = facts, gang.refused and not new
        elif len(gang.members) == 1:  # pods of a gang may differ: the one that comes first counts
            _compare(gang, facts, pod)
        self.mark(gang)
        return gang

    def put_workload(self, gang_id: GangId, workload: Workload, facts: Facts) -> Gang:
        """Add an object that makes its pods once it is started, or its newer version."""
        gang = self._gangs.get(gang_id)
        if gang is None:
            gang = self._new(Gang(*gang_id, facts))
        if gang.workload is None or _asks_anew(gang.workload, workload) or gang.facts != facts:
            known = gang.job_id is not None or gang.asked
            gang.refused, gang.edited = False, known and (workload.elastic is not None or not gang.placed)
        gang.workload, gang.facts = workload, facts
        if gang.job_id is not None and workload.sets:
            _compare(gang, facts, workload.sets[0].pod)
        self.mark(gang)
        return gang

    def take(self, pod: Pod) -> Gang | None:
        """Remove a pod that is gone or over, and return its gang; None where it was in none."""
        gang = self._of_pod.pop(pod.key, None)
        if gang is not None:
            gang.members.pop(pod.metadata.name, None)
            slot = gang.slot_with(pod.metadata.name)
            if slot is not None and slot.key is None:
                slot.pod = ""
            self.mark(gang)
            if not gang.asked:  # else once the answer is here
                self.forget_empty(gang)
        return gang

    def forget_empty(self, gang: Gang) -> None:
        """Forget a gang that has neither pods nor a job."""
        if not gang.members and gang.job_id is None and gang.workload is None:
            self.forget(gang)

    def adopt(self, gang: Gang, job_id: JobId) -> None:
        """Add a gang whose job is known from the log."""
        self._new(gang)
        self.submitted(gang, job_id)

    def _new(self, gang: Gang) -> Gang:
        self._gangs[gang.id] = gang
        gang.done = self._done.setdefault(gang.id, {})
        return gang

    def note_done(self, pod: Pod, gang_id: GangId) -> None:
        """Note that a pod has succeeded."""
        self._done.setdefault(gang_id, {})[pod.metadata.name] = pod.metadata.uid
        gang = self._gangs.get(gang_id)
        if gang is not None:
            self.mark(gang)

    def forget_done(self, pod: Pod, gang_id: GangId) -> None:
        """Note that a pod is gone which had succeeded: for its gang it has, as long as others of it are there."""
        done, gang = self._done.get(gang_id), self._gangs.get(gang_id)
        uid = done.pop(pod.metadata.name, None) if done is not None else None
        if gang is not None and uid is not None:
            gang.done_before[pod.metadata.name] = uid
        elif not done:
            self._done.pop(gang_id, None)

    def submitted(self, gang: Gang, job_id: JobId) -> None:
        gang.job_id = job_id
        self._of_job[job_id] = self._unplaced[job_id] = gang
        for pod in tuple(gang.members.values()) if len(gang.members) == 1 else ():
            _compare(gang, gang.facts, pod)
        self.mark(gang)  # its pods may have changed meanwhile

    def unplaced(self, gang: Gang) -> None:
        """Note that a gang with a job holds no places any more: what was put off until then is due."""
        gang.again_s = 0.0
        if gang.job_id is not None:
            self._unplaced[gang.job_id] = gang

    def waiting(self) -> dict[JobId, Gang]:
        """Return the gangs whose jobs hold no places."""
        for job_id in [job_id for job_id, gang in self._unplaced.items() if gang.placed]:
            del self._unplaced[job_id]
        return dict(self._unplaced)

    def mark(self, gang: Gang) -> None:
        self._changed[gang.id] = gang
        self._marked()

    def unlearn(self, gang: Gang) -> None:
        """Let a workload that waits be planned by its templates alone."""
        gang.refused = False
        if not gang.placed and self._gangs.get(gang.id) is gang:
            gang.learned.clear()
            gang.edited = gang.edited or gang.job_id is not None
            self.mark(gang)

    def reform(self, gang: Gang) -> None:
        """Forget the job of a gang: what waits of it forms a new one."""
        waiting = [pod for pod in gang.members.values() if not pod.spec.node_name and not pod.leaving]
        workload, facts = gang.workload, gang.facts
        self.forget(gang)
        if workload is not None and not workload.over:
            new = self.put_workload(gang.id, workload, facts)
            if workload.elastic is not None:
                new.ended_job, new.left_job = (None, gang.job_id) if gang.renewed else (gang.job_id, None)
        for pod in waiting:
            self.put(pod, gang.id, facts).done_before.update(gang.done_before)

    def forget(self, gang: Gang) -> None:
        """Forget a gang and its job."""
        if gang.job_id is not None:
            self._of_job.pop(gang.job_id, None)
            self._unplaced.pop(gang.job_id, None)
        for pod in gang.members.values():
            self._of_pod.pop(pod.key, None)
        self.vacant.pop(gang.id, None)
        self._changed.pop(gang.id, None)
        if self._gangs.get(gang.id) is gang:
            del self._gangs[gang.id]
            if not gang.done:
                self._done.pop(gang.id, None)

    def get(self, gang_id: GangId) -> Gang | None:
        return self._gangs.get(gang_id)

    def of_job(self, job_id: JobId) -> Gang | None:
        return self._of_job.get(job_id)

    def of_pod(self, pod_key: str) -> Gang | None:
        return self._of_pod.get(pod_key)

    def reconsider(self) -> None:
        """Let gangs that the server refused be submitted again."""
        for gang in self._gangs.values():
            if gang.refused:
                gang.refused = False
                self.mark(gang)

    def unsettled(self, now_s: float) -> Iterator[Gang]:
        """Yield gangs about which the server is to be asked."""
        for gang_id, gang in tuple(self._changed.items()):
            if gang.asked or gang.again_s > now_s:
                continue
            if self._gangs.get(gang_id) is gang and _calls(gang):
                yield gang
            else:
                del self._changed[gang_id]

    def overdue(self, now_s: float) -> Iterable[Gang]:
        """Return gangs in which a place has waited too long for a pod."""
        return [
            gang
            for gang in self.vacant.values()
            if any(slot.key is not None and not slot.pod and slot.ends_s <= now_s for slot in gang.slots)
        ]


def _asks_anew(old: Workload, new: Workload) -> bool:
    least = [one.elastic.least if one.elastic is not None else 0 for one in (old, new)]
    made_of = [one.elastic.template_hash if one.elastic is not None else "" for one in (old, new)]
    return old.sets != new.sets or least[0] != least[1] or made_of[0] != made_of[1]


def _calls(gang: Gang) -> bool:
    """Return whether the server has to be asked about a gang: it is new, whole again, in part, or asks differently."""
    if gang.job_id is None:
        return gang.complete and not gang.refused and gang.ended_job is None
    if gang.placed:  # its attempt ends first: that of an ElasticJob is asked to
        return gang.elastic is not None and (gang.edited or gang.elastic.paused)
    if gang.renewed or gang.hold_asked or gang.deserted:
        return True
    return gang.complete == gang.held or (gang.complete and (gang.edited or gang.lacks_ranks))


def _compare(gang: Gang, facts: Facts, lead: Pod) -> None:
    """Note whether a gang has other terms than its job by now."""
    gang.facts = gang.facts._replace(queue=facts.queue, priority=facts.priority)
    known, terms = gang.terms, terms_of(gang, lead)
    if known is not None and known.adopted and not terms.queue:
        terms = terms._replace(queue=known.queue)  # it may have been the default
    gang.renewed = known is not None and known._replace(adopted=False) != terms
