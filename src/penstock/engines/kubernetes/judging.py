"""What the engine knows of pods and nodes beyond what stands on them: what a pod asks for, whether a node takes it."""

from collections.abc import Collection, Mapping
from functools import partial

from msgspec import structs

from penstock.core.messages.reports import NodeCheck, ReplicaKey
from penstock.core.model.affinity import NODE
from penstock.core.model.ids import NodeName
from penstock.core.model.resources import ReplicaAsk
from penstock.core.model.selectors import LabelRule, LabelTerms, accepted, not_tolerated
from penstock.engines.kubernetes.amounts import BadAmount, Sums, pod_sums, sum_of
from penstock.engines.kubernetes.asks import all_of, ask_of, gathered, keys_of, unsupported
from penstock.engines.kubernetes.budgets import Budgets
from penstock.engines.kubernetes.claims import AllClaims
from penstock.engines.kubernetes.gangs.gang import Gang, GangId, Refused, Slot, differs, slots_of
from penstock.engines.kubernetes.nodes import NAME_FIELD
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.onnode import Standing
from penstock.engines.kubernetes.selectors import Selectors
from penstock.engines.kubernetes.sessions import Nodes


class Asking:
    """What pods ask for, and what they are for the load of their nodes. Everything runs on the engine's loop."""

    def __init__(self, standing: Nodes, selectors: Selectors, claims: AllClaims) -> None:
        self._standing, self._selectors, self.claims = standing, selectors, claims
        self._avoided: dict[GangId, dict[NodeName, float]] = {}
        """Nodes that turned out not to have what a gang claims, and until when it is not planned there again."""

    def ask_of(self, gang: Gang, pod: Pod) -> ReplicaAsk:
        """Return what a pod of a gang asks for. Raises: BadAmount."""
        rules, selected = self._selectors.use(pod), self._selectors.selecting(pod)
        if gang.facts.near is not None and gang.size > 1:
            rule = gathered(gang.facts.near, f"gang {gang.label}")
            rules, selected = (*rules, rule), tuple(sorted((*selected, rule.selector)))
        if together := self.claims.together(pod):
            rules, selected = (*rules, *together), tuple(sorted((*selected, *(rule.selector for rule in together))))
        reached = all_of(self.claims.terms(pod), self._not_avoided(gang))
        return ask_of(pod, selected, rules, reached, self.claims.sums(pod), self.claims.devices(pod, gang.size))

    def avoid(self, gang: Gang, node: NodeName, until_s: float) -> None:
        """Plan a gang somewhere else until then (of the loop's clock)."""
        self._avoided.setdefault(gang.id, {})[node] = until_s

    def avoid_no_more(self, gang_id: GangId, now_s: float) -> None:
        """Forget what a gang avoided until now."""
        left = {node: until_s for node, until_s in self._avoided.pop(gang_id, {}).items() if until_s > now_s}
        if left:
            self._avoided[gang_id] = left

    def avoid_nowhere_in(self, nodes: Collection[NodeName]) -> list[GangId]:
        """Let gangs be planned on these nodes again, and return those that were not."""
        found = [gang_id for gang_id, avoided in self._avoided.items() if not avoided.keys().isdisjoint(nodes)]
        for gang_id in found:
            for node in self._avoided[gang_id].keys() & set(nodes):
                del self._avoided[gang_id][node]
        return found

    def _not_avoided(self, gang: Gang) -> LabelTerms:
        nodes = self._avoided.get(gang.id)
        return ((LabelRule(NAME_FIELD, "not_in", tuple(sorted(nodes))),),) if nodes else ()

    def sums_of(self, pod: Pod) -> Sums:
        """Return what a pod takes of its node; what cannot be read counts as nothing: the kubelet refuses it."""
        try:
            return sum_of((pod_sums(pod), self.claims.sums(pod)))
        except BadAmount:
            return {}

    def standing_of(
        self, pod: Pod, key: ReplicaKey | None, planned: ReplicaAsk | None, devices: frozenset[int]
    ) -> Standing:
        """Return what a pod is for its node: a replica of ours, which asked for what was planned, or another's."""
        rules, selected = self._selectors.use(pod), self._selectors.selecting(pod)
        repels = tuple((rule.domain, rule.selector) for rule in rules if rule.kind == "anti_affinity")
        self._standing.ask_about({rule.domain for rule in rules if rule.domain != NODE})
        if planned is not None:
            selected = tuple(name for name in selected if name not in planned.selected)
            repels = tuple(one for one in repels if one not in planned.repels)
        return Standing(key, self.sums_of(pod), selected, repels, devices)


class Judging(Asking):
    """Answers what orders and offers ask, too."""

    def __init__(
        self,
        nodes: Mapping[tuple[str, str], Node],
        standing: Nodes,
        selectors: Selectors,
        budgets: Budgets,
        claims: AllClaims,
    ) -> None:
        super().__init__(standing, selectors, claims)
        self._nodes, self._budgets = nodes, budgets

    def refusal(self, pod: Pod) -> Refused | None:
        """Return why a pod can never be placed as it is, or None. Raises: BadAmount."""
        found = list(unsupported(pod))
        if found:
            return Refused("Unsupported", "; ".join(f"{one.field}: {one.text}" for one in found))
        if self._selectors.full_for(pod):
            return Refused("TooManyRules", "too many different rules between pods are in use", again=True)
        return self.claims.refusal(pod)

    def guarded(self, gang: Gang) -> str:
        """Return why a gang must not be evicted now, or ''."""
        return self._budgets.why(gang)

    def changed(self, name: NodeName, ask: ReplicaAsk, planned: ReplicaAsk) -> bool:
        """Return whether a pod has to be planned anew: it asks for something else than was planned for it.

        Where a volume is may become known, or be decided, in between: that does not count where the node reaches it.
        """
        if not differs(ask, planned):
            return False
        self._standing.ask_about(keys_of(ask))
        spec = self._standing.specs.get(name)
        reached = spec is not None and accepted(ask.label_terms, dict(spec.labels))
        return not reached or differs(structs.replace(ask, label_terms=planned.label_terms), planned)

    def other_place(self, gang: Gang, slot: Slot, ask: ReplicaAsk) -> Slot | None:
        """Return another place of the template that waits for a pod, on a node where one has what it asks for."""
        waiting = (one for one in gang.slots if one.vacant and one.key is not None and one.template == slot.template)
        return next((one for one in waiting if not self.changed(one.node, ask, one.ask)), None)

    def edited(self, gang: Gang) -> bool:
        """Return whether the pods of a gang ask for something else than was planned, or for what cannot be read."""
        try:
            asked = slots_of(gang, partial(self.ask_of, gang)) if gang.complete else []
        except BadAmount:
            return True
        return any(differs(one.ask, known.ask) for one, known in zip(asked, gang.slots, strict=False))

    def refusal_of(self, name: NodeName, ask: ReplicaAsk, pod: Pod) -> str:
        """Return why a node does not take a pod that asks for this now, whatever was planned; '' if it does."""
        spec = self._standing.specs.get(name)
        if spec is None:
            return "its node is gone"
        if not_tolerated(spec.taints, ask.tolerations) or not accepted(ask.label_terms, dict(spec.labels)):
            return "its node takes no more pods of its kind"
        short = self._standing.at(name).short_for(spec, ask)
        return f"its node has too little {short} left by now" if short else self.claims.refusal_of(name, pod)

    def check(self, name: NodeName) -> NodeCheck:
        node = self._nodes.get(("", name))
        ready = next((c for c in node.status.conditions if c.type == "Ready"), None) if node is not None else None
        if ready is not None and ready.status != "True":
            return NodeCheck(False, f"{ready.reason}: {ready.message}")
        return NodeCheck(node is not None)
