"""Who holds what, as far as a policy lets people see it."""

import pytest

from penstock.core.config.cluster import parse_cluster
from penstock.core.model.answers import Holder
from penstock.core.status.quotas import seen_holders

FOUND = [
    Holder("mine", "ann", "q", "devices", 3_000, 2),
    Holder("theirs", "eve", "q", "devices", 4_000, 3),
    Holder("theirs", "bob", "q", "devices", 1_000, 1),
    Holder("theirs", "eve", "r", "devices", 500, 1),
]


@pytest.mark.parametrize(
    ("others", "seen"),
    [
        ("own", FOUND[:1]),
        (
            "tenants",
            [FOUND[0], Holder("theirs", "", "q", "devices", 5_000, 4), Holder("theirs", "", "r", "devices", 500, 1)],
        ),
        ("users", FOUND),
    ],
)
def test_of_other_tenants_people_see_what_the_policy_says(others, seen):
    assert seen_holders(FOUND, lambda tenant: tenant == "mine", others) == seen


@pytest.mark.parametrize("others", ["own", "tenants", "users"])
def test_who_sees_every_tenant_sees_every_name(others):
    assert seen_holders(FOUND, lambda tenant: True, others) == FOUND


def test_a_wrong_word_is_told_with_the_nearest():
    _, problems = parse_cluster({"settings": {"holders_shown": "tenant"}})
    assert [(one.field, one.hint) for one in problems] == [("settings.holders_shown", "did you mean 'tenants'?")]
