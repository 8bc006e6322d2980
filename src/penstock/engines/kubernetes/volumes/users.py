"""Which pods, and which gangs by their templates, name which claims."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from penstock.engines.kubernetes.gangs.gang import GangId
from penstock.engines.kubernetes.objects.claims import ClaimSpec
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.volumes.view import ClaimKey

MAKERS = ("StatefulSet", "ReplicaSet")
"""Controllers that give a claim of its own to each pod, or have one pod; pods of others may share what they name."""


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


class Users:
    """The pods that name claims and are not over, and the gangs whose templates do."""

    def __init__(self) -> None:
        self._pods: dict[ClaimKey, dict[str, Pod]] = {}
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
            self._pods.setdefault(key, {})[pod.key] = pod
        return keys if new else ()

    def drop(self, pod_key: str) -> tuple[ClaimKey, ...]:
        """Forget a pod, and return the claims that it named."""
        keys = self._of_pod.pop(pod_key, ())
        for key in keys:
            users = self._pods.get(key, {})
            users.pop(pod_key, None)
            if not users:
                self._pods.pop(key, None)
        return keys

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
