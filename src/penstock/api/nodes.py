"""Nodes and their devices as the API shows them."""

import msgspec


class ClosureView(msgspec.Struct, frozen=True):
    """Why a device gets no new work."""

    code: str
    """Of its fault, such as `xid`; `closed` where a user closed it without one."""
    reason: str
    since_ms: int
    by: str
    """The user who closed it; `penstock`: its node found it at fault."""
    closures: int
    """How often it was closed for its faults lately, this time included."""
    fault: bool = True
    """Whether its node still reports the fault, or has not reported since it came back."""
    opens_ms: int = 0
    """When it is opened by rule if no fault is reported until then; 0: not by rule, or not yet known."""


class DeviceUserView(msgspec.Struct, frozen=True):
    """A process on a device that Penstock did not start; of each program of an account one."""

    pid: int
    user: str
    """Account on the machine; empty where that cannot be seen."""
    program: str


class MigInstanceView(msgspec.Struct, frozen=True):
    """A MIG instance of a device."""

    profile: str
    start: int
    """Its first memory slice."""
    held: bool
    """Whether a job has it; else it is idle, for the next job that asks for its profile."""


class DeviceView(msgspec.Struct, frozen=True):
    index: int
    vendor: str
    model: str
    memory_bytes: int
    simulated: bool
    job: int | None
    """The holder, where the caller may see that job."""
    held: bool = False
    healthy: bool = True
    mig: bool = False
    """It may be cut into MIG instances."""
    isolation: str = "none"
    """The strongest level that fractions of it reach in this pool; MIG instances reach `hardware`."""
    promised_bytes: int = 0
    """Of its memory, to the fractions that hold it; more than it has where its pool oversubscribes memory."""
    closed: ClosureView | None = None
    """While it is closed; it is not healthy then."""
    taken: bool = False
    """Programs that Penstock did not start use it: no job gets it until they have left."""
    users: list[DeviceUserView] = []
    """These programs, where they are known and the caller may see names of other users (`holders_shown`)."""
    mig_mode: bool = False
    """MIG mode is on: it gives out MIG instances alone."""
    instances: list[MigInstanceView] = []
    """The MIG instances that are on it, or that jobs have and its node is about to make; by start."""


class DeviceAnswer(msgspec.Struct, frozen=True):
    """A device that was closed or opened, as it is now."""

    node: str
    device: DeviceView
    note: str = ""
    """What to know about it: a fault that is still reported closes the device again."""


class NotPromisedView(msgspec.Struct, frozen=True):
    """Something that holds on nodes of Penstock's own agents, and not, or not in full, on this one."""

    name: str
    text: str


class NodeView(msgspec.Struct, frozen=True):
    name: str
    state: str
    draining: bool
    drain_reason: str
    virtual: bool
    pool: str
    cpu_milli: int
    cpu_held_milli: int
    memory_bytes: int
    memory_held_bytes: int
    devices: list[DeviceView]
    jobs: list[int]
    connected: bool
    shut_to: list[str] = []
    """Tenants that get no new work there, for what their jobs claimed of it: those that the caller sees."""
    labels: dict[str, str] = {}
    zone: str = ""
    rack: str = ""
    switch: str = ""
    links: dict[str, list[list[int]]] = {}
    """Devices joined by links of a kind (`nvlink`, `pcie`, `numa`) or a closer one: groups of indexes, of two or more.
    Kinds that are not known, or join the same devices as a closer kind, are left out."""
    host_points: str = ""
    """Its points for work without devices, as it is now, and what they are for; where its pool goes by `host_load`,
    and not in lists."""
    at: str = ""
    """Where it is, where that is another machine than the server's; for those who see all of the cluster."""
    address: str = ""
    """By which the other nodes reach it; for the same."""
    leaves_ms: int = 0
    """When its jobs have to have left it, for it is lent for a time (unix ms); 0: it stays."""
    engine: str = ""
    """What has brought it: `ray`, `slurm` (lent by Slurm), `slurm-passed`, `slurm-shadow`, `kubernetes`,
    `kubernetes-shadow`; empty: an agent that people start."""
    not_promised: list[NotPromisedView] = []
    """What cannot be promised there, unlike on nodes of Penstock's own agents on the server's machine."""
