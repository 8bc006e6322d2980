"""Devices by claims, as the engine sees them: one kind of what pods claim.

While a gang is planned the core counts devices by names. When it starts, all its claims get their devices at once, in
memory: so no gang deadlocks with half of its devices. Then they are written, before the Binding.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.core.model.affinity import NODE, AffinityRule
from penstock.core.model.ids import NodeName
from penstock.core.model.quantities import MILLI
from penstock.core.model.resources import Models
from penstock.core.model.selectors import LabelTerms
from penstock.engines.kubernetes.amounts import Sums
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.devices import tidying
from penstock.engines.kubernetes.devices.allocator import NoFit
from penstock.engines.kubernetes.devices.claimed import CONSUMERS_MAX, Claimed, Entry, Lacking
from penstock.engines.kubernetes.devices.counting import Counting
from penstock.engines.kubernetes.devices.extended import Extended, claim_body, status_of
from penstock.engines.kubernetes.devices.planned import Planned
from penstock.engines.kubernetes.devices.requests import Impossible, devices_of, wanted
from penstock.engines.kubernetes.devices.tainting import Tainting
from penstock.engines.kubernetes.devices.tidying import Starting, Tidying
from penstock.engines.kubernetes.devices.view import DeviceView, Heard
from penstock.engines.kubernetes.devices.writing import ClaimWriter
from penstock.engines.kubernetes.gangs.gang import Refused
from penstock.engines.kubernetes.objects.devices import (
    Allocation,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from penstock.engines.kubernetes.objects.groups import PodGroup
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.server import Server

log = logging.getLogger(__name__)

CAUGHT_UP_S, CAUGHT_UP_LOOK_S = 5.0, 0.005
"""The watch of claims is waited for so long before a Binding, and looked at so often."""
REFUSED_S = 1.0
"""The other pods of a gang that was refused its devices come to ask within this time."""
CHARGED_MAX = 10**12
"""Thousandths of devices that a pod is charged for: the log holds numbers below 2**63."""
CHANGED = "what it claims has changed since it got its devices"
UNSERVED = (
    "devices by resource claims (DRA) need resource.k8s.io/v1, which this cluster does not serve: Kubernetes 1.34 or "
    "newer does, its beta versions are not read"
)


class Again(NamedTuple):
    """What has to be looked at again."""

    pods: tuple[str, ...] = ()
    """What these pods claim has changed."""
    templates: tuple[str, ...] = ()
    """Namespaces in which templates have changed."""


class DeviceClaims:
    """One kind of claim.

    Args:
        nodes: the copy of the nodes, by namespace (empty) and name.
        pods: the copy of the pods.
        standing: gives the pods that are counted on a node.
        group: gives a native PodGroup, by namespace and name.
        places: gives the pods of a pod's gang that are to be bound, each with its node.
        avoid: hears of a node that turned out to have no devices for a pod.
        listed: is called when a list is whole.
        server: says which nodes were closed for their failures.
    """

    def __init__(
        self,
        client: Client,
        nodes: Mapping[tuple[str, str], Node],
        pods: Mapping[tuple[str, str], Pod],
        standing: Callable[[NodeName], Iterable[Pod]],
        group: Callable[[str, str], PodGroup | None],
        places: Callable[[Pod], Sequence[tuple[Pod, NodeName]]],
        avoid: Callable[[Pod, NodeName, str], None],
        listed: Callable[[], None],
        server: Server,
        draw: random.Random | None = None,
    ) -> None:
        self._nodes, self._pods = nodes, pods
        self._places, self._avoid = places, avoid
        self.claimed = Claimed(self._labels, group)
        self._planned = Planned(self.claimed)
        self.view = DeviceView(
            client,
            Heard(self._claim, self._template, self._slice, self._class, self._rule, listed),
            draw,
        )
        self._writer = ClaimWriter(client, self.claimed.claims.get, self.view.claims.wrote, server.term, draw)
        self._tainting = Tainting(client, self.view, self.claimed.inventory, server.closed_nodes, server.identity)
        self._starting = Starting()
        self._extended = Extended(self.claimed)
        self.claimed.beyond = lambda pod, node: self._extended.entry(pod, nodes.get(("", node)))
        self._counting = Counting(self.claimed, self._planned, self._extended, self._starting, nodes, standing)
        self._lacking: dict[str, None] = {}
        """Pods with claims of which something is not known."""
        self._refused: dict[str, tuple[NodeName, float, str]] = {}
        """Pods that do not start on a node, as the devices of their gang were not to be had, until when, and why."""
        self._again: dict[str, None] = {}
        self._templates: set[str] = set()
        self._was_served = False
        """It is known already that the cluster has claims."""
        self._using: dict[str, dict[str, None]] = {}
        """Pods that use a claim, by its key; `_used`: the claims of a pod."""
        self._used: dict[str, dict[str, None]] = {}
        self._crowded: dict[str, None] = {}
        """Pods for whose kinds of claims there was no room."""
        self._tidying = Tidying(self.claimed, self._writer, self._starting, pods, self._using)

    def _labels(self, node: str) -> Mapping[str, str]:
        found = self._nodes.get(("", node))
        return found.metadata.labels if found is not None else {}

    async def run(self, begun: Callable[[], bool]) -> None:
        """Follow the cluster until cancelled. Args: begun: whether no former leader can bind a pod any more."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.view.run())
            group.create_task(self._tidying.run(self.release, begun))
            group.create_task(self._tainting.run())

    # What the cluster says.

    def _claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        one = new or old
        assert one is not None
        if new is not None:
            self.claimed.claims[one.key] = new
            if self._settled(new):
                self.claimed.assumed.pop(one.key, None)
        else:
            self.claimed.claims.pop(one.key, None)
            self.claimed.assumed.pop(one.key, None)
        self._counting.reaching(self.claimed.count(one.key))
        if one.key in self._planned.shared.values():
            self._counting.all()
        known = old is not None and new is not None and old.spec == new.spec
        if not known or (old is not None and old.metadata.deletion_timestamp != one.metadata.deletion_timestamp):
            self._again.update(self._using.get(one.key, {}))

    def _settled(self, claim: ResourceClaim) -> bool:
        """Return whether what a claim was to get is written."""
        assumed, has = self.claimed.assumed.get(claim.key), claim.status.allocation
        return assumed is not None and has is not None and has.devices.results == assumed.devices.results

    def _template(self, old: ResourceClaimTemplate | None, new: ResourceClaimTemplate | None) -> None:
        one = new or old
        assert one is not None
        if new is not None:
            self.claimed.templates[one.metadata.key] = new
        else:
            self.claimed.templates.pop(one.metadata.key, None)
        self._templates.add(one.metadata.namespace)

    def _slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        for one, change in ((old, self.claimed.inventory.drop), (new, self.claimed.inventory.put)):
            if one is not None:
                nodes = change(one)
                if nodes is None:
                    self._counting.all()
                else:
                    for name in sorted(nodes):
                        self._counting.node(NodeName(name))

    def _class(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        one = new or old
        assert one is not None
        if new is not None:
            self.claimed.classes[one.metadata.name] = new
        else:
            self.claimed.classes.pop(one.metadata.name, None)
        self._extended.classes_changed()
        self._counting.all()
        if old is None or new is None:
            for users in self._using.values():
                self._again.update(users)

    def _rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        rules = self.view.taint_rules
        known = dict(rules.objects) if rules is not None else {}
        one = new or old
        assert one is not None
        known.pop(("", one.metadata.name), None)
        self.claimed.inventory.taint([*known.values(), *((new,) if new is not None else ())])
        self._counting.all()

    def pod_changed(self, pod: Pod) -> None:
        """Note a pod that is there, or has changed."""
        for entry in self.claimed.entries(pod) if pod.spec.resource_claims else ():
            if entry.claim:
                self._using.setdefault(entry.claim, {})[pod.key] = None
                self._used.setdefault(pod.key, {})[entry.claim] = None
        extended = self._extended.asked(pod)
        if extended and self._extended.note(pod):
            self._counting.all()
        if pod.spec.node_name and (extended or pod.spec.resource_claims or pod.key in self._starting):
            self._starting.end(pod)
            self._counting.node(NodeName(pod.spec.node_name))

    def pod_gone(self, pod: Pod) -> None:
        """Note a pod that is gone."""
        if pod.spec.resource_claims:
            for key in self._used.pop(pod.key, {}):
                self._using[key].pop(pod.key, None)
                if not self._using[key]:
                    del self._using[key]
            if self._planned.drop(pod.key):
                self._again.update(self._crowded)
                self._crowded.clear()
            self._crowded.pop(pod.key, None)
            self._lacking.pop(pod.key, None)
        self._starting.gone(pod.key)
        if pod.spec.node_name and (pod.spec.resource_claims or self._extended.asked(pod)):
            self._counting.node(NodeName(pod.spec.node_name))

    def group_changed(self, namespace: str) -> None:
        """Look again at pods of a namespace of whose claims something is not known: their group may say it now."""
        self._again.update(dict.fromkeys(key for key in self._lacking if key.startswith(f"{namespace}/")))

    def turn(self) -> Again:
        """Return what has to be looked at again."""
        if self.view.served and not self._was_served:
            self._was_served = True
            self._again.update(dict.fromkeys(pod.key for pod in self._pods.values() if pod.spec.resource_claims))
        found = Again(tuple(self._again), tuple(sorted(self._templates)))
        self._again.clear()
        self._templates.clear()
        return found

    def count(self) -> tuple[NodeName, ...]:
        """Count nodes anew, as many as a turn of the loop has time for. Returns: those that offer something else."""
        return self._counting.turn() if self.view.served else ()

    @property
    def due(self) -> bool:
        """Whether nodes are left to be counted."""
        return self.view.served and self._counting.due

    # `Claims`.

    def refusal(self, pod: Pod) -> Refused | None:
        if not pod.spec.resource_claims:
            return None
        if not self.view.served:
            return Refused("Unsupported", UNSERVED)
        if self.view.denied:
            return Refused("Unsupported", f"resourceClaims: {self.view.denied} may not be read")
        for entry in self.claimed.entries(pod):
            if isinstance(entry, Lacking) or not entry.claim:
                text = entry.text if isinstance(entry, Lacking) else f"the claim {entry.name} is not made yet"
                self._lacking[pod.key] = None
                return Refused("ResourceClaimUnknown", text, soon=True)
            problem = self._impossible(entry)
            if problem:
                return Refused("ResourceClaimInvalid", problem)
        self._lacking.pop(pod.key, None)
        if not self._planned.room_for(pod):
            self._crowded[pod.key] = None
            return Refused("TooManyClaims", "too many different resource claims wait or are in use", again=True)
        if self._planned.note(pod)[1]:
            self._counting.all()
        return None

    def _impossible(self, entry: Entry) -> str:
        """Return why a claim can never be given to the pod, or not as it is; '' if it can."""
        try:
            wanted(entry.spec, self.claimed.classes)
        except Impossible as error:
            return f"ResourceClaim {entry.claim}: {error}"
        claim = self.claimed.claims[entry.claim]
        others = [one for one in claim.status.reserved_for if one.uid != entry.consumer.uid]
        if len(others) >= CONSUMERS_MAX:
            return f"ResourceClaim {entry.claim} is reserved for {len(others)} pods, at most {CONSUMERS_MAX} may use it"
        return ""

    def terms(self, pod: Pod) -> LabelTerms:
        return ()

    def sums(self, pod: Pod) -> Sums:
        if not pod.spec.resource_claims or not self.view.served:
            return {}
        waits = not pod.spec.node_name
        lacking = [one.text for one in self.claimed.entries(pod) if isinstance(one, Lacking) and waits]
        found, new = self._planned.note(pod)
        if new:
            self._counting.all()
        return {**found, **dict.fromkeys(lacking, 1)}

    def devices(self, pod: Pod, share: int) -> Models:
        if not self.view.served:
            return ()
        found = self._extended.devices(pod)
        for entry in self.claimed.known(pod) if pod.spec.resource_claims else ():
            of = 1 if entry.own else max(1, share)
            for name, count in devices_of(entry.spec).items():
                found[name] = found.get(name, 0) + max(1, MILLI * count // of)
        return tuple(sorted((name, min(milli, CHARGED_MAX)) for name, milli in found.items()))

    def together(self, pod: Pod) -> tuple[AffinityRule, ...]:
        """Return the rules that keep pods with a claim in common on one node, where its devices are of one node."""
        if not pod.spec.resource_claims or not self.view.served:
            return ()
        return tuple(
            AffinityRule("affinity", f"pods with ResourceClaim {entry.claim}", NODE)
            for entry in self.claimed.known(pod)
            if not entry.own and self.claimed.inventory.all_local
        )

    def offered(self, node: Node) -> Sums:
        return self._counting.offered(node)

    def refusal_of(self, node: NodeName, pod: Pod) -> str:
        if not pod.spec.resource_claims:
            return ""
        for entry in self.claimed.entries(pod):
            if isinstance(entry, Lacking):
                return entry.text
            has = self.claimed.allocation(entry.claim)
            if has is not None and not self.claimed.usable(has, node) and not self.claimed.movable(entry.claim, pod):
                return f"ResourceClaim {entry.claim} has devices of other nodes by now"
        return ""

    async def prepare(self, pod: Pod, node: NodeName, wanted: Callable[[], bool]) -> str:
        if not self.view.served or (pod.key not in self._starting and not self.claimed.known_at(pod, node)):
            return ""
        problem = self._assume(pod, node)
        if problem:
            return problem
        entries = self._starting.entries_of(pod.key)
        problem = await self._make(pod, node, wanted)
        if problem or list(entries) != self.claimed.known_at(pod, node):
            await self._release(pod, node, entries)
            return problem or CHANGED
        for entry in entries:
            problem = await self._give(entry, node, wanted)
            if problem:
                await self._release(pod, node, entries)
                return problem
        await self._caught_up(entries, wanted)
        problem = await self._writer.ready([entry.claim for entry in entries], wanted)
        if problem and wanted():
            self._avoid(pod, node, problem)
        problem = problem or next(filter(None, map(self._tidying.doubled, entries)), "")
        if problem:
            await self._release(pod, node, entries)
        return problem

    async def _make(self, pod: Pod, node: NodeName, wanted: Callable[[], bool]) -> str:
        """Make the claim for extended resources that the node has as devices. Returns: why that cannot be, or ''."""
        mapped = self._extended.mapped(pod, self._nodes.get(("", node)))
        if mapped is None:
            return ""
        return await self._writer.make(claim_body(pod, mapped), pod, status_of(pod, mapped), wanted)

    async def _caught_up(self, entries: Sequence[Entry], wanted: Callable[[], bool]) -> None:
        """Wait until all is known that others had written when the claims were: who gave a device out first has it."""
        known = [self.claimed.claims.get(entry.claim) for entry in entries]
        newest = max((int(one.metadata.resource_version) for one in known if one is not None), default=0)
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + CAUGHT_UP_S
        while wanted() and self.view.claims.version < newest and loop.time() < ends_s:
            await asyncio.sleep(CAUGHT_UP_LOOK_S)

    def _assume(self, pod: Pod, node: NodeName) -> str:
        """Give devices to all pods of a gang that start together, in memory. Returns: why not, or ''."""
        if pod.key in self._starting:
            self._starting.prepare(pod.key)
            return ""
        at, until_s, text = self._refused.pop(pod.key, (None, 0.0, ""))
        if at == node and until_s > asyncio.get_running_loop().time():
            return text  # its gang does not start
        starting = [(pod, node)]
        for one, at in self._places(pod):
            if self.claimed.known_at(one, at) and one.key not in self._starting and one.key != pod.key:
                starting.append((one, at))
        taken = self.claimed.assume(starting)
        if isinstance(taken, NoFit):
            text, now_s = f"devices of {taken.node}: {taken.text}", asyncio.get_running_loop().time()
            self._refused = {key: one for key, one in self._refused.items() if one[1] > now_s}
            self._refused |= {one.key: (at, now_s + REFUSED_S, text) for one, at in starting if one is not pod}
            for one, at in starting:
                if at == taken.node:
                    self._counting.doubt(at)
                    self._avoid(one, at, taken.text)
            return text
        begun = [(one, at, self.claimed.known_at(one, at)) for one, at in starting]
        self._starting.begin(begun, asyncio.get_running_loop().time() + tidying.LEFTOVER_S)
        self._starting.prepare(pod.key)
        self._counting.reaching(taken)
        return ""

    async def _give(self, entry: Entry, node: NodeName, wanted: Callable[[], bool]) -> str:
        def usable(allocation: Allocation) -> bool:
            return self.claimed.usable(allocation, node)

        def allocation() -> Allocation | None:
            found = self.claimed.allocation(entry.claim)
            return found if found is not None and usable(found) else None

        problem = await self._writer.give(entry.claim, allocation, entry.consumer, usable, wanted)
        if not problem:
            self.claimed.assumed.pop(entry.claim, None)  # it has that, or what somebody else gave it meanwhile
            self._counting.reaching(self.claimed.count(entry.claim))
        return problem

    async def release(self, pod: Pod, node: NodeName) -> None:
        if self.view.served:
            await self._release(pod, node, self._starting.entries_of(pod.key))

    async def _release(self, pod: Pod, node: NodeName, got: Sequence[Entry]) -> None:
        """Take back what a pod got devices for, and what it claims by now."""
        entries = {one.claim: one for one in (*got, *self.claimed.known_at(pod, node))}
        if not entries and pod.key not in self._starting:
            return
        self._starting.prepare(pod.key)
        shared = []
        for entry in entries.values():
            if not self._tidying.used_by_others(entry, pod):
                await self._take_back(entry)
                continue
            shared.append(entry)
            if entry.consumer.resource == "pods":
                await self._writer.take_back(entry.claim, entry.consumer, devices=False)
        self._starting.end(pod)
        for entry in shared:
            if not self._tidying.used_by_others(entry, pod):  # the others were released meanwhile
                await self._take_back(entry)
        self._counting.node(node)

    async def _take_back(self, entry: Entry) -> None:
        await self._writer.take_back(entry.claim, entry.consumer, devices=True)
        self.claimed.assumed.pop(entry.claim, None)
        self._counting.reaching(self.claimed.count(entry.claim))
