"""Persistent volumes, claims to them, and what says where they can be."""

import msgspec

from penstock.engines.kubernetes.objects.claims import ClaimSpec
from penstock.engines.kubernetes.objects.common import LabelSelector, Metadata, Wire
from penstock.engines.kubernetes.objects.pods import NodeSelector

Quantity = str | int | float


class ClaimState(Wire, frozen=True):
    phase: str = ""


class VolumeClaim(Wire, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata = Metadata()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimState = ClaimState()

    @property
    def key(self) -> tuple[str, str]:
        return self.metadata.namespace, self.metadata.name

    @property
    def leaving(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class ClaimRef(Wire, frozen=True):
    """The claim that a volume is bound to, or kept for; without uid any claim of the name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class CsiSource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class InTreeSource(Wire, frozen=True):
    """A disk of a plugin that was part of Kubernetes: a CSI driver has taken it over."""


class VolumeSpec(Wire, frozen=True):
    capacity: dict[str, Quantity] = {}
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    storage_class_name: str = ""
    claim_ref: ClaimRef | None = None
    node_affinity: VolumeAffinity | None = None
    csi: CsiSource | None = None
    aws_elastic_block_store: InTreeSource | None = None
    azure_disk: InTreeSource | None = None
    gce_persistent_disk: InTreeSource | None = None
    cinder: InTreeSource | None = None
    vsphere_volume: InTreeSource | None = None


class Volume(Wire, frozen=True):
    """A PersistentVolume."""

    metadata: Metadata = Metadata()
    spec: VolumeSpec = VolumeSpec()
    status: ClaimState = ClaimState()

    @property
    def name(self) -> str:
        return self.metadata.name


class TopologyRule(Wire, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Wire, frozen=True):
    match_label_expressions: tuple[TopologyRule, ...] = ()


class StorageClass(Wire, frozen=True):
    metadata: Metadata = Metadata()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class DriverLimit(Wire, frozen=True):
    count: int | None = None


class NodeDriver(Wire, frozen=True):
    name: str = ""
    allocatable: DriverLimit | None = None


class CsiNodeSpec(Wire, frozen=True):
    drivers: tuple[NodeDriver, ...] | None = None


class CsiNode(Wire, frozen=True):
    """Which drivers a node has, and how many volumes of each it can hold."""

    metadata: Metadata = Metadata()
    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(Wire, frozen=True):
    storage_capacity: bool = False
    """Its provisioner publishes where how much room is left."""


class CsiDriver(Wire, frozen=True):
    metadata: Metadata = Metadata()
    spec: CsiDriverSpec = CsiDriverSpec()


class StorageCapacity(Wire, frozen=True):
    """How much room a class has on some nodes (CSIStorageCapacity)."""

    metadata: Metadata = Metadata()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    """None: on no node."""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = msgspec.field(name="maximumVolumeSize", default=None)
