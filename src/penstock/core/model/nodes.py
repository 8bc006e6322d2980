"""What a node has, and what others hold of it. Agents load this, and nothing of the cluster that is declared."""

import msgspec

from penstock.core.model.affinity import Repels, Tally
from penstock.core.model.ids import DEFAULT_POOL, NodeName, PoolName
from penstock.core.model.resources import Device, Resources
from penstock.core.model.selectors import Taint


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
    taints: tuple[Taint, ...] = ()
    """Ascending."""
    storage: str = ""
    """On which storage the folders of its jobs lie: nodes of equal text reach each other's. Empty: the server's data
    folder."""
    at: str = ""
    """Where it is, for people, where it is another machine than the server's."""
    engine: str = ""
    """What has brought it, such as `ray` (`core/model/weaker.py`); empty: an agent that people start."""


class DeviceFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device that a node finds at fault: it must not be given out."""

    index: int
    code: str
    """Stable name of what is wrong, such as `xid` or `ecc_uncorrectable`; `lost`: the device does not answer."""
    text: str = ""
    """The same for people, with the numbers, such as `Xid 79: GPU has fallen off the bus`."""
    number: int | None = None
    """The vendor's own number of the error, where it has one."""


class DeviceUser(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process on a device that Penstock did not start."""

    index: int
    pid: int
    user: str = ""
    """Account on the machine; empty where that cannot be seen."""
    program: str = ""


class HostLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a node's host is really used, beside what its jobs have been given: what placement by `host_load` goes by.

    Amounts are thousandths of all that the node has, in steps of 100; below 0 where its jobs use less than they asked
    for.
    """

    cpu_milli: int = 0
    """CPUs in use beyond those that are given out."""
    memory_milli: int = 0
    """The same of memory."""
    bandwidth_milli: int = 0
    """The same of network bandwidth."""
    performance: int = 10
    """Points for past performance, 0 to 10: 10 where no replica there ended by the node's fault lately."""

    @property
    def key(self) -> tuple[int, ...]:
        """The same as numbers; empty where nothing is known."""
        found = (self.cpu_milli, self.memory_milli, self.bandwidth_milli, self.performance)
        return () if found == (0, 0, 0, 10) else found


class DeviceOpening(msgspec.Struct, frozen=True):
    """A device that was opened by rule: one that is closed again soon stays closed for longer."""

    index: int
    uuid: str
    closures: int
    opened_ms: int


class DeviceInstances(msgspec.Struct, frozen=True):
    """The MIG instances that are on a device, whether or not anything runs in them."""

    index: int
    instances: tuple[tuple[str, int], ...]
    """Profile and first memory slice of each, ascending by slice."""


class OthersLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node gives to programs that Penstock did not place, such as pods of another scheduler."""

    host: Resources = Resources()
    devices: tuple[int, ...] = ()
    """Indexes of devices that they hold whole, ascending."""
    selected: Tally = ()
    """How many of them each selector in use selects."""
    repels: tuple[Repels, ...] = ()
    """Whom their rules keep off this node, or its domain; ascending."""
    users: tuple[DeviceUser, ...] = ()
    """Who they are, where that is seen; of each account and program on a device one process."""
