"""What a pod asks of its node, as Penstock's ask; what cannot be decided yet is named, never left out."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.model.gang import GangAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk
from penstock.core.model.selectors import LabelOperator, LabelRule, LabelTerms, Toleration
from penstock.engines.kubernetes.amounts import pod_sums
from penstock.engines.kubernetes.nodes import NAME_FIELD, device_count, host_of, other_resources
from penstock.engines.kubernetes.objects import NodeSelectorTerm, Pod, Requirement

SCHEDULER = "penstock"
"""`schedulerName` of the pods that are placed here."""
QUEUE_LABEL, GANG_LABEL, GANG_SIZE_LABEL = "penstock.dev/queue", "penstock.dev/gang", "penstock.dev/gang-size"
REPLICA_ANNOTATION, DEVICES_ANNOTATION = "penstock.dev/replica", "penstock.dev/devices"
"""Written with the Binding: which replica the pod is, as `JOB.ATTEMPT.RANK`, and which devices it was counted with."""
_OPERATORS: dict[str, LabelOperator] = {
    "In": "in", "NotIn": "not_in", "Exists": "exists", "DoesNotExist": "not_exists", "Gt": "gt", "Lt": "lt",
}  # fmt: skip
_NOWHERE: LabelTerms = ((LabelRule("", "in"),),)
"""No node satisfies it."""


class Unsupported(NamedTuple):
    """A field of a pod that Penstock cannot decide about: it says so on the pod, and does not place it."""

    field: str
    text: str


def unsupported(pod: Pod) -> Iterator[Unsupported]:
    """Yield what keeps the pod from being placed here. Raises: BadAmount."""
    spec, sums = pod.spec, pod_sums(pod)
    others = other_resources(sums)
    if others:
        yield Unsupported("resources", f"{', '.join(others)} is no resource that Penstock counts")
    affinity = spec.affinity
    if affinity is not None:
        for field, one in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
            if one is not None and one.required:
                yield Unsupported(f"affinity.{field}", "required rules between pods")
    if any(one.when_unsatisfiable == "DoNotSchedule" for one in spec.topology_spread_constraints):
        yield Unsupported("topologySpreadConstraints", "whenUnsatisfiable: DoNotSchedule")
    if any(port.host_port for container in spec.containers for port in container.ports):
        yield Unsupported("containers[].ports[].hostPort", "a port of the node")
    if any(one.persistent_volume_claim is not None or one.ephemeral is not None for one in spec.volumes):
        yield Unsupported("volumes", "persistent volumes")
    if spec.resource_claims:
        yield Unsupported("resourceClaims", "devices by resource claims (DRA)")


def alike(pod: Pod) -> GangAsk:
    """Return the ask of one pod: all pods of a gang have the same. Raises: BadAmount."""
    sums, spec = pod_sums(pod), pod.spec
    vendor, count = device_count(sums)
    terms = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    return GangAsk(
        replicas=1,
        each=ReplicaAsk(host_of(sums), DeviceAsk(count, vendor) if count else None),
        labels_wanted=tuple(sorted(spec.node_selector.items())),
        label_terms=_terms(terms.node_selector_terms) if terms is not None else (),
        tolerations=tuple(
            Toleration(one.key, None if one.operator == "Exists" else one.value, one.effect) for one in spec.tolerations
        ),
    )


def _terms(terms: tuple[NodeSelectorTerm, ...]) -> LabelTerms:
    """Return the alternatives; one without rules matches no node, as in Kubernetes."""
    found = []
    for term in terms:
        rules = [_rule(one) for one in term.match_expressions]
        rules += [_rule(one) for one in term.match_fields if one.key == NAME_FIELD]
        if rules:
            found.append(tuple(rules))
    return tuple(found) or _NOWHERE


def _rule(one: Requirement) -> LabelRule:
    operator = _OPERATORS.get(one.operator)
    return LabelRule(one.key, operator, one.values) if operator is not None else _NOWHERE[0][0]


def keys_of(ask: GangAsk) -> set[str]:
    """Return the labels of nodes that an ask looks at."""
    return {key for key, _ in ask.labels_wanted} | {rule.key for term in ask.label_terms for rule in term}
