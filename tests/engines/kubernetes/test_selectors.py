"""Rules of pods about other pods: which pods a rule selects, how it is named, and when it is forgotten."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from penstock.core.model.affinity import AffinityRule
from penstock.engines.kubernetes import selectors
from penstock.engines.kubernetes.objects.common import LabelSelector, Requirement
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.selectors import Selectors, Term, domains_of, has_rules, rules_of, selector_of

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}


def pod(name: str = "p", namespace: str = "ns", labels: Any = None, *, leaving: bool = False, **spec: Any) -> Pod:
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "labels": labels or {}}
    if leaving:
        meta["deletionTimestamp"] = "2026-11-24T09:00:00Z"
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def term(key: str = HOST, selector: Any = WEB, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": selector, **more}


def affinity(kind: str, *terms: Any) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def labels_of(namespace: str) -> Mapping[str, str]:
    return {"kubernetes.io/metadata.name": namespace, **({"team": "red"} if namespace == "red" else {})}


def selected(rule: Any, *, by: Pod | None = None) -> list[str]:
    """Return which of some pods the anti-affinity with this term selects."""
    one = by if by is not None else pod(labels={"version": "2"}, **affinity("podAntiAffinity", rule))
    (_, selector) = rules_of(one)[0]
    assert selector is not None
    others = [
        pod("web", labels={"app": "web"}), pod("web2", labels={"app": "web", "version": "2"}), pod("db"),
        pod("red", "red", {"app": "web"}), pod("other", "other", {"app": "web"}),
    ]  # fmt: skip
    return [other.metadata.name for other in others if selector.selects(other, labels_of)]


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        (term(), ["web", "web2"]),
        (term(selector={}), ["web", "web2", "db"]),
        (term(selector=None), []),
        (term(namespaces=["red"]), ["red"]),
        (term(namespaces=["red", "ns"]), ["web", "web2", "red"]),
        (term(namespaceSelector={}), ["web", "web2", "red", "other"]),
        (term(namespaceSelector={"matchLabels": {"team": "red"}}), ["red"]),
        (term(namespaces=["ns"], namespaceSelector={"matchLabels": {"team": "red"}}), ["web", "web2", "red"]),
        (term(matchLabelKeys=["version"]), ["web2"]),
        (term(matchLabelKeys=["absent"]), ["web", "web2"]),
        (term(mismatchLabelKeys=["version"]), ["web"]),
        (term(selector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), ["db"]),
    ],
    ids=[
        "labels", "any pod of its namespace", "nothing", "another namespace", "two namespaces", "all namespaces",
        "namespaces by label", "both", "the same version", "a label it has not", "other versions", "not these",
    ],
)  # fmt: skip
def test_a_rule_selects_pods_by_labels_and_namespaces(rule: Any, names: list[str]) -> None:
    assert selected(rule) == names


@pytest.mark.parametrize(
    ("operator", "values", "holds"),
    [
        ("In", ("web",), [True, False, False]),
        ("NotIn", ("web",), [False, True, True]),
        ("Exists", (), [True, True, False]),
        ("DoesNotExist", (), [False, False, True]),
        ("Wrong", (), [False, False, False]),
    ],
)
def test_operators_of_selectors(operator: str, values: tuple[str, ...], holds: list[bool]) -> None:
    one = LabelSelector(match_expressions=(Requirement("app", operator, values),))
    assert [one.selects(labels) for labels in ({"app": "web"}, {"app": "db"}, {})] == holds


@pytest.mark.parametrize(
    ("spec", "rules"),
    [
        ({}, []),
        (affinity("podAffinity", term()), [AffinityRule("affinity", "pods app=web in ns")]),
        (affinity("podAntiAffinity", term(ZONE)), [AffinityRule("anti_affinity", "pods app=web in ns", ZONE)]),
        (
            affinity("podAffinity", term(), term(ZONE, {"matchLabels": {"b": "c"}})),
            [
                AffinityRule("affinity", "pods app=web in ns and b=c in ns"),
                AffinityRule("affinity", "pods app=web in ns and b=c in ns", ZONE),
            ],
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": ZONE, "labelSelector": WEB, "maxSkew": 2, "minDomains": 3}]},
            [AffinityRule("spread", "pods app=web in ns, not leaving", ZONE, 2, 3, True, False)],
        ),
        (
            {"topologySpreadConstraints": [{
                "topologyKey": HOST, "labelSelector": WEB, "nodeTaintsPolicy": "Honor", "nodeAffinityPolicy": "Ignore",
            }]},
            [AffinityRule("spread", "pods app=web in ns, not leaving", "", 1, 0, False, True)],
        ),
        ({"topologySpreadConstraints": [{"topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}]}, []),
    ],
    ids=["none", "affinity", "anti-affinity", "affinity of two terms", "spread", "policies of a spread", "a wish"],
)  # fmt: skip
def test_rules_of_a_pod_are_rules_about_named_selectors(spec: Any, rules: list[AffinityRule]) -> None:
    assert [rule for rule, _ in rules_of(pod(**spec))] == rules
    assert domains_of(rules) == {rule.domain for rule in rules if rule.domain}


def box(*ports: Any, **more: Any) -> dict[str, Any]:
    named = [{"hostPort": number, "hostIP": address, "protocol": protocol} for number, address, protocol in ports]
    return {"ports": named, **more}


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (box((80, "", "TCP")), box((80, "", "TCP")), True),
        (box((80, "", "TCP")), box((81, "", "TCP")), False),
        (box((80, "", "TCP")), box((80, "", "UDP")), False),
        (box((80, "10.0.0.1", "TCP")), box((80, "10.0.0.1", "TCP")), True),
        (box((80, "10.0.0.1", "TCP")), box((80, "10.0.0.2", "TCP")), False),
        (box((80, "10.0.0.1", "TCP")), box((80, "0.0.0.0", "TCP")), True),
        (box((0, "", "TCP")), box((0, "", "TCP")), False),
        (box((80, "", "TCP"), (81, "", "TCP")), box((81, "", "TCP")), True),
    ],
)
def test_two_pods_with_one_port_of_a_node_keep_apart(one: Any, other: Any, apart: bool) -> None:
    pods = pod("a", containers=[one]), pod("b", containers=[other])
    for mine, yours in (pods, pods[::-1]):
        repels = {rule.selector for rule, selector in rules_of(mine) if selector is None}
        assert bool(repels & set(Selectors(labels_of).selecting(yours))) is apart


@pytest.mark.parametrize(("restart", "counts"), [("Always", True), ("", False)])
def test_ports_of_init_containers_count_where_they_stay(restart: str, counts: bool) -> None:
    one = pod(initContainers=[box((80, "", "TCP"), restartPolicy=restart)])
    assert ("port 80/TCP" in Selectors(labels_of).selecting(one)) is counts
    assert has_rules(one)


def test_pods_that_leave_do_not_count_to_a_spread() -> None:
    spread = pod(topologySpreadConstraints=[{"topologyKey": ZONE, "labelSelector": WEB}])
    (_, counted), (_, kept) = rules_of(spread)[0], rules_of(pod(**affinity("podAntiAffinity", term())))[0]
    assert counted is not None
    assert kept is not None
    leaving = pod(labels={"app": "web"}, leaving=True)
    assert (counted.selects(leaving, labels_of), kept.selects(leaving, labels_of)) == (False, True)


def test_a_selector_is_in_use_as_long_as_a_pod_has_it() -> None:
    known, rule = Selectors(labels_of), affinity("podAntiAffinity", term())
    web = pod("web", labels={"app": "web"})
    assert known.selecting(web) == ()
    for name in ("a", "b"):
        known.use(pod(name, **rule))
    known.use(pod("a", **rule))
    assert [one.name for one in known.take_fresh()] == ["pods app=web in ns"]
    assert (len(known), known.selecting(web), known.take_fresh()) == (1, ("pods app=web in ns",), [])
    known.drop("ns/a")
    assert known.selecting(web) == ("pods app=web in ns",)
    known.drop("ns/b")
    assert (len(known), known.selecting(web)) == (0, ())


def test_a_selector_that_is_dropped_at_once_is_not_fresh() -> None:
    known = Selectors(labels_of)
    known.use(pod("a", **affinity("podAntiAffinity", term())))
    known.drop("ns/a")
    assert known.take_fresh() == []


def test_selectors_without_a_label_are_tried_on_every_pod() -> None:
    known = Selectors(labels_of)
    every = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    known.use(pod("a", **affinity("podAntiAffinity", term(selector=every))))
    assert known.selecting(pod("b", labels={"app": "x"})) == ("pods app Exists in ns",)
    assert known.selecting(pod("c")) == ()


@pytest.mark.parametrize(("rule", "said"), [(term(), False), (term(namespaceSelector={}), True)])
def test_it_is_known_whether_labels_of_namespaces_matter(rule: Any, said: bool) -> None:
    known = Selectors(labels_of)
    known.use(pod("a", **affinity("podAntiAffinity", rule)))
    assert known.of_namespaces is said


def test_the_number_of_selectors_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "SELECTORS_MAX", 1)
    known = Selectors(labels_of)
    known.use(pod("a", **affinity("podAntiAffinity", term())))
    same, another = (pod("b", **affinity("podAffinity", term(selector=one))) for one in (WEB, {}))
    assert (known.full_for(same), known.full_for(another), known.full_for(pod("c"))) == (False, True, False)


def test_long_names_of_selectors_are_cut_and_stay_different() -> None:
    def named(last: str) -> str:
        labels = {f"{'x' * 60}-{i}": "y" for i in range(4)} | {"z": last}
        return selector_of([Term(LabelSelector(match_labels=labels), frozenset(("ns",)), None)]).name

    assert max(len(named("a")), len(named("b"))) <= selectors.NAME_MAX
    assert named("a") != named("b")
    assert named("a") == named("a")


def test_what_a_pod_says_of_labels_it_has_twice_is_one_requirement() -> None:
    """The API server writes `matchLabelKeys` into the selector since 1.33: both together are as one."""
    both_said = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "v", "operator": "In", "values": ["2"]}]}
    plain = rules_of(pod(labels={"v": "2"}, **affinity("podAntiAffinity", term(selector=both_said))))
    both = rules_of(
        pod(labels={"v": "2"}, **affinity("podAntiAffinity", term(selector=both_said, matchLabelKeys=["v"])))
    )
    assert plain == both
