"""Decisions about who hears of what: bounds, and what a choice begins with."""

from msgspec.structs import replace

from penstock.core.lifecycle import notifications
from penstock.core.lifecycle.declaring import declared
from penstock.core.lifecycle.notifications import OWN_MAX, decide
from penstock.core.messages.access import NotificationDone, RemoveNotification, SetNotification
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import User
from penstock.core.model.cluster import Tenant
from penstock.core.model.notifications import Subscription, sealed_as
from penstock.core.state.state import State
from penstock.testing.builders import node
from penstock.testing.harness import World


def chosen(name: str, owner: str = "ann", **fields: object) -> Subscription:
    return Subscription(name, owner, "email", ("success",), sealed_as(owner, name), "x@example.org", **fields)


def put(w: World, one: Subscription, *, administrator: bool = False) -> str:
    reply = w.commit(lambda tx: decide(tx, SetNotification(one, administrator)))
    return reply.problems[0].code if isinstance(reply, Refusal) else "done"


def test_a_user_has_a_bounded_number_and_may_change_each():
    w = World(node())
    assert [put(w, chosen(f"n{i}")) for i in range(OWN_MAX)] == ["done"] * OWN_MAX
    assert put(w, chosen("one-more")) == "too_many_notifications"
    assert put(w, chosen("n0", tenant="default")) == "done"
    assert put(w, chosen("other", "bob")) == "done"


def test_one_user_leaves_places_to_another_and_a_reserve_to_administrators(monkeypatch):
    monkeypatch.setattr(notifications, "SUBSCRIPTIONS_MAX", 8)
    w = World(node())
    assert [put(w, chosen(f"n{i}")) for i in range(5)] == ["done"] * 4 + ["share_used_up"]
    assert [put(w, chosen(f"n{i}", "bob")) for i in range(3)] == ["done", "done", "share_used_up"]
    assert [put(w, chosen(f"n{i}", "root"), administrator=True) for i in range(3)] == ["done"] * 3


def test_no_more_than_all_together_may_be(monkeypatch):
    monkeypatch.setattr(notifications, "SUBSCRIPTIONS_MAX", 1)
    monkeypatch.setattr(notifications, "RESERVE", 1)
    w = World(node())
    assert [put(w, chosen(f"n{i}"), administrator=True) for i in range(3)] == ["done", "done", "too_many_notifications"]


def test_an_unknown_tenant_is_refused():
    assert put(World(node()), chosen("n", tenant="nowhere")) == "unknown_tenant"


def test_what_is_changed_still_begins_where_it_was_first_set():
    w = World(node())
    first = w.state.seq
    put(w, chosen("n"))
    put(w, replace(chosen("n"), events=("failure",)))
    found = w.state.subscriptions.by_key["ann", "n"]
    assert (found.after, found.events) == (first, ("failure",))


def test_what_is_removed_is_gone_and_what_is_not_there_is_said():
    w = World(node())
    put(w, chosen("n"))
    remove = RemoveNotification("ann", "n", "ann")
    assert [w.commit(lambda tx: decide(tx, remove)) for _ in range(2)] == [NotificationDone(), NotificationDone(False)]
    assert (w.state.subscriptions.by_key, w.state.subscriptions.of_user("ann")) == ({}, [])


def test_the_choices_of_removed_users_and_about_removed_tenants_go_with_them():
    w = World(node(), tenants=(Tenant("default"), Tenant("red")), users=(User("ann"), User("bob")))
    for one in (chosen("n"), chosen("n", "bob", tenant="red"), chosen("m", "bob"), chosen("n", "root")):
        put(w, one)
    after = replace(w.state.config, tenants=(Tenant("default"),), users=(User("bob"),))
    w.commit(lambda tx: declared(tx, after, "root"))
    assert sorted(w.state.subscriptions.by_key) == [("bob", "m"), ("root", "n")]


def test_a_snapshot_has_them():
    w = World(node())
    put(w, chosen("n"))
    again = State.from_image(w.state.image())
    assert again.subscriptions.by_key == w.state.subscriptions.by_key
    assert again.subscriptions.of_user("ann") == w.state.subscriptions.of_user("ann")
