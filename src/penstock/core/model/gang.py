"""What the scheduler places: a gang of replicas, all or nothing, with where they may stand."""

from functools import lru_cache
from typing import Literal

import msgspec

from penstock.core.model.ids import DEFAULT_POOL, JobId, PoolName
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, ReplicaAsk, Resources
from penstock.core.model.selectors import LabelTerms, Toleration

HALF_MILLI = WHOLE_DEVICE_MILLI // 2
TopologyScope = Literal["node", "switch", "rack", "spread"]


class Topology(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where replicas may stand to each other: all on one node/switch/rack, or each on a node of its own."""

    scope: TopologyScope
    required: bool = True


class GroupAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """Replicas of another shape in the same gang, such as a leader beside its workers."""

    replicas: int
    each: ReplicaAsk


class GangAsk(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """What the scheduler must place, all or nothing: `replicas` times `each`, then the other groups.

    An elastic gang may run with any number of replicas from `replicas` to `replicas_max`; it has no other groups.
    """

    replicas: int
    each: ReplicaAsk
    pool: PoolName = DEFAULT_POOL
    topology: Topology | None = None
    labels_wanted: tuple[tuple[str, str], ...] = ()
    labels_shunned: tuple[tuple[str, str], ...] = ()
    replicas_max: int = 0
    """Largest size of an elastic gang; 0 when it has one size only."""
    others: tuple[GroupAsk, ...] = ()
    placement: str = ""
    """Placement strategy of this gang; empty takes its pool's."""
    label_terms: LabelTerms = ()
    """Further rules about the labels of nodes, as alternatives."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of nodes that do not keep it off."""
    storage: str | None = None
    """The storage of jobs' folders that its nodes must have; None: any."""

    @property
    def elastic(self) -> bool:
        return self.replicas_max > self.replicas

    @property
    def replica_total(self) -> int:
        return self.replicas + sum(group.replicas for group in self.others)

    @property
    def device_total(self) -> int:
        return self.replicas * self.each.device_count + sum(g.replicas * g.each.device_count for g in self.others)

    @property
    def device_milli(self) -> int:
        return self.replicas * self.each.device_milli + sum(g.replicas * g.each.device_milli for g in self.others)

    @property
    def charged_milli(self) -> int:
        """The devices that it is charged for, claimed ones included."""
        return self.replicas * self.each.charged_milli + sum(g.replicas * g.each.charged_milli for g in self.others)

    @property
    def host_total(self) -> Resources:
        return sum((group.each.host * group.replicas for group in self.others), self.each.host * self.replicas)

    def each_of(self, rank: int) -> ReplicaAsk:
        """Return what the replica of `rank` asks for: ranks count through the groups in order."""
        if rank < self.replicas or not self.others:
            return self.each
        rank -= self.replicas
        for group in self.others:
            if rank < group.replicas:
                return group.each
            rank -= group.replicas
        return self.others[-1].each

    def without_cpus(self) -> "GangAsk":
        """Return what the gang still holds while it is suspended: everything but processor time."""
        others = tuple(msgspec.structs.replace(group, each=_without_cpus(group.each)) for group in self.others)
        return msgspec.structs.replace(self, each=_without_cpus(self.each), others=others)

    def only_cpus(self) -> "GangAsk":
        """Return what the gang gives back when it is suspended."""
        others = tuple(msgspec.structs.replace(group, each=_only_cpus(group.each)) for group in self.others)
        return msgspec.structs.replace(self, each=_only_cpus(self.each), others=others)

    def on_storage(self, storage: str | None) -> "GangAsk":
        """Return the gang on nodes of one storage alone; None leaves it as it is."""
        return self if storage is None else msgspec.structs.replace(self, storage=storage)

    def on_models(self, models: tuple[str, ...]) -> "GangAsk":
        """Return the gang with the devices of its first group of these models alone."""
        wanted = self.each.devices
        if wanted is None:
            return self
        devices = msgspec.structs.replace(wanted, models=models)
        return msgspec.structs.replace(self, each=msgspec.structs.replace(self.each, devices=devices))

    def sized(self, replicas: int) -> "GangAsk":
        """Return the gang with `replicas` replicas, no longer elastic."""
        if replicas == self.replicas and not self.replicas_max:
            return self
        return msgspec.structs.replace(self, replicas=replicas, replicas_max=0)


def _without_cpus(each: ReplicaAsk) -> ReplicaAsk:
    return msgspec.structs.replace(each, host=msgspec.structs.replace(each.host, cpu_milli=0))


def _only_cpus(each: ReplicaAsk) -> ReplicaAsk:
    return ReplicaAsk(host=Resources(cpu_milli=each.host.cpu_milli))


class Pairing(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt holds half of its device; the job `other` holds the other half, or held it last."""

    other: JobId
    memory_bytes: int
    """Its part of the device's memory."""
    step_us: int = 0
    """How long its step took alone, microseconds; 0 where that is not known."""
    why: str = ""
    """Why they were put together, for people."""
    since_ms: int = 0
    """Unix ms."""


class PartedFrom(msgspec.Struct, frozen=True):
    """A job was parted from this other one, and when (unix ms)."""

    job: JobId
    parted_ms: int


@lru_cache(maxsize=4_096)
def halved(ask: GangAsk, memory_bytes: int) -> GangAsk:
    """Return the ask of one replica on one whole device as it holds half of it, with so much of its memory."""
    wanted = ask.each.devices
    assert wanted is not None, "only what has a device is paired"
    half = msgspec.structs.replace(wanted, share_milli=HALF_MILLI, share_memory_bytes=memory_bytes)
    return msgspec.structs.replace(ask, each=msgspec.structs.replace(ask.each, devices=half))
