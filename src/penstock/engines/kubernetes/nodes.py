"""Nodes of Kubernetes as Penstock's nodes."""

from collections.abc import Callable, Collection, Mapping

from penstock.core.config.nodes import DEVICES_PER_NODE_MAX
from penstock.core.model.cluster import DEFAULT_POOL
from penstock.core.model.cluster import NodeSpec as PenstockNode
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.model.resources import Device, Resources
from penstock.core.model.selectors import Taint
from penstock.core.model.weaker import KUBERNETES
from penstock.engines.kubernetes.amounts import CPU, MEMORY, STORAGE, BadAmount, Sums, read, sum_of
from penstock.engines.kubernetes.objects.nodes import Node
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
ZONE_LABELS = ("topology.kubernetes.io/zone",)
RACK_LABELS = ("topology.kubernetes.io/rack", "topology.k8s.aws/network-node-layer-2",
               "cloud.google.com/gce-topology-block", "network.topology.nvidia.com/spine")  # fmt: skip
SWITCH_LABELS = ("topology.kubernetes.io/switch", "nvidia.com/gpu.clique", "topology.k8s.aws/network-node-layer-3",
                 "cloud.google.com/gce-topology-subblock", "network.topology.nvidia.com/leaf")  # fmt: skip
"""Labels that name the part of the network a node is in, the first that is there counts. Sources: GPU feature
discovery (NVLink domains), AWS instance topology, GKE topology-aware placement, NVIDIA topograph."""
MEMORY_LABEL = "nvidia.com/gpu.memory"
"""In MiB, as the GPU feature discovery writes it."""
POOL_LABEL = "penstock.dev/pool"
CORDONED = Taint("node.kubernetes.io/unschedulable")
NOT_READY = Taint("node.kubernetes.io/not-ready")
KEEPING_OFF = ("NoSchedule", "NoExecute")
NAME_FIELD = "metadata.name"
"""Pods may choose nodes by it, in `matchFields`; a label of that name stands for it where one does."""
_PLAIN = frozenset((CPU, MEMORY, STORAGE))


def no_pool(labels: Mapping[str, str]) -> PoolName:
    """Return the pool of nodes where no others are declared."""
    return DEFAULT_POOL


def nothing_more(node: Node) -> Sums:
    """Return what a node has for claims where none are looked at."""
    return {}


def node_spec(
    node: Node,
    keys: Collection[str] = (),
    pool_of: Callable[[Mapping[str, str]], PoolName] = no_pool,
    offered: Callable[[Node], Sums] = nothing_more,
    engine: str = KUBERNETES,
) -> PenstockNode:
    """Return what a node offers.

    Args:
        keys: labels that some pod asks about. All others are left out: nodes that differ in their names alone are
            alike for the scheduler, and are judged once.
        pool_of: gives the pool of a node by its labels.
        offered: gives what it has for claims.
        engine: which way Penstock has to it.
    Raises: BadAmount for a quantity that cannot be read.
    """
    allocatable = sum_of((read(node.status.allocatable or node.status.capacity), offered(node)))
    labels = node.metadata.labels
    kept = {key: value for key, value in labels.items() if key in keys}
    if NAME_FIELD in keys:
        kept[NAME_FIELD] = node.metadata.name
    return PenstockNode(
        name=NodeName(node.metadata.name),
        capacity=host_of(allocatable),
        devices=_devices(allocatable, labels),
        pool=pool_of(labels),
        labels=tuple(sorted(kept.items())),
        zone=_first(labels, ZONE_LABELS),
        rack=_first(labels, RACK_LABELS),
        switch=_first(labels, SWITCH_LABELS),
        address=next((a.address for a in node.status.addresses if a.type == "InternalIP"), node.metadata.name),
        taints=taints_of(node),
        engine=engine,
    )


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def host_of(sums: Sums) -> Resources:
    """Return all amounts but those of whole devices."""
    extended = tuple(
        sorted((name, n) for name, n in sums.items() if n and name not in _PLAIN and name not in DEVICE_RESOURCES)
    )
    return Resources(sums.get(CPU, 0), sums.get(MEMORY, 0), sums.get(STORAGE, 0), extended=extended)


def device_counts(sums: Sums) -> dict[str, int]:
    """Return the number of whole devices among these amounts, by vendor."""
    found: dict[str, int] = {}
    for name, vendor in DEVICE_RESOURCES.items():
        if sums.get(name):
            found[vendor] = found.get(vendor, 0) + sums[name]
    return found


def device_names(sums: Sums) -> list[str]:
    """Return the resources among these amounts that are whole devices, as pods name them."""
    return [name for name in DEVICE_RESOURCES if sums.get(name)]


def taints_of(node: Node) -> tuple[Taint, ...]:
    """Return the taints that keep pods off, and those that the node's controller is about to set."""
    found = {Taint(t.key, t.value, t.effect) for t in node.spec.taints if t.effect in KEEPING_OFF}  # type: ignore[arg-type]
    if node.spec.unschedulable:
        found.add(CORDONED)
    if any(one.type == "Ready" and one.status != "True" for one in node.status.conditions):
        found.add(NOT_READY)
    return tuple(sorted(found))


def _devices(allocatable: Sums, labels: Mapping[str, str]) -> tuple[Device, ...]:
    found: list[Device] = []
    counts = device_counts(allocatable)
    if sum(counts.values()) > DEVICES_PER_NODE_MAX:
        raise BadAmount(f"{sum(counts.values()):,} devices on one node, at most {DEVICES_PER_NODE_MAX:,} are believed")
    for vendor, count in counts.items():
        product = _first(labels, PRODUCT_LABELS) or vendor
        model = plain_model(product)
        known = known_of(model)
        said = labels.get(MEMORY_LABEL, "")
        memory = int(said) * 2**20 if said.isdecimal() else known.memory_gib * GIB if known else 0
        capability = known.capability if known else (0, 0)
        found += [Device(len(found) + i, vendor, model, memory, capability) for i in range(count)]
    return tuple(found)
