"""Events about nodes: they come, are lost, closed, struck, shut to a tenant, and checked."""

from penstock.core.model.event import Event
from penstock.core.model.ids import Incarnation, JobId, NodeName, TenantName, UserName
from penstock.core.model.nodes import DeviceInstances, HostLoad, NodeSpec, OthersLoad


class NodeRegistered(Event, tag=True, frozen=True, omit_defaults=True):
    """A node's agent introduced itself. The node gets no work before `NodeReady`."""

    spec: NodeSpec
    incarnation: Incarnation


class NodeReady(Event, tag=True, frozen=True, omit_defaults=True):
    """The node showed that nothing runs there which should not."""

    node: NodeName


class NodeLost(Event, tag=True, frozen=True, omit_defaults=True):
    """The node's lease ran out: by now it has ended its own processes, so its work may start elsewhere."""

    node: NodeName
    reason: str
    heard_ms: int = 0
    """When the server last heard of it (unix ms): the failure is not earlier. 0: not known."""


class NodeRemoved(Event, tag=True, frozen=True, omit_defaults=True):
    """A lost node is no longer listed: what had lent it is over, and no attempt has a place there.

    If a node of this name registers later, it is a new one.
    """

    node: NodeName
    reason: str


class NodeDrainChanged(Event, tag=True, frozen=True, omit_defaults=True):
    """A node was closed to new work, or opened again."""

    node: NodeName
    draining: bool
    by: UserName
    reason: str = ""
    evict_at_ms: int = 0
    """Work that still runs there then is asked to move (unix ms); 0: never."""


class NodeStruck(Event, tag=True, frozen=True, omit_defaults=True):
    """A sign that a node fails."""

    node: NodeName
    text: str
    job_id: JobId | None = None
    own: bool = False
    """Reported by the node itself; else a claim: the output of a program. Without a job it is always the node's."""
    tenant: TenantName = TenantName("")
    """Tenant and user of the job."""
    user: UserName = UserName("")


class OthersLoadChanged(Event, tag=True, frozen=True, omit_defaults=True):
    """Programs that Penstock did not place hold another part of a node than before."""

    node: NodeName
    load: OthersLoad


class NodeLeaveNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """It is known when a node will go: others have lent it for a time."""

    node: NodeName
    leaves_ms: int
    """By then its jobs have to have left it (unix ms); 0: it stays."""
    stays_ms: int = 0
    """How long such a node stays in all: the longest that a job can be there at a time."""


class HostLoadNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """The CPUs, memory or bandwidth of a node are used otherwise than noted before, or its past performance differs.

    Only of nodes in pools whose placement is `host_load`.
    """

    node: NodeName
    load: HostLoad


class DeviceClosed(Event, tag=True, frozen=True, omit_defaults=True):
    """A device gets no new work: its node found a fault, which is new or came back, or a user closed it."""

    node: NodeName
    index: int
    code: str
    reason: str
    by: UserName
    closures: int = 1
    """How often it was closed for its faults lately, this time included."""


class DeviceCleared(Event, tag=True, frozen=True, omit_defaults=True):
    """The node of a closed device does not report its fault any more."""

    node: NodeName
    index: int


class DeviceOpened(Event, tag=True, frozen=True, omit_defaults=True):
    """A device that was closed may be given to jobs again."""

    node: NodeName
    index: int
    by: UserName
    reason: str = ""


class InstancesChanged(Event, tag=True, frozen=True, omit_defaults=True):
    """The MIG instances on the devices of a node are others than before, or known for the first time."""

    node: NodeName
    instances: tuple[DeviceInstances, ...]


class NodeShut(Event, tag=True, frozen=True, omit_defaults=True):
    """A node takes no new work of a tenant, whose jobs claimed too often that it fails."""

    node: NodeName
    tenant: TenantName
    reason: str


class NodeChecked(Event, tag=True, frozen=True, omit_defaults=True):
    """An open node was checked because of claims; if it passes, they are cleared and it is open to all tenants."""

    node: NodeName
    passed: bool
    text: str = ""
    """The failure that the check found."""
