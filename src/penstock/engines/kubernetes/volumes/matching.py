"""The rules: which nodes reach a volume, which volumes a claim may get, where a class can make one.

Everything is pure. Sources: https://kubernetes.io/docs/concepts/storage/persistent-volumes/, .../storage-classes/ and
.../storage-capacity/, and the plugins volumebinding and volumezone of kube-scheduler.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from penstock.core.model.selectors import LabelRule, LabelTerms, accepted
from penstock.engines.kubernetes.amounts import BadAmount, amount
from penstock.engines.kubernetes.asks import NOWHERE, all_of, terms_of
from penstock.engines.kubernetes.nodes import NAME_FIELD
from penstock.engines.kubernetes.objects.claims import ClaimSpec
from penstock.engines.kubernetes.objects.common import LabelSelector, Requirement
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import NodeSelectorTerm
from penstock.engines.kubernetes.objects.volumes import (
    Quantity,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeClaim,
)

BOUND_ANNOTATION = "pv.kubernetes.io/bind-completed"
BY_CONTROLLER_ANNOTATION = "pv.kubernetes.io/bound-by-controller"
SELECTED_ANNOTATION = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAITS = "WaitForFirstConsumer"
ALONE = "ReadWriteOncePod"
ZONES: Mapping[str, str] = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of volumes that name where they are, and the label of nodes that says the same."""
SIZES_KNOWN_MAX = 1_000
PINS = ("kubernetes.io/hostname", NAME_FIELD)
"""By these a rule names single nodes."""
MIGRATED: Mapping[str, str] = {
    "aws_elastic_block_store": "ebs.csi.aws.com",
    "azure_disk": "disk.csi.azure.com",
    "gce_persistent_disk": "pd.csi.storage.gke.io",
    "cinder": "cinder.csi.openstack.org",
    "vsphere_volume": "csi.vsphere.vmware.com",
}
"""Sources of volumes whose plugin has left Kubernetes, and the driver that serves them."""
PROVISIONERS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
"""The same for provisioners of classes."""


def bytes_of(quantity: Quantity | None) -> int:
    """Return a size in bytes; 0 for one that is absent, or that cannot be read."""
    return _bytes_in(str(quantity)) if quantity is not None else 0


@lru_cache(SIZES_KNOWN_MAX)
def _bytes_in(quantity: str) -> int:
    try:
        return amount("storage", quantity)
    except BadAmount:
        return 0


def size_of(claim: ClaimSpec) -> int:
    """Return how many bytes a claim asks for."""
    return bytes_of(claim.resources.requests.get("storage"))


def room_in(volume: Volume) -> int:
    """Return how many bytes a volume has."""
    return bytes_of(volume.spec.capacity.get("storage"))


def is_bound(claim: VolumeClaim) -> bool:
    """Return whether a claim has its volume, and nobody will give it another."""
    return bool(claim.spec.volume_name) and BOUND_ANNOTATION in claim.metadata.annotations


def is_kept_for(volume: Volume, claim: VolumeClaim) -> bool:
    """Return whether a volume names a claim as the one that it is for."""
    ref = volume.spec.claim_ref
    return ref is not None and (ref.namespace, ref.name) == claim.key and ref.uid in ("", claim.metadata.uid)


# Where a volume is.


def reach_of(volume: Volume) -> LabelTerms:
    """Return the nodes that reach a volume: by its node affinity, and by labels that name its zone."""
    affinity = volume.spec.node_affinity
    terms: LabelTerms = ()
    if affinity is not None and affinity.required is not None:
        terms = terms_of(affinity.required.node_selector_terms)
    return all_of(terms, _zoned(volume.metadata.labels))


def _zoned(labels: Mapping[str, str]) -> LabelTerms:
    """Return the nodes of the zones that a volume's labels name; in a cluster without zones nodes name none."""
    found: dict[str, LabelRule] = {}
    for key, node_key in ZONES.items():
        if key in labels and node_key not in found:
            found[node_key] = LabelRule(node_key, "in", tuple(sorted(labels[key].split("__"))))
    if not found:
        return ()
    nowhere = tuple(LabelRule(key, "not_exists") for key in sorted(set(ZONES.values())))
    return (tuple(found.values()), nowhere)


def labels_of(node: Node) -> dict[str, str]:
    """Return what rules see of a node."""
    return {**node.metadata.labels, NAME_FIELD: node.metadata.name}


def reaches(node: Node, volume: Volume) -> bool:
    return accepted(reach_of(volume), labels_of(node))


def names_of(node: Node) -> set[str]:
    """Return the names by which a volume's affinity may name a node."""
    return {node.metadata.name, node.metadata.labels.get(PINS[0], node.metadata.name)}


def pin_of(volume: Volume) -> str:
    """Return the node that a volume's affinity names, where it names one alone; else ''."""
    return pin_in(reach_of(volume))


def pin_in(terms: LabelTerms) -> str:
    """Return the node that terms name, where they name one alone; else ''."""
    rules = [rule for rule in terms[0] if rule.key in PINS and rule.operator == "in"] if len(terms) == 1 else []
    return rules[0].values[0] if rules and len(rules[0].values) == 1 else ""


def any_of(many: Iterable[LabelTerms]) -> LabelTerms:
    """Return the nodes that one of these accepts; none of them at all accept no node.

    Alternatives that differ in the values of one label become one: a class may have a volume on each of 5,000 nodes.
    """
    joined: dict[tuple[str, tuple[LabelRule, ...]], dict[str, None]] = {}
    others: dict[tuple[LabelRule, ...], None] = {}
    for terms in many:
        if not terms:
            return ()
        for term in terms:
            told = next((rule for rule in term if rule.operator == "in" and (rule.key in PINS or len(term) == 1)), None)
            if told is None:
                others[term] = None
            else:
                rest = tuple(rule for rule in term if rule is not told)
                joined.setdefault((told.key, rest), {}).update(dict.fromkeys(told.values))
    whole = (
        (LabelRule(key, "in", tuple(sorted(found))), *rest) for (key, rest), found in sorted(joined.items(), key=str)
    )
    return (*whole, *others) or NOWHERE


# Which volume a claim may get.


def is_free(volume: Volume) -> bool:
    """Return whether nobody has a volume, or is to get it."""
    there = volume.metadata.deletion_timestamp is None and volume.status.phase == "Available"
    return there and volume.spec.claim_ref is None


def may_get(volume: Volume, claim: ClaimSpec) -> bool:
    """Return whether a volume satisfies a claim, wherever it is."""
    spec = volume.spec
    return (
        is_free(volume)
        and spec.storage_class_name == (claim.storage_class_name or "")
        and spec.volume_mode == claim.volume_mode
        and set(claim.access_modes) <= set(spec.access_modes)
        and room_in(volume) >= size_of(claim)
        and (claim.selector is None or claim.selector.selects(volume.metadata.labels))
    )


def fits_kept(volume: Volume, claim: ClaimSpec) -> bool:
    """Return whether a volume that is kept for a claim is one that it can use."""
    return (
        volume.metadata.deletion_timestamp is None
        and volume.spec.volume_mode == claim.volume_mode
        and room_in(volume) >= size_of(claim)
    )


def smallest(volumes: Iterable[Volume]) -> Volume | None:
    """Return the volume that wastes least; of equals the first by name."""
    return min(volumes, key=lambda one: (room_in(one), one.name), default=None)


# Where a class makes volumes.


def allowed_by(found: StorageClass) -> LabelTerms:
    """Return the nodes for which a class makes volumes."""
    terms: list[LabelTerms] = []
    for term in found.allowed_topologies or ():
        rules = tuple(LabelRule(one.key, "in", tuple(sorted(one.values))) for one in term.match_label_expressions)
        if rules:
            terms.append((rules,))
    return any_of(terms) if terms else ()


def roomy_of(capacities: Iterable[StorageCapacity], size: int) -> LabelTerms:
    """Return the nodes for which a class has room for a volume of so many bytes."""
    return any_of(
        _selected(one.node_topology) for one in capacities if one.node_topology is not None and size <= _most(one)
    )


def _most(one: StorageCapacity) -> int:
    return bytes_of(one.capacity if one.maximum_volume_size is None else one.maximum_volume_size)


def _selected(selector: LabelSelector) -> LabelTerms:
    wanted = tuple(Requirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items()))
    rules = (*wanted, *selector.match_expressions)
    return terms_of((NodeSelectorTerm(rules),)) if rules else ()


# Limits.


def driver_of(volume: Volume) -> tuple[str, str]:
    """Return the CSI driver of a volume, and its name there; ('', '') where it has none."""
    if volume.spec.csi is not None:
        return volume.spec.csi.driver, volume.spec.csi.volume_handle or volume.name
    found = next((name for field, name in MIGRATED.items() if getattr(volume.spec, field) is not None), "")
    return found, volume.name if found else ""


def driver_of_class(found: StorageClass) -> str:
    """Return the CSI driver whose volumes a class makes; '' for a class that makes none."""
    name = PROVISIONERS.get(found.provisioner, found.provisioner)
    return "" if name == NO_PROVISIONER else name
