"""The kinds of `penstock.dev/v1alpha1`. Their CustomResourceDefinitions are generated from these types."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.engines.kubernetes.objects.common import Amounts, Condition, Metadata, Wire

GROUP, VERSION = "penstock.dev", "v1alpha1"
REPLICAS_MAX = 10_000
Phase = Literal["Pending", "Starting", "Running", "Stopping", "Suspended", "Succeeded", "Failed", "Cancelled"]
Text = Annotated[str, Meta(max_length=253)]
Seconds = Annotated[int, Meta(ge=0, le=31_536_000)]
Share = dict[str, str | int]
"""Quantities by resource: `cpu`, `memory`, `devices`, or a resource of nodes such as `nvidia.com/gpu`."""


class Scaling(Wire, frozen=True):
    min_replicas: Annotated[
        int, Meta(ge=1, le=REPLICAS_MAX, description="Replicas without which it does not start.")
    ] = 1
    max_replicas: Annotated[
        int, Meta(ge=1, le=REPLICAS_MAX, description="Most replicas; it grows while devices are free.")
    ] = 1
    gpu_per_replica: Annotated[
        int, Meta(ge=0, le=64, description="GPUs of each replica; 0: what the template says.")
    ] = 0


class Network(Wire, frozen=True):
    """How ranks find and reach each other."""

    kind: Annotated[
        Literal["ethernet", "infiniband", "roce"],
        Meta(description="Network between nodes: NCCL is set for it."),
    ] = "ethernet"
    interface: Annotated[str, Meta(max_length=64, description="Interface, or its beginning; empty: NCCL chooses.")] = ""
    port: Annotated[int, Meta(ge=1, le=65_535, description="Port of rank 0, MASTER_PORT.")] = 29_500


class ElasticJobSpec(Wire, frozen=True):
    template: Annotated[
        dict[str, Any], Meta(description="Pod of each replica, as in a Job; schedulerName is set.")
    ] = {}
    scaling: Scaling = Scaling()
    pool: Annotated[Text, Meta(description="Pool of nodes; empty: the default pool.")] = ""
    queue: Annotated[Text, Meta(description="Queue in which it waits; empty: the default queue.")] = ""
    priority: Annotated[int, Meta(ge=0, le=1_000, description="Higher goes first within the queue.")] = 500
    preemptible: Annotated[bool, Meta(description="Whether it may be asked to save and leave for others.")] = True
    suspend: Annotated[bool, Meta(description="It saves and leaves, and waits until this is false again.")] = False
    max_restarts: Annotated[
        int, Meta(ge=0, le=1_000, description="Restarts after failures; making room for others does not count.")
    ] = 3
    time_limit_seconds: Annotated[Seconds, Meta(description="It ends after so long; 0: no limit.")] = 0
    network: Network = Network()


class ElasticJobStatus(Wire, frozen=True):
    phase: Annotated[Phase | Literal[""], Meta(description="Where it is in its life.")] = ""
    job: Annotated[int, Meta(ge=0, description="Number of its job in Penstock.")] = 0
    cluster: Annotated[str, Meta(description="Identity of the Penstock that numbered it.")] = ""
    attempt: Annotated[int, Meta(ge=0, description="How often it has started.")] = 0
    replicas: Annotated[int, Meta(ge=0, description="Replicas that hold places.")] = 0
    ready_replicas: Annotated[int, Meta(ge=0, description="Replicas that run.")] = 0
    selector: Annotated[str, Meta(description="Selects its pods.")] = ""
    observed_generation: Annotated[int, Meta(ge=0, description="Generation of the spec that this is about.")] = 0
    conditions: tuple[Condition, ...] = ()


class ElasticJob(Wire, frozen=True):
    """A distributed training that starts whole, and grows and shrinks between attempts."""

    metadata: Metadata
    spec: ElasticJobSpec = ElasticJobSpec()
    status: ElasticJobStatus = ElasticJobStatus()

    @property
    def over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed", "Cancelled")


class QueueSpec(Wire, frozen=True):
    parent: Annotated[Text, Meta(description="Queue above it; empty: the root.")] = ""
    weight: Annotated[int, Meta(ge=1, le=1_000_000, description="Its part of what is shared.")] = 1
    guaranteed_capacity: Annotated[Share, Meta(description="What it can claim back at any time.")] = {}
    max_capacity: Annotated[Share, Meta(description="The most that it may hold.")] = {}
    lending_limit: Annotated[
        Share | None, Meta(description="How much of its guarantee others may use while it is idle; absent: all.")
    ] = None
    preemption_policy: Annotated[
        Literal["PreemptLowerPriority", "Reclaim", "Never"],
        Meta(description="Whom its jobs may ask to leave; Reclaim: those that hold its guarantee."),
    ] = "PreemptLowerPriority"


class QueueStatus(Wire, frozen=True):
    waiting: Annotated[int, Meta(ge=0, description="Jobs that wait in it.")] = 0
    running: Annotated[int, Meta(ge=0, description="Jobs that hold places.")] = 0
    used: Annotated[Amounts, Meta(description="What these hold.")] = {}
    observed_generation: Annotated[int, Meta(ge=0, description="Generation of the spec that this is about.")] = 0
    conditions: tuple[Condition, ...] = ()


class Queue(Wire, frozen=True):
    """A queue of the tree."""

    metadata: Metadata
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class PoolCapacity(Wire, frozen=True):
    total: Annotated[int, Meta(ge=0, description="Devices that it is to have; 0: what its nodes have.")] = 0
    reserved: Annotated[int, Meta(ge=0, description="Devices that only preemptible jobs may use.")] = 0


class PoolVirtualization(Wire, frozen=True):
    enabled: Annotated[bool, Meta(description="Whether parts of devices are given out.")] = False
    strategy: Annotated[Literal["mig", "time-slicing", "vgpu"], Meta(description="How devices are divided.")] = (
        "time-slicing"
    )


class PoolQuota(Wire, frozen=True):
    tenant: Annotated[str, Meta(min_length=1, max_length=253, description="Tenant: a namespace.")]
    limit: Annotated[int, Meta(ge=0, description="The most devices that it may hold.")]
    guaranteed: Annotated[int, Meta(ge=0, description="Devices that it can claim back at any time.")] = 0


class ComputePoolSpec(Wire, frozen=True):
    pool_type: Annotated[Literal["gpu", "npu", "mixed"], Meta(description="What devices it has.")] = "mixed"
    capacity: PoolCapacity = PoolCapacity()
    virtualization: PoolVirtualization = PoolVirtualization()
    quotas: Annotated[tuple[PoolQuota, ...], Meta(max_length=1_000)] = ()


class ComputePoolStatus(Wire, frozen=True):
    phase: Annotated[Literal["", "Ready", "Degraded", "Invalid"], Meta(description="Whether it is in force.")] = ""
    total_capacity: Annotated[int, Meta(ge=0, description="Devices of its nodes.")] = 0
    allocated_capacity: Annotated[int, Meta(ge=0, description="Devices that jobs hold.")] = 0
    available_capacity: Annotated[int, Meta(ge=0, description="Devices that are free.")] = 0
    observed_generation: Annotated[int, Meta(ge=0, description="Generation of the spec that this is about.")] = 0
    conditions: tuple[Condition, ...] = ()


class ComputePool(Wire, frozen=True):
    """Nodes that jobs choose from, and how their devices are shared."""

    metadata: Metadata
    spec: ComputePoolSpec = ComputePoolSpec()
    status: ComputePoolStatus = ComputePoolStatus()


def template_of(job: ElasticJob) -> dict[str, Any]:
    """Return the template of a job's pods, with the GPUs of each replica. Raises: msgspec.ValidationError."""
    template: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(job.spec.template))
    count, containers = job.spec.scaling.gpu_per_replica, template.get("spec", {}).get("containers") or []
    if count and containers:
        resources = containers[0].setdefault("resources", {})
        for field in ("limits", "requests"):
            if field == "limits" or resources.get("requests"):
                resources.setdefault(field, {}).setdefault(GPU, str(count))
    return template


GPU = "nvidia.com/gpu"
"""The resource of `gpuPerReplica`; a template that asks for other devices says so itself."""
