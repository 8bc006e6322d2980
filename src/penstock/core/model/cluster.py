"""Nodes, pools, tenants, the queue tree and the settings of the scheduler, as an operator declares them."""

from functools import cached_property
from typing import Literal

import msgspec
from msgspec.structs import replace

from penstock.core.model.access import User
from penstock.core.model.ids import DEFAULT_POOL as DEFAULT_POOL
from penstock.core.model.ids import DEFAULT_QUEUE as DEFAULT_QUEUE
from penstock.core.model.ids import DEFAULT_TENANT as DEFAULT_TENANT
from penstock.core.model.ids import Incarnation, JobId, NodeName, PoolName, QueueName, TenantName, UserName
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
ShownHolders = Literal["own", "tenants", "users"]
"""What users see of other tenants' allocations: nothing, which tenant holds them, or also which of its users."""

ROOT_QUEUE = QueueName("root")
CHECKED_BY = UserName("penstock")
"""Closes nodes for their failures, and opens them again."""
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


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whole nodes of a pool kept from `start_ms` to `end_ms` for jobs of one tenant (all jobs of it, any queue)."""

    name: str
    tenant: TenantName
    start_ms: int
    end_ms: int
    nodes: tuple[NodeName, ...]


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of the scheduler and of the protocol with the nodes; durations in milliseconds."""

    wait_bonus_max: int = 100
    """Points of priority that a job gains while it waits, reached after `wait_bonus_horizon`."""
    wait_bonus_horizon_ms: int = 3_600_000
    """Wait after which the bonus is whole; it grows evenly from the submit, kept over requeues."""
    size_penalty_per_device: int = 10
    """Points of priority that a job loses for each device that it asks for."""
    min_runtime_before_preemption_ms: int = 0
    """An attempt runs this long before it may be preempted, where its queue does not say."""
    starvation_after_ms: int = 345_600_000
    """A job that has waited this long and could not start holds back later jobs of its pool. The bound grows with the
    backlog: it is doubled where waiting jobs ask for as many devices as the pool has."""
    starvation_ratio: int = 5
    """A job waits this many times its expected length longer before it holds back others."""
    ageing_ms: int = 691_200_000
    """A `shortest_predicted` queue counts a wait of this long like half the predicted device time."""
    predict_run_times: bool = True
    """Expect jobs to run as long as those like them did; what a job declares is a bound."""
    estimate_starts_every_ms: int = 60_000
    """The server works out when waiting jobs start this often, and notes some of it, to learn how right it was; 0 does
    so only when it is asked."""
    lease_ttl_ms: int = 30_000
    """The server counts a node as lost after this long without a heartbeat."""
    lease_margin_ms: int = 8_000
    """The node ends its processes this much earlier than the server counts it as lost."""
    heartbeat_ms: int = 1_000
    """A node reports to the server this often."""
    grace_default_ms: int = 30_000
    """Time between the stop signal and the kill, where the job does not say."""
    restart_cost_ms: int = 10_000
    """Assumed overhead of starting an attempt again, in device-time of one device; part of a victim's cost."""
    checkpoint_cost_ms: int = 2_000
    """Assumed time to save before leaving; part of a victim's cost."""
    priority_cost_ms_per_point: int = 1_000
    """What a point of priority adds to a victim's cost, per device."""
    victim_sets_tried_max: int = 256
    """Sets of victims tried in order of cost before the search falls back to greedy."""
    infrastructure_retries_max: int = 50
    """Attempts of one job that may be lost to nodes and the scheduler before it counts as failed."""
    node_strikes_max: int = 3
    """A node that fails this often within `node_strikes_window` gets no new work until it passes a check; 0: never.
    What programs of one tenant alone say of it keeps only that tenant's work away."""
    node_strikes_window_ms: int = 3_600_000
    """Failures of a node that are older than this do not count."""
    device_open_after_ms: int = 600_000
    """A device that its node closed is opened again after this long without a fault; twice as long with each time that
    it was closed within `node_strikes_window`, at most a day; 0: only by hand."""
    mig_divide_after_ms: int = 10_000
    """A device of a pool with a `mig_strategy` is divided once its MIG instances and their holders have not changed for
    this long."""
    node_check: str = ""
    """A command for /bin/sh that checks a node (0: it is fit); empty takes our own, of disk, memory and devices.
    It runs beside jobs: what a program claims of an open node leads to a check, too."""
    preparing_limit_ms: int = 3_600_000
    """Each thing that a job needs on a node before it starts, such as its environment, may take this long to make."""
    environments_kept_gib: int = 20
    """Environments and results of setup steps that nothing uses stay on a node up to this size (GiB), the same of what
    uv has downloaded for an account."""
    scale_command: str = ""
    """A command for /bin/sh that gets nodes: what is missing comes as JSON on its standard input."""
    scale_url: str = ""
    """Where what is missing is posted to, where no command is declared."""
    scale_after_ms: int = 60_000
    """Jobs that have waited for capacity this long count as missing it."""
    scale_every_ms: int = 120_000
    """The provider is asked again after this long."""
    same_failures_max: int = 3
    """A job that fails this often in the same way at the same step is not tried again; 0 tries all its retries."""
    backoff_first_ms: int = 1_000
    """Wait of a job after its first failed attempt; it doubles with each."""
    backoff_max_ms: int = 300_000
    """The longest wait after a failed attempt."""
    starts_per_cycle_max: int = 1_000
    """Jobs that one cycle starts; the next cycle follows at once."""
    fair_share_half_life_ms: int = 0
    """After this long half of a queue's past use is forgotten; 0 looks at present use only."""
    least_attained_step_device_ms: int = 57_600_000
    """Service after which a job of a `least_attained` queue falls one level (16 device-hours, as Tiresias)."""
    least_attained_turn_milli: int = 500
    """An attempt in a `least_attained` queue runs this many times as long as its job waited for it, at least a minute,
    before a job with less service may take its place; 0: no such time."""
    admission_milli: int = 0
    """A `least_attained` queue lets jobs take turns up to this load of its pool, and the others are not started; 0 sets
    no limit."""
    backfill_depth_max: int = 64
    """Reservations that conservative backfill keeps at once."""
    elastic_growth_period_ms: int = 60_000
    """At least this long between two changes of an elastic job's size."""
    suspended_max_ms: int = 3_600_000
    """An attempt that is suspended this long saves and leaves: it can resume elsewhere, and others get its memory."""
    elastic_data_wait_max_milli: int = 500
    """An elastic job that waits for data for more of its time than this gets no more replicas; 1: it may."""
    elastic_shrink_idle: bool = False
    """An elastic job that computes for less than three tenths of its time continues with half of its replicas."""
    defrag: bool = False
    """Let jobs that can save move elsewhere when a gang fits only then. A dry run shows what it would do."""
    defrag_gain_milli: int = 1_500
    """Moving jobs to make room must gain this many times what it costs."""
    preemptive_utilisation_milli: int = 800
    """Above this use of the devices a cycle tries more sets of victims while critical jobs wait."""
    immediate_utilisation_milli: int = 300
    """Below this use of the devices a cycle lets no jobs gather (`batching_window`)."""
    predictive_waiting_min: int = 10
    """With more waiting jobs than this a cycle lets no jobs gather either."""
    critical_priority: int = 1_000
    """Jobs of this priority or higher are critical."""
    batching_window_ms: int = 0
    """How long a cycle that calls for no haste lets jobs gather before the next; 0 plans whenever something changed."""
    objective_utilisation_milli: int = 300
    """Weight of the devices in use when candidate plans are compared; the five weights sum to 1."""
    objective_response_time_milli: int = 250
    """Weight of short waits."""
    objective_fairness_milli: int = 200
    """Weight of even shares."""
    objective_energy_milli: int = 150
    """Weight of low power."""
    objective_cost_milli: int = 100
    """Weight of low cost."""
    holders_shown: ShownHolders = "own"
    """What people see of who holds what in tenants that are not theirs."""
    default_tenant: str = ""
    """Tenant of jobs that name none, where their user has no default and not just one tenant."""
    default_queue: str = ""
    """Queue of jobs that name none, where their user has no default."""
    job_account: str = ""
    """Account of the machines for jobs whose user has none of their own, where the server is root."""
    allow_waiting_for_nodes: bool = False
    """Accept requests that no present node could hold even when empty."""
    input_protocols: str = ""
    """Protocols of the URLs that `inputs` of jobs may name, such as `s3, https`; empty: all that are known."""
    input_hosts: str = ""
    """Hosts, or buckets, that `inputs` may be fetched from, such as `*.example.org, training-data`; empty: all."""
    input_max_bytes: int = 2**40
    """Size of one input of a job."""
    inputs_kept_bytes: int = 200 * 2**30
    """A node keeps inputs that no job uses up to this size; the longest unused are removed first."""
    inputs_kept_ms: int = 1_209_600_000
    """A node removes an input that no job has used for this long."""


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
    def sharing(self) -> dict[PoolName, Sharing]:
        """How pools share devices, of those that say anything about it."""
        return {pool.name: pool.parts for pool in self.pools if pool.parts != Sharing()}

    @cached_property
    def queue_by_name(self) -> dict[QueueName, Queue]:
        return {queue.name: queue for queue in self.queues}

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
