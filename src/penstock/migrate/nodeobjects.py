"""Nodes of Kubernetes (`kubectl get nodes -o yaml`) as Penstock's nodes."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from penstock.core.config.nodes import DEVICES_PER_NODE_MAX
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import NodeName
from penstock.core.model.resources import Device, Resources
from penstock.formats.devices import GIB, known_of, plain_model
from penstock.formats.quantities import kubernetes_quantity, rounded_up
from penstock.migrate.fields import Fields
from penstock.migrate.manifests import Object, device_vendor, text_pairs
from penstock.migrate.report import MigrationReport

ALIKE_MAX = 256
"""Sets of devices that are remembered: nodes that are alike share theirs."""
DEVICES_TOTAL_MAX = 200_000
"""Devices of all nodes of one import."""
CPUS_MAX = 100_000
"""As many as a cluster file takes for a node."""
PRODUCT_LABEL = "nvidia.com/gpu.product"
ZONE_LABEL = "topology.kubernetes.io/zone"


class Level(NamedTuple):
    """A level of a Topology: the node label that names it, and the field of a node that it becomes."""

    label: str
    field: str


def read_nodes(things: Sequence[Object], levels: Sequence[Level], report: MigrationReport) -> list[NodeSpec]:
    """Return the nodes. Raises: ImportFault for a node given twice, bad quantities, and above the limits."""
    found: dict[str, NodeSpec] = {}
    devices = 0
    for one in things:
        node = _node(one, levels, report)
        devices += len(node.devices)
        if node.name in found:
            raise one.place.fault("metadata.name", node.name, "each Node once")
        if devices > DEVICES_TOTAL_MAX:
            raise one.place.fault("status", devices, f"at most {DEVICES_TOTAL_MAX} devices in all nodes together")
        found[node.name] = node
    return list(found.values())


def _node(one: Object, levels: Sequence[Level], report: MigrationReport) -> NodeSpec:
    """Return a node with its capacity (`allocatable`, else `capacity`), labels and place."""
    spec = one.spec()
    spec.lost("unschedulable", "a state, not a configuration: `penstock drain NODE` closes a node")
    spec.lost("taints", "Penstock has no taints; keep such nodes in a pool of their own")
    status = one.top.inner("status")
    amounts = (status.inner("allocatable") or status.inner("capacity")) if status else None
    labels = text_pairs(one.metadata.inner("labels")) if one.metadata else ()
    by_label = dict(labels)
    places = {level.field: by_label[level.label] for level in levels if level.label in by_label}
    host, devices = _amounts(amounts, by_label.get(PRODUCT_LABEL, ""))
    report.mapped(one.place, "metadata.name", one.named(), "a node of pool 'default'")
    return NodeSpec(
        name=NodeName(one.named()),
        capacity=host,
        devices=devices,
        labels=labels,
        zone=by_label.get(ZONE_LABEL, ""),
        rack=places.get("rack", ""),
        switch=places.get("switch", ""),
    )


def _amounts(amounts: Fields | None, product: str) -> tuple[Resources, tuple[Device, ...]]:
    if amounts is None:
        return Resources(), ()
    devices: list[Device] = []
    found: dict[str, Fraction] = {}
    for resource in amounts.names():
        number = amounts.quantity(resource, kubernetes_quantity, "8 or 64Gi")
        vendor = device_vendor(resource)
        if vendor:
            devices += _devices(amounts, resource, vendor, product, first=len(devices))
        else:
            found[resource] = number
    for resource in found:
        if resource in ("cpu", "memory", "ephemeral-storage"):
            amounts.mapped(resource, "of the node's capacity")
        else:
            amounts.lost(resource, "not a resource of Penstock's nodes")
    if found.get("cpu", Fraction(0)) > CPUS_MAX:
        raise amounts.fault("cpu", f"at most {CPUS_MAX} CPUs")
    host = Resources(
        cpu_milli=rounded_up(found.get("cpu", Fraction(0)), 1000),
        memory_bytes=rounded_up(found.get("memory", Fraction(0))),
        storage_bytes=rounded_up(found.get("ephemeral-storage", Fraction(0))),
    )
    return host, tuple(devices)


def _devices(amounts: Fields, resource: str, vendor: str, product: str, *, first: int) -> list[Device]:
    count = amounts.integer(resource, 0, low=0, high=DEVICES_PER_NODE_MAX - first)
    model = plain_model(product or vendor)
    known = known_of(model)
    how = f"{count} devices of model '{model}'"
    if known is None:
        amounts.approximated(resource, f"{how}; their memory is not known and counts as 0")
    else:
        amounts.approximated(resource, f"{how}; {known.memory_gib} GiB each, as such models usually have")
    return list(_alike(count, vendor, model, first))


@lru_cache(maxsize=ALIKE_MAX)
def _alike(count: int, vendor: str, model: str, first: int) -> tuple[Device, ...]:
    known = known_of(model)
    return tuple(
        Device(
            index=first + index,
            vendor=vendor,
            model=model,
            memory_bytes=known.memory_gib * GIB if known else 0,
            capability=known.capability if known else (0, 0),
        )
        for index in range(count)
    )
