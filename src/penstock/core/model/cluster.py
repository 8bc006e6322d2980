"""Nodes, pools, tenants, the queue tree and the settings of the scheduler, as an operator declares them."""

from typing import Literal

import msgspec

from penstock.core.model.ids import Incarnation, NodeName, PoolName, QueueName, TenantName
from penstock.core.model.resources import Device, Resources

QueuePolicy = Literal["priority", "fifo"]
PreemptionRule = Literal["never", "lower_priority"]
NodeState = Literal["joining", "ready", "lost"]

ROOT_QUEUE = QueueName("root")
DEFAULT_QUEUE = QueueName("default")
DEFAULT_POOL = PoolName("default")
DEFAULT_TENANT = TenantName("default")


class NodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node says it has. `virtual` nodes share one real machine and are marked as such everywhere."""

    name: NodeName
    capacity: Resources
    devices: tuple[Device, ...] = ()
    pool: PoolName = DEFAULT_POOL
    labels: tuple[tuple[str, str], ...] = ()
    zone: str = ""
    rack: str = ""
    switch: str = ""
    address: str = "127.0.0.1"
    port_first: int = 20000
    port_count: int = 1000
    """Rendezvous ports [port_first, port_first + port_count) that the scheduler may hand out on this node."""
    virtual: bool = False


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node as the log knows it. Only `ready` and not `draining` nodes get new work."""

    spec: NodeSpec
    incarnation: Incarnation
    state: NodeState = "joining"
    draining: bool = False
    drain_reason: str = ""
    registered_ms: int = 0
    lost_ms: int = 0


class Pool(msgspec.Struct, frozen=True, omit_defaults=True):
    name: PoolName
    kind: Literal["gpu", "npu", "cpu", "mixed"] = "mixed"
    description: str = ""


class Tenant(msgspec.Struct, frozen=True, omit_defaults=True):
    name: TenantName
    description: str = ""


class Queue(msgspec.Struct, frozen=True, omit_defaults=True):
    """One queue of the tree. Its policy orders its own jobs, or its children against each other."""

    name: QueueName
    parent: QueueName = ROOT_QUEUE
    policy: QueuePolicy = "priority"
    preemption: PreemptionRule = "lower_priority"
    max_waiting: int = 200_000
    """Jobs that may wait here; a submit beyond it is refused."""


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of the scheduler and of the protocol with the nodes; durations in milliseconds."""

    wait_bonus_max: int = 100
    wait_bonus_horizon_ms: int = 3_600_000
    size_penalty_per_device: int = 10
    min_runtime_before_preemption_ms: int = 0
    starvation_after_ms: int = 3_600_000
    """A job that has waited this long and could not start holds back later jobs of its pool."""
    lease_ttl_ms: int = 30_000
    """The server counts a node as lost after this long without a heartbeat."""
    lease_margin_ms: int = 8_000
    """The node ends its processes this much earlier than the server counts it as lost."""
    heartbeat_ms: int = 1_000
    grace_default_ms: int = 30_000
    restart_cost_ms: int = 10_000
    """Assumed overhead of starting an attempt again, in device-time of one device; part of a victim's cost."""
    checkpoint_cost_ms: int = 2_000
    priority_cost_ms_per_point: int = 1_000
    """What a point of priority adds to a victim's cost, per device."""
    victim_sets_tried_max: int = 256
    """Sets of victims tried in order of cost before the search falls back to greedy."""
    infrastructure_retries_max: int = 50
    backoff_first_ms: int = 1_000
    backoff_max_ms: int = 300_000
    starts_per_cycle_max: int = 1_000
    allow_waiting_for_nodes: bool = False
    """Accept requests that no present node could hold even when empty."""


class ClusterConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything an operator declares. A change is one event in the log."""

    pools: tuple[Pool, ...] = (Pool(DEFAULT_POOL),)
    tenants: tuple[Tenant, ...] = (Tenant(DEFAULT_TENANT),)
    queues: tuple[Queue, ...] = (Queue(DEFAULT_QUEUE),)
    settings: Settings = Settings()
    root_policy: QueuePolicy = "priority"
