"""Extended resources that a node has as devices, not by a device plugin: the scheduler makes their claims. No I/O.

A class gives the name of one (`extendedResourceName`), and each has one of its own. A node has a name by its device
plugin or by devices, never by both. Source: KEP-5004.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from penstock.core.model.quantities import MILLI
from penstock.engines.kubernetes.amounts import BadAmount, Sums, amount, pod_sums
from penstock.engines.kubernetes.devices.claimed import Claimed, Entry, reservation
from penstock.engines.kubernetes.devices.planned import free_devices
from penstock.engines.kubernetes.nodes import device_names
from penstock.engines.kubernetes.objects.devices import ClaimSpec, DeviceClaim, DeviceClass, DeviceRequest, ExactRequest
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Container, Pod

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Begins the name that each class has."""
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
NAME_MAX = 253
UID_CHARS = 8


class Mapped(NamedTuple):
    """The claim for a pod's extended resources, and which request of it is for which container."""

    spec: ClaimSpec
    mappings: tuple[dict[str, str], ...]


class Extended:
    """Extended resources and the classes of devices behind them."""

    def __init__(self, claimed: Claimed) -> None:
        self._claimed = claimed
        self._implicit: set[str] = set()
        """Names of the second kind that some pod has asked for."""
        self._by_name: dict[str, DeviceClass] | None = None

    def classes_changed(self) -> None:
        self._by_name = None

    def class_of(self, resource: str) -> DeviceClass | None:
        """Return the class behind a name: the newest where several have it; of equally old ones the first by name."""
        if resource.startswith(IMPLICIT):
            return self._claimed.classes.get(resource.removeprefix(IMPLICIT))
        if self._by_name is None:
            by_name = sorted(self._claimed.classes.values(), key=lambda one: one.metadata.name, reverse=True)
            self._by_name = {
                one.spec.extended_resource_name: one
                for one in sorted(by_name, key=lambda one: one.metadata.creation_timestamp or "")
                if one.spec.extended_resource_name
            }
        return self._by_name.get(resource)

    def asked(self, pod: Pod) -> Sums:
        """Return how much a pod asks for of what may be devices."""
        if not self._claimed.classes:
            return {}
        names = {name for box in _boxes(pod) for name in _names(box) if "/" in name and self.class_of(name) is not None}
        if not names:
            return {}
        try:
            sums = pod_sums(pod)
        except BadAmount:
            return {}
        return {name: sums[name] for name in names if sums.get(name)}

    def devices(self, pod: Pod) -> dict[str, int]:
        """Return the devices, in thousandths by class, behind names that no vendor's device plugin is known for."""
        asked = self.asked(pod)
        found: dict[str, int] = {}
        for name in asked.keys() - device_names(asked):
            device_class = self.class_of(name)
            if device_class is not None:
                key = device_class.metadata.name
                found[key] = found.get(key, 0) + MILLI * asked[name]
        return found

    def note(self, pod: Pod) -> bool:
        """Note what a pod asks for. Returns: whether nodes have to be counted anew for it."""
        new = {name for name in self.asked(pod) if name.startswith(IMPLICIT)} - self._implicit
        self._implicit |= new
        return bool(new)

    def free(self, node: Node) -> Sums:
        """Return how many devices are free behind each name that a node has not got by a device plugin."""
        names = {one.spec.extended_resource_name for one in self._claimed.classes.values()} | self._implicit
        found: Sums = {}
        for name in sorted(names - {""}):
            device_class = self.class_of(name)
            if device_class is not None and not by_plugin(node, name):
                number = free_devices(device_class, self._claimed.cluster, node.metadata.name)
                if number is not None:
                    found[name] = number
        return found

    def entry(self, pod: Pod, node: Node | None) -> Entry | None:
        """Return the claim for what a pod asks for and the node has as devices; None where there is nothing of it."""
        mapped = self.mapped(pod, node)
        if mapped is None:
            return None
        return Entry("", f"{pod.metadata.namespace}/{claim_name(pod)}", mapped.spec, True, reservation(pod))

    def mapped(self, pod: Pod, node: Node | None) -> Mapped | None:
        """Return what is asked for by each container. Containers that end before the others begin use their devices."""
        names = sorted(name for name in self.asked(pod) if node is not None and not by_plugin(node, name))
        if not names:
            return None
        requests: list[DeviceRequest] = []
        mappings: list[dict[str, str]] = []
        for resource in names:
            has: list[tuple[str, int]] = []
            late: list[tuple[Container, int]] = []
            for number, box in enumerate(_boxes(pod)):
                count = _count(box, resource)
                if not count:
                    continue
                if number < len(pod.spec.init_containers) and box.restart_policy != "Always":
                    late.append((box, count))
                    continue
                name = f"container-{number}-request-{names.index(resource)}"
                requests.append(self._request(name, resource, count))
                has.append((name, count))
                mappings.append(_mapping(box, resource, name))
            for box, count in late:
                name = next((name for name, number in has if number >= count), "")
                if not name:
                    name = f"container-{_boxes(pod).index(box)}-request-{names.index(resource)}"
                    requests.append(self._request(name, resource, count))
                    has.append((name, count))
                mappings.append(_mapping(box, resource, name))
        return Mapped(ClaimSpec(DeviceClaim(tuple(requests))), tuple(mappings))

    def _request(self, name: str, resource: str, count: int) -> DeviceRequest:
        device_class = self.class_of(resource)
        assert device_class is not None, "it was asked for by its class"
        return DeviceRequest(name, ExactRequest(device_class_name=device_class.metadata.name, count=count))


def by_plugin(node: Node, resource: str) -> bool:
    """Return whether a node has a resource by its device plugin."""
    return str(node.status.allocatable.get(resource, "0")) != "0"


def claim_name(pod: Pod) -> str:
    """Return the name of the claim that is made for a pod's extended resources: the same one after a restart."""
    end = f"-extended-resources-{pod.metadata.uid[-UID_CHARS:]}"
    return pod.metadata.name[: NAME_MAX - len(end)] + end


def claim_body(pod: Pod, mapped: Mapped) -> dict[str, Any]:
    """Return the claim as it is created."""
    meta = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True,
             "blockOwnerDeletion": True}  # fmt: skip
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim_name(pod),
            "namespace": meta.namespace,
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": mapped.spec,
    }


def status_of(pod: Pod, mapped: Mapped) -> dict[str, Any]:
    """Return what a pod's status says of the claim."""
    told = {"resourceClaimName": claim_name(pod), "requestMappings": list(mapped.mappings)}
    return {"extendedResourceClaimStatus": told}


def _boxes(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _names(box: Container) -> Iterator[str]:
    yield from box.resources.requests
    yield from box.resources.limits


def _count(box: Container, resource: str) -> int:
    asked: Mapping[str, Any] = {**box.resources.limits, **box.resources.requests}
    return amount(resource, str(asked.get(resource, "0")))


def _mapping(box: Container, resource: str, request: str) -> dict[str, str]:
    return {"containerName": box.name, "resourceName": resource, "requestName": request}
