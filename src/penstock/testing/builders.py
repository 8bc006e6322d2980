"""Builders of nodes, asks, jobs, configurations and cluster files: fields not given have common values."""

from typing import Any

from penstock.core.model.cluster import ClusterConfig, NodeSpec, Queue, Settings
from penstock.core.model.ids import NodeName, QueueName
from penstock.core.model.jobs import GangAsk, JobSpec, ReplicaPlace, Topology
from penstock.core.model.resources import Device, DeviceAsk, DeviceLink, LinkKind, ReplicaAsk, Resources

GIB = 2**30
JOB_FIELDS = frozenset(JobSpec.__struct_fields__) - {"command", "ask"}
GANG_FIELDS = ("pool", "labels_wanted", "labels_shunned", "label_terms", "tolerations")


def device(index: int, **fields: Any) -> Device:
    """Return a device: an A100 with 80 GiB unless the fields say otherwise."""
    given: dict[str, Any] = {
        "vendor": "nvidia",
        "model": "A100",
        "memory_bytes": 80 * GIB,
        "capability": (8, 0),
    } | fields
    return Device(index, **given)


def linked(index: int, kind: LinkKind, *peers: int, **fields: Any) -> Device:
    """Return a device with links of one kind to its peers."""
    return device(index, links=tuple(DeviceLink(p, kind) for p in peers if p != index), **fields)


def node(name: str = "a", devices: int | tuple[Device, ...] = 4, *, cpus: int = 16, **fields: Any) -> NodeSpec:
    """Return a node; `memory_gib` is its memory, other fields are those of `NodeSpec`."""
    own = tuple(device(i) for i in range(devices)) if isinstance(devices, int) else devices
    memory = fields.pop("memory_gib", 64) * GIB
    return NodeSpec(NodeName(name), Resources(cpus * 1000, memory), own, **fields)


def ask(devices: int = 1, replicas: int = 1, *, cpus: int = 1, memory_gib: int = 0, **fields: Any) -> GangAsk:
    """Return an ask; fields of the gang are taken by name, all others are of its devices.

    Args:
        fields: `topology` is a scope such as `node` or `rack`; with `required=False` it is a wish.
    """
    gang = {k: fields.pop(k) for k in GANG_FIELDS if k in fields}
    scope, required = fields.pop("topology", None), fields.pop("required", True)
    each = ReplicaAsk(Resources(cpus * 1000, memory_gib * GIB), DeviceAsk(devices, **fields) if devices else None)
    return GangAsk(replicas, each, topology=Topology(scope, required) if scope else None, **gang)


def job_spec(devices: int = 1, replicas: int = 1, **fields: Any) -> JobSpec:
    """Return a job; fields of the job are taken by name, all others go to `ask`; `gang` is an ask as a whole."""
    own = {k: fields.pop(k) for k in list(fields) if k in JOB_FIELDS}
    given = fields.pop("gang", None)
    return JobSpec(("true",), given or ask(devices, replicas, **fields), **own)


def queues(*names: str, **fields: Any) -> tuple[Queue, ...]:
    """Return queues that differ by their names alone."""
    return tuple(Queue(QueueName(name), **fields) for name in names)


def config(**fields: Any) -> ClusterConfig:
    """Return a configuration; all other names are settings."""
    own = {k: fields.pop(k) for k in list(fields) if k in ClusterConfig.__struct_fields__}
    return ClusterConfig(settings=Settings(**fields), **own)


def cluster_file(nodes: int = 2, devices: int = 4, **settings: Any) -> dict[str, Any]:
    """Return a cluster file of virtual nodes n1, n2, ... with simulated devices; its other sections may be added."""
    each = {"cpus": 32, "memory": "8GiB", "simulated_devices": {"count": devices}}
    return {"settings": settings, "nodes": [{"name": f"n{i + 1}", **each} for i in range(nodes)]}


def chips(*places: ReplicaPlace) -> list[tuple[str, tuple[int, ...]]]:
    """Return node and devices of places: short to compare."""
    return [(p.node, p.devices) for p in places]
