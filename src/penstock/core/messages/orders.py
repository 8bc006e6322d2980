"""Orders to the agents of nodes."""

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.batching import BatchChoice
from penstock.core.model.containers import ImageAsk
from penstock.core.model.environments import PythonSpec
from penstock.core.model.ids import Incarnation, JobId, NodeName
from penstock.core.model.jobs import CheckpointSpec, Input, Runtime, WorkloadClass
from penstock.core.model.resources import DividingStrategy, ReplicaAsk
from penstock.core.model.secrets import Secret


class Inputs(msgspec.Struct, frozen=True, omit_defaults=True):
    """All inputs of a replica, and the bounds of what its node fetches and keeps."""

    items: tuple[Input, ...]
    most_bytes: int
    """Of one input."""
    kept_bytes: int
    """Of all inputs on the node that nothing uses."""
    kept_ms: int
    """For how long one is kept that nothing uses."""
    hosts: tuple[str, ...] = ()
    """Patterns of hosts that may be asked, redirections included; empty: all."""


class StartReplica(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Start this replica unless this attempt of it was seen before. Complete: the agent needs no other source."""

    key: ReplicaKey
    incarnation: Incarnation
    command: tuple[str, ...]
    ask: ReplicaAsk
    devices: tuple[int, ...]
    env: tuple[tuple[str, str], ...]
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    node_names: tuple[str, ...]
    master_address: str
    master_port: int
    workdir: str = ""
    name: str = ""
    checkpoint: CheckpointSpec = CheckpointSpec()
    grace_ms: int = 30_000
    array_id: JobId | None = None
    array_index: int = 0
    slots: tuple[int, ...] = ()
    """For a MIG profile: the memory slice at which its instance begins on each device."""
    secrets: tuple[tuple[str, Secret], ...] = ()
    """Variables and their secrets: opened on the way to the node, and in `env` there."""
    account: str = ""
    """The account that runs the program on the machine; empty: the agent's."""
    mark: str = ""
    """Identity written into the job's folder; a folder with a different mark belongs to another job. Empty: none."""
    unmarked: bool = False
    """A folder without a mark may be the job's, from attempts under a former version."""
    mps: bool = False
    """Its fraction runs through MPS, where the node's devices have that."""
    refused: str = ""
    """Why it cannot run: the node reports this instead of starting it."""
    workload_class: WorkloadClass = "training"
    snapshot: str = ""
    """The snapshot, unpacked on the node, that it starts in; empty: `workdir`."""
    python: PythonSpec | None = None
    setup: tuple[str, ...] = ()
    image: ImageAsk | None = None
    """It runs in a container of this image."""
    container: str = ""
    """How its container is made, as the node has found out; never set by the server."""
    shown: tuple[str, ...] = ()
    """Folders that the node has made ready for it, which its container sees read-only; never set by the server."""
    preparing_limit_ms: int = 0
    """For each thing that is prepared on the node before it starts; 0: as the agent has it."""
    runtime: Runtime = ""
    object_store_bytes: int = 0
    """Of its part of the job's Ray cluster; 0: a part of its memory."""
    inputs: Inputs | None = None
    """What the node fetches before it starts."""
    environments_kept_gib: int = 0
    """What environments that nothing uses may take on the node; 0: as the agent has it."""
    batch: BatchChoice | None = None
    """The batch that the program is to run with; None: its own matter."""


class StopReplica(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Ask the replica to save and leave; kill its remaining processes after `grace_ms` (0: at once)."""

    key: ReplicaKey
    grace_ms: int
    reason: str = ""


class FreezeReplica(msgspec.Struct, frozen=True, tag=True):
    """Take all processor time from the replica; it keeps its memory."""

    key: ReplicaKey
    number: int = 0
    """Which suspension of the attempt this is."""


class ThawReplica(msgspec.Struct, frozen=True, tag=True):
    """Resume a frozen replica."""

    key: ReplicaKey


class SaveReplica(msgspec.Struct, frozen=True, tag=True):
    """Ask the program to save a checkpoint and carry on."""

    key: ReplicaKey


class ChangeBatch(msgspec.Struct, frozen=True, tag=True):
    """Tell the program the batch that it is to go on with."""

    key: ReplicaKey
    batch: BatchChoice


class InspectReplica(msgspec.Struct, frozen=True, tag=True):
    """Report what the program of this replica does: it makes no step."""

    key: ReplicaKey
    native: bool = False
    """With the names of native functions, which takes seconds."""


class CheckNode(msgspec.Struct, frozen=True, tag=True):
    """Check whether the node can be trusted with work."""

    command: str = ""
    """For /bin/sh; empty: the agent's own check."""


class LimitPower(msgspec.Struct, frozen=True, tag=True):
    """From now on each device of the node may draw this much (mW); 0: what its vendor lets it draw."""

    limit_mw: int


class DivideDevice(msgspec.Struct, frozen=True, tag=True):
    """Divide a device into MIG instances, beside what is in use. Only for agents that report instances."""

    index: int
    strategy: DividingStrategy


class Acknowledge(msgspec.Struct, frozen=True, tag=True):
    """The exit of this replica is in the log: the node may forget it."""

    key: ReplicaKey


Order = (
    StartReplica
    | StopReplica
    | FreezeReplica
    | ThawReplica
    | SaveReplica
    | ChangeBatch
    | InspectReplica
    | CheckNode
    | LimitPower
    | DivideDevice
    | Acknowledge
)


Addressed = tuple[NodeName, Order]
