"""Objects of the Kubernetes API as far as Penstock reads them; all other fields are skipped while decoding.

Names and meanings are those of the API types (https://github.com/kubernetes/api), in snake case. Amounts stay text
until `amounts.py` reads them exactly.
"""

from typing import Literal

import msgspec

Amounts = dict[str, str | int | float]
"""Quantities by resource; clients may write plain numbers without quotes."""
TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Wire(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """Base of all: fields in camel case on the wire, absent where they have their default."""


class OwnerReference(Wire, frozen=True):
    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False


class Metadata(Wire, frozen=True):
    """`metadata` of any object; `managedFields` is never kept."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class ListMetadata(Wire, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Condition(Wire, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


# Nodes.


class Taint(Wire, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Wire, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(Wire, frozen=True):
    type: str
    address: str


class NodeStatus(Wire, frozen=True):
    allocatable: Amounts = {}
    capacity: Amounts = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()


class Node(Wire, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# Pods.


class Requirements(Wire, frozen=True):
    """`resources` of a container or a pod."""

    requests: Amounts = {}
    limits: Amounts = {}


class ContainerPort(Wire, frozen=True):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(Wire, frozen=True):
    name: str = ""
    resources: Requirements = Requirements()
    restart_policy: str = ""
    """Of an init container: `Always` makes it a sidecar."""
    ports: tuple[ContainerPort, ...] = ()


class Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    """Empty: every effect."""


class Requirement(Wire, frozen=True):
    """One `matchExpressions` or `matchFields` entry."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    """All requirements must hold; a term without any matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """One term must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class PodAffinity(Wire, frozen=True):
    """Affinity or anti-affinity between pods; only its presence is read so far."""

    required: tuple[msgspec.Raw, ...] = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=())


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Wire, frozen=True):
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"


class Named(Wire, frozen=True):
    """A reference by name alone."""

    name: str = ""


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class Volume(Wire, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, msgspec.Raw] | None = None


class SchedulingGroup(Wire, frozen=True):
    pod_group_name: str = ""


class PodSpec(Wire, frozen=True):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Amounts = {}
    resources: Requirements = Requirements()
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = "PreemptLowerPriority"
    scheduling_gates: tuple[Named, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    resource_claims: tuple[Named, ...] = ()
    volumes: tuple[Volume, ...] = ()
    termination_grace_period_seconds: int = 30


class ContainerStateTerminated(Wire, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Wire, frozen=True):
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire, frozen=True):
    name: str = ""
    allocated_resources: Amounts = {}
    """What the kubelet admitted; it lags behind the spec while a resize is under way."""
    resources: Requirements = Requirements()
    """What the container runs with."""
    state: ContainerState = ContainerState()


class PodStatus(Wire, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    nominated_node_name: str = ""
    start_time: str | None = None


class Pod(Wire, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """Namespace and name, as people write them."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def over(self) -> bool:
        """Whether all its containers have ended for good: it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")


# Answers of the API server.


class StatusCause(Wire, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Wire, frozen=True):
    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(Wire, frozen=True):
    """What the API server answers instead of an object."""

    status: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None


class WatchEvent(Wire, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Page(Wire, frozen=True):
    """A part of a list; its items are decoded one by one."""

    metadata: ListMetadata = ListMetadata()
    items: tuple[msgspec.Raw, ...] = ()


class AnyObject(Wire, frozen=True):
    """An object of which only the metadata matters, such as a bookmark."""

    metadata: Metadata = Metadata()
