"""What the pods of gangs ask for, worked out once for each version: a gang of 10,000 that waits is looked at often.

A scheduler rewrites the conditions of its waiting pods again and again, which leaves their requests as they are.
"""

from collections.abc import Callable, Collection

import msgspec

from penstock.core.model.resources import ReplicaAsk
from penstock.engines.kubernetes.gangs.gang import Gang, GangId, Slot, order_of
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.shadow.terms import Kinds, in_slots, kinds_of


class _Known(msgspec.Struct, eq=False):
    """One gang."""

    kinds: dict[str, Kinds] = {}
    """By the name of the pod."""
    lead: Pod | None = None
    """Its first pod, where that is known."""
    slots: list[Slot] | None = None
    """Those in which its pods were found to fit as they are."""


class Asked:
    """What was worked out. Everything runs on the engine's loop."""

    def __init__(self, ask_of: Callable[[Gang, Pod], ReplicaAsk]) -> None:
        self._ask_of = ask_of
        self._known: dict[GangId, _Known] = {}

    def put(self, gang: Gang, pod: Pod) -> ReplicaAsk:
        """Note a pod that is about to join a gang, or its newer version. Returns: what it asks for."""
        known, name = self._known.setdefault(gang.id, _Known()), pod.metadata.name
        ask, before = self._ask_of(gang, pod), gang.members.get(name)
        kinds = kinds_of(pod, ask)
        if before is None or before.leaving != pod.leaving or known.kinds.get(name) != kinds:
            known.lead = known.slots = None
        elif known.lead is before:
            known.lead = pod
        known.kinds[name] = kinds
        return ask

    def take(self, gang: Gang, pod: Pod) -> None:
        """Forget a pod that leaves its gang."""
        known = self._known.get(gang.id)
        if known is not None:
            known.kinds.pop(pod.metadata.name, None)
            known.lead = known.slots = None

    def change(self, gang: Gang) -> None:
        """Note that other templates may be of a gang."""
        if gang.id in self._known:
            self._known[gang.id].slots = None

    def forget(self, gang_id: GangId) -> None:
        self._known.pop(gang_id, None)

    def in_slots(self, gang: Gang, pods: Collection[Pod]) -> list[Pod] | None:
        """Return a pod for each slot of a gang; None while one of them has none."""
        kinds = self._known.setdefault(gang.id, _Known()).kinds
        for pod in pods:
            if pod.metadata.name not in kinds:  # it was found in the log
                kinds[pod.metadata.name] = kinds_of(pod, self._ask_of(gang, pod))
        return in_slots(gang, pods, lambda pod: kinds[pod.metadata.name])

    def fits(self, gang: Gang) -> bool:
        """Return whether the pods of a whole gang are what its slots want; looked at where something has changed."""
        known = self._known.setdefault(gang.id, _Known())
        if known.slots is not gang.slots and self.in_slots(gang, list(gang.members.values())) is not None:
            known.slots = gang.slots
        return known.slots is gang.slots

    def lead_of(self, gang: Gang) -> Pod | None:
        """Return the pod that speaks for a gang; None where all of them are leaving."""
        if gang.workload is not None and gang.workload.sets:
            return gang.workload.sets[0].pod
        known = self._known.setdefault(gang.id, _Known())
        if known.lead is None:
            staying = (pod for pod in gang.members.values() if not pod.leaving)
            known.lead = min(staying, key=order_of, default=None)
        return known.lead
