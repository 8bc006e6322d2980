"""Objects whose controllers make pods, as far as a gang is seen in them before its pods are there."""

from penstock.engines.kubernetes.objects.common import Condition, Metadata, Wire
from penstock.engines.kubernetes.objects.pods import PodTemplate


class JobSpec(Wire, frozen=True):
    parallelism: int = 1
    completions: int | None = None
    """None: it is complete when any of its pods has succeeded, and none runs any more."""
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    backoff_limit: int = 6
    managed_by: str = ""
    template: PodTemplate = PodTemplate()


class JobStatus(Wire, frozen=True):
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[Condition, ...] = ()


class Job(Wire, frozen=True):
    """`batch/v1`."""

    metadata: Metadata
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def over(self) -> bool:
        """Whether it has ended: no pod of it will come any more."""
        ends = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
        return any(one.type in ends and one.status == "True" for one in self.status.conditions)

    @property
    def size(self) -> int:
        """How many of its pods run at a time at first."""
        wanted = self.spec.completions
        return self.spec.parallelism if wanted is None else min(self.spec.parallelism, wanted)


class ReplicatedJobTemplate(Wire, frozen=True):
    spec: JobSpec = JobSpec()


class ReplicatedJob(Wire, frozen=True):
    name: str = ""
    replicas: int = 1
    template: ReplicatedJobTemplate = ReplicatedJobTemplate()


class JobSetSpec(Wire, frozen=True):
    suspend: bool = False
    replicated_jobs: tuple[ReplicatedJob, ...] = ()


class JobSetStatus(Wire, frozen=True):
    conditions: tuple[Condition, ...] = ()
    terminal_state: str = ""


class JobSet(Wire, frozen=True):
    """`jobset.x-k8s.io/v1alpha2`."""

    metadata: Metadata
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()

    @property
    def over(self) -> bool:
        return bool(self.status.terminal_state) or any(
            one.type in ("Completed", "Failed") and one.status == "True" for one in self.status.conditions
        )


class RayGroup(Wire, frozen=True):
    group_name: str = ""
    replicas: int = 1
    min_replicas: int = 0
    num_of_hosts: int = 1
    template: PodTemplate = PodTemplate()


class RayClusterSpec(Wire, frozen=True):
    suspend: bool = False
    head_group_spec: RayGroup = RayGroup()
    worker_group_specs: tuple[RayGroup, ...] = ()


class RayCluster(Wire, frozen=True):
    """`ray.io/v1`."""

    metadata: Metadata
    spec: RayClusterSpec = RayClusterSpec()


class RayJobSpec(Wire, frozen=True):
    suspend: bool = False
    ray_cluster_spec: RayClusterSpec = RayClusterSpec()


class RayJobStatus(Wire, frozen=True):
    job_deployment_status: str = ""


class RayJob(Wire, frozen=True):
    """`ray.io/v1`."""

    metadata: Metadata
    spec: RayJobSpec = RayJobSpec()
    status: RayJobStatus = RayJobStatus()

    @property
    def over(self) -> bool:
        return self.status.job_deployment_status in ("Complete", "Failed")


class TrainJobSpec(Wire, frozen=True):
    suspend: bool = False


class TrainJob(Wire, frozen=True):
    """`trainer.kubeflow.org/v1alpha1`: its controller makes a JobSet, which is suspended as long as this is."""

    metadata: Metadata
    spec: TrainJobSpec = TrainJobSpec()
