"""Workloads that Penstock starts: objects with a queue label that make their pods once they are not suspended.

Source: KEP-2804 (suspend), the AI conformance tests, and how Kueue names its queue label.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from penstock.engines.kubernetes.api.client import Kind
from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.names import POOL_LABEL, PREEMPTIBLE_LABEL, QUEUE_LABEL
from penstock.engines.kubernetes.objects.common import Condition, Metadata
from penstock.engines.kubernetes.objects.penstock import GROUP, VERSION, ElasticJob, template_hash, template_of
from penstock.engines.kubernetes.objects.pods import Pod, PodTemplate
from penstock.engines.kubernetes.objects.workloads import Job, JobSet, RayCluster, RayClusterSpec, RayJob

JOBS = Kind("batch", "v1", "jobs")
JOB_SETS = Kind("jobset.x-k8s.io", "v1alpha2", "jobsets")
RAY_CLUSTERS = Kind("ray.io", "v1", "rayclusters")
RAY_JOBS = Kind("ray.io", "v1", "rayjobs")
TRAIN_JOBS = Kind("trainer.kubeflow.org", "v1alpha1", "trainjobs")
ELASTIC_JOBS = Kind(GROUP, VERSION, "elasticjobs")
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Understood where no Kueue runs."""
ELASTIC_NAME_MAX = 52
"""Host names have 63 characters: the name, a hyphen and the rank, with room for the attempt in names of pods."""
TEMPLATE_MAX_BYTES = 65_536
"""Each replica has a copy of it."""
_SERVICE_NAME = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
JOBSET_LABEL, RAY_LABEL = "jobset.sigs.k8s.io/jobset-name", "ray.io/cluster"
JOBSET_PART_LABEL, RAY_GROUP_LABEL = "jobset.sigs.k8s.io/replicatedjob-name", "ray.io/group"
RAY_TYPE_LABEL, RAY_HEAD = "ray.io/node-type", "headgroup"


class PodSet(msgspec.Struct, frozen=True):
    """Pods of one template."""

    count: int
    pod: Pod
    """A pod as the template makes it, named by its workload and template."""
    name: str = ""
    """Of the template, where the workload has several."""


class Elastic(NamedTuple):
    """What an ElasticJob says beyond its pods."""

    least: int
    """Replicas without which it does not start; the workload has as many pods as it may have at most."""
    priority: int
    retries_max: int
    time_limit_ms: int
    paused: bool
    """It is not to run now."""
    job: int = 0
    """The number of its job, as its status has it, in the log `cluster`."""
    cluster: str = ""
    observed: bool = True
    """Its status is about its present spec."""
    problem: str = ""
    """What is wrong with it."""
    template_hash: str = ""
    """Of what its pods are made from; empty: it is wrong."""


class Workload(NamedTuple):
    """One object, as far as Penstock starts and stops it."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    sets: tuple[PodSet, ...]
    suspended: bool
    over: bool
    """It has ended: no pod of it will come any more."""
    completions: int | None = None
    """How many of its pods have to succeed; None: a pod that succeeds is not followed by another one."""
    done: int = 0
    """How many have."""
    succeeded: bool = False
    elastic: Elastic | None = None
    """Of an ElasticJob: its pods are made here, when its replicas start."""

    @property
    def size(self) -> int:
        return sum(one.count for one in self.sets)

    def path(self) -> str:
        return self.kind.path(self.namespace, self.name)


def gang_id_of(workload: Workload) -> tuple[str, str]:
    """Return the gang that a workload is: its namespace, and `KIND/NAME`."""
    return workload.namespace, f"{workload.kind.plural.removesuffix('s')}/{workload.name}"


def queue_of(labels: Mapping[str, str], *, kueue: bool = False) -> str:
    """Return the queue that a workload names, or ''."""
    return labels.get(QUEUE_LABEL) or (labels.get(KUEUE_QUEUE_LABEL, "") if kueue else "")


def _set(count: int, template: PodTemplate, owner: Metadata, number: int = 0, name: str = "") -> PodSet:
    meta = msgspec.structs.replace(
        template.metadata, namespace=owner.namespace, name=f"{owner.name}#{number}", uid=f"{owner.uid}#{number}"
    )
    return PodSet(max(0, count), Pod(meta, template.spec), name)


def set_of(pod: Pod) -> str:
    """Return the name of the template that a pod of a workload was made from; '' where there is only one."""
    labels = pod.metadata.labels
    if labels.get(RAY_TYPE_LABEL) == "head":
        return RAY_HEAD
    return labels.get(JOBSET_PART_LABEL, "") or labels.get(RAY_GROUP_LABEL, "")


class _End(NamedTuple):
    over: bool = False
    succeeded: bool = False


def _made(
    kind: Kind,
    meta: Metadata,
    sets: list[PodSet],
    end: _End,
    *,
    suspended: bool,
    completions: int | None = None,
) -> Workload:
    kept = tuple(one for one in sets if one.count > 0)
    return Workload(
        kind,
        meta.namespace,
        meta.name,
        meta.uid,
        meta.labels,
        kept,
        suspended,
        end.over,
        completions,
        succeeded=end.succeeded,
    )


def _has(conditions: Iterable[Condition], kind: str) -> bool:
    return any(one.type == kind and one.status == "True" for one in conditions)


def of_job(job: Job) -> Workload:
    """Return a Job: as many pods as run at a time."""
    left = job.size
    if job.spec.completions is not None:
        left = min(job.spec.parallelism, job.spec.completions - job.status.succeeded)
    end = _End(job.over, _has(job.status.conditions, "Complete"))
    sets = [_set(left, job.spec.template, job.metadata)]
    made = _made(JOBS, job.metadata, sets, end, suspended=job.spec.suspend, completions=job.spec.completions)
    return made._replace(done=job.status.succeeded)


def of_job_set(one: JobSet) -> Workload:
    sets = [
        _set(
            part.replicas * part.template.spec.parallelism, part.template.spec.template, one.metadata, number, part.name
        )
        for number, part in enumerate(one.spec.replicated_jobs)
    ]
    end = _End(one.over, one.status.terminal_state == "Completed" or _has(one.status.conditions, "Completed"))
    return _made(JOB_SETS, one.metadata, sets, end, suspended=one.spec.suspend)


def _of_ray(spec: RayClusterSpec, owner: Metadata) -> list[PodSet]:
    groups = [spec.head_group_spec, *spec.worker_group_specs]
    counts = [1, *(group.replicas * group.num_of_hosts for group in spec.worker_group_specs)]
    names = [RAY_HEAD, *(group.group_name for group in spec.worker_group_specs)]
    return [_set(counts[i], group.template, owner, i, names[i]) for i, group in enumerate(groups)]


def of_ray_cluster(one: RayCluster) -> Workload:
    sets = _of_ray(one.spec, one.metadata)
    return _made(RAY_CLUSTERS, one.metadata, sets, _End(), suspended=one.spec.suspend)


def of_ray_job(one: RayJob) -> Workload:
    sets = _of_ray(one.spec.ray_cluster_spec, one.metadata)
    end = _End(one.over, one.status.job_deployment_status == "Complete")
    return _made(RAY_JOBS, one.metadata, sets, end, suspended=one.spec.suspend)


def of_elastic_job(one: ElasticJob) -> Workload:
    """Return an ElasticJob: as many pods as it may have at most."""
    spec, status, problem = one.spec, one.status, ""
    sets: tuple[PodSet, ...] = ()
    try:
        if (size := len(msgspec.json.encode(spec.template))) > TEMPLATE_MAX_BYTES:
            raise msgspec.ValidationError(f"it has {size:,} bytes, expected {TEMPLATE_MAX_BYTES:,} at most")
        template = msgspec.convert(template_of(one), PodTemplate)
        pods = msgspec.structs.replace(template.spec, scheduler_name=SCHEDULER, restart_policy="Never")
        made = msgspec.structs.replace(template, spec=pods)
        sets = (_set(spec.scaling.max_replicas, made, one.metadata),)
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        problem = f"spec.template: {error}"
    if sets and sets[0].pod.spec.node_name:
        problem = f"spec.template.spec.nodeName is {sets[0].pod.spec.node_name}, expected none: Penstock chooses nodes"
    elif not _SERVICE_NAME.fullmatch(one.metadata.name):
        problem = f"its name is {one.metadata.name}, expected lower case letters, digits and hyphens, a letter first"
    elif len(one.metadata.name) > ELASTIC_NAME_MAX:
        problem = f"its name has {len(one.metadata.name)} characters, expected {ELASTIC_NAME_MAX} at most"
    elif spec.scaling.min_replicas > spec.scaling.max_replicas:
        low, high = spec.scaling.min_replicas, spec.scaling.max_replicas
        problem = f"spec.scaling.minReplicas is {low}, expected {high} (maxReplicas) at most"
    said = {POOL_LABEL: spec.pool, QUEUE_LABEL: spec.queue, PREEMPTIBLE_LABEL: "" if spec.preemptible else "false"}
    elastic = Elastic(
        spec.scaling.min_replicas, spec.priority, spec.max_restarts, 1000 * spec.time_limit_seconds, spec.suspend,
        status.job, status.cluster, status.observed_generation == one.metadata.generation, problem,
        template_hash(one) if sets else "",
    )  # fmt: skip
    return Workload(
        ELASTIC_JOBS,
        one.metadata.namespace,
        one.metadata.name,
        one.metadata.uid,
        {**one.metadata.labels, **{label: text for label, text in said.items() if text}},
        () if problem else sets,
        suspended=True,  # its pods are made when its replicas start, and only then
        over=one.over,
        succeeded=status.phase == "Succeeded",
        elastic=elastic,
    )
