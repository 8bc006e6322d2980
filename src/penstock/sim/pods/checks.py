"""Promises about pods, checked at every write to the API server, against what a kubelet would say.

What another scheduler, or a shrinking node, brought about within the last moments is nobody's fault: a scheduler sees
it late. Everything else is a violation.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.core.model.cluster import ClusterConfig
from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.binding import PREEMPTED
from penstock.engines.kubernetes.names import ATTEMPT_LABEL, DEVICES_ANNOTATION, JOB_LABEL, REPLICA_ANNOTATION
from penstock.sim.apiserver.controllers import budget_of, short_of
from penstock.sim.apiserver.pods import OVER
from penstock.sim.apiserver.selecting import Object, selected
from penstock.sim.apiserver.store import Change, Store
from penstock.sim.pods.devices import claimed_by
from penstock.sim.pods.disks import DiskChecks

LATE_S = 4.0
"""What happened so recently may not have been seen."""
SETTLED_S = 1.5
"""A budget that has changed, or lost a pod, is known as it is by then."""
JUST_S = 1.0
"""A pod that has run for less was not running yet when it was asked to leave: that cost no budget anything."""
IN_PART_S = 90.0
"""A gang is whole, or not there at all, after this long."""
GPU = "nvidia.com/gpu"


class Checks:
    """Follows a store.

    Args:
        excused: whether a workload may be suspended by a leader that was replaced: of budgets it knew what was then.
    """

    def __init__(
        self, store: Store, config: ClusterConfig, now_s: Callable[[], float], excused: Callable[[], bool]
    ) -> None:
        self._store, self._config, self._now_s, self._excused = store, config, now_s, excused
        self.violations: list[str] = []
        self._disturbed_s: dict[str, float] = {}
        """When each node was last bound to by others, or had less to offer."""
        self._in_part_since_s: dict[str, float] = {}
        self._unsettled_s: dict[str, float] = {}
        """When each budget last changed, or lost a pod."""
        self._runs_since_s: dict[str, float] = {}
        """Since when each pod runs, by its uid."""
        self._disks = DiskChecks(store, self.found)
        self.bound = 0
        self.evicted = 0
        store.listeners.append(self._see)

    def _see(self, change: Change) -> None:
        if change.kind.plural == "nodes":
            self._disturbed_s[change.new["metadata"]["name"]] = self._now_s()
        if change.kind.plural == "poddisruptionbudgets" and change.old is None:
            self._unsettled_s[change.new["metadata"]["name"]] = self._now_s()
        if change.kind.plural != "pods":
            return
        was = change.old["spec"].get("nodeName") if change.old is not None else None
        node = change.new["spec"].get("nodeName")
        if change.type == "DELETED":
            self._note_lost(change.new)
            return
        if _running(change.new) and (change.old is None or not _running(change.old)):
            self._runs_since_s[change.new["metadata"]["uid"]] = self._now_s()
        if change.old is not None and _running(change.old) and not _running(change.new):
            self._disrupted(change.new)
        if node and not was:
            if _ours(change.new):
                self.bound += 1
                self._bound(change.new)
            else:
                self._disturbed_s[node] = self._now_s()
        elif was and node != was:
            self.found(f"pod {change.new['metadata']['name']} moved from {was} to {node}")

    def found(self, text: str) -> None:
        """Note a violation."""
        self.violations.append(f"at {self._now_s():.2f} s: {text}")

    def _bound(self, pod: Object) -> None:
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        if self._now_s() - self._disturbed_s.get(node, -LATE_S) < LATE_S:
            return
        short = short_of(self._store, pod)
        if short:
            self.found(f"pod {name} was bound to {node}, which has too little {short}")
        target = self._store.all_of("nodes").get(("", node))
        if target is None:
            return
        if target["spec"].get("unschedulable"):
            self.found(f"pod {name} was bound to {node}, which is cordoned")
        self._disks.pod_bound(pod)
        for found in (*self._twice(pod), *self._of_two_attempts(pod)):
            self.found(found)
        for other in self._running_on(node):
            if other["metadata"]["uid"] != pod["metadata"]["uid"] and (repels(pod, other) or repels(other, pod)):
                self.found(f"pod {name} was bound to {node} beside {other['metadata']['name']}, against their rules")
        self._quota()

    def _note_lost(self, pod: Object) -> None:
        for budget in self._budgets_of(pod):
            self._unsettled_s[budget["metadata"]["name"]] = self._now_s()

    def _budgets_of(self, pod: Object) -> Iterator[Object]:
        for budget in self._store.all_of("poddisruptionbudgets").values():
            if selected(budget["spec"].get("selector"), pod):
                yield budget

    def _disrupted(self, pod: Object) -> None:
        """Check that a pod which was asked to leave for others leaves its budgets enough."""
        why = {c["type"]: c.get("reason") for c in pod["status"].get("conditions", ())}.get("DisruptionTarget")
        owners = [(pod["metadata"]["namespace"], one["name"]) for one in pod["metadata"].get("ownerReferences", ())]
        ours = _ours(pod) and why == PREEMPTED and pod["status"]["phase"] == "Running"
        there = (*self._store.all_of("jobs"), *self._store.all_of("elasticjobs"))
        ours = ours and all(owner in there for owner in owners)  # else it left with its owner
        just = self._now_s() - self._runs_since_s.pop(pod["metadata"]["uid"], 0.0) < JUST_S
        for budget in self._budgets_of(pod) if ours and not just else ():
            name = budget["metadata"]["name"]
            healthy, least = budget_of(self._store, budget)
            settled = self._now_s() - self._unsettled_s.get(name, 0.0) > SETTLED_S
            if healthy < least and settled and not self._excused():
                self.found(f"pod {pod['metadata']['name']} left budget {name} {healthy} running of {least}")
        self._note_lost(pod)

    def _running_on(self, node: str) -> Iterator[Object]:
        for pod in self._store.all_of("pods").values():
            if pod["spec"].get("nodeName") == node and pod["status"]["phase"] not in OVER:
                yield pod

    def _twice(self, pod: Object) -> Iterator[str]:
        own = devices_of(pod)
        for other in self._running_on(pod["spec"]["nodeName"]):
            both = own & devices_of(other)
            if both and other["metadata"]["uid"] != pod["metadata"]["uid"]:
                names = f"{pod['metadata']['name']} and {other['metadata']['name']}"
                yield f"device {min(both)} of {pod['spec']['nodeName']} is given to {names}"

    def _of_two_attempts(self, pod: Object) -> Iterator[str]:
        """Yield pods of another attempt of the same ElasticJob that run still."""
        labels = pod["metadata"].get("labels") or {}
        for other in self._store.all_of("pods").values() if ATTEMPT_LABEL in labels else ():
            told = other["metadata"].get("labels") or {}
            same = told.get(JOB_LABEL) == labels[JOB_LABEL] and told[ATTEMPT_LABEL] != labels[ATTEMPT_LABEL]
            if same and other["spec"].get("nodeName") and _running(other):
                yield f"pod {pod['metadata']['name']} was bound while {other['metadata']['name']} runs"

    def _quota(self) -> None:
        """Sum what runs in each queue with a maximum of devices."""
        held: dict[str, int] = {}
        claimed: dict[str, dict[str, int]] = {}
        for pod in self._store.all_of("pods").values():
            if pod["spec"].get("nodeName") and pod["status"]["phase"] not in OVER and _ours(pod):
                queue = (pod["metadata"].get("labels") or {}).get("penstock.dev/queue", "")
                held[queue] = held.get(queue, 0) + gpus_of(pod)
                claimed.setdefault(queue, {}).update(claimed_by(self._store, pod))
        held = {queue: number + sum(claimed[queue].values()) for queue, number in held.items()}
        for one in self._config.queues:
            most = dict(one.max).get("devices")
            if most is not None and held.get(one.name, 0) * 1000 > most:
                self.found(f"queue {one.name} holds {held[one.name]} devices of {most / 1000:g}")

    def look(self, gangs: Mapping[str, list[str]]) -> None:
        """Check that no gang is there in part for long."""
        now_s = self._now_s()
        for gang, names in gangs.items():
            pods = [self._store.all_of("pods").get(("default", name)) for name in names]
            bound = [p is not None and bool(p["spec"].get("nodeName")) for p in pods]
            over = any(p is not None and p["status"]["phase"] in OVER for p in pods)
            if any(bound) and not all(bound) and not over:
                since_s = self._in_part_since_s.setdefault(gang, now_s)
                if now_s - since_s > IN_PART_S:
                    self.found(f"gang {gang} has been bound in part for {now_s - since_s:.0f} s")
                    self._in_part_since_s[gang] = now_s
            else:
                self._in_part_since_s.pop(gang, None)


def _ours(pod: Object) -> bool:
    told = pod["metadata"].get("annotations") or {}
    return pod["spec"].get("schedulerName") == SCHEDULER and REPLICA_ANNOTATION in told


def devices_of(pod: Object) -> set[str]:
    told = (pod["metadata"].get("annotations") or {}).get(DEVICES_ANNOTATION, "") if _ours(pod) else ""
    return set(filter(None, told.split(",")))


def gpus_of(pod: Object) -> int:
    return sum(int((box.get("resources", {}).get("requests") or {}).get(GPU, 0)) for box in pod["spec"]["containers"])


def repels(pod: Object, other: Object) -> bool:
    """Return whether a rule of one pod keeps another off its node."""
    affinity: dict[str, Any] = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return any(selected(term.get("labelSelector"), other) for term in terms)


def _running(pod: Object) -> bool:
    return pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
