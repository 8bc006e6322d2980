"""Copies of claims, volumes, classes, and what drivers say of nodes; and what of them touches which claims."""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from penstock.core.model.selectors import LabelTerms, accepted
from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.api.reflector import ChangeSink, Reflector
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.volumes import (
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeClaim,
)
from penstock.engines.kubernetes.volumes.matching import is_free, labels_of, names_of, pin_in, reach_of

CLAIMS = Kind("", "v1", "persistentvolumeclaims")
VOLUMES = Kind("", "v1", "persistentvolumes", namespaced=False)
CLASSES = Kind("storage.k8s.io", "v1", "storageclasses", namespaced=False)
CSI_NODES = Kind("storage.k8s.io", "v1", "csinodes", namespaced=False)
CSI_DRIVERS = Kind("storage.k8s.io", "v1", "csidrivers", namespaced=False)
CAPACITIES = Kind("storage.k8s.io", "v1", "csistoragecapacities")

Shelf = TypeVar("Shelf", str, LabelTerms)
ClaimKey = tuple[str, str]
"""Namespace and name."""


class Heard(NamedTuple):
    """What hears of changes; every call on the loop, none may wait."""

    claim: Callable[[VolumeClaim], None]
    """A claim has changed, or is gone."""
    volume: Callable[[Volume | None, Volume | None], None]
    """A volume as it was and as it is; None: it was not there, or is gone."""
    storage_class: Callable[[str], None]
    """Where volumes of this class can be may have changed; '': of any class."""
    node: Callable[[str], None]
    """What drivers say of this node has changed."""
    listed: Callable[[], None]


class VolumeView:
    """The copies."""

    def __init__(self, client: Client, heard: Heard, draw: random.Random | None = None) -> None:
        self._heard = heard
        self._pinned: dict[str, dict[str, dict[str, Volume]]] = {}
        """Volumes that one node alone reaches, by class and that node."""
        self._shared: dict[str, dict[LabelTerms, dict[str, Volume]]] = {}
        """Volumes that more nodes reach, by class and these nodes: many have the same ones."""
        self._reaches: dict[str, LabelTerms] = {}
        """Which nodes reach each volume, by its name."""
        self._changes: dict[str, int] = {}
        """How often volumes of a class have changed."""
        self._free: dict[str, dict[str, Volume]] = {}
        """Volumes that nobody has, by class."""
        self._of_claim: dict[ClaimKey, dict[str, Volume]] = {}
        """Volumes by the claim that they name."""
        self._rooms: dict[str, dict[tuple[str, str], StorageCapacity]] = {}
        """By class."""

        def following(kind: Kind, into: type[Any], changed: Callable[[Any, Any], None]) -> Reflector[Any]:
            return Reflector(client, kind, into, ChangeSink(changed, heard.listed), draw=draw)

        self.claims: Reflector[VolumeClaim] = following(CLAIMS, VolumeClaim, lambda old, new: heard.claim(new or old))
        self.volumes: Reflector[Volume] = following(VOLUMES, Volume, self._volume)
        self.classes: Reflector[StorageClass] = following(
            CLASSES, StorageClass, lambda old, new: heard.storage_class((new or old).metadata.name)
        )
        self.csi_nodes: Reflector[CsiNode] = following(
            CSI_NODES, CsiNode, lambda old, new: heard.node((new or old).metadata.name)
        )
        self.drivers: Reflector[CsiDriver] = following(CSI_DRIVERS, CsiDriver, lambda old, new: heard.storage_class(""))
        self.capacities: Reflector[StorageCapacity] = following(CAPACITIES, StorageCapacity, self._capacity)

    @property
    def _all(self) -> tuple[Reflector[Any], ...]:
        return self.claims, self.volumes, self.classes, self.csi_nodes, self.drivers, self.capacities

    @property
    def whole(self) -> bool:
        return all(one.whole or one.denied for one in self._all)

    @property
    def denied(self) -> str:
        """Which of the kinds without which nothing can be said of a claim may not be read; '' if all may."""
        needed = (("persistentvolumeclaims", self.claims), ("persistentvolumes", self.volumes),
                  ("storageclasses", self.classes))  # fmt: skip
        return ", ".join(name for name, one in needed if one.denied and not one.whole)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for one in self._all:
                group.create_task(one.run())

    def _volume(self, old: Volume | None, new: Volume | None) -> None:
        if old is not None:
            self._free.get(old.spec.storage_class_name, {}).pop(old.name, None)
            self._shelve(old, self._reaches.pop(old.name, None))
            if (key := _named(old)) is not None and (kept := self._of_claim.get(key)) is not None:
                kept.pop(old.name, None)
                if not kept:
                    del self._of_claim[key]
        if new is not None:
            if is_free(new):
                self._free.setdefault(new.spec.storage_class_name, {})[new.name] = new
            self._reaches[new.name] = reach_of(new)
            self._shelve(new, self._reaches[new.name], there=True)
            if (key := _named(new)) is not None:
                self._of_claim.setdefault(key, {})[new.name] = new
        self._heard.volume(old, new)

    def _shelve(self, volume: Volume, reach: LabelTerms | None, *, there: bool = False) -> None:
        """Put a volume where those are found that the same nodes reach, or take it away."""
        if reach is None:
            return
        name, pin = volume.spec.storage_class_name, pin_in(reach)
        self._changes[name] = self._changes.get(name, 0) + 1
        if pin:
            _shelve(self._pinned.setdefault(name, {}), pin, volume, there=there)
        else:
            _shelve(self._shared.setdefault(name, {}), reach, volume, there=there)

    def _capacity(self, old: StorageCapacity | None, new: StorageCapacity | None) -> None:
        for one in (old, new):
            if one is None:
                continue
            key = one.metadata.namespace, one.metadata.name
            if one is new:
                self._rooms.setdefault(one.storage_class_name, {})[key] = one
            else:
                self._rooms.get(one.storage_class_name, {}).pop(key, None)
        for name in {one.storage_class_name for one in (old, new) if one is not None}:
            self._heard.storage_class(name)

    # Reads.

    def claim(self, key: ClaimKey) -> VolumeClaim | None:
        return self.claims.objects.get(key)

    def volume(self, name: str) -> Volume | None:
        return self.volumes.objects.get(("", name))

    def free(self, name: str) -> Iterable[Volume]:
        """Return the volumes of a class that nobody has."""
        return self._free.get(name, {}).values()

    def reach_of(self, volume: Volume) -> LabelTerms:
        """Return the nodes that reach a volume."""
        found = self._reaches.get(volume.name)
        return found if found is not None else reach_of(volume)

    def changes_of(self, name: str) -> int:
        """Return how often volumes of a class have changed until now."""
        return self._changes.get(name, 0)

    def near(self, name: str, node: Node) -> Iterator[Volume]:
        """Yield the volumes of a class that a node reaches, and no other one."""
        found, labels = self._pinned.get(name, {}), labels_of(node)
        for pin in names_of(node):
            yield from (one for one in found.get(pin, {}).values() if accepted(self._reaches[one.name], labels))

    def shared(self, name: str) -> Mapping[LabelTerms, Mapping[str, Volume]]:
        """Return the volumes of a class that more than one node may reach: by these nodes, and by their names."""
        return self._shared.get(name, {})

    def reached(self, name: str, node: Node) -> Iterator[Volume]:
        """Yield the volumes of a class that a node reaches, alone or with others."""
        yield from self.near(name, node)
        labels = labels_of(node)
        for reach, volumes in self.shared(name).items():
            if accepted(reach, labels):
                yield from volumes.values()

    def naming(self, key: ClaimKey) -> Iterator[Volume]:
        """Yield the volumes that name a claim."""
        yield from self._of_claim.get(key, {}).values()

    def storage_class(self, name: str) -> StorageClass | None:
        return self.classes.objects.get(("", name))

    def capacities_of(self, name: str) -> Iterator[StorageCapacity]:
        yield from self._rooms.get(name, {}).values()

    def tells_room(self, driver: str) -> bool:
        """Return whether a driver publishes where how much room is left."""
        found = self.drivers.objects.get(("", driver))
        return found is not None and found.spec.storage_capacity

    def limits_of(self, node: str) -> dict[str, int]:
        """Return how many volumes of each driver a node can hold; drivers that set no limit are left out."""
        found = self.csi_nodes.objects.get(("", node))
        drivers = found.spec.drivers or () if found is not None else ()
        return {
            one.name: one.allocatable.count
            for one in drivers
            if one.allocatable is not None and one.allocatable.count is not None
        }


def _named(volume: Volume) -> ClaimKey | None:
    ref = volume.spec.claim_ref
    return (ref.namespace, ref.name) if ref is not None else None


def _shelve(shelves: dict[Shelf, dict[str, Volume]], at: Shelf, volume: Volume, *, there: bool) -> None:
    """Put a volume on its shelf, or take it away, and the shelf with the last one."""
    if there:
        shelves.setdefault(at, {})[volume.name] = volume
        return
    shelves.get(at, {}).pop(volume.name, None)
    if not shelves.get(at):
        shelves.pop(at, None)
