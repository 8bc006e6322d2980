"""What a pod asks of its node, as Penstock's ask; what cannot be decided is named, never left out."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from penstock.core.model.affinity import NODE, AffinityRule
from penstock.core.model.resources import DeviceAsk, Models, ReplicaAsk
from penstock.core.model.selectors import LabelOperator, LabelRule, LabelTerms, Toleration
from penstock.engines.kubernetes.amounts import Sums, pod_sums, sum_of
from penstock.engines.kubernetes.nodes import NAME_FIELD, device_counts, host_of
from penstock.engines.kubernetes.objects.common import Requirement
from penstock.engines.kubernetes.objects.pods import NodeSelectorTerm, Pod, PodSpec
from penstock.engines.kubernetes.selectors import HOSTNAME, domains_of

SCHEDULER = "penstock"
"""`schedulerName` of the pods that are placed here."""
_OPERATORS: dict[str, LabelOperator] = {
    "In": "in", "NotIn": "not_in", "Exists": "exists", "DoesNotExist": "not_exists", "Gt": "gt", "Lt": "lt",
}  # fmt: skip
NOWHERE: LabelTerms = ((LabelRule("", "in"),),)
"""No node satisfies it."""
_ADDED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Tolerated for a while by every pod, as the API server makes it: they put off an eviction, and permit no node."""
TERMS_MAX, PAIRS_MAX = 256, 10_000
"""Alternatives of one pod, and pairs of alternatives that are compared; further ones are left out."""


class Unsupported(NamedTuple):
    """A field of a pod that Penstock cannot decide about: it says so on the pod, and does not place it."""

    field: str
    text: str


def unsupported(pod: Pod) -> Iterator[Unsupported]:
    """Yield what keeps the pod from being placed here. Raises: BadAmount."""
    spec, sums = pod.spec, pod_sums(pod)
    vendors = list(device_counts(sums))
    if len(vendors) > 1:
        yield Unsupported("resources", f"devices of several vendors ({', '.join(vendors)}) for one pod")
    for rule in spec.topology_spread_constraints:
        if rule.when_unsatisfiable == "DoNotSchedule" and rule.max_skew < 1:
            yield Unsupported("topologySpreadConstraints", f"maxSkew {rule.max_skew}, expected 1 or more")


def ask_of(
    pod: Pod,
    selected: tuple[str, ...] = (),
    rules: tuple[AffinityRule, ...] = (),
    reached: LabelTerms = (),
    claimed: Sums | None = None,
    devices: Models = (),
) -> ReplicaAsk:
    """Return the ask of one pod.

    Args:
        selected: the selectors that select it; `rules`: its own about other pods.
        reached: the nodes on which it has what it claims; `claimed`: how much of that it takes there.
        devices: those that it gets by its claims.
    Raises: BadAmount.
    """
    sums = pod_sums(pod)
    vendor, count = next(iter(device_counts(sums).items()), ("", 0))
    return ReplicaAsk(
        host_of(sum_of((sums, claimed or {}))),
        DeviceAsk(count, vendor) if count else None,
        selected,
        rules,
        label_terms=all_of(_terms_of(pod.spec), reached),
        tolerations=tuple(
            Toleration(one.key, None if one.operator == "Exists" else one.value, one.effect)
            for one in pod.spec.tolerations
            if one.toleration_seconds is None or one.key not in _ADDED
        ),
        claimed=devices,
    )


def gathered(label: str, name: str) -> AffinityRule:
    """Return the rule of pods of this name that all nodes of theirs have one value of the label."""
    return AffinityRule("affinity", name, NODE if label == HOSTNAME else label)


def all_of(one: LabelTerms, other: LabelTerms) -> LabelTerms:
    """Return the alternatives that satisfy both."""
    if not one or not other:
        return one or other
    found: dict[tuple[LabelRule, ...], None] = {}
    for a, b in islice(((a, b) for a in one for b in other), PAIRS_MAX):
        if both := _both(a, b):
            found[both] = None
            if len(found) == TERMS_MAX:
                break
    return tuple(found) or NOWHERE


def _both(one: tuple[LabelRule, ...], other: tuple[LabelRule, ...]) -> tuple[LabelRule, ...]:
    """Return the rules of two alternatives as one alternative; none where no node has labels for both."""
    found: dict[object, LabelRule] = {}
    for rule in (*one, *other):
        if rule.operator != "in":
            found[rule] = rule
            continue
        known, values = found.get(rule.key), frozenset(rule.values)
        shared = tuple(value for value in known.values if value in values) if known is not None else rule.values
        if known is not None and not shared:
            return ()
        found[rule.key] = LabelRule(rule.key, "in", shared)
    return tuple(found.values())


def _terms_of(spec: PodSpec) -> LabelTerms:
    """Return what a pod says of the labels of its node."""
    chosen = tuple(LabelRule(key, "in", (value,)) for key, value in sorted(spec.node_selector.items()))
    required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    terms = terms_of(required.node_selector_terms) if required is not None else ()
    return all_of((chosen,) if chosen else (), terms)


def terms_of(terms: tuple[NodeSelectorTerm, ...]) -> LabelTerms:
    """Return the alternatives; one without rules matches no node, as in Kubernetes."""
    found = []
    for term in terms:
        rules = [_rule(one) for one in term.match_expressions]
        rules += [_rule(one) for one in term.match_fields if one.key == NAME_FIELD]
        if rules:
            found.append(tuple(rules))
    return tuple(found) or NOWHERE


def _rule(one: Requirement) -> LabelRule:
    operator = _OPERATORS.get(one.operator)
    return LabelRule(one.key, operator, one.values) if operator is not None else NOWHERE[0][0]


def keys_of(ask: ReplicaAsk) -> set[str]:
    """Return the labels of nodes that an ask looks at."""
    return {rule.key for term in ask.label_terms for rule in term} | domains_of(ask.affinity)
