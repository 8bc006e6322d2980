"""The tenant and queue of jobs that name none."""

import pytest

from penstock.core.config.cluster import declaration, parse_cluster
from penstock.core.lifecycle.defaults import default_queue, default_tenant
from penstock.core.model.access import Scope, User
from penstock.core.model.cluster import Queue, Tenant
from penstock.testing.builders import config

A, B, C, DEFAULT = Tenant("a"), Tenant("b"), Tenant("c"), Tenant("default")


def cluster(*tenants, user=None, **settings):
    users = (user,) if user else ()
    return config(tenants=tenants, users=users, **settings)


def scope(roles=(), *, role="", only=()):
    return Scope("ann", role, dict(roles), "write", frozenset(only))


def test_the_users_own_default_tenant_comes_first():
    declared = cluster(A, B, DEFAULT, user=User("ann", default_tenant="b"), default_tenant="a")
    assert default_tenant(declared, scope({"a": "member", "b": "member"})) == "b"


def test_the_only_tenant_of_a_user_comes_before_that_of_the_cluster():
    declared = cluster(A, B, DEFAULT, default_tenant="a")
    assert default_tenant(declared, scope({"a": "viewer", "b": "tenant_admin"}, role="admin")) == "b"


def test_then_the_default_of_the_cluster_and_then_a_tenant_of_that_name():
    roles = dict.fromkeys(("a", "b", "default"), "member")
    assert default_tenant(cluster(A, B, DEFAULT, default_tenant="a"), scope(roles)) == "a"
    assert default_tenant(cluster(A, B, DEFAULT), scope(roles)) == "default"
    assert default_tenant(cluster(A, B, DEFAULT), scope(role="admin")) == "default"


def test_the_only_tenant_of_a_cluster_is_that_of_its_administrator():
    assert default_tenant(cluster(A), scope(role="admin")) == "a"


def test_no_default_is_one_that_the_caller_may_not_submit_for():
    mine = {"a": "member", "b": "member", "c": "viewer"}
    declared = cluster(A, B, C, user=User("ann", default_tenant="c"), default_tenant="default")
    assert default_tenant(declared, scope(mine)) == ""
    assert default_tenant(cluster(A, B, C, user=User("ann", default_tenant="a")), scope(mine, only=("b",))) == "b"


@pytest.mark.parametrize(
    ("queues", "own", "of_all", "expected"),
    [
        (("q", "r", "default"), "r", "q", "r"),
        (("q", "r", "default"), "", "q", "q"),
        (("q", "r", "default"), "", "", "default"),
        (("q",), "", "", "q"),
        (("q", "r"), "", "", ""),
        (("q", "r"), "gone", "gone", ""),
    ],
)
def test_the_queue_is_that_of_the_user_of_the_cluster_the_only_one_or_that_of_the_name(queues, own, of_all, expected):
    user = User("ann", default_queue=own)
    declared = config(users=(user,), queues=tuple(map(Queue, queues)), default_queue=of_all)
    assert default_queue(declared, "ann") == expected


def test_the_only_queue_without_queues_below_it_is_the_default():
    assert default_queue(config(queues=(Queue("team"), Queue("low", parent="team"))), "ann") == "low"


def test_defaults_are_read_and_written_exactly():
    raw = {
        "tenants": ["a", "b"],
        "queues": ["q", "r"],
        "users": [{"name": "ann", "tenants": ["a", "b"], "default_tenant": "b", "default_queue": "r"}],
        "settings": {"default_tenant": "a", "default_queue": "q"},
    }
    file, problems = parse_cluster(raw)
    assert problems == []
    assert (file.config.users[0].default_tenant, file.config.settings.default_queue) == ("b", "q")
    assert parse_cluster(declaration(file.config))[0].config == file.config


@pytest.mark.parametrize(
    ("users", "settings", "field"),
    [
        ([{"name": "ann", "tenants": ["a"], "default_tenant": "x"}], {}, "users[0].default_tenant"),
        ([{"name": "ann", "tenants": ["a"], "default_tenant": "b"}], {}, "users[0].default_tenant"),
        ([{"name": "ann", "tenants": {"b": "viewer"}, "default_tenant": "b"}], {}, "users[0].default_tenant"),
        ([{"name": "ann", "default_queue": "x"}], {}, "users[0].default_queue"),
        ([], {"default_tenant": "x"}, "settings.default_tenant"),
        ([], {"default_queue": "x"}, "settings.default_queue"),
    ],
)
def test_a_default_that_is_not_declared_or_not_the_users_is_named(users, settings, field):
    raw = {"tenants": ["a", "b"], "queues": ["q"], "users": users, "settings": settings}
    assert [problem.field for problem in parse_cluster(raw)[1]] == [field]


def test_a_default_tenant_of_an_administrator_needs_no_role_in_it():
    raw = {"tenants": ["a"], "users": [{"name": "ann", "role": "admin", "default_tenant": "a"}]}
    assert parse_cluster(raw)[1] == []
