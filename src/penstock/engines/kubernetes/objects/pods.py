"""Pods."""

import msgspec

from penstock.engines.kubernetes.objects.claims import EphemeralSource
from penstock.engines.kubernetes.objects.common import Amounts, Condition, LabelSelector, Metadata, Requirement, Wire


class ClaimReference(Wire, frozen=True):
    """What a container uses of the pod's `resourceClaims`: a claim, or one request of it."""

    name: str
    request: str = ""


class Requirements(Wire, frozen=True):
    """`resources` of a container or a pod."""

    requests: Amounts = {}
    limits: Amounts = {}
    claims: tuple[ClaimReference, ...] = ()


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
    toleration_seconds: int | None = None
    """How long a pod that is there may stay; None: for ever."""


class NodeSelectorTerm(Wire, frozen=True):
    """All requirements must hold; a term without any matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """One term must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class PodAffinityTerm(Wire, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    """None selects nothing."""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    """None selects no namespace, an empty one all."""
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PodAffinity(Wire, frozen=True):
    """Affinity or anti-affinity between pods; what is only preferred is not read."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Wire, frozen=True):
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    max_skew: int = 1
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class Named(Wire, frozen=True):
    """A reference by name alone."""

    name: str = ""


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class InlineCsi(Wire, frozen=True):
    driver: str = ""


class Volume(Wire, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    csi: InlineCsi | None = None


class PodResourceClaim(Wire, frozen=True):
    """One entry of `resourceClaims`: an existing claim, or a template of which the pod gets a claim of its own."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


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
    resource_claims: tuple[PodResourceClaim, ...] = ()
    volumes: tuple[Volume, ...] = ()
    termination_grace_period_seconds: int = 30
    restart_policy: str = "Always"


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


class ClaimStatus(Wire, frozen=True):
    """Which claim was made from a template for one entry of `resourceClaims`."""

    name: str = ""
    resource_claim_name: str = ""


class PodStatus(Wire, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    nominated_node_name: str = ""
    start_time: str | None = None
    resource_claim_statuses: tuple[ClaimStatus, ...] = ()


class Pod(Wire, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """Namespace and name, as people write them."""
        return self.metadata.key

    @property
    def over(self) -> bool:
        """Whether all its containers have ended for good: it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def leaving(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def disruptable(self) -> bool:
        """Whether evicting it counts as a disruption: it runs, and has not been asked to leave."""
        return self.status.phase not in ("Succeeded", "Failed", "Pending") and not self.leaving

    @property
    def unready(self) -> bool:
        """Whether its kubelet says that it is not ready."""
        return any(one.type == "Ready" and one.status == "False" for one in self.status.conditions)


class PodTemplate(Wire, frozen=True):
    """What pods of a workload are made from."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
