"""Which claims a pod has, and which devices these have: as the cluster says, and as is being written. No I/O."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from penstock.engines.kubernetes.devices.allocator import Ask, Cluster, NoFit, allocate
from penstock.engines.kubernetes.devices.pools import DeviceId, Inventory, selects
from penstock.engines.kubernetes.devices.use import Use
from penstock.engines.kubernetes.objects.devices import (
    Allocation,
    ClaimSpec,
    Consumer,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from penstock.engines.kubernetes.objects.groups import PodGroup
from penstock.engines.kubernetes.objects.pods import Pod, PodResourceClaim

CONSUMERS_MAX = 256
"""Of one claim, as the API server allows them."""
HASH_CHARS = 6


class Entry(NamedTuple):
    """One of a pod's claims."""

    name: str
    claim: str
    """Its key; '' where it is not made yet."""
    spec: ClaimSpec
    own: bool
    """It is the pod's alone: it was made for it."""
    consumer: Consumer
    """Whom it is to be reserved for: the pod, or its group."""


class Lacking(NamedTuple):
    """What keeps a pod's claims from being known."""

    text: str
    claim: str = ""
    """The key of the claim, where that is known."""


class Signature(NamedTuple):
    """Claims that are alike for planning, by a name that the core counts them by."""

    name: str
    specs: tuple[ClaimSpec, ...]
    number: int = 1
    """How much of it one pod takes: devices of a plain request, else the claims of one pod together."""
    plain: bool = False
    """It is one request for so many devices."""


def reservation(pod: Pod) -> Consumer:
    return Consumer("pods", pod.metadata.name, pod.metadata.uid)


class Claimed:
    """The claims.

    Args:
        labels: gives the labels of a node.
        group: gives a native PodGroup, by namespace and name.
    """

    def __init__(
        self, labels: Callable[[str], Mapping[str, str]], group: Callable[[str, str], PodGroup | None]
    ) -> None:
        self._labels, self._group = labels, group
        self.claims: dict[str, ResourceClaim] = {}
        self.templates: dict[str, ResourceClaimTemplate] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.inventory, self.use = Inventory(), Use()
        self.beyond: Callable[[Pod, str], Entry | None] = lambda pod, node: None
        """Gives the claim that a pod gets beyond those that it names, on a node."""
        self.assumed: dict[str, Allocation] = {}
        """What claims get that are about to be written, by their keys."""

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.inventory, self.classes, self.use, self._labels)

    # What a pod claims.

    def entries(self, pod: Pod) -> Iterator[Entry | Lacking]:
        """Yield the claims of a pod, or what of them is not known."""
        made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
        for one in pod.spec.resource_claims:
            shared = self._of_group(pod, one)
            if shared is not None:
                yield shared
            elif one.resource_claim_name:
                yield self._entry(pod, one.name, one.resource_claim_name, own=False)
            elif pod.metadata.uid == "" or one.name not in made:
                yield self._from_template(pod, one)
            elif made[one.name]:  # else it was found that none is needed
                yield self._entry(pod, one.name, made[one.name], own=True)

    def _entry(self, pod: Pod, name: str, claim_name: str, *, own: bool, consumer: Consumer | None = None) -> (
        Entry | Lacking
    ):  # fmt: skip
        key = f"{pod.metadata.namespace}/{claim_name}"
        claim = self.claims.get(key)
        if claim is None:
            return Lacking(f"ResourceClaim {claim_name} is not there", key)
        if claim.metadata.deletion_timestamp is not None:
            return Lacking(f"ResourceClaim {claim_name} is being deleted", key)
        if own and all(owner.uid != pod.metadata.uid for owner in claim.metadata.owner_references):
            return Lacking(f"ResourceClaim {claim_name} was made for another pod", key)
        return Entry(name, key, claim.spec, own, consumer or reservation(pod))

    def _from_template(self, pod: Pod, one: PodResourceClaim) -> Entry | Lacking:
        """Return a claim that is yet to be made: of a pod that is only planned, or whose controller is behind."""
        template = self.templates.get(f"{pod.metadata.namespace}/{one.resource_claim_template_name}")
        if template is None:
            return Lacking(f"ResourceClaimTemplate {one.resource_claim_template_name} is not there")
        return Entry(one.name, "", template.spec.spec, True, reservation(pod))

    def _of_group(self, pod: Pod, one: PodResourceClaim) -> Entry | Lacking | None:
        """Return a claim that the pod has from its PodGroup: the group names the same one. Source: KEP-5729."""
        reference = pod.spec.scheduling_group
        group = self._group(pod.metadata.namespace, reference.pod_group_name) if reference is not None else None
        if group is None or one not in group.spec.resource_claims:
            return None
        made = {told.name: told.resource_claim_name for told in group.status.resource_claim_statuses}
        name = one.resource_claim_name or made.get(one.name, "")
        if not name:
            return Lacking(f"the claim {one.name} of PodGroup {group.metadata.name} is not made yet")
        meta = group.metadata
        consumer = Consumer("podgroups", meta.name, meta.uid, "scheduling.k8s.io")
        return self._entry(pod, one.name, name, own=False, consumer=consumer)

    def known(self, pod: Pod) -> list[Entry]:
        return [one for one in self.entries(pod) if isinstance(one, Entry)]

    def known_at(self, pod: Pod, node: str) -> list[Entry]:
        """Return the claims of a pod on a node: there it may have extended resources as devices."""
        beyond = self.beyond(pod, node)
        return [*self.known(pod), *((beyond,) if beyond is not None else ())]

    def signature(self, pod: Pod) -> Signature | None:
        """Return what the pod's own claims are for planning; None where it has none."""
        return signature_of(tuple(one.spec for one in self.known(pod) if one.own))

    # Who has what.

    def allocation(self, key: str) -> Allocation | None:
        """Return what a claim is about to get, else what it has."""
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        return assumed if assumed is not None or claim is None else claim.status.allocation

    def count(self, key: str) -> set[DeviceId]:
        """Count anew what a claim has. Returns: the devices of which more or less is taken."""
        return self.use.put(key, self.allocation(key))

    def usable(self, allocation: Allocation, node: str) -> bool:
        """Return whether pods on a node can use what was allocated."""
        selector = allocation.node_selector
        return selector is None or selects(selector, node, self._labels(node))

    def assume(self, planned: Sequence[tuple[Pod, str]]) -> NoFit | set[DeviceId]:
        """Give devices to all claims of these pods, each on its node: all of them, or none.

        Returns: why that cannot be, or the devices that were taken.
        """
        asks: dict[str, Ask] = {}
        nodes: dict[str, list[str]] = {}
        for pod, node in planned:
            for entry in self.known_at(pod, node):
                has = self.allocation(entry.claim)
                if has is not None and not self.usable(has, node):
                    if not self.movable(entry.claim, pod):
                        return NoFit(entry.claim, node, f"ResourceClaim {entry.claim} has devices of other nodes")
                    has = None
                if has is None and entry.claim:
                    asks.setdefault(entry.claim, Ask(entry.claim, entry.spec, node))
                    nodes.setdefault(entry.claim, []).append(node)
        for key in asks:
            self.use.put(key, None)
        found = allocate(list(asks.values()), self.cluster)
        if not isinstance(found, NoFit):
            apart = ((key, node) for key, reached in nodes.items() for node in reached
                     if not self.usable(found[key], node))  # fmt: skip
            for key, node in apart:
                found = NoFit(key, node, f"ResourceClaim {key} would have devices of another node alone")
                break
        if isinstance(found, NoFit):
            for key in asks:
                self.count(key)
            return found
        taken: set[DeviceId] = set()
        for key, allocation in found.items():
            self.assumed[key] = allocation
            taken |= self.use.put(key, allocation)
        return taken

    def movable(self, key: str, pod: Pod) -> bool:
        """Return whether nobody but the pod, which does not run yet, has a claim: it may get other devices."""
        claim = self.claims.get(key)
        if claim is None or pod.spec.node_name:
            return False
        return all(one.uid == pod.metadata.uid for one in claim.status.reserved_for)


def signature_of(specs: tuple[ClaimSpec, ...]) -> Signature | None:
    """Return the signature of claims that one pod has together; None for no claims."""
    if not specs:
        return None
    requests = [request for spec in specs for request in spec.devices.requests]
    names = sorted({ask.device_class_name for one in requests for ask in (one.exactly, *one.first_available) if ask})
    digest = sha256(msgspec.json.encode(specs, order="deterministic")).hexdigest()[:HASH_CHARS]
    one = requests[0].exactly if len(requests) == 1 else None
    constrained = any(spec.devices.constraints for spec in specs)
    counted = one is not None and one.allocation_mode in ("", "ExactCount") and not constrained
    if one is not None and counted and not one.admin_access and not one.capacity.requests:
        ask = msgspec.structs.replace(one, count=1, name="")
        simple = not one.selectors and not one.tolerations
        digest = sha256(msgspec.json.encode(ask, order="deterministic")).hexdigest()[:HASH_CHARS]
        name = f"devices of class {names[0]}" + ("" if simple else f" ({digest})")
        return Signature(name, _of_one(specs, ask), one.count, plain=True)
    return Signature(f"devices of class {', '.join(names)[:60]} ({digest})", specs)


def _of_one(specs: tuple[ClaimSpec, ...], ask: object) -> tuple[ClaimSpec, ...]:
    """Return the specs with a request for one device."""
    (spec,) = (one for one in specs if one.devices.requests)
    request = msgspec.structs.replace(spec.devices.requests[0], exactly=ask)
    devices = msgspec.structs.replace(spec.devices, requests=(request,), config=())
    return (ClaimSpec(devices),)
