"""What each role may see and do, and that a token never gives more than its user has; the `users` of cluster files."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.config.cluster import parse_cluster
from penstock.core.model.access import LEVELS, Scope, Token, User
from penstock.core.state.tokens import local_scope, scope_of

TENANTS = ("a", "b", "nowhere", "")
PEOPLE = ("me", "other")


def scope(role="", tenants=(), level="admin", only=(), user="me", disabled=False):
    return scope_of(User(user, role, tuple(tenants), disabled), Token("1", "0", user, level, tuple(only)))


def rights(found: Scope) -> frozenset[str]:
    """Return everything that a scope allows, as words."""
    said = {name for name in ("sees_all", "operates", "administers") if getattr(found, name)}
    for tenant in TENANTS:
        said |= {f"{name} {tenant}" for name in ("sees", "submits", "manages") if getattr(found, name)(tenant)}
        said |= {f"acts on {person} in {tenant}" for person in PEOPLE if found.acts_on(tenant, person)}
    return frozenset(said)


def everywhere(*words: str, tenants=TENANTS) -> set[str]:
    return {f"{word} {tenant}" for word in words for tenant in tenants}


MINE, OTHERS = "acts on me in", "acts on other in"
ADMIN = {"sees_all", "operates", "administers", *everywhere("sees", "submits", "manages", MINE, OTHERS)}
TABLE = [
    (scope(), set()),
    (scope("viewer"), {"sees_all", *everywhere("sees")}),
    (scope("operator"), {"sees_all", "operates", *everywhere("sees", MINE, OTHERS)}),
    (scope("operator", level="write"), {"sees_all", "operates", *everywhere("sees", MINE, OTHERS)}),
    (scope("operator", level="read"), {"sees_all", *everywhere("sees")}),
    (scope("operator", only=["a"]), {"sees a", f"{MINE} a", f"{OTHERS} a"}),
    (scope("admin"), ADMIN),
    (scope("admin", level="write"), ADMIN - {"administers", *everywhere("manages")}),
    (scope("admin", level="read"), {"sees_all", *everywhere("sees")}),
    (scope("admin", only=["a"]), {"sees a", "submits a", "manages a", f"{MINE} a", f"{OTHERS} a"}),
    (scope("admin", only=["a"], level="read"), {"sees a"}),
    (scope(tenants=[("a", "viewer")]), {"sees a"}),
    (scope(tenants=[("a", "member")]), {"sees a", "submits a", f"{MINE} a"}),
    (scope(tenants=[("a", "member")], level="write"), {"sees a", "submits a", f"{MINE} a"}),
    (scope(tenants=[("a", "member")], level="read"), {"sees a"}),
    (scope(tenants=[("a", "tenant_admin")]), {"sees a", "submits a", "manages a", f"{MINE} a", f"{OTHERS} a"}),
    (scope(tenants=[("a", "tenant_admin")], level="write"), {"sees a", "submits a", f"{MINE} a", f"{OTHERS} a"}),
    (scope(tenants=[("a", "member"), ("b", "viewer")]), {"sees a", "submits a", f"{MINE} a", "sees b"}),
    (scope(tenants=[("a", "member"), ("b", "viewer")], only=["b"]), {"sees b"}),
    (scope(tenants=[("a", "member")], only=["b"]), set()),
    (scope("viewer", tenants=[("a", "member")]), {"sees_all", *everywhere("sees"), "submits a", f"{MINE} a"}),
    (local_scope("me"), ADMIN),
]


@pytest.mark.parametrize(("given_scope", "expected"), TABLE)
def test_each_role_has_exactly_these_rights(given_scope, expected):
    assert rights(given_scope) == expected


roles = st.sampled_from(["", "viewer", "operator", "admin"])
names = st.sampled_from(["a", "b", "nowhere"])
held = st.dictionaries(names, st.sampled_from(["viewer", "member", "tenant_admin"])).map(lambda d: tuple(d.items()))
users = st.builds(User, name=st.just("me"), role=roles, tenants=held)
tokens = st.builds(
    Token,
    id=st.just("1"),
    sha256=st.just("0"),
    user=st.just("me"),
    level=st.sampled_from(LEVELS),
    tenants=st.sets(names).map(tuple),
)


@given(users, tokens)
def test_a_token_never_gives_more_than_its_user_has(user, token):
    assert rights(scope_of(user, token)) <= rights(scope_of(user, Token("1", "0", "me", "admin")))


@given(users, tokens, st.sampled_from(LEVELS))
def test_a_lower_level_never_adds_a_right(user, token, level):
    higher, lower = sorted((token.level, level), key=LEVELS.index, reverse=True)
    assert rights(scope_of(user, replace(token, level=lower))) <= rights(scope_of(user, replace(token, level=higher)))


@given(users, tokens, st.sets(names, min_size=1))
def test_limiting_a_token_to_fewer_tenants_never_adds_a_right(user, token, tenants):
    kept = tuple(tenants & set(token.tenants) if token.tenants else tenants)
    if kept:  # without a tenant it would be limited to none: it would not be limited
        assert rights(scope_of(user, replace(token, tenants=kept))) <= rights(scope_of(user, token))


@given(users, tokens)
def test_whoever_may_do_something_with_a_tenant_sees_it(user, token):
    found = scope_of(user, token)
    for tenant in TENANTS:
        may = found.submits(tenant) or found.manages(tenant) or any(found.acts_on(tenant, p) for p in PEOPLE)
        assert not may or found.sees(tenant)


@given(users, tokens)
def test_nothing_outside_of_its_tenants_is_seen_or_done_with_a_limited_token(user, token):
    found = scope_of(user, replace(token, tenants=("a",)))
    assert not found.sees_all
    assert not found.operates
    assert not found.administers
    assert all(word.endswith(" a") for word in rights(found))


@given(users, tokens)
def test_a_role_in_one_tenant_says_nothing_of_another(user, token):
    """What may be done with one tenant follows from the cluster role and the role in that tenant alone."""
    alone = replace(user, tenants=tuple((name, role) for name, role in user.tenants if name == "a"))
    assert about(rights(scope_of(user, token)), "a") == about(rights(scope_of(alone, token)), "a")


def about(said: frozenset[str], tenant: str) -> set[str]:
    return {word for word in said if word.endswith(f" {tenant}")}


@given(held, tokens)
def test_nobody_without_a_role_in_the_cluster_sees_what_belongs_to_no_tenant(tenants, token):
    assert not scope_of(User("me", "", tenants), token).sees("")


# The `users` section.


@dataclasses.dataclass
class Wrong:
    """A wrong entry, the field that is named, and what the hint has in it."""

    user: object
    field: str
    message: str
    hint: str = ""


WRONG = [
    Wrong({"name": "u", "role": "opperator"}, "users[0].role", "is 'opperator', expected one of viewer, operator",
          "did you mean 'operator'?"),
    Wrong({"name": "u", "role": ""}, "users[0].role", "is '', expected one of viewer, operator, admin", "known: admin"),
    Wrong({"name": "u", "role": 5}, "users[0].role", "is 5, expected one of"),
    Wrong({"name": "u", "rolle": "admin"}, "users[0].rolle", "is not a field", "did you mean 'role'?"),
    Wrong({"name": "u", "tenants": {"vision": "membre"}}, "users[0].tenants.vision",
          "is 'membre', expected one of viewer, member, tenant_admin", "did you mean 'member'?"),
    Wrong({"name": "u", "tenants": {"vision": None}}, "users[0].tenants.vision", "is None, expected one of"),
    Wrong({"name": "u", "tenants": {"visoin": "member"}}, "users[0].tenants.visoin", "there is no tenant 'visoin'",
          "did you mean 'vision'?"),
    Wrong({"name": "u", "tenants": ["speeck"]}, "users[0].tenants.speeck", "there is no tenant 'speeck'",
          "did you mean 'speech'?"),
    Wrong({"name": "u", "tenants": "vision"}, "users[0].tenants", "is 'vision', expected a mapping of tenants"),
    Wrong({"name": "u", "tenants": 5}, "users[0].tenants", "is 5, expected a mapping of tenants to roles"),
    Wrong({"name": "u", "disabled": "yes"}, "users[0].disabled", "is 'yes', expected true or false"),
    Wrong({"name": "u", "description": ["x"]}, "users[0].description", "expected a text"),
    Wrong({"name": "no blanks"}, "users[0].name", "expected 1 to 63 letters, digits"),
    Wrong({"role": "admin"}, "users[0].name", "is None, expected 1 to 63 letters"),
    Wrong(7, "users[0]", "is 7, expected a mapping of fields"),
]  # fmt: skip


def parsed(*users: object):
    found, problems = parse_cluster({"tenants": ["default", "vision", "speech"], "users": list(users)})
    return found.config.users, problems


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.field} {wrong.message[:20]}")
def test_every_wrong_value_is_named_with_the_nearest_right_word(wrong):
    _, problems = parsed(wrong.user)
    assert [problem.field for problem in problems] == [wrong.field]
    assert wrong.message in problems[0].message
    assert problems[0].field in problems[0].message
    assert wrong.hint in problems[0].hint


def test_all_that_is_wrong_is_said_at_once():
    _, problems = parsed({"name": "u", "role": "x", "tenants": {"vision": "x", "nowhere": "member"}, "disabled": 1})
    said = {problem.field.removeprefix("users[0].") for problem in problems}
    assert said == {"role", "tenants.vision", "tenants.nowhere", "disabled"}


def test_one_user_is_declared_once():
    _, problems = parsed({"name": "u"}, {"name": "u", "role": "admin"})
    assert [(problem.code, problem.field) for problem in problems] == [("duplicate_name", "users[1].name")]


def test_users_are_read_with_their_roles():
    users, problems = parsed(
        "nora",
        {"name": "ann", "role": "viewer", "tenants": {"vision": "tenant_admin", "speech": "viewer"}},
        {"name": "bob", "tenants": ["vision", "speech"], "disabled": True, "description": "away"},
    )
    assert problems == []
    assert users == (
        User("nora"),
        User("ann", "viewer", (("speech", "viewer"), ("vision", "tenant_admin"))),
        User("bob", "", (("speech", "member"), ("vision", "member")), True, "away"),
    )


plain = st.none() | st.booleans() | st.integers() | st.text(max_size=9)
anything = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


@given(anything)
def test_whatever_stands_there_is_read_or_told_of(value):
    for field in ("role", "tenants", "disabled", "description"):
        users, problems = parsed({"name": "u", field: value})
        assert problems or len(users) == 1
        if not problems:
            assert users[0].role in ("", "viewer", "operator", "admin")
            assert {name for name, _ in users[0].tenants} <= {"default", "vision", "speech"}
