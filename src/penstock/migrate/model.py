"""The queue model into which every source is read, and the result of an import. No source is known here."""

from fractions import Fraction
from typing import Literal, NamedTuple

import msgspec

from penstock.core.model.cluster import ClusterConfig, NodeSpec, Pool, PreemptionRule, QueuePolicy, Settings, Tenant
from penstock.migrate.report import MigrationEntry, SourcePlace

QueueResource = Literal["devices", "cpus", "memory", "storage", "jobs"]


class Amount(NamedTuple):
    """Guarantee, maximum and lending limit of a queue for one resource in one flavour.

    Devices and CPUs are in thousandths, memory and storage in bytes, jobs are counted.
    """

    resource: QueueResource
    flavour: str = ""
    """Name of a `Flavour`; empty where the source knows none."""
    nominal: int = 0
    """Its guarantee."""
    borrow: int | None = None
    """How much it may hold above the guarantee; None is no such limit."""
    max: int | None = None
    """Its maximum; None is no such limit. With `borrow` both hold."""
    lend: int | None = None
    """How much of the guarantee other queues may use while it is idle; None lends all."""


class Flavour(NamedTuple):
    """A kind of a resource, such as the nodes with one device model."""

    name: str
    model: str
    """Model of its devices, as nodes and quotas name it."""


class SourceQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as its source declares it."""

    key: str
    """Unique in the source."""
    name: str
    """The name it shall have; made plain and unique on the way."""
    parent: str = ""
    """Key of the queue above it; empty is the root."""
    place: SourcePlace
    weight: Fraction = Fraction(1)
    amounts: tuple[Amount, ...] = ()
    adds: bool = False
    """Its guarantee comes on top of those of the queues below it."""
    sealed: bool = False
    """It holds no more than its guarantee and those below it."""
    only_named: bool = False
    """It may hold no devices of flavours that it does not name."""
    policy: QueuePolicy = "priority"
    preemption: PreemptionRule = "lower_priority"
    max_waiting: int | None = None
    min_runtime_ms: int | None = None


class MigrationSource(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one source, before conversion to Penstock's configuration."""

    queues: tuple[SourceQueue, ...]
    flavours: tuple[Flavour, ...] = ()
    pools: tuple[Pool, ...] = (Pool(ClusterConfig().pools[0].name),)
    tenants: tuple[Tenant, ...] = ()
    settings: Settings = Settings()
    root_policy: QueuePolicy = "priority"
    nodes: tuple[NodeSpec, ...] = ()


class Imported(msgspec.Struct, frozen=True):
    """Result of an import: usable values, and the outcome of each key of the source."""

    nodes: tuple[NodeSpec, ...]
    config: ClusterConfig
    report: tuple[MigrationEntry, ...]
    """By file and line."""
