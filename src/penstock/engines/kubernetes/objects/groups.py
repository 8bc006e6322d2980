"""Groups of pods, as objects: native ones, those of scheduler-plugins and those of Volcano; and what they refer to."""

from penstock.engines.kubernetes.objects.common import Condition, LabelSelector, Metadata, Wire
from penstock.engines.kubernetes.objects.pods import ClaimStatus, PodResourceClaim


class GangPolicy(Wire, frozen=True):
    min_count: int = 1


class SchedulingPolicy(Wire, frozen=True):
    """One of the two is set; `basic` asks for nothing together."""

    gang: GangPolicy | None = None
    basic: dict[str, str] | None = None


class TopologyConstraint(Wire, frozen=True):
    key: str = ""


class SchedulingConstraints(Wire, frozen=True):
    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupSpec(Wire, frozen=True):
    """Native (`scheduling.k8s.io`): a policy. Others: `minMember`."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()
    min_member: int = 0
    queue: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    """Claims that its pods use together, where they name the same."""


class PodGroupStatus(Wire, frozen=True):
    conditions: tuple[Condition, ...] = ()
    phase: str = ""
    resource_claim_statuses: tuple[ClaimStatus, ...] = ()


class PodGroup(Wire, frozen=True):
    metadata: Metadata
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def least(self) -> int:
        """How many of its pods start together: 1 where each may start alone."""
        if self.spec.scheduling_policy.gang is not None:
            return max(1, self.spec.scheduling_policy.gang.min_count)
        return max(1, self.spec.min_member)


class PriorityClass(Wire, frozen=True):
    metadata: Metadata
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class Namespace(Wire, frozen=True):
    metadata: Metadata


class BudgetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None
    """None selects no pod, an empty one every pod of the namespace."""
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class BudgetStatus(Wire, frozen=True):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class DisruptionBudget(Wire, frozen=True):
    """A PodDisruptionBudget."""

    metadata: Metadata
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    @property
    def spares_unready(self) -> bool:
        """Whether pods that are not ready may be evicted whatever it allows."""
        enough = self.status.current_healthy >= self.status.desired_healthy > 0
        return enough or self.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"


class LocalQueueSpec(Wire, frozen=True):
    cluster_queue: str = ""


class LocalQueue(Wire, frozen=True):
    """Of Kueue: leads the jobs of a namespace to a ClusterQueue."""

    metadata: Metadata
    spec: LocalQueueSpec = LocalQueueSpec()


class KueueWorkload(Wire, frozen=True):
    """What Kueue makes of each object that it queues, and says about it."""

    metadata: Metadata
    status: PodGroupStatus = PodGroupStatus()

    @property
    def says(self) -> str:
        """Why it waits, in Kueue's words; '' where it does not."""
        found = {one.type: one for one in self.status.conditions if one.status == "False"}
        said = found.get("QuotaReserved") or found.get("Admitted")
        return said.message if said is not None else ""
