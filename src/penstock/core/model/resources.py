"""Host resources and accelerators: what nodes have and replicas ask for. All quantities are integers."""

from typing import Literal, NamedTuple

import msgspec

from penstock.core.model.affinity import AffinityRule, Repels
from penstock.core.model.selectors import LabelTerms, Toleration

WHOLE_DEVICE_MILLI = 1000
MIG_COMPUTE_SLICES = 7
OVERSUBSCRIPTION_MAX = 8
"""Times its memory that a device promises at most."""

Virtualization = Literal["any", "none", "time_slicing", "mps", "mig"]
"""Which parts of devices a pool gives out: fractions and MIG instances, neither, fractions alone (shared in time, or
through MPS where the node runs it), MIG instances alone. Whole devices always."""

Isolation = Literal["none", "watched", "cooperative", "driver", "hardware"]
ISOLATION_LEVELS: tuple[Isolation, ...] = ("none", "watched", "cooperative", "driver", "hardware")
"""What keeps one part of a device within its memory, from weakest to strongest.

- `none`: nothing.
- `watched`: the agent measures the memory of each program, and stops the one that exceeds its part.
- `cooperative`: the program's framework keeps a limit that it gets in its environment, too.
- `driver`: the driver refuses memory beyond the limit (NVIDIA MPS).
- `hardware`: a partition with memory of its own (MIG), or the whole device.
"""


DividingStrategy = Literal["training", "inference", "balanced"]
"""Into which MIG instances a device is divided: halves, the smallest, or both."""
MigStrategy = DividingStrategy | Literal["none"]
"""Into which a pool divides its devices ahead of demand."""


class Sharing(NamedTuple):
    """How a pool shares its devices."""

    virtualization: Virtualization = "any"
    oversubscription_milli: int = WHOLE_DEVICE_MILLI
    """How much of a device's memory is promised at most to fractions that all allow it, in thousandths of it."""
    mig_strategy: MigStrategy = "none"


LinkKind = Literal["nvlink", "pcie", "numa", "node"]
LINK_KINDS: tuple[LinkKind, ...] = ("nvlink", "pcie", "numa", "node")
"""From closest to farthest."""

RESOURCE_FIELDS = ("cpu_milli", "memory_bytes", "storage_bytes", "bandwidth_bps")


Extended = tuple[tuple[str, int], ...]
"""Amounts of further resources of a node, such as `pods` or `example.com/fpga`; by name, ascending."""
EXTENDED_SHORT = "extended_short"
"""Begins the reason codes of such a shortage; the name of the resource follows a colon."""


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """CPU (thousandths of a core), memory and storage (bytes), network bandwidth (bits a second), and further ones."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    storage_bytes: int = 0
    bandwidth_bps: int = 0
    extended: Extended = ()

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            self.cpu_milli + other.cpu_milli,
            self.memory_bytes + other.memory_bytes,
            self.storage_bytes + other.storage_bytes,
            self.bandwidth_bps + other.bandwidth_bps,
            _summed(self.extended, other.extended, 1),
        )

    def __sub__(self, other: "Resources") -> "Resources":
        return Resources(
            self.cpu_milli - other.cpu_milli,
            self.memory_bytes - other.memory_bytes,
            self.storage_bytes - other.storage_bytes,
            self.bandwidth_bps - other.bandwidth_bps,
            _summed(self.extended, other.extended, -1),
        )

    def __mul__(self, count: int) -> "Resources":
        return Resources(
            self.cpu_milli * count,
            self.memory_bytes * count,
            self.storage_bytes * count,
            self.bandwidth_bps * count,
            tuple((name, number * count) for name, number in self.extended),
        )

    def times_within(self, free: "Resources") -> int | None:
        """Return how often this ask fits into `free`, or None when it asks for nothing (no bound)."""
        best: int | None = None
        for name in RESOURCE_FIELDS:
            ask = getattr(self, name)
            if ask > 0:
                times = max(0, getattr(free, name)) // ask
                best = times if best is None else min(best, times)
        for name, ask in self.extended:
            times = max(0, free.of(name)) // ask
            best = times if best is None else min(best, times)
        return best

    def of(self, name: str) -> int:
        """Return the amount of an extended resource."""
        return next((number for known, number in self.extended if known == name), 0)

    def shortage(self, free: "Resources") -> str | None:
        """Return the first field, or extended resource, in which this ask does not fit into `free`, or None."""
        if self.cpu_milli > 0 and self.cpu_milli > free.cpu_milli:
            return "cpu_milli"
        if self.memory_bytes > 0 and self.memory_bytes > free.memory_bytes:
            return "memory_bytes"
        if self.storage_bytes > 0 and self.storage_bytes > free.storage_bytes:
            return "storage_bytes"
        if self.bandwidth_bps > 0 and self.bandwidth_bps > free.bandwidth_bps:
            return "bandwidth_bps"
        if not self.extended:
            return None
        return next((name for name, ask in self.extended if ask > free.of(name)), None)


def _summed(one: Extended, other: Extended, sign: int) -> Extended:
    """Return the sum (`sign` 1) or difference (-1) of two amounts; names of which nothing is left are left out."""
    if not other:
        return one
    found = dict(one)
    for name, number in other:
        found[name] = found.get(name, 0) + sign * number
    return tuple(sorted((name, number) for name, number in found.items() if number))


class DeviceLink(msgspec.Struct, frozen=True):
    """How a device reaches a neighbour on the same node."""

    peer: int
    kind: LinkKind


class Device(msgspec.Struct, frozen=True, omit_defaults=True):
    """One accelerator of a node; `index` is its position there and what visibility variables use."""

    index: int
    vendor: str
    model: str
    memory_bytes: int
    capability: tuple[int, int] = (0, 0)
    """Compute capability as (major, minor); (0, 0) where the vendor has none."""
    numa_node: int = 0
    links: tuple[DeviceLink, ...] = ()
    uuid: str = ""
    simulated: bool = False
    healthy: bool = True
    mig: bool = False
    """The operator lets it be cut into hardware partitions (MIG)."""
    mig_mode: bool = False
    """MIG mode is on, and is never switched off here: programs see its instances alone, none of it whole. False with
    `mig`: it is cut up or whole, as jobs ask."""
    isolation: Isolation = "none"
    """The strongest level that its node reaches for fractions of it; `driver` where its pool gives them out by MPS."""
    power_limit_mw: int = 0
    """The most that it draws, by its vendor's limit; 0: unknown."""

    def isolated_within(self, virtualization: Virtualization) -> "Device":
        """Return the device as a pool gives it out: only where fractions run through MPS does the driver limit them."""
        if self.isolation != "driver" or virtualization == "mps":
            return self
        return msgspec.structs.replace(self, isolation="cooperative")


class Discovery(msgspec.Struct, frozen=True):
    """A vendor's devices on this machine, and a sentence about them for people."""

    devices: tuple[Device, ...]
    note: str


class DeviceAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """The accelerators one replica needs: `count` of them, all satisfying every other field.

    Whole devices by default. With `share_milli` below 1000 a fraction of one device, with `profile` one hardware
    partition of it; `count` is 1 then.
    """

    count: int
    vendor: str = ""
    models: tuple[str, ...] = ()
    """Acceptable models in order of preference; empty means any."""
    memory_min_bytes: int = 0
    capability_min: tuple[int, int] = (0, 0)
    link: LinkKind | None = None
    """The farthest link allowed between any two devices of a replica; None means any."""
    share_milli: int = WHOLE_DEVICE_MILLI
    share_memory_bytes: int = 0
    """Memory limit of a fraction; 0 takes the fraction of the device's memory."""
    profile: str = ""
    """A MIG profile such as `3g.40gb`."""
    isolation: Isolation = "none"
    """The weakest level of isolation that it accepts for its part of a device."""
    oversubscribe: bool = False
    """Its fraction may share a device of which more memory is promised than there is, where its pool does that."""
    slot: bool = False
    """It asks for one of the equal parts into which its pool divides a device (`share: slice`): the submit works out
    its share, and no job that was accepted says so."""

    @property
    def whole(self) -> bool:
        return self.share_milli == WHOLE_DEVICE_MILLI and not self.profile

    @property
    def milli(self) -> int:
        """Devices in thousandths, as quotas and shares count them; a profile counts its compute slices of seven."""
        if self.profile:
            slices = self.profile.split("g", 1)[0]
            return WHOLE_DEVICE_MILLI * int(slices) // MIG_COMPUTE_SLICES if slices.isdecimal() else WHOLE_DEVICE_MILLI
        return self.count * self.share_milli

    def given_by(self, virtualization: Virtualization) -> bool:
        """Return whether a pool gives out such parts of devices; whole ones always."""
        if self.whole or virtualization == "any":
            return True
        return virtualization == "mig" if self.profile else virtualization in ("time_slicing", "mps")

    def memory_of(self, device: Device) -> int:
        """Return how much of `device`'s memory one fraction may use (bytes)."""
        return self.share_memory_bytes or device.memory_bytes * self.share_milli // WHOLE_DEVICE_MILLI

    def accepts(self, device: Device) -> str | None:
        """Return None when `device` qualifies, else the reason code of the first filter it fails."""
        if not device.healthy:
            return "device_failed"
        if self.vendor and device.vendor != self.vendor:
            return "vendor"
        if self.models and device.model not in self.models:
            return "model"
        if device.memory_bytes < self.memory_min_bytes:
            return "device_memory"
        if device.capability < self.capability_min:
            return "capability"
        if device.mig_mode and not self.profile:
            return "mig_mode"
        return None if self.isolation == "none" or self.is_isolated_on(device) else "isolation"

    def is_isolated_on(self, device: Device) -> bool:
        """Return whether a part of `device` reaches the level required; whole devices and MIG instances always do."""
        if self.whole or self.profile:
            return True
        return ISOLATION_LEVELS.index(device.isolation) >= ISOLATION_LEVELS.index(self.isolation)


Models = tuple[tuple[str, int], ...]
"""Devices (thousandths) by model, ascending by model."""


class ReplicaAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one replica needs on its node."""

    host: Resources
    devices: DeviceAsk | None = None
    selected: tuple[str, ...] = ()
    """The selectors in use that select this replica, ascending."""
    affinity: tuple[AffinityRule, ...] = ()
    label_terms: LabelTerms = ()
    """Rules about the labels of its node, as alternatives; beside those of its gang."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that it tolerates, beside those that its gang tolerates."""
    claimed: Models = ()
    """Devices that it gets by Kubernetes resource claims, by class: the engine allocates them, quotas and bills count
    them."""

    @property
    def device_count(self) -> int:
        return self.devices.count if self.devices else 0

    @property
    def repels(self) -> tuple[Repels, ...]:
        """Which replicas it keeps off which domains."""
        return tuple((one.domain, one.selector) for one in self.affinity if one.kind == "anti_affinity")

    @property
    def device_milli(self) -> int:
        return self.devices.milli if self.devices else 0

    @property
    def charged_milli(self) -> int:
        """The devices that it is charged for."""
        return self.device_milli + sum(milli for _, milli in self.claimed)
