"""How pods say that they are a gang: one meaning for every dialect. A table at the end lists them in order.

Sources: KEP-4671 (native PodGroup), kubernetes-sigs/scheduler-plugins (coscheduling), volcano.sh/docs, KAI scheduler's
podgrouper, Kueue's plain pod groups, YuniKorn's task groups, LeaderWorkerSet's labels.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from penstock.engines.kubernetes.api.client import Kind
from penstock.engines.kubernetes.gangs.gang import SIZE_MAX, Facts, GangId
from penstock.engines.kubernetes.gangs.workloads import KUEUE_QUEUE_LABEL, Workload
from penstock.engines.kubernetes.names import GANG_LABEL, GANG_SIZE_LABEL, QUEUE_LABEL
from penstock.engines.kubernetes.objects.groups import PodGroup
from penstock.engines.kubernetes.objects.pods import Pod

GROUP = "scheduling.k8s.io"
NATIVE_GROUPS = (
    Kind(GROUP, "v1", "podgroups"),
    Kind(GROUP, "v1beta1", "podgroups"),
    Kind(GROUP, "v1alpha2", "podgroups"),
)
"""The newest version that the server has is used."""
COSCHEDULING_GROUPS = Kind("scheduling.x-k8s.io", "v1alpha1", "podgroups")
VOLCANO_GROUPS = Kind("scheduling.volcano.sh", "v1beta1", "podgroups")
COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATION, VOLCANO_QUEUE = "scheduling.k8s.io/group-name", "volcano.sh/queue-name"
KAI_NAME, KAI_SIZE, KAI_QUEUE = "pod-group-name", "kai.scheduler/batch-min-member", "kai.scheduler/queue"
KAI_NEAR = "kai.scheduler/topology-required-placement"
KUEUE_NAME, KUEUE_SIZE = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
KUEUE_NEAR = "kueue.x-k8s.io/podset-required-topology"
YUNIKORN_APP, YUNIKORN_NAME = "applicationId", "yunikorn.apache.org/task-group-name"
YUNIKORN_GROUPS, YUNIKORN_QUEUE = "yunikorn.apache.org/task-groups", "queue"
LWS_NAME, LWS_INDEX, LWS_SIZE = (f"leaderworkerset.sigs.k8s.io/{part}" for part in ("name", "group-index", "size"))
JSON_MAX_CHARS = 65_536


class NotYet(Exception):
    """The pod waits for an object that says what its gang is. Its text names it."""


class Known(Protocol):
    """Objects of the cluster that say something of gangs."""

    def pod_group(self, kind: str, namespace: str, name: str) -> PodGroup | None:
        """Return a group; `kind` is `native`, `coscheduling` or `volcano`."""
        ...

    def workload_of(self, pod: Pod) -> Workload | None:
        """Return the workload whose controller made a pod, where that is one whose pods start together."""
        ...

    def started_here(self, workload: Workload) -> bool:
        """Return whether Penstock starts the workload: it names a queue."""
        ...

    def priority_of(self, name: str) -> int | None:
        """Return the value of a priority class."""
        ...


Dialect = Callable[[Pod, Known], tuple[str, Facts] | None]


def gang_of(pod: Pod, known: Known) -> tuple[GangId, Facts]:
    """Return the gang that a pod belongs to, and what that says of itself.

    Raises: ValueError when it says what cannot be; NotYet when an object is missing that would say it.
    """
    for dialect in DIALECTS:
        found = dialect(pod, known)
        if found is not None:
            return (pod.metadata.namespace, found[0]), found[1]
    return (pod.metadata.namespace, f"pod/{pod.metadata.name}"), Facts()


def said(pod: Pod) -> Mapping[str, str]:
    return {**pod.metadata.annotations, **pod.metadata.labels}


def _size(text: str, field: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= SIZE_MAX:
        raise ValueError(f"{field} is '{text}', expected a number from 1 to {SIZE_MAX:,}")
    return int(text)


def _bounded(size: int, field: str) -> int:
    return _size(str(size), field)


def _ours(pod: Pod, known: Known) -> tuple[str, Facts] | None:
    told = said(pod)
    name = told.get(GANG_LABEL, "")
    return (f"gang/{name}", Facts(_size(told.get(GANG_SIZE_LABEL, ""), GANG_SIZE_LABEL))) if name else None


def _of_workload(pod: Pod, known: Known) -> tuple[str, Facts] | None:
    """Pods of an object that is started as a whole, or that is a gang by its kind."""
    workload = known.workload_of(pod)
    if workload is None:
        return None
    kind = workload.kind.plural.removesuffix("s")
    if known.started_here(workload) or workload.kind.plural != "jobs":
        return f"{kind}/{workload.name}", Facts(_bounded(max(1, workload.size), kind))
    return None  # pods of a plain Job start one by one


def _native(pod: Pod, known: Known) -> tuple[str, Facts] | None:
    name = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group is not None else ""
    if not name:
        return None
    group = known.pod_group("native", pod.metadata.namespace, name)
    if group is None:
        raise NotYet(f"PodGroup {name} does not exist yet")
    if group.spec.scheduling_policy.gang is None:
        return f"pod/{pod.metadata.name}", Facts()
    topology = group.spec.scheduling_constraints.topology
    return f"podgroup/{name}", Facts(
        _bounded(group.least, "minCount"), priority=group.spec.priority, near=topology[0].key if topology else None
    )


def _coscheduling(pod: Pod, known: Known) -> tuple[str, Facts] | None:
    name = pod.metadata.labels.get(COSCHEDULING_LABEL, "")
    if not name:
        return None
    group = known.pod_group("coscheduling", pod.metadata.namespace, name)
    if group is None:
        raise NotYet(f"PodGroup {name} (scheduling.x-k8s.io) does not exist yet")
    return f"coscheduling/{name}", Facts(_bounded(group.least, "minMember"))


def _volcano(pod: Pod, known: Known) -> tuple[str, Facts] | None:
    name = pod.metadata.annotations.get(VOLCANO_ANNOTATION, "")
    if not name:
        return None
    group = known.pod_group("volcano", pod.metadata.namespace, name)
    if group is None:
        raise NotYet(f"PodGroup {name} (scheduling.volcano.sh) does not exist yet")
    priority = known.priority_of(group.spec.priority_class_name) if group.spec.priority_class_name else None
    queue = said(pod).get(VOLCANO_QUEUE, "") or group.spec.queue
    return f"volcano/{name}", Facts(_bounded(group.least, "minMember"), queue, priority)


def _kai(pod: Pod, known: Known) -> tuple[str, Facts] | None:
    told = said(pod)
    name, size = told.get(KAI_NAME, ""), told.get(KAI_SIZE, "")
    if not name or not size:
        return None
    return f"kai/{name}", Facts(_size(size, KAI_SIZE), told.get(KAI_QUEUE, ""), near=told.get(KAI_NEAR))


def _kueue(pod: Pod, known: Known) -> tuple[str, Facts] | None:
    told = said(pod)
    name = told.get(KUEUE_NAME, "")
    if not name:
        return None
    return f"kueue/{name}", Facts(
        _size(told.get(KUEUE_SIZE, ""), KUEUE_SIZE), told.get(KUEUE_QUEUE_LABEL, ""), near=told.get(KUEUE_NEAR)
    )


class _TaskGroup(msgspec.Struct, rename="camel"):
    name: str
    min_member: int = 1


def _yunikorn(pod: Pod, known: Known) -> tuple[str, Facts] | None:
    """Task groups of one application start together: the sum of their members."""
    told = said(pod)
    app, name, groups = (told.get(key, "") for key in (YUNIKORN_APP, YUNIKORN_NAME, YUNIKORN_GROUPS))
    if not app or not name:
        return None
    if not groups:
        raise NotYet(f"no pod of application {app} has named its task groups yet")
    try:
        listed = msgspec.json.decode(groups[:JSON_MAX_CHARS], type=list[_TaskGroup])
    except msgspec.MsgspecError as error:
        raise ValueError(f"{YUNIKORN_GROUPS} is no list of task groups: {error}") from None
    size = sum(one.min_member for one in listed)
    return f"yunikorn/{app}", Facts(_bounded(size, "minMember"), told.get(YUNIKORN_QUEUE, ""))


def _leader_workers(pod: Pod, known: Known) -> tuple[str, Facts] | None:
    told = said(pod)
    name, index, size = (told.get(key, "") for key in (LWS_NAME, LWS_INDEX, LWS_SIZE))
    if not name or not size:
        return None
    return f"leaderworkerset/{name}-{index or '0'}", Facts(_size(size, LWS_SIZE))


DIALECTS: tuple[Dialect, ...] = (
    _ours,
    _of_workload,
    _native,
    _leader_workers,
    _coscheduling,
    _volcano,
    _kai,
    _kueue,
    _yunikorn,
)
"""The first that a pod speaks counts."""


def queue_said(pod: Pod) -> str:
    """Return the queue that a pod names itself, in any dialect, or ''."""
    told = said(pod)
    return next((told[name] for name in (QUEUE_LABEL, VOLCANO_QUEUE, KAI_QUEUE) if told.get(name)), "")
