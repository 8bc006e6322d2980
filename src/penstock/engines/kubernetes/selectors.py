"""Which pods stand near which: rules of pods about other pods, as rules of the core about named selectors.

The core knows a selector by its name alone. Which pods it selects is worked out here, and goes with every ask and
with the load of every node. Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ and
.../topology-spread-constraints/ (KEP-2249, KEP-3022, KEP-3094, KEP-3243, KEP-3633).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.core.model.affinity import NODE, AffinityRule
from penstock.engines.kubernetes.objects.common import LabelSelector, Requirement
from penstock.engines.kubernetes.objects.pods import Pod, PodAffinityTerm, SpreadConstraint

HOSTNAME = "kubernetes.io/hostname"
"""The label of nodes that names each of them: its domains are the nodes themselves."""
NAME_MAX = 200
SELECTORS_MAX = 20_000
"""Selectors in use at a time; a pod that would bring more of them is refused."""
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - of a port of a node, nothing listens here
NamespaceLabels = Callable[[str], Mapping[str, str]]


class Term(NamedTuple):
    """Pods with certain labels in certain namespaces."""

    labels: LabelSelector
    namespaces: frozenset[str]
    of_namespaces: LabelSelector | None
    """Further namespaces, by their labels."""

    def selects(self, namespace: str, labels: Mapping[str, str], labels_of: NamespaceLabels) -> bool:
        if namespace not in self.namespaces and (
            self.of_namespaces is None or not self.of_namespaces.selects(labels_of(namespace))
        ):
            return False
        return self.labels.selects(labels)

    def __str__(self) -> str:
        where = ", ".join(sorted(self.namespaces))
        if self.of_namespaces is not None:
            where = " and ".join(filter(None, (where, f"namespaces with {self.of_namespaces}")))
        return f"{self.labels} in {where}"


class Selector(NamedTuple):
    """Pods that all its terms select."""

    name: str
    terms: tuple[Term, ...]
    leaving_count: bool = True
    """Whether pods that are being deleted count."""

    def selects(self, pod: Pod, labels_of: NamespaceLabels) -> bool:
        if not self.leaving_count and pod.leaving:
            return False
        meta = pod.metadata
        return all(term.selects(meta.namespace, meta.labels, labels_of) for term in self.terms)


def selector_of(terms: Iterable[Term], *, leaving_count: bool = True) -> Selector:
    """Return the selector of these terms, named by what they say."""
    kept = tuple(terms)
    name = "pods " + " and ".join(map(str, kept)) + ("" if leaving_count else ", not leaving")
    if len(name) > NAME_MAX:
        name = f"{name[: NAME_MAX - 20]}... {hashlib.blake2s(name.encode(), digest_size=8).hexdigest()}"
    return Selector(name, kept, leaving_count)


def rules_of(pod: Pod) -> list[tuple[AffinityRule, Selector | None]]:
    """Return the rules of a pod about other pods, each with its selector; ports of nodes need none."""
    found: list[tuple[AffinityRule, Selector | None]] = []
    affinity = pod.spec.affinity
    if affinity is not None and affinity.pod_affinity is not None and affinity.pod_affinity.required:
        terms = affinity.pod_affinity.required
        selector = selector_of(_term(pod, term) for term in terms)  # a pod counts only where all terms select it
        found += [(AffinityRule("affinity", selector.name, _domain(t.topology_key)), selector) for t in terms]
    if affinity is not None and affinity.pod_anti_affinity is not None:
        for term in affinity.pod_anti_affinity.required:
            selector = selector_of([_term(pod, term)])
            found.append((AffinityRule("anti_affinity", selector.name, _domain(term.topology_key)), selector))
    found += [_spread(pod, one) for one in pod.spec.topology_spread_constraints if _must(one)]
    found += [(AffinityRule("anti_affinity", name), None) for name in _ports_kept_off(pod)]
    return found


def domains_of(rules: Iterable[AffinityRule]) -> set[str]:
    """Return the labels of nodes that these rules look at."""
    return {rule.domain for rule in rules if rule.domain != NODE}


def _must(one: SpreadConstraint) -> bool:
    return one.when_unsatisfiable == "DoNotSchedule"


def _domain(key: str) -> str:
    return NODE if key == HOSTNAME else key


def _term(pod: Pod, term: PodAffinityTerm) -> Term:
    namespaces = frozenset(term.namespaces)
    if not namespaces and term.namespace_selector is None:
        namespaces = frozenset((pod.metadata.namespace,))
    wanted = [_requirement(pod, key, "In") for key in term.match_label_keys]
    wanted += [_requirement(pod, key, "NotIn") for key in term.mismatch_label_keys]
    return Term(_with(term.label_selector, wanted), namespaces, term.namespace_selector)


def _requirement(pod: Pod, key: str, operator: str) -> Requirement | None:
    value = pod.metadata.labels.get(key)
    return Requirement(key, operator, (value,)) if value is not None else None


_NOTHING = LabelSelector(match_expressions=(Requirement("", "nothing"),))


def _with(selector: LabelSelector | None, more: Iterable[Requirement | None]) -> LabelSelector:
    """Return a selector with further requirements; none at all selects nothing."""
    if selector is None:
        return _NOTHING
    added = tuple(one for one in more if one is not None and one not in selector.match_expressions)
    return LabelSelector(selector.match_labels, (*selector.match_expressions, *added)) if added else selector


def _spread(pod: Pod, one: SpreadConstraint) -> tuple[AffinityRule, Selector]:
    wanted = [_requirement(pod, key, "In") for key in one.match_label_keys]
    term = Term(_with(one.label_selector, wanted), frozenset((pod.metadata.namespace,)), None)
    selector = selector_of([term], leaving_count=False)
    rule = AffinityRule(
        "spread",
        selector.name,
        _domain(one.topology_key),
        max_skew=one.max_skew,
        domains_min=one.min_domains or 0,
        honours_labels=one.node_affinity_policy == "Honor",
        honours_taints=one.node_taints_policy == "Honor",
    )
    return rule, selector


# Ports of nodes: two pods may not have one port on addresses that overlap.


def _ports(pod: Pod) -> Iterator[tuple[str, str]]:
    sidecars = (one for one in pod.spec.init_containers if one.restart_policy == "Always")
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports:
            if port.host_port:
                yield f"port {port.host_port}/{port.protocol}", port.host_ip or ANY_ADDRESS


def _ports_kept_off(pod: Pod) -> Iterator[str]:
    for port, address in dict.fromkeys(_ports(pod)):
        if address == ANY_ADDRESS:
            yield port
        else:
            yield f"{port} on {address}"
            yield f"{port} on {ANY_ADDRESS}"


def _ports_held(pod: Pod) -> Iterator[str]:
    for port, address in _ports(pod):
        yield port
        yield f"{port} on {address}"


class Selectors:
    """The selectors in use, and which of them select a pod.

    Args:
        labels_of: gives the labels of a namespace.
    """

    def __init__(self, labels_of: NamespaceLabels) -> None:
        self._labels_of = labels_of
        self._known: dict[str, Selector] = {}
        self._users: dict[str, int] = {}
        self._of_pod: dict[str, tuple[str, ...]] = {}
        self._by_label: dict[tuple[str, str], list[Selector]] = {}
        """Selectors that want a label to have a value, by one such label."""
        self._others: list[Selector] = []
        self.fresh: list[Selector] = []
        """Selectors that came into use: which pods they select has to be counted."""

    @property
    def of_namespaces(self) -> bool:
        """Whether some selector in use looks at the labels of namespaces."""
        return any(term.of_namespaces is not None for one in self._known.values() for term in one.terms)

    def __len__(self) -> int:
        return len(self._known)

    def full_for(self, pod: Pod) -> bool:
        """Return whether there are too many selectors for those that a pod would bring."""
        new = {one.name for _, one in rules_of(pod) if one is not None} - self._known.keys()
        return bool(new) and len(self._known) + len(new) > SELECTORS_MAX

    def use(self, pod: Pod) -> tuple[AffinityRule, ...]:
        """Return the rules of a pod; its selectors are in use from then on, until `drop`."""
        if not has_rules(pod):
            return ()
        rules = rules_of(pod)
        if pod.key not in self._of_pod:
            names = tuple(dict.fromkeys(one.name for _, one in rules if one is not None))
            self._of_pod[pod.key] = names
            for name in names:
                self._users[name] = self._users.get(name, 0) + 1
        for _, selector in rules:
            if selector is not None and selector.name not in self._known and selector.name in self._users:
                self._add(selector)
        return tuple(dict.fromkeys(rule for rule, _ in rules))

    def drop(self, pod_key: str) -> None:
        """Forget a pod's rules: it is gone."""
        for name in self._of_pod.pop(pod_key, ()):
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
                selector = self._known.pop(name, None)
                if selector is not None:
                    self._list_of(selector).remove(selector)

    def _add(self, selector: Selector) -> None:
        self._known[selector.name] = selector
        self._list_of(selector).append(selector)
        self.fresh.append(selector)

    def _list_of(self, selector: Selector) -> list[Selector]:
        label = min((one for term in selector.terms for one in term.labels.match_labels.items()), default=None)
        return self._others if label is None else self._by_label.setdefault(label, [])

    def selecting(self, pod: Pod) -> tuple[str, ...]:
        """Return the names of all selectors that select a pod, ascending."""
        found = list(_ports_held(pod))
        if self._known:
            candidates = list(self._others)
            for label in pod.metadata.labels.items():
                candidates += self._by_label.get(label, ())
            found += [one.name for one in candidates if one.selects(pod, self._labels_of)]
        return tuple(sorted(set(found)))

    def take_fresh(self) -> list[Selector]:
        """Return the selectors that came into use since the last call and still are."""
        found = [one for one in self.fresh if one.name in self._known]
        self.fresh = []
        return found


def has_rules(pod: Pod) -> bool:
    """Return whether a pod may have rules about other pods, or ports of its node."""
    spec = pod.spec
    if spec.affinity is not None or spec.topology_spread_constraints:
        return True
    return any(port.host_port for one in (*spec.containers, *spec.init_containers) for port in one.ports)
