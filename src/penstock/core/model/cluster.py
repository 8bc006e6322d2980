"""Nodes, pools, tenants, the queue tree and the settings of the scheduler, as an operator declares them."""

from functools import cached_property
from typing import Literal

import msgspec
from msgspec.structs import replace

from penstock.core.model.access import User
from penstock.core.model.batching import ElasticMode, ElasticRule
from penstock.core.model.ids import DEFAULT_POOL as DEFAULT_POOL
from penstock.core.model.ids import DEFAULT_QUEUE as DEFAULT_QUEUE
from penstock.core.model.ids import DEFAULT_TENANT as DEFAULT_TENANT
from penstock.core.model.ids import Incarnation, JobId, NodeName, PoolName, QueueName, TenantName, UserName
from penstock.core.model.matching import ModelRule
from penstock.core.model.nodes import DeviceInstances as DeviceInstances
from penstock.core.model.nodes import DeviceOpening as DeviceOpening
from penstock.core.model.nodes import HostLoad as HostLoad
from penstock.core.model.nodes import NodeSpec as NodeSpec
from penstock.core.model.nodes import OthersLoad as OthersLoad
from penstock.core.model.notifications import Notifications
from penstock.core.model.oidc import IdentityProvider
from penstock.core.model.pairing import SharingSettings
from penstock.core.model.prices import AtZero, Billing, Budget, Party
from penstock.core.model.quantities import split_resource
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, MigStrategy, Sharing, Virtualization
from penstock.core.model.settings import Settings as Settings
from penstock.core.model.settings import ShownHolders as ShownHolders

BuiltinPolicy = Literal["priority", "fifo", "fair_share", "capacity", "least_attained", "shortest_predicted"]
QueuePolicy = str
"""A builtin policy, or `ext:NAME` for one from a package."""
PreemptionRule = Literal["never", "reclaim", "lower_priority"]
PlacementPolicy = Literal[
    "fragmentation", "best_fit", "first_fit", "first_fit_decreasing", "worst_fit", "dot_product", "host_load", "random"
]
BackfillRule = Literal["easy", "conservative", "none", "strict"]
"""What later jobs may do while an earlier one of their pool does not fit: start if that delays no waiting job (`easy`:
not the first, `conservative`: none), start if they fit (`none`), or nothing (`strict`)."""
Quota = tuple[tuple[str, int], ...]
"""Amounts by resource, sorted by name: `devices` and `devices:MODEL` (thousandths), `cpus` (thousandths), `memory`
and `storage` (bytes), `jobs` (running at once); each of them also of one pool alone, as `POOL/devices`. A resource that
is not named is not limited (in a maximum) or not promised (in a guarantee)."""
QUOTA_ALERTS = (80, 95, 100)
"""Percentages of a maximum that raise an alert, unless others are declared."""
NodeState = Literal["joining", "ready", "lost"]
ReclaimRule = Literal["never", "when_wanted"]

ROOT_QUEUE = QueueName("root")
CHECKED_BY = UserName("penstock")
"""Closes nodes for their failures, and opens them again."""
AGENT = UserName("its agent")
"""Closes its node while its disk takes nothing."""
STRIKES_KEPT = 32
"""Of one node: claims of programs make way for the node's own words."""
SHUT_TO_MAX = 32
"""Tenants to which one node is shut at once."""


class Strike(msgspec.Struct, frozen=True):
    """A sign of a node's failure at a time (unix ms), in this job; None: in the node as a whole."""

    time_ms: int
    job_id: JobId | None
    own: bool = False
    """Reported by the node itself; else a claim: the output of a program, which proves nothing."""
    tenant: TenantName = TenantName("")
    """Tenant and user of the job; empty where the log does not say so."""
    user: UserName = UserName("")


class DeviceClosure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device of a node that gets no new work: its node found it at fault, or a user closed it."""

    index: int
    uuid: str
    """Empty where the vendor has none; then the device is known by its index."""
    code: str
    """Of the fault, as in `DeviceFault`; `closed` where a user closed it and there was none."""
    reason: str
    by: UserName
    """`CHECKED_BY` where nobody but its node closed it: then it is opened by rule."""
    closed_ms: int
    closures: int = 1
    """How often it was closed for its faults lately, this time included."""
    clear_ms: int = 0
    """Since when its node reports no fault of it (unix ms); 0: it does, or has not reported since it came back."""
    seen_ms: int = 0
    """When a fault of it was last new (unix ms)."""
    said_healthy: bool = True
    """What its node's own description says of it."""


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node as the log knows it. Only `ready` and not `draining` nodes get new work."""

    spec: NodeSpec
    incarnation: Incarnation
    state: NodeState = "joining"
    draining: bool = False
    drain_reason: str = ""
    registered_ms: int = 0
    lost_ms: int = 0
    strikes: tuple[Strike, ...] = ()
    """Strikes since it was last opened."""
    closed_by: UserName = UserName("")
    """The user who closed it for new work, while it is closed."""
    closed_ms: int = 0
    closures: int = 0
    """How often it was closed for its failures."""
    checks_failed: int = 0
    """Since it was closed."""
    evict_at_ms: int = 0
    """While it is closed: work that still runs there then is asked to move; 0: never."""
    leaves_ms: int = 0
    """When its jobs have to have left it, for it is lent for a time (unix ms); 0: it stays."""
    stays_ms: int = 0
    """How long such a node stays in all."""
    shut_to: tuple[TenantName, ...] = ()
    """Tenants that get no new work here because of their own jobs' claims; ascending."""
    checked_ms: int = 0
    """When it was checked last while it was open, because of claims."""
    checked_for: tuple[TenantName, ...] = ()
    """Tenants whose claims led to that check."""
    others: OthersLoad = OthersLoad()
    """What others hold of it; with jobs of ours that may be more than it has."""
    load: HostLoad = HostLoad()
    """How its host is really used, as noted last; nothing is noted where placement does not go by it."""
    instances: tuple[DeviceInstances, ...] | None = None
    """The MIG instances on its devices, as its agent reports them; None where it has not."""
    devices_closed: tuple[DeviceClosure, ...] = ()
    """Ascending by index; in `spec` these devices are not healthy."""
    devices_opened: tuple[DeviceOpening, ...] = ()
    """The last opening by rule of each open device that had one; ascending by index."""

    @property
    def spec_said(self) -> NodeSpec:
        """The node as its agent describes it: devices that are closed count as it says."""
        if not self.devices_closed:
            return self.spec
        said = {one.index: one.said_healthy for one in self.devices_closed}
        devices = tuple(replace(one, healthy=said.get(one.index, one.healthy)) for one in self.spec.devices)
        return replace(self.spec, devices=devices)

    def closure_of(self, index: int) -> DeviceClosure | None:
        """Return the closure of a device; None: it is open, or there is none."""
        return next((one for one in self.devices_closed if one.index == index), None)


class Pool(msgspec.Struct, frozen=True, omit_defaults=True):
    name: PoolName
    kind: Literal["gpu", "npu", "cpu", "mixed"] = "mixed"
    description: str = ""
    placement: PlacementPolicy = "fragmentation"
    backfill: BackfillRule = "easy"
    reserve_milli: int = 0
    """Part of the pool's devices (thousandths) that only preemptible jobs may use: room to grow and to react."""
    speeds: tuple[tuple[str, int, int], ...] = ()
    """Per device model its relative speed and its cost per hour (thousandths each), for jobs that accept several."""
    virtualization: Virtualization = "any"
    memory_oversubscription_milli: int = WHOLE_DEVICE_MILLI
    """How much of a device's memory fractions that allow it may be promised together, in thousandths of it."""
    replicas_per_device: int = 0
    """Equal parts of a device, one of which a job gets that asks for a slice; 0: it gives out none."""
    power_limit_mw: int = 0
    """How much its devices that jobs hold may be expected to draw together (`core/order/expected_power.py`); 0: any."""
    sharing: SharingSettings = SharingSettings()
    """When jobs that say `shareable` are put together on one device, and when they are parted again."""
    device_power_limit_mw: int = 0
    """How much each of its devices may draw: agents set it by the vendor's tool; 0: what its vendor lets it draw."""
    mig_strategy: MigStrategy = "none"
    """Into which MIG instances its devices are divided ahead of demand."""
    elastic: ElasticRule = ElasticRule()
    """How the sizes of its elastic jobs are chosen."""
    models: ModelRule = ModelRule()
    """Whether jobs get the device models that suit them."""

    @property
    def parts(self) -> Sharing:
        return Sharing(self.virtualization, self.memory_oversubscription_milli, self.mig_strategy)


class Tenant(msgspec.Struct, frozen=True, omit_defaults=True):
    name: TenantName
    description: str = ""
    max: Quota = ()
    """What all its jobs together may hold at once, in any queues."""
    device_hours_max: int = 0
    """Device-hours that it may use in a calendar month; 0: any."""
    budgets: tuple[Budget, ...] = ()
    credit_limit: int = 0
    """How far below zero its balance may go before `at_zero` holds, in the currency's smallest unit."""
    at_zero: AtZero | None = None
    """What happens when its credit is used up; None: the rule for all tenants."""
    bill_to: Party = Party()
    alerts: tuple[int, ...] = QUOTA_ALERTS
    """Percentages of its maxima and its device-hours that raise an alert when reached, ascending."""


class IdleRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What follows when an attempt holds its places and is idle (`core/state/idleness.py`)."""

    after_ms: int
    """Age at which an event in the log says so."""
    reclaim: ReclaimRule = "never"
    """Whether it may then be preempted for a waiting job that fits there."""


class Queue(msgspec.Struct, frozen=True, omit_defaults=True):
    """One queue of the tree. Its policy orders its own jobs, or its children against each other.

    `guaranteed` is what it can reclaim at any time; the idle part of it is lent to other queues, up to `lend`. It may
    hold more than its guarantee, up to `max`, while others leave theirs idle.
    """

    name: QueueName
    parent: QueueName = ROOT_QUEUE
    policy: QueuePolicy = "shortest_predicted"
    preemption: PreemptionRule = "lower_priority"
    weight: int = 1
    guaranteed: Quota = ()
    max: Quota = ()
    lend: Quota | None = None
    """How much of the guarantee others may use while it is idle; None lends all of it."""
    min_runtime_ms: int | None = None
    """Guaranteed run time of an attempt before it may be preempted; None takes the setting."""
    max_waiting: int = 200_000
    """Jobs that may wait here; a submit beyond it is refused."""
    alerts: tuple[int, ...] = QUOTA_ALERTS
    """Percentages of its maxima that raise an alert when reached, ascending."""
    idle: IdleRule | None = None
    """What follows when its attempts are idle; None takes the rule of the queue above, if one there has one."""
    elastic: ElasticMode | None = None
    """How the sizes of its elastic jobs are chosen; None: as the queue above says, or else their pool."""


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whole nodes of a pool kept from `start_ms` to `end_ms` for jobs of one tenant (all jobs of it, any queue)."""

    name: str
    tenant: TenantName
    start_ms: int
    end_ms: int
    nodes: tuple[NodeName, ...]


class ClusterConfig(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """Everything an operator declares. A change is one event in the log."""

    pools: tuple[Pool, ...] = (Pool(DEFAULT_POOL),)
    tenants: tuple[Tenant, ...] = (Tenant(DEFAULT_TENANT),)
    queues: tuple[Queue, ...] = (Queue(DEFAULT_QUEUE),)
    settings: Settings = Settings()
    root_policy: QueuePolicy = "priority"
    reservations: tuple[Reservation, ...] = ()
    candidates: tuple[PlacementPolicy, ...] = ()
    """Placement strategies that each cycle is planned with and weighed by objectives; none: the pools' own only."""
    billing: Billing = Billing()
    users: tuple[User, ...] = ()
    notifications: Notifications = Notifications()
    """Channels by which users hear of what happens."""
    oidc: IdentityProvider = IdentityProvider()
    """By whom people sign in to the pages without a token."""

    @cached_property
    def user_by_name(self) -> dict[UserName, User]:
        return {user.name: user for user in self.users}

    @cached_property
    def tenant_by_name(self) -> dict[TenantName, Tenant]:
        return {tenant.name: tenant for tenant in self.tenants}

    @cached_property
    def pool_by_name(self) -> dict[PoolName, Pool]:
        return {pool.name: pool for pool in self.pools}

    @cached_property
    def quota_pools(self) -> frozenset[PoolName]:
        """Pools that some quota is bound to."""
        quotas = [quota for queue in self.queues for quota in (queue.guaranteed, queue.max, queue.lend or ())]
        quotas += [tenant.max for tenant in self.tenants]
        return frozenset(split_resource(name)[0] for quota in quotas for name, _ in quota) - {""}

    @cached_property
    def counted_pools(self) -> frozenset[PoolName]:
        """Pools whose use is also counted separately: some quota, or a limit of power, is bound to them."""
        return self.quota_pools.union(self.power_limits)

    @cached_property
    def power_limits(self) -> dict[PoolName, int]:
        """The power (mW) that devices in use may draw together, of pools that have such a limit."""
        return {pool.name: pool.power_limit_mw for pool in self.pools if pool.power_limit_mw}

    @cached_property
    def device_power_limits(self) -> dict[PoolName, int]:
        """The power (mW) that each device may draw, of pools that have such a limit."""
        return {pool.name: pool.device_power_limit_mw for pool in self.pools if pool.device_power_limit_mw}

    @cached_property
    def matching(self) -> dict[PoolName, Pool]:
        """The pools that give jobs the device models that suit them."""
        return {pool.name: pool for pool in self.pools if pool.models.match}

    @cached_property
    def moves_models(self) -> bool:
        """Whether running jobs may move to another device model, in any pool."""
        return any(pool.models.moves for pool in self.pools)

    @cached_property
    def sharing(self) -> dict[PoolName, Sharing]:
        """How pools share devices, of those that say anything about it."""
        return {pool.name: pool.parts for pool in self.pools if pool.parts != Sharing()}

    @cached_property
    def queue_by_name(self) -> dict[QueueName, Queue]:
        return {queue.name: queue for queue in self.queues}

    @cached_property
    def elastic_modes(self) -> dict[QueueName, ElasticMode]:
        """How the sizes of elastic jobs are chosen in each queue that says so, or is below one that does."""
        found: dict[QueueName, ElasticMode] = {}
        for queue in self.queues:
            at: Queue | None = queue
            while at is not None and at.elastic is None:
                at = self.queue_by_name.get(at.parent)
            if at is not None and at.elastic is not None:
                found[queue.name] = at.elastic
        return found

    def elastic_mode(self, queue: QueueName, pool: PoolName) -> ElasticMode:
        """Return how the sizes of a queue's elastic jobs are chosen in a pool."""
        declared = self.pool_by_name.get(pool)
        return self.elastic_modes.get(queue) or (declared.elastic if declared is not None else ElasticRule()).mode

    @cached_property
    def idle_rules(self) -> dict[QueueName, IdleRule]:
        """The rule of each queue that has one, its own or that of the nearest queue above it."""
        found: dict[QueueName, IdleRule] = {}
        for queue in self.queues:
            at: Queue | None = queue
            while at is not None and at.idle is None:
                at = self.queue_by_name.get(at.parent)
            if at is not None and at.idle is not None:
                found[queue.name] = at.idle
        return found
