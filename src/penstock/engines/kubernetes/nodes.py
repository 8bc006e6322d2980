"""Nodes of Kubernetes as Penstock's nodes."""

from collections.abc import Collection, Mapping

from penstock.core.model.cluster import DEFAULT_POOL
from penstock.core.model.cluster import NodeSpec as PenstockNode
from penstock.core.model.ids import NodeName
from penstock.core.model.resources import Device, Resources
from penstock.core.model.selectors import Taint
from penstock.engines.kubernetes.amounts import CPU, MEMORY, STORAGE, Sums, read
from penstock.engines.kubernetes.objects import Node
from penstock.formats.devices import GIB, known_of, plain_model

DEVICE_RESOURCES: Mapping[str, str] = {
    "nvidia.com/gpu": "nvidia",
    "amd.com/gpu": "amd",
    "gpu.intel.com/xe": "intel",
    "gpu.intel.com/i915": "intel",
    "habana.ai/gaudi": "habana",
    "huawei.com/Ascend910": "ascend",
    "google.com/tpu": "google",
}
"""Extended resources that are whole devices, and their vendor. Source: the device plugins' own documents."""
PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product",
                  "cloud.google.com/gke-accelerator", "cloud.google.com/gke-tpu-accelerator")  # fmt: skip
ZONE, RACK, SWITCH = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack", "topology.kubernetes.io/switch"
MEMORY_LABEL = "nvidia.com/gpu.memory"
"""In MiB, as the GPU feature discovery writes it."""
CORDONED = Taint("node.kubernetes.io/unschedulable")
KEEPING_OFF = ("NoSchedule", "NoExecute")
NAME_FIELD = "metadata.name"
"""Pods may choose nodes by it, in `matchFields`; a label of that name stands for it where one does."""


def node_spec(node: Node, keys: Collection[str] = ()) -> PenstockNode:
    """Return what a node offers.

    Args:
        keys: labels that some pod asks about. All others are left out: nodes that differ in their names alone are
            alike for the scheduler, and are judged once.
    Raises: BadAmount for a quantity that cannot be read.
    """
    allocatable = read(node.status.allocatable or node.status.capacity)
    labels = node.metadata.labels
    kept = {key: value for key, value in labels.items() if key in keys}
    if NAME_FIELD in keys:
        kept[NAME_FIELD] = node.metadata.name
    return PenstockNode(
        name=NodeName(node.metadata.name),
        capacity=host_of(allocatable),
        devices=_devices(allocatable, labels),
        pool=DEFAULT_POOL,
        labels=tuple(sorted(kept.items())),
        zone=labels.get(ZONE, ""),
        rack=labels.get(RACK, ""),
        switch=labels.get(SWITCH, ""),
        address=next((a.address for a in node.status.addresses if a.type == "InternalIP"), node.metadata.name),
        taints=taints_of(node),
    )


def host_of(sums: Sums) -> Resources:
    """Return the amounts that every node has."""
    return Resources(sums.get(CPU, 0), sums.get(MEMORY, 0), sums.get(STORAGE, 0))


def device_count(sums: Sums) -> tuple[str, int]:
    """Return the vendor and number of the devices among these amounts; ('', 0) without any."""
    return next(((vendor, sums[name]) for name, vendor in DEVICE_RESOURCES.items() if sums.get(name)), ("", 0))


def other_resources(sums: Sums) -> list[str]:
    """Return the resources among these amounts that Penstock does not count yet."""
    counted = {CPU, MEMORY, STORAGE, "pods", *DEVICE_RESOURCES}
    return sorted(name for name, number in sums.items() if number and name not in counted)


def taints_of(node: Node) -> tuple[Taint, ...]:
    """Return the taints that keep pods off; a cordoned node has one for that before its controller sets it."""
    found = {Taint(t.key, t.value, t.effect) for t in node.spec.taints if t.effect in KEEPING_OFF}  # type: ignore[arg-type]
    if node.spec.unschedulable:
        found.add(CORDONED)
    return tuple(sorted(found))


def _devices(allocatable: Sums, labels: Mapping[str, str]) -> tuple[Device, ...]:
    vendor, count = device_count(allocatable)
    product = next((labels[name] for name in PRODUCT_LABELS if labels.get(name)), vendor)
    model = plain_model(product)
    known = known_of(model)
    said = labels.get(MEMORY_LABEL, "")
    memory = int(said) * 2**20 if said.isdecimal() else known.memory_gib * GIB if known else 0
    capability = known.capability if known else (0, 0)
    return tuple(Device(i, vendor, model, memory, capability) for i in range(count))
