"""Which pods, and which gangs by their templates, name which claims."""

import heapq
from collections.abc import Collection, Container, Iterable, Iterator
from typing import NamedTuple

from penstock.engines.kubernetes.gangs.gang import GangId
from penstock.engines.kubernetes.objects.claims import ClaimSpec
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.volumes.view import ClaimKey

MAKERS = ("StatefulSet", "ReplicaSet")
"""Controllers that give a claim of its own to each pod, or have one pod; pods of others may share what they name."""
GONE_MAX = 100
"""Pods that are gone and are kept in the order of a claim's pods beyond as many as are there."""

Age = tuple[str, str]


class Use(NamedTuple):
    """One claim that a pod names."""

    key: ClaimKey
    own: ClaimSpec | None = None
    """What its template says, where the claim is made for this pod alone."""


def uses_of(pod: Pod) -> tuple[Use, ...]:
    """Return the claims that a pod names, each once, in the pod's order."""
    found: dict[ClaimKey, Use] = {}
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            key = pod.metadata.namespace, volume.persistent_volume_claim.claim_name
            found.setdefault(key, Use(key))
        elif volume.ephemeral is not None:
            key = pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}"
            found.setdefault(key, Use(key, volume.ephemeral.volume_claim_template.spec))
    return tuple(found.values())


def is_template(pod: Pod) -> bool:
    """Return whether it only says how pods of a workload will look."""
    return "#" in pod.metadata.name


def is_made(pod: Pod) -> bool:
    """Return whether it is one of several pods of one template, which all name the same claims."""
    owner = pod.metadata.controller
    return is_template(pod) or (owner is not None and owner.kind not in MAKERS)


def age_of(pod: Pod) -> Age:
    """Return what orders pods that want one claim, the oldest first; no two are alike."""
    return pod.metadata.creation_timestamp or "", pod.key


class Users:
    """The pods that name claims and are not over, and the gangs whose templates do.

    Args:
        starting: pods, by key, whose claims are made ready or that are bound next; `look` hears of each change.
    """

    def __init__(self, starting: Container[str] = ()) -> None:
        self._starting = starting
        self._pods: dict[ClaimKey, dict[str, Pod]] = {}
        self._holders: dict[ClaimKey, dict[str, None]] = {}
        """Pods on nodes, and those that start."""
        self._order: dict[ClaimKey, list[Age]] = {}
        """A heap of the pods of each claim that was asked for its first; it has pods that are gone or leave, too."""
        self._of_pod: dict[str, tuple[ClaimKey, ...]] = {}
        self._gangs: dict[ClaimKey, dict[GangId, None]] = {}
        self._of_gang: dict[GangId, tuple[ClaimKey, ...]] = {}
        self._own: dict[ClaimKey, ClaimSpec] = {}
        """What templates say of claims of each pod's own, by the names that no claim has."""

    def put(self, pod: Pod) -> tuple[ClaimKey, ...]:
        """Note a pod, or its newer version. Returns: the claims that it names, where it was not known before."""
        keys = tuple(use.key for use in uses_of(pod)) if pod.spec.volumes else ()
        if not keys:
            return ()
        new = pod.key not in self._of_pod
        self._of_pod[pod.key] = keys
        for key in keys:
            users = self._pods.setdefault(key, {})
            former, users[pod.key] = users.get(pod.key), pod
            order = self._order.get(key)
            if order is None or (former is not None and not former.leaving and age_of(former) == age_of(pod)):
                continue
            heapq.heappush(order, age_of(pod))
            if len(order) > 2 * len(users) + GONE_MAX:
                del self._order[key]  # it is made anew
        self.look(pod.key)
        return keys if new else ()

    def look(self, pod_key: str) -> None:
        """Note whether a pod holds the claims that it names: it is on a node, or starts."""
        for key in self._of_pod.get(pod_key, ()):
            if self._pods[key][pod_key].spec.node_name or pod_key in self._starting:
                self._holders.setdefault(key, {})[pod_key] = None
            else:
                self._let_go(key, pod_key)

    def _let_go(self, key: ClaimKey, pod_key: str) -> None:
        holders = self._holders.get(key, {})
        holders.pop(pod_key, None)
        if not holders:
            self._holders.pop(key, None)

    def drop(self, pod_key: str) -> tuple[ClaimKey, ...]:
        """Forget a pod, and return the claims that it named."""
        keys = self._of_pod.pop(pod_key, ())
        for key in keys:
            users = self._pods.get(key, {})
            users.pop(pod_key, None)
            self._let_go(key, pod_key)
            if not users:
                self._pods.pop(key, None)
                self._order.pop(key, None)
        return keys

    def holder(self, key: ClaimKey, *, but: str) -> Pod | None:
        """Return a pod that holds a claim, beside this one (by its key); None if there is none."""
        other = next((one for one in self._holders.get(key, ()) if one != but), None)
        return self._pods[key][other] if other is not None else None

    def first(self, key: ClaimKey) -> Pod | None:
        """Return the oldest pod that names a claim and does not leave: at about the same cost for any number."""
        users = self._pods.get(key, {})
        if users and key not in self._order:
            self._order[key] = sorted(map(age_of, users.values()))
        order = self._order.get(key, [])
        while order:
            pod = users.get(order[0][1])
            if pod is not None and not pod.leaving and age_of(pod) == order[0]:
                return pod
            heapq.heappop(order)
        return None

    def put_gang(self, gang_id: GangId, pods: Iterable[Pod]) -> None:
        """Note the templates of a gang; none: it is gone."""
        for key in self._of_gang.pop(gang_id, ()):
            self._own.pop(key, None)
            gangs = self._gangs.get(key, {})
            gangs.pop(gang_id, None)
            if not gangs:
                self._gangs.pop(key, None)
        uses = {use.key: use for pod in pods for use in uses_of(pod)}
        if uses:
            self._of_gang[gang_id] = tuple(uses)
            for key, use in uses.items():
                if use.own is not None:
                    self._own[key] = use.own
                self._gangs.setdefault(key, {})[gang_id] = None

    def of(self, key: ClaimKey) -> Collection[Pod]:
        return self._pods.get(key, {}).values()

    def pod(self, pod_key: str) -> Pod | None:
        """Return a pod that names claims, as it is now."""
        keys = self._of_pod.get(pod_key)
        return self._pods[keys[0]].get(pod_key) if keys else None

    def gangs_of(self, key: ClaimKey) -> Iterable[GangId]:
        return self._gangs.get(key, ())

    def own_of(self, key: ClaimKey) -> ClaimSpec | None:
        """Return what a template says of a claim that is made for each of its pods."""
        return self._own.get(key)

    def claims(self) -> Iterator[ClaimKey]:
        """Yield all claims that anything names."""
        yield from {**self._pods, **self._gangs}
