"""Nodes and their devices as the API shows them."""

import msgspec


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
