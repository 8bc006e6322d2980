"""Which pods are somebody's work, which queue they name, and which of them are which rank of their gang."""

from collections import deque
from collections.abc import Callable, Iterable

from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import QueueName
from penstock.core.model.resources import ReplicaAsk
from penstock.engines.kubernetes.amounts import BadAmount
from penstock.engines.kubernetes.asks import unsupported
from penstock.engines.kubernetes.gangs.dialects import queue_said
from penstock.engines.kubernetes.gangs.gang import Gang, order_of
from penstock.engines.kubernetes.gangs.workloads import KUEUE_QUEUE_LABEL, set_of
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.view import ClusterView

Kinds = tuple[object, object]
STATIC = "kubernetes.io/config.mirror"
"""On the image of a pod that a kubelet runs from a file."""
KUEUE_GATE = "kueue.x-k8s.io/admission"
"""Kueue lifts it where it admits a pod: until then the pod waits for Kueue."""


def is_work(pod: Pod) -> bool:
    """Return whether a pod is work that a scheduler placed or is to place; others are load of their node."""
    owner = pod.metadata.controller
    if (owner is not None and owner.kind == "DaemonSet") or STATIC in pod.metadata.annotations:
        return False
    if any(gate.name != KUEUE_GATE for gate in pod.spec.scheduling_gates):
        return False  # whoever made it does not want it placed yet
    try:
        return not pod.spec.resource_claims and next(unsupported(pod), None) is None
    except BadAmount:
        return False


def is_there(gang: Gang) -> bool:
    """Return whether all of a gang is there, so that it can be a job."""
    workload = gang.workload
    if workload is not None:
        return not workload.over and workload.size > 0 and (workload.suspended or bool(gang.members))
    return len(gang.members) >= gang.size and bool(gang.first())


def queue_of(gang: Gang, lead: Pod | None, view: ClusterView, config: ClusterConfig) -> QueueName | None:
    """Return the queue that a gang names, if the server has it: a LocalQueue of Kueue counts as its ClusterQueue.

    Args:
        lead: the pod that speaks for it.
    """
    if lead is None:
        return None
    said = gang.workload.labels if gang.workload is not None else lead.metadata.labels
    local = said.get(KUEUE_QUEUE_LABEL, "")
    names = (view.cluster_queue_of(gang.namespace, local) if local else "", local, gang.facts.queue)
    for name in (*names, queue_said(lead)):
        if name and name in config.queue_by_name:
            return QueueName(name)
    return None


def in_slots(gang: Gang, pods: Iterable[Pod], kinds_by: Callable[[Pod], Kinds]) -> list[Pod] | None:
    """Return a pod for each slot; None while one of them has none."""
    left = {pod.metadata.name: pod for pod in sorted(pods, key=order_of)}
    if len(left) < len(gang.slots):
        return None
    kinds = {name: kinds_by(pod) for name, pod in left.items()}
    of_kind: dict[object, deque[str]] = {}
    for name, both in kinds.items():
        for one in both:
            of_kind.setdefault(one, deque()).append(name)
    found: list[Pod] = []
    for slot in gang.slots:
        kind: object = (slot.ask.host, slot.ask.devices)
        if gang.workload is not None and slot.template:
            kind = slot.template
        name = slot.pod if slot.pod in left and kind in kinds[slot.pod] else ""
        waiting = of_kind.get(kind) or deque()
        while not name and waiting:
            first = waiting.popleft()
            name = first if first in left else ""
        if not name:
            return None
        found.append(left.pop(name))
    return found


def kinds_of(pod: Pod, ask: ReplicaAsk) -> Kinds:
    """Return what a slot may want of a pod: what it asks for, or the template that it is made from."""
    return (ask.host, ask.devices), set_of(pod)


def said_by(pod: Pod) -> str:
    """Return why a pod waits, in the words of its scheduler; '' where it says nothing."""
    found = next((one for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False"), None)
    return f"{pod.spec.scheduler_name}: {found.message or found.reason}" if found is not None else ""
