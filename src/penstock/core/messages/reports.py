"""Reports of agents about their node and its replicas."""

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec.structs import fields, replace

from penstock.core.model.hangs import Sight
from penstock.core.model.ids import AttemptNumber, Incarnation, JobId, NodeName, Rank
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.measured import Measured
from penstock.core.model.nodes import DeviceFault, DeviceInstances, OthersLoad
from penstock.core.model.progress import Gauges

EXIT_TEXTS = tuple(field.name for field in fields(ExitInfo) if field.type is str)


def with_texts(info: ExitInfo, change: Callable[[str], str]) -> ExitInfo:
    """Return an exit with each of its texts changed, as by what cuts them or masks secrets."""
    return replace(info, **{name: change(getattr(info, name)) for name in EXIT_TEXTS})


class NodeCheck(msgspec.Struct, frozen=True):
    """The result of a node's check of itself."""

    passed: bool
    text: str = ""
    ended: bool = True
    """Whether it ended in time without being killed."""


class ReplicaKey(msgspec.Struct, frozen=True, order=True):
    """Names one replica for ever: job, attempt and rank."""

    job_id: JobId
    attempt: AttemptNumber
    rank: Rank

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}.{self.rank}"


SeenState = Literal["starting", "running", "frozen", "stopping", "exited"]


class ReplicaSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """One replica as its node knows it. `exited` is repeated until the server has acknowledged it."""

    key: ReplicaKey
    state: SeenState
    pid: int = 0
    exit: ExitInfo | None = None
    suspension: int = 0
    """Which suspension it is frozen for."""
    refused: str = ""
    """Why it cannot be frozen, where that was asked for."""


class ProgressSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry that a replica's program wrote into its report file since the last report."""

    key: ReplicaKey
    kind: Literal["checkpoint", "resumed", "progress", "listens"]
    step: int
    size_bytes: int = 0
    why: str = ""
    """Of a checkpoint; with `listens`, the signal that makes the program save and carry on."""
    gauges: Gauges | None = None
    """Of this replica alone; with `progress` only."""


class ReplicaInspected(msgspec.Struct, frozen=True):
    key: ReplicaKey
    sight: Sight


class DeviceFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a device reports at present; None where it does not report it. Counters: since its driver was loaded."""

    index: int
    use_milli: int | None = None
    memory_used_bytes: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    energy_mj: int | None = None
    clock_mhz: int | None = None
    throttled: tuple[str, ...] = ()
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    link_errors: int | None = None


class ReplicaUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a replica uses at present, as its node measures it; None where it cannot."""

    key: ReplicaKey
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    device_memory_bytes: int | None = None
    """On all its devices."""
    devices_touched: int | None = None
    """On how many of its devices it has a process."""
    measured: Measured | None = None
    """Since it began."""


class HostFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """How busy a node's machine is, its other programs included, since the last such figures; None: not known."""

    cpu_milli: int | None = None
    """Part of the time (thousandths) in which the CPUs that jobs may use were busy."""
    memory_milli: int | None = None
    """Part of the memory that no program could be given at present."""
    network_bps: int | None = None
    """Bits a second over its network cards, both ways."""


class NodeFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Figures for people and metrics, which the log does not keep: what decides of them becomes events of their own."""

    devices: tuple[DeviceFigures, ...] = ()
    replicas: tuple[ReplicaUse, ...] = ()
    notes: tuple[str, ...] = ()
    """What cannot be measured at present, and why."""
    host: HostFigures | None = None
    new_devices: int = 0
    """Devices of the machine that the node does not offer: they came later."""


class NodeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a node's agent.

    `seq` grows with every message of one incarnation: a message no newer than the last one changes nothing.
    `replicas` is complete when `inventory` is set: a replica that is not listed does not exist.
    """

    node: NodeName
    incarnation: Incarnation
    seq: int
    inventory: bool
    replicas: tuple[ReplicaSeen, ...] = ()
    progress: tuple[ProgressSeen, ...] = ()
    inspected: tuple[ReplicaInspected, ...] = ()
    """Sights of replicas that the server asked about."""
    check: NodeCheck | None = None
    others: OthersLoad | None = None
    """What programs hold that Penstock did not place; None: as before."""
    faults: tuple[DeviceFault, ...] | None = None
    """Every device that must not be given out, in each report of an agent that watches its devices: a closed device
    that is not among them has no fault any more. None: as before."""
    instances: tuple[DeviceInstances, ...] | None = None
    """The MIG instances of each device that can be divided, ascending by index; None: as before, or not yet known."""
    figures: NodeFigures | None = None
    """Now and then."""
    power_limit_mw: int | None = None
    """In an inventory: to what it keeps the power of its devices, as it was ordered last; 0: to nothing. None: it has
    no devices whose power it could limit."""
    disk_problem: str = ""
    """Why its disk takes nothing: then nothing starts there."""
    leaving: bool = False
    """The agent is shutting down: with an inventory without live replicas this is its last report."""


SHUT_DOWN = "its node was shut down"
