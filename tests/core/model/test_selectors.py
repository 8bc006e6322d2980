"""Label rules, taints and tolerations mean what Kubernetes says they mean."""

import pytest

from penstock.core.model.selectors import LabelRule, Taint, Toleration, accepted, not_tolerated, terms_text

LABELS = {"zone": "a", "disk": "250", "gpu": ""}


@pytest.mark.parametrize(
    ("operator", "key", "values", "holds"),
    [
        ("in", "zone", ("a", "b"), True), ("in", "zone", ("b",), False), ("in", "rack", ("a",), False),
        ("not_in", "zone", ("b",), True), ("not_in", "zone", ("a",), False), ("not_in", "rack", ("a",), True),
        ("exists", "gpu", (), True), ("exists", "rack", (), False),
        ("not_exists", "rack", (), True), ("not_exists", "gpu", (), False),
        ("gt", "disk", ("249",), True), ("gt", "disk", ("250",), False), ("lt", "disk", ("251",), True),
        ("lt", "disk", ("250",), False), ("gt", "rack", ("0",), False), ("lt", "zone", ("5",), False),
        ("gt", "disk", ("many",), False), ("gt", "disk", (), False),
    ],
)  # fmt: skip
def test_a_rule_holds_as_in_kubernetes(operator, key, values, holds):
    assert LabelRule(key, operator, values).holds(LABELS) is holds


def test_one_alternative_is_enough_and_all_its_rules_must_hold():
    near, fast = LabelRule("zone", "in", ("a",)), LabelRule("disk", "gt", ("900",))
    assert accepted((), {})
    assert accepted(((near, fast), (near,)), LABELS)
    assert not accepted(((near, fast),), LABELS)


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration(), True), (Toleration("gpu"), True), (Toleration("gpu", "yes"), True),
        (Toleration("gpu", "yes", "NoSchedule"), True), (Toleration(value="yes"), True), (Toleration("cpu"), False),
        (Toleration("gpu", "no"), False), (Toleration("gpu", effect="NoExecute"), False),
    ],
)  # fmt: skip
def test_a_taint_is_tolerated_by_key_value_and_effect(toleration, tolerates):
    taint = Taint("gpu", "yes")
    assert not_tolerated((taint,), (toleration,)) == (None if tolerates else taint)


def test_each_taint_needs_a_toleration():
    taints = (Taint("gpu"), Taint("spot", effect="NoExecute"))
    assert not_tolerated(taints, (Toleration("gpu"),)) == taints[1]
    assert not_tolerated(taints, (Toleration("gpu"), Toleration("spot"))) is None
    assert not_tolerated((), ()) is None


def test_rules_and_taints_read_well():
    terms = (
        (LabelRule("zone", "in", ("a", "b")), LabelRule("gpu", "exists")),
        (LabelRule("disk", "gt", ("100",)), LabelRule("old", "not_exists"), LabelRule("x", "not_in", ("y",))),
    )
    assert terms_text(terms) == "zone in (a, b), gpu; or disk > 100, no old, x not in (y)"
    assert [str(Taint("gpu", "yes")), str(Taint("spot", effect="NoExecute"))] == [
        "gpu=yes:NoSchedule",
        "spot:NoExecute",
    ]
