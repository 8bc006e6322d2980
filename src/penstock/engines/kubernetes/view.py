"""Copies of everything in the cluster that decisions look at, beside nodes and pods; and what gangs want to know of it.

Kinds that a cluster need not have are looked for at the start and every few minutes: what is installed later is found.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.api.errors import KubernetesError, Missing
from penstock.engines.kubernetes.api.reflector import CallSink, HasMetadata, Reflector
from penstock.engines.kubernetes.gangs import workloads as wl
from penstock.engines.kubernetes.gangs.dialects import COSCHEDULING_GROUPS, NATIVE_GROUPS, VOLCANO_GROUPS, NotYet
from penstock.engines.kubernetes.gangs.workloads import Workload, queue_of
from penstock.engines.kubernetes.objects.answers import ResourceList
from penstock.engines.kubernetes.objects.common import Metadata
from penstock.engines.kubernetes.objects.groups import (
    DisruptionBudget,
    KueueWorkload,
    LocalQueue,
    Namespace,
    PodGroup,
    PriorityClass,
)
from penstock.engines.kubernetes.objects.penstock import ComputePool, ElasticJob, Queue
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.objects.workloads import Job, JobSet, RayCluster, RayJob, TrainJob
from penstock.engines.kubernetes.operator.kinds import POOLS, QUEUES

log = logging.getLogger(__name__)

NAMESPACES = Kind("", "v1", "namespaces", namespaced=False)
PRIORITY_CLASSES = Kind("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
BUDGETS = Kind("policy", "v1", "poddisruptionbudgets")
LOCAL_QUEUES = (Kind("kueue.x-k8s.io", "v1beta2", "localqueues"), Kind("kueue.x-k8s.io", "v1beta1", "localqueues"))
KUEUE_WORKLOADS = (Kind("kueue.x-k8s.io", "v1beta2", "workloads"), Kind("kueue.x-k8s.io", "v1beta1", "workloads"))
LOOK_AGAIN_S = 300.0
"""Kinds that were not there are looked for again after this long."""


class Heard(NamedTuple):
    """What hears of changes; every call on the loop, none may wait."""

    workload: Callable[[Workload], None]
    workload_gone: Callable[[Workload], None]
    groups: Callable[[str], None]
    """Something in this namespace may say more of gangs than before."""
    namespace: Callable[[], None]
    """The labels of a namespace have changed."""
    budget: Callable[[DisruptionBudget], None]
    budget_gone: Callable[[DisruptionBudget], None]
    listed: Callable[[], None]


class _Optional(NamedTuple):
    """A kind that a cluster need not have: its versions, the newest first."""

    name: str
    kinds: tuple[Kind, ...]
    into: type[HasMetadata]
    changed: Callable[[Any], None]
    removed: Callable[[Any], None]


class ClusterView:
    """Namespaces, priority classes, workloads and groups. It is `Known` to the dialects of gangs.

    Args:
        kueue: whether Kueue's queue label counts as one of ours: where no Kueue runs.
        shadow: it counts because Kueue runs: its LocalQueues are read, and objects of our own kinds are not.
        draw: spreads requests in time.
    """

    def __init__(
        self,
        client: Client,
        heard: Heard,
        *,
        kueue: bool = False,
        shadow: bool = False,
        draw: random.Random | None = None,
    ) -> None:
        self._client, self._heard, self._kueue, self._draw = client, heard, kueue or shadow, draw
        self._workloads: dict[tuple[str, str, str], Workload] = {}
        """By plural, namespace and name."""
        self._owners: dict[tuple[str, str, str], Metadata] = {}
        """Metadata of the same objects."""
        self._groups: dict[tuple[str, str, str], PodGroup] = {}
        self._said: dict[str, str] = {}
        """What Kueue says of the objects that it queues, by their uids."""
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._always("namespaces", NAMESPACES, Namespace, lambda _: heard.namespace(), lambda _: heard.namespace())
        self._always("priorities", PRIORITY_CLASSES, PriorityClass, _ignored, _ignored)
        self._always("budgets", BUDGETS, DisruptionBudget, heard.budget, heard.budget_gone)
        self._always("jobs", wl.JOBS, Job, self._take(wl.JOBS, wl.of_job), self._drop(wl.JOBS))
        self._optional = [
            *(
                _Optional(name, kinds, PodGroup, self._group(name), self._no_group(name))
                for name, kinds in (
                    ("native", NATIVE_GROUPS),
                    ("coscheduling", (COSCHEDULING_GROUPS,)),
                    ("volcano", (VOLCANO_GROUPS,)),
                )
            ),
            _Optional(wl.TRAIN_JOBS.plural, (wl.TRAIN_JOBS,), TrainJob, self._take_owner, self._drop_owner),
            self._of(wl.JOB_SETS, JobSet, self._take(wl.JOB_SETS, wl.of_job_set)),
            self._of(wl.RAY_JOBS, RayJob, self._take(wl.RAY_JOBS, wl.of_ray_job)),
            self._of(wl.RAY_CLUSTERS, RayCluster, self._take(wl.RAY_CLUSTERS, wl.of_ray_cluster)),
        ]
        if shadow:
            self._optional += [
                _Optional(LOCAL_QUEUES[0].plural, LOCAL_QUEUES, LocalQueue, _ignored, _ignored),
                _Optional(KUEUE_WORKLOADS[0].plural, KUEUE_WORKLOADS, KueueWorkload, self._hear, self._unhear),
            ]
        else:
            self._optional += [
                self._of(wl.ELASTIC_JOBS, ElasticJob, self._take(wl.ELASTIC_JOBS, wl.of_elastic_job)),
                _Optional(QUEUES.plural, (QUEUES,), Queue, _ignored, _ignored),
                _Optional(POOLS.plural, (POOLS,), ComputePool, _ignored, _ignored),
            ]
        self.looked = False
        """Whether it is known which kinds there are."""

    def _of(self, kind: Kind, into: type[HasMetadata], changed: Callable[[Any], None]) -> _Optional:
        return _Optional(kind.plural, (kind,), into, changed, self._drop(kind))

    def _always(
        self, name: str, kind: Kind, into: type[Any], changed: Callable[[Any], None], removed: Callable[[Any], None]
    ) -> None:
        sink = CallSink(changed, removed, self._heard.listed)
        self._reflectors[name] = Reflector(self._client, kind, into, sink, draw=self._draw)

    @property
    def whole(self) -> bool:
        return self.looked and all(one.whole or one.denied for one in self._reflectors.values())

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in tuple(self._reflectors.values()):
                group.create_task(reflector.run())
            while True:
                for one in [one for one in self._optional if one.name not in self._reflectors]:
                    kind = await self._served(one)
                    if kind is not None:
                        self._always(one.name, kind, one.into, one.changed, one.removed)
                        group.create_task(self._reflectors[one.name].run())
                self.looked = True
                self._heard.listed()
                await asyncio.sleep(LOOK_AGAIN_S)

    async def _served(self, one: _Optional) -> Kind | None:
        """Return the first of a kind's versions that the server has and lets us read."""
        for kind in one.kinds:
            while True:
                try:
                    served = await self._client.get(kind.root, ResourceList)
                    break
                except Missing:
                    served = ResourceList()
                    break
                except KubernetesError as error:
                    log.warning("what the API server has is not known", extra={"problem": error.message})
                    await asyncio.sleep(1.0)
            if any(resource.name == kind.plural for resource in served.resources):
                return kind
        return None

    # What comes in.

    def _take(self, kind: Kind, made: Callable[[Any], Workload]) -> Callable[[Any], None]:
        def take(one: Any) -> None:
            meta: Metadata = one.metadata
            key = (kind.plural, meta.namespace, meta.name)
            self._owners[key] = meta
            workload = self._workloads[key] = made(one)
            self._heard.workload(self._as_started(workload))
            self._heard.groups(meta.namespace)

        return take

    def _take_owner(self, one: TrainJob) -> None:
        self._owners[wl.TRAIN_JOBS.plural, one.metadata.namespace, one.metadata.name] = one.metadata
        made = self._workloads.get((wl.JOB_SETS.plural, one.metadata.namespace, one.metadata.name))
        if made is not None:
            self._heard.workload(self._as_started(made))

    def _drop(self, kind: Kind) -> Callable[[Any], None]:
        def drop(one: Any) -> None:
            key = (kind.plural, one.metadata.namespace, one.metadata.name)
            workload = self._workloads.pop(key, None)
            gone = self._as_started(workload) if workload is not None else None
            self._owners.pop(key, None)
            if gone is not None:
                self._heard.workload_gone(gone)

        return drop

    def _drop_owner(self, one: TrainJob) -> None:
        meta = one.metadata
        made = self._workloads.get((wl.JOB_SETS.plural, meta.namespace, meta.name))
        gone = self._as_started(made) if made is not None else None
        self._owners.pop((wl.TRAIN_JOBS.plural, meta.namespace, meta.name), None)
        if gone is not None and gone.kind == wl.TRAIN_JOBS:
            self._heard.workload_gone(gone)

    def _group(self, kind: str) -> Callable[[PodGroup], None]:
        def take(group: PodGroup) -> None:
            self._groups[kind, group.metadata.namespace, group.metadata.name] = group
            self._heard.groups(group.metadata.namespace)

        return take

    def _no_group(self, kind: str) -> Callable[[PodGroup], None]:
        def drop(group: PodGroup) -> None:
            self._groups.pop((kind, group.metadata.namespace, group.metadata.name), None)

        return drop

    def _hear(self, one: KueueWorkload) -> None:
        for owner in one.metadata.owner_references:
            self._said[owner.uid] = one.says

    def _unhear(self, one: KueueWorkload) -> None:
        for owner in one.metadata.owner_references:
            self._said.pop(owner.uid, None)

    def said_of(self, uid: str) -> str:
        """Return what Kueue says of an object that waits for it, or ''. Any thread."""
        return self._said.get(uid, "")

    def _as_started(self, workload: Workload) -> Workload:
        """Return a workload as the object that is to be started: a JobSet of a TrainJob by that."""
        owners = self._owners.get((workload.kind.plural, workload.namespace, workload.name))
        owner = owners.controller if owners is not None else None
        if owner is None or owner.kind not in ("TrainJob", "RayJob"):
            return workload
        kind = wl.TRAIN_JOBS if owner.kind == "TrainJob" else wl.RAY_JOBS
        above = self._owners.get((kind.plural, workload.namespace, owner.name))
        labels: Mapping[str, str] = {**workload.labels, **(above.labels if above is not None else {})}
        return workload._replace(kind=kind, name=owner.name, uid=owner.uid, labels=labels)

    # What gangs want to know.

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace; its name is one of them, as the API server sees to."""
        found = self._reflectors["namespaces"].objects.get(("", namespace))
        labels: Mapping[str, str] = found.metadata.labels if found is not None else {}
        return {"kubernetes.io/metadata.name": namespace, **labels}

    def pod_group(self, kind: str, namespace: str, name: str) -> PodGroup | None:
        return self._groups.get((kind, namespace, name))

    def priority_of(self, name: str) -> int | None:
        found = self._reflectors["priorities"].objects.get(("", name))
        return int(found.value) if found is not None else None

    def priority_of_pod(self, pod: Pod) -> int:
        """Return the priority that a pod from a template will get."""
        if pod.spec.priority_class_name:
            return self.priority_of(pod.spec.priority_class_name) or pod.spec.priority
        classes = self._reflectors["priorities"].objects.values()
        return next((int(one.value) for one in classes if one.global_default), pod.spec.priority)

    def elastic_jobs(self) -> Mapping[tuple[str, str], ElasticJob]:
        """Return the ElasticJobs, by namespace and name."""
        found = self._reflectors.get(wl.ELASTIC_JOBS.plural)
        return found.objects if found is not None else {}

    def cluster_queue_of(self, namespace: str, name: str) -> str:
        """Return the ClusterQueue of Kueue that a LocalQueue leads to; '' where there is no such LocalQueue."""
        found = self._reflectors.get(LOCAL_QUEUES[0].plural)
        queue = found.objects.get((namespace, name)) if found is not None else None
        return queue.spec.cluster_queue if queue is not None else ""

    def declared(self) -> tuple[Mapping[tuple[str, str], Queue], Mapping[tuple[str, str], ComputePool]] | None:
        """Return queues and pools as objects; None until all of them are known."""
        found = [self._reflectors.get(kind.plural) for kind in (QUEUES, POOLS)]
        if not self.looked or any(one is not None and not (one.whole or one.denied) for one in found):
            return None
        queues, pools = (one.objects if one is not None else {} for one in found)
        return queues, pools

    def started_here(self, workload: Workload) -> bool:
        return workload.elastic is not None or bool(queue_of(workload.labels, kueue=self._kueue))

    def queue_of(self, workload: Workload) -> str:
        return queue_of(workload.labels, kueue=self._kueue)

    def workloads(self) -> list[Workload]:
        """Return all workloads, each as the object that is to be started."""
        return [self._as_started(one) for one in self._workloads.values()]

    def workload_of(self, pod: Pod) -> Workload | None:
        """Return the workload that made a pod: the highest owner that makes its pods together. Raises: NotYet."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        for label, kind in ((wl.JOBSET_LABEL, wl.JOB_SETS), (wl.RAY_LABEL, wl.RAY_CLUSTERS)):
            if (name := labels.get(label)) and (found := self._workloads.get((kind.plural, namespace, name))):
                return self._as_started(found)
        owner = pod.metadata.controller
        if owner is not None and (owner.kind, owner.group) == ("ElasticJob", wl.ELASTIC_JOBS.group):
            made = self._workloads.get((wl.ELASTIC_JOBS.plural, namespace, owner.name))
            return made if made is not None and made.uid == owner.uid else None
        if owner is None or owner.kind != "Job" or owner.group != "batch":
            return None
        job = self._workloads.get((wl.JOBS.plural, namespace, owner.name))
        if job is not None and job.uid == owner.uid:
            return job
        if self._reflectors["jobs"].denied:
            return None
        raise NotYet(f"Job {owner.name} is not known yet")  # its watch may be behind that of pods


def _ignored(one: Any) -> None:
    """Only its newest value is looked at."""
