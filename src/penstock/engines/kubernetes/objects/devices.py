"""Devices by claims (DRA): slices that drivers publish, classes, claims and their templates, taints."""

from typing import Any

import msgspec

from penstock.engines.kubernetes.objects.common import Amounts, Condition, Metadata, Wire
from penstock.engines.kubernetes.objects.pods import NodeSelector

Scalar = str | int | float


class Attribute(Wire, frozen=True):
    """One of the fields is set."""

    bool_: bool | None = msgspec.field(name="bool", default=None)
    int_: int | None = msgspec.field(name="int", default=None)
    string: str | None = None
    version: str | None = None
    bools: tuple[bool, ...] = ()
    ints: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()


class ValidRange(Wire, frozen=True):
    min: Scalar | None = None
    max: Scalar | None = None
    step: Scalar | None = None


class RequestPolicy(Wire, frozen=True):
    """Which amounts of a capacity may be asked for: they are rounded up to the next of these."""

    default: Scalar | None = None
    valid_values: tuple[Scalar, ...] = ()
    valid_range: ValidRange | None = None


class Capacity(Wire, frozen=True):
    value: Scalar = "0"
    request_policy: RequestPolicy | None = None


class Counter(Wire, frozen=True):
    value: Scalar = "0"


class CounterSet(Wire, frozen=True):
    name: str
    counters: dict[str, Counter] = {}


class CounterConsumption(Wire, frozen=True):
    counter_set: str
    counters: dict[str, Counter] = {}


class DeviceTaint(Wire, frozen=True):
    key: str
    effect: str
    value: str = ""


class Device(Wire, frozen=True):
    name: str
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class Pool(Wire, frozen=True):
    name: str
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(Wire, frozen=True):
    driver: str
    pool: Pool
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Wire, frozen=True):
    metadata: Metadata
    spec: SliceSpec


class CelSelector(Wire, frozen=True):
    expression: str = ""


class Selector(Wire, frozen=True):
    cel: CelSelector | None = None


class DeviceClassSpec(Wire, frozen=True):
    selectors: tuple[Selector, ...] = ()
    config: tuple[dict[str, Any], ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Wire, frozen=True):
    metadata: Metadata
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceToleration(Wire, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Return whether it tolerates a taint; without a key every one."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


class CapacityRequirements(Wire, frozen=True):
    requests: Amounts = {}


class ExactRequest(Wire, frozen=True):
    """What of a request says which devices; `name` is set in the alternatives of a prioritized list."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements = CapacityRequirements()


class DeviceRequest(Wire, frozen=True):
    """One of the two is set."""

    name: str
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] = ()


class DeviceConstraint(Wire, frozen=True):
    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class DeviceClaim(Wire, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[dict[str, Any], ...] = ()


class ClaimSpec(Wire, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class Result(Wire, frozen=True):
    """One allocated device."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str = msgspec.field(name="shareID", default="")
    consumed_capacity: Amounts = {}


class Results(Wire, frozen=True):
    results: tuple[Result, ...] = ()
    config: tuple[dict[str, Any], ...] = ()


class Allocation(Wire, frozen=True):
    devices: Results = Results()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class Consumer(Wire, frozen=True):
    """Who may use a claim: a pod, or a PodGroup with all its pods."""

    resource: str
    name: str
    uid: str
    api_group: str = ""


class AllocatedStatus(Wire, frozen=True):
    """What a driver says of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = msgspec.field(name="shareID", default="")
    conditions: tuple[Condition, ...] | None = None
    """The API server writes `null` where a driver says other things alone."""


class ClaimStatus(Wire, frozen=True):
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()
    devices: tuple[AllocatedStatus, ...] = ()


class ResourceClaim(Wire, frozen=True):
    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def key(self) -> str:
        return self.metadata.key


class TemplateSpec(Wire, frozen=True):
    metadata: Metadata = Metadata()
    spec: ClaimSpec = ClaimSpec()


class ResourceClaimTemplate(Wire, frozen=True):
    metadata: Metadata
    spec: TemplateSpec = TemplateSpec()


class TaintSelector(Wire, frozen=True):
    """Which devices are tainted: all that is set must be so; nothing set: all devices."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    device_class_name: str | None = None
    """Before Kubernetes 1.35 alone, as `selectors`: a rule with one of them is not applied."""
    selectors: tuple[Selector, ...] = ()


class TaintRuleSpec(Wire, frozen=True):
    taint: DeviceTaint
    device_selector: TaintSelector | None = None


class DeviceTaintRule(Wire, frozen=True):
    metadata: Metadata
    spec: TaintRuleSpec
