"""What is left over of starts, and what two claims have at once: found, and taken back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.devices.claimed import Claimed, Entry
from penstock.engines.kubernetes.devices.writing import ClaimWriter
from penstock.engines.kubernetes.objects.devices import Consumer, ResourceClaim
from penstock.engines.kubernetes.objects.pods import Pod

log = logging.getLogger(__name__)

LEFTOVER_S = 5.0
"""A pod that has devices, and does not start, loses them after this long."""


class Starting:
    """Pods that have devices, in memory or written, and are not bound yet."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[Pod, NodeName]] = {}
        self._entries: dict[str, Sequence[Entry]] = {}
        """What each of them claimed when it got its devices."""
        self._due_s: dict[str, float] = {}
        """Until when each of these that nobody has begun to make ready has to be."""

    def __contains__(self, pod_key: str) -> bool:
        return pod_key in self._pods

    def all(self) -> Sequence[tuple[Pod, NodeName]]:
        return tuple(self._pods.values())

    def entries_of(self, pod_key: str) -> Sequence[Entry]:
        """Return the claims of a pod for which it got devices, whatever it claims by now."""
        return self._entries.get(pod_key, ())

    def begin(self, pods: Sequence[tuple[Pod, NodeName, Sequence[Entry]]], due_s: float) -> None:
        """Add pods whose claims got devices together, each with these claims (times of the loop's clock)."""
        self._pods.update({pod.key: (pod, node) for pod, node, _ in pods})
        self._entries.update({pod.key: entries for pod, _, entries in pods})
        self._due_s.update({pod.key: due_s for pod, _, _ in pods})

    def prepare(self, pod_key: str) -> None:
        """Note that the claims of a pod are being made ready."""
        self._due_s.pop(pod_key, None)

    def gone(self, pod_key: str) -> None:
        """Note that a pod is gone: what it has is given back at once where nobody makes it ready."""
        if pod_key in self._due_s:
            self._due_s[pod_key] = 0.0
        else:
            self._pods.pop(pod_key, None)
            self._entries.pop(pod_key, None)

    def end(self, pod: Pod) -> None:
        """Forget a pod, but not another one of its name that has begun to start since."""
        if pod.key in self._pods and self._pods[pod.key][0].metadata.uid == pod.metadata.uid:
            del self._pods[pod.key], self._entries[pod.key]
            self._due_s.pop(pod.key, None)

    def overdue(self, now_s: float) -> Sequence[tuple[Pod, NodeName]]:
        """Return pods that nobody makes ready, and forget when that is due."""
        late = [key for key, due_s in self._due_s.items() if due_s <= now_s]
        for key in late:
            del self._due_s[key]
        return [self._pods[key] for key in late if key in self._pods]


class Tidying:
    """Looks for what should not be.

    Args:
        pods: the copy of the pods; `using`: the pods that use each claim, by its key.
    """

    def __init__(
        self,
        claimed: Claimed,
        writer: ClaimWriter,
        starting: Starting,
        pods: Mapping[tuple[str, str], Pod],
        using: Mapping[str, Mapping[str, None]],
    ) -> None:
        self._claimed, self._writer, self.starting, self._pods, self._using = claimed, writer, starting, pods, using
        self._left_since_s: dict[tuple[str, Consumer], float] = {}

    def doubled(self, entry: Entry) -> str:
        """Return which device of a claim another one has, too, that was there before; '' if there is none."""
        for device, claims in self._claimed.use.doubles_of(entry.claim, self._claimed.inventory):
            if self._later(claims) == entry.claim:
                return f"device {device} was given to another ResourceClaim meanwhile"
        return ""

    def _later(self, claims: Sequence[str]) -> str:
        """Return which of several claims with one device is to lose it: the newest that nobody runs with."""
        known = [self._claimed.claims[key] for key in claims if key in self._claimed.claims]
        idle = [one for one in known if not self._keeps(one)]
        newest = max(idle or known, key=lambda one: (_allocated(one), one.metadata.creation_timestamp or "", one.key),
                     default=None)  # fmt: skip
        return newest.key if newest is not None and idle else ""

    def _keeps(self, claim: ResourceClaim) -> bool:
        """Return whether a claim is used by a pod that has been bound, or by one that another scheduler starts.

        No other scheduler looks whether a device has been given out twice. Of whom nothing is known may be bound.
        """
        for one in claim.status.reserved_for:
            users = self._users(claim, one)
            if not users or any(pod.spec.node_name or pod.spec.scheduler_name != SCHEDULER for pod in users):
                return True
        return False

    def used_by_others(self, entry: Entry, pod: Pod) -> bool:
        """Return whether another pod has a claim, or is about to."""
        for key in self._using.get(entry.claim, ()):
            namespace, _, name = key.partition("/")
            other = self._pods.get((namespace, name))
            if key != pod.key and (key in self.starting or (other is not None and other.spec.node_name)):
                return True
        return False

    async def run(self, release: Callable[[Pod, NodeName], Awaitable[None]], begun: Callable[[], bool]) -> None:
        """Take devices back that were given to pods which do not start, until cancelled."""
        while True:
            await asyncio.sleep(LEFTOVER_S / 5)
            if not begun():
                continue
            now_s = asyncio.get_running_loop().time()
            for pod, node in self.starting.overdue(now_s):
                await release(pod, node)
            for key, consumer in self._left(now_s):
                if await self._in_use(key, consumer):
                    continue  # the copy of the pods is behind
                log.info("a pod does not start with its devices", extra={"pod": consumer.name, "claim": key})
                await self._writer.take_back(key, consumer, devices=True, wanted=partial(self._is_left, key, consumer))

    async def _in_use(self, key: str, consumer: Consumer) -> bool:
        claim = self._claimed.claims.get(key)
        users = self._users(claim, consumer) if claim is not None else []
        for pod in users:
            if await self._writer.is_bound(pod):
                return True
        return False

    def _left(self, now_s: float) -> list[tuple[str, Consumer]]:
        """Return claims of pods of ours that have not been started for a while, and these pods or their group."""
        idle: dict[tuple[str, Consumer], None] = {}
        for claim in self._claimed.claims.values():
            for one in claim.status.reserved_for:
                if self._is_left(claim.key, one):
                    idle[claim.key, one] = None
        self._left_since_s = {key: self._left_since_s.get(key, now_s) for key in idle}
        return [key for key in idle if now_s - self._left_since_s[key] >= LEFTOVER_S]

    def _is_left(self, key: str, consumer: Consumer) -> bool:
        claim = self._claimed.claims.get(key)
        users = self._users(claim, consumer) if claim is not None else []
        return bool(users) and all(self._waits(pod) for pod in users)

    def _users(self, claim: ResourceClaim, consumer: Consumer) -> list[Pod]:
        """Return the pods that a reservation is for; of a group those that name the claim."""
        group, namespace = consumer.resource == "podgroups", claim.metadata.namespace
        names = [key.partition("/")[2] for key in self._using.get(claim.key, ())] if group else [consumer.name]
        known = [pod for name in names if (pod := self._pods.get((namespace, name))) is not None]
        return [pod for pod in known if group or pod.metadata.uid == consumer.uid]

    def _waits(self, pod: Pod) -> bool:
        return not pod.spec.node_name and pod.spec.scheduler_name == SCHEDULER and pod.key not in self.starting


def _allocated(claim: ResourceClaim) -> str:
    has = claim.status.allocation
    return (has.allocation_timestamp or "") if has is not None else ""
