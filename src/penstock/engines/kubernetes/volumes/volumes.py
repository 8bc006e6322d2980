"""Volumes as a kind of claim: what a pod's volumes ask of its node, and how they get ready."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.core.model.ids import NodeName
from penstock.core.model.resources import Models, ReplicaAsk
from penstock.core.model.selectors import LabelRule, LabelTerms
from penstock.engines.kubernetes.amounts import Sums, sum_of
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.asks import NOWHERE, all_of
from penstock.engines.kubernetes.gangs.gang import GangId, Refused
from penstock.engines.kubernetes.gangs.workloads import PodSet, Workload, gang_id_of
from penstock.engines.kubernetes.nodes import NAME_FIELD
from penstock.engines.kubernetes.objects.claims import ClaimSpec
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.objects.volumes import Volume, VolumeClaim
from penstock.engines.kubernetes.volumes.beyond import Beyond
from penstock.engines.kubernetes.volumes.enough import Enough
from penstock.engines.kubernetes.volumes.getting import Getting
from penstock.engines.kubernetes.volumes.limits import Limits
from penstock.engines.kubernetes.volumes.matching import (
    ALONE,
    SELECTED_ANNOTATION,
    is_bound,
    is_free,
    is_kept_for,
    pin_of,
    reach_of,
)
from penstock.engines.kubernetes.volumes.stock import STOCK, Stock
from penstock.engines.kubernetes.volumes.users import Use, Users, age_of, is_made, is_template, uses_of
from penstock.engines.kubernetes.volumes.view import ClaimKey, Heard, VolumeView

NOT_READY = "VolumeNotReady"
LOOKS_MAX = 500
"""Pods that are looked at again in one turn of the loop; others follow in the next."""
OTHERS_MAX = 100
"""Pods that are looked at when a claim is free which one alone may use."""
ONCE_ONLY = "ReadWriteOnce"


class Again(NamedTuple):
    """What has to be looked at again, because volumes or claims have changed."""

    pods: tuple[Pod, ...]
    gangs: tuple[GangId, ...]
    nodes: tuple[NodeName, ...]
    all_nodes: bool


class Volumes:
    """Persistent volumes, as `Claims`. Everything runs on the engine's loop.

    Args:
        nodes: the copy of the nodes, by namespace (empty) and name.
        pods_at: gives the pods that stand on a node.
        places: gives the pods of a pod's gang that are to be bound, each with its node.
        listed: hears when a copy has become whole.
    """

    def __init__(
        self,
        client: Client,
        nodes: Mapping[tuple[str, str], Node],
        pods_at: Callable[[NodeName], Iterable[Pod]],
        places: Callable[[Pod], Sequence[tuple[Pod, NodeName]]],
        listed: Callable[[], None],
        draw: random.Random | None = None,
    ) -> None:
        self._nodes, self._pods_at, self._listed = nodes, pods_at, listed
        heard = Heard(self._claim_changed, self._volume_changed, self._class_changed, self._node_changed, self._whole)
        self.view = VolumeView(client, heard, draw)
        self._stock, self._limits = Stock(self.view), Limits(self.view)
        self._beyond = Beyond(self._look_at)
        self._getting = Getting(client, self.view, self._beyond.refuse, draw)
        self._enough = Enough(self._stock, lambda pod: self._unbound(uses_of(pod)), places, self._look_at)
        self._starting: dict[str, NodeName] = {}
        self._starting_on: dict[NodeName, dict[str, Pod]] = {}
        """Pods whose volumes are made ready, or that are bound next, and where."""
        self.users = Users(self._starting)
        self._claims: dict[ClaimKey, None] = {}
        self._classes: set[str] = set()
        self._due: dict[str, None] = {}
        self._due_nodes: dict[NodeName, None] = {}
        self._due_shared: set[str] = set()
        """Classes of which volumes have changed that several nodes reach."""
        self._all_nodes = False
        self._sizes = 0

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        await self.view.run()

    # What the cluster says.

    def _whole(self) -> None:
        self._claims.update(dict.fromkeys(self.users.claims()))  # they may have waited for the right to be read
        self._listed()

    def _claim_changed(self, claim: VolumeClaim) -> None:
        self._claims[claim.key] = None
        self._getting.news(claim.key)

    def _volume_changed(self, old: Volume | None, new: Volume | None) -> None:
        if any(one is not None and is_free(one) for one in (old, new)):
            self._stock.forget()
        for one in filter(None, (old, new)):
            self._getting.news(("", one.name))
            ref = one.spec.claim_ref
            if ref is not None:
                key = ref.namespace, ref.name
                self._claims[key] = None
                self._getting.news(key)
        if new is not None and is_free(new):
            self._classes.add(new.spec.storage_class_name)  # what waits for a volume of the class may get this one
        for one in filter(None, (old, new)):
            if self._stock.counts_class(one.spec.storage_class_name):
                self._touch_node_of(one)

    def _touch_node_of(self, volume: Volume) -> None:
        name = pin_of(volume)
        if not name:
            self._due_shared.add(volume.spec.storage_class_name)
        elif ("", name) in self._nodes:
            self._due_nodes[NodeName(name)] = None
        else:
            self._all_nodes = True

    def _class_changed(self, name: str) -> None:
        self._stock.forget()
        self._classes.add(name)

    def _node_changed(self, name: str) -> None:
        self._due_nodes[NodeName(name)] = None
        if self._limits.node_changed(name):  # asks of pods, and all nodes, name the driver or leave it out
            self._all_nodes = True
            self._claims.update(dict.fromkeys(self.users.claims()))

    def pod_changed(self, pod: Pod) -> None:
        """Note a pod, before anything is asked about it."""
        if pod.over:
            self.pod_gone(pod)
            return
        for key in self.users.put(pod):
            if len(self.users.of(key)) == 2:
                self._claims[key] = None
        if pod.spec.node_name and pod.key in self._starting:
            self._started(pod)
            self._getting.done(use.key for use in uses_of(pod))

    def pod_gone(self, pod: Pod) -> None:
        """Forget a pod: others may use its claims."""
        self._started(pod)
        self._beyond.forget(pod.key)
        self._enough.gone(pod.key)
        for key in self.users.drop(pod.key):
            self._let_others(key)
            if not self.users.of(key):
                self._beyond.forget(key)
                self._untake(key)

    def _started(self, pod: Pod) -> None:
        node = self._starting.pop(pod.key, None)
        self.users.look(pod.key)
        if node is not None:
            self._starting_on[node].pop(pod.key, None)
            if not self._starting_on[node]:
                del self._starting_on[node]

    def _let_others(self, key: ClaimKey) -> None:
        """Look again at who else names a claim that a pod uses no more: at one where many wait for their turn."""
        users, claim = self.users.of(key), self.view.claim(key)
        if len(users) == 1:
            self._claims[key] = None  # what it has is its own now
        elif claim is not None and ALONE in claim.spec.access_modes and users:
            if len(users) <= OTHERS_MAX:
                self._claims[key] = None
            elif (first := self.users.first(key)) is not None:
                self._due[first.key] = None

    def workload_changed(self, workload: Workload) -> None:
        """Note the templates of a workload that waits or runs; of one that is over they do not count any more."""
        self.users.put_gang(gang_id_of(workload), () if workload.over else (one.pod for one in workload.sets))

    def workload_gone(self, workload: Workload) -> None:
        self.users.put_gang(gang_id_of(workload), ())

    def planned(self, pod: Pod, ask: ReplicaAsk) -> None:
        """Note what a pod on a node was planned with: it counts as long as the pod is there, also after a restart."""
        if any(name.startswith(STOCK) for name, _ in ask.host.extended):
            for use in uses_of(pod):
                claim = self.view.claim(use.key)
                if claim is not None and not self._stock.takes(use.key):
                    self._stock.take(use.key)
                    self._touch_nodes_of_claim(claim)

    def _unchoose(self, key: ClaimKey) -> None:
        volume = self._stock.release(key)
        if volume is not None:
            self._classes.add(volume.spec.storage_class_name)  # others of its class may get it after all

    def _untake(self, key: ClaimKey) -> None:
        self._unchoose(key)
        if self._stock.takes(key):
            self._stock.take(key, takes=False)
            claim = self.view.claim(key)
            if claim is not None:
                self._touch_nodes_of_claim(claim)

    def _touch_nodes_of_claim(self, claim: VolumeClaim) -> None:
        volume = self.view.volume(claim.spec.volume_name)
        if volume is not None:
            self._touch_node_of(volume)

    @property
    def due(self) -> bool:
        """Whether pods are left to be looked at again."""
        return bool(self._due)

    def turn(self) -> Again:
        """Return what has to be looked at again since the last turn."""
        if self._classes:
            self._claims.update(dict.fromkeys(key for key in self.users.claims() if self._waits_for_class(key)))
            self._classes.clear()
        gangs: dict[GangId, None] = {}
        for key in self._claims:
            gangs.update(dict.fromkeys(self.users.gangs_of(key)))
            self._due.update(dict.fromkeys(pod.key for pod in self.users.of(key)))
        self._claims.clear()
        if self._stock.sizes != self._sizes:
            self._sizes, self._all_nodes = self._stock.sizes, True
        while self._due_shared:
            self._all_nodes |= self._stock.shared_changed(self._due_shared.pop())
        due = tuple(self._due)[:LOOKS_MAX]
        for pod_key in due:
            del self._due[pod_key]
        pods = tuple(filter(None, map(self.users.pod, due)))
        found = Again(pods, tuple(gangs), tuple(self._due_nodes), self._all_nodes)
        self._due_nodes, self._all_nodes = {}, False
        return found

    def _waits_for_class(self, key: ClaimKey) -> bool:
        claim = self.view.claim(key)
        spec = claim.spec if claim is not None else self.users.own_of(key)
        if spec is None or (claim is not None and is_bound(claim)):
            return False
        return "" in self._classes or (spec.storage_class_name or "") in self._classes

    # While a gang is planned.

    def refusal(self, pod: Pod) -> Refused | None:
        uses = uses_of(pod) if pod.spec.volumes else ()
        if not uses or pod.key in self._starting:
            return None  # a start is judged once
        if denied := self.view.denied:
            return Refused(
                NOT_READY, f"{denied} cannot be read: the server lacks the role penstock-volumes", again=True
            )
        why = next(filter(None, (self._why_not(pod, use) for use in uses)), "") or self._enough.why_not(pod)
        return Refused(NOT_READY, why, again=True) if why else None

    def _why_not(self, pod: Pod, use: Use) -> str:
        """Return why a pod has to wait for one of its claims, or ''."""
        claim, name = self.view.claim(use.key), use.key[1]
        if claim is None:
            if use.own is None:
                return f"claim {name} does not exist"
            return self._why_nowhere(name, use.own) if is_template(pod) else f"claim {name} has yet to be made for it"
        owner = claim.metadata.controller
        if use.own is not None and not is_template(pod) and (owner is None or owner.uid != pod.metadata.uid):
            return f"claim {name} is not its own, as the claim of an ephemeral volume has to be"
        if claim.leaving:
            return f"claim {name} is being deleted"
        if claim.status.phase == "Lost":
            return f"claim {name} has lost its volume {claim.spec.volume_name}"
        if is_bound(claim):
            return self._why_not_bound(claim) or self._why_not_alone(pod, claim)
        late = self._stock.late_class(claim.spec)
        if late is None:
            of = claim.spec.storage_class_name
            missing = of and self.view.storage_class(of) is None
            return f"claim {name} is not bound yet" + (f": class {of} does not exist" if missing else "")
        return self._why_nowhere(name, claim.spec, claim) or self._why_not_alone(pod, claim)

    def _why_nowhere(self, name: str, spec: ClaimSpec, claim: VolumeClaim | None = None) -> str:
        if self._stock.terms(spec, claim) != NOWHERE:
            return ""
        size = spec.resources.requests.get("storage", 0)
        return f"claim {name} asks for {size} of class {spec.storage_class_name}, and no node has that"

    def _why_not_bound(self, claim: VolumeClaim) -> str:
        volume = self.view.volume(claim.spec.volume_name)
        if volume is None:
            return f"volume {claim.spec.volume_name} of claim {claim.metadata.name} does not exist"
        if not is_kept_for(volume, claim):
            return f"volume {volume.name} is not bound to claim {claim.metadata.name}, which names it"
        return ""

    def _why_not_alone(self, pod: Pod, claim: VolumeClaim) -> str:
        """Return which pod has a claim that one alone may use, or comes before this one; '' if none."""
        if ALONE not in claim.spec.access_modes:
            return ""
        first = self.users.holder(claim.key, but=pod.key)
        if first is None and not is_template(pod):
            oldest = self.users.first(claim.key)
            first = oldest if oldest is not None and age_of(oldest) < age_of(pod) else None
        return f"claim {claim.metadata.name} may be used by one pod, and is by {first.metadata.name}" if first else ""

    def refusal_of_workload(self, workload: Workload) -> Refused | None:
        """Return why the pods of a workload cannot be placed with what their templates claim, or None."""
        return next(filter(None, (self._refusal_of_set(one) for one in workload.sets)), None)

    def _refusal_of_set(self, pods: PodSet) -> Refused | None:
        for use in uses_of(pods.pod) if pods.count > 1 else ():
            claim = self.view.claim(use.key) if use.own is None else None
            if claim is not None and ALONE in claim.spec.access_modes:
                text = f"claim {use.key[1]} may be used by one pod, and {pods.count} pods of a template name it"
                return Refused(NOT_READY, text)
        return self.refusal(pods.pod)

    def terms(self, pod: Pod) -> LabelTerms:
        found: LabelTerms = ()
        for use in uses_of(pod) if pod.spec.volumes else ():
            claim = self.view.claim(use.key) if not is_template(pod) or use.own is None else None
            if claim is None:
                found = all_of(found, self._stock.terms(use.own) if use.own is not None else ())
            elif is_bound(claim):
                volume = self.view.volume(claim.spec.volume_name)
                found = all_of(found, reach_of(volume) if volume is not None else ())
            else:
                found = all_of(found, self._terms_of(claim))
        return all_of(found, self._beyond.terms(pod.key))

    def _terms_of(self, claim: VolumeClaim) -> LabelTerms:
        """Return where a claim without a volume can get one."""
        found = self._stock.terms(claim.spec, claim)
        told = claim.metadata.annotations.get(SELECTED_ANNOTATION, "")
        if told and not self._getting.tells(claim.key):
            found = all_of(found, ((LabelRule(NAME_FIELD, "in", (told,)),),))
        return all_of(found, self._beyond.terms(claim.key))

    # Amounts.

    def sums(self, pod: Pod) -> Sums:
        if not pod.spec.volumes:
            return {}
        return sum_of({name: 1} for use in uses_of(pod) for name in self._amounts_of(pod, use))

    def _amounts_of(self, pod: Pod, use: Use) -> list[str]:
        claim = self.view.claim(use.key) if not is_template(pod) or use.own is None else None
        spec = claim.spec if claim is not None else use.own
        if spec is None or not self._is_its_own(pod, use, spec):
            return []
        found = [name] if (name := self._stock.amount_of(claim, spec)) else []
        return [*found, limit] if (limit := self._limits.amount_of(spec)) else found

    def _is_its_own(self, pod: Pod, use: Use, spec: ClaimSpec) -> bool:
        """Return whether no other pod uses a claim, so that it counts for this one alone."""
        if use.own is not None or ALONE in spec.access_modes:
            return True
        return ONCE_ONLY in spec.access_modes and not is_made(pod) and len(self.users.of(use.key)) < 2

    def devices(self, pod: Pod, share: int) -> Models:
        return ()

    def offered(self, node: Node) -> Sums:
        return sum_of((self._limits.offered(node.metadata.name), self._stock.offered(node)))

    # At the start.

    def refusal_of(self, node: NodeName, pod: Pod) -> str:
        if not pod.spec.volumes or not (uses := uses_of(pod)):
            return ""
        refused, found = self.refusal(pod), self._nodes.get(("", node))
        if refused is not None or found is None:
            return refused.text if refused is not None else "its node is gone"
        chosen = self._stock.choose(found, self._unbound(uses))
        if isinstance(chosen, str):
            return chosen
        others = (*self._pods_at(node), *self._starting_on.get(node, {}).values())
        full = self._limits.full(node, pod, others)
        if full:
            self._beyond.refuse(pod.key, node)
        return full

    def _unbound(self, uses: Iterable[Use]) -> list[VolumeClaim]:
        claims = (self.view.claim(use.key) for use in uses)
        return [claim for claim in claims if claim is not None and not is_bound(claim)]

    async def prepare(self, pod: Pod, node: NodeName, wanted: Callable[[], bool]) -> str:
        if not pod.spec.volumes or not (uses := uses_of(pod)):
            return ""
        why = self.refusal_of(node, pod) or self._enough.look(pod)  # others that start now may have come first
        if why:
            return why
        self._starting[pod.key] = node
        self._starting_on.setdefault(node, {})[pod.key] = pod
        self.users.look(pod.key)
        unbound = self._unbound(uses)
        chosen = self._stock.choose(self._nodes["", node], unbound)
        assert not isinstance(chosen, str), "refusal_of has just chosen"
        for claim in unbound:
            volume = chosen[claim.key]
            if self._stock.amount_of(claim, claim.spec):
                self._stock.take(claim.key)
            if volume is not None:
                self._stock.assume(claim.key, volume)
        problem = "not tried"
        try:
            got = [(claim, chosen[claim.key]) for claim in unbound]
            problem = await self._getting.get(node, got, wanted)
            if not problem:
                problem = await self._getting.wait(unbound, lambda: self._nodes.get(("", node)), wanted)
        finally:
            for claim in unbound:
                self._unchoose(claim.key)
            if problem:
                await self.release(pod, node)
        return problem

    async def release(self, pod: Pod, node: NodeName) -> None:
        """Let others have what was not written yet. A claim that got its volume keeps it (kubernetes#121436)."""
        self._started(pod)
        self._enough.left(pod.key)
        for use in uses_of(pod) if pod.spec.volumes else ():
            if self.users.holder(use.key, but=pod.key) is None:
                self._getting.done((use.key,))
                self._untake(use.key)
            self._let_others(use.key)
            self._due[pod.key] = None

    def _look_at(self, key: ClaimKey | str) -> None:
        if isinstance(key, str):
            self._due[key] = None
        else:
            self._claims[key] = None
