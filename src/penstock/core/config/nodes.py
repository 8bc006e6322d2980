"""The `nodes` of a cluster file: nodes declared on this machine, with devices that may be simulated."""

from typing import Any

import msgspec

from penstock.core.config.fields import (
    NAME,
    Field,
    Section,
    cpus,
    flag,
    group,
    integer,
    label,
    note,
    number,
    pairs,
    size,
    text,
    word,
)
from penstock.core.config.reader import Reader
from penstock.core.model.cluster import DEFAULT_POOL
from penstock.core.model.ids import PoolName
from penstock.core.model.measured import POWER_MAX_MW
from penstock.core.model.resources import ISOLATION_LEVELS, Isolation

DEVICES_PER_NODE_MAX = 1_024


class VirtualNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node declared on this machine. Quantities that are 0 are taken from the machine."""

    name: str
    cpu_milli: int = 0
    memory_bytes: int = 0
    storage_bytes: int = 0
    pool: PoolName = DEFAULT_POOL
    labels: tuple[tuple[str, str], ...] = ()
    rack: str = ""
    switch: str = ""
    simulated_count: int = 0
    simulated_model: str = "SIM-80G"
    simulated_memory_bytes: int = 80 * 2**30
    simulated_mig: bool = False
    simulated_mig_mode: bool = False
    """MIG mode is on: they give out MIG instances alone."""
    simulated_links: tuple[tuple[int, ...], ...] | None = None
    """Groups of simulated devices that NVLink joins, each with each; None joins them in pairs."""
    simulated_isolation: Isolation = "cooperative"
    simulated_power_limit_mw: int = 0


def _read_links(reader: Reader, field: str, value: Any) -> tuple[tuple[int, ...], ...] | None:
    """Read groups of device indexes that NVLink joins; each device is in one group at most."""
    groups = value if isinstance(value, list) and all(isinstance(g, list) for g in value) else [[None]]
    flat = [index for group in groups for index in group]
    if not all(type(index) is int and index >= 0 for index in flat) or len(set(flat)) < len(flat):
        reader.wrong(field, value, "groups of device numbers, each in one group, as [[0, 1], [2, 3]]")
        return None
    return tuple(tuple(sorted(group)) for group in groups)


def _devices_can_be(reader: Reader, node: VirtualNode) -> None:
    if node.simulated_mig_mode and not node.simulated_mig:
        reader.wrong("simulated_devices.mig_mode", True, "true only beside mig: true")
    count = node.simulated_count
    if any(index >= count for group in node.simulated_links or () for index in group):
        links = list(map(list, node.simulated_links or ()))
        reader.wrong("simulated_devices.links", links, f"groups of device numbers below {count}")


_SIMULATED = {
    "count": integer("count", 0, DEVICES_PER_NODE_MAX, at="simulated_count"),
    "model": text("model", at="simulated_model"),
    "memory": size("memory of each device", at="simulated_memory_bytes", example="80GiB"),
    "mig": flag("MIG partitions are supported", at="simulated_mig"),
    "mig_mode": flag("MIG mode is on: they give out MIG instances alone", at="simulated_mig_mode"),
    "isolation": word(
        "strongest isolation of their fractions", ISOLATION_LEVELS[:-1], "cooperative", at="simulated_isolation"
    ),
    "power_limit": number(
        "watts that each draws at most",
        "a number of watts",
        high=POWER_MAX_MW,
        default=0,
        at="simulated_power_limit_mw",
    ),
    "links": Field(
        _read_links,
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "groups of device numbers joined by NVLink (pairs)",
        "simulated_links",
        lambda groups: [list(group) for group in groups],
    ),
}
NODE = Section(
    VirtualNode,
    {
        "name": NAME,
        "cpus": cpus("CPU cores (the machine's)", at="cpu_milli"),
        "memory": size("host memory (the machine's)", at="memory_bytes", example="16GiB"),
        "storage": size("scratch space (the machine's)", at="storage_bytes", example="100GiB"),
        "pool": label("pool", DEFAULT_POOL),
        "labels": pairs("labels"),
        "rack": note("rack"),
        "switch": note("switch"),
        "simulated_devices": group("simulated devices, marked as such everywhere", _SIMULATED),
    },
    _devices_can_be,
)
