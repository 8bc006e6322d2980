"""What the driver says of a Ray cluster, what it is asked to do, and what is known of the nodes made of it."""

from typing import Literal, NamedTuple

import msgspec

HolderState = Literal["asked", "ready", "failed"]


class Amounts(msgspec.Struct, frozen=True):
    """Resources as Ray counts them, whole ones."""

    cpus: int = 0
    gpus: int = 0
    memory_bytes: int = 0


class FoundAgent(msgspec.Struct, frozen=True):
    """An agent of this server on a machine, whatever Ray node it was started for."""

    name: str
    node: str
    """The Ray node that it was started for, or that took it over."""
    lives: bool
    amounts: Amounts
    devices: tuple[int, ...] = ()


class Holder(msgspec.Struct, frozen=True):
    """The actor that holds resources on one Ray node."""

    state: HolderState
    since_s: float = 0.0
    """When it came into this state, by the driver's monotonic clock."""
    text: str = ""
    """Why it failed."""
    amounts: Amounts = Amounts()
    devices: tuple[int, ...] = ()
    """Numbers of the GPUs that Ray gave it."""
    agents: tuple[FoundAgent, ...] = ()
    busy: bool = False
    """It is starting or ending an agent."""


class RayNode(msgspec.Struct, frozen=True):
    """A node as Ray shows it."""

    id: str
    alive: bool
    host: str = ""
    address: str = ""
    total: Amounts = Amounts()
    free: Amounts = Amounts()
    reason: str = ""
    """Why it is dead."""
    draining_until_ms: int = 0
    """Unix time by which it will be gone; 0: it is not drained."""
    answers: bool = True
    """Its raylet accepts connections."""
    holder: Holder | None = None


class Seen(msgspec.Struct, frozen=True, tag=True):
    """The cluster at one moment."""

    cluster: str
    """Another one after each new start of its head without a store."""
    now_s: float
    """The driver's monotonic clock."""
    nodes: tuple[RayNode, ...] = ()


class Trouble(msgspec.Struct, frozen=True, tag=True):
    """The driver could not do its work, and ends."""

    text: str


Said = Seen | Trouble


class Hold(msgspec.Struct, frozen=True, tag=True):
    """Make the holder of a Ray node."""

    node: str
    amounts: Amounts


class Release(msgspec.Struct, frozen=True, tag=True):
    """End the holder of a Ray node, and the agent that runs for that node."""

    node: str


class StartAgent(msgspec.Struct, frozen=True, tag=True):
    """Let the holder start an agent, or start it again, or take over one that lives."""

    node: str
    name: str
    amounts: Amounts
    devices: tuple[int, ...]
    bundle: str = ""
    """A secret; empty: the agent has joined before."""


class StopAgent(msgspec.Struct, frozen=True, tag=True):
    """Let the holder end an agent on its machine."""

    node: str
    name: str


class CapacityRequest(msgspec.Struct, frozen=True, tag=True):
    """Ask Ray's autoscaler for a cluster with room for all of these; none: nothing is asked for any more."""

    bundles: tuple[Amounts, ...] = ()


Ask = Hold | Release | StartAgent | StopAgent | CapacityRequest


class Going(NamedTuple):
    """Close a node to new work; with a deadline (unix ms) its jobs are asked to save and move."""

    name: str
    deadline_ms: int | None
    reason: str


class Open(NamedTuple):
    """Open a node that `Going` closed."""

    name: str


class Join(NamedTuple):
    """Start the agent of a Ray node; it is declared first."""

    node: RayNode
    name: str
    amounts: Amounts
    devices: tuple[int, ...]
    again: bool = False
    """It has joined before."""


class Adopt(NamedTuple):
    """Let a living agent be that of another Ray node of its machine."""

    node: RayNode
    name: str
    amounts: Amounts
    devices: tuple[int, ...]


class Forget(NamedTuple):
    """A node will not come back under this name."""

    name: str


Action = Ask | Going | Open | Join | Adopt | Forget


class KnownNode(NamedTuple):
    """A declared node of this engine, as the server has it."""

    name: str
    connected: bool
    lost: bool
    """By its lease, or it was never seen."""
    idle_s: float
    """For how long nothing has run on it; 0 where something does."""
    closed: str
    """Why it was closed by `Going`; '' where it was not."""
