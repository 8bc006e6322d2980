"""The `oidc` section of a cluster file: what cannot work, or would be unsafe, is refused with its field."""

import pytest

from penstock.core.config.cluster import declaration, parse_cluster
from penstock.core.config.diff import diff
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.oidc import IdentityProvider

GOOD = {"issuer": "https://login.example.org/lab", "client_id": "penstock"}


def problems_of(**oidc):
    """Return the fields with problems of a section that is good but for `oidc`, and all that is said."""
    _, found = parse_cluster({"oidc": GOOD | oidc})
    return [one.field for one in found], " ".join(one.message + one.hint for one in found)


@pytest.mark.parametrize(
    ("oidc", "field"),
    [
        ({"issuer": None}, "oidc.issuer"),
        ({"client_id": None}, "oidc.client_id"),
        ({"issuer": "https://login.example.org/?realm=lab"}, "oidc.issuer"),
        ({"issuer": "https://ann:word@login.example.org"}, "oidc.issuer"),
        ({"client_secret_file": "secret"}, "oidc.client_secret_file"),
        ({"client_secret_name": "S"}, "oidc.client_secret_owner"),
        ({"client_secret_owner": "root"}, "oidc.client_secret_owner"),
        (
            {"client_secret_file": "/s", "client_secret_name": "S", "client_secret_owner": "root"},
            "oidc.client_secret_name",
        ),
        ({"claim": "a claim"}, "oidc.claim"),
        ({"groups": "ml"}, "oidc.groups"),
        ({"groups": ["ml", "ml"]}, "oidc.groups"),
        ({"scopes": ["profile"]}, "oidc.scopes"),
        ({"scopes": ["openid", "a b"]}, "oidc.scopes"),
        ({"level": "root"}, "oidc.level"),
        ({"session": "8d"}, "oidc.session"),
        ({"session": "1s"}, "oidc.session"),
        ({"users": ["ann"]}, "oidc.users"),
        ({"users": {"a@b": 1}}, "oidc.users.a@b"),
        ({"addresses": ["penstock.example.org"]}, "oidc.addresses[0]"),
    ],
)
def test_what_cannot_work_is_refused_with_its_field(oidc, field):
    assert problems_of(**oidc)[0] == [field]


def test_http_is_for_this_machine_alone():
    assert problems_of(issuer="http://127.0.0.1:8080", addresses=["http://localhost:7070"])[0] == []
    assert problems_of(issuer="http://login.example.org")[0] == ["oidc.issuer"]
    assert problems_of(addresses=["http://penstock.example.org"])[0] == ["oidc.addresses[0]"]


def test_a_secret_in_the_file_is_refused_and_not_repeated():
    for field in ("client_secret", "client_secret_name"):
        fields, said = problems_of(**{field: "hush hush/very+secret="})
        assert f"oidc.{field}" in fields
        assert "hush" not in said


def test_what_is_declared_is_written_and_compared_in_its_own_words():
    section = GOOD | {
        "client_secret_file": "/etc/secret",
        "claim": "email",
        "domain": "example.org",
        "users": {"a.smith@example.org": "ann"},
        "groups": ["ml"],
        "level": "read",
        "session": "1h",
        "addresses": ["https://penstock.example.org"],
    }
    file, problems = parse_cluster({"oidc": section})
    assert problems == []
    assert declaration(file.config)["oidc"] == section
    paths = {one.path for one in diff(ClusterConfig(), file.config)}
    assert {"oidc.issuer", "oidc.session", "oidc.level"} <= paths


@pytest.mark.parametrize(
    ("value", "user"),
    [("ann@example.org", "ann"), ("ann@EXAMPLE.org", "ann"), ("ann@example.org.evil", None), ("ann", None)],
)
def test_only_names_of_the_declared_domain_are_users(value, user):
    assert IdentityProvider(domain="example.org").user_of(value) == user


def test_a_declared_value_goes_before_the_domain():
    provider = IdentityProvider(domain="example.org", users=(("root@other.org", "ann"), ("x@example.org", "bob")))
    assert [provider.user_of(one) for one in ("root@other.org", "x@example.org")] == ["ann", "bob"]
